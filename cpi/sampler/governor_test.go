package sampler

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi/sample"
)

// costly is a machine on which reading a counter costs what is injected.
type costly struct {
	switches float64 // a second and CPU, of which all are between cgroups that are counted
	base     time.Duration
	read     time.Duration
	// containers that switch equally often; 0: a thousand
	containers int
}

// spend is what a window of 10 s a minute takes at a step.
func (m costly) spend(s Step) *Spent {
	n := cmp.Or(m.containers, 1000)
	out := &Spent{PerRun: m.base, Containers: n}
	left := s.leftOut()
	for e := range sample.NumEvents {
		out.Reads[e] = m.read
		if !left[e] {
			out.PerRun += m.read
		}
	}
	if s == Off {
		return &Spent{Containers: n}
	}
	window := s.length(10 * time.Second).Seconds()
	out.CPU = m.switches * float64(s.places(n)) / float64(n) * out.PerRun.Seconds() * window / 60
	out.Node = out.CPU
	return out
}

var testBudget = Budget{Node: 0.001, CPU: 0.01}

// settle plays windows until the step does not change for a while.
func settle(g *governor, m costly) (windows int) {
	for still := 0; still < 4*calmWindows && windows < 1000; windows++ {
		if still++; g.next(m.spend(g.step)) {
			still = 0
		}
	}
	return windows
}

// The figures of a virtual PMU: 2 to 4 µs a reading, 0.4 µs without.
func TestTheGovernorKeepsTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		machine costly
		want    Step
	}{
		"idle":                      {costly{100, 400 * time.Nanosecond, 40 * time.Nanosecond, 0}, Everything},
		"cheap readings":            {costly{10_000, 300 * time.Nanosecond, 50 * time.Nanosecond, 0}, Everything},
		"software events":           {costly{10_000, 320 * time.Nanosecond, 85 * time.Nanosecond, 0}, NoMisses},
		"software events, busier":   {costly{11_000, 320 * time.Nanosecond, 85 * time.Nanosecond, 0}, NoReference},
		"a hypervisor, few":         {costly{1000, 400 * time.Nanosecond, 2 * time.Microsecond, 0}, NoReference},
		"a hypervisor, dear":        {costly{10_000, 400 * time.Nanosecond, 4 * time.Microsecond, 0}, Short},
		"a hypervisor, as reviewed": {costly{10_000, 10 * time.Microsecond, 4 * time.Microsecond, 0}, Shorter},
		"hopeless":                  {costly{1e6, 10 * time.Microsecond, 4 * time.Microsecond, 0}, Off},
		"few containers":            {costly{10_000, 400 * time.Nanosecond, 2 * time.Microsecond, 5}, Off},
	} {
		g := &governor{budget: testBudget}
		if first := g.next(c.machine.spend(Everything)); first != (c.want != Everything) {
			t.Errorf("%s: the first window changed something: %t", name, first)
		}
		if over := g.over(c.machine.spend(g.step)); over > 1 {
			t.Errorf("%s: %.2f of the budget after one window, at step %d", name, over, g.step)
		}
		settle(g, c.machine)
		if g.step != c.want {
			t.Errorf("%s: %d (%v), want %d", name, g.step, g.step, c.want)
		}
		if (g.state() == "") != (c.want == Everything) ||
			c.want != Everything && !strings.Contains(g.state(), "cpi.budget") {
			t.Errorf("%s: the state is %q", name, g.state())
		}
	}
}

// Whatever a machine costs, the second window is within the budget, and a step that is
// within it never changes for one that is not.
func TestTheGovernorNeverSwings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := costly{rapid.Float64Range(0, 1e6).Draw(t, "switches"),
			time.Duration(rapid.Int64Range(10, 20_000).Draw(t, "base")),
			time.Duration(rapid.Int64Range(0, 10_000).Draw(t, "read")), rapid.IntRange(1, 100).Draw(t, "containers")}
		g := &governor{budget: testBudget, step: Step(rapid.IntRange(0, int(Shorter)).Draw(t, "step"))}
		g.next(m.spend(g.step))
		for range 10 * calmWindows {
			if over := g.over(m.spend(g.step)); over > 1+1e-9 {
				t.Fatalf("step %d takes %.3f of the budget", g.step, over)
			}
			g.next(m.spend(g.step))
		}
		// One step up would not be within it, or is at hand.
		if g.step > Everything && g.step < Off {
			if over := g.over(m.spend(g.step - 1)); over < roomy*0.99 {
				t.Fatalf("stays at step %d, and %d would take %.3f of the budget", g.step, g.step-1, over)
			}
		}
	})
}

// BenchmarkGovernor is the budget's: what windows after the first take of it on average over a
// day, on the machine where that is most. Readings cost up to what hypervisors were seen to take.
func BenchmarkGovernor(b *testing.B) {
	const windows = 1440
	worst, counted := 0.0, 1.0
	for b.Loop() {
		worst, counted = 0, 1
		for _, switches := range []float64{100, 1000, 10_000, 100_000} {
			for _, read := range []time.Duration{50, 500, 2000, 4000} {
				m := costly{switches, 400 * time.Nanosecond, read, 100}
				g := &governor{budget: testBudget}
				spent, had := 0.0, 0
				g.next(m.spend(g.step))
				for range windows {
					if g.rest() {
						continue
					}
					took := m.spend(g.step)
					spent += took.Node
					had++
					g.next(took)
				}
				worst = max(worst, spent/windows/testBudget.Node)
				counted = min(counted, float64(had)/windows)
			}
		}
	}
	b.ReportMetric(worst, "of-budget")
	b.ReportMetric(counted, "windows/interval")
}

// When a machine calms down, everything is counted again, after a while and step by step.
func TestTheGovernorReturns(t *testing.T) {
	g := &governor{budget: testBudget}
	settle(g, costly{10_000, 10 * time.Microsecond, 4 * time.Microsecond, 0})
	from := g.step
	idle := costly{10, 400 * time.Nanosecond, 40 * time.Nanosecond, 0}
	for range calmWindows - 1 {
		g.next(idle.spend(g.step))
	}
	if g.step != from {
		t.Errorf("step %d after %d calm windows, want %d yet", g.step, calmWindows-1, from)
	}
	if settle(g, idle); g.step != Everything || g.state() != "" {
		t.Errorf("step %d, %q: want everything", g.step, g.state())
	}
	unbounded := &governor{}
	if unbounded.next(costly{1e6, time.Second, time.Second, 0}.spend(Everything)) {
		t.Error("without a budget something is left out")
	}
}

// Where even short windows take too much, there are so many intervals without one that the
// budget is kept on average: what is watched is counted now and then, whatever it costs.
func TestIntervalsWithoutWindowsKeepTheBudget(t *testing.T) {
	for name, m := range map[string]costly{
		"few containers":    {10_000, 400 * time.Nanosecond, 2 * time.Microsecond, 5},
		"thirty times":      {1e5, 400 * time.Nanosecond, 4 * time.Microsecond, 5},
		"a little too much": {6000, 400 * time.Nanosecond, 2 * time.Microsecond, 4},
	} {
		g := &governor{budget: testBudget}
		spent, windows := 0.0, 0
		g.next(m.spend(g.step))
		const intervals = 1000
		for range intervals {
			if g.rest() {
				continue
			}
			windows++
			took := m.spend(g.step)
			spent += took.Node
			g.next(took)
		}
		if mean := spent / intervals; windows == 0 || mean > testBudget.Node || mean < testBudget.Node/3 {
			t.Errorf("%s: %d windows in %d intervals took %.4g of the node, want a third of %.4g to all of it", name,
				windows, intervals, mean, testBudget.Node)
		}
		if want := " intervals have no window: "; g.step == Off && !strings.Contains(g.state(), want) {
			t.Errorf("%s: the state is %q", name, g.state())
		}
	}
}
