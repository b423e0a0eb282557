package counter

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// kernel is the part of Linux that the counter uses; tests replace it to inject errors.
type kernel interface {
	// openEvent opens a perf event that counts everything on one CPU. group is the
	// descriptor of its group's first event, -1 for none.
	openEvent(attr *unix.PerfEventAttr, cpu, group int) (fd int, err error)
	// types returns the kernel's own type information.
	types() (*btf.Spec, error)
	load(spec *ebpf.CollectionSpec, types *btf.Spec) (*ebpf.Collection, error)
	// flush runs the program on one CPU. It returns ENXIO if that CPU is offline.
	flush(p *ebpf.Program, cpu int, mode flushMode) error
	readFile(name string) ([]byte, error)
}

// flushMode is the argument of flush() in counter.bpf.c.
type flushMode uint64

const (
	flushRead   flushMode = iota // charge, then switch banks
	flushStart                   // open the gate, baseline only, then switch banks
	flushStop                    // charge, then close the gate
	flushCharge                  // charge
)

type linux struct{}

func (linux) openEvent(attr *unix.PerfEventAttr, cpu, group int) (int, error) {
	return unix.PerfEventOpen(attr, -1, cpu, group, unix.PERF_FLAG_FD_CLOEXEC)
}

func (linux) types() (*btf.Spec, error) { return btf.LoadKernelSpec() }

func (linux) load(spec *ebpf.CollectionSpec, types *btf.Spec) (*ebpf.Collection, error) {
	// Only needed before Linux 5.11, which counts maps as locked memory.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{KernelTypes: types}})
}

func (linux) flush(p *ebpf.Program, cpu int, mode flushMode) error {
	const onCPU = 1 // BPF_F_TEST_RUN_ON_CPU
	_, err := p.Run(&ebpf.RunOptions{Flags: onCPU, CPU: uint32(cpu), Context: uint64(mode)})
	return err
}

func (linux) readFile(name string) ([]byte, error) { return os.ReadFile(name) }

func release(k kernel) string {
	text, err := k.readFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "of unknown release"
	}
	return strings.TrimSpace(string(text))
}

// lockedDown says whether lockdown hides the kernel's memory and counters from root.
func lockedDown(k kernel) bool {
	text, err := k.readFile("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(string(text), "[confidentiality]")
}

// perfEventParanoid is kernel.perf_event_paranoid. Linux has no level above 2, but
// distributions do.
func perfEventParanoid(k kernel) (int, error) {
	text, err := k.readFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

const privileges = "CAP_BPF and CAP_PERFMON, before Linux 5.11 also CAP_SYS_RESOURCE, and a seccomp profile that " +
	"knows them"

// unsupported explains why the program cannot be loaded or run.
func unsupported(k kernel, what string, err error) error {
	e := &UnsupportedError{Feature: what, Kernel: release(k), Err: err}
	var verifier *ebpf.VerifierError
	switch {
	case lockedDown(k):
		e.Feature = "a kernel that is not locked down (/sys/kernel/security/lockdown says confidentiality)"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES) && !errors.As(err, &verifier):
		e.Feature = "permission (" + privileges + ")"
	case errors.Is(err, unix.ENOSYS):
		e.Feature = "the system call bpf (CONFIG_BPF_SYSCALL)"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("load the counting program: %w; give the daemon more memory, or lower MaxGroups", err)
	}
	return e
}

// whyAbsent explains in a sentence why an event could not be opened.
func whyAbsent(k kernel, err error) string {
	switch {
	case lockedDown(k):
		return "the kernel is locked down (/sys/kernel/security/lockdown says confidentiality)"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, unix.ENXIO):
		return "this CPU, or the hypervisor below it, has no such counter"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		if n, err := perfEventParanoid(k); err == nil && n > 2 {
			return fmt.Sprintf(
				"not permitted: kernel.perf_event_paranoid is %d, and above 2 kernels of Debian and Ubuntu open "+
					"counters for CAP_SYS_ADMIN alone: set it to 2", n)
		}
		return "not permitted: give the daemon " + privileges
	case errors.Is(err, unix.EBUSY):
		return "the counters are held by another user of the performance monitoring unit"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "too many open files: raise the daemon's limit above CPUs x events"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EINVAL):
		return "the performance monitoring unit refuses this event"
	}
	return "the kernel refuses it"
}
