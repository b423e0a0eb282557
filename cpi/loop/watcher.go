package loop

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/policy"
)

// watcher is package detect at work.
type watcher struct {
	l       *Loop
	d       *detect.Detector
	samples []detect.Sample
}

func (p *watcher) take(w *queued, now time.Time) (orders []order, unsaved bool) {
	p.samples = p.samples[:0]
	p.l.follow(w, func(r *sample.Result) error {
		ref, err := p.d.Put(now, onPlatform(r.Container, w.Reference))
		if err == nil && r.Dropped == sample.None {
			p.samples = append(p.samples, sampleOf(r, ref, now))
		}
		return err
	}, func(id string) {
		orders = append(orders, p.handle(p.d.Forget(now, id), now)...)
	})
	orders = append(orders, p.handle(p.d.Observe(now, p.samples), now)...)
	p.l.o.OnLearned(slices.DeleteFunc(p.d.Learned(), func(x detect.Learned) bool { return cpi.OfHost(x.Job) }))
	return orders, false
}

func (p *watcher) next() (time.Time, bool) { return p.d.Next() }

func (p *watcher) tick(now time.Time) []order { return p.handle(p.d.Tick(now), now) }

// refuse has the detector try the next suspect.
func (p *watcher) refuse(o *order, now time.Time, why string) {
	p.handle(p.d.Refuse(now, o.command, why), now) // a refusal orders nothing
}

func (p *watcher) short() time.Duration { return 0 }

func (p *watcher) questions() []cpi.Question { return p.d.Questions() }

func (p *watcher) counters() Counters {
	c := p.d.Counters()
	return Counters{Samples: c.Samples, Outliers: c.Outliers, Anomalies: c.Anomalies, Analyses: c.Analyses}
}

func (p *watcher) jobs(time.Time) []detect.JobInfo { return p.d.Jobs() }

func (p *watcher) setSpec(now time.Time, s *detect.Spec, until time.Time) error {
	return p.d.SetSpec(now, *s, until)
}

func (p *watcher) save() State {
	s := p.d.Save()
	return State{Detector: &s}
}

func (p *watcher) restore(now time.Time, s State) error {
	if s.Detector == nil {
		return errors.New("the state is another detector's")
	}
	return p.d.Restore(now, *s.Detector)
}

func (p *watcher) throttles(now time.Time) (list []Throttle) {
	at := p.l.wall(now)
	for _, c := range p.d.InForce() {
		if c.Kind != detect.DoCap {
			continue
		}
		victim := p.d.Container(c.Victim)
		list = append(list, Throttle{Target: p.d.Container(c.Container), Victim: victim, Verdict: true,
			Until: at(c.Until), Why: fmt.Sprintf("the antagonist of %s, capped until %s", victim,
				at(c.Until).UTC().Format(time.TimeOnly))})
	}
	return list
}

// sampleOf converts a container's result of a window to a sample of the detector.
func sampleOf(r *sample.Result, ref detect.Ref, at time.Time) detect.Sample {
	s := detect.Sample{Ref: ref, At: at, Usage: r.Usage, Threads: r.Threads, Capped: r.Capped}
	if r.NoCPI == sample.None {
		s.CPI, s.Counted = r.CPI, r.Counted
	}
	if r.HasMPKI && r.Length > 0 {
		s.Misses = float64(r.Delta.Events[sample.LLCMisses]) / r.Length.Seconds()
	} else if r.Queue > 0 {
		s.Misses = 1e6 * r.Caused // what others had less of for it, where no misses tell
	}
	return s
}

// handle reports events and returns the commands among them. A command is reported once
// the policy has accepted it.
func (p *watcher) handle(events []detect.Event, now time.Time) []order {
	var orders []order
	at := p.l.wall(now)
	for i := range events {
		e := &events[i]
		f := p.finding(e, at)
		if e.Command != nil {
			if o := p.orderOf(e.Command, now); o != nil {
				o.finding = f
				orders = append(orders, *o)
				continue
			}
		}
		p.l.report(f)
	}
	return orders
}

// orderOf converts a command to an event for the policy; nil for a command that the
// policy does not execute.
func (p *watcher) orderOf(c *detect.Command, now time.Time) *order {
	target := p.d.Container(c.Container)
	o := &order{command: *c, target: target}
	left := c.Until.Sub(now)
	switch c.Kind {
	case detect.DoCap:
		o.event = policy.CapVerdict{ID: target.ID, Milli: c.Milli, For: left}
	case detect.DoUncap:
		o.event = policy.CapReleased{ID: target.ID}
	case detect.DoMove:
		o.event = policy.BEKeptOff{Victim: target.ID, CPUs: around(p.l.topology, target.Place.CPUs), For: left}
	case detect.DoRestore:
		o.event = policy.BEKeptOff{Victim: target.ID}
	default:
		return nil
	}
	return o
}

// finding resolves an event's references, as they are only valid until the next call of
// the detector.
func (p *watcher) finding(e *detect.Event, at func(time.Time) time.Time) *Finding {
	f := &Finding{Kind: e.Kind, At: at(e.At), Victim: e.Victim, CPI: e.CPI, Threshold: e.Threshold}
	if e.Spec != nil {
		spec := *e.Spec
		f.Spec = &spec
	}
	if v := e.Verdict; v != nil {
		f.Verdict, f.Score, f.Why, f.Normal = v.Kind, v.Score, v.Why, e.Normal
		for i := range min(len(v.Suspects), maxSuspects) {
			s := &v.Suspects[i]
			c := p.d.Container(s.Ref)
			f.Suspects = append(f.Suspects, Suspect{
				Container: c, Score: s.Score, Contrast: s.Contrast, Confidence: s.Confidence, Pairs: s.Pairs,
				Shares: shared(p.l.topology, f.Victim.Place.CPUs, c.Place.CPUs),
			})
		}
		for _, ref := range v.Antagonists {
			f.Antagonists = append(f.Antagonists, p.d.Container(ref))
		}
	}
	if c := e.Command; c != nil {
		f.Command, f.Target, f.Milli, f.Why = c.Kind, p.d.Container(c.Container), c.Milli, c.Why
		f.Victim = p.d.Container(c.Victim)
		if !c.Until.IsZero() {
			f.Until = at(c.Until)
		}
	}
	if o := e.Outcome; o != nil {
		outcome := *o
		f.Outcome, f.Target, f.Victim = &outcome, p.d.Container(o.Antagonist), p.d.Container(o.Victim)
		f.Why = o.Why
	}
	return f
}
