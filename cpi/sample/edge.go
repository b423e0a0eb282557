package sample

import "time"

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
	Events   [NumEvents]uint64
	OnCPU    time.Duration
	Wait     time.Duration // runnable, and not running
	Switches uint64
}

// Group is what one container has run up.
type Group struct {
	ID string
	// Pod is whose container it is; groups of one pod are added up. Empty: nobody's.
	Pod string
	// Life is another number when the totals began anew: the container's cgroup is
	// another one.
	Life uint64
	Counts
}

// Edge is one end of a window: every counter, read at one moment.
type Edge struct {
	Wall time.Time // for people and for what is stored
	// Monotonic stands still while the machine is suspended, Boot does not.
	Monotonic, Boot time.Duration
	// Setup is another number when counters were opened anew or a CPU came or went.
	Setup uint64
	// CPUs is how many CPUs count.
	CPUs int
	// Faults counts readings that the kernel refused in the course of time.
	Faults uint64
	// Counted says which events are counted at all. Enabled and Running are for how
	// long, summed over the CPUs, they were asked for and really were counted.
	Counted          [NumEvents]bool
	Enabled, Running [NumEvents]time.Duration
	Groups           []Group // each ID once
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

	// Of the CPI alone.
	Faults      // the kernel refused a reading
	Multiplexed // others had the counter for a tenth of the time or more
	Idle        // too little ran to make a ratio
	Zero        // no instructions or no cycles, though it ran
	Absurd      // beyond what a CPU can do
	Uncounted   // this machine does not count cycles or instructions

	NumReasons
)

// String is the reason as a label of metrics.
func (r Reason) String() string {
	return [NumReasons]string{
		"", "first", "ended", "restarted", "backwards", "clock", "cpus",
		"faults", "multiplexed", "idle", "zero", "absurd", "uncounted",
	}[r]
}

// Sentence tells people what the reason means.
func (r Reason) Sentence() string {
	return [NumReasons]string{
		"", "it began in the last window", "it ended in the last window", "it restarted in the last window",
		"a counter went backwards", "the last window was too short or too long, or the machine slept", "a CPU came or went in the last window",
		"the kernel refused to read a counter", "other users had the counters for a tenth of the time or more",
		"it ran too little", "it ran and counted no instructions or no cycles", "the counters tell what no CPU can do",
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
