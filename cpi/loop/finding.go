package loop

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
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
	ByQueue   bool // CPI and Threshold are of sample.Sample.Queue
	Spec      *detect.Spec
	// Of an analysis:
	Normal      detect.Normal // what Threshold is measured from
	Verdict     detect.VerdictKind
	Score       float64
	Why         string
	Suspects    []Suspect
	Antagonists []*cpi.Container
	Evidence    *sample.Evidence  // which resource; nil: unasked
	Names       map[string]string // namespace/pod/container of the last window's, by ID; with Evidence
	// Of a command and an outcome:
	Command detect.CommandKind
	Target  *cpi.Container
	Milli   int64
	Off     string // of a move: the CPUs that Target alone leaves; empty: best effort as a whole
	Until   time.Time
	Outcome *detect.Outcome
	Test    *Test // of a TestEvent and of a test's outcome
}

// TestEvent is of a test of Target's job for Victim: it begins, or a coin is thrown.
const TestEvent detect.Kind = "test"

// Test is what is told of one.
type Test struct {
	Job   string  // the suspect
	Begun bool    // else a coin was thrown
	P     float64 // of throttling, which Until then follows
	On    bool    // it is throttled
	E     float64 // e-value so far
	// Verdict says that the test has found the suspect guilty: the coin is one of a cap.
	Verdict bool
	Arms    [2]experiment.Arm // the suspect left alone, and throttled
	Harm    float64           // minutes that it was charged for
	// Witness says who confirms a verdict.
	Witness experiment.Witness
}

// Throttle says why a container is throttled now.
type Throttle struct {
	Target, Victim *cpi.Container // Victim is nil where it has ended
	Verdict        bool           // else it is a test
	Off            string         // CPUs around the victim that it is moved off; empty: it has a quota ...
	Idle           bool           // ... or runs on otherwise idle CPUs alone ...
	Narrow         bool           // ... or is held back from memory
	Until          time.Time      // by the wall clock: then it ends, unless its coins say otherwise
	Why            string
}

// Suspect is a neighbour of the victim and the evidence against it.
type Suspect struct {
	*cpi.Container
	Score, Contrast, Confidence float64
	Pairs                       int
	Prior, EValue               float64 // of a detector by experiment; EValue is 0 without a test
	Shares                      string  // the closest common domain: core, L3 or NUMA; empty: none or unknown
}

// Reasons of the Kubernetes Events.
const (
	ReasonInterference = "CPUInterference" // on the victim
	ReasonTested       = "CPUTested"       // on the suspect
	ReasonCapped       = "CPUCapped"       // on the antagonist
	ReasonUncapped     = "CPUCapLifted"
	ReasonAway         = "CPUMovedOff" // on the antagonist
	ReasonBack         = "CPUMoveEnded"
	ReasonIdle         = "CPUIdleOnly" // on the antagonist
	ReasonAwake        = "CPUIdleOnlyEnded"
	ReasonNarrow       = "MemoryBandwidthLimited" // on the antagonist
	ReasonWide         = "MemoryBandwidthRestored"
	ReasonMoved        = "BestEffortMoved" // on the victim
	ReasonEviction     = "CPUEvictionWished"
)

// maxSuspects bounds the suspects in a finding.
const maxSuspects = 20

// wall converts times of the detector's clock to those of the wall clock, as it is now.
func (l *Loop) wall(now time.Time) func(time.Time) time.Time {
	wall := l.o.Clock.Wall().Add(-max(l.now().Sub(now), 0))
	return func(t time.Time) time.Time { return wall.Add(t.Sub(now)) }
}

// report publishes a finding: as Events on pods, and to OnFinding.
func (l *Loop) report(f *Finding) {
	f.ByQueue = l.queue.judges
	if f.Kind == detect.AnalysisEvent && l.o.History != nil {
		l.explain(f)
	}
	l.notify(f)
	l.o.OnFinding(f)
}

// explain says which resource the victim lacked, by its own history and what ran beside it.
func (l *Loop) explain(f *Finding) {
	e := l.queue.blame(f, l.o.History(f.Victim.ID), l.topology)
	f.Evidence, f.Names = &e, l.queue.names
	if f.Why != "" {
		f.Why += "; "
	}
	f.Why += e.Text(l.queue.name)
}

// notify publishes Events on the pods of the victim and the antagonist.
func (l *Loop) notify(f *Finding) {
	notice := func(c *cpi.Container, reason, format string, args ...any) {
		pod := policy.PodRef{UID: c.PodUID, Namespace: c.Namespace, Name: c.Pod}
		l.o.Notify(policy.Notice{Pod: pod, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case f.Kind == TestEvent && f.Test.Begun:
		notice(f.Target, ReasonTested,
			"container %s may be limited for single windows, to see whether that helps %s: %s",
			f.Target.Name, f.Victim, f.Why)
	case f.Kind == detect.AnalysisEvent && len(f.Antagonists) > 0 && f.ByQueue:
		notice(f.Victim, ReasonInterference,
			"container %s needs %.2f times as long for its work, since others have the CPU, more than %.2f which is "+
				"normal for it: %s", f.Victim.Name, f.CPI, f.Threshold, f.Why)
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
	case f.Command == detect.DoMove && f.Off != "":
		notice(f.Target, ReasonAway, "container %s is moved off CPUs %s until %s for the sake of %s: %s", f.Target.Name,
			f.Off, f.Until.UTC().Format(time.TimeOnly), f.Victim, f.Why)
	case f.Command == detect.DoIdle:
		notice(f.Target, ReasonIdle, "container %s runs only on otherwise idle CPUs until %s for the sake of %s: %s",
			f.Target.Name, f.Until.UTC().Format(time.TimeOnly), f.Victim, f.Why)
	case f.Command == detect.DoWake:
		notice(f.Target, ReasonAwake, "container %s runs on CPUs that others want again, too: %s", f.Target.Name, f.Why)
	case f.Command == detect.DoNarrow:
		notice(f.Target, ReasonNarrow,
			"container %s gets the least memory bandwidth and L3 until %s for the sake of %s: %s",
			f.Target.Name, f.Until.UTC().Format(time.TimeOnly), f.Victim, f.Why)
	case f.Command == detect.DoWiden:
		notice(f.Target, ReasonWide, "container %s gets all memory bandwidth again: %s", f.Target.Name, f.Why)
	case f.Command == detect.DoRestore && f.Target.Class.InPool():
		notice(f.Target, ReasonBack, "container %s may use all CPUs of best effort again: %s", f.Target.Name, f.Why)
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
