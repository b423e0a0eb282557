package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/e2e/counters/report"
)

const cgroups = "/sys/fs/cgroup"

// work is programs of n rounds each that run one after the other in a cgroup.
type work struct {
	at    string // the cgroup
	group string // the followed one at or above it
	n     uint32
	times int
}

// cases are what can go wrong with attributing: each names the works that run at
// the same time. Programs are long enough for exec and exit to be a small part.
var cases = []struct {
	name  string
	works []work
}{
	{"a task that never yields", []work{{"never", "never", 200e6, 1}}},
	{"short-lived processes", []work{{"short", "short", 100e6, 4}}},
	{"nested: the container, far below it", []work{{"pod/container/far/below", "pod/container", 200e6, 1}}},
	{"nested: the pod next to its container", []work{{"pod/init", "pod", 200e6, 1},
		{"pod/container", "pod/container", 200e6, 1}}},
	{"three that take turns", []work{{"one", "one", 200e6, 1}, {"two", "two", 250e6, 1}, {"three", "three", 100e6, 3}}},
}

func countInstructions() error {
	if err := os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
		return err
	}
	for _, trigger := range []counter.Trigger{counter.SchedSwitch, counter.CgroupSwitches} {
		if err := countBy(trigger); err != nil {
			return fmt.Errorf("%v: %w", trigger, err)
		}
	}
	return nil
}

func countBy(trigger counter.Trigger) error {
	c, err := counter.Open(counter.Options{Root: cgroups, Trigger: trigger})
	if err != nil {
		return err
	}
	defer c.Close()
	status := c.Status()
	for _, e := range []counter.Event{counter.Cycles, counter.Instructions} {
		if s := status.Sources[e]; s.Kind != counter.Hardware {
			return fmt.Errorf("%v is %v: %s", e, s.Kind, s.Reason)
		}
	}
	fmt.Printf("Linux %s, %v, %s and %s\n", status.Kernel, status.Trigger, status.Sources[counter.Cycles].Name,
		status.Sources[counter.Instructions].Name)
	for _, one := range cases {
		for _, w := range one.works {
			if err := os.MkdirAll(filepath.Join(cgroups, w.at), 0o755); err != nil {
				return err
			}
			if err := c.Follow(w.group, "/"+w.group); err != nil {
				return err
			}
		}
	}
	if err := c.Enable(nil); err != nil {
		return err
	}
	for _, one := range cases {
		before, err := reading(c)
		if err != nil {
			return err
		}
		if err := together(one.works); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		after, err := reading(c)
		if err != nil {
			return err
		}
		for _, w := range one.works {
			if err := report.Write(os.Stdout, figures(w, before, after,
				report.Group{Trigger: trigger.String(), Case: one.name})); err != nil {
				return err
			}
		}
	}
	if err := idle(c, trigger); err != nil {
		return err
	}
	return c.Disable(nil)
}

// idle distinguishes cycles from instructions, of which this CPU has as many while it
// works: while it waits the cycles go on.
func idle(c *counter.Counter, trigger counter.Trigger) error {
	before, err := reading(c)
	if err != nil {
		return err
	}
	if err := unix.Nanosleep(&unix.Timespec{Nsec: 5e8}, nil); err != nil {
		return err
	}
	after, err := reading(c)
	if err != nil {
		return err
	}
	b, a := before.Other.Events, after.Other.Events
	return report.Write(os.Stdout, report.Group{
		Trigger: trigger.String(), Case: report.Idle,
		Instructions: a[counter.Instructions] - b[counter.Instructions], Cycles: a[counter.Cycles] - b[counter.Cycles],
	})
}

// snapshot is a reading, with the kernel's account of every group.
type snapshot struct {
	*counter.Reading
	used map[string]uint64
}

func reading(c *counter.Counter) (snapshot, error) {
	s := snapshot{new(counter.Reading), map[string]uint64{}}
	if err := c.Read(s.Reading); err != nil {
		return s, err
	}
	sum := s.Other.Events[counter.Instructions]
	for _, g := range s.Groups {
		sum += g.Events[counter.Instructions]
		text, err := os.ReadFile(filepath.Join(cgroups, g.ID, "cpu.stat"))
		if err != nil {
			return s, err
		}
		var usec uint64
		if _, err := fmt.Sscanf(strings.TrimSpace(string(text)), "usage_usec %d", &usec); err != nil {
			return s, fmt.Errorf("cpu.stat of %s: %w", g.ID, err)
		}
		s.used[g.ID] = usec * 1000
	}
	for pod := range s.used {
		for inner, used := range s.used {
			if strings.HasPrefix(inner, pod+"/") { // which is counted for itself
				s.used[pod] -= used
			}
		}
	}
	if all := s.Machine.Events[counter.Instructions]; sum != all {
		return s, fmt.Errorf("groups and Other have %d instructions, the machine %d", sum, all)
	}
	return s, nil
}

func figures(w work, before, after snapshot, g report.Group) report.Group {
	g.Group, g.Programs, g.Known = w.group, w.times, uint64(w.times)*known(w.n)
	g.Missed = after.Faults.Missed - before.Faults.Missed
	b, a := of(before, w.group), of(after, w.group)
	g.Instructions = a.Events[counter.Instructions] - b.Events[counter.Instructions]
	g.Cycles = a.Events[counter.Cycles] - b.Events[counter.Cycles]
	g.OnCPU, g.Counted = a.OnCPU-b.OnCPU, a.Counted-b.Counted
	g.Kernel = after.used[w.group] - before.used[w.group]
	return g
}

func of(s snapshot, id string) counter.Counts {
	for _, g := range s.Groups {
		if g.ID == id {
			return g.Counts
		}
	}
	return counter.Counts{}
}

// together runs works at the same time, each program born in its cgroup.
func together(works []work) error {
	ends := make(chan error)
	for _, w := range works {
		name, err := writeProgram(w.n)
		if err != nil {
			return err
		}
		dir, err := os.Open(filepath.Join(cgroups, w.at))
		if err != nil {
			return err
		}
		defer dir.Close()
		go func() {
			for range w.times {
				cmd := exec.Command(name)
				cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
				if err := cmd.Run(); err != nil {
					ends <- err
					return
				}
			}
			ends <- nil
		}()
	}
	var failed error
	for range works {
		if err := <-ends; err != nil {
			failed = err
		}
	}
	return failed
}
