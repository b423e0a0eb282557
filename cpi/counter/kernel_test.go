package counter

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// double is Linux, but for what a test puts in its place.
type double struct {
	linux
	open func(attr *unix.PerfEventAttr, cpu int) error // nil: Linux is asked
	// hardware events are opened as a software event that every machine has
	pmu      bool
	btf      error
	loading  error
	flushing func(cpu int, mode flushMode) error
	files    map[string]string
}

func (d *double) openEvent(attr *unix.PerfEventAttr, cpu, group int) (int, error) {
	if d.open != nil {
		if err := d.open(attr, cpu); err != nil {
			return -1, err
		}
	}
	if d.pmu && attr.Type != unix.PERF_TYPE_SOFTWARE {
		src, _ := CPUClock.perf()
		bits := attr.Bits
		attr = kinds(nil).attr(src, cpu)
		attr.Bits = bits
	}
	return d.linux.openEvent(attr, cpu, group)
}

// machines are one with a PMU and one without, whatever this one is.
func machines() map[string]*double {
	return map[string]*double{"with a PMU": {pmu: true}, "without a PMU": {open: withoutPMU}}
}

func withoutPMU(attr *unix.PerfEventAttr, _ int) error {
	if attr.Type == unix.PERF_TYPE_SOFTWARE {
		return nil
	}
	return unix.ENOENT
}

func (d *double) types() (*btf.Spec, error) {
	if d.btf != nil {
		return nil, d.btf
	}
	return d.linux.types()
}

func (d *double) load(spec *ebpf.CollectionSpec, types *btf.Spec) (*ebpf.Collection, error) {
	if d.loading != nil {
		return nil, d.loading
	}
	return d.linux.load(spec, types)
}

func (d *double) flush(p *ebpf.Program, cpu int, mode flushMode) error {
	if d.flushing != nil {
		if err := d.flushing(cpu, mode); err != nil {
			return err
		}
	}
	return d.linux.flush(p, cpu, mode)
}

func (d *double) readFile(name string) ([]byte, error) {
	if text, ok := d.files[name]; ok {
		return []byte(text), nil
	}
	if strings.HasPrefix(name, "/nowhere") {
		return nil, fs.ErrNotExist
	}
	return d.linux.readFile(name)
}

func openDouble(t *testing.T, h *hierarchy, d *double, o Options) *Counter {
	t.Helper()
	return openKernel(t, h, d, o)
}

func openKernel(t *testing.T, h *hierarchy, d kernel, o Options) *Counter {
	t.Helper()
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	o.Root, o.V1 = h.root, h.v1
	c, err := open(d, o, possible)
	if err != nil {
		unsupportedHere(t, err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

const confidential = "none integrity [confidentiality]\n"

func TestUnsupported(t *testing.T) {
	needRoot(t)
	const release = "/proc/sys/kernel/osrelease"
	lockdown := map[string]string{"/sys/kernel/security/lockdown": confidential, release: "5.4.0\n"}
	old := map[string]string{release: "5.4.0\n"}
	for name, c := range map[string]struct {
		double double
		want   string
		cause  error
	}{
		"no BTF": {double{files: old, btf: ebpf.ErrNotSupported},
			"counting needs the kernel's type information (CONFIG_DEBUG_INFO_BTF, Linux 5.4), which Linux 5.4.0 " +
				"refuses", ebpf.ErrNotSupported},
		"no permission": {double{files: old, loading: unix.EPERM},
			"counting needs permission (CAP_BPF and CAP_PERFMON", unix.EPERM},
		"no bpf at all": {double{files: old, loading: unix.ENOSYS}, "the system call bpf", unix.ENOSYS},
		"the verifier": {double{files: old, loading: &ebpf.VerifierError{Cause: unix.EACCES}},
			"the features of Linux 5.10", unix.EACCES},
		"lockdown": {double{files: lockdown, loading: unix.EINVAL},
			"not locked down (/sys/kernel/security/lockdown says confidentiality)", unix.EINVAL},
		"no run on a CPU": {double{files: old, flushing: func(int, flushMode) error {
			return unix.EINVAL
		}}, "BPF_F_TEST_RUN_ON_CPU, Linux 5.10), which Linux 5.4.0 refuses", unix.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(&c.double, Options{Root: "/sys/fs/cgroup", Trigger: SchedSwitch}, 2)
			var u *UnsupportedError
			if !errors.As(err, &u) || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.cause) {
				t.Errorf("%v, want an UnsupportedError with %q", err, c.want)
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		_, err := open(&double{loading: unix.ENOMEM}, Options{Root: "/sys/fs/cgroup", Trigger: SchedSwitch}, 2)
		var u *UnsupportedError
		if err == nil || errors.As(err, &u) || !strings.Contains(err.Error(), "MaxGroups") {
			t.Errorf("%v, want a way out that is not called unsupported", err)
		}
	})
}

func paranoid(level string) map[string]string {
	return map[string]string{"/proc/sys/kernel/perf_event_paranoid": level + "\n"}
}

func TestWhyAbsent(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		file map[string]string
		want string
	}{
		"no PMU":         {err: unix.ENOENT, want: "has no such counter"},
		"no such device": {err: unix.ENODEV, want: "has no such counter"},
		"not supported":  {err: unix.EOPNOTSUPP, want: "has no such counter"},
		"not permitted":  {err: unix.EACCES, want: "give the daemon CAP_BPF and CAP_PERFMON"},
		"paranoid as Linux is": {err: unix.EPERM, file: paranoid("2"),
			want: "give the daemon CAP_BPF and CAP_PERFMON"},
		"paranoid as Debian is": {err: unix.EACCES, file: paranoid("3"),
			want: "kernel.perf_event_paranoid is 3, and above 2"},
		"held by others":       {err: unix.EBUSY, want: "held by another user"},
		"too many files":       {err: unix.EMFILE, want: "raise the daemon's limit"},
		"an odd configuration": {err: unix.EINVAL, want: "refuses this event"},
		"something else":       {err: unix.EIO, want: "the kernel refuses it"},
		"lockdown for the events": {err: unix.EPERM,
			file: map[string]string{"/sys/kernel/security/lockdown": confidential}, want: "locked down"},
	} {
		t.Run(name, func(t *testing.T) {
			// An event that one CPU lacks is not counted at all.
			e := newEvents(lastLacks{&double{files: c.file}, c.err}, 2)
			got := e.choose(Cycles, 0, []int{0, 1})
			if got.Kind != Absent || !strings.Contains(got.Reason, c.want) || !errors.Is(got.Err, c.err) {
				t.Errorf("%+v, want absent: %s", got, c.want)
			}
			// What passes is tried again.
			passes := c.err == unix.EBUSY || c.err == unix.EMFILE
			if n := e.count(); n != 0 || e.perf[Cycles] != passes {
				t.Errorf("%d descriptors of an absent event; is it tried again? %t", n, e.perf[Cycles])
			}
		})
	}
}

// lastLacks opens nothing, successfully, but for CPU 1.
type lastLacks struct {
	kernel
	err error
}

func (l lastLacks) openEvent(attr *unix.PerfEventAttr, cpu, group int) (int, error) {
	if cpu == 1 {
		return -1, l.err
	}
	return openable{}.openEvent(attr, cpu, group)
}

func TestWithoutPMU(t *testing.T) {
	h := v2(t)
	var log bytes.Buffer
	d := &double{open: withoutPMU}
	c := openDouble(t, h, d, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if n := strings.Count(log.String(), "event is not counted"); n != numEvents {
		t.Errorf("%d lines for %d events:\n%s", n, numEvents, log.String())
	}
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	read(t, c)
	r := read(t, c)
	if r.Machine.Events != ([numEvents]uint64{}) || r.Machine.OnCPU == 0 || r.Machine.Counted == 0 {
		t.Errorf("time alone was to be counted: %+v", r.Machine)
	}
	if s := c.Status(); s.Sources[Cycles].Kind != Absent || s.Descriptors == 0 || s.MapBytes == 0 || !s.Enabled {
		t.Errorf("%+v", s)
	}
}

// The events of a counter are all of the hardware or all stand-ins, whatever the
// machine has and whatever is configured: a ratio of both would look like a CPI.
func TestHardwareAndStandInsAreNeverMixed(t *testing.T) {
	for has := range 1 << numEvents { // the machine's hardware events
		for declared := range 1 << numEvents {
			standIns := map[Event]StandIn{}
			for _, e := range Events() {
				if declared>>e&1 == 1 {
					standIns[e] = StandIn(int(e)%3 + 1)
				}
			}
			events := newEvents(partPMU(has), 2)
			got := events.chooseAll(standIns, []int{0, 1})
			kinds := map[SourceKind]int{}
			for e, s := range got {
				kinds[s.Kind]++
				if s.Kind == Absent && s.Reason == "" || s.Kind == Hardware && has>>e&1 == 0 {
					t.Errorf("hardware %04b, stand-ins %04b: %v is %+v", has, declared, Event(e), s)
				}
			}
			if kinds[Hardware] > 0 && kinds[Declared] > 0 {
				t.Errorf("hardware %04b, stand-ins %04b: mixed: %+v", has, declared, got)
			}
			if declared == 0 && kinds[Hardware] != bits.OnesCount(uint(has)) {
				t.Errorf("hardware %04b: %+v", has, got)
			}
			const misses = 1 << LLCMisses
			if declared&^misses != 0 && kinds[Declared] != bits.OnesCount(uint(declared)) {
				t.Errorf("hardware %04b, stand-ins %04b: %+v, want all of the stand-ins", has, declared, got)
			}
			if declared == misses && kinds[Hardware] != bits.OnesCount(uint(has&^misses)) {
				t.Errorf("hardware %04b, a stand-in for misses alone: %+v, want the hardware's CPI", has, got)
			}
			events.closeCPU(0)
			events.closeCPU(1)
		}
	}
}

// partPMU opens software events and those hardware events whose bit is set.
type partPMU int

func (p partPMU) openEvent(attr *unix.PerfEventAttr, cpu, group int) (int, error) {
	for _, e := range Events() {
		if src := hardware(e); src.typ == attr.Type && src.config == attr.Config && p>>e&1 == 0 {
			return -1, unix.ENOENT
		}
	}
	return openable{}.openEvent(attr, cpu, group)
}

func (partPMU) types() (*btf.Spec, error) { return nil, unix.ENOSYS }

func (partPMU) load(*ebpf.CollectionSpec, *btf.Spec) (*ebpf.Collection, error) {
	return nil, unix.ENOSYS
}

func (partPMU) flush(*ebpf.Program, int, flushMode) error { return unix.ENOSYS }

func (partPMU) readFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

func TestTriggerChoice(t *testing.T) {
	enabled := map[string]string{
		"/proc/cgroups": "#subsys_name\thierarchy\tnum_cgroups\tenabled\n" +
			"cpu\t0\t5\t1\nperf_event\t0\t5\t1\n",
		"/nowhere/cgroup.subtree_control":    "cpu memory\n",
		"/proc/sys/kernel/osrelease":         "6.1.0\n",
		"/sys/devices/system/cpu/online":     "0-1\n",
		"/nowhere/v1/cgroup.subtree_control": "",
	}
	with := func(name, text string) map[string]string {
		files := map[string]string{}
		for n, t := range enabled {
			files[n] = t
		}
		files[name] = text
		return files
	}
	for name, c := range map[string]struct {
		options Options
		files   map[string]string
		refused error
		blocked string // empty: the software event would do
	}{
		"both":       {},
		"v1":         {options: Options{V1: true}, blocked: "cgroup v1"},
		"waits":      {options: Options{Waits: WaitsTotal}, blocked: "every context switch"},
		"Linux 5.10": {refused: unix.EINVAL, blocked: "Linux 5.13"},
		"no controllers": {files: with("/nowhere/cgroup.subtree_control", "\n"),
			blocked: "before a controller is enabled"},
		"controllers unknown": {options: Options{Root: "/nowhere/else"}, blocked: "is not known"},
		"perf_event on v1":    {files: with("/proc/cgroups", "perf_event\t7\t5\t1\n"), blocked: "v1 hierarchy"},
		"no perf_event":       {files: with("/proc/cgroups", "cpu\t0\t5\t1\n"), blocked: "v1 hierarchy"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &double{files: enabled, open: func(*unix.PerfEventAttr, int) error { return c.refused }}
			if c.files != nil {
				d.files = c.files
			}
			k := kernel(d)
			if c.refused == nil {
				k = openable{d}
			}
			o := c.options
			if o.Root == "" {
				o.Root = "/nowhere"
			}
			got, reason, err := chooseTrigger(k, o, 0)
			if got != SchedSwitch || err != nil || !strings.Contains(reason, "sees every switch") ||
				!strings.Contains(reason, c.blocked) {
				t.Errorf("unasked: %v, %q, %v", got, reason, err)
			}
			o.Trigger = SchedSwitch
			if got, _, err := chooseTrigger(k, o, 0); got != SchedSwitch || err != nil {
				t.Errorf("asked for the other: %v, %v", got, err)
			}
			o.Trigger = CgroupSwitches
			got, _, err = chooseTrigger(k, o, 0)
			var u *UnsupportedError
			switch {
			case c.blocked == "" && (got != CgroupSwitches || err != nil):
				t.Errorf("asked for: %v, %v", got, err)
			case c.blocked != "" && (!errors.As(err, &u) || !strings.Contains(err.Error(), c.blocked)):
				t.Errorf("asked for: %v, %v: want an UnsupportedError with %q", got, err, c.blocked)
			}
		})
	}
}

// openable opens nothing, successfully.
type openable struct{ kernel }

func (openable) openEvent(*unix.PerfEventAttr, int, int) (int, error) {
	return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// A CPU goes offline in a window and comes back: what it had done is kept, and
// its events are new.
func TestCPUGoesAndComes(t *testing.T) {
	h := v2(t)
	away := -1
	d := &double{flushing: func(cpu int, _ flushMode) error {
		if cpu == away {
			return unix.ENXIO
		}
		return nil
	}}
	c := openDouble(t, h, d, Options{Trigger: SchedSwitch, StandIns: map[Event]StandIn{Cycles: CPUClock}})
	last := 0
	for cpu := range c.active {
		last = cpu
	}
	if last == 0 {
		t.Skip("needs two CPUs, one of which goes: this machine has one")
	}
	path := h.make("hotplug")
	helper := startHelper(t, "spin", nil)
	h.place(path, helper)
	if err := c.Follow("h", path); err != nil {
		t.Fatal(err)
	}
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	on := func(cpu int) {
		t.Helper()
		var set unix.CPUSet
		set.Set(cpu)
		pinThreads(t, helper, &set)
		helper.do(20)
	}
	// The answer comes before the helper has left the CPU. Hotplug makes every
	// task leave, so that none is charged after its CPU has gone.
	leave := func() {
		t.Helper()
		var set unix.CPUSet
		set.Set(0)
		pinThreads(t, helper, &set)
	}
	on(last)
	all := read(t, c)
	on(last) // in the window, before it is noticed
	leave()
	away = last
	r := read(t, c)
	if r.CPUs != all.CPUs-1 {
		t.Errorf("%d CPUs took part, %d before one went away", r.CPUs, all.CPUs)
	}
	if got := of(t, r, "h").OnCPU - of(t, all, "h").OnCPU; got < uint64(10*time.Millisecond) {
		t.Errorf("20 ms on the CPU before it went away are %d ns", got)
	}
	on(last) // unseen: the gate is closed
	gone := read(t, c)
	if a, b := of(t, gone, "h"), of(t, r, "h"); a.OnCPU-b.OnCPU > uint64(5*time.Millisecond) {
		t.Errorf("%d ns were charged on a CPU that is away", a.OnCPU-b.OnCPU)
	}
	away = -1
	back := read(t, c)
	if back.Faults.Reopened == 0 {
		t.Error("the events of a CPU that came back were not opened again")
	}
	on(last)
	r = read(t, c)
	if got := of(t, r, "h").OnCPU - of(t, back, "h").OnCPU; got < uint64(10*time.Millisecond) || r.CPUs != all.CPUs {
		t.Errorf("20 ms on the CPU that came back are %d ns; %d CPUs", got, r.CPUs)
	}
	if r.Machine.Events[Cycles] <= back.Machine.Events[Cycles] {
		t.Error("the new events do not count")
	}
	away = last
	if err := c.Disable(nil); err != nil {
		t.Errorf("a CPU went away before the window ended: %v", err)
	}
	away = -1
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	read(t, c)
}

func TestReadFails(t *testing.T) {
	h := v2(t)
	broken := false
	d := &double{flushing: func(int, flushMode) error {
		if broken {
			return unix.EIO
		}
		return nil
	}}
	c := openDouble(t, h, d, Options{Trigger: SchedSwitch})
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	path := h.make("broken")
	broken = true
	for name, err := range map[string]error{"Read": c.Read(new(Reading)), "Follow": c.Follow("b", path),
		"Disable": c.Disable(nil)} {
		if !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "CPU") && name != "Disable" {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken = false
	if err := c.Enable(nil); err != nil {
		t.Error(err)
	}
	if err := c.Follow("b", path); err != nil {
		t.Error(err)
	}
}

// An event that goes wrong is never counted wrong. What a PMU cannot be made to
// do here is put into the baseline, which is what the program compares with.
func TestFaults(t *testing.T) {
	h := v2(t)
	for name, c := range map[string]struct {
		spoil func(t *testing.T, c *Counter, cpu int)
		fault func(Faults) uint64
	}{
		"runs backwards": {func(_ *testing.T, c *Counter, cpu int) {
			c.cpus[cpu].Base[Instructions].Counter += 1 << 40
		}, func(f Faults) uint64 { return f.Reset }},
		"is absurd": {func(_ *testing.T, c *Counter, cpu int) {
			c.cpus[cpu].Base[Instructions].Counter -= 1 << 50
		}, func(f Faults) uint64 { return f.Absurd + f.Reset }},
		"is not there": {func(t *testing.T, c *Counter, cpu int) {
			if err := c.objects.arrays[Instructions].Delete(uint32(cpu)); err != nil {
				t.Fatal(err)
			}
		}, func(f Faults) uint64 { return f.Read }},
		"has stopped": {func(t *testing.T, c *Counter, cpu int) {
			if err := unix.IoctlSetInt(c.events.descriptors[cpu][Instructions], unix.PERF_EVENT_IOC_DISABLE,
				0); err != nil {
				t.Fatal(err)
			}
		}, func(f Faults) uint64 { return f.Lost }},
	} {
		t.Run(name, func(t *testing.T) {
			counter := openHere(t, h, Options{Trigger: SchedSwitch,
				StandIns: map[Event]StandIn{Instructions: PageFaults}})
			path := h.make("fault")
			helper := startHelper(t, "fault", nil)
			h.place(path, helper)
			if err := counter.Follow("f", path); err != nil {
				t.Fatal(err)
			}
			helper.do(1)
			before := read(t, counter)
			for cpu, in := range counter.active {
				if in {
					c.spoil(t, counter, cpu)
				}
			}
			outer := machineFaults(t)
			helper.do(2000)
			after := read(t, counter)
			outer = machineFaults(t) - outer
			if c.fault(after.Faults) == c.fault(before.Faults) {
				t.Errorf("not noticed: %+v", after.Faults)
			}
			if got := after.Machine.Events[Instructions] - before.Machine.Events[Instructions]; got > uint64(outer)+
				1000 {
				t.Errorf("%d page faults were counted, there were %d", got, outer)
			}
			if after.Machine.Counted-before.Machine.Counted >= after.Machine.OnCPU-before.Machine.OnCPU {
				t.Error("all of the time counts as counted")
			}
			// The reading has repaired it.
			helper.do(2000)
			repaired := read(t, counter)
			if got := repaired.Machine.Events[Instructions] - after.Machine.Events[Instructions]; got < 1000 {
				t.Errorf("2000 page faults later there are %d more", got)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"Root is empty":       {},
		"MaxGroups is -1":     {Root: "/", MaxGroups: -1},
		"MaxGroups is 65537":  {Root: "/", MaxGroups: maxGroups + 1},
		"unknown trigger":     {Root: "/", Trigger: 9},
		"unknown value 7":     {Root: "/", Waits: 7},
		"cannot stand in for": {Root: "/", StandIns: map[Event]StandIn{9: PageFaults}},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if _, err := open(&double{}, Options{Root: "/", MaxGroups: maxGroups}, 4096); err == nil ||
		!strings.Contains(err.Error(), "lower MaxGroups") {
		t.Errorf("65536 groups on 4096 CPUs: %v", err)
	}
}

func TestNames(t *testing.T) {
	for want, s := range map[string]fmt.Stringer{
		"cycles": Cycles, "llc-misses": LLCMisses, "Event(9)": Event(9), "absent": Absent, "stand-in": Declared,
		"hardware":      Hardware,
		"SourceKind(9)": SourceKind(9), "page-faults": PageFaults, "StandIn(0)": StandIn(0), "auto": Auto,
		"sched_switch":    SchedSwitch,
		"cgroup-switches": CgroupSwitches, "Trigger(9)": Trigger(9),
	} {
		if s.String() != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
}
