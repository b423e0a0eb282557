package counter

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The four events of the benchmarks are software events: a machine without a
// performance monitoring unit has no others. Reading a hardware counter adds the
// same to both sides of each ratio.
var fourStandIns = map[Event]StandIn{Cycles: CPUClock, Instructions: PageFaults, RefCycles: CPUClock,
	LLCMisses: PageFaults}

const (
	switchesPerSecond = 10000
	windowShare       = 10.0 / 60
)

// pair is two helpers on one CPU that hand a byte to and fro: a switch each time.
type pair struct {
	b       *testing.B
	helpers [2]*helper
}

func startPair(b *testing.B, h *hierarchy, paths [2]string) *pair {
	b.Helper()
	there, fromThere := pipe(b)
	back, fromBack := pipe(b)
	p := &pair{b: b, helpers: [2]*helper{
		startHelper(b, "echo", []*os.File{back, fromThere}, "FIRST=1"),
		startHelper(b, "echo", []*os.File{there, fromBack}),
	}}
	var set unix.CPUSet
	set.Set(0)
	for i, helper := range p.helpers {
		h.place(paths[i], helper)
		pinThreads(b, helper, &set)
	}
	return p
}

// rounds plays n rounds, and says what CPU time a switch took in all.
func (p *pair) rounds(n int) (perSwitch float64) {
	p.b.Helper()
	before := p.used()
	p.helpers[0].tell(n)
	p.helpers[1].tell(n)
	p.helpers[0].answer()
	p.helpers[1].answer()
	return float64(p.used()-before) / float64(2*n)
}

func (p *pair) used() (sum time.Duration) {
	for _, helper := range p.helpers {
		for _, dir := range threads(p.b, helper) {
			var n int64
			text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
			if err != nil {
				p.b.Fatal(err)
			}
			if _, err := fmt.Sscan(string(text), &n); err != nil {
				p.b.Fatal(err)
			}
			sum += time.Duration(n)
		}
	}
	return sum
}

// batch is how many rounds are measured at once. Of all batches the cheapest is
// taken, in which the rest of the machine was quietest: the program runs, and is
// measured, at the switches of every task.
const batch = 200

// runtimeOf a program, while the kernel keeps statistics.
func runtimeOf(b *testing.B, p *ebpf.Program) time.Duration {
	b.Helper()
	s, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return s.Runtime
}

// attachEmpty attaches the program that does nothing next to a counter, with the
// same events and the same trigger.
func attachEmpty(b *testing.B, c *Counter) *ebpf.Program {
	b.Helper()
	spec, err := loadEmpty()
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range spec.Maps {
		m.MaxEntries = uint32(len(c.active))
	}
	var o emptyObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = o.Close() })
	arrays := [...]*ebpf.Map{o.Event0, o.Event1, o.Event2, o.Event3}
	for cpu, in := range c.active {
		for e, m := range arrays {
			if !in {
				continue
			}
			if err := m.Update(uint32(cpu), uint32(c.events.descriptors[cpu][e]), ebpf.UpdateAny); err != nil {
				b.Fatal(err)
			}
		}
	}
	if c.trigger == SchedSwitch {
		l, err := link.AttachTracing(link.TracingOptions{Program: o.EmptySchedSwitch,
			AttachType: ebpf.AttachTraceRawTp})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		return o.EmptySchedSwitch
	}
	for cpu, in := range c.active {
		if !in {
			continue
		}
		fd, err := linux{}.openEvent(triggerAttr(), cpu, -1)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, o.EmptyCgroupSwitch.FD()); err != nil {
			b.Fatal(err)
		}
	}
	return o.EmptyCgroupSwitch
}

// The cost of one switch: between two cgroups, next to a program that only reads
// the same events, and within one cgroup.
func BenchmarkSwitch(b *testing.B) {
	for _, trigger := range []Trigger{SchedSwitch, CgroupSwitches} {
		b.Run(trigger.String(), func(b *testing.B) {
			h := v2(b)
			if trigger == CgroupSwitches {
				enableController(b, h)
			}
			c := openHere(b, h, Options{Trigger: trigger, StandIns: fourStandIns})
			paths := [2]string{h.make("bench0"), h.make("bench1")}
			for i, path := range paths {
				if err := c.Follow(fmt.Sprint(i), path); err != nil {
					b.Fatal(err)
				}
			}
			apart := startPair(b, h, paths)
			together := startPair(b, h, [2]string{paths[0], paths[0]})
			stop, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
			if err != nil {
				b.Fatal(err)
			}
			defer stop.Close()
			empty := attachEmpty(b, c)
			b.ResetTimer()

			cost, base, within := math.Inf(1), math.Inf(1), math.Inf(1)
			for left := b.N; left > 0; left -= batch {
				before, beforeEmpty := runtimeOf(b, c.objects.program), runtimeOf(b, empty)
				apart.rounds(batch)
				between, afterEmpty := runtimeOf(b, c.objects.program), runtimeOf(b, empty)
				together.rounds(batch)
				after := runtimeOf(b, c.objects.program)
				cost = min(cost, float64(between-before)/(2*batch))
				base = min(base, float64(afterEmpty-beforeEmpty)/(2*batch))
				within = min(within, float64(after-between)/(2*batch))
			}
			b.ReportMetric(cost, "ns/cgroup-switch")
			b.ReportMetric(base, "empty-ns/switch")
			b.ReportMetric(cost/base, "ratio")
			b.ReportMetric(within, "ns/same-cgroup-switch")
			b.ReportMetric(100*cost*switchesPerSecond*windowShare/1e9, "%CPU-at-10k/s")
		})
	}
}

// What is left where there are no events to read: time alone.
func BenchmarkSwitchWithoutEvents(b *testing.B) { benchmarkSwitch(b, Options{}) }

// What waits add to that: in all, and by who had the CPU meanwhile, as the daemon counts them. The
// pair of helpers waits for one another at every switch.
func BenchmarkSwitchWithWaits(b *testing.B) {
	for name, waits := range map[string]Waits{"off": WaitsOff, "in-all": WaitsTotal, "by-cause": WaitsByCause} {
		b.Run(name, func(b *testing.B) { benchmarkSwitch(b, Options{Waits: waits}) })
	}
}

// benchmarkSwitch is the program's own time of a switch between two cgroups, and within one.
func benchmarkSwitch(b *testing.B, o Options) {
	h := v2(b)
	c := openHere(b, h, o)
	paths := [2]string{h.make("bench0"), h.make("bench1")}
	for i, path := range paths {
		if err := c.Follow(fmt.Sprint(i), path); err != nil {
			b.Fatal(err)
		}
	}
	apart, together := startPair(b, h, paths), startPair(b, h, [2]string{paths[0], paths[0]})
	stop, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stop.Close()
	b.ResetTimer()
	cheapest := func(p *pair) float64 {
		cost := math.Inf(1)
		for left := b.N; left > 0; left -= batch {
			before := runtimeOf(b, c.objects.program)
			p.rounds(batch)
			cost = min(cost, float64(runtimeOf(b, c.objects.program)-before)/(2*batch))
		}
		return cost
	}
	cost := cheapest(apart)
	b.ReportMetric(cost, "ns/cgroup-switch")
	b.ReportMetric(cheapest(together), "ns/same-cgroup-switch")
	b.ReportMetric(100*cost*switchesPerSecond*windowShare/1e9, "%CPU-at-10k/s")
}

// What a switch costs between windows, when the program is attached and its gate is closed:
// the program's own time, and the CPU time of the tasks, more than with no program attached, as
// in a window. The three take many short turns, so that what else the machine does meets all.
func BenchmarkClosedGate(b *testing.B) {
	h := v2(b)
	paths := [2]string{h.make("gate0"), h.make("gate1")}
	p := startPair(b, h, paths)
	opened := func() *Counter {
		c, err := Open(Options{Root: h.root, V1: h.v1, StandIns: fourStandIns})
		if err != nil {
			unsupportedHere(b, err)
		}
		for i, path := range paths {
			if err := c.Follow(fmt.Sprint(i), path); err != nil {
				b.Fatal(err)
			}
		}
		return c
	}
	b.ResetTimer()
	none, closed, open := math.Inf(1), math.Inf(1), math.Inf(1)
	for left := b.N; left > 0; left -= batch {
		none = min(none, p.rounds(batch))
		c := opened()
		closed = min(closed, p.rounds(batch))
		if err := c.Enable(nil); err != nil {
			b.Fatal(err)
		}
		open = min(open, p.rounds(batch))
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	stop, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stop.Close()
	c := opened()
	defer c.Close()
	run := math.Inf(1)
	for left := b.N; left > 0; left -= batch {
		before := runtimeOf(b, c.objects.program)
		p.rounds(batch)
		run = min(run, float64(runtimeOf(b, c.objects.program)-before)/(2*batch))
	}
	b.ReportMetric(none, "plain-ns/switch")
	b.ReportMetric(closed-none, "closed-added-ns/switch")
	b.ReportMetric(open-none, "open-added-ns/switch")
	b.ReportMetric(run, "closed-run-ns/switch")
	b.ReportMetric(100*run*switchesPerSecond*(1-windowShare)/1e9, "closed-%CPU-at-10k/s")
}

// The same switches, without counting, with it, and with perf's own events per
// cgroup, of which this machine shall have a hundred, in CPU time of the tasks.
func BenchmarkAgainstPerfCgroups(b *testing.B) {
	const cgroups = 100
	h := v2(b)
	enableController(b, h)
	paths := make([]string, cgroups)
	for i := range paths {
		paths[i] = h.make(fmt.Sprintf("perf%d", i))
	}
	c := openHere(b, h, Options{Trigger: SchedSwitch, StandIns: fourStandIns})
	if err := c.Disable(nil); err != nil {
		b.Fatal(err)
	}
	for i, path := range paths {
		if err := c.Follow(fmt.Sprint(i), path); err != nil {
			b.Fatal(err)
		}
	}
	p := startPair(b, h, [2]string{paths[0], paths[1]})
	b.ResetTimer()

	cheapest := func() float64 {
		best := math.Inf(1)
		for left := b.N; left > 0; left -= batch {
			best = min(best, p.rounds(batch))
		}
		return best
	}
	plain := cheapest()
	if err := c.Enable(nil); err != nil {
		b.Fatal(err)
	}
	counted := cheapest()
	descriptors := c.Status().Descriptors
	if err := c.Disable(nil); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	events := perfCgroups(b, h, paths, len(c.active))
	opening := time.Since(began)
	perf := cheapest()
	for _, fd := range events {
		_ = unix.Close(fd)
	}
	b.ReportMetric(plain, "plain-ns/switch")
	b.ReportMetric(counted-plain, "added-ns/switch")
	b.ReportMetric(perf-plain, "perf-added-ns/switch")
	b.ReportMetric((counted-plain)/(perf-plain), "added-ratio")
	b.ReportMetric(float64(descriptors), "descriptors")
	b.ReportMetric(float64(len(events)), "perf-descriptors")
	b.ReportMetric(float64(opening.Milliseconds()), "perf-open-ms")
}

// perfCgroups opens an event for each cgroup, CPU and kind, as perf does.
func perfCgroups(b *testing.B, h *hierarchy, paths []string, cpus int) (fds []int) {
	b.Helper()
	for _, path := range paths {
		dir, err := unix.Open(filepath.Join(h.root, path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		for cpu := range cpus {
			for _, e := range Events() {
				s, _ := fourStandIns[e].perf()
				fd, err := unix.PerfEventOpen(kinds(nil).attr(s, cpu), dir, cpu, -1,
					unix.PERF_FLAG_PID_CGROUP|unix.PERF_FLAG_FD_CLOEXEC)
				if err != nil {
					b.Fatalf("event %d: %v", len(fds), err)
				}
				fds = append(fds, fd)
			}
		}
		_ = unix.Close(dir)
	}
	return fds
}

// Reading 1,000 groups on 256 CPUs: what this process does is done on memory of
// that layout, what the kernel does is measured here and multiplied.
func BenchmarkRead256(b *testing.B) {
	const cpus, n = 256, 1000
	h := v2(b)
	c := openHere(b, h, Options{MaxGroups: n, StandIns: fourStandIns})
	flush := math.Inf(1)
	here := c.Status().CPUs
	for range 200 {
		began := time.Now()
		for cpu := range here {
			if err := c.kernel.flush(c.objects.flush, cpu, flushCharge); err != nil {
				b.Fatal(err)
			}
		}
		flush = min(flush, float64(time.Since(began))/float64(here))
	}

	for name, every := range map[string]int{"every-group-on-every-CPU": 1, "every-group-on-16-CPUs": 16} {
		b.Run(name, func(b *testing.B) {
			rows := make([]Counts, cpus*2*(n+1))
			total := newTotal(n)
			var machine programMachine
			var r Reading
			took := math.Inf(1)
			var ran []Row
			for b.Loop() {
				ran = ran[:0]
				for i := range rows {
					if i%every == i/(n+1)%every {
						rows[i] = Counts{Events: [numEvents]uint64{1, 2, 3, 4}, OnCPU: leastRow, Counted: 5,
							Switches: 1}
					}
				}
				began := time.Now()
				for cpu := range cpus {
					bank := rows[cpu*2*(n+1) : (cpu*2+1)*(n+1)]
					ran = appendRows(ran, cpu, bank)
					take(total.slots, bank)
					total.takeMachine(&machine)
				}
				total.fill(&r)
				r.Groups = r.Groups[:0]
				for i := range n {
					r.Groups = append(r.Groups, Group{ID: "0", Counts: total.slots[i+1]})
				}
				took = min(took, float64(time.Since(began)))
			}
			b.ReportMetric(took/1e6, "merge-ms")
			b.ReportMetric(flush/1e3, "flush-µs/CPU")
			b.ReportMetric((took+cpus*flush)/1e6, "read-ms")
		})
	}
}

// Descriptors with 1,000 containers, against one for each cgroup, CPU and event.
func BenchmarkDescriptors1000(b *testing.B) {
	const n = 1000
	h := v2(b)
	c := openHere(b, h, Options{MaxGroups: n, StandIns: fourStandIns})
	if err := c.Disable(nil); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if err := c.Follow(fmt.Sprint(i), h.make(fmt.Sprintf("many%d", i))); err != nil {
			b.Fatal(err)
		}
	}
	var on, off time.Duration
	for b.Loop() {
		began := time.Now()
		if err := c.Enable(nil); err != nil {
			b.Fatal(err)
		}
		on += time.Since(began)
		began = time.Now()
		if err := c.Disable(nil); err != nil {
			b.Fatal(err)
		}
		off += time.Since(began)
	}
	s := c.Status()
	cpus := s.CPUs
	b.ReportMetric(float64(c.events.count()), "event-descriptors")
	b.ReportMetric(float64(c.events.count())/float64(numEvents*cpus), "per-event-and-CPU")
	b.ReportMetric(float64(s.Descriptors), "descriptors")
	b.ReportMetric(float64(n*cpus*numEvents), "perf-cgroup-descriptors")
	b.ReportMetric(float64(on.Microseconds())/float64(b.N), "enable-µs")
	b.ReportMetric(float64(off.Microseconds())/float64(b.N), "disable-µs")
}
