package loop

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/policy"
)

// Finding is an event of the detector in which references are resolved to containers.
// It is immutable and may be kept.
type Finding struct {
	Kind      detect.Kind
	At        time.Time
	Victim    *cpi.Container // nil where there is none
	CPI       float64
	Threshold float64
	Spec      *detect.Spec
	// Of an analysis:
	Normal      detect.Normal // what Threshold is measured from
	Verdict     detect.VerdictKind
	Score       float64
	Why         string
	Suspects    []Suspect
	Antagonists []*cpi.Container
	// Of a command and an outcome:
	Command detect.CommandKind
	Target  *cpi.Container
	Milli   int64
	Until   time.Time
	Outcome *detect.Outcome
}

// Suspect is a neighbour of the victim and the evidence against it.
type Suspect struct {
	*cpi.Container
	Score, Contrast, Confidence float64
	Pairs                       int
	Shares                      string // the closest common domain: core, L3 or NUMA; empty: none or unknown
}

// Reasons of the Kubernetes Events.
const (
	ReasonInterference = "CPUInterference" // on the victim
	ReasonCapped       = "CPUCapped"       // on the antagonist
	ReasonUncapped     = "CPUCapLifted"
	ReasonMoved        = "BestEffortMoved" // on the victim
	ReasonEviction     = "CPUEvictionWished"
)

// maxSuspects bounds the suspects in a finding.
const maxSuspects = 20

// handle reports events and returns the commands among them. A command is reported once
// the policy has accepted it.
func (l *Loop) handle(events []detect.Event, now time.Time) []order {
	var orders []order
	wall := l.o.Clock.Wall().Add(-max(l.now().Sub(now), 0))
	at := func(t time.Time) time.Time { return wall.Add(t.Sub(now)) }
	for i := range events {
		e := &events[i]
		f := l.finding(e, at)
		if e.Command != nil {
			if o := l.orderOf(e.Command, now); o != nil {
				o.finding = f
				orders = append(orders, *o)
				continue
			}
		}
		l.report(f)
	}
	return orders
}

// report publishes a finding: as Events on pods, and to OnFinding.
func (l *Loop) report(f *Finding) {
	l.notify(f)
	l.o.OnFinding(f)
}

// finding resolves an event's references, as they are only valid until the next call of
// the detector.
func (l *Loop) finding(e *detect.Event, at func(time.Time) time.Time) *Finding {
	f := &Finding{Kind: e.Kind, At: at(e.At), Victim: e.Victim, CPI: e.CPI, Threshold: e.Threshold}
	if e.Spec != nil {
		spec := *e.Spec
		f.Spec = &spec
	}
	if v := e.Verdict; v != nil {
		f.Verdict, f.Score, f.Why, f.Normal = v.Kind, v.Score, v.Why, e.Normal
		for i := range min(len(v.Suspects), maxSuspects) {
			s := &v.Suspects[i]
			c := l.detector.Container(s.Ref)
			f.Suspects = append(f.Suspects, Suspect{
				Container: c, Score: s.Score, Contrast: s.Contrast, Confidence: s.Confidence, Pairs: s.Pairs,
				Shares: shared(l.topology, f.Victim.Place.CPUs, c.Place.CPUs),
			})
		}
		for _, ref := range v.Antagonists {
			f.Antagonists = append(f.Antagonists, l.detector.Container(ref))
		}
	}
	if c := e.Command; c != nil {
		f.Command, f.Target, f.Milli, f.Why = c.Kind, l.detector.Container(c.Container), c.Milli, c.Why
		f.Victim = l.detector.Container(c.Victim)
		if !c.Until.IsZero() {
			f.Until = at(c.Until)
		}
	}
	if o := e.Outcome; o != nil {
		outcome := *o
		f.Outcome, f.Target, f.Victim = &outcome, l.detector.Container(o.Antagonist), l.detector.Container(o.Victim)
		f.Why = o.Why
	}
	return f
}

// notify publishes Events on the pods of the victim and the antagonist.
func (l *Loop) notify(f *Finding) {
	notice := func(c *cpi.Container, reason, format string, args ...any) {
		pod := policy.PodRef{UID: c.PodUID, Namespace: c.Namespace, Name: c.Pod}
		l.o.Notify(policy.Notice{Pod: pod, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case f.Kind == detect.AnalysisEvent && len(f.Antagonists) > 0:
		notice(f.Victim, ReasonInterference,
			"container %s needs %.2f cycles an instruction, more than %.2f which is normal for it: %s",
			f.Victim.Name, f.CPI, f.Threshold, f.Why)
	case f.Kind != detect.CommandEvent:
	case f.Command == detect.DoCap:
		notice(f.Target, ReasonCapped, "container %s is limited to %dm CPU until %s for the sake of %s: %s",
			f.Target.Name, f.Milli, f.Until.UTC().Format(time.TimeOnly), f.Victim, f.Why)
	case f.Command == detect.DoUncap:
		notice(f.Target, ReasonUncapped, "container %s is not limited any more: %s", f.Target.Name, f.Why)
	case f.Command == detect.DoMove:
		notice(f.Victim, ReasonMoved, "best effort leaves the L3 domains of container %s until %s: %s",
			f.Victim.Name, f.Until.UTC().Format(time.TimeOnly), f.Why)
	case f.Command == detect.DoEvict:
		notice(f.Target, ReasonEviction, "container %s should run on another node: %s", f.Target.Name, f.Why)
	}
}

func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail: every supported kernel has this clock
	return time.Duration(ts.Nano())
}
