// Package record turns the detector's findings into incidents. A [Recorder] keeps one
// open incident per victim, publishes it again whenever more is known, and closes it
// when nothing has happened for a while. It stores nothing on disk itself.
package record

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/internal/incidents"
)

// Options configure a Recorder; all are required.
type Options struct {
	Node string
	// Put stores an incident under its ID, new or updated. It must not block.
	Put func(incidents.Incident) string
	// History returns a container's recent samples, oldest first.
	History func(id string) []sample.Sample
	// Interval is what a window stands for.
	Interval time.Duration
}

// quiet is how long an incident stays open after its last change, so that its plot
// shows the aftermath.
const quiet = 10 * time.Minute

// Recorder is safe for concurrent use.
type Recorder struct {
	o Options

	mu   sync.Mutex
	open map[string]*episode // by the victim's container ID
}

// episode is an open incident.
type episode struct {
	incidents.Incident
	ids   map[string]bool // of the containers whose usage is recorded
	order []string        // their IDs, as in Suspects
	job   string          // the victim's
	last  time.Time       // time of the last change
}

// New makes a recorder without open incidents.
func New(o Options) *Recorder { return &Recorder{o: o, open: map[string]*episode{}} }

// Find records a finding of the loop.
func (r *Recorder) Find(f *loop.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch f.Kind {
	case detect.AnomalyEvent:
		// That of the window in which an incident begins comes before its analysis.
		if e := r.open[f.Victim.ID]; e != nil {
			e.DisturbedSeconds += r.o.Interval.Seconds()
		}
	case detect.AnalysisEvent:
		r.recordAnalysis(f)
	case detect.CommandEvent:
		r.recordCommand(f)
	case detect.OutcomeEvent:
		r.recordOutcome(f)
	case loop.TestEvent:
		r.recordTest(f)
	}
}

// subject describes a container. Its job omits the namespace, which is a separate
// field.
func subject(c *cpi.Container) incidents.Subject {
	out := incidents.Subject{
		Namespace: c.Namespace, Pod: c.Pod, Container: c.Name, Class: c.PodClass,
		Job: strings.TrimPrefix(c.Job, c.Namespace+"/"), Claims: c.Claims,
	}
	if c.Place.CPUs != nil {
		out.CPUs = c.Place.CPUs.String()
	}
	return out
}

func (r *Recorder) recordAnalysis(f *loop.Finding) {
	e := r.open[f.Victim.ID]
	if e == nil {
		r.makeRoom()
		victim := subject(f.Victim)
		e = &episode{ids: map[string]bool{}, job: f.Victim.Job, Incident: incidents.Incident{
			ID: incidents.NewID(f.At, r.o.Node, victim), At: f.At, Node: r.o.Node, Victim: victim,
			Series: r.before(f.Victim.ID, f.At, cpiOf), DisturbedSeconds: r.o.Interval.Seconds(),
		}}
		r.open[f.Victim.ID] = e
	}
	e.last = f.At
	if acts(e.Verdict) && len(e.Actions) > 0 && !acts(verdict(f.Verdict)) {
		// The incident keeps the verdict that led to its actions. A later analysis that
		// only waits for their effect must not replace it.
		r.join(e, f)
		r.publish(e)
		return
	}
	e.CPI, e.Threshold, e.Verdict, e.Why = f.CPI, f.Threshold, verdict(f.Verdict), f.Why
	e.Evidence = evidence(f)
	if s := f.Spec; s != nil {
		n := &f.Normal
		e.Spec = incidents.Spec{Mean: n.CPI, StdDev: n.StdDev, Platform: s.Platform, Band: n.Band, Samples: n.Samples,
			Tasks: s.Tasks}
	}
	r.suspects(e, f)
	r.join(e, f)
	r.publish(e)
}

// maxOpen bounds the memory of open incidents; one takes up to 80 KB.
const maxOpen = 128

// makeRoom closes the incident with the oldest change if too many are open. It is
// published as it is.
func (r *Recorder) makeRoom() {
	if len(r.open) < maxOpen {
		return
	}
	oldest := ""
	for id, e := range r.open {
		if first := r.open[oldest]; first == nil || e.last.Before(first.last) {
			oldest = id
		}
	}
	r.publish(r.open[oldest])
	delete(r.open, oldest)
}

// suspects replaces the suspects of the previous analysis. A container that is still
// suspected keeps its series.
func (r *Recorder) suspects(e *episode, f *loop.Finding) {
	known := map[string][]incidents.Point{}
	for i, id := range e.order {
		known[id] = e.Suspects[i].Series
	}
	e.Suspects, e.order, e.Antagonists = nil, nil, nil
	clear(e.ids)
	for i := range f.Suspects {
		s := &f.Suspects[i]
		series, had := known[s.ID]
		if !had {
			series = r.before(s.ID, e.At, usageOf)
		}
		e.Suspects = append(e.Suspects, incidents.Suspect{
			Subject: subject(s.Container), Score: s.Score, Contrast: s.Contrast, Confidence: s.Confidence,
			Prior: s.Prior, EValue: s.EValue, Usage: mean(series), Shares: s.Shares, Series: series,
		})
		e.order = append(e.order, s.ID)
		e.ids[s.ID] = true
	}
	for i := range f.Antagonists {
		e.Antagonists = append(e.Antagonists, subject(f.Antagonists[i]))
	}
	for i := range e.Actions {
		// A capped or moved container stays an antagonist of the incident, even if a
		// later analysis blames another one or none.
		if a := &e.Actions[i]; a.OfOne() && !slices.ContainsFunc(e.Antagonists, a.Subject.Same) {
			e.Antagonists = append(e.Antagonists, a.Subject)
		}
	}
}

// join adds to an incident the caps and moves in force that another victim of the same antagonist
// caused: the detector's command names only the first victim.
func (r *Recorder) join(e *episode, f *loop.Finding) {
	if !f.Victim.Class.LatencySensitive() {
		return // the detector caps nothing for its sake
	}
	for _, other := range r.open {
		for _, a := range other.Actions {
			if other != e && a.OfOne() && inForce(&a, f.At) &&
				slices.ContainsFunc(e.Antagonists, a.Subject.Same) && !slices.Contains(e.Actions, a) {
				e.Actions = append(e.Actions, a)
			}
		}
	}
}

func acts(verdict string) bool { return verdict == incidents.Cap || verdict == incidents.Move }

func verdict(k detect.VerdictKind) string {
	switch k {
	case detect.Cap:
		return incidents.Cap
	case detect.Move:
		return incidents.Move
	case detect.Test:
		return incidents.Test
	case detect.Observe:
		return incidents.Observe
	}
	return incidents.None
}

func (r *Recorder) recordCommand(f *loop.Finding) {
	switch f.Command {
	case detect.DoUncap:
		r.end(incidents.Cap, f)
		return
	case detect.DoRestore:
		r.end(incidents.Move, f)
		return
	case detect.DoWake:
		r.end(incidents.Idle, f)
		return
	case detect.DoWiden:
		r.end(incidents.Narrow, f)
		return
	}
	e := r.open[f.Victim.ID]
	if e == nil {
		return
	}
	e.last = f.At
	target := subject(f.Target)
	switch f.Command {
	case detect.DoCap:
		e.Actions = append(e.Actions, incidents.Action{Kind: incidents.Cap, Subject: target, Milli: f.Milli,
			From: f.At, Until: f.Until})
	case detect.DoMove:
		e.Actions = append(e.Actions, incidents.Action{Kind: incidents.Move, Subject: target, Off: f.Off,
			From: f.At, Until: f.Until})
	case detect.DoIdle:
		e.Actions = append(e.Actions, incidents.Action{Kind: incidents.Idle, Subject: target, From: f.At,
			Until: f.Until})
	case detect.DoNarrow:
		e.Actions = append(e.Actions, incidents.Action{Kind: incidents.Narrow, Subject: target, From: f.At,
			Until: f.Until})
	case detect.DoEvict:
		e.Actions = append(e.Actions, incidents.Action{Kind: incidents.Evict, Subject: target, From: f.At, Ended: f.At})
	}
	r.publish(e)
}

// end closes the last open action of a kind on a container, in the incident of every
// victim it was for.
func (r *Recorder) end(kind string, f *loop.Finding) {
	target := subject(f.Target)
	for _, e := range r.open {
		for i := range slices.Backward(e.Actions) {
			if a := &e.Actions[i]; a.Kind == kind && a.Ended.IsZero() && a.Subject.Same(target) {
				a.Ended, a.EndedWhy, e.last = f.At, f.Why, f.At
				r.publish(e)
				break
			}
		}
	}
}

func (r *Recorder) recordOutcome(f *loop.Finding) {
	if f.Test != nil {
		r.recordTest(f)
	}
	e := r.open[f.Victim.ID]
	if e == nil {
		return
	}
	e.last = f.At
	o := f.Outcome
	if o.Result == detect.Refused {
		// The action never began, so there is none to record or measure.
		if e.Outcome.Result == "" {
			e.Outcome.Result = string(o.Result)
		}
		e.Why += fmt.Sprintf("; %s of %s was not carried out: %s", o.Kind, f.Target, o.Why)
		r.publish(e)
		return
	}
	e.Outcome = incidents.Outcome{Result: string(o.Result), Before: o.Before * e.Threshold,
		After: o.After * e.Threshold, Samples: o.Samples}
	r.publish(e)
}

// Look extends the series of open incidents by a window and closes incidents that have
// been quiet for long enough.
func (r *Recorder) Look(w *sampler.Window) {
	if w.Failed != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, e := range r.open {
		for i := range w.Containers {
			o := &w.Containers[i]
			if o.Dropped != sample.None {
				continue
			}
			if o.ID == id {
				e.Series = add(e.Series, e.At, &o.Sample, cpiOf)
			} else if e.ids[o.ID] {
				s := &e.Suspects[slices.Index(e.order, o.ID)]
				s.Series = add(s.Series, e.At, &o.Sample, usageOf)
			}
		}
		if e.over(w.End) {
			r.publish(e)
			delete(r.open, id)
		}
	}
}

// over says that no action is in force and the incident has been quiet for long enough.
func (e *episode) over(now time.Time) bool {
	for i := range e.Actions {
		if inForce(&e.Actions[i], now) {
			return false
		}
	}
	return now.Sub(e.last) > quiet
}

func inForce(a *incidents.Action, now time.Time) bool {
	return a.Ended.IsZero() && now.Before(a.Until)
}

// publish passes a deep copy on: the receiver may keep it while the incident still
// changes.
func (r *Recorder) publish(e *episode) {
	i := e.Incident
	i.Suspects, i.Actions = slices.Clone(i.Suspects), slices.Clone(i.Actions)
	for k := range i.Suspects {
		i.Suspects[k].Series = slices.Clone(i.Suspects[k].Series)
	}
	i.Series, i.Antagonists = slices.Clone(i.Series), slices.Clone(i.Antagonists)
	i.Experiments = slices.Clone(i.Experiments)
	for k := range i.Experiments {
		i.Experiments[k].Coins = slices.Clone(i.Experiments[k].Coins)
	}
	r.o.Put(i)
}

// maxPoints bounds a container's series in one incident.
const maxPoints = 240

func cpiOf(s *sample.Sample) (float64, bool)   { return s.CPI, s.NoCPI == sample.None }
func usageOf(s *sample.Sample) (float64, bool) { return s.Usage, true }

func add(series []incidents.Point, from time.Time, s *sample.Sample,
	of func(*sample.Sample) (float64, bool)) []incidents.Point {
	v, ok := of(s)
	at := s.End.Sub(from)
	if !ok || len(series) >= maxPoints || len(series) > 0 && series[len(series)-1].Offset >= at {
		return series
	}
	return append(series, incidents.Point{Offset: at, Value: v})
}

func (r *Recorder) before(id string, from time.Time, of func(*sample.Sample) (float64, bool)) []incidents.Point {
	var series []incidents.Point
	history := r.o.History(id)
	for i := range history {
		series = add(series, from, &history[i], of)
	}
	return series
}

func mean(series []incidents.Point) float64 {
	sum := 0.0
	for _, p := range series {
		sum += p.Value
	}
	return sum / float64(max(len(series), 1))
}
