package sample

import (
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Event is a hardware event, or what stands in for it.
type Event int

// The events, in the order of every array of this package.
const (
	Cycles Event = iota
	Instructions
	RefCycles
	LLCMisses

	NumEvents = 4
)

// String returns the event's name in metrics and on screen.
func (e Event) String() string {
	return [NumEvents]string{"cycles", "instructions", "ref-cycles", "llc-misses"}[e]
}

// Counts are totals since some moment in the past.
type Counts struct {
	Events [NumEvents]uint64
	OnCPU  time.Duration
	// Counted is the part of OnCPU in which cycles and instructions had their counters,
	// CountedRef and CountedMisses those of reference cycles and LLC misses. Events belong
	// to their time alone.
	Counted, CountedRef, CountedMisses time.Duration

	Wait     time.Duration // runnable but not running; known when the wait ends
	Switches uint64
}

// Group is one container's totals.
type Group struct {
	*cpi.Container // at this edge
	// CgroupID changes when the totals start anew, because the container has another
	// cgroup.
	CgroupID uint64
	Counts
	Account Account
	// Left is why the group is not counted at this edge, though it runs; None: it is.
	Left Reason
}

// Account is the kernel's own account of a group's CPU time, independent of the
// counters, read before and after them. The value at the edge lies between the two,
// however long the reading took.
type Account struct {
	Known         bool
	Before, After time.Duration
	// Waiting is the time in which some task of it waited for a CPU (PSI), if Pressure; Stopped
	// that for which its own quota stopped it.
	Waiting, Stopped time.Duration
	Pressure         bool
}

// Used is the kernel's own account of a container at one moment: totals.
type Used struct {
	CPU, Waiting, Stopped time.Duration // as in Account
	Pressure              bool
}

// Edge is one end of a window: every counter, read at one moment.
type Edge struct {
	Wall time.Time // for display and storage
	// Monotonic stops while the machine is suspended; Boot does not.
	Monotonic, Boot time.Duration
	// Setup changes when a CPU goes online or offline.
	Setup uint64
	CPUs  int // that are counted
	// Missed counts how often the kernel lost track of what ran. Lost is the time of which
	// it is not known for that reason whose it was; any of it may belong to any group.
	Missed uint64
	Lost   time.Duration
	// Present says which events are counted at all, Waits whether run queue waits are.
	Present [NumEvents]bool
	Waits   bool
	// Delays are the waits of the window that ends here by who ran meanwhile. Causes says that
	// they are known.
	Delays []Wait
	Causes bool
	// Core says that the window before had its CPIs in core cycles.
	Core bool
	// Enabled is how long each event was requested, Running how long it was counted,
	// summed over the CPUs.
	Enabled, Running [NumEvents]time.Duration
	Groups           []Group // each container once
}

// Reason says why there is no sample, or a sample without CPI.
type Reason uint8

const (
	None Reason = iota

	// These drop the sample, of a container or of the whole window.
	First     // no reading at the window's beginning
	Ended     // no reading at its end
	Restarted // its cgroup was replaced by another of the same name
	Backwards // a total is smaller than before
	Clock     // the window is too short or too long, or the machine was suspended in it
	CPUs      // a CPU went online or offline
	Missed    // the counters lack too much CPU time, or may

	// These drop the CPI alone; Absurd may drop either. CPUs and Missed drop the CPI alone
	// where the kernel's own account knows the usage.
	Idle      // it ran too little for a ratio
	Partial   // its events were counted for too small a part of its time
	Zero      // no instructions or no cycles, though it ran
	Absurd    // more than a CPU can do
	Uncounted // this machine does not count cycles or instructions
	Unwatched // counting costs too much to count everybody in every window
	Skipped   // its CPUs are left out of counting

	NumReasons
)

// String returns the reason as a metric label.
func (r Reason) String() string {
	return [NumReasons]string{
		"", "first", "ended", "restarted", "backwards", "clock", "cpus", "missed",
		"idle", "partial", "zero", "absurd", "uncounted", "unwatched", "skipped",
	}[r]
}

// Sentence explains the reason to users.
func (r Reason) Sentence() string {
	return [NumReasons]string{
		"", "it began in the last window", "it ended in the last window",
		"its cgroup was replaced in the last window",
		"a counter went backwards", "the last window was too short or too long, or the machine slept",
		"a CPU came or went in the last window",
		"the counters lack CPU time in the last window", "it ran too little",
		"its events had their counters for less than a tenth of its time",
		"it ran and counted no instructions or no cycles", "the counters show more than a CPU can do",
		"cycles and instructions are not counted here",
		"not everybody is counted at once (cpi.budget, cpi.maxContainers), and it was not its turn",
		"its CPUs are left out of counting (cpi.skip)",
	}[r]
}

// Reasons lists every reason to drop something.
func Reasons() []Reason {
	list := make([]Reason, 0, NumReasons-1)
	for r := First; r < NumReasons; r++ {
		list = append(list, r)
	}
	return list
}
