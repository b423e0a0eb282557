package sample

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Sample is one container or pod in one window.
type Sample struct {
	End    time.Time
	Boot   time.Duration // of the end, on the clock that neither stops nor jumps
	Length time.Duration
	Usage  float64 // CPU-seconds per second
	// CPI is 0 where NoCPI says why there is none.
	CPI   float64
	NoCPI Reason
	// MPKI is LLC misses per thousand instructions, where HasMPKI.
	MPKI    float64
	HasMPKI bool
	// Reference says that the CPI is in reference cycles, else in core cycles: one
	// must not be compared with the other.
	Reference bool
	// Wait is the share of the time in which it could have run that it spent
	// waiting for a CPU.
	Wait float64
}

// Result is a sample, or why there is none.
type Result struct {
	ID      string // of the container, or of the pod
	Pod     string // of a container, what Group.Pod was
	Dropped Reason // not None: the rest is empty
	Sample
	// Delta is what was counted in the window, extrapolated where a counter was
	// shared. Its Events are to be used only where the sample has CPI or MPKI.
	Delta Counts
}

// Window is what two edges tell.
type Window struct {
	End    time.Time
	Boot   time.Duration
	Length time.Duration
	// Dropped is why nothing is known of the whole window.
	Dropped    Reason
	Containers []Result // in the order of the later edge's groups, then what ended
	Pods       []Result // by ID
	// Running is the share of the time that each counter counted, 1 where it is
	// not counted at all.
	Running [NumEvents]float64
}

// Judge compares two edges. It never fails: what is wrong with them is what the
// results say.
func Judge(from, to *Edge, r Rules) *Window {
	j := judge{rules: r, to: to, length: to.Monotonic - from.Monotonic}
	j.whole(from)
	w := &Window{End: to.Wall, Boot: to.Boot, Length: j.length, Dropped: j.dropped, Running: j.running}
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
			w.Containers = append(w.Containers, Result{ID: g.ID, Pod: g.Pod, Dropped: Ended})
		}
	}
	w.Pods = j.pods(w.Containers)
	return w
}

// judge is what holds for every group of a window.
type judge struct {
	rules   Rules
	to      *Edge
	length  time.Duration
	cpus    int
	dropped Reason
	noCPI   Reason // of all, though their usage is known
	noMPKI  bool
	base    Event // what CPI counts: RefCycles where there are, else Cycles
	running [NumEvents]float64
	scale   [NumEvents]float64
}

// slept is by how much the two clocks may differ without the machine having
// slept: they are not read in the same instant.
const slept = 10 * time.Millisecond

func (j *judge) whole(from *Edge) {
	to, r := j.to, j.rules
	j.cpus = max(to.CPUs, 1)
	for e := range j.running {
		j.running[e], j.scale[e] = 1, 1
	}
	boot := to.Boot - from.Boot
	switch {
	case j.length <= 0 || j.length < r.MinLength || j.length > r.MaxLength || (boot-j.length).Abs() > slept:
		j.dropped = Clock
	case to.Setup != from.Setup || to.CPUs != from.CPUs || to.Counted != from.Counted:
		j.dropped = CPUs
	case to.Faults < from.Faults:
		j.dropped = Backwards
	}
	if j.dropped != None {
		return
	}
	for e := range NumEvents {
		if to.Counted[e] && !j.share(from, e) {
			j.dropped = Backwards
			return
		}
	}
	j.basis()
	if j.noCPI == None && to.Faults != from.Faults {
		j.noCPI, j.noMPKI = Faults, true
	}
}

// share finds for how much of the window a counter counted.
func (j *judge) share(from *Edge, e int) bool {
	enabled, running := j.to.Enabled[e]-from.Enabled[e], j.to.Running[e]-from.Running[e]
	if enabled < 0 || running < 0 {
		return false
	}
	switch {
	case running == 0:
		j.running[e] = 0
	case running < enabled:
		j.running[e] = float64(running) / float64(enabled)
		j.scale[e] = float64(enabled) / float64(running)
	}
	return true
}

// basis chooses what CPI and MPKI are made of.
func (j *judge) basis() {
	counted := j.to.Counted
	j.base = Cycles
	if counted[RefCycles] {
		j.base = RefCycles
	}
	bad := func(e Event) bool { return j.running[e] < j.rules.MinRunning }
	switch {
	case !counted[j.base] || !counted[Instructions]:
		j.noCPI = Uncounted
	case bad(j.base) || bad(Instructions):
		j.noCPI = Multiplexed
	}
	j.noMPKI = !counted[LLCMisses] || !counted[Instructions] || bad(LLCMisses) || bad(Instructions)
}

func (j *judge) group(before, now *Group) Result {
	r := Result{ID: now.ID, Pod: now.Pod, Dropped: j.dropped}
	switch {
	case r.Dropped != None:
	case before == nil:
		r.Dropped = First
	case before.Life != now.Life:
		r.Dropped = Restarted
	case !j.subtract(&r.Delta, &before.Counts, &now.Counts):
		r.Dropped = Backwards
	}
	j.finish(&r)
	return r
}

// subtract is false where a total went backwards.
func (j *judge) subtract(d, before, now *Counts) bool {
	d.OnCPU, d.Wait = now.OnCPU-before.OnCPU, now.Wait-before.Wait
	if d.OnCPU < 0 || d.Wait < 0 || now.Switches < before.Switches {
		return false
	}
	d.Switches = now.Switches - before.Switches
	for e := range d.Events {
		if now.Events[e] < before.Events[e] {
			return false
		}
		d.Events[e] = j.whileEnabled(now.Events[e]-before.Events[e], e)
	}
	return true
}

// whileEnabled extrapolates what was counted to the time it was asked for.
func (j *judge) whileEnabled(n uint64, e int) uint64 {
	if j.scale[e] == 1 {
		return n
	}
	if v := math.Round(float64(n) * j.scale[e]); v < math.MaxUint64 {
		return uint64(v)
	}
	return math.MaxUint64
}

// tolerance is what the CPU time may exceed the possible by: the CPUs are not
// read in the same instant.
const tolerance = 1.01

// finish makes the sample of a difference.
func (j *judge) finish(r *Result) {
	if r.Dropped == None && r.Delta.OnCPU.Seconds() > tolerance*float64(j.cpus)*j.length.Seconds() {
		r.Dropped = Absurd
	}
	if r.Dropped != None {
		r.Delta, r.Sample = Counts{}, Sample{}
		return
	}
	d := &r.Delta
	r.Sample = Sample{
		End: j.to.Wall, Boot: j.to.Boot, Length: j.length,
		Usage: d.OnCPU.Seconds() / j.length.Seconds(),
	}
	if could := d.OnCPU + d.Wait; could > 0 {
		r.Wait = d.Wait.Seconds() / could.Seconds()
	}
	if r.NoCPI = j.ratio(d); r.NoCPI != None {
		return
	}
	r.CPI = float64(d.Events[j.base]) / float64(d.Events[Instructions])
	r.Reference = j.base == RefCycles
	mpki := 1000 * float64(d.Events[LLCMisses]) / float64(d.Events[Instructions])
	if !j.noMPKI && within(mpki, 0, j.rules.MaxMPKI) {
		r.MPKI, r.HasMPKI = mpki, true
	}
}

// ratio says whether the cycles and instructions of a difference are believed.
func (j *judge) ratio(d *Counts) Reason {
	if j.noCPI != None {
		return j.noCPI
	}
	cycles, instructions, ran := d.Events[j.base], d.Events[Instructions], d.OnCPU
	if ran < j.rules.MinOnCPU {
		return Idle
	}
	if cycles == 0 || instructions == 0 {
		return Zero
	}
	cpi, hertz := float64(cycles)/float64(instructions), float64(cycles)/ran.Seconds()
	if !within(cpi, j.rules.MinCPI, j.rules.MaxCPI) || !within(hertz, j.rules.MinHertz, j.rules.MaxHertz) {
		return Absurd
	}
	return None
}

func within(v, least, most float64) bool { return v >= least && (most == 0 || v <= most) }

// pods adds up the containers of each pod. Of a pod one of whose containers is
// not known, nothing is known.
func (j *judge) pods(containers []Result) []Result {
	at := map[string]int{}
	var pods []Result
	for i := range containers {
		c := &containers[i]
		if c.Pod == "" {
			continue
		}
		k, seen := at[c.Pod]
		if !seen {
			k = len(pods)
			at[c.Pod] = k
			pods = append(pods, Result{ID: c.Pod})
		}
		pods[k].add(c)
	}
	for i := range pods {
		because := pods[i].NoCPI
		if j.finish(&pods[i]); because != None && pods[i].Dropped == None {
			pods[i].withoutCPI(because)
		}
	}
	slices.SortFunc(pods, func(a, b Result) int { return strings.Compare(a.ID, b.ID) })
	return pods
}

func (r *Result) add(c *Result) {
	if r.Dropped == None {
		r.Dropped = c.Dropped
	}
	// The few cycles of an idle container make no ratio of their own; they are good
	// enough to be added.
	if r.NoCPI == None && c.NoCPI != Idle {
		r.NoCPI = c.NoCPI
	}
	d := &r.Delta
	d.OnCPU += c.Delta.OnCPU
	d.Wait += c.Delta.Wait
	d.Switches += c.Delta.Switches
	for e := range d.Events {
		d.Events[e] += c.Delta.Events[e]
	}
}

func (r *Result) withoutCPI(because Reason) {
	r.CPI, r.NoCPI, r.MPKI, r.HasMPKI, r.Reference = 0, because, 0, false, false
}
