package sample

import (
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Sample is one container in one window.
type Sample struct {
	End    time.Time
	Boot   time.Duration // of the end, on the clock that neither stops nor jumps
	Length time.Duration
	Usage  float64 // CPU-seconds per second
	// CPI is 0 if NoCPI says why there is none.
	CPI float64
	// MPKI is LLC misses per thousand instructions; valid if HasMPKI.
	MPKI float64
	// Wait is the share of its runnable time that it spent waiting for a CPU; 0 unless
	// HasWait.
	Wait             float64
	NoCPI            Reason
	HasMPKI, HasWait bool
	// Reference says that CPI is in reference cycles, else in core cycles. The two must
	// not be compared.
	Reference bool
}

// Result is a sample, or the reason why there is none.
type Result struct {
	*cpi.Container        // at the window's end, or when last seen
	Dropped        Reason // why there is no sample, or None
	Sample
	// Delta is what was counted in the window. Its Events are only valid if the sample
	// has CPI or MPKI.
	Delta Counts
	// Capped says that a cap was in force at the window's start or end.
	Capped bool
	// Threads at the window's end, for containers that may be capped; 0: unknown.
	Threads int32
}

// Window is the result of comparing two edges.
type Window struct {
	End    time.Time
	Boot   time.Duration
	Length time.Duration
	// Dropped is why the whole window has no samples, or None.
	Dropped    Reason
	Containers []Result // in the order of the later edge's groups, then what ended
	// Running is the share of the time in which each event was counted; 1 for an event
	// that is not present.
	Running [NumEvents]float64
	// Reference says that CPIs of this machine are in reference cycles, whether or not
	// a container has one.
	Reference bool
}

// Judge compares two edges. It never fails: the results say what is wrong with them.
func Judge(from, to *Edge, r Rules) *Window {
	j := judge{rules: r, from: from, to: to, length: to.Monotonic - from.Monotonic}
	j.whole()
	w := &Window{End: to.Wall, Boot: to.Boot, Length: j.length, Dropped: j.dropped, Running: j.running,
		Reference: j.base == RefCycles}
	before := make(map[string]*Group, len(from.Groups))
	for i := range from.Groups {
		before[from.Groups[i].ID] = &from.Groups[i]
	}
	w.Containers = make([]Result, 0, len(to.Groups))
	for i := range to.Groups {
		g := &to.Groups[i]
		w.Containers = append(w.Containers, j.group(before[g.ID], g))
		delete(before, g.ID)
	}
	for i := range from.Groups {
		if g := &from.Groups[i]; before[g.ID] != nil {
			w.Containers = append(w.Containers, Result{Container: g.Container, Dropped: Ended, Capped: g.Capped})
		}
	}
	return w
}

// judge holds what is common to all groups of a window.
type judge struct {
	rules   Rules
	from    *Edge
	to      *Edge
	length  time.Duration
	lost    time.Duration // that may belong to any group
	dropped Reason
	base    Event // of CPI: RefCycles if present, else Cycles
	running [NumEvents]float64
}

// slept is how far the two clocks may differ without a suspension: they are not read at
// the same instant.
const slept = 10 * time.Millisecond

func (j *judge) whole() {
	from, to, r := j.from, j.to, j.rules
	if j.base = Cycles; to.Present[RefCycles] {
		j.base = RefCycles
	}
	boot := to.Boot - from.Boot
	switch {
	case j.length <= 0 || j.length < r.MinLength || j.length > r.MaxLength || (boot-j.length).Abs() > slept:
		j.dropped = Clock
	case to.Setup != from.Setup || to.CPUs != from.CPUs || to.Present != from.Present || to.Waits != from.Waits:
		j.dropped = CPUs
	case !j.shares(from) || to.Missed < from.Missed || to.Lost < from.Lost:
		j.dropped = Backwards
	case to.Missed != from.Missed:
		j.lost = to.Lost - from.Lost
	}
}

// shares computes for what share of the window each event was counted. It returns false
// if a total went backwards.
func (j *judge) shares(from *Edge) bool {
	for e := range j.running {
		j.running[e] = 1
		enabled, running := j.to.Enabled[e]-from.Enabled[e], j.to.Running[e]-from.Running[e]
		if enabled < 0 || running < 0 {
			return false
		}
		if j.to.Present[e] && running < enabled {
			j.running[e] = float64(running) / float64(enabled)
		}
	}
	return true
}

func (j *judge) group(before, now *Group) Result {
	r := Result{Container: now.Container, Dropped: j.dropped,
		Capped: now.Capped || before != nil && before.Capped}
	switch {
	case r.Dropped != None:
	case before == nil:
		r.Dropped = First
	case before.CgroupID != now.CgroupID:
		r.Dropped = Restarted
	case !r.Delta.subtract(&before.Counts, &now.Counts):
		r.Dropped = Backwards
	case !j.possible(&r.Delta):
		r.Dropped = Absurd
	case !j.complete(before, now, r.Delta.OnCPU):
		r.Dropped = Missed
	}
	j.finish(&r)
	return r
}

// complete says whether the counters have all of a group's CPU time. They must agree
// with the kernel's own account. Where that is too imprecise, little time may be
// unattributed.
func (j *judge) complete(before, now *Group, onCPU time.Duration) bool {
	r, a, b := j.rules, before.Account, now.Account
	if a.Known && b.Known && a.Before <= a.After && b.Before <= b.After && a.Before <= b.Before {
		low, high := b.Before-a.After, b.After-a.Before
		slack := time.Duration(max(r.MaxOffShare*float64(high), r.MaxOff*float64(j.length)))
		if onCPU < low-slack || onCPU > high+slack {
			return false
		}
		if float64(high-low) <= r.MaxBetween*float64(high) {
			return true
		}
	}
	return j.lost.Seconds() <= max(r.MaxLostShare*onCPU.Seconds(), r.MaxLost*j.length.Seconds())
}

// subtract returns false if a total went backwards.
func (c *Counts) subtract(before, now *Counts) bool {
	*c = Counts{OnCPU: now.OnCPU - before.OnCPU, Counted: now.Counted - before.Counted, Wait: now.Wait - before.Wait,
		Switches: now.Switches - before.Switches}
	if c.OnCPU < 0 || c.Counted < 0 || c.Wait < 0 || now.Switches < before.Switches {
		return false
	}
	for e := range c.Events {
		if now.Events[e] < before.Events[e] {
			return false
		}
		c.Events[e] = now.Events[e] - before.Events[e]
	}
	return true
}

// tolerance is the factor by which CPU time may exceed the possible: CPUs are not read
// at the same instant.
const tolerance = 1.01

// possible says whether that much CPU time can exist. Waits have no such bound: one
// that began before the window counts when it ends.
func (j *judge) possible(d *Counts) bool {
	return d.OnCPU.Seconds() <= tolerance*float64(max(j.to.CPUs, 1))*j.length.Seconds() && d.Counted <= d.OnCPU
}

// finish computes the sample from the difference.
func (j *judge) finish(r *Result) {
	if r.Dropped != None {
		r.Delta, r.Sample = Counts{}, Sample{}
		return
	}
	d := &r.Delta
	r.Sample = Sample{
		End: j.to.Wall, Boot: j.to.Boot, Length: j.length, HasWait: j.to.Waits,
		Usage: d.OnCPU.Seconds() / j.length.Seconds(),
	}
	if could := d.OnCPU + d.Wait; j.to.Waits && could > 0 {
		r.Wait = d.Wait.Seconds() / could.Seconds()
	}
	if r.NoCPI = j.ratio(d); r.NoCPI != None {
		return
	}
	r.CPI = float64(d.Events[j.base]) / float64(d.Events[Instructions])
	r.Reference = j.base == RefCycles
	mpki := 1000 * float64(d.Events[LLCMisses]) / float64(d.Events[Instructions])
	if j.to.Present[LLCMisses] && within(mpki, 0, j.rules.MaxMPKI) {
		r.MPKI, r.HasMPKI = mpki, true
	}
}

// ratio says whether the cycles and instructions of a difference are plausible.
func (j *judge) ratio(d *Counts) Reason {
	cycles, instructions := d.Events[j.base], d.Events[Instructions]
	switch {
	case !j.to.Present[j.base] || !j.to.Present[Instructions]:
		return Uncounted
	case d.OnCPU < j.rules.MinOnCPU:
		return Idle
	case float64(d.Counted) < j.rules.MinCounted*float64(d.OnCPU):
		return Partial
	case cycles == 0 || instructions == 0:
		return Zero
	}
	cpi, hertz := float64(cycles)/float64(instructions), float64(cycles)/d.Counted.Seconds()
	if !within(cpi, j.rules.MinCPI, j.rules.MaxCPI) || !within(hertz, j.rules.MinHertz, j.rules.MaxHertz) {
		return Absurd
	}
	return None
}

func within(v, least, most float64) bool { return v >= least && (most == 0 || v <= most) }
