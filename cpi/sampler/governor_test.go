package sampler

import (
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
}

// spend is what a window of 10 s a minute takes at a step.
func (m costly) spend(s Step) *Spent {
	out := &Spent{PerRun: m.base}
	left := s.leftOut()
	for e := range sample.NumEvents {
		out.Reads[e] = m.read
		if !left[e] {
			out.PerRun += m.read
		}
	}
	if s == Off {
		return &Spent{}
	}
	window := s.length(10 * time.Second).Seconds()
	out.CPU = m.switches * s.watched() * out.PerRun.Seconds() * window / 60
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
		"idle":                      {costly{100, 400 * time.Nanosecond, 40 * time.Nanosecond}, Everything},
		"cheap readings":            {costly{10_000, 300 * time.Nanosecond, 50 * time.Nanosecond}, Everything},
		"software events":           {costly{10_000, 320 * time.Nanosecond, 85 * time.Nanosecond}, NoMisses},
		"software events, busier":   {costly{11_000, 320 * time.Nanosecond, 85 * time.Nanosecond}, NoReference},
		"a hypervisor, few":         {costly{1000, 400 * time.Nanosecond, 2 * time.Microsecond}, NoReference},
		"a hypervisor, dear":        {costly{10_000, 400 * time.Nanosecond, 4 * time.Microsecond}, Short},
		"a hypervisor, as reviewed": {costly{10_000, 10 * time.Microsecond, 4 * time.Microsecond}, Shorter},
		"hopeless":                  {costly{1e6, 10 * time.Microsecond, 4 * time.Microsecond}, Off},
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
			time.Duration(rapid.Int64Range(0, 10_000).Draw(t, "read"))}
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

// When a machine calms down, everything is counted again, after a while and step by step.
func TestTheGovernorReturns(t *testing.T) {
	g := &governor{budget: testBudget}
	settle(g, costly{10_000, 10 * time.Microsecond, 4 * time.Microsecond})
	from := g.step
	idle := costly{10, 400 * time.Nanosecond, 40 * time.Nanosecond}
	for range calmWindows - 1 {
		g.next(idle.spend(g.step))
	}
	if g.step != from {
		t.Errorf("step %d after %d calm windows, want %d yet", g.step, calmWindows-1, from)
	}
	if settle(g, idle); g.step != Everything || g.state() != "" {
		t.Errorf("step %d, %q: want everything", g.step, g.state())
	}
	off := &governor{budget: testBudget, step: Off}
	for range offWindows {
		if !off.rest() {
			t.Fatal("a window while counting is off")
		}
	}
	if off.rest() || off.step != Shorter {
		t.Errorf("after %d intervals: step %d, want one short window", offWindows, off.step)
	}
	unbounded := &governor{}
	if unbounded.next(costly{1e6, time.Second, time.Second}.spend(Everything)) {
		t.Error("without a budget something is left out")
	}
}
