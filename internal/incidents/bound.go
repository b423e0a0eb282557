package incidents

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Limits of an incident. Everything in it comes from tenants or measurements, so
// everything is bounded.
const (
	maxSuspects    = 20
	maxAntagonists = 10
	maxActions     = 20
	maxPoints      = 120
	maxExperiments = 5
	maxParts       = 8 // of what a victim waited for, and of its neighbours in each domain
	maxResource    = 40
	maxName        = 253
	maxText        = 1000
	maxOffset      = 24 * time.Hour
)

// Bounded returns a deep copy of i, cut to the limits, with its ID.
func Bounded(i Incident) Incident {
	i.At = plainTime(i.At)
	i.Node = cut(i.Node, maxName)
	i.Victim = i.Victim.bounded()
	i.CPI, i.Threshold = finite(i.CPI), finite(i.Threshold)
	i.Spec.Mean, i.Spec.StdDev, i.Spec.Samples = finite(i.Spec.Mean), finite(i.Spec.StdDev), finite(i.Spec.Samples)
	i.Spec.Platform = cut(i.Spec.Platform, maxName)
	i.Verdict = cmp.Or(cut(i.Verdict, 20), None)
	i.Why = cut(i.Why, maxText)
	i.Evidence = i.Evidence.bounded()
	i.Outcome.Result = cut(i.Outcome.Result, 20)
	i.Outcome.Before, i.Outcome.After = finite(i.Outcome.Before), finite(i.Outcome.After)
	i.Series = points(i.Series)
	i.DisturbedSeconds = max(finite(i.DisturbedSeconds), 0)

	i.Antagonists = slices.Clone(i.Antagonists[:min(len(i.Antagonists), maxAntagonists)])
	for n := range i.Antagonists {
		i.Antagonists[n] = i.Antagonists[n].bounded()
	}
	i.Suspects = i.keptSuspects()
	i.Actions = slices.Clone(i.Actions[max(0, len(i.Actions)-maxActions):])
	for n := range i.Actions {
		a := &i.Actions[n]
		a.Kind, a.EndedWhy, a.Subject = cut(a.Kind, 20), cut(a.EndedWhy, maxText), a.Subject.bounded()
		a.Off = cut(a.Off, maxName)
		a.From, a.Until, a.Ended = plainTime(a.From), plainTime(a.Until), plainTime(a.Ended)
	}
	i.Experiments = slices.Clone(i.Experiments[max(0, len(i.Experiments)-maxExperiments):])
	for n := range i.Experiments {
		i.Experiments[n] = i.Experiments[n].bounded()
	}
	if !validID(i.ID) {
		i.ID = NewID(i.At, i.Node, i.Victim)
	}
	return i
}

func (e *Evidence) bounded() *Evidence {
	if e == nil {
		return nil
	}
	out := *e
	out.Resource = cut(e.Resource, maxResource)
	out.Before, out.Now = e.Before.bounded(), e.Now.bounded()
	out.WaitedFor = slices.Clone(e.WaitedFor[:min(len(e.WaitedFor), maxParts)])
	for i := range out.WaitedFor {
		p := &out.WaitedFor[i]
		p.Name, p.Share = cut(p.Name, 3*maxName), finite(p.Share)
	}
	out.Siblings, out.L3, out.Node = bounded(e.Siblings), bounded(e.L3), bounded(e.Node)
	out.Steal, out.Interrupts = finite(e.Steal), finite(e.Interrupts)
	return &out
}

func (f *Figures) bounded() *Figures {
	if f == nil {
		return nil
	}
	out := *f
	for _, to := range []**float64{&out.CPI, &out.MPKI, &out.Wait, &out.Speed, &out.Queue, &out.Pressure} {
		if *to != nil {
			v := finite(**to)
			*to = &v
		}
	}
	return &out
}

func bounded(list []Neighbour) []Neighbour {
	list = slices.Clone(list[:min(len(list), maxParts)])
	for i := range list {
		n := &list[i]
		n.Name, n.CPUs = cut(n.Name, 3*maxName), finite(n.CPUs)
		n.Instructions, n.Misses = finite(n.Instructions), finite(n.Misses)
	}
	return list
}

func (e Experiment) bounded() Experiment {
	e.Job, e.Result, e.EValue, e.Minutes = cut(e.Job, 2*maxName), cut(e.Result, 20), finite(e.EValue), finite(e.Minutes)
	e.Alone.CPI, e.Under.CPI = finite(e.Alone.CPI), finite(e.Under.CPI)
	if w := e.Witness; w != nil {
		e.Witness = &Witness{cut(w.Job, 2*maxName), finite(w.EValue), w.Jobs}
	}
	e.Coins = slices.DeleteFunc(slices.Clone(e.Coins), func(c Coin) bool {
		return c.Offset.Abs() > maxOffset || c.Length < 0 || c.Length > maxOffset || !(c.P >= 0 && c.P <= 1)
	})
	e.Coins = slices.Clone(e.Coins[:min(len(e.Coins), maxPoints)])
	return e
}

// keptSuspects are the first ones and every antagonist.
func (i *Incident) keptSuspects() []Suspect {
	var kept []Suspect
	room := maxSuspects
	for _, s := range i.Suspects {
		blamed := slices.ContainsFunc(i.Antagonists, s.Same)
		if room <= 0 && !blamed || len(kept) == maxSuspects+maxAntagonists {
			continue
		}
		room--
		s.Subject = s.bounded()
		s.Score, s.Contrast, s.Confidence, s.Usage = finite(s.Score), finite(s.Contrast), finite(s.Confidence), finite(
			s.Usage)
		s.Prior, s.EValue = finite(s.Prior), finite(s.EValue)
		s.Shares = cut(s.Shares, 20)
		s.Series = points(s.Series)
		kept = append(kept, s)
	}
	return kept
}

func (s Subject) bounded() Subject {
	return Subject{cut(s.Namespace, maxName), cut(s.Pod, maxName), cut(s.Container, maxName), cut(s.Job, 2*maxName),
		cut(s.Class, 20), cut(s.CPUs, maxName), cut(s.Claims, maxName)}
}

// points returns those nearest to the incident, in order of time.
func points(list []Point) []Point {
	list = slices.DeleteFunc(slices.Clone(list), func(p Point) bool {
		return p.Offset < -maxOffset || p.Offset > maxOffset || finite(p.Value) != p.Value
	})
	if len(list) > maxPoints {
		slices.SortFunc(list, func(a, b Point) int { return cmp.Compare(a.Offset.Abs(), b.Offset.Abs()) })
		list = slices.Clone(list[:maxPoints])
	}
	slices.SortStableFunc(list, func(a, b Point) int { return cmp.Compare(a.Offset, b.Offset) })
	return list
}

// finite is x if JSON and plots can represent it, else 0.
func finite(x float64) float64 {
	const most = 1e12
	if math.IsNaN(x) || math.Abs(x) > most {
		return 0
	}
	return x
}

func clamp(x, most float64) float64 { return max(-most, min(most, x)) }

// plainTime removes the monotonic clock and bounds the year to what JSON can represent.
func plainTime(t time.Time) time.Time {
	t = t.Round(time.Microsecond).UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// cut makes text valid UTF-8 of at most so many bytes.
func cut(text string, most int) string {
	if len(text) > most {
		text = strings.Clone(text[:most]) // the rest of it is not held on to
	}
	return strings.ToValidUTF8(text, "?")
}
