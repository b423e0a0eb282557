package replay

import (
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
)

// gonePeriods without a row, a container has ended.
const gonePeriods = 3

// trials is package experiment at work.
type trials struct {
	d       *experiment.Detector
	t       *Trace
	o       Options
	near    time.Duration // rows that are less apart belong together
	specs   *specs
	present []presence // of the trace's containers
	emit    func(*Line) error
	line    Line
	samples []experiment.Sample
	coins   []experiment.Thrown
	list    []Suspect
	caps    int
	probes  int
	dropped uint64
}

// presence of a container of the trace.
type presence struct {
	ref     experiment.Ref
	here    bool
	last    int64 // time of its newest row
	release int32
}

func newTrials(t *Trace, o Options, s *specs, emit func(*Line) error) (*trials, error) {
	cfg := *o.Experiment
	cfg.Enforce = true // the lines show what enforcement would do
	cfg.GivenSpecs = o.Specs != nil
	cfg.MaxContainers = max(cfg.MaxContainers, len(t.Containers))
	cfg.MaxJobs = max(cfg.MaxJobs, len(t.Containers))
	cfg.Period, cfg.Window = o.Period, testWindow(t, &o)
	d, err := experiment.New(cfg)
	if err != nil {
		return nil, err
	}
	return &trials{d: d, t: t, o: o, near: cfg.Window / 2, specs: s, emit: emit}, nil
}

// testWindow is how long windows are while a test runs: the period, but where rows tell. Of the
// period's whole parts down to a sixth it is the closest to the configuration's.
func testWindow(t *Trace, o *Options) time.Duration {
	if !t.windows || o.Experiment.Window <= 0 {
		return o.Period
	}
	parts := math.Round(float64(o.Period) / float64(o.Experiment.Window))
	return time.Duration(float64(o.Period) / min(max(parts, 1), experiment.MostWindows))
}

// between says that rows are of a test's window, and no interval's.
func (p *trials) between(rows []row) bool {
	return rows[0].window > 0 && rows[0].window < 0.75*p.o.Period.Seconds()
}

// refOf the container of a row.
func (p *trials) refOf(r *row) (experiment.Ref, error) {
	for len(p.present) <= int(r.container) {
		p.present = append(p.present, presence{last: math.MinInt64})
	}
	at, c := &p.present[r.container], &p.t.Containers[r.container]
	if !at.here {
		p.specs.set(c, func(s detect.Spec) error {
			if err := s.Check(p.o.Config); err != nil {
				return err
			}
			return p.d.SetSpec(experiment.JobOf(c), c.Platform, s.Mean, s.StdDev)
		})
		ref, err := p.d.Put(c)
		if err != nil {
			return 0, err
		}
		at.ref, at.here, at.release = ref, true, r.release
	}
	if at.release != r.release {
		at.release = r.release
		p.d.Release(at.ref)
	}
	return at.ref, nil
}

func (p *trials) round(now time.Time, rows []row) error {
	p.samples = p.samples[:0]
	for i := range rows {
		r := &rows[i]
		ref, err := p.refOf(r)
		if err != nil {
			return err
		}
		if at := &p.present[r.container]; at.last > rows[0].at-int64(p.near) {
			p.dropped++ // a second row in one window
			continue
		}
		p.present[r.container].last = r.at
		p.samples = append(p.samples, experiment.Sample{Ref: ref, Usage: r.usage, CPI: r.cpi})
	}
	for i := range p.present {
		if at := &p.present[i]; at.here && now.UnixNano()-at.last > gonePeriods*int64(p.o.Period) {
			p.d.Forget(p.t.Containers[i].ID)
			at.here = false
		}
	}
	observe := p.d.Observe
	if p.between(rows) {
		observe = p.d.Between
	}
	if err := p.emitAll(observe(now, p.samples)); err != nil {
		return err
	}
	p.coins = p.coins[:0]
	for _, t := range p.d.Trials() {
		p.coins = append(p.coins, experiment.Thrown{Trial: t, On: Coin(p.o.Seed, t.Pair, t.Window) < t.P})
	}
	return p.emitAll(p.d.Throw(p.coins))
}

// Coin is a number in [0, 1) that depends on seed, pair and window alone.
func Coin(seed uint64, pair experiment.PairKey, window int64) float64 {
	h := seed ^ 0x9e3779b97f4a7c15
	for _, part := range [...]string{pair.Victim, pair.Platform, pair.Suspect} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 0x100000001b3
		}
		h = mix(h)
	}
	return float64(mix(h^mix(uint64(window)))>>11) / (1 << 53)
}

// mix spreads every bit over all (the finaliser of splitmix64).
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// until has nothing to do: everything happens at the end of a window.
func (p *trials) until(time.Time) error { return nil }

func (p *trials) summary() Summary {
	c := p.d.Counters()
	s := Summary{Event: "summary", Samples: c.Samples, Outliers: c.Outliers, Anomalies: c.Anomalies,
		Analyses: c.Analyses, Caps: p.caps, Probes: p.probes}
	for why, n := range map[string]uint64{"duplicate": p.dropped, "absurd": c.Dropped} {
		if n > 0 {
			if s.Dropped == nil {
				s.Dropped = map[string]uint64{}
			}
			s.Dropped[why] = n
		}
	}
	return s
}

func (p *trials) emitAll(events []experiment.Event) error {
	for i := range events {
		e := &events[i]
		p.line = Line{Time: seconds(e.At), Event: string(e.Kind), CPI: e.CPI, Threshold: e.Threshold, Why: e.Why}
		if v := e.Victim; v != nil {
			p.line.Container, p.line.Job, p.line.Platform = v.ID, v.Job, v.Platform
		}
		var err error
		switch e.Kind {
		case experiment.OutlierEvent, experiment.AnomalyEvent:
			err = p.emit(&p.line)
		case experiment.AnalysisEvent:
			p.analysis(e)
			err = p.emit(&p.line)
		case experiment.LineEvent:
			p.line.Event, p.line.Container, p.line.CPI = "spec", "", 0
			p.line.Mean, p.line.StdDev = e.Normal.CPI, e.Normal.CPI*e.Normal.StdDev
			p.line.Samples, p.line.Tasks = float64(e.Normal.Samples), 1
			err = p.emit(&p.line)
		case experiment.ProbeEvent, experiment.CapEvent, experiment.UncapEvent:
			err = p.throttle(e)
		case experiment.BegunEvent, experiment.VerdictEvent, experiment.GivenUpEvent, experiment.ReleasedEvent:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// throttle is a line for each container.
func (p *trials) throttle(e *experiment.Event) error {
	for _, t := range e.Throttles {
		p.line.Antagonist = p.d.Container(t.Container).ID
		switch e.Kind {
		case experiment.ProbeEvent:
			p.probes++
			p.line.CapMilli, p.line.Until = t.Milli, seconds(e.Until)
		case experiment.CapEvent:
			p.caps++
			p.line.CapMilli, p.line.Until = t.Milli, seconds(e.Until)
		default:
		}
		if err := p.emit(&p.line); err != nil {
			return err
		}
	}
	return nil
}

// analysis lists the suspects' containers.
func (p *trials) analysis(e *experiment.Event) {
	p.list = p.list[:0]
	for i := range e.Suspects {
		s := &e.Suspects[i]
		for k, ref := range p.d.Containers(s.Job) {
			c := p.d.Container(ref)
			p.list = append(p.list, Suspect{Container: c.ID, Job: c.Job, Class: c.Class, Correlation: s.Correlation,
				Prior: s.Prior, EValue: s.E})
			if k == 0 && p.line.Antagonist == "" && p.d.Stage(e.Victim, s.Job) == experiment.Verdict {
				p.line.Antagonist = c.ID
			}
		}
	}
	p.line.Suspects = slices.Clip(p.list)
}
