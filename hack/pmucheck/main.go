// Pmucheck tests counting, detection and capping on a machine with a PMU. It runs three
// loads: a victim bound by memory latency, an antagonist that saturates memory
// bandwidth at intervals, and an innocent that always computes.
//
// It learns the victim's CPI, detects interference, caps the antagonist and prints what
// it measured. A window takes half a second of every second, so that a run takes
// minutes instead of hours. It needs root, and cgroup v2 or the hierarchy of v1's cpu
// controller; it creates cgroups of its own and removes them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

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
	root := flag.String("root", "/sys/fs/cgroup", "where cgroup v2 is mounted, or the hierarchies of v1")
	learn := flag.Int("learn", 90, "windows with a CPI of the victim, in which the antagonist is stopped")
	disturb := flag.Int("disturb", 240, "most windows in which it alternates between running and stopped")
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

// open opens the counters of the hierarchy to be used, and rejects machines that cannot be tested.
func open(root string, counters opener) (*counter.Counter, hierarchy, error) {
	h, err := hierarchyAt(root)
	if err != nil {
		return nil, h, err
	}
	c, err := counters(counter.Options{Root: h.root, V1: h.v1, MaxGroups: 16, Waits: counter.WaitsTotal})
	if err != nil {
		return nil, h, err
	}
	status := c.Status()
	if err := missing(&status); err != nil {
		return nil, h, errors.Join(err, c.Close())
	}
	return c, h, nil
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
	c, h, err := open(p.root, counters)
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
	record, err := run(ctx, p, h, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pmucheck:", err)
		return exitFailed
	}
	status = c.Status()
	fmt.Printf("%s%s\n%s\n%s", record.report(), costs(&status), where, sendReport)
	if record.found() {
		return exitFound
	}
	return exitNotFound
}
