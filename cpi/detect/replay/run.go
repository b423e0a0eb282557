package replay

import (
	"math"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
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
	// Only the default detector sets these: the paper's score, how much more the
	// suspect ran while the victim was bad, and the probability that it is the
	// antagonist.
	Score      float64 `json:"score,omitempty"`
	Contrast   float64 `json:"contrast,omitempty"`
	Confidence float64 `json:"confidence,omitempty"`
}

// Summary ends a replay.
type Summary struct {
	Event     string            `json:"event"`
	Samples   uint64            `json:"samples"`
	Outliers  uint64            `json:"outliers"`
	Anomalies uint64            `json:"anomalies"`
	Analyses  uint64            `json:"analyses"`
	Caps      int               `json:"caps"`
	Dropped   map[string]uint64 `json:"dropped,omitempty"`
}

// Options of a replay.
type Options struct {
	// Config of the detector. Period replaces its Period; 0 uses the trace's.
	Config detect.Config
	Period time.Duration
	// Specs are the normal CPIs; nil lets the detector learn them.
	Specs []GivenSpec
	// Warn is called for what is skipped.
	Warn func(string)
}

// GivenSpec is a line of a file of specs. Without a platform it holds for all; without
// samples or tasks it is trusted.
type GivenSpec struct {
	Job       string            `json:"job"`
	Platform  string            `json:"platform"`
	Mean      float64           `json:"mean"`
	StdDev    float64           `json:"stddev"`
	Samples   *float64          `json:"samples,omitempty"`
	Tasks     *int              `json:"tasks,omitempty"`
	UsageMean float64           `json:"usageMean,omitempty"`
	Bands     []detect.BandSpec `json:"bands,omitempty"`
}

// player is a replay in progress.
type player struct {
	d    *detect.Detector
	t    *Trace
	emit func(*Line) error
	line Line
	// memory of line's
	suspects []Suspect
	several  []string
	summary  Summary
	err      error
}

// Run plays a trace and emits the detector's findings in order of time. The line is
// valid until emit returns.
func Run(t *Trace, o Options, emit func(*Line) error) (Summary, error) {
	cfg := o.Config
	cfg.Enforce = true // the lines show what enforcement would do
	cfg.GivenSpecs = o.Specs != nil
	cfg.MaxContainers = max(cfg.MaxContainers, len(t.Containers))
	cfg.MaxJobs = max(cfg.MaxJobs, len(t.Containers))
	if cfg.Period = o.Period; cfg.Period == 0 {
		cfg.Period = periodOf(t, &o.Config)
	}
	d, err := detect.New(cfg)
	if err != nil {
		return Summary{}, err
	}
	p := &player{d: d, t: t, emit: emit}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	if len(t.rows) > 0 {
		p.setSpecs(o, time.Unix(0, t.rows[0].at))
	}
	if err := p.play(cfg.Period); err != nil {
		return Summary{}, err
	}
	c := d.Counters()
	p.summary.Event, p.summary.Samples, p.summary.Outliers = "summary", c.Samples, c.Outliers
	p.summary.Anomalies, p.summary.Analyses = c.Anomalies, c.Analyses
	for why, n := range c.Dropped {
		if n > 0 {
			if p.summary.Dropped == nil {
				p.summary.Dropped = map[string]uint64{}
			}
			p.summary.Dropped[why] = n
		}
	}
	return p.summary, nil
}

// periodOf is the trace's period, bounded by the windows.
func periodOf(t *Trace, c *detect.Config) time.Duration {
	if t.Period == 0 {
		return c.Period
	}
	return min(max(t.Period, c.Window/1000), c.OutlierWindow)
}

// setSpecs sets the spec of each job of the trace.
func (p *player) setSpecs(o Options, now time.Time) {
	type key struct{ job, platform string }
	given := map[key]*GivenSpec{}
	count := map[string]int{}
	for i := range o.Specs {
		s := &o.Specs[i]
		given[key{s.Job, s.Platform}] = s
		count[s.Job]++
	}
	done := map[key]bool{}
	for i := range p.t.Containers {
		c := &p.t.Containers[i]
		k := key{c.Job, c.Platform}
		if done[k] {
			continue
		}
		done[k] = true
		s := given[k]
		if s == nil {
			s = given[key{c.Job, ""}]
		}
		if s == nil && c.Platform == "" && count[c.Job] == 1 {
			for other, spec := range given {
				if other.job == c.Job {
					s = spec
				}
			}
		}
		if s == nil {
			continue
		}
		spec := detect.Spec{Job: c.Job, Platform: c.Platform, Mean: s.Mean, StdDev: s.StdDev, UsageMean: s.UsageMean,
			Bands: s.Bands}
		spec.Samples, spec.Tasks = float64(o.Config.MinTasks*o.Config.MinTaskSamples), o.Config.MinTasks
		if s.Samples != nil {
			spec.Samples = *s.Samples
		}
		if s.Tasks != nil {
			spec.Tasks = *s.Tasks
		}
		if err := p.d.SetSpec(now, spec, time.Unix(math.MaxInt64/int64(time.Second), 0)); err != nil {
			o.Warn(err.Error())
		}
	}
}

// play passes the rows of each time together to the detector.
func (p *player) play(period time.Duration) error {
	refs := make([]detect.Ref, len(p.t.Containers))
	for i := range refs {
		refs[i] = -1
	}
	var samples []detect.Sample
	rows := p.t.rows
	for len(rows) > 0 {
		at := rows[0].at
		now := time.Unix(0, at)
		p.until(now)
		samples = samples[:0]
		for len(rows) > 0 && rows[0].at == at {
			r := &rows[0]
			if refs[r.container] < 0 {
				ref, err := p.d.Put(now, &p.t.Containers[r.container])
				if err != nil {
					return err
				}
				refs[r.container] = ref
			}
			samples = append(samples, detect.Sample{Ref: refs[r.container], At: now, Usage: r.usage, CPI: r.cpi})
			rows = rows[1:]
		}
		p.emitAll(p.d.Observe(now, samples))
		if p.err != nil {
			return p.err
		}
	}
	if n := len(p.t.rows); n > 0 {
		// Analyse the last rows; caps still end after the trace.
		p.until(time.Unix(0, p.t.rows[n-1].at).Add(period))
	}
	return p.err
}

// until ticks the detector up to a time.
func (p *player) until(now time.Time) {
	for p.err == nil {
		next, ok := p.d.Next()
		if !ok || !next.Before(now) {
			return
		}
		p.emitAll(p.d.Tick(next))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()/1000) / 1e6 }

func (p *player) emitAll(events []detect.Event) {
	for i := range events {
		if p.err != nil {
			return
		}
		if p.fill(&events[i]) {
			p.err = p.emit(&p.line)
		}
	}
}

// fill converts an event to a line; false if it has none.
func (p *player) fill(e *detect.Event) bool {
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
			p.summary.Caps++
			l.CapMilli, l.Until = c.Milli, seconds(c.Until)
		}
	case detect.OutcomeEvent:
		return false // the uncap line reports it
	case detect.OutlierEvent, detect.AnomalyEvent:
	}
	return true
}

func (p *player) suspect(s *detect.Suspect) Suspect {
	c := p.d.Container(s.Ref)
	out := Suspect{Container: c.ID, Job: c.Job, Class: c.Class, Correlation: s.Score}
	if s.Confidence > 0 {
		out.Score, out.Contrast, out.Confidence = s.Paper, s.Contrast, s.Confidence
	}
	return out
}
