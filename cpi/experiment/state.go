package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// savedTerms are told apart in a State: a reader of version 2 refuses longer ones, which are soon
// reached again.
const savedTerms = 4

// StateVersion is raised when an older reader could misinterpret a newer State.
const StateVersion = 2

// oldestState has no lines over work, and is read as it is.
const oldestState = 1

// State is what is kept over a restart: what is normal, the evidence, and what the
// accusers have left. Throttles are not part of it: each has a deadline of its own.
type State struct {
	Version  int            `json:"version"`
	At       time.Time      `json:"at"`
	Window   int64          `json:"window"`
	Jobs     []JobState     `json:"jobs"`
	Pairs    []PairState    `json:"pairs"`
	Accusers []AccuserState `json:"accusers"`
}

// JobState is what is normal for a job on a platform.
type JobState struct {
	Job      string  `json:"job"`
	Platform string  `json:"platform,omitempty"`
	Line     line    `json:"line"`
	Offset   float64 `json:"offset"`
}

// PairState is the evidence for a pair. Its times are windows.
type PairState struct {
	PairKey
	Stage     Stage   `json:"stage"`
	Process   process `json:"process"`
	Accuser   string  `json:"accuser"`
	Disturbed float64 `json:"disturbed"`
	SD        float64 `json:"sd"`
	Spent     float64 `json:"spent,omitempty"`
	Reached   bool    `json:"reached,omitempty"`
	Rest      int64   `json:"rest,omitempty"`
	Until     int64   `json:"until,omitempty"`
	Term      int     `json:"term,omitempty"`
	// Moved, Idled and Narrowed say that a verdict moves the suspect, lets it run on idle CPUs alone, or holds it back
	// from memory. Process is then what led to the verdict.
	Moved    bool `json:"moved,omitempty"`
	Idled    bool `json:"idled,omitempty"`
	Narrowed bool `json:"narrowed,omitempty"`
}

// step of the ladder.
func (s *PairState) step() Step {
	switch {
	case s.Narrowed:
		return ByBandwidth
	case s.Idled:
		return ByIdling
	case s.Moved:
		return ByMove
	}
	return ByQuota
}

// AccuserState is what an accuser has left.
type AccuserState struct {
	Name   string  `json:"name"`
	Starts float64 `json:"starts"`
	Harm   float64 `json:"harm"`
}

// Save returns the state.
func (d *Detector) Save() State {
	s := State{Version: StateVersion, At: d.now, Window: d.window, Jobs: []JobState{}, Pairs: []PairState{},
		Accusers: []AccuserState{}}
	for _, j := range d.jobs {
		if j.history.line.N > 0 && !j.spec {
			s.Jobs = append(s.Jobs, JobState{j.name, j.platform, j.history.line, j.offset})
		}
	}
	slices.SortFunc(s.Jobs, func(a, b JobState) int {
		return cmp.Or(compare(a.Job, b.Job), compare(a.Platform, b.Platform))
	})
	for _, p := range d.order {
		s.Pairs = append(s.Pairs, PairState{PairKey: p.key, Stage: p.stage, Process: p.evidence(),
			Moved: p.move.step == ByMove, Idled: p.move.step == ByIdling,
			Narrowed: p.move.step == ByBandwidth, Accuser: p.accuser,
			Disturbed: p.effect.disturbed, SD: p.effect.sd, Spent: p.spent, Reached: p.reached, Rest: p.rest,
			Until: p.times.until, Term: min(p.term, savedTerms-1)})
	}
	for name, a := range d.accusers {
		s.Accusers = append(s.Accusers, AccuserState{name, a.starts.Left, a.harm.Left})
	}
	slices.SortFunc(s.Accusers, func(a, b AccuserState) int { return compare(a.Name, b.Name) })
	return s
}

// Restore loads a state into a Detector without samples. It skips implausible parts and
// names them in the error. The window that was not over when the state was saved counts
// for nothing.
func (d *Detector) Restore(now time.Time, s State) error {
	if s.Version < oldestState || s.Version > StateVersion {
		return fmt.Errorf("state of version %d; this detector reads versions %d to %d", s.Version, oldestState,
			StateVersion)
	}
	if s.Window < 0 || s.Window > 1<<50 {
		return fmt.Errorf("state of window %d; it must lie between 0 and 2^50", s.Window)
	}
	var errs []error
	gap := max(0, int64(now.Sub(s.At)/d.cfg.Period))
	d.window, d.now, d.observed = s.Window+1+gap, now, now
	d.tick = d.window * int64(d.bank.span)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if !j.Line.plausible() || !(math.Abs(j.Offset) < 10) {
			errs = append(errs, fmt.Errorf("state of job %q on platform %q: %+v is no line", j.Job, j.Platform, j.Line))
			continue
		}
		w := d.workloadOf(j.Job, j.Platform)
		w.history.line, w.history.least, w.offset = j.Line, allPoints, j.Offset
	}
	for i := range s.Pairs {
		if p := &s.Pairs[i]; p.plausible() {
			d.restorePair(p)
		} else {
			errs = append(errs, fmt.Errorf("state of %s and %s: %+v cannot be", p.Victim, p.Suspect, *p))
		}
	}
	for _, a := range s.Accusers {
		if !(a.Starts >= 0 && a.Starts < 1e6 && math.Abs(a.Harm) < 1e6) {
			errs = append(errs, fmt.Errorf("state of accuser %q: %v starts and %v minutes left", a.Name, a.Starts,
				a.Harm))
			continue
		}
		to := d.accuserOf(a.Name)
		to.starts.Left, to.harm.Left = min(a.Starts, to.starts.Left), min(a.Harm, to.harm.Left)
	}
	return errors.Join(errs...)
}

func (d *Detector) restorePair(s *PairState) {
	if len(d.pairs) >= d.cfg.MaxPairs || d.pairs[s.PairKey] != nil {
		return
	}
	p := d.addPair(s.PairKey)
	p.stage, p.proc, p.accuser, p.victim = s.Stage, s.Process, s.Accuser, -1
	p.effect = effect{disturbed: s.Disturbed, sd: s.SD}
	p.spent, p.reached, p.rest, p.term = s.Spent, s.Reached, s.Rest, s.Term
	for i := range p.proc.Witnesses {
		p.proc.Witnesses[i].ref = -1
	}
	p.times = times{began: d.window, active: d.window, bad: d.window, seen: d.window, judged: d.window,
		until: min(s.Until, d.window+d.windows(mostRest))}
	for i := range p.proc.Coins {
		// Of the window that was under way nobody knows what was in force, and of those before it
		// what they were to be compared with.
		p.proc.Coins[i] = coin{}
	}
	if step := s.step(); step != ByQuota && s.Stage == Verdict {
		guilt := p.proc
		p.move = move{step: step, guilt: &guilt}
	}
}

func (l *line) plausible() bool {
	return l.N > 0 && l.SD >= leastSD/2 && l.SD < 10 && l.Thr > 0 && l.Thr < 30 && math.Abs(l.B) <= maxSlope &&
		math.Abs(l.C) < 20 && math.Abs(l.At) < 20 && l.Low <= l.High
}

func (s *stake) plausible() bool {
	return !slices.ContainsFunc(s.Now[:], func(log float64) bool { return !(math.Abs(log) < 200) })
}

func (s *PairState) plausible() bool {
	switch s.Stage {
	case Testing, Verdict, Parked, Resting:
	default:
		return false
	}
	for i := range s.Process.Witnesses {
		if i >= mostWitnesses || !s.Process.Witnesses[i].plausible() {
			return false
		}
	}
	if !s.Process.stake.plausible() {
		return false
	}
	return s.Term >= 0 && s.Term < savedTerms && s.Process.Held >= 0 && s.Process.Held <= 1 &&
		s.Disturbed >= leastEffect && s.Disturbed <= mostEffect && s.SD > 0 && s.SD < 10 && s.Spent >= 0 &&
		s.Rest >= 0 && s.Rest < 1<<30
}
