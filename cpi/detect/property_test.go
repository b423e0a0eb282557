package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

// life is a random machine: victims whose CPI is anything, suspects of every
// class, samples that are lost, late, duplicated and in any order.
type life struct {
	d     *Detector
	now   time.Time
	refs  []Ref
	kinds []cpi.Container
	// steady containers use the same all their life, up to 5 %.
	steady map[Ref]float64
	force  map[Ref]int64
	last   time.Time // analysis
}

func newLife(t *rapid.T, mode Mode) *life {
	cfg := DefaultConfig()
	cfg.Mode, cfg.Enforce = mode, true
	cfg.EvictAfter = rapid.IntRange(0, 3).Draw(t, "evictAfter")
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{d: d, now: epoch, steady: map[Ref]float64{}, force: map[Ref]int64{}}
	n := rapid.IntRange(2, 12).Draw(t, "containers")
	for i := range n {
		c := cpi.Container{
			ID: fmt.Sprint("c", i), Job: fmt.Sprint("j", i%5), Class: cpi.Class(rapid.IntRange(0, 5).Draw(t, "class")),
			Capping:     rapid.SampledFrom([]cpi.Capping{8: cpi.NeverCapped, 9: cpi.CapAllowed}).Draw(t, "capping"),
			LimitMilli:  rapid.SampledFrom([]int64{0, 0, 0, 5, 50, 500}).Draw(t, "limit"),
			MovablePool: rapid.Bool().Draw(t, "movable"),
		}
		c.Place.L3s.Add(i % 2)
		c.Place.Nodes.Add(0)
		ref, err := d.Put(l.now, &c)
		if err != nil {
			t.Fatal(err)
		}
		l.refs, l.kinds = append(l.refs, ref), append(l.kinds, c)
		if rapid.Bool().Draw(t, "steady") {
			l.steady[ref] = rapid.Float64Range(0.3, 20).Draw(t, "level")
		}
	}
	for i := range 5 {
		s := Spec{Job: fmt.Sprint("j", i), Mean: 1.5, StdDev: 0.15, Samples: 1000, Tasks: 10}
		if err := d.SetSpec(l.now, s, l.now.Add(1000*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// check holds what must be true of every answer.
func (l *life) check(t *rapid.T, events []Event) {
	for _, e := range events {
		if e.Kind == AnalysisEvent {
			if !l.last.IsZero() && e.At.Sub(l.last) < time.Second {
				t.Fatalf("two analyses within %v", e.At.Sub(l.last))
			}
			l.last = e.At
			var sure float64
			for _, s := range e.Verdict.Suspects {
				if !(s.Score >= -1 && s.Score <= 1) || !(s.Paper >= -1 && s.Paper <= 1) || !(s.Contrast >= -1 &&
					s.Contrast <= 1) || !(s.Confidence >= 0) {
					t.Fatalf("suspect %+v", s)
				}
				sure += s.Confidence
			}
			if sure > 1+1e-9 {
				t.Fatalf("the suspects are to blame with probability %v", sure)
			}
			if e.Verdict.Why == "" {
				t.Fatalf("a verdict without a reason")
			}
		}
		if e.Kind != CommandEvent {
			continue
		}
		cmd := e.Command
		c := l.d.Container(cmd.Container)
		switch cmd.Kind {
		case DoCap:
			if may, why := c.MayBeCapped(); !may {
				t.Fatalf("%s is capped although it is %s", c.ID, why)
			}
			if v := l.d.Container(cmd.Victim); !v.Class.LatencySensitive() {
				t.Fatalf("%s is capped for %s of class %s", c.ID, v.ID, v.Class)
			}
			if _, ok := l.force[cmd.Container]; ok {
				t.Fatalf("%s is capped twice at a time", c.ID)
			}
			if c.LimitMilli > 0 && cmd.Milli >= c.LimitMilli {
				t.Fatalf("a cap of %dm loosens the limit of %dm", cmd.Milli, c.LimitMilli)
			}
			if left := cmd.Until.Sub(l.now); left <= 0 || left > 5*time.Minute {
				t.Fatalf("a cap for %v", left)
			}
			if _, steady := l.steady[cmd.Container]; steady && l.d.cfg.Mode == Contrast {
				t.Fatalf("the steady %s is capped: %s", c.ID, cmd.Why)
			}
			l.force[cmd.Container] = cmd.Until.UnixNano()
		case DoUncap:
			if _, ok := l.force[cmd.Container]; !ok {
				t.Fatalf("%s is uncapped without a cap", c.ID)
			}
			delete(l.force, cmd.Container)
		case DoMove, DoRestore, DoEvict:
		}
	}
	for ref, until := range l.force {
		if until <= l.now.UnixNano() {
			t.Fatalf("the cap of %s outlives its deadline by %v", l.d.Container(ref).ID,
				time.Duration(l.now.UnixNano()-until))
		}
	}
}

func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, Mode(rapid.IntRange(0, 1).Draw(t, "mode")))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rounds := rapid.IntRange(5, 90).Draw(t, "rounds")
		var backlog []Sample
		phase := false
		for range rounds {
			l.now = l.now.Add(time.Minute)
			if r.IntN(4) == 0 {
				phase = !phase
			}
			samples := slices.Clone(backlog)
			backlog = backlog[:0]
			for i, ref := range l.refs {
				usage := r.Float64() * 4
				if level, ok := l.steady[ref]; ok {
					usage = level * (0.95 + 0.1*r.Float64())
				} else if i%3 == 0 && !phase {
					usage *= 0.05
				}
				s := Sample{Ref: ref, At: l.now, Usage: usage, CPI: 1.5 * math.Exp(0.1*r.NormFloat64()),
					Threads: int32(r.IntN(100))}
				if phase {
					s.CPI *= 2
				}
				switch r.IntN(20) {
				case 0: // lost
				case 1:
					backlog = append(backlog, s)
				case 2:
					samples = append(samples, s, s)
				case 3:
					s.CPI = [...]float64{0, math.NaN(), math.Inf(1), -1, 1e300}[r.IntN(5)]
					samples = append(samples, s)
				default:
					samples = append(samples, s)
				}
			}
			r.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
			l.check(t, l.d.Observe(l.now, samples))
			for k := 0; k < 3; k++ {
				next, ok := l.d.Next()
				if !ok || !next.Before(l.now.Add(time.Minute)) {
					break
				}
				if next.After(l.now) {
					l.now = next
				}
				l.check(t, l.d.Tick(l.now))
			}
			if i := r.IntN(len(l.refs) * 10); i < len(l.refs) {
				ref := l.refs[i]
				c := l.kinds[i]
				l.check(t, l.d.Forget(l.now, c.ID))
				delete(l.force, ref)
				again, err := l.d.Put(l.now, &c)
				if err != nil {
					t.Fatal(err)
				}
				if level, ok := l.steady[ref]; ok {
					// Its start is a change, and may be blamed as one.
					_ = level
					delete(l.steady, ref)
				}
				l.refs[i] = again
			}
		}
	})
}

// TestOrderDoesNotMatter feeds the same rounds in two orders, one of them with
// every sample twice.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
		seed := rapid.Uint64().Draw(t, "seed")
		play := func(twist bool) []string {
			cfg := DefaultConfig()
			cfg.Mode, cfg.Enforce = mode, true
			d, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r, order := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			var refs []Ref
			for i := range 8 {
				ref, err := d.Put(epoch, &cpi.Container{ID: fmt.Sprint("c", i), Job: fmt.Sprint("j", i/2),
					Class: cpi.Class(1 + i%5)})
				if err != nil {
					t.Fatal(err)
				}
				refs = append(refs, ref)
				if i%2 == 0 {
					if err := d.SetSpec(epoch, Spec{Job: fmt.Sprint("j", i/2), Mean: 1.5, StdDev: 0.15, Samples: 1000,
						Tasks: 10}, epoch.Add(time.Hour)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var lines []string
			note := func(events []Event) {
				var round []string
				for _, e := range events {
					line := fmt.Sprint(e.Kind, e.At.Sub(epoch))
					if e.Victim != nil {
						line += e.Victim.ID
					}
					if e.Command != nil {
						line += fmt.Sprint(*e.Command)
					}
					if e.Verdict != nil {
						line += e.Verdict.Why
						for _, s := range e.Verdict.Suspects {
							line += fmt.Sprintf(" %d %.9f %.9f", s.Ref, s.Score, s.Confidence)
						}
					}
					round = append(round, line)
				}
				slices.Sort(round)
				lines = append(lines, round...)
			}
			for minute := 1; minute < 60; minute++ {
				now := epoch.Add(time.Duration(minute) * time.Minute)
				var samples []Sample
				for i, ref := range refs {
					busy := minute/7%2 == i%2
					s := Sample{Ref: ref, At: now, Usage: 0.3 + r.Float64(), CPI: 1.5 * math.Exp(0.1*r.NormFloat64())}
					if busy {
						s.Usage *= 3
					}
					if minute/7%2 == 1 {
						s.CPI *= 2
					}
					samples = append(samples, s)
				}
				if twist {
					samples = append(samples, samples...)
					order.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
				}
				note(d.Observe(now, samples))
				for {
					next, ok := d.Next()
					if !ok || !next.Before(now.Add(time.Minute)) {
						break
					}
					note(d.Tick(next))
				}
			}
			return lines
		}
		one, two := play(false), play(true)
		if !slices.Equal(one, two) {
			for i := range min(len(one), len(two)) {
				if one[i] != two[i] {
					t.Fatalf("line %d: %s\nin another order: %s", i, one[i], two[i])
				}
			}
			t.Fatalf("%d lines and %d", len(one), len(two))
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Config){
		"the sampling period":       func(c *Config) { c.Period = 0 },
		"the minimum usage":         func(c *Config) { c.MinUsage = math.NaN() },
		"sigmas":                    func(c *Config) { c.Sigmas = -1 },
		"the correlation window":    func(c *Config) { c.Window = time.Second },
		"the history":               func(c *Config) { c.History = time.Minute },
		"the least score":           func(c *Config) { c.MinScore = 1.5 },
		"the age weight":            func(c *Config) { c.AgeWeight = 2 },
		"the cap's time":            func(c *Config) { c.CapFor = -time.Minute },
		"at most 4096 are kept":     func(c *Config) { c.Period = 10 * time.Millisecond },
		"the cap of batch contain":  func(c *Config) { c.CapBatchMilli = 0 },
		"caps before eviction":      func(c *Config) { c.EvictAfter = -1 },
		"containers is 0; it must":  func(c *Config) { c.MaxContainers = 0 },
		"the least number of pairs": func(c *Config) { c.MinPairs = 0 },
		"robust sigmas":             func(c *Config) { c.RobustSigmas = 0 },
		"outliers is 0":             func(c *Config) { c.Outliers = 0 },
		"the outlier window":        func(c *Config) { c.OutlierWindow = time.Second },
		"the least confidence":      func(c *Config) { c.MinConfidence = 1.1 },
		"the pause between anal":    func(c *Config) { c.AnalysisPause = -1 },
		"the least number of tasks": func(c *Config) { c.MinTasks = 0 },
		"number of samples a task":  func(c *Config) { c.MinTaskSamples = 0 },
		"the time between specs":    func(c *Config) { c.RespecEvery = 0 },
		"the cap of best-effort":    func(c *Config) { c.CapBEMilli = 0 },
		"the pool move's time":      func(c *Config) { c.MoveFor = c.CapFor - 1 },
		"jobs is 0; it must":        func(c *Config) { c.MaxJobs = 0 },
	} {
		c := DefaultConfig()
		edit(&c)
		if _, err := New(c); err == nil || !containsText(err, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func containsText(err error, text string) bool { return strings.Contains(err.Error(), text) }

func TestContainersAreBounded(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxContainers, cfg.MaxJobs = 3, 2
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	put := func(i int) error {
		_, err := d.Put(epoch.Add(time.Duration(i)*time.Second), &cpi.Container{ID: fmt.Sprint(i), Job: fmt.Sprint(i)})
		return err
	}
	for i := range 3 {
		if err := put(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(3); err == nil || !containsText(err, "3 containers are followed already") {
		t.Errorf("a fourth container: %v", err)
	}
	d.Forget(epoch.Add(time.Minute), "1")
	if err := put(3); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	for i := range 1000 {
		d.Forget(epoch.Add(time.Minute), fmt.Sprint(i+3))
		if err := put(i + 4); err != nil {
			t.Fatal(err)
		}
	}
	// The place is that of the one that ended first.
	for i, id := range []string{"0", "2", "1003"} {
		d.Forget(epoch.Add(time.Hour-time.Duration(i%2)*time.Minute), id)
	}
	if err := put(2000); err != nil || d.all[2].ID != "2000" {
		t.Errorf("%v: the place of the one that ended first holds %+v", err, d.all[2].Container)
	}
	if len(d.jobs) > 4 || len(d.all) > 3 || len(d.byID) > 3 {
		t.Errorf("%d jobs, %d containers, %d names", len(d.jobs), len(d.all), len(d.byID))
	}
}

// Of the jobs without containers the one seen least recently makes room.
func TestJobsAreBounded(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxJobs = 3 })
	b.put(cpi.Container{ID: "v", Job: "runs", Class: cpi.LS})
	for _, job := range []string{"first", "second", "third", "fourth"} {
		b.now = b.now.Add(time.Minute)
		b.spec(job, 1, 0.1)
	}
	for job, want := range map[string]bool{"runs": true, "first": false, "second": false, "third": true,
		"fourth": true} {
		if _, known := b.d.jobs[jobKey{job, ""}]; known != want {
			t.Errorf("%s is known: %t, want %t", job, known, want)
		}
	}
}

// A container that ended is a suspect while a window reaches back to its end; then its
// place is free, and the next holder inherits nothing.
func TestContainersThatEndedAreForgotten(t *testing.T) {
	b := newBench(t, nil)
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	old := b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	b.spec("victim", 1, 0.1)
	b.minute(map[string]reading{"v": {1, 1}, "a": {usage: 3}})
	b.note(b.d.Forget(b.now, "a"))
	if v := b.blame("v", map[string]float64{"a": 0.99}); v.Kind != Observe ||
		!strings.Contains(v.Why, "a (a) is gone") {
		t.Errorf("who ended: %s: %s", v.Kind, v.Why)
	}
	b.tick(time.Hour)
	if b.d.ended != 1 || !b.d.all[old].live {
		t.Error("it is forgotten while a window reaches back to it")
	}
	b.tick(time.Nanosecond)
	if b.d.ended != 0 || b.d.all[old].live {
		t.Error("it is not forgotten")
	}
	if ref := b.put(cpi.Container{ID: "b", Job: "b", Class: cpi.BE}); ref != old || b.d.all[ref].window.n != 0 ||
		len(b.d.all) != 2 {
		t.Errorf("the next container is %d of %d, with %d samples", ref, len(b.d.all), b.d.all[ref].window.n)
	}
}
