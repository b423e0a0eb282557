package sampler

import (
	"fmt"
	"math"
	"time"

	"github.com/quietcore/quietcore/cpi/sample"
)

// Budget bounds what counting may take, in shares of CPU time averaged over an interval.
type Budget struct {
	Node float64 // of all CPUs that are counted; 0: unbounded
	CPU  float64 // of any one of them; 0: unbounded
	// Test takes the place of Node in windows that count the pair of a running test alone.
	Test float64
}

// Step is how much is counted: each step counts less than the one before.
type Step int

// The steps, in the order in which they are taken.
const (
	Everything  Step = iota
	NoMisses         // LLC misses are left out
	NoReference      // so are reference cycles: CPI is in core cycles
	Half             // half of the containers have a place, by the watchlist
	Eighth           // an eighth
	Short            // windows of half of their length
	Shorter          // and of a quarter
	Off
)

func (s Step) String() string {
	return [...]string{"everything is counted", "LLC misses are left out",
		"LLC misses and reference cycles are left out", "half of the containers are counted",
		"an eighth of the containers are counted", "an eighth of the containers are counted, in windows half as long",
		"an eighth of the containers are counted, in windows a quarter as long",
		"most intervals have no window"}[s]
}

// leftOut are the events that a step does not read.
func (s Step) leftOut() (events [sample.NumEvents]bool) {
	events[sample.LLCMisses], events[sample.RefCycles] = s >= NoMisses, s >= NoReference
	return events
}

// leastPlaces is how many containers always have a place: a victim, suspects, and whose turn
// it is.
const leastPlaces = 4

// places is how many of n containers have a place.
func (s Step) places(n int) int {
	switch {
	case s >= Eighth:
		return min(n, max(n/8, leastPlaces))
	case s == Half:
		return min(n, max(n/2, leastPlaces))
	}
	return n
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
	// Containers is how many could be counted.
	Containers int
}

// governor chooses the step that keeps counting within its budget. It goes down at once, as
// many steps as what a window took calls for, and up one step at a time, when what that
// would take has been well within the budget for a while.
type governor struct {
	budget Budget
	top    Step // the first of its steps
	step   Step
	calm   int // windows in a row in which one step up would have been within the budget
	rests  int // intervals without a window, between two short ones
	rested int
	why    string
}

const (
	calmWindows = 5
	roomy       = 0.7 // of the budget
	maxRests    = 100 // intervals; even a program that took all of a window's time would be within the defaults
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
	case Half, Eighth:
		return float64(s.places(spent.Containers)) / float64(max((s-1).places(spent.Containers), 1))
	case Short, Shorter:
		return 1. / 2
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
	return 1 / max(s.saves(spent), 1./8)
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
			if g.step++; g.step == Off {
				g.rests = min(int(math.Ceil(over))-1, maxRests)
			}
			over *= g.step.saves(spent)
		}
		g.calm, g.rested = 0, 0
		return g.step != was
	}
	if g.step == g.top || g.step == Off {
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
	if g.step--; g.step == g.top {
		g.why = ""
	}
	return true
}

// rest says whether this interval has no window. There are so many of them that what the short
// window after them takes is within the budget on average.
func (g *governor) rest() bool {
	if g.step != Off {
		return false
	}
	if g.rested++; g.rested <= g.rests {
		return true
	}
	g.step, g.rested, g.calm = Shorter, 0, 0
	return false
}

// state is the step and its reason; empty where it leaves nothing out.
func (g *governor) state() string {
	if g.step == g.top {
		return ""
	}
	if g.step == Off {
		return fmt.Sprintf("%d of %d intervals have no window: %s", g.rests, g.rests+1, g.why)
	}
	return g.step.String() + ": " + g.why
}
