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
	SpecEvent     Kind = "spec"     // a job's spec was made or made anew
	OutlierEvent  Kind = "outlier"  // one sample above the threshold
	AnomalyEvent  Kind = "anomaly"  // one more, and it was often enough
	AnalysisEvent Kind = "analysis" // who is to blame, and what follows
	CommandEvent  Kind = "command"  // what is to be done now
	OutcomeEvent  Kind = "outcome"  // whether a cap or a move helped its victim
)

// Event is something that the detector found or wants. What it points to is
// valid until the next call.
type Event struct {
	Kind      Kind
	At        time.Time
	Victim    *cpi.Container
	CPI       float64
	Threshold float64
	Spec      *Spec
	Normal    Normal // of an analysis: what Threshold is measured from
	Verdict   *Verdict
	Command   *Command
	Outcome   *Outcome
}

// Counters of what happened, for metrics.
type Counters struct {
	Samples, Outliers, Anomalies, Analyses, Commands uint64
	// Crowded anomalies were overtaken by a newer one of the same victim while
	// they waited for their analysis.
	Crowded uint64
	// Unspecified samples had no spec to be judged by.
	Unspecified uint64
	// Refused are specs of others that could not be believed.
	Refused uint64
	// ClockSteps are times that the clock went backwards; all windows began anew.
	ClockSteps uint64
	// Dropped samples by reason.
	Dropped map[string]uint64
}

type container struct {
	*cpi.Container // the newest
	live           bool
	gone           int64 // when it ended; 0: it runs
	born           int64
	job            *job
	learned        int // samples for the job's eligibility
	window         ring
	bad            int64 // since when the victim is in an anomaly without a break; 0: it is not
	worst          int64 // time of its last anomaly
	queued         bool
	capped         int     // actions that hold it
	caps           []int64 // when the last of them began
	wished         int64   // when its eviction was last wished
	refused        int64   // when a cap of it was last not carried out; 0: never
	refusal        string  // why
	unmoved        int64   // when the pool last could not be moved for it
	threads        int32
}

type waiting struct {
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
	ended int // containers that ended and are still suspects
}

// Detector is the whole machine. It is not safe for concurrent use.
type Detector struct {
	cfg Config
	table
	jobs     map[jobKey]*job
	pairs    pairs
	actions  []action
	queue    []waiting
	due      []*job
	started  bool
	now      int64
	analysed int64 // when the last analysis was
	counts   Counters
	dropped  [dropReasons]uint64
	events   []Event
	learned  []Learned
	work     workspace
}

// New makes a detector that knows nothing yet.
func New(cfg Config) (*Detector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Detector{cfg: cfg, table: table{byID: map[string]Ref{}}, jobs: map[jobKey]*job{},
		pairs: pairs{known: map[PairKey]*Pair{}}, analysed: math.MinInt64 / 2}, nil
}

// Put says that a container runs, or that something about it changed. It keeps the
// view, which nothing may change any more. A container that restarted comes after its
// Forget, or under a new ID.
func (d *Detector) Put(now time.Time, c *cpi.Container) (Ref, error) {
	if ref, ok := d.byID[c.ID]; ok {
		old := &d.all[ref]
		if old.Job != c.Job || old.Platform != c.Platform {
			d.leaves(old)
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

// slot is a free place, that of the container that ended first if need be.
func (d *Detector) slot() (Ref, error) {
	if len(d.free) == 0 && len(d.all) >= d.cfg.MaxContainers {
		oldest := Ref(-1)
		for i := range d.all {
			if c := &d.all[i]; c.live && c.gone > 0 && (oldest < 0 || c.gone < d.all[oldest].gone) {
				oldest = Ref(i)
			}
		}
		if oldest < 0 {
			return 0, fmt.Errorf("%d containers are watched already, as many as may be", len(d.all))
		}
		d.bury(oldest)
	}
	if n := len(d.free); n > 0 {
		ref := d.free[n-1]
		d.free = d.free[:n-1]
		return ref, nil
	}
	d.all = append(d.all, container{Container: new(cpi.Container)})
	return Ref(len(d.all) - 1), nil
}

// Forget says that a container ended. It stays a suspect for what it did as long
// as that is in a victim's window, but nothing is done about it any more.
func (d *Detector) Forget(now time.Time, id string) []Event {
	d.clear()
	ref, ok := d.byID[id]
	if !ok {
		return nil
	}
	delete(d.byID, id)
	c := &d.all[ref]
	c.gone = max(now.UnixNano(), 1)
	d.leaves(c)
	d.ended++
	d.queue = slices.DeleteFunc(d.queue, func(w waiting) bool { return w.victim == ref })
	c.queued = false
	d.abandon(now.UnixNano(), ref)
	return d.events
}

// leaves takes a container out of its job's counts.
func (d *Detector) leaves(c *container) {
	c.job.containers--
	if c.learned >= d.cfg.MinTaskSamples {
		c.job.eligible--
	}
}

// bury frees the place of a container that ended.
func (d *Detector) bury(ref Ref) {
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

// dropJob forgets the job that nobody belongs to and that was seen least
// recently. Where every job has containers there are no more of them than of
// containers, which are bounded.
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

// SetSpec takes what the cluster knows of a job, good until a time. It is merged
// with what was learned here when the job's next spec is made; a job without any
// spec gets it now.
func (d *Detector) SetSpec(now time.Time, s Spec, until time.Time) error {
	err := s.checkForeign(&d.cfg)
	j := d.jobs[jobKey{s.Job, s.Platform}]
	if err == nil && j != nil {
		err = j.implausible(&s)
	}
	if err != nil {
		d.counts.Refused++
		if j != nil {
			j.doubt()
		}
		return err
	}
	if j == nil {
		j = d.jobOf(s.Job, s.Platform)
		j.seen = now.UnixNano()
	}
	j.foreign, j.foreignTill = &s, until.UnixNano()
	j.doubt()
	if !j.usable {
		j.respec(now.UnixNano(), &d.cfg)
	}
	return nil
}

// SpecOf is the spec in use for a job.
func (d *Detector) SpecOf(name, platform string) (Spec, bool) {
	j := d.jobs[jobKey{name, platform}]
	if j == nil || !j.usable {
		return Spec{}, false
	}
	return j.spec, true
}

// WhyNoSpec says what a job lacks for a spec; empty where it has one.
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

// Container that a Ref stands for, as it was put last.
func (d *Detector) Container(ref Ref) *cpi.Container { return d.all[ref].Container }

// Counters so far.
func (d *Detector) Counters() Counters {
	c := d.counts
	c.Dropped = map[string]uint64{}
	for i, n := range d.dropped {
		if i > 0 {
			c.Dropped[dropWords[i]] = n
		}
	}
	return c
}

// Observe takes the samples of a round. now must not go backwards; it and the
// samples' times come from one clock that counts through suspension. The events
// are valid until the next call.
func (d *Detector) Observe(now time.Time, samples []Sample) []Event {
	d.begin(now)
	d.learned = d.learned[:0]
	for i := range samples {
		d.add(&samples[i])
	}
	d.expire()
	d.respec()
	d.judge()
	d.analyse()
	return d.events
}

// Tick does what has become due without new samples.
func (d *Detector) Tick(now time.Time) []Event {
	d.begin(now)
	d.expire()
	d.analyse()
	return d.events
}

// Next is when Tick has something to do; ok is false where it has nothing.
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

// clear makes room for the events of this call.
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
		d.stepBack(t)
	}
	d.started = true
	d.now = max(t, d.now)
	d.purge()
}

// stepBack begins anew after a clock that went back: no window can be trusted,
// and what was to be undone later is undone now.
func (d *Detector) stepBack(t int64) {
	d.counts.ClockSteps++
	for i := range d.all {
		c := &d.all[i]
		c.window.n, c.window.head, c.bad, c.worst, c.queued = 0, 0, 0, 0, false
		c.born, c.gone = min(c.born, t), min(c.gone, t)
		c.caps, c.wished, c.refused, c.unmoved = nil, 0, 0, 0
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

// purge forgets containers whose end no window reaches any more.
func (d *Detector) purge() {
	if d.ended == 0 {
		return
	}
	for i := range d.all {
		if c := &d.all[i]; c.live && c.gone > 0 && d.now-c.gone > int64(d.cfg.History) {
			d.bury(Ref(i))
		}
	}
}

func (d *Detector) drop(why dropReason) { d.dropped[why]++ }

// maxCPI and maxUsage bound what a sample may say in Default mode: no program
// needs ten thousand cycles for an instruction over ten seconds.
const (
	maxCPI   = 1e4
	minCPI   = 1e-3
	maxUsage = 1 << 16
)

func (s *Sample) absurd(m Mode) bool {
	if !(s.Usage >= 0) || math.IsInf(s.Usage, 0) || !(s.CPI >= 0) || math.IsInf(s.CPI, 0) {
		return true
	}
	return m != Classic && (s.Usage > maxUsage || s.CPI > maxCPI || s.CPI > 0 && s.CPI < minCPI)
}

// add puts a sample into its window and judges whether it is an outlier.
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
	} else if t := j.threshold(d.cfg.Mode, band); s.CPI > t {
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
			CPI: believable(s.CPI)})
	}
	switch {
	case d.cfg.GivenSpecs:
	case normal, d.cfg.Mode == Classic:
		d.learn(c, s, at, band)
	}
}

// normal says whether a sample may shape what is normal for its job: in Default
// mode here, in both modes for the cluster. The interference that is looked for
// must not become what is normal; but a job that has been different for an hour on
// end has changed.
func (d *Detector) normal(c *container, s *Sample, anomalous bool) bool {
	return c.capped == 0 && !s.Capped && (!anomalous || s.At.UnixNano()-c.bad > int64(d.cfg.History))
}

func (d *Detector) learn(c *container, s *Sample, at int64, band int) {
	j := c.job
	j.age(at/int64(24*time.Hour), d.cfg.AgeWeight)
	cpi := s.CPI
	if d.cfg.Mode == Default {
		cpi = believable(cpi)
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

// respec makes the specs that are due, after the round's samples: which of them
// came first makes no difference.
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
