package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

var epoch = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// order of a detector: how far a container, or all of a job, are throttled from now on.
type order struct {
	job, container string  // one of the two
	cpus           float64 // 0: not any more
	verdict        bool    // a cap, rather than a probe
	counts         bool    // a new accusation: right or wrong
}

// player is a detector at work.
type player interface {
	// round takes the samples of a window that ended now: of an interval's, or of a further one
	// while a test runs.
	round(now time.Time, rows []world.Row, intervals bool) ([]order, error)
	// short says that windows are to follow one another.
	short() bool
	// anomalies so far.
	anomalies() uint64
}

type detector struct {
	name   string
	period time.Duration
	make   func(kind world.Kind, seed uint64) (player, error)
}

// detectors that are measured.
func detectors() []detector {
	old := func(mode detect.Mode) func(world.Kind, uint64) (player, error) {
		return func(kind world.Kind, seed uint64) (player, error) { return newSpecs(mode, kind, seed) }
	}
	return []detector{
		{"classic", time.Minute, old(detect.Classic)},
		{"contrast", time.Minute, old(detect.Contrast)},
		{"default-1m", time.Minute, byExperiment(time.Minute)},
		{"default", time.Minute, byExperiment(step)},
	}
}

// byExperiment has windows of a length while a test runs.
func byExperiment(window time.Duration) func(world.Kind, uint64) (player, error) {
	return func(_ world.Kind, seed uint64) (player, error) {
		cfg := experiment.DefaultConfig()
		cfg.Window = window
		return newExperiment(cfg, seed)
	}
}

// containerOf a row.
func containerOf(r *world.Row) (*cpi.Container, error) {
	class, ok := cpi.ParseClass(r.Class)
	if !ok {
		return nil, fmt.Errorf("class %q", r.Class)
	}
	return &cpi.Container{ID: r.Container, Job: r.Job, Class: class}, nil
}

// specs is package detect: classic and contrast, which judge by a job's spec.
type specs struct {
	d       *detect.Detector
	refs    map[string]detect.Ref
	seen    map[string]time.Time
	samples []detect.Sample
}

// learningTasks of the victim's job elsewhere have each learningSamples behind them
// before a machine begins, since a spec needs five tasks. In the kind small-job there
// are none.
const learningTasks, learningSamples = 10, 150

func newSpecs(mode detect.Mode, kind world.Kind, seed uint64) (*specs, error) {
	cfg := detect.DefaultConfig()
	cfg.Mode, cfg.Enforce = mode, true
	d, err := detect.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &specs{d: d, refs: map[string]detect.Ref{}, seen: map[string]time.Time{}}
	if kind == world.SmallJob {
		return s, nil
	}
	quiet := world.QuietOf(kind)
	elsewhere := world.New(quiet, seed)
	elsewhere.LikeVictimOf(world.New(kind, seed))
	begin := epoch.Add(-(learningSamples + 1) * time.Minute)
	var refs [learningTasks]detect.Ref
	for i := range refs {
		if refs[i], err = d.Put(begin, &cpi.Container{ID: fmt.Sprint("elsewhere", i), Job: world.VictimJob,
			Class: cpi.LS}); err != nil {
			return nil, err
		}
	}
	var rows []world.Row
	for k := range learningSamples {
		s.samples = s.samples[:0]
		at := begin.Add(time.Duration(k) * time.Minute)
		for i := range refs {
			if !elsewhere.Step() {
				elsewhere = world.New(quiet, seed+1)
				elsewhere.LikeVictimOf(world.New(kind, seed))
				elsewhere.Step()
			}
			if rows = rowsOf(elsewhere, rows[:0]); rows[0].Job == world.VictimJob {
				s.samples = append(s.samples, detect.Sample{Ref: refs[i], At: at, Usage: rows[0].Usage,
					CPI: rows[0].CPI})
			}
		}
		d.Observe(at, s.samples)
	}
	for i := range refs {
		d.Forget(epoch.Add(-time.Minute/2), fmt.Sprint("elsewhere", i))
	}
	return s, nil
}

func (s *specs) short() bool { return false }

func (s *specs) round(now time.Time, rows []world.Row, _ bool) (orders []order, err error) {
	orders = s.take(orders, s.ticks(now))
	s.samples = s.samples[:0]
	for i := range rows {
		r := &rows[i]
		if _, ok := s.refs[r.Container]; !ok {
			c, err := containerOf(r)
			if err != nil {
				return nil, err
			}
			if s.refs[r.Container], err = s.d.Put(now.Add(-time.Minute/2), c); err != nil {
				return nil, err
			}
		}
		s.seen[r.Container] = now
		s.samples = append(s.samples, detect.Sample{Ref: s.refs[r.Container], At: now, Usage: r.Usage, CPI: r.CPI,
			Misses: 1e6 * r.Caused})
	}
	for _, id := range gone(s.seen, now) {
		orders = s.take(orders, s.d.Forget(now, id))
		delete(s.refs, id)
	}
	return s.take(orders, s.d.Observe(now, s.samples)), nil
}

// ticks does what was due before now.
func (s *specs) ticks(now time.Time) (events []detect.Event) {
	for {
		due, ok := s.d.Next()
		if !ok || !due.Before(now) {
			return events
		}
		for _, e := range s.d.Tick(due) {
			if e.Command != nil {
				c := *e.Command
				e.Command = &c
			}
			events = append(events, e)
		}
	}
}

func (s *specs) take(orders []order, events []detect.Event) []order {
	for _, e := range events {
		if e.Kind != detect.CommandEvent {
			continue
		}
		o := order{container: s.d.Container(e.Command.Container).ID, verdict: true}
		switch e.Command.Kind {
		case detect.DoCap:
			o.cpus, o.counts = float64(e.Command.Milli)/1000, true
			orders = append(orders, o)
		case detect.DoUncap:
			orders = append(orders, o)
		case detect.DoMove, detect.DoRestore, detect.DoEvict:
		}
	}
	return orders
}

func (s *specs) anomalies() uint64 { return s.d.Counters().Anomalies }

// gone lists the containers that were not seen for three minutes, in order, and forgets
// them.
func gone(seen map[string]time.Time, now time.Time) (list []string) {
	for id, at := range seen {
		if now.Sub(at) > 3*time.Minute {
			list = append(list, id)
			delete(seen, id)
		}
	}
	return list
}

// trials is package experiment.
type trials struct {
	d       *experiment.Detector
	coins   *rand.Rand
	refs    map[string]experiment.Ref
	seen    map[string]time.Time
	samples []experiment.Sample
	thrown  []experiment.Thrown
	depths  map[string]float64      // of every job that was seen
	watch   func(*experiment.Event) // sees every event; nil: nobody
}

func newExperiment(cfg experiment.Config, seed uint64) (*trials, error) {
	d, err := experiment.New(cfg)
	if err != nil {
		return nil, err
	}
	return &trials{d: d, coins: rand.New(rand.NewPCG(seed, 0x2545f4914f6cdd1d)), refs: map[string]experiment.Ref{},
		seen: map[string]time.Time{}, depths: map[string]float64{}}, nil
}

func (t *trials) short() bool { return t.d.ShortWindows() }

func (t *trials) round(now time.Time, rows []world.Row, intervals bool) (orders []order, err error) {
	t.samples = t.samples[:0]
	for i := range rows {
		r := &rows[i]
		if _, ok := t.refs[r.Container]; !ok {
			c, err := containerOf(r)
			if err != nil {
				return nil, err
			}
			if t.refs[r.Container], err = t.d.Put(c); err != nil {
				return nil, err
			}
		}
		t.seen[r.Container] = now
		t.samples = append(t.samples, experiment.Sample{Ref: t.refs[r.Container], Usage: r.Usage, CPI: r.CPI})
	}
	for _, id := range gone(t.seen, now) {
		t.d.Forget(id)
		delete(t.refs, id)
	}
	if intervals {
		orders = t.take(nil, t.d.ObserveAfter(1, now, t.samples))
	} else {
		orders = t.take(nil, t.d.Between(now, t.samples))
	}
	t.thrown = t.thrown[:0]
	for _, c := range t.d.Trials() {
		t.thrown = append(t.thrown, experiment.Thrown{Trial: c, On: t.coins.Float64() < c.P})
	}
	orders = t.take(orders, t.d.Throw(t.thrown))
	return t.throttle(orders, rows), nil
}

// take counts verdicts, and throttles every job as its coin says.
func (t *trials) take(orders []order, events []experiment.Event) []order {
	for i := range events {
		e := &events[i]
		if t.watch != nil {
			t.watch(e)
		}
		if e.Kind == experiment.VerdictEvent {
			orders = append(orders, order{job: e.Job, counts: true})
		}
	}
	return orders
}

func (t *trials) throttle(orders []order, rows []world.Row) []order {
	for i := range rows {
		r := &rows[i]
		t.depths[r.Job] = max(t.depths[r.Job], 0.01)
		if milli, _ := t.d.ThrottleOf(t.refs[r.Container]); milli > 0 {
			t.depths[r.Job] = float64(milli) / 1000
		}
	}
	for job, depth := range t.depths {
		o := order{job: job}
		if on, verdict := t.d.Throttled(job); on {
			o.cpus, o.verdict = depth, verdict
		}
		orders = append(orders, o)
	}
	return orders
}

func (t *trials) anomalies() uint64 { return t.d.Counters().Anomalies }
