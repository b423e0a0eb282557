package counter

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// A task may hide in cgroups of its own, but not in another one's account: below
// 32 levels it is Other's, and that is said.
func TestDepth(t *testing.T) {
	h := v2(t)
	c := openHere(t, h, Options{})
	path := h.make("deep")
	if err := c.Follow("deep", path); err != nil {
		t.Fatal(err)
	}
	at := "deep"
	for level := 1; level <= 32; level++ {
		at = filepath.Join(at, "x")
		h.make(at)
		if level < 31 {
			continue
		}
		helper := startHelper(t, "spin", nil)
		h.place(filepath.Join(filepath.Dir(path), at), helper)
		before := read(t, c)
		helper.do(20)
		after := read(t, c)
		got := time.Duration(of(t, after, "deep").OnCPU - of(t, before, "deep").OnCPU)
		deeper := after.Faults.Depth - before.Faults.Depth
		switch {
		case level == 31 && (got < 10*time.Millisecond || deeper > 0):
			t.Errorf("31 levels below: 20 ms were used, %v counted; too deep %d times", got, deeper)
		case level == 32 && (got > time.Millisecond || deeper == 0):
			t.Errorf("32 levels below: %v counted; too deep %d times", got, deeper)
		}
		helper.stop()
	}
}

// A table of causes that is full loses causes, and neither waits nor the count of
// what was lost.
func TestTableOfCausesIsFull(t *testing.T) {
	h := v2(t)
	c := openHere(t, h, Options{MaxGroups: 2, Waits: WaitsByCause})
	table := c.objects.collection.Maps[programMapWaits]
	fill := func() (filled []programPair) {
		for i := uint32(0); ; i++ {
			pair := programPair{Victim: 1000 + i, By: 1}
			err := table.Update(pair, uint64(1), ebpf.UpdateNoExist)
			if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOMEM) {
				return filled
			}
			if err != nil {
				t.Fatal(err)
			}
			filled = append(filled, pair)
		}
	}
	var set unix.CPUSet
	set.Set(0)
	var helpers [2]*helper
	for i := range helpers {
		path := h.make(fmt.Sprintf("cause%d", i))
		helpers[i] = startHelper(t, "spin", nil)
		h.place(path, helpers[i])
		pinThreads(t, helpers[i], &set)
		if err := c.Follow(fmt.Sprint(i), path); err != nil {
			t.Fatal(err)
		}
	}
	// compete until it shows: on a machine with much to do they may miss one another.
	compete := func(shows func(before, after *Reading) bool) (before, after *Reading) {
		before = read(t, c)
		for range 20 {
			helpers[0].tell(100)
			helpers[1].tell(100)
			helpers[0].answer()
			helpers[1].answer()
			if after = read(t, c); shows(before, after) {
				break
			}
		}
		return before, after
	}
	waits := func(id string, before, after *Reading) time.Duration {
		return time.Duration(of(t, after, id).RunQueueWait - of(t, before, id).RunQueueWait)
	}
	const enough = 10 * time.Millisecond
	// On a machine with much to do one may have waited for the other already.
	var known []programPair
	var pair programPair
	var ns uint64
	for list := table.Iterate(); list.Next(&pair, &ns); {
		known = append(known, pair)
	}
	for _, pair := range known {
		if err := table.Delete(pair); err != nil {
			t.Fatal(err)
		}
	}
	filled := fill()
	before, after := compete(func(before, after *Reading) bool {
		return after.Faults.Waits > before.Faults.Waits && waits("0", before, after) >= enough &&
			waits("1", before, after) >= enough
	})
	if after.Faults.Waits == before.Faults.Waits {
		t.Errorf("%d pairs filled the table, and nothing did not fit", len(filled))
	}
	for _, id := range []string{"0", "1"} {
		if waited := waits(id, before, after); waited < enough {
			t.Errorf("%s waited %v beside its neighbour", id, waited)
		}
	}
	for _, pair := range filled {
		if err := table.Delete(pair); err != nil {
			t.Fatal(err)
		}
	}
	before, after = compete(func(_, after *Reading) bool { return waited(after, "0", "1") > 0 })
	if after.Faults.Waits != before.Faults.Waits || waited(after, "0", "1") == 0 {
		t.Errorf("there is room again: %+v, %d causes lost", after.Waits, after.Faults.Waits-before.Faults.Waits)
	}
	// The next window has all of the room.
	fill()
	if err := errors.Join(c.Disable(nil), c.Enable(nil)); err != nil {
		t.Fatal(err)
	}
	for list := table.Iterate(); list.Next(&pair, &ns); {
		if pair.Victim >= 1000 {
			t.Fatalf("the pair %+v is of a window before", pair)
		}
	}
}

// An event that cannot be opened again is said once, and missed, until it can.
func TestAnEventStaysAway(t *testing.T) {
	h := v2(t)
	var log bytes.Buffer
	refused := error(nil)
	d := &double{open: func(*unix.PerfEventAttr, int) error { return refused }}
	c := openDouble(t, h, d, Options{
		Trigger: SchedSwitch, StandIns: map[Event]StandIn{Instructions: PageFaults},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err := c.Enable(nil); err != nil {
		t.Fatal(err)
	}
	helper := startHelper(t, "fault", nil)
	before := read(t, c)
	log.Reset()
	refused = unix.EBUSY
	for cpu, in := range c.active {
		if in {
			if err := unix.IoctlSetInt(c.events.descriptors[cpu][Instructions], unix.PERF_EVENT_IOC_DISABLE,
				0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var r *Reading
	for range 3 {
		helper.do(2000)
		r = read(t, c)
	}
	if n := strings.Count(log.String(), "a CPU is not counted in full"); n != r.CPUs ||
		!strings.Contains(log.String(), "held by another user") {
		t.Errorf("%d lines for %d CPUs:\n%s", n, r.CPUs, log.String())
	}
	if lost := time.Duration(
		(r.Machine.OnCPU - before.Machine.OnCPU) - (r.Machine.Counted - before.Machine.Counted)); lost <= 0 {
		t.Error("all of the time counts as counted")
	}
	if r.Machine.OnCPU == before.Machine.OnCPU {
		t.Error("the time was lost with the event")
	}
	refused = nil
	helper.do(2000)
	r = read(t, c) // opens it
	for try := 1; ; try++ {
		helper.do(2000)
		after := read(t, c)
		if got := after.Machine.Events[Instructions] - r.Machine.Events[Instructions]; got >= 1000 {
			break
		} else if try == 10 { // a machine that is short of CPUs spoils an interval now and then
			t.Fatalf("%d page faults later there are %d more", 2000*try, got)
		}
		r = after
	}
}

// Status reports sharing of counters: it is the watchdog or a profiler
// then, and not the container.
func TestTurns(t *testing.T) {
	total := newTotal(1)
	var r Reading
	total.enabled, total.running = [numEvents]uint64{1000, 1000}, [numEvents]uint64{1000, 700}
	total.fill(&r)
	if note := total.sharingNote(Cycles); note != "" {
		t.Errorf("cycles: %s", note)
	}
	if note := total.sharingNote(Instructions); !strings.Contains(note, "70 %") ||
		!strings.Contains(note, "kernel.nmi_watchdog") {
		t.Errorf("instructions: %q", note)
	}
	total.fill(&r) // nothing since
	if note := total.sharingNote(Instructions); note == "" {
		t.Error("forgotten without another reading")
	}
	total.enabled[Instructions], total.running[Instructions] = 2000, 1700
	total.fill(&r)
	if note := total.sharingNote(Instructions); note != "" {
		t.Errorf("over, and still told: %s", note)
	}
}

// A CPU really goes and comes in a window, under a task. What runs on a CPU that
// comes is charged from the next reading on.
func TestHotplug(t *testing.T) {
	if os.Getenv("QUIETCORE_HOTPLUG") != "1" {
		t.Skip("takes a CPU offline: only in a virtual machine (go run ./e2e/counters), with QUIETCORE_HOTPLUG=1")
	}
	h := v2(t)
	c := openHere(t, h, Options{Trigger: SchedSwitch, StandIns: map[Event]StandIn{Cycles: CPUClock}})
	last := c.Status().CPUs - 1
	control := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", last)
	turn := func(to string) {
		t.Helper()
		if err := os.WriteFile(control, []byte(to), 0); err != nil {
			t.Fatal(err)
		}
	}
	path := h.make("hotplug")
	helper := startHelper(t, "spin", nil)
	h.place(path, helper)
	if err := c.Follow("h", path); err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	set.Set(last)
	check := func(what string, cpus int, do func()) {
		t.Helper()
		from := look(t, c, usedBy(h, path))
		do()
		after := look(t, c, usedBy(h, path))
		got := compared(t, what, from, after, 0, "h")
		t.Logf("%s: %v, the kernel says %v; %+v", what, got.got, got.high, after.Faults)
		if got.off().Abs() > got.low/1000+100*time.Microsecond && got.missed == 0 {
			t.Errorf("%s: %v, the kernel says %v to %v", what, got.got, got.low, got.high)
		}
		if after.CPUs != cpus {
			t.Errorf("%s: %d CPUs took part, want %d", what, after.CPUs, cpus)
		}
	}
	check("the CPU goes under the task", last, func() {
		pinThreads(t, helper, &set)
		helper.tell(200)
		turn("0")
		helper.answer()
	})
	check("the CPU is away", last, func() { helper.do(100) })
	turn("1")
	reopened := c.total.faults.Reopened
	check("the CPU has come", last+1, func() {
		pinThreads(t, helper, &set)
		helper.do(100)
	})
	if got := c.total.faults.Reopened; got == reopened {
		t.Error("its events were not opened again")
	}
	check("it is as it was", last+1, func() { helper.do(100) })
}

// TestIsolatedCPUsAreNotInterrupted counts the interrupts of a CPU that the kernel isolates by
// the kernel's own table, while windows open, are read and close.
func TestIsolatedCPUsAreNotInterrupted(t *testing.T) {
	text, err := os.ReadFile("/sys/devices/system/cpu/isolated")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if alone.IsEmpty() {
		t.Skip("needs a CPU that the kernel isolates: only in a virtual machine (go run ./e2e/counters)")
	}
	c := openHere(t, v2(t), Options{StandIns: fourStandIns, Skip: alone})
	if err := c.Disable(nil); err != nil {
		t.Fatal(err)
	}
	const windows = 50
	count := func(skip cpuset.Set) (sum uint64) {
		t.Helper()
		if err := c.SetSkip(skip); err != nil {
			t.Fatal(err)
		}
		var r Reading
		before := interrupts(t, alone.First())
		for range windows {
			if err := errors.Join(c.Enable(nil), c.Disable(&r)); err != nil {
				t.Fatal(err)
			}
		}
		return interrupts(t, alone.First()) - before
	}
	left, counted := count(alone), count(cpuset.Set{})
	t.Logf("%d windows: %d interrupts of CPU %d left alone, %d counted", windows, left, alone.First(), counted)
	// The kernel itself has a call for the CPU now and then.
	if left > windows/10 || counted < 2*windows {
		t.Errorf("%d windows interrupted CPU %d %d times though it is left alone (want none), and %d times when it is "+
			"counted (want 2 each)", windows, alone.First(), left, counted)
	}
}

// interrupts is how often one CPU was interrupted by others, by counters or for work that they
// gave it: lines of /proc/interrupts such as "CAL: 17 3 Function call interrupts", a number a CPU.
func interrupts(t *testing.T, cpu int) (sum uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < cpu+2 || !slices.Contains([]string{"CAL:", "NMI:", "PMI:", "IWI:", "RES:"}, f[0]) {
			continue
		}
		n, err := strconv.ParseUint(f[cpu+1], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		sum += n
		found++
	}
	if found < 4 {
		t.Fatalf("/proc/interrupts has %d of the lines that are looked for:\n%s", found, text)
	}
	return sum
}
