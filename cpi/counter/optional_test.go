package counter

import (
	"errors"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// opened is an event that was opened, by attr and group.
type opened struct {
	attr  unix.PerfEventAttr
	cpu   int
	group int
}

// watching opens what a double opens, and keeps note of it.
type watching struct {
	*double
	log *[]opened
}

func (w watching) openEvent(attr *unix.PerfEventAttr, cpu, group int) (int, error) {
	*w.log = append(*w.log, opened{*attr, cpu, group})
	return w.double.openEvent(attr, cpu, group)
}

func (w watching) of(e Event, cpu int) (list []opened) {
	for _, o := range *w.log {
		if src := hardware(e); o.attr.Type == src.typ && o.attr.Config == src.config && o.cpu == cpu {
			list = append(list, o)
		}
	}
	return list
}

func openWatching(t *testing.T, h *hierarchy, d *double, o Options) (*Counter, watching) {
	t.Helper()
	w := watching{d, new([]opened)}
	return openKernel(t, h, w, o), w
}

// active is a CPU that is counted.
func active(t *testing.T, c *Counter) int {
	t.Helper()
	for cpu, in := range c.active {
		if in {
			return cpu
		}
	}
	t.Fatal("no CPU is counted")
	return -1
}

// Cycles and instructions are a pinned group: nothing keeps one of them from its counter
// while the other counts. The other events take their turns.
func TestCyclesAndInstructionsAreAPinnedGroup(t *testing.T) {
	h := v2(t)
	c, w := openWatching(t, h, &double{pmu: true}, Options{})
	for _, e := range Events() {
		list := w.of(e, 0)
		if len(list) != 1 {
			t.Fatalf("%v of CPU 0 was opened %d times", e, len(list))
		}
		pinned, grouped := list[0].attr.Bits&unix.PerfBitPinned != 0, list[0].group >= 0
		if pinned != (e == Cycles) || grouped != (e == Instructions) {
			t.Errorf("%v: pinned %t, in a group %t", e, pinned, grouped)
		}
		if e == Instructions && list[0].group != c.events.descriptors[0][Cycles] {
			t.Errorf("instructions are in the group %d, cycles are %d", list[0].group, c.events.descriptors[0][Cycles])
		}
	}
}

// An event that is lost takes nothing with it, is opened again by the reading that finds it,
// and says why.
func TestAnOptionalEventIsLostAlone(t *testing.T) {
	h := v2(t)
	path := h.make("alone")
	helper := startHelper(t, "spin", nil)
	h.place(path, helper)
	for _, e := range []Event{RefCycles, LLCMisses} {
		t.Run(e.String(), func(t *testing.T) {
			c := openDouble(t, h, &double{pmu: true}, Options{})
			if err := c.Follow("a", path); err != nil {
				t.Fatal(err)
			}
			if err := c.Enable(nil); err != nil {
				t.Fatal(err)
			}
			helper.do(20)
			before := read(t, c)
			for cpu, in := range c.active {
				if in {
					fd := c.events.descriptors[cpu][e]
					if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			helper.do(50)
			after := read(t, c)
			was, is := of(t, before, "a"), of(t, after, "a")
			counted := map[Event]uint64{Cycles: is.Counted - was.Counted, RefCycles: is.CountedRef - was.CountedRef,
				LLCMisses: is.CountedMisses - was.CountedMisses}
			ran := is.OnCPU - was.OnCPU
			for other, time := range counted {
				if (time < ran/2) != (other == e) {
					t.Errorf("%v was lost: of %d ns, %v was counted in %d", e, ran, other, time)
				}
			}
			if is.Events[Cycles] == was.Events[Cycles] || is.Events[Instructions] == was.Events[Instructions] {
				t.Error("cycles or instructions were lost with it")
			}
			for _, s := range []Event{Cycles, RefCycles, LLCMisses} {
				reason := c.Status().Sources[s].Reason
				if strings.Contains(reason, "opened again on") != (s == e) ||
					s == e && !strings.Contains(reason, "stood still") {
					t.Errorf("%v was lost; %v: %q", e, s, reason)
				}
			}
			helper.do(20) // the baseline of the new event
			repaired := read(t, c)
			helper.do(50)
			last := read(t, c)
			if got := last.Machine.Events[e] - repaired.Machine.Events[e]; got == 0 {
				t.Error("the new event does not count")
			}
		})
	}
}

// A pinned group that finds no counters gives an error. It comes back without the pin, takes
// its turns, and is pinned again later.
func TestAGroupThatAnotherUserKeepsOutYields(t *testing.T) {
	h := v2(t)
	c, w := openWatching(t, h, &double{pmu: true}, Options{})
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	cpu := active(t, c)
	read(t, c)
	var m programMachine
	m.Broken = 1 << Cycles
	m.Error[Cycles] = -int32(unix.EBUSY)
	c.repair(cpu, &m)
	pins := func() (list []bool) {
		for _, o := range w.of(Cycles, cpu) {
			list = append(list, o.attr.Bits&unix.PerfBitPinned != 0)
		}
		return list
	}
	if got := pins(); len(got) != 2 || !got[0] || got[1] {
		t.Fatalf("opened pinned: %v, want once with and once without", got)
	}
	if n := len(w.of(Instructions, cpu)); n != 2 {
		t.Errorf("instructions were opened %d times: they belong to the group", n)
	}
	if reason := c.Status().Sources[Cycles].Reason; !strings.Contains(reason, "another user's pinned events") {
		t.Errorf("the reason is %q", reason)
	}
	for range repinEvery {
		if err := errors.Join(c.Disable(nil), c.Enable(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if got := pins(); len(got) != 3 || !got[2] {
		t.Errorf("opened pinned: %v, want a third time with the pin", got)
	}
}

// Time in which an event waited for its turn is scaled, and said; it is no missed switch.
func TestTurnsAreScaled(t *testing.T) {
	h := v2(t)
	c := openDouble(t, h, &double{pmu: true}, Options{})
	path := h.make("turns")
	helper := startHelper(t, "spin", nil)
	h.place(path, helper)
	if err := c.Follow("t", path); err != nil {
		t.Fatal(err)
	}
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	helper.do(50)
	before := read(t, c)
	for cpu, in := range c.active {
		if in { // as if it had been wanted for a second more than it had a counter
			c.cpus[cpu].Base[RefCycles].Enabled = 0
			c.cpus[cpu].Base[RefCycles].Running = c.cpus[cpu].Base[RefCycles].Running * 3 / 4
		}
	}
	helper.do(20)
	after := read(t, c)
	on := after.Machine.OnCPU - before.Machine.OnCPU
	if got := after.Machine.CountedRef - before.Machine.CountedRef; got == 0 || got >= on {
		t.Errorf("of %d ns, %d were counted", on, got)
	}
	if after.Machine.Events[RefCycles] == before.Machine.Events[RefCycles] {
		t.Error("what was counted is dropped with what was not")
	}
	if after.Faults.Missed == before.Faults.Missed && after.Unseen != before.Unseen {
		t.Errorf("%d ns count as missed switches", after.Unseen-before.Unseen)
	}
	if after.Machine.Counted-before.Machine.Counted <= after.Machine.CountedRef-before.Machine.CountedRef {
		t.Error("cycles and instructions wait with it")
	}
}

// A task that leaves its CPU to nobody is charged all the same, by the tick, so that one
// missed switch loses no more than a tenth of a second.
func TestATaskThatIsAloneIsCharged(t *testing.T) {
	h := v2(t)
	c := openHere(t, h, Options{Trigger: SchedSwitch})
	cpu := active(t, c)
	if c.Status().CPUs < 2 {
		t.Skip("needs two CPUs, one of which is for one task: this machine has one")
	}
	helper := startHelper(t, "spin", nil)
	var set unix.CPUSet
	set.Set(cpu)
	pinThreads(t, helper, &set)
	for _, dir := range threads(t, helper) {
		id, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		const fifo = 1
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: fifo, Priority: 1}
		if err := unix.SchedSetAttr(id, &attr, 0); err != nil {
			t.Skipf("needs a task that nobody interrupts (SCHED_FIFO): %v", err)
		}
	}
	var away unix.CPUSet // this thread must not be what waits
	for other, in := range c.active {
		if in && other != cpu {
			away.Set(other)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was unix.CPUSet
	if err := errors.Join(unix.SchedGetaffinity(0, &was), unix.SchedSetaffinity(0, &away)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &was) }()
	const long = 600
	// A host that stops a guest's CPU stops its ticks; that it does so in every try is no chance.
	for try := 1; ; try++ {
		helper.tell(long)
		longest := time.Duration(0)
		for end := monotonic() + long*time.Millisecond; monotonic() < end; {
			longest = max(longest, monotonic()-time.Duration(atomic.LoadUint64(&c.cpus[cpu].Time)))
			unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		}
		helper.answer()
		if longest <= 300*time.Millisecond {
			break
		}
		t.Logf("a CPU with one task was not charged for %v", longest)
		if try == attempts {
			t.Fatalf("in none of %d tries was it charged in time", attempts)
		}
	}
	before := read(t, c)
	// As if the switch to whatever runs now had not been seen.
	c.cpus[cpu].Running = 1 << 30
	after := read(t, c)
	if lost := time.Duration(after.Unseen - before.Unseen); after.Faults.Missed == before.Faults.Missed || lost == 0 {
		t.Errorf("a missed switch: %d are known, %v was lost", after.Faults.Missed-before.Faults.Missed, lost)
	}
}

// A window interrupts a CPU twice, and one that is left alone never.
func TestCallsOfAWindow(t *testing.T) {
	h := v2(t)
	calls := map[int]int{}
	d := &double{pmu: true, flushing: func(cpu int, _ flushMode) error { calls[cpu]++; return nil }}
	c, w := openWatching(t, h, d, Options{})
	path := h.make("calls")
	if err := c.Follow("c", path); err != nil {
		t.Fatal(err)
	}
	const windows = 3
	var from, to Reading
	clear(calls)
	*w.log = nil
	for range windows {
		if err := errors.Join(c.Enable(&from), c.Disable(&to)); err != nil {
			t.Fatal(err)
		}
		checkSums(t, &from)
		checkSums(t, &to)
		if to.Calls > 2 || to.CPUs == 0 || to.CPUs != from.CPUs || to.At < from.At {
			t.Errorf("a window with %d calls of %d, then %d CPUs", to.Calls, from.CPUs, to.CPUs)
		}
		if to.Machine.OnCPU <= from.Machine.OnCPU {
			t.Error("nothing was counted")
		}
		if to.Cost < to.MostCost || to.PerRun > 0 && to.MostCost == 0 || from.Cost > to.Cost+time.Millisecond {
			t.Errorf("it took %v, %v on one CPU, %v a run", to.Cost, to.MostCost, to.PerRun)
		}
	}
	for cpu, n := range calls {
		if n != 2*windows {
			t.Errorf("CPU %d was called %d times in %d windows", cpu, n, windows)
		}
	}
	if len(*w.log) != 0 {
		t.Errorf("%d events were opened in the windows, which interrupts, too", len(*w.log))
	}
}

func TestCPUsThatAreLeftAlone(t *testing.T) {
	h := v2(t)
	calls := map[int]int{}
	d := &double{pmu: true, flushing: func(cpu int, _ flushMode) error { calls[cpu]++; return nil }}
	online := openDouble(t, h, &double{pmu: true}, Options{})
	all, err := online.online()
	if err != nil || len(all) < 2 {
		t.Skip("needs two CPUs, one of which is left alone: this machine has one")
	}
	last := all[len(all)-1]
	c, w := openWatching(t, h, d, Options{Skip: cpuset.Of(last)})
	window := func() *Reading {
		t.Helper()
		var r Reading
		if err := errors.Join(c.Enable(nil), c.Read(&r), c.Disable(&r)); err != nil {
			t.Fatal(err)
		}
		return &r
	}
	if r := window(); r.CPUs != len(all)-1 {
		t.Errorf("%d of %d CPUs are counted, want all but one", r.CPUs, len(all))
	}
	if calls[last] > 0 {
		t.Errorf("a CPU that is left alone was called %d times", calls[last])
	}
	for _, o := range *w.log {
		if o.cpu == last {
			t.Errorf("an event was opened on a CPU that is left alone: %+v", o)
		}
	}
	if err := c.SetSkip(cpuset.Set{}); err != nil {
		t.Fatal(err)
	}
	if r := window(); r.CPUs != len(all) || calls[last] == 0 {
		t.Errorf("%d CPUs are counted after it was not left alone any more, of %d", r.CPUs, len(all))
	}
	if err := c.SetSkip(cpuset.Of(last)); err != nil {
		t.Fatal(err)
	}
	calls[last] = 0
	window()
	if fds := c.events.descriptors[last]; calls[last] != 0 || fds != [numEvents]int{-1, -1, -1, -1} {
		t.Errorf("left alone again: %d calls, descriptors %v", calls[last], fds)
	}
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	if err := c.SetSkip(cpuset.Set{}); err == nil {
		t.Error("changed in a window")
	}
}

// An event that is left out costs no reading, and the others go on.
func TestEventsThatAreLeftOut(t *testing.T) {
	h := v2(t)
	c := openDouble(t, h, &double{pmu: true}, Options{})
	var from, to Reading
	window := func() {
		t.Helper()
		if err := c.Enable(&from); err != nil {
			t.Fatal(err)
		}
		spin(20 * time.Millisecond)
		if err := c.Disable(&to); err != nil {
			t.Fatal(err)
		}
	}
	const why = "reading it costs too much"
	if err := c.LeaveOut([numEvents]bool{LLCMisses: true}, why); err != nil {
		t.Fatal(err)
	}
	window()
	if s := c.Status().Sources[LLCMisses]; s.Kind != Absent || s.Reason != why || to.Present[LLCMisses] {
		t.Errorf("%+v; present %t", s, to.Present[LLCMisses])
	}
	if n := c.events.isOpen(LLCMisses); n != 0 || c.events.isOpen(RefCycles) == 0 {
		t.Errorf("open on %d CPUs", n)
	}
	if to.Machine.Events[LLCMisses] != from.Machine.Events[LLCMisses] || to.Faults.Read != 0 ||
		to.Machine.CountedMisses != from.Machine.CountedMisses ||
		to.Machine.Events[RefCycles] == from.Machine.Events[RefCycles] {
		t.Errorf("from %+v to %+v; %+v", from.Machine, to.Machine, to.Faults)
	}
	if err := c.LeaveOut([numEvents]bool{}, ""); err != nil {
		t.Fatal(err)
	}
	window()
	if s := c.Status().Sources[LLCMisses]; s.Kind != Hardware || !to.Present[LLCMisses] ||
		to.Machine.Events[LLCMisses] == from.Machine.Events[LLCMisses] {
		t.Errorf("it is wanted again: %+v, from %+v to %+v", s, from.Machine, to.Machine)
	}
	if err := c.LeaveOut([numEvents]bool{Cycles: true}, why); err == nil {
		t.Error("there is no CPI without cycles")
	}
	if cost := c.Status().ReadCost; cost[Cycles] <= 0 || cost[Cycles] > 10*time.Millisecond {
		t.Errorf("reading cycles costs %v", cost)
	}
}

// Where the counters are held by others when the daemon starts, they are tried again.
func TestAnEventThatIsBusyAtFirst(t *testing.T) {
	h := v2(t)
	busy := true
	ref := hardware(RefCycles)
	d := &double{pmu: true, open: func(attr *unix.PerfEventAttr, _ int) error {
		if busy && attr.Config == ref.config && attr.Type == ref.typ {
			return unix.EBUSY
		}
		return nil
	}}
	c := openDouble(t, h, d, Options{})
	if s := c.Status().Sources[RefCycles]; s.Kind != Absent || !strings.Contains(s.Reason, "held by another user") {
		t.Fatalf("%+v", s)
	}
	var r Reading
	if err := errors.Join(c.Enable(nil), c.Disable(&r)); err != nil || r.Present[RefCycles] || !r.Present[Cycles] {
		t.Fatalf("%v; present %v", err, r.Present)
	}
	busy = false
	if err := errors.Join(c.Enable(nil), c.Disable(&r)); err != nil || !r.Present[RefCycles] {
		t.Fatalf("%v; present %v", err, r.Present)
	}
	if s := c.Status().Sources[RefCycles]; s.Kind != Hardware || s.Name != "ref-cycles" {
		t.Errorf("%+v", s)
	}
}
