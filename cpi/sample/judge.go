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
	// Speed is core cycles per reference cycle: how fast its CPUs ran, of their nominal
	// frequency. 0: not known.
	Speed float64
	// Counted is the share of its CPU time in which what CPI is made of was counted; 0
	// without CPI. Below 1 the CPI is an estimate: the variance of a mean over a share s of
	// the window is that of the whole over s.
	Counted float64
	// Reference says that CPI is in reference cycles, else in core cycles. The two must
	// not be compared.
	Reference bool
	// Queue says how much longer its work took since other containers had the CPU: 1 where it
	// never waited for them, 2 where it waited as long as it ran; 0: not known.
	Queue float64
	// Pressure is the share of the window in which some task of it waited, by the kernel (PSI); 0
	// where the kernel does not say.
	Pressure float64
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
	// Role is why it had a place in the counter, NoPlace that it had none.
	Role Role
	// Delays are what had the CPU while it waited, the longest first; at most 8. Caused is the
	// time that protected containers waited for it, as CPU-seconds per second.
	Delays []Delay
	Caused float64
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
	// ByQueue says that this machine has no CPI, but Queue.
	ByQueue bool
	// ByCPU says who ran where; nil: it is not known.
	ByCPU *ByCPU
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
	j.delayed(w)
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
	base    Event // of CPI: RefCycles if they are counted, else Cycles
	present [NumEvents]bool
	running [NumEvents]float64
}

// slept is how far the two clocks may differ without a suspension: they are not read at
// the same instant.
const slept = 10 * time.Millisecond

func (j *judge) whole() {
	from, to, r := j.from, j.to, j.rules
	for e := range j.present {
		j.present[e] = from.Present[e] && to.Present[e]
	}
	monotonous := j.shares(from)
	j.base = j.chooseBase()
	boot := to.Boot - from.Boot
	switch {
	case j.length <= 0 || j.length < r.MinLength || j.length > r.MaxLength || (boot-j.length).Abs() > slept:
		j.dropped = Clock
	case to.Setup != from.Setup || to.CPUs != from.CPUs || to.Waits != from.Waits:
		j.dropped = CPUs
	case !monotonous || to.Missed < from.Missed || to.Lost < from.Lost:
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
		if j.present[e] && running < enabled {
			j.running[e] = float64(running) / float64(enabled)
		}
	}
	return true
}

// chooseBase chooses what CPI is made of in this window.
func (j *judge) chooseBase() Event {
	least := minReference
	if j.from.Core {
		least = backToReference
	}
	if j.present[RefCycles] && (j.running[RefCycles] >= least || !j.present[Cycles]) {
		return RefCycles
	}
	return Cycles
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
	case now.Left != None:
		r.Dropped = now.Left
	case !j.possible(&r.Delta):
		r.Dropped = Absurd
	case !j.complete(before, now, r.Delta.OnCPU):
		r.Dropped = Missed
	}
	if used, known := j.accounted(before, now); known {
		switch r.Dropped {
		case CPUs, Missed, Unwatched, Skipped:
			j.useAccount(&r, used)
			return r
		}
	}
	j.finish(&r)
	return r
}

// accounted is a group's CPU time by the kernel's own account, if that is precise enough.
func (j *judge) accounted(before, now *Group) (time.Duration, bool) {
	if before == nil || before.CgroupID != now.CgroupID {
		return 0, false
	}
	a, b := before.Account, now.Account
	if !a.Known || !b.Known || a.Before > a.After || b.Before > b.After || a.After > b.Before {
		return 0, false
	}
	low, high := b.Before-a.After, b.After-a.Before
	most := max(j.rules.MaxBetween*float64(high), j.rules.MaxOff*float64(j.length))
	return (low + high) / 2, float64(high-low) <= most
}

// useAccount makes a sample of what the kernel says was used, without CPI.
func (j *judge) useAccount(r *Result, used time.Duration) {
	r.Delta = Counts{OnCPU: used}
	r.Sample = Sample{End: j.to.Wall, Boot: j.to.Boot, Length: j.length, Usage: used.Seconds() / j.length.Seconds(),
		NoCPI: r.Dropped}
	r.Dropped = None
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
		CountedRef: now.CountedRef - before.CountedRef, CountedMisses: now.CountedMisses - before.CountedMisses,
		Switches: now.Switches - before.Switches}
	if min(c.OnCPU, c.Counted, c.CountedRef, c.CountedMisses, c.Wait) < 0 || now.Switches < before.Switches {
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
	return d.OnCPU.Seconds() <= tolerance*float64(max(j.to.CPUs, 1))*j.length.Seconds() &&
		max(d.Counted, d.CountedRef, d.CountedMisses) <= d.OnCPU
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
	r.CPI = d.per(j.base)
	r.Reference = j.base == RefCycles
	r.Counted = d.share(j.base)
	if d.Events[RefCycles] > 0 && d.share(RefCycles) >= j.rules.MinCounted && j.present[Cycles] {
		r.Speed = d.per(Cycles) / d.per(RefCycles)
	}
	if !j.present[LLCMisses] || d.share(LLCMisses) < j.rules.MinCounted {
		return
	}
	if mpki := 1000 * d.per(LLCMisses); within(mpki, 0, j.rules.MaxMPKI) {
		r.MPKI, r.HasMPKI = mpki, true
	}
}

// counted is the time that an event belongs to.
func (c *Counts) counted(e Event) time.Duration {
	switch e {
	case RefCycles:
		return c.CountedRef
	case LLCMisses:
		return c.CountedMisses
	}
	return c.Counted
}

// per is the ratio of an event and instructions: exact where the two were counted at the
// same times, as cycles are, else that of their rates.
func (c *Counts) per(e Event) float64 {
	ratio := float64(c.Events[e]) / float64(c.Events[Instructions])
	if of := c.counted(e); of != c.Counted {
		ratio *= c.Counted.Seconds() / of.Seconds()
	}
	return ratio
}

// share is that of the CPU time in which an event and instructions were counted.
func (c *Counts) share(e Event) float64 {
	return min(c.counted(e), c.Counted).Seconds() / c.OnCPU.Seconds()
}

// ratio says whether the cycles and instructions of a difference are plausible.
func (j *judge) ratio(d *Counts) Reason {
	cycles, instructions := d.Events[j.base], d.Events[Instructions]
	switch {
	case !j.present[j.base] || !j.present[Instructions]:
		return Uncounted
	case d.OnCPU < j.rules.MinOnCPU:
		return Idle
	case d.share(j.base) < j.rules.MinCounted:
		return Partial
	case cycles == 0 || instructions == 0:
		return Zero
	}
	cpi, hertz := d.per(j.base), float64(cycles)/d.counted(j.base).Seconds()
	if !within(cpi, j.rules.MinCPI, j.rules.MaxCPI) || !within(hertz, j.rules.MinHertz, j.rules.MaxHertz) {
		return Absurd
	}
	return None
}

func within(v, least, most float64) bool { return v >= least && (most == 0 || v <= most) }
