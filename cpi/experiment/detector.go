package experiment

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Ref is the detector's handle of a container, valid until Forget.
type Ref int32

// Sample is one window of one container.
type Sample struct {
	Ref   Ref
	Usage float64 // CPU-seconds per second
	CPI   float64 // 0: not measured; Usage is still valid
}

// Kind of an event.
type Kind string

const (
	OutlierEvent  Kind = "outlier"  // one sample above the threshold
	AnomalyEvent  Kind = "anomaly"  // with it, the outliers in the window are enough for an anomaly
	AnalysisEvent Kind = "analysis" // whom to ask first
	BegunEvent    Kind = "begun"    // a test of Job for Victim
	VerdictEvent  Kind = "verdict"  // Job disturbs Victim
	GivenUpEvent  Kind = "given-up" // Job does not
	ReleasedEvent Kind = "released" // a verdict ended
	HardenedEvent Kind = "hardened" // the next step throttles Job: the one before a quota did not help
	ProbeEvent    Kind = "probe"    // throttle Job until Until: the coin of a test
	CapEvent      Kind = "cap"      // throttle Job until Until or an uncap: a verdict
	UncapEvent    Kind = "uncap"    // let Job go
	EvictEvent    Kind = "evict"    // Job was capped so often that it should run elsewhere
	LineEvent     Kind = "line"     // what is normal for Victim's job has changed
)

// Normal is what is normal for a job at its usual usage.
type Normal struct {
	CPI     float64
	StdDev  float64 // of ln CPI
	Samples int
}

// Event is a finding or a throttle. Its slices are valid until the next call.
type Event struct {
	Kind      Kind
	At        time.Time
	Victim    *cpi.Container
	CPI       float64
	Threshold float64
	Suspects  []Suspect
	Job       string // the suspect
	Throttles []Throttle
	Step      Step      // of a cap: what is in force; where it is not ByQuota, in place of Throttles' quotas
	Off       *cpi.Room // with ByMove: what Job keeps off
	Until     time.Time
	Normal    Normal
	E         float64
	Arms      [2]Arm  // left alone, throttled; of a test's end
	Harm      float64 // minutes that the test was charged for
	Witness   Witness // of a test's end
	Why       string
}

// Throttle is how far a container of a throttled job is throttled.
type Throttle struct {
	Container Ref
	Milli     int64
}

// Counters are totals for metrics.
type Counters struct {
	Samples, Outliers, Anomalies, Analyses uint64
	// Tests that were begun, and those of them that ever reached the threshold.
	Tests, Verdicts uint64
	// Steps that verdicts took in place of a quota, by Step.
	Steps [ByBandwidth + 1]Tally
	// Dropped counts samples that cannot be.
	Dropped uint64
	// Unjudged counts samples of victims whose job has no line yet.
	Unjudged uint64
	// Tested and Capped are the windows of tests and of verdicts. Where nobody is guilty, the
	// victim is well in as large a share of Tested's placebos as of the others.
	Tested, Capped Windows
	// Harm is the minutes that tests were charged for.
	Harm float64
}

// Tally of a step: how often it was taken, and how often the next one has followed.
type Tally struct{ Begun, Failed uint64 }

// Windows of an active suspect, by its coin: 0: left alone, 1: throttled.
type Windows struct {
	All, Well [2]uint64 // Well are those of All in which the victim was well
}

func (w *Windows) add(on, well bool) {
	i := 0
	if on {
		i = 1
	}
	w.All[i]++
	if well {
		w.Well[i]++
	}
}

type workloadKey struct{ name, platform string }

func (j *workload) key() workloadKey { return workloadKey{j.name, j.platform} }

type container struct {
	*cpi.Container
	gone    int64 // window in which it ended; 0: it runs
	victim  *victim
	suspect *suspect
}

// Detector is the whole state machine. It is not safe for concurrent use.
type Detector struct {
	cfg      Config
	all      []container
	free     []Ref
	byID     map[string]Ref
	jobs     map[workloadKey]*workload
	suspects map[string]*suspect
	listed   []*suspect // in order of name, so that nothing depends on a map's order
	pairs    map[PairKey]*pair
	order    []*pair // in order of key
	accusers map[string]*accuser
	bank     *bank
	clock
	work work
}

// clock counts windows.
type clock struct {
	now      time.Time
	observed time.Time // the last Observe
	window   int64     // of Config.Period
	tick     int64     // of Config.Window: what coins are thrown for
	thrown   int64     // the tick of the newest coins, which were thrown ...
	began    int64     // ... at this one
	short    bool      // see ShortWindows
	counts   Counters
}

// work is memory that calls share.
type work struct {
	events    []Event
	throttles []Throttle
	trials    []Trial
	ranked    []Suspect
	anomalous []Ref
	learned   []Learned
	prior     workspace
	fit       fitting
}

// New makes a detector that has learned nothing yet.
func New(cfg Config) (*Detector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Detector{cfg: cfg, byID: map[string]Ref{}, jobs: map[workloadKey]*workload{},
		suspects: map[string]*suspect{}, pairs: map[PairKey]*pair{}, accusers: map[string]*accuser{},
		bank: bankFor(cfg.span()), clock: clock{window: 1, tick: int64(cfg.span())}}, nil
}

// JobOf is the job that a container is judged with; one without a job stands alone.
func JobOf(c *cpi.Container) string {
	if c.Job != "" {
		return c.Job
	}
	return c.ID
}

// Put adds or updates a container. It keeps c, which must not change any more. A
// restarted container needs a Forget first, or a new ID.
func (d *Detector) Put(c *cpi.Container) (Ref, error) {
	if ref, ok := d.byID[c.ID]; ok {
		old := &d.all[ref]
		if old.Job == c.Job && old.Platform == c.Platform && old.Class == c.Class && old.Capping == c.Capping {
			old.Container = c
			return ref, nil
		}
		d.Forget(c.ID)
	}
	ref := Ref(len(d.all))
	switch n := len(d.free); {
	case n > 0:
		ref, d.free = d.free[n-1], d.free[:n-1]
	case len(d.all) >= d.cfg.MaxContainers:
		return 0, fmt.Errorf("container %s: %d containers are followed already, the maximum", c.ID, len(d.all))
	default:
		d.all = append(d.all, container{})
	}
	s := d.suspectOf(JobOf(c))
	able, _ := c.MayBeCapped()
	s.add(ref, !able)
	n := container{Container: c, suspect: s}
	if c.Class.LatencySensitive() {
		n.victim = d.newVictim(d.workloadOf(JobOf(c), c.Platform))
	}
	d.all[ref] = n
	d.byID[c.ID] = ref
	return ref, nil
}

func (d *Detector) newVictim(j *workload) *victim {
	v := &victim{job: j, born: d.window, newest: d.window, offset: j.offset}
	v.lastAnomaly = math.MinInt64 / 2
	// The first container of a job has no past that a second one would take over.
	v.restarted = j.containers > 0 || j.history.line.N > 0
	if !v.restarted {
		v.born -= unjudged
	}
	j.containers++
	for i := range v.residuals {
		v.residuals[i] = nan32
	}
	return v
}

// Forget says that a container ended. Its job stays a suspect for what it did.
func (d *Detector) Forget(id string) {
	ref, ok := d.byID[id]
	if !ok {
		return
	}
	delete(d.byID, id)
	c := &d.all[ref]
	able, _ := c.MayBeCapped()
	c.suspect.drop(ref, !able)
	if c.victim != nil {
		c.victim.job.containers--
	}
	d.all[ref] = container{}
	d.free = append(d.free, ref)
}

// Release says that a container's job has a new version, which may need other CPIs: they
// become normal within minutes.
func (d *Detector) Release(ref Ref) {
	if c := d.slotOf(ref); c != nil && c.victim != nil {
		c.victim.born, c.victim.restarted, c.victim.released = d.window, true, true
	}
}

// Containers of a job that run.
func (d *Detector) Containers(job string) []Ref {
	if s := d.suspects[job]; s != nil {
		return s.refs
	}
	return nil
}

// Stage of the test of a suspect for a victim's job; empty: there was none.
func (d *Detector) Stage(victim *cpi.Container, suspect string) Stage {
	if p := d.pairs[PairKey{JobOf(victim), victim.Platform, suspect}]; p != nil {
		return p.stage
	}
	return ""
}

// Test is what is known of a test.
type Test struct {
	Victim *cpi.Container // nil: none of the job runs
	Stage  Stage
	E      float64
	Arms   [2]Arm  // left alone, throttled
	Harm   float64 // minutes that it was charged for, and that were not refunded
	Witness
}

// TestOf a pair.
func (d *Detector) TestOf(key PairKey) Test {
	p := d.pairs[key]
	if p == nil {
		return Test{}
	}
	return Test{Victim: d.protected(p), Stage: p.stage, E: p.proc.e(d.bank), Arms: p.told(), Harm: p.spent,
		Witness: d.witnessOf(p)}
}

// Container returns the newest view of a container.
func (d *Detector) Container(ref Ref) *cpi.Container { return d.all[ref].Container }

// protected is the container of the victim's job that a pair's test is for; nil: it has
// ended.
func (d *Detector) protected(p *pair) *cpi.Container {
	if c := d.slotOf(p.victim); c != nil && c.victim != nil && c.victim.job.key() == p.workload() {
		return c.Container
	}
	return nil
}

func (d *Detector) slotOf(ref Ref) *container {
	if ref < 0 || int(ref) >= len(d.all) || d.all[ref].Container == nil {
		return nil
	}
	return &d.all[ref]
}

// Counters returns the totals so far.
func (d *Detector) Counters() Counters { return d.counts }

func (d *Detector) emit(e Event) {
	e.At = d.now
	d.work.events = append(d.work.events, e)
}

func (d *Detector) clear() {
	d.work.events, d.work.throttles = d.work.events[:0], d.work.throttles[:0]
	d.work.ranked = d.work.ranked[:0]
}

// Observe takes the samples of a window that ends now. now must not go backwards. The
// events are valid until the next call. After it, the coins of Trials are to be thrown.
func (d *Detector) Observe(now time.Time, samples []Sample) []Event {
	return d.ObserveAfter(d.steps(now), now, samples)
}

// ObserveAfter is Observe where the windows lie anywhere in their intervals, so that the
// time alone does not say how many intervals have begun since the last one; at least 1.
func (d *Detector) ObserveAfter(steps int64, now time.Time, samples []Sample) []Event {
	steps = max(steps, 1)
	d.window += steps
	if d.bank.span == 1 {
		d.tick += steps
	}
	d.open(now, samples)
	d.observed = d.now
	for _, s := range d.listed {
		s.close(d.window)
	}
	d.judge(samples)
	d.observe()
	d.heat()
	d.analyse()
	for _, p := range d.order {
		if p.stage == Testing || p.stage == Verdict {
			d.enlist(p)
		}
	}
	d.begin()
	return d.work.events
}

// Between takes the samples of a window that lies between two of Observe, while ShortWindows says
// that there are such. What is normal, who is in an anomaly and whom to test next do not
// depend on them: they are the tests' alone. The events are valid until the next call. After
// it, the coins of Trials are to be thrown.
func (d *Detector) Between(now time.Time, samples []Sample) []Event {
	d.open(now, samples)
	for i := range samples {
		s := &samples[i]
		if c := d.slotOf(s.Ref); c != nil && c.victim != nil && s.valid() {
			c.victim.glance(d.tick, d.window, s.Usage, s.CPI)
		}
	}
	d.observe()
	d.heat()
	d.begin()
	return d.work.events
}

// ShortWindows says that a test is under way: the next windows are to follow one another, each
// as long as Config.Window, those of Between as well as those of Observe.
func (d *Detector) ShortWindows() bool { return d.short }

// open a window that ends now.
func (d *Detector) open(now time.Time, samples []Sample) {
	d.clear()
	d.work.learned = d.work.learned[:0]
	if d.bank.span > 1 {
		d.tick += max(int64(math.Round(float64(now.Sub(d.now))/float64(d.cfg.Window))), 1)
	}
	if now.After(d.now) {
		d.now = now
	}
	for _, s := range d.listed {
		s.round = round{}
	}
	for i := range samples {
		d.add(&samples[i])
	}
}

// steps are the windows that have passed by the time.
func (d *Detector) steps(now time.Time) int64 {
	if d.observed.IsZero() {
		return 1
	}
	return int64(math.Round(float64(now.Sub(d.observed)) / float64(d.cfg.Period)))
}

// valid says that a sample can be: no program needs ten thousand cycles for an
// instruction over a window.
func (s *Sample) valid() bool {
	return s.Usage >= 0 && s.Usage < 1<<16 && (s.CPI == 0 || s.CPI >= 1e-3 && s.CPI <= 1e4)
}

func (d *Detector) add(s *Sample) {
	c := d.slotOf(s.Ref)
	if c == nil || !s.valid() {
		d.counts.Dropped++
		return
	}
	d.counts.Samples++
	c.suspect.seen = d.window
	c.suspect.take(s.Usage, s.CPI, float64(d.depth(c))/1000)
}

// judge the victims, once what their suspects did is known.
func (d *Detector) judge(samples []Sample) {
	for i := range samples {
		s := &samples[i]
		c := d.slotOf(s.Ref)
		if c == nil || c.victim == nil || !s.valid() {
			continue
		}
		v := c.victim
		v.job.seen = d.window
		if v.job.history.line.N == 0 {
			d.counts.Unjudged++
		}
		known := v.job.history.line.N > 0
		j := v.judge(d.window, s.Usage, s.CPI, &d.work)
		v.glanced = glanced{d.tick, j.residual}
		if l := &v.job.history.line; l.N > 0 && !known || v.rebased == d.window {
			d.emit(Event{Kind: LineEvent, Victim: c.Container, CPI: s.CPI, Threshold: math.Exp(l.C + v.offset + l.Thr),
				Normal: Normal{math.Exp(l.C + v.offset), l.SD, l.N}})
		}
		if !j.outlier {
			continue
		}
		d.counts.Outliers++
		d.emit(Event{Kind: OutlierEvent, Victim: c.Container, CPI: s.CPI, Threshold: j.threshold})
		if j.anomaly {
			d.counts.Anomalies++
			d.emit(Event{Kind: AnomalyEvent, Victim: c.Container, CPI: s.CPI, Threshold: j.threshold})
			if !v.queued {
				v.queued = true
				d.work.anomalous = append(d.work.anomalous, s.Ref)
			}
		}
	}
}

// heat tells each victim's job how far its tests are.
func (d *Detector) heat() {
	for _, p := range d.order {
		if j := d.jobs[p.workload()]; j != nil {
			j.hot = 0
		}
	}
	for _, p := range d.order {
		if j := d.jobs[p.workload()]; j != nil && (p.stage == Testing || p.stage == Verdict) {
			j.hot = max(j.hot, p.proc.e(d.bank))
		}
	}
}

func (d *Detector) suspectOf(name string) *suspect {
	s := d.suspects[name]
	if s == nil {
		if len(d.suspects) >= d.cfg.MaxJobs {
			d.dropSuspect()
		}
		s = &suspect{name: name, newest: d.window, seen: d.window}
		d.suspects[name] = s
		at, _ := slices.BinarySearchFunc(d.listed, name, func(s *suspect, name string) int {
			return compare(s.name, name)
		})
		d.listed = slices.Insert(d.listed, at, s)
	}
	return s
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// dropSuspect forgets the job that was not seen for longest and has no containers. Its
// evidence is the pairs'.
func (d *Detector) dropSuspect() {
	oldest := -1
	for i, s := range d.listed {
		if len(s.refs) == 0 && (oldest < 0 || s.seen < d.listed[oldest].seen) {
			oldest = i
		}
	}
	if oldest >= 0 {
		delete(d.suspects, d.listed[oldest].name)
		d.listed = slices.Delete(d.listed, oldest, oldest+1)
	}
}

func (d *Detector) workloadOf(name, platform string) *workload {
	key := workloadKey{name, platform}
	j := d.jobs[key]
	if j == nil {
		if len(d.jobs) >= d.cfg.MaxJobs {
			d.dropWorkload()
		}
		j = &workload{name: name, platform: platform, seen: d.window}
		d.jobs[key] = j
	}
	return j
}

func (d *Detector) dropWorkload() {
	var oldest *workload
	for _, j := range d.jobs {
		if j.containers == 0 && (oldest == nil || j.seen < oldest.seen ||
			j.seen == oldest.seen && j.name+"\x00"+j.platform < oldest.name+"\x00"+oldest.platform) {
			oldest = j
		}
	}
	if oldest != nil {
		delete(d.jobs, oldest.key())
	}
}

// SetSpec gives what is normal for a job from elsewhere. With GivenSpecs it alone holds,
// else until the job has a history of its own.
func (d *Detector) SetSpec(job, platform string, mean, stddev float64) error {
	if !(mean >= 1e-3 && mean <= 1e3) || !(stddev >= 0 && stddev <= 3*mean) {
		return fmt.Errorf("spec of job %q: mean %v and deviation %v; the mean must lie between 0.001 and 1000, the "+
			"deviation between 0 and three times the mean", job, mean, stddev)
	}
	j := d.workloadOf(job, platform)
	if j.spec = d.cfg.GivenSpecs; j.spec || j.history.line.N == 0 {
		j.history.line = given(mean, stddev)
	}
	return nil
}
