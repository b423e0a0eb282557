package counter

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// Event is a kind of event.
type Event int

// In the order of every array of events.
const (
	Cycles       Event = iota // CPU cycles, not halted, at the CPU's present frequency
	Instructions              // instructions retired
	RefCycles                 // CPU cycles, not halted, at the CPU's nominal frequency
	LLCMisses                 // misses of the last-level cache
	numEvents    = int(LLCMisses) + 1
)

// Events lists all events in order.
func Events() [numEvents]Event { return [...]Event{Cycles, Instructions, RefCycles, LLCMisses} }

func (e Event) String() string {
	switch e {
	case Cycles:
		return "cycles"
	case Instructions:
		return "instructions"
	case RefCycles:
		return "ref-cycles"
	case LLCMisses:
		return "llc-misses"
	}
	return fmt.Sprintf("Event(%d)", int(e))
}

// SourceKind says where an event's numbers come from.
type SourceKind int

// Kinds of sources.
const (
	Absent   SourceKind = iota // none: the event's numbers stay 0
	Hardware                   // the CPUs' performance monitoring units
	Declared                   // a stand-in that Options.StandIns asked for
)

func (k SourceKind) String() string {
	switch k {
	case Absent:
		return "absent"
	case Hardware:
		return "hardware"
	case Declared:
		return "stand-in"
	}
	return fmt.Sprintf("SourceKind(%d)", int(k))
}

// Source is where one event's numbers come from.
type Source struct {
	Kind   SourceKind
	Name   string // the perf event or the stand-in; empty when absent
	Reason string // why it is absent, shares its counter or was opened again, in one sentence
	Err    error  // the kernel's error; nil if the event was not tried
	// Reopened says that it was opened again in the last window on some CPU.
	Reopened bool
}

// StandIn is something that every machine can count, in place of an event that this
// machine cannot. It is never used unless configured.
type StandIn int

// Stand-ins.
const (
	OnCPUNanoseconds StandIn = iota + 1 // time on the CPU, as the program measures it
	CPUClock                            // the kernel's software event cpu-clock
	PageFaults                          // the kernel's software event page-faults
)

func (s StandIn) String() string {
	switch s {
	case OnCPUNanoseconds:
		return "on-cpu-nanoseconds"
	case CPUClock:
		return "cpu-clock"
	case PageFaults:
		return "page-faults"
	}
	return fmt.Sprintf("StandIn(%d)", int(s))
}

// Worth is the number of events that one count stands for. It brings ratios of
// stand-ins into the range of hardware: a page fault takes the time of some ten
// thousand instructions.
func (s StandIn) Worth() uint64 {
	if s == PageFaults {
		return 10_000
	}
	return 1
}

// Trigger is what runs the program when a cgroup leaves a CPU.
type Trigger int

// Triggers.
const (
	Auto           Trigger = iota // SchedSwitch; Status says whether the other would work
	SchedSwitch                   // every context switch; leaves early within one cgroup
	CgroupSwitches                // the kernel's software event of that name: cgroup v2, Linux 5.13
)

func (t Trigger) String() string {
	switch t {
	case Auto:
		return "auto"
	case SchedSwitch:
		return "sched_switch"
	case CgroupSwitches:
		return "cgroup-switches"
	}
	return fmt.Sprintf("Trigger(%d)", int(t))
}

// Waits says what is counted about tasks that are runnable but do not run.
type Waits int

// Each includes what the one before counts. All but WaitsOff need the trigger
// SchedSwitch.
const (
	WaitsOff     Waits = iota
	WaitsTotal         // Counts.RunQueueWait
	WaitsByCause       // Reading.Waits: which group ran meanwhile
)

// Options configure a Counter. Root is required.
type Options struct {
	// Root is where cgroups are mounted: for v2 the hierarchy itself, for v1 the
	// hierarchy of the cpu controller. Follow's paths are below it.
	Root string
	// V1 says that Root is the cgroup v1 hierarchy of the cpu controller.
	V1 bool
	// MaxGroups bounds the number of followed cgroups, by default 1,024. Each costs 160
	// bytes of kernel memory per possible CPU.
	MaxGroups int
	Trigger   Trigger
	Waits     Waits
	// Skip are CPUs that are left alone: they get no event and no call. SetSkip changes
	// them.
	Skip cpuset.Set
	// ByCPU has readings say what each group did on each CPU.
	ByCPU bool
	// StandIns replace events. If empty, events without hardware are absent. If one
	// replaces cycles, instructions or reference cycles, no hardware event is opened:
	// the two are never mixed.
	StandIns map[Event]StandIn
	// Log gets one line for each event that cannot be counted. nil: none.
	Log *slog.Logger
}

// Counts are totals of one group, of Other, or of the machine. They only grow.
type Counts struct {
	Events [numEvents]uint64
	// OnCPU is time on CPUs in nanoseconds, by the scheduler's own account: it matches
	// cpu.stat, without what a hypervisor or the scheduler took. If the kernel does not
	// expose that account, it is the time between switches.
	OnCPU uint64
	// Counted is the part of OnCPU in which cycles and instructions had their counters,
	// CountedRef that of reference cycles, CountedMisses that of LLC misses. Events belong
	// to this time: the ratio of cycles and instructions, which are counted together, is
	// exact, and of others that of their rates, an event per second being Events/Counted.
	Counted, CountedRef, CountedMisses uint64
	// RunQueueWait is the time in nanoseconds that runnable tasks waited for a CPU,
	// charged when the wait ends. 0 with WaitsOff.
	RunQueueWait uint64
	// Switches counts how often the group left a CPU to another cgroup.
	Switches uint64
}

// Group is the counts of one followed cgroup since Follow.
type Group struct {
	ID string
	Counts
}

// Wait is time that tasks of Victim waited until they followed By on a CPU.
type Wait struct {
	Victim, By  string // ids; By is empty for what is not followed
	Nanoseconds uint64
}

// Row is what a group did on a CPU since the reading before. Events are those of its time there:
// what was counted in a part of it is taken to have gone on in the rest.
type Row struct {
	CPU, Group           uint16  // an index of Reading.Groups
	OnCPU                float32 // nanoseconds
	Instructions, Misses float32
}

// leastRow is the least time of a row, in nanoseconds.
const leastRow = 1e6

// Faults count, since Open, what was dropped and why. Time is charged nevertheless.
type Faults struct {
	Read     uint64 // an event gave an error
	Lost     uint64 // an event had stopped counting: its CPU had been offline
	Reset    uint64 // an event ran backwards, or was a new one
	Absurd   uint64 // an event moved further than any CPU can in that time
	Missed   uint64 // the kernel did not run the program at a switch: what cannot be attributed is Other's
	Depth    uint64 // a cgroup more than 32 levels below the root: charged to Other
	Waits    uint64 // a wait whose pair did not fit into the table of causes
	Reopened uint64 // events of a CPU were opened again; Source.Reason says why
}

// Reading is one reading of all totals. Each CPU's part of all numbers in it is of the
// same instant.
type Reading struct {
	// At is CLOCK_MONOTONIC when the first CPU was read, which stops while the machine
	// is suspended. Took is how much later the last CPU was read.
	At, Took time.Duration
	// Groups are sorted by id.
	Groups         []Group
	Other, Machine Counts
	// Enabled and Running are nanoseconds summed over CPUs, per event. Running is less
	// if the kernel multiplexed events.
	Enabled, Running [numEvents]uint64
	// Unseen is the CPU time in nanoseconds of which it is not known what ran, since a
	// switch was missed in it.
	Unseen uint64
	// Present says which events are counted on some CPU.
	Present [numEvents]bool
	// Calls is how often the counter has interrupted the CPU that it interrupted most, in
	// this window.
	Calls uint64
	// Changes counts how often a CPU joined or left in a window.
	Changes uint64
	// Cost is what the program took in this window, by its own sampling, MostCost that of the
	// CPU where it took most, PerRun that of a run; ReadCost is as in Status.
	Cost, MostCost, PerRun time.Duration
	ReadCost               [numEvents]time.Duration
	// Waits are those that ended in this window, sorted by victim and cause; WaitsByCause only.
	Waits []Wait
	// Rows are in no order, and a group may have several of a CPU; Options.ByCPU only. What ran
	// for less than a millisecond is left out. The counter keeps none of them.
	Rows   []Row
	Faults Faults
	CPUs   int // that were counted
}

// Status describes how a Counter counts.
type Status struct {
	Trigger       Trigger
	TriggerReason string
	Sources       [numEvents]Source
	Kernel        string
	CPUs          int
	Groups        int
	MaxGroups     int
	Enabled       bool
	Descriptors   int    // open file descriptors, maps and programs included
	MapBytes      uint64 // kernel memory of the maps
	// Runs of the program since Open, their mean cost by its own sampling, and the
	// product: the CPU time that counting has taken. Runs that return early are not
	// included.
	Runs   uint64
	PerRun time.Duration
	Cost   time.Duration
	// ReadCost is how long reading one event takes, of the CPU where it took longest at the
	// last window's beginning: a few microseconds where a hypervisor emulates the counters.
	ReadCost [numEvents]time.Duration
	// Calls is how often the counter has interrupted CPUs since Open.
	Calls uint64
	// Read is how long the last reading took, kernel time included.
	Read time.Duration
}

// UnsupportedError says that this machine cannot count at all.
type UnsupportedError struct {
	Feature string // what is missing, and since when Linux has it
	Kernel  string // the release that runs
	Err     error  // the kernel's error; may be nil
}

func (e *UnsupportedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("counting needs %s, which Linux %s lacks", e.Feature, e.Kernel)
	}
	return fmt.Sprintf("counting needs %s, which Linux %s refuses: %v", e.Feature, e.Kernel, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }

// FullError says that a cgroup is not followed, since MaxGroups are. It is charged to
// the followed cgroup above it, or to Other.
type FullError struct {
	ID        string
	MaxGroups int
}

func (e *FullError) Error() string {
	return fmt.Sprintf("cannot count %s: %d cgroups are followed, the maximum; raise MaxGroups (cpi.maxContainers)",
		e.ID, e.MaxGroups)
}
