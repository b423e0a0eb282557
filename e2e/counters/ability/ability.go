// Package ability finds out what counting can do on the running kernel, and why it cannot do
// the rest. It changes nothing that outlives it.
package ability

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/e2e/counters/report"
)

// The abilities, in the order of the table.
const (
	Time     = "CPU time and switches of a cgroup (v2)"
	TimeV1   = "CPU time, switches and waits of a cgroup (v1)"
	Waits    = "run-queue waits, in all and by cause"
	Switches = "the trigger `cgroup-switches`"
	StandIns = "stand-ins (`cpu-clock`, page faults)"
	Pressure = "CPU pressure (PSI) of a cgroup, `some`"
	Full     = "the same, `full`"
	Hardware = "hardware events"
)

// Try tries each on the running kernel, below the cgroup v2 hierarchy at root. v1 is the hierarchy
// of version 1's cpu controller; empty: one is mounted for the trial.
func Try(root, v1 string) []report.Ability {
	var all []report.Ability
	try := func(what string, err error) {
		a := report.Ability{Kernel: release(), What: what}
		if err != nil {
			a.Why = err.Error()
			var unsupported *counter.UnsupportedError
			if a.Typed = errors.As(err, &unsupported); a.Typed {
				a.Why = unsupported.Feature
				if unsupported.Err != nil {
					a.Why += ": " + unsupported.Err.Error()
				}
			}
		}
		all = append(all, a)
	}
	try(Time, window(counter.Options{Root: root}))
	try(Waits, errors.Join(window(counter.Options{Root: root, Waits: counter.WaitsTotal}),
		window(counter.Options{Root: root, Waits: counter.WaitsByCause})))
	try(Switches, bySwitches(root))
	try(TimeV1, onV1(v1))
	try(StandIns, standIns(root))
	some, full := pressure(root)
	try(Pressure, some)
	try(Full, full)
	try(Hardware, sources(counter.Options{Root: root}, counter.Hardware, counter.Cycles, counter.Instructions))
	return all
}

func release() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail: the buffer is there
	return unix.ByteSliceToString(u.Release[:])
}

// window opens a counter, which follows a cgroup of its own, and a window, and closes both.
func window(o counter.Options) error {
	c, err := counter.Open(o)
	if err != nil {
		return err
	}
	defer c.Close()
	dir, err := os.MkdirTemp(o.Root, "ability-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := c.Follow("own", "/"+filepath.Base(dir)); err != nil {
		return err
	}
	var first, last counter.Reading
	if err := c.Enable(&first); err != nil {
		return err
	}
	if err := c.Disable(&last); err != nil {
		return err
	}
	if last.Machine.OnCPU <= first.Machine.OnCPU {
		return fmt.Errorf("a window of %v has %d ns of CPU time", last.At-first.At,
			last.Machine.OnCPU-first.Machine.OnCPU)
	}
	return nil
}

func onV1(root string) error {
	if root == "" {
		dir, err := os.MkdirTemp("", "v1-")
		if err != nil {
			return err
		}
		defer os.Remove(dir)
		if err := unix.Mount("none", dir, "cgroup", 0, "cpu"); err != nil {
			return fmt.Errorf("mount the hierarchy: %w", err)
		}
		defer unix.Unmount(dir, 0)
		root = dir
	}
	return window(counter.Options{Root: root, V1: true, Waits: counter.WaitsByCause})
}

// bySwitches enables a controller below the root for the trial, where none is: the event counts
// nothing without. Where that cannot be done the counter says so itself.
func bySwitches(root string) error {
	control := filepath.Join(root, "cgroup.subtree_control")
	enabled, _ := os.ReadFile(control)
	all, _ := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if names := strings.Fields(string(all)); len(strings.Fields(string(enabled))) == 0 && len(names) > 0 {
		if os.WriteFile(control, []byte("+"+names[0]), 0) == nil {
			defer os.WriteFile(control, []byte("-"+names[0]), 0)
		}
	}
	return window(counter.Options{Root: root, Trigger: counter.CgroupSwitches})
}

func standIns(root string) error {
	return sources(counter.Options{Root: root, StandIns: map[counter.Event]counter.StandIn{
		counter.Cycles: counter.CPUClock, counter.Instructions: counter.PageFaults,
	}}, counter.Declared, counter.Cycles, counter.Instructions)
}

// sources wants events of a kind. Of one that is absent the counter says why.
func sources(o counter.Options, want counter.SourceKind, of ...counter.Event) error {
	c, err := counter.Open(o)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, e := range of {
		if s := c.Status().Sources[e]; s.Kind != want {
			return &counter.UnsupportedError{Feature: e.String() + " (" + s.Reason + ")", Kernel: release(), Err: s.Err}
		}
	}
	return nil
}

// pressure reads the file of a cgroup of its own.
func pressure(root string) (some, full error) {
	dir, err := os.MkdirTemp(root, "pressure-")
	if err != nil {
		return err, err
	}
	defer os.Remove(dir)
	text, err := os.ReadFile(filepath.Join(dir, "cpu.pressure"))
	if err != nil {
		return psi(err), psi(err)
	}
	for kind, err := range map[string]*error{"some": &some, "full": &full} {
		if !strings.Contains(string(text), kind+" avg10=") {
			*err = psi(fmt.Errorf("cpu.pressure has no line %q", kind))
		}
	}
	return some, full
}

func psi(err error) error {
	return &counter.UnsupportedError{Feature: "CPU pressure of cgroups (CONFIG_PSI, not switched off at boot)",
		Kernel: release(), Err: err}
}
