package counter

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// chooseTrigger chooses what runs the program, and says why.
//
// Both triggers cost the same where a cgroup leaves a CPU. Within one cgroup the
// software event costs less. But the kernel skips its program while a map changes or
// another program runs on the same CPU, which costs accuracy: it must be configured
// explicitly.
func chooseTrigger(k kernel, o Options, cpu int) (Trigger, string, error) {
	switch o.Trigger {
	case SchedSwitch:
		return SchedSwitch, "as configured", nil
	case CgroupSwitches:
		if blocked := cgroupSwitchesBlocked(k, o, cpu); blocked != "" {
			return 0, "", &UnsupportedError{Feature: "the trigger cgroup-switches (" + blocked + ")",
				Kernel: release(k)}
		}
		return CgroupSwitches, "as configured", nil
	}
	reason := "it sees every switch"
	if blocked := cgroupSwitchesBlocked(k, o, cpu); blocked != "" {
		reason += "; " + blocked
	}
	return SchedSwitch, reason, nil
}

// cgroupSwitchesBlocked says why the software event cannot be the trigger; empty if it
// can.
func cgroupSwitchesBlocked(k kernel, o Options, cpu int) string {
	if o.V1 {
		return "cgroup v1: the kernel's event counts another hierarchy"
	}
	if o.Waits != WaitsOff {
		return "waiting times need every context switch"
	}
	fd, err := k.openEvent(triggerAttr(), cpu, -1)
	if err != nil {
		return fmt.Sprintf("cgroup-switches cannot be opened (Linux 5.13 has it): %v", err)
	}
	_ = unix.Close(fd)
	if h := hierarchyOf(k, "perf_event"); h != "0" {
		return "the controller perf_event is in a cgroup v1 hierarchy"
	}
	control := filepath.Join(o.Root, "cgroup.subtree_control")
	text, err := k.readFile(control)
	if err != nil {
		return fmt.Sprintf("whether cgroup-switches counts is not known: %v", err)
	}
	if strings.TrimSpace(string(text)) == "" {
		return "cgroup-switches counts nothing before a controller is enabled in " + control
	}
	return ""
}

// hierarchyOf is the number of a controller's hierarchy in /proc/cgroups, whose lines
// are "name hierarchy cgroups enabled". 0 is cgroup v2; empty: unknown.
func hierarchyOf(k kernel, controller string) string {
	text, err := k.readFile("/proc/cgroups")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == controller {
			return f[1]
		}
	}
	return ""
}

// attachment runs the programs.
type attachment struct {
	kernel   kernel
	links    []link.Link // tracepoints
	program  *ebpf.Program
	counts   *ebpf.Map   // cgroup_switches; nil: sched_switch is the trigger
	triggers map[int]int // CPU to descriptor, of cgroup-switches
}

func (a *attachment) attach(p *ebpf.Program, tracepoint string) error {
	l, err := link.AttachTracing(link.TracingOptions{Program: p, AttachType: ebpf.AttachTraceRawTp})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", tracepoint, err)
	}
	a.links = append(a.links, l)
	return nil
}

// addCPU runs the program on one more CPU. sched_switch already covers all CPUs.
func (a *attachment) addCPU(cpu int) error {
	if a.counts == nil {
		return nil
	}
	a.removeCPU(cpu)
	fd, err := a.kernel.openEvent(triggerAttr(), cpu, -1)
	if err != nil {
		return fmt.Errorf("open cgroup-switches on CPU %d: %w", cpu, err)
	}
	a.triggers[cpu] = fd
	if err := a.counts.Update(uint32(cpu), uint32(fd), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("keep cgroup-switches of CPU %d: %w", cpu, err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, a.program.FD()); err != nil {
		return fmt.Errorf("attach to cgroup-switches of CPU %d: %w", cpu, err)
	}
	return nil
}

func (a *attachment) removeCPU(cpu int) {
	if fd, ok := a.triggers[cpu]; ok {
		_ = a.counts.Delete(uint32(cpu)) // gone with the descriptor in any case
		_ = unix.Close(fd)
		delete(a.triggers, cpu)
	}
}

func (a *attachment) detach() (failed error) {
	for _, l := range a.links {
		failed = errors.Join(failed, l.Close())
	}
	for cpu := range a.triggers {
		a.removeCPU(cpu)
	}
	a.links = nil
	return failed
}

func (a *attachment) descriptors() int { return len(a.links) + len(a.triggers) }
