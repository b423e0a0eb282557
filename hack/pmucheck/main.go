// Pmucheck tries counting, detection and capping on a machine with a PMU: a victim
// that lives from memory, an antagonist that uses up the memory's bandwidth by turns,
// and an innocent that always runs. It learns, finds, caps and prints what it saw; with
// windows of half a second a second, so that it takes minutes instead of hours. It wants
// root and cgroup v2, makes cgroups of its own and removes them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi/counter"
)

// What the program ends with.
const (
	exitFound = iota
	exitNotFound
	exitFailed
	exitNoPMU
)

func main() {
	root := flag.String("root", "/sys/fs/cgroup", "where cgroup v2 is mounted")
	learn := flag.Int("learn", 90, "windows in which the antagonist rests")
	disturb := flag.Int("disturb", 240, "windows in which it runs by turns, at most")
	threads := flag.Int("threads", max(runtime.NumCPU()/2, 2), "threads of the antagonist")
	load := flag.String("load", "", "be one of the loads (for the program's own use)")
	flag.Parse()
	if *load != "" {
		if err := burden(*load, *threads); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := try(ctx, plan{root: *root, learn: *learn, disturb: *disturb, threads: *threads}, counter.Open)
	stop()
	os.Exit(code)
}

// plan is what is tried.
type plan struct {
	root                    string
	learn, disturb, threads int
}

// NoPMUError says that this machine does not count what CPI is made of.
type NoPMUError struct {
	Missing []string // events
	Reason  string   // the kernel's, of the first
}

func (e *NoPMUError) Error() string {
	return fmt.Sprintf(
		"this machine does not count %s: %s; a virtual machine needs a virtual PMU, a machine of iron has one",
		strings.Join(e.Missing, " and "), e.Reason)
}

// opener opens counters: counter.Open, but for tests.
type opener func(counter.Options) (*counter.Counter, error)

// open opens the counters, and refuses machines on which there is nothing to check.
func open(root string, counters opener) (*counter.Counter, error) {
	o := counter.Options{Root: root, MaxGroups: 16, Waits: counter.WaitsTotal}
	var fs unix.Statfs_t
	if err := unix.Statfs(root, &fs); err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		o.Root, o.V1 = filepath.Join(root, "cpu"), true
	}
	c, err := counters(o)
	if err != nil {
		return nil, err
	}
	status := c.Status()
	if err := refusal(&status, root, o.V1); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// refusal is why this machine is not checked: no PMU comes first, since nothing can be
// done about that.
func refusal(s *counter.Status, root string, v1 bool) error {
	if err := missing(s); err != nil {
		return err
	}
	if v1 {
		return fmt.Errorf("%s is not cgroup v2; name the directory where that is mounted by -root", root)
	}
	return nil
}

// missing says what a CPI needs and is not there.
func missing(s *counter.Status) error {
	e := &NoPMUError{}
	has := func(event counter.Event) bool { return s.Sources[event].Kind == counter.Hardware }
	lacks := func(event counter.Event) {
		e.Missing = append(e.Missing, event.String())
		if e.Reason == "" {
			e.Reason = s.Sources[event].Reason
		}
	}
	if !has(counter.Cycles) && !has(counter.RefCycles) {
		lacks(counter.Cycles)
	}
	if !has(counter.Instructions) {
		lacks(counter.Instructions)
	}
	if len(e.Missing) == 0 {
		return nil
	}
	return e
}

func try(ctx context.Context, p plan, counters opener) int {
	c, err := open(p.root, counters)
	var none *NoPMUError
	switch {
	case errors.As(err, &none):
		fmt.Println("not checked:", none)
		return exitNoPMU
	case err != nil:
		fmt.Fprintln(os.Stderr, "pmucheck:", err)
		return exitFailed
	}
	defer c.Close()
	status := c.Status()
	where := describe(os.DirFS("/proc"), &status)
	fmt.Println(where)
	saw, err := run(ctx, p, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pmucheck:", err)
		return exitFailed
	}
	fmt.Printf("%s%s\n%s", saw.report(), where, whereTo)
	if saw.found() {
		return exitFound
	}
	return exitNotFound
}
