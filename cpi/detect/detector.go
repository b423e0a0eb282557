package detect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Kind of an event.
type Kind string

const (
	SpecEvent     Kind = "spec"     // a job's spec was made or updated
	OutlierEvent  Kind = "outlier"  // one sample above the threshold
	AnomalyEvent  Kind = "anomaly"  // with it, the outliers in the window are enough for an anomaly
	AnalysisEvent Kind = "analysis" // which suspect is to blame, and what follows
	CommandEvent  Kind = "command"  // an action to execute
	OutcomeEvent  Kind = "outcome"  // whether an action helped its victim
)

// Event is a finding or a command of the detector. Its pointers are valid until the
// next call.
type Event struct {
	Kind      Kind
	At        time.Time
	Victim    *cpi.Container
	CPI       float64
	Threshold float64
	Spec      *Spec
	Normal    Normal // of an analysis: the basis of Threshold
	Verdict   *Verdict
	Command   *Command
	Outcome   *Outcome
}

// Counters are totals for metrics.
type Counters struct {
	Samples, Outliers, Anomalies, Analyses, Commands uint64
	// Crowded counts queued anomalies that a newer one of the same victim replaced.
	Crowded uint64
	// Unspecified counts samples of jobs without a spec.
	Unspecified uint64
	// Refused counts implausible specs of the cluster.
	Refused uint64
	// ClockSteps counts how often the clock went backwards, which clears all windows.
	ClockSteps uint64
	// Dropped counts dropped samples by reason.
	Dropped map[string]uint64
}

type container struct {
	*cpi.Container // the newest view
	live           bool
	gone           int64 // when it ended; 0: it is running
	born           int64
	job            *job
	learned        int // samples that count towards MinTaskSamples
	window         ring
	bad            int64 // start of the anomaly in progress; 0: none
	lastAnomaly    int64 // time of the last anomaly
	queued         bool
	capped         int     // caps in force
	caps           []int64 // start of each recent cap
	evictionAsked  int64   // last request for its eviction
	refused        int64   // when a cap of it was last refused; 0: never
	refusal        string  // why
	moveRefused    int64   // when a move for it was last refused
	threads        int32
}

type queuedAnomaly struct {
	victim Ref
	at     int64
	excess float64
}

type jobKey struct{ name, platform string }

// table holds the containers; a Ref is an index of all.
type table struct {
	all   []container
	free  []Ref
	byID  map[string]Ref
	ended int // containers that have ended but are still suspects
}

// Detector is the whole state machine. It is not safe for concurrent use.
type Detector struct {
	cfg Config
	table
	jobs     map[jobKey]*job
	pairs    pairs
	actions  []action
	queue    []queuedAnomaly
	due      []*job
	started  bool
	now      int64
	analysed int64 // time of the last analysis
	counts   Counters
	dropped  [dropReasons]uint64
	events   []Event
	learned  []Learned
	work     workspace
}

// New makes a detector that has learned nothing yet.
func New(cfg Config) (*Detector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Detector{cfg: cfg, table: table{byID: map[string]Ref{}}, jobs: map[jobKey]*job{},
		pairs: pairs{known: map[PairKey]*Pair{}}, analysed: math.MinInt64 / 2}, nil
}

// Put adds or updates a container. It keeps c, which must not change any more. A
// restarted container needs a Forget first, or a new ID.
func (d *Detector) Put(now time.Time, c *cpi.Container) (Ref, error) {
	if ref, ok := d.byID[c.ID]; ok {
		old := &d.all[ref]
		if old.Job != c.Job || old.Platform != c.Platform {
			d.leaveJob(old)
			old.job, old.learned = d.jobOf(c.Job, c.Platform), 0
			old.job.containers++
		}
		old.Container = c
		return ref, nil
	}
	ref, err := d.slot()
	if err != nil {
		return 0, fmt.Errorf("container %s: %w", c.ID, err)
	}
	n := &d.all[ref]
	entries := n.window.entries
	if entries == nil {
		entries = make([]entry, d.cfg.ringSize())
	}
	*n = container{Container: c, live: true, born: now.UnixNano(), job: d.jobOf(c.Job, c.Platform),
		window: ring{entries: entries}}
	n.job.containers++
	d.byID[c.ID] = ref
	return ref, nil
}

// slot returns a free slot. If there is none it reuses that of the container that ended
// first.
func (d *Detector) slot() (Ref, error) {
	if len(d.free) == 0 && len(d.all) >= d.cfg.MaxContainers {
		oldest := Ref(-1)
		for i := range d.all {
			if c := &d.all[i]; c.live && c.gone > 0 && (oldest < 0 || c.gone < d.all[oldest].gone) {
				oldest = Ref(i)
			}
		}
		if oldest < 0 {
			return 0, fmt.Errorf("%d containers are followed already, the maximum", len(d.all))
		}
		d.release(oldest)
	}
	if n := len(d.free); n > 0 {
		ref := d.free[n-1]
		d.free = d.free[:n-1]
		return ref, nil
	}
	d.all = append(d.all, container{Container: new(cpi.Container)})
	return Ref(len(d.all) - 1), nil
}

// Forget says that a container ended. It stays a suspect as long as it is in a victim's
// window, but is not acted on any more.
func (d *Detector) Forget(now time.Time, id string) []Event {
	d.clear()
	ref, ok := d.byID[id]
	if !ok {
		return nil
	}
	delete(d.byID, id)
	c := &d.all[ref]
	c.gone = max(now.UnixNano(), 1)
	d.leaveJob(c)
	d.ended++
	d.queue = slices.DeleteFunc(d.queue, func(w queuedAnomaly) bool { return w.victim == ref })
	c.queued = false
	d.abandon(now.UnixNano(), ref)
	return d.events
}

// leaveJob removes a container from its job's counts.
func (d *Detector) leaveJob(c *container) {
	c.job.containers--
	if c.learned >= d.cfg.MinTaskSamples {
		c.job.eligible--
	}
}

// release frees the slot of a container that has ended.
func (d *Detector) release(ref Ref) {
	entries := d.all[ref].window.entries
	d.all[ref] = container{Container: new(cpi.Container), window: ring{entries: entries}}
	d.ended--
	d.free = append(d.free, ref)
}

func (d *Detector) jobOf(name, platform string) *job {
	key := jobKey{name, platform}
	j := d.jobs[key]
	if j == nil {
		if len(d.jobs) >= d.cfg.MaxJobs {
			d.dropJob()
		}
		j = &job{jobKey: key}
		d.jobs[key] = j
	}
	return j
}

// dropJob forgets the least recently seen job without containers. Jobs with containers
// are bounded by the number of containers.
func (d *Detector) dropJob() {
	var oldest *job
	for _, j := range d.jobs {
		if j.containers == 0 && (oldest == nil || j.seen < oldest.seen || j.seen == oldest.seen && j.before(oldest)) {
			oldest = j
		}
	}
	if oldest != nil {
		delete(d.jobs, oldest.jobKey)
		d.due = slices.DeleteFunc(d.due, func(j *job) bool { return j == oldest })
	}
}

func (j *job) before(o *job) bool {
	return cmp.Or(cmp.Compare(j.name, o.name), cmp.Compare(j.platform, o.platform)) < 0
}

// SetSpec sets the cluster's spec of a job, valid until a time. The job's next spec
// merges it with what was learned here. A job without a spec uses it at once.
func (d *Detector) SetSpec(now time.Time, s Spec, until time.Time) error {
	err := s.checkForeign(&d.cfg)
	j := d.jobs[jobKey{s.Job, s.Platform}]
	if err == nil && j != nil {
		err = j.implausible(&s)
	}
	if err != nil {
		d.counts.Refused++
		if j != nil {
			j.dropContradicted()
		}
		return err
	}
	if j == nil {
		j = d.jobOf(s.Job, s.Platform)
		j.seen = now.UnixNano()
	}
	j.foreign, j.foreignUntil = &s, until.UnixNano()
	j.dropContradicted()
	if !j.usable {
		j.respec(now.UnixNano(), &d.cfg)
	}
	return nil
}

// SpecOf returns the spec in use for a job.
func (d *Detector) SpecOf(name, platform string) (Spec, bool) {
	j := d.jobs[jobKey{name, platform}]
	if j == nil || !j.usable {
		return Spec{}, false
	}
	return j.spec, true
}

// WhyNoSpec says what a job lacks for a spec; empty if it has one.
func (d *Detector) WhyNoSpec(name, platform string) string {
	j := d.jobs[jobKey{name, platform}]
	switch {
	case j == nil:
		return "no container of this job was seen"
	case j.usable:
		return ""
	case j.tasks < d.cfg.MinTasks:
		return fmt.Sprintf("%d tasks have %d samples each; %d are needed", j.tasks, d.cfg.MinTaskSamples,
			d.cfg.MinTasks)
	}
	return fmt.Sprintf("%.0f samples; %d are needed", j.all.n, d.cfg.MinTasks*d.cfg.MinTaskSamples)
}

// Container returns the newest view of a container.
func (d *Detector) Container(ref Ref) *cpi.Container { return d.all[ref].Container }

// Counters returns the totals so far.
func (d *Detector) Counters() Counters {
	c := d.counts
	c.Dropped = map[string]uint64{}
	for i, n := range d.dropped {
		if i > 0 {
			c.Dropped[dropLabels[i]] = n
		}
	}
	return c
}

// Observe takes the samples of a round. now must not go backwards. now and the samples'
// times are of one clock that counts through suspension. The events are valid until the
// next call.
func (d *Detector) Observe(now time.Time, samples []Sample) []Event {
	d.begin(now)
	d.learned = d.learned[:0]
	for i := range samples {
		d.add(&samples[i])
	}
	d.expire()
	d.respec()
	d.judge()
	d.analyseNext()
	return d.events
}

// Tick does what is due without new samples.
func (d *Detector) Tick(now time.Time) []Event {
	d.begin(now)
	d.expire()
	d.analyseNext()
	return d.events
}

// Next returns when Tick is due; ok is false if nothing is pending.
func (d *Detector) Next() (at time.Time, ok bool) {
	next := int64(math.MaxInt64)
	if len(d.queue) > 0 {
		next = d.analysed + int64(d.cfg.AnalysisPause)
	}
	for i := range d.actions {
		next = min(next, d.actions[i].until)
	}
	if next == math.MaxInt64 {
		return time.Time{}, false
	}
	return time.Unix(0, max(next, d.now)).UTC(), true
}

// clear resets the events of the previous call.
func (d *Detector) clear() {
	d.events = d.events[:0]
	d.work.verdicts = d.work.verdicts[:0]
	d.work.outcomes = d.work.outcomes[:0]
	d.work.commands = d.work.commands[:0]
}

func (d *Detector) begin(now time.Time) {
	d.clear()
	t := now.UnixNano()
	if d.started && t < d.now-int64(d.cfg.Period) {
		d.restartClock(t)
	}
	d.started = true
	d.now = max(t, d.now)
	d.purge()
}

// restartClock handles a clock that went back: windows cannot be trusted and are
// cleared, and all actions end now.
func (d *Detector) restartClock(t int64) {
	d.counts.ClockSteps++
	for i := range d.all {
		c := &d.all[i]
		c.window.n, c.window.head, c.bad, c.lastAnomaly, c.queued = 0, 0, 0, 0, false
		c.born, c.gone = min(c.born, t), min(c.gone, t)
		c.caps, c.evictionAsked, c.refused, c.moveRefused = nil, 0, 0, 0
	}
	d.queue = d.queue[:0]
	for i := range d.actions {
		d.actions[i].until = min(d.actions[i].until, t)
	}
	d.pairs.forgetTimes()
	for _, j := range d.jobs {
		j.published = min(j.published, t)
		j.day = min(j.day, t/int64(24*time.Hour))
	}
	d.analysed = min(d.analysed, t)
	d.now = t
}

// purge releases ended containers that have left every window.
func (d *Detector) purge() {
	if d.ended == 0 {
		return
	}
	for i := range d.all {
		if c := &d.all[i]; c.live && c.gone > 0 && d.now-c.gone > int64(d.cfg.History) {
			d.release(Ref(i))
		}
	}
}

func (d *Detector) drop(why dropReason) { d.dropped[why]++ }

// maxCPI, minCPI and maxUsage bound a sample in Contrast mode: no program needs ten
// thousand cycles for an instruction over ten seconds.
const (
	maxCPI   = 1e4
	minCPI   = 1e-3
	maxUsage = 1 << 16
)

func (s *Sample) absurd(m Mode) bool {
	if !(s.Usage >= 0) || math.IsInf(s.Usage, 0) || !(s.CPI >= 0) || math.IsInf(s.CPI, 0) {
		return true
	}
	if !(s.Counted >= 0 && s.Counted <= 1) {
		return true
	}
	return m != Classic && (s.Usage > maxUsage || s.CPI > maxCPI || s.CPI > 0 && s.CPI < minCPI)
}

// add stores a sample and checks whether it is an outlier.
func (d *Detector) add(s *Sample) {
	if int(s.Ref) >= len(d.all) || s.Ref < 0 || !d.all[s.Ref].live {
		d.drop(dropUnknown)
		return
	}
	at := s.At.UnixNano()
	switch {
	case at > d.now+int64(d.cfg.Period):
		d.drop(dropFuture)
		return
	case s.absurd(d.cfg.Mode):
		d.drop(dropAbsurd)
		return
	}
	c := &d.all[s.Ref]
	e, why := c.window.put(entry{at: at, usage: s.Usage, cpi: s.CPI, misses: float32(s.Misses)})
	if e == nil {
		d.drop(why)
		return
	}
	d.counts.Samples++
	if s.Threads > 0 && at == c.window.newest().at {
		c.threads = s.Threads
	}
	if s.CPI == 0 || s.Usage < d.cfg.MinUsage {
		return
	}
	d.verify(s.Ref, e)
	j := c.job
	j.seen = max(j.seen, at)
	band := BandOf(s.Usage, d.cfg.MinUsage)
	anomalous := false
	if !j.usable {
		d.counts.Unspecified++
	} else if t := j.thresholdOf(d.cfg.Mode, band, s.Counted); s.CPI > t {
		e.outlier = true
		anomalous = d.outlier(s, c, t)
	} else if c.bad != 0 {
		anomalous = d.outliersOf(c) >= d.cfg.Outliers
	}
	if !anomalous {
		c.bad = 0
	}
	normal := d.normal(c, s, anomalous)
	if normal {
		d.learned = append(d.learned, Learned{Job: j.name, Platform: j.platform, Band: band, Usage: s.Usage,
			CPI: clampCPI(s.CPI)})
	}
	switch {
	case d.cfg.GivenSpecs:
	case normal, d.cfg.Mode == Classic:
		d.learn(c, s, at, band)
	}
}

// normal says whether a sample may shape its job's spec: in Contrast mode here, in both
// modes for the cluster. Interference must not become normal, but a job that has
// differed for an hour without a break has changed.
func (d *Detector) normal(c *container, s *Sample, anomalous bool) bool {
	return c.capped == 0 && !s.Capped && (!anomalous || s.At.UnixNano()-c.bad > int64(d.cfg.History))
}

func (d *Detector) learn(c *container, s *Sample, at int64, band int) {
	j := c.job
	j.age(at/int64(24*time.Hour), d.cfg.AgeWeight)
	cpi := s.CPI
	if d.cfg.Mode == Contrast {
		cpi = clampCPI(cpi)
	}
	j.learn(s.Usage, cpi, band)
	if c.learned < d.cfg.MinTaskSamples {
		if c.learned++; c.learned == d.cfg.MinTaskSamples {
			j.tasks++
			j.eligible++
		}
	}
	if !j.due && (at-j.published >= int64(d.cfg.RespecEvery) || !j.usable) && (j.tasks >= d.cfg.MinTasks ||
		j.foreign != nil || j.source == FromCluster) {
		j.due = true
		d.due = append(d.due, j)
	}
}

// respec updates the specs that are due, after the round's samples, so that the order
// of samples does not matter.
func (d *Detector) respec() {
	slices.SortFunc(d.due, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.platform, b.platform))
	})
	for _, j := range d.due {
		if j.respec(d.now, &d.cfg) {
			d.events = append(d.events, Event{Kind: SpecEvent, At: stamp(d.now), Spec: &j.spec,
				Threshold: j.threshold(d.cfg.Mode, BandOf(j.spec.UsageMean, d.cfg.MinUsage))})
		}
	}
	d.due = d.due[:0]
}

func stamp(t int64) time.Time { return time.Unix(0, t).UTC() }
