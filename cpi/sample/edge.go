package sample

import (
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Event is what a counter counts.
type Event int

// The events, in the order of every array in this package.
const (
	Cycles Event = iota
	Instructions
	RefCycles
	LLCMisses

	NumEvents = 4
)

// String is the name of the event in metrics and on the screen.
func (e Event) String() string {
	return [NumEvents]string{"cycles", "instructions", "ref-cycles", "llc-misses"}[e]
}

// Counts are totals since some moment of the past.
type Counts struct {
	Events [NumEvents]uint64
	OnCPU  time.Duration
	// Counted is the part of OnCPU in which the events were really counted. They
	// belong to this time alone.
	Counted  time.Duration
	Wait     time.Duration // runnable, and not running; known when it ends
	Switches uint64
}

// Group is what one container has run up.
type Group struct {
	*cpi.Container // as it is at this edge
	// Life is another number when the totals began anew: the container's cgroup is
	// another one.
	Life uint64
	Counts
	Account Account
}

// Account is the kernel's own account of a group's CPU time, independent of the
// counters: what it was before the counters were read, and what after. However long
// a machine took over the readings, at the edge it was something in between.
type Account struct {
	Known         bool
	Before, After time.Duration
}

// Edge is one end of a window: every counter, read at one moment.
type Edge struct {
	Wall time.Time // for people and for what is stored
	// Monotonic stands still while the machine is suspended, Boot does not.
	Monotonic, Boot time.Duration
	// Setup is another number when a CPU came or went or its counters were opened
	// anew.
	Setup uint64
	CPUs  int // that count
	// Missed is how often the kernel lost track of who ran, Lost the time that was
	// charged to nobody therefore: any of it may be any group's.
	Missed uint64
	Lost   time.Duration
	// Present says which events are counted here at all, Waits whether waiting is.
	Present [NumEvents]bool
	Waits   bool
	// Enabled and Running are for how long, summed over the CPUs, each event was
	// asked for and really was counted.
	Enabled, Running [NumEvents]time.Duration
	Groups           []Group // each container once
}

// Reason is why there is no sample, or one without CPI.
type Reason uint8

const (
	None Reason = iota

	// Of a whole window, or of a container in it: there is no sample.
	First     // no reading at the window's beginning
	Ended     // no reading at its end
	Restarted // another cgroup under the same name
	Backwards // a total is smaller than before
	Clock     // the window is empty, much too long, or the machine slept in it
	CPUs      // a CPU came or went
	Missed    // the counters lack CPU time, or may lack so much that it would matter

	// Of the CPI alone; Absurd is of both.
	Idle      // too little ran to make a ratio
	Partial   // its events were counted for too small a part of its time
	Zero      // no instructions or no cycles, though it ran
	Absurd    // beyond what CPUs can do
	Uncounted // this machine does not count cycles or instructions

	NumReasons
)

// String is the reason as a label of metrics.
func (r Reason) String() string {
	return [NumReasons]string{
		"", "first", "ended", "restarted", "backwards", "clock", "cpus", "missed",
		"idle", "partial", "zero", "absurd", "uncounted",
	}[r]
}

// Sentence tells people what the reason means.
func (r Reason) Sentence() string {
	return [NumReasons]string{
		"", "it began in the last window", "it ended in the last window",
		"its cgroup became another in the last window",
		"a counter went backwards", "the last window was too short or too long, or the machine slept",
		"a CPU came or went in the last window",
		"the counters lack CPU time in the last window", "it ran too little",
		"its events were counted for less than nine tenths of its time",
		"it ran and counted no instructions or no cycles", "the counters tell what no CPU can do",
		"cycles and instructions are not counted here",
	}[r]
}

// Reasons lists every reason that drops something.
func Reasons() []Reason {
	list := make([]Reason, 0, NumReasons-1)
	for r := First; r < NumReasons; r++ {
		list = append(list, r)
	}
	return list
}
