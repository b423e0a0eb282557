package replay

import (
	"math"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
)

// Line is one finding. Its fields depend on the event. Container is the victim,
// Antagonist the container that is blamed, capped or uncapped for it.
type Line struct {
	Time        float64   `json:"time"`
	Event       string    `json:"event"`
	Container   string    `json:"container,omitempty"`
	Job         string    `json:"job,omitempty"`
	Platform    string    `json:"platform,omitempty"`
	CPI         float64   `json:"cpi,omitempty"`
	Threshold   float64   `json:"threshold,omitempty"`
	Suspects    []Suspect `json:"suspects,omitempty"`
	Antagonist  string    `json:"antagonist,omitempty"`
	Antagonists []string  `json:"antagonists,omitempty"` // where there are several
	CapMilli    int64     `json:"capMilli,omitempty"`
	Until       float64   `json:"until,omitempty"`
	// of a spec, in the words of a file of specs
	Mean      float64           `json:"mean,omitempty"`
	StdDev    float64           `json:"stddev,omitempty"`
	UsageMean float64           `json:"usageMean,omitempty"`
	Samples   float64           `json:"samples,omitempty"`
	Tasks     int               `json:"tasks,omitempty"`
	Bands     []detect.BandSpec `json:"bands,omitempty"`
	Why       string            `json:"why,omitempty"`
}

// Suspect of an analysis.
type Suspect struct {
	Container   string    `json:"container"`
	Job         string    `json:"job"`
	Class       cpi.Class `json:"class"`
	Correlation float64   `json:"correlation"`
	// Only the detector by contrast sets these: the paper's score, how much more the
	// suspect ran while the victim was bad, and the probability that it is the
	// antagonist.
	Score      float64 `json:"score,omitempty"`
	Contrast   float64 `json:"contrast,omitempty"`
	Confidence float64 `json:"confidence,omitempty"`
	// Only the detector by experiment sets these: the log odds by which it chooses whom to
	// test, and the e-value of the test so far; 0: there was none.
	Prior  float64 `json:"prior,omitempty"`
	EValue float64 `json:"eValue,omitempty"`
}

// Summary ends a replay.
type Summary struct {
	Event     string            `json:"event"`
	Samples   uint64            `json:"samples"`
	Outliers  uint64            `json:"outliers"`
	Anomalies uint64            `json:"anomalies"`
	Analyses  uint64            `json:"analyses"`
	Caps      int               `json:"caps"`
	Probes    int               `json:"probes,omitempty"`
	Dropped   map[string]uint64 `json:"dropped,omitempty"`
}

// Options of a replay.
type Options struct {
	// Config of package detect's detector. Period replaces its Period; 0 uses the trace's.
	Config detect.Config
	// Experiment, where it is not nil, is the detector instead. Its coins are derived from
	// Seed, the pair and the window alone, so that later rows change no earlier coin.
	Experiment *experiment.Config
	Seed       uint64
	Period     time.Duration
	// Specs are the normal CPIs; nil lets the detector learn them.
	Specs []GivenSpec
	// Warn is called for what is skipped.
	Warn func(string)
}

// player is a replay in progress: a detector, and the lines of what it finds.
type player interface {
	// round takes the rows of one time, or of one window.
	round(now time.Time, rows []row) error
	// until lets what is due before a time happen.
	until(now time.Time) error
	summary() Summary
}

// Run plays a trace and emits the detector's findings in order of time. The line is
// valid until emit returns.
func Run(t *Trace, o Options, emit func(*Line) error) (Summary, error) {
	if o.Period == 0 {
		o.Period = periodOf(t, &o.Config)
	}
	p, near, err := newPlayer(t, o, emit)
	if err != nil {
		return Summary{}, err
	}
	if err := feed(p, t.rows, near); err != nil {
		return Summary{}, err
	}
	if n := len(t.rows); n > 0 {
		// Analyse the last rows; caps still end after the trace.
		if err := p.until(time.Unix(0, t.rows[n-1].at).Add(o.Period)); err != nil {
			return Summary{}, err
		}
	}
	return p.summary(), nil
}

// newPlayer makes the detector that the options name. Rows that are less than near apart
// belong together.
func newPlayer(t *Trace, o Options, emit func(*Line) error) (p player, near time.Duration, err error) {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	s := newSpecs(o)
	if o.Experiment != nil {
		p, err := newTrials(t, o, s, emit)
		if err != nil {
			return nil, 0, err
		}
		return p, p.near, nil
	}
	p, err = newWatcher(t, o, s, emit)
	return p, 1, err
}

// feed passes the rows that belong together to the player, in order of time.
func feed(p player, rows []row, near time.Duration) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].at < rows[0].at+int64(near) {
			n++
		}
		if err := p.round(time.Unix(0, rows[n-1].at), rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// periodOf is the trace's period, bounded by the windows.
func periodOf(t *Trace, c *detect.Config) time.Duration {
	if t.Period == 0 {
		return c.Period
	}
	return min(max(t.Period, c.Window/1000), c.OutlierWindow)
}

// watcher is package detect at work.
type watcher struct {
	d     *detect.Detector
	t     *Trace
	specs *specs
	refs  []detect.Ref // of the trace's containers; -1: not seen yet
	emit  func(*Line) error
	line  Line
	// memory of line's
	samples  []detect.Sample
	suspects []Suspect
	several  []string
	caps     int
}

func newWatcher(t *Trace, o Options, s *specs, emit func(*Line) error) (*watcher, error) {
	cfg := o.Config
	cfg.Enforce = true // the lines show what enforcement would do
	cfg.GivenSpecs = o.Specs != nil
	cfg.MaxContainers = max(cfg.MaxContainers, len(t.Containers))
	cfg.MaxJobs = max(cfg.MaxJobs, len(t.Containers))
	cfg.Period = o.Period
	d, err := detect.New(cfg)
	if err != nil {
		return nil, err
	}
	return &watcher{d: d, t: t, specs: s, emit: emit}, nil
}

func (p *watcher) summary() Summary {
	c := p.d.Counters()
	s := Summary{Event: "summary", Samples: c.Samples, Outliers: c.Outliers, Anomalies: c.Anomalies,
		Analyses: c.Analyses, Caps: p.caps}
	for why, n := range c.Dropped {
		if n > 0 {
			if s.Dropped == nil {
				s.Dropped = map[string]uint64{}
			}
			s.Dropped[why] = n
		}
	}
	return s
}

// refOf a container, which the detector hears of with its first row.
func (p *watcher) refOf(now time.Time, i int32) (detect.Ref, error) {
	for len(p.refs) <= int(i) {
		p.refs = append(p.refs, -1)
	}
	if p.refs[i] >= 0 {
		return p.refs[i], nil
	}
	c := &p.t.Containers[i]
	p.specs.set(c, func(s detect.Spec) error {
		return p.d.SetSpec(now, s, time.Unix(math.MaxInt64/int64(time.Second), 0))
	})
	ref, err := p.d.Put(now, c)
	if err == nil {
		p.refs[i] = ref
	}
	return ref, err
}

// round passes the rows of a time together to the detector.
func (p *watcher) round(now time.Time, rows []row) error {
	if err := p.until(now); err != nil {
		return err
	}
	p.samples = p.samples[:0]
	for i := range rows {
		r := &rows[i]
		ref, err := p.refOf(now, r.container)
		if err != nil {
			return err
		}
		p.samples = append(p.samples, detect.Sample{Ref: ref, At: now, Usage: r.usage, CPI: r.cpi,
			Misses: r.misses()})
	}
	return p.emitAll(p.d.Observe(now, p.samples))
}

// until ticks the detector up to a time.
func (p *watcher) until(now time.Time) error {
	for {
		next, ok := p.d.Next()
		if !ok || !next.Before(now) {
			return nil
		}
		if err := p.emitAll(p.d.Tick(next)); err != nil {
			return err
		}
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()/1000) / 1e6 }

func (p *watcher) emitAll(events []detect.Event) error {
	for i := range events {
		if p.fill(&events[i]) {
			if err := p.emit(&p.line); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill converts an event to a line; false if it has none.
func (p *watcher) fill(e *detect.Event) bool {
	l := &p.line
	*l = Line{Time: seconds(e.At), Event: string(e.Kind), CPI: e.CPI, Threshold: e.Threshold}
	if e.Victim != nil {
		l.Container, l.Job, l.Platform = e.Victim.ID, e.Victim.Job, e.Victim.Platform
	}
	switch e.Kind {
	case detect.SpecEvent:
		s := e.Spec
		l.Job, l.Platform = s.Job, s.Platform
		l.Mean, l.StdDev, l.UsageMean, l.Samples, l.Tasks, l.Bands =
			s.Mean, s.StdDev, s.UsageMean, s.Samples, s.Tasks, s.Bands
	case detect.AnalysisEvent:
		l.Why = e.Verdict.Why
		p.suspects, p.several = p.suspects[:0], p.several[:0]
		for i := range e.Verdict.Suspects {
			p.suspects = append(p.suspects, p.suspect(&e.Verdict.Suspects[i]))
		}
		l.Suspects = p.suspects
		for i, ref := range e.Verdict.Antagonists {
			id := p.d.Container(ref).ID
			if i == 0 {
				l.Antagonist = id
			}
			p.several = append(p.several, id)
		}
		if len(p.several) > 1 {
			l.Antagonists = p.several
		}
	case detect.CommandEvent:
		c := e.Command
		l.Event, l.Why, l.Antagonist = string(c.Kind), c.Why, p.d.Container(c.Container).ID
		if c.Kind == detect.DoCap {
			p.caps++
			l.CapMilli, l.Until = c.Milli, seconds(c.Until)
		}
	case detect.OutcomeEvent:
		return false // the uncap line reports it
	case detect.OutlierEvent, detect.AnomalyEvent:
	}
	return true
}

func (p *watcher) suspect(s *detect.Suspect) Suspect {
	c := p.d.Container(s.Ref)
	out := Suspect{Container: c.ID, Job: c.Job, Class: c.Class, Correlation: s.Score}
	if s.Confidence > 0 {
		out.Score, out.Contrast, out.Confidence = s.Paper, s.Contrast, s.Confidence
	}
	return out
}
