package sampler

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpi/sample"
)

// Budget bounds what counting may take, in shares of CPU time averaged over an interval.
type Budget struct {
	Node float64 // of all CPUs that are counted; 0: unbounded
	CPU  float64 // of any one of them; 0: unbounded
}

// Step is how much is counted: each step counts less than the one before.
type Step int

// The steps, in the order in which they are taken.
const (
	Everything  Step = iota
	NoMisses         // LLC misses are left out
	NoReference      // so are reference cycles: CPI is in core cycles
	Half             // half of the containers have a place
	Eighth
	Short   // windows of half of their length
	Shorter // and of a quarter
	Off
)

func (s Step) String() string {
	return [...]string{"everything is counted", "LLC misses are left out",
		"LLC misses and reference cycles are left out", "half of the containers are counted",
		"an eighth of the containers are counted", "an eighth of the containers are counted, in windows half as long",
		"an eighth of the containers are counted, in windows a quarter as long", "nothing is counted"}[s]
}

// leftOut are the events that a step does not read.
func (s Step) leftOut() (events [sample.NumEvents]bool) {
	events[sample.LLCMisses], events[sample.RefCycles] = s >= NoMisses, s >= NoReference
	return events
}

// watched is the share of the containers that have a place.
func (s Step) watched() float64 {
	switch {
	case s >= Eighth:
		return 1. / 8
	case s == Half:
		return 1. / 2
	}
	return 1
}

// length is the length of a window.
func (s Step) length(whole time.Duration) time.Duration {
	switch s {
	case Short:
		return whole / 2
	case Shorter, Off:
		return whole / 4
	}
	return whole
}

// Spent is what a window took.
type Spent struct {
	Node, CPU float64 // as of Budget
	PerRun    time.Duration
	// Reads is how long the reading of each event takes; it is a part of PerRun.
	Reads [sample.NumEvents]time.Duration
}

// governor chooses the step that keeps counting within its budget. It goes down at once, as
// many steps as what a window took calls for, and up one step at a time, when what that
// would take has been well within the budget for a while.
type governor struct {
	budget Budget
	step   Step
	calm   int // windows in a row in which one step up would have been within the budget
	off    int // windows that were left out
	why    string
}

const (
	calmWindows = 5
	roomy       = 0.7 // of the budget
	offWindows  = 30
)

// over is by what factor a share of the cost exceeds the budget.
func (g *governor) over(s *Spent) float64 {
	over := 0.
	if g.budget.Node > 0 {
		over = s.Node / g.budget.Node
	}
	if g.budget.CPU > 0 {
		over = max(over, s.CPU/g.budget.CPU)
	}
	return over
}

// saves is the share of the cost that is left when a step is entered from the one before.
func (s Step) saves(spent *Spent) float64 {
	read := time.Duration(0)
	switch s {
	case NoMisses:
		read = spent.Reads[sample.LLCMisses]
	case NoReference:
		read = spent.Reads[sample.RefCycles]
	case Half, Short, Shorter:
		return 1. / 2
	case Eighth:
		return 1. / 4
	case Off:
		return 0
	}
	if spent.PerRun <= 0 {
		return 1
	}
	return max(1-read.Seconds()/spent.PerRun.Seconds(), 0.1)
}

// adds is the factor by which going back from a step raises the cost.
func (s Step) adds(spent *Spent) float64 {
	if s == NoMisses || s == NoReference {
		event := sample.LLCMisses
		if s == NoReference {
			event = sample.RefCycles
		}
		if spent.PerRun <= 0 {
			return 1
		}
		return 1 + spent.Reads[event].Seconds()/spent.PerRun.Seconds()
	}
	return 1 / s.saves(spent)
}

// next takes what a window has taken and returns whether the step changed.
func (g *governor) next(spent *Spent) bool {
	was := g.step
	over := g.over(spent)
	if over > 1 {
		g.why = fmt.Sprintf("a window took %.3g %% of the node's CPU time and %.3g %% of one CPU's, %v a switch; "+
			"cpi.budget is %.3g and %.3g %%", 100*spent.Node, 100*spent.CPU, spent.PerRun, 100*g.budget.Node,
			100*g.budget.CPU)
		for over > 1 && g.step < Off {
			g.step++
			over *= g.step.saves(spent)
		}
		g.calm, g.off = 0, 0
		return g.step != was
	}
	if g.step == Everything || g.step == Off {
		return false
	}
	if over*g.step.adds(spent) > roomy {
		g.calm = 0
		return false
	}
	if g.calm++; g.calm < calmWindows {
		return false
	}
	g.calm = 0
	if g.step--; g.step == Everything {
		g.why = ""
	}
	return true
}

// rest says whether this interval has no window, and ends after a while with a short one.
func (g *governor) rest() bool {
	if g.step != Off {
		return false
	}
	if g.off++; g.off <= offWindows {
		return true
	}
	g.step, g.off, g.calm = Shorter, 0, 0
	return false
}

// state is the step and its reason; empty where everything is counted.
func (g *governor) state() string {
	if g.step == Everything {
		return ""
	}
	return g.step.String() + ": " + g.why
}
