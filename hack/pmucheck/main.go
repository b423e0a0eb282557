// Pmucheck tests counting, detection and capping on a machine with a PMU. It runs three
// loads: a victim bound by memory latency, an antagonist that saturates memory
// bandwidth at intervals, and an innocent that always computes.
//
// It learns the victim's CPI, detects interference, caps the antagonist and prints what
// it measured. A window takes half a second of every second, so that a run takes
// minutes instead of hours. It needs root and cgroup v2, creates cgroups of its own and
// removes them.
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

// Exit codes.
const (
	exitFound = iota
	exitNotFound
	exitFailed
	exitNoPMU
)

func main() {
	root := flag.String("root", "/sys/fs/cgroup", "where cgroup v2 is mounted")
	learn := flag.Int("learn", 90, "windows in which the antagonist is frozen")
	disturb := flag.Int("disturb", 240, "most windows in which it alternates between running and frozen")
	threads := flag.Int("threads", max(runtime.NumCPU()/2, 2), "threads of the antagonist")
	load := flag.String("load", "", "run one of the loads (internal)")
	flag.Parse()
	if *load != "" {
		if err := runLoad(*load, *threads); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := try(ctx, plan{root: *root, learn: *learn, disturb: *disturb, threads: *threads}, counter.Open)
	stop()
	os.Exit(code)
}

// plan says how long and with how many threads to test.
type plan struct {
	root                    string
	learn, disturb, threads int
}

// NoPMUError says that this machine lacks counters that CPI needs.
type NoPMUError struct {
	Missing []string // events
	Reason  string   // the kernel's, of the first
}

func (e *NoPMUError) Error() string {
	return fmt.Sprintf(
		"this machine does not count %s: %s; a virtual machine needs a virtual PMU, a physical machine has one",
		strings.Join(e.Missing, " and "), e.Reason)
}

// opener opens counters: counter.Open, or a fake in tests.
type opener func(counter.Options) (*counter.Counter, error)

// open opens the counters and rejects machines that cannot be tested.
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

// refusal says why this machine cannot be tested. A missing PMU comes first, since the
// user can do nothing about it.
func refusal(s *counter.Status, root string, v1 bool) error {
	if err := missing(s); err != nil {
		return err
	}
	if v1 {
		return fmt.Errorf("%s is not cgroup v2; name the directory where that is mounted by -root", root)
	}
	return nil
}

// missing names the events that CPI needs and the machine lacks.
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
	record, err := run(ctx, p, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pmucheck:", err)
		return exitFailed
	}
	fmt.Printf("%s%s\n%s", record.report(), where, sendReport)
	if record.found() {
		return exitFound
	}
	return exitNotFound
}
