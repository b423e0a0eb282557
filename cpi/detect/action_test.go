package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// blame makes the detector decide as if an analysis had given these scores.
func (b *bench) blame(victim string, scores map[string]float64) *Verdict {
	b.t.Helper()
	b.d.clear()
	b.d.now = b.now.UnixNano()
	v := Verdict{Victim: b.refs[victim], At: b.now}
	for id, score := range scores {
		v.Suspects = append(v.Suspects, Suspect{Ref: b.refs[id], Score: score, Paper: score, Pairs: 10, Contrast: 0.5,
			Confidence: score})
	}
	slices.SortFunc(v.Suspects, func(a, b Suspect) int {
		if a.Score > b.Score {
			return -1
		}
		return 1
	})
	b.d.decide(&v)
	b.note(b.d.events)
	return &v
}

func (b *bench) want(lines ...string) {
	b.t.Helper()
	var got []string
	for _, line := range b.log {
		for _, word := range []string{"cap ", "uncap ", "move-pool ", "restore-pool ", "evict "} {
			if strings.HasPrefix(line, word) {
				got = append(got, line)
			}
		}
	}
	if !slices.Equal(got, lines) {
		b.t.Errorf("commands and outcomes %q, want %q", got, lines)
	}
}

func classic(c *Config) { c.Mode = Classic }

func cast(t testing.TB, edit func(*Config), suspects ...cpi.Container) *bench {
	t.Helper()
	b := newBench(t, edit)
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.spec("victim", 1, 0.1) // T = 1.2
	for _, c := range suspects {
		b.put(c)
	}
	return b
}

func TestScoreThatSuffices(t *testing.T) { // A1
	for score, want := range map[float64]VerdictKind{0.349: None, 0.35: Cap} {
		b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
		if v := b.blame("v", map[string]float64{"a": score}); v.Kind != want {
			t.Errorf("score %v: %s, want %s", score, v.Kind, want)
		}
	}
}

func TestCapLevels(t *testing.T) { // A2
	for class, want := range map[cpi.Class]string{cpi.BE: "cap a 10m", cpi.Batch: "cap a 100m"} {
		b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: class})
		b.blame("v", map[string]float64{"a": 0.5})
		b.want(want)
	}
}

func TestCapEnds(t *testing.T) { // A3
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	b.blame("v", map[string]float64{"a": 0.5})
	next, ok := b.d.Next()
	if !ok || next.Sub(b.now) != 5*time.Minute {
		t.Fatalf("the next tick is wanted at %v, %v; want in five minutes", next, ok)
	}
	if force := b.d.InForce(); len(force) != 1 || force[0].Milli != 10 || !force[0].Until.Equal(next) {
		t.Errorf("in force: %+v", force)
	}
	b.tick(5*time.Minute - time.Nanosecond)
	b.want("cap a 10m")
	b.tick(time.Nanosecond)
	b.want("cap a 10m", "cap of a for v: unknown", "uncap a")
	if _, ok := b.d.Next(); ok || len(b.d.InForce()) != 0 {
		t.Error("something is still in force")
	}
}

func TestFailureThenNextSuspect(t *testing.T) { // A5
	scores := map[string]float64{"a": 0.6, "b": 0.5}
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
		cpi.Container{ID: "b", Job: "b", Class: cpi.BE})
	bad := func() {
		for range 5 {
			b.now = b.now.Add(time.Minute)
			b.d.Observe(b.now, []Sample{{Ref: b.refs["v"], At: b.now, Usage: 1, CPI: 3}})
			b.note(b.d.events)
			b.d.queue, b.d.all[b.refs["v"]].queued = nil, false
		}
		b.log = slices.DeleteFunc(b.log, func(s string) bool { return !strings.Contains(s, "cap ") })
	}
	bad()
	for range 3 {
		b.blame("v", scores)
		bad()
	}
	b.want("cap a 10m", "cap of a for v: failure", "uncap a", "cap b 10m", "cap of b for v: failure", "uncap b",
		"cap a 10m", "cap of a for v: failure", "uncap a")
	b.log = nil
	b.now = b.now.Add(40 * time.Minute)
	b.blame("v", scores)
	b.tick(5 * time.Minute)
	b.now = b.now.Add(16 * time.Minute)
	b.blame("v", scores)
	b.want("cap b 10m", "cap of b for v: unknown", "uncap b", "cap a 10m")
}

func TestObserving(t *testing.T) { // A6
	b := cast(t, func(c *Config) {
		c.Enforce = false
		c.Mode = Classic
	}, cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	v := b.blame("v", map[string]float64{"a": 0.6})
	b.want()
	if v.Kind != Observe || !strings.HasPrefix(v.Why, "observing, a cap would follow: a ") || len(v.Antagonists) != 1 {
		t.Errorf("verdict %+v", v)
	}
}

func TestTighterLimitsStay(t *testing.T) { // A7
	for limit, want := range map[int64][]string{10: nil, 5: nil, 11: {"cap a 10m"}, 0: {"cap a 10m"}} {
		b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE, LimitMilli: limit})
		b.blame("v", map[string]float64{"a": 0.6})
		b.want(want...)
	}
	// What has proved to be enough for the pair is more than what is configured.
	for limit, want := range map[int64][]string{0: {"cap a 200m"}, 201: {"cap a 200m"}, 200: nil, 150: nil} {
		b := cast(t, nil, cpi.Container{ID: "a", Job: "a", Class: cpi.BE, LimitMilli: limit})
		key := PairKey{Victim: "victim", Antagonist: "a"}
		b.d.pairs.known[key] = &Pair{PairKey: key, Level: 200}
		b.blame("v", map[string]float64{"a": 0.99})
		b.want(want...)
	}
}

func TestTwoVictims(t *testing.T) { // A9
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
		cpi.Container{ID: "w", Job: "victim", Class: cpi.LSR})
	b.blame("v", map[string]float64{"a": 0.6})
	v := b.blame("w", map[string]float64{"a": 0.5})
	if v.Kind != Observe || !strings.Contains(v.Why, "a (a) is capped already, for v") {
		t.Errorf("verdict for the second victim: %+v", v)
	}
	for range 5 {
		b.minute(map[string]reading{"v": {1, 1}, "w": {1, 1}})
	}
	b.want("cap a 10m", "cap of a for v: success", "cap of a for w: success", "uncap a")
	if p := b.d.pairs.of(b.d.Container(b.refs["w"]), b.d.Container(b.refs["a"])); p == nil || p.Success != 2 {
		t.Errorf("the pair is remembered as %+v", p)
	}
}

// A cap is one trial, however many containers of a job it was to help: what disturbs all of
// them at once, a noisy host, does not block the pair for an hour after one cap.
func TestOneCapIsOneFailureOfAJob(t *testing.T) {
	for name, c := range map[string]struct {
		v, w    float64 // CPI under the cap
		row     int
		blocked bool // after a second such cap
	}{
		"fails both":       {3, 3, 1, true},
		"helps the second": {3, 1, 0, false},
		"helps the first":  {1, 3, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
				cpi.Container{ID: "w", Job: "victim", Class: cpi.LSR})
			try := func() *Pair {
				b.blame("v", map[string]float64{"a": 0.6})
				b.blame("w", map[string]float64{"a": 0.5})
				for range 5 {
					b.now = b.now.Add(time.Minute)
					for id, is := range map[string]float64{"v": c.v, "w": c.w} {
						b.d.Observe(b.now, []Sample{{Ref: b.refs[id], At: b.now, Usage: 1, CPI: is}})
						b.d.queue, b.d.all[b.refs[id]].queued = nil, false
					}
				}
				b.tick(time.Hour - failuresInRow*10*time.Minute)
				return b.d.pairs.of(b.d.Container(b.refs["v"]), b.d.Container(b.refs["a"]))
			}
			if p := try(); p == nil || p.Row != c.row || !p.Blocked.IsZero() {
				t.Fatalf("after one cap: %+v, want %d failures in a row and nothing blocked", p, c.row)
			}
			if p := try(); !p.Blocked.IsZero() != c.blocked {
				t.Errorf("after two caps: %+v, want blocked: %v", p, c.blocked)
			}
		})
	}
}

// The second victim's own first suspect comes before a cap that is in force for another.
func TestTwoVictimsOfTwo(t *testing.T) {
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
		cpi.Container{ID: "b", Job: "b", Class: cpi.BE},
		cpi.Container{ID: "w", Job: "victim", Class: cpi.LSR})
	b.blame("v", map[string]float64{"a": 0.6})
	b.blame("w", map[string]float64{"b": 0.6, "a": 0.5})
	b.want("cap a 10m", "cap b 10m")
}

func TestWhoMayBeCapped(t *testing.T) { // P1, P7
	b := cast(t, classic,
		cpi.Container{ID: "video", Job: "video", Class: cpi.Batch},
		cpi.Container{ID: "digitizing", Job: "digitizing", Class: cpi.LS},
		cpi.Container{ID: "images", Job: "images", Class: cpi.LS},
		cpi.Container{ID: "tablet", Job: "tablet", Class: cpi.LSR},
		cpi.Container{ID: "storage", Job: "storage", Class: cpi.LSE})
	v := b.blame("v", map[string]float64{"video": .46, "digitizing": .44, "images": .43, "tablet": .39, "storage": .39})
	b.want("cap video 100m")
	if len(v.Suspects) != 5 {
		t.Errorf("%d suspects are told, want all 5", len(v.Suspects))
	}

	b = cast(t, classic, cpi.Container{ID: "frontend", Job: "frontend", Class: cpi.LS},
		cpi.Container{ID: "batch", Job: "batch", Class: cpi.Batch})
	if v := b.blame("batch", map[string]float64{"frontend": 0.9}); v.Kind != Observe ||
		!strings.Contains(v.Why, "the victim is of class BATCH") {
		t.Errorf("a batch victim: %+v", v)
	}
	if v := b.blame("v", map[string]float64{"frontend": 0.9}); v.Kind != Observe ||
		!strings.Contains(v.Why, "frontend (frontend) is of class LS") {
		t.Errorf("an LS antagonist: %+v", v)
	}
	b.want()

	b = cast(t, classic, cpi.Container{ID: "in", Job: "in", Class: cpi.LS, Capping: cpi.CapAllowed},
		cpi.Container{ID: "out", Job: "out", Class: cpi.BE, Capping: cpi.NeverCapped})
	b.blame("v", map[string]float64{"in": 0.5, "out": 0.9})
	b.want("cap in 100m")
}

// Containers of no job are not members of one.
func TestSuspectsWithoutAJob(t *testing.T) {
	b := cast(t, nil, cpi.Container{ID: "a", Class: cpi.Batch}, cpi.Container{ID: "b", Class: cpi.Batch})
	b.blame("v", map[string]float64{"a": 0.5, "b": 0.49})
	b.want()
	b.blame("v", map[string]float64{"a": 0.98, "b": 0.01})
	b.want("cap a 100m")
}

// loop lets a victim suffer while an antagonist runs uncapped.
func loop(b *bench, minutes int, free, capped float64) {
	for range minutes {
		usage, cpi := 3.0, free
		for _, c := range b.d.InForce() {
			if c.Kind == DoCap {
				usage, cpi = 0.01, capped
			}
		}
		b.minute(map[string]reading{"v": {1, cpi}, "a": {usage: usage}})
	}
}

func TestRecurrence(t *testing.T) { // P2: score 0.36
	b := newBench(t, classic)
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	b.spec("victim", 1.08, 0.1)
	var scores []float64
	for range 21 {
		before := b.count("cap a ")
		loop(b, 1, 2, 1)
		if b.count("cap a ") > before {
			scores = append(scores, lastOf(b, AnalysisEvent).Verdict.Score)
		}
	}
	b.want("cap a 10m", "cap of a for v: success", "uncap a", "cap a 10m", "cap of a for v: success", "uncap a")
	if len(scores) < 2 || math.Abs(scores[0]-0.36) > 1e-9 {
		t.Errorf("the caps' scores are %v, want 0.36 first", scores)
	}
	o := lastOf(b, OutcomeEvent)
	if got := o.Outcome; got.Before < 1.5 || got.After > 0.9 || got.Samples != 5 {
		t.Errorf("outcome %+v", got)
	}
}

func TestPartialHelp(t *testing.T) { // P4
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.Batch},
		cpi.Container{ID: "b", Job: "b", Class: cpi.Batch},
		cpi.Container{ID: "ls", Job: "ls", Class: cpi.LS})
	scores := map[string]float64{"ls": 0.6, "a": 0.5, "b": 0.45}
	for range 3 {
		b.minute(map[string]reading{"v": {1, 1.6}})
	}
	b.blame("v", scores)
	for range 5 {
		b.minute(map[string]reading{"v": {1, 1.3}})
	}
	b.blame("v", scores)
	b.want("cap a 100m", "cap of a for v: partial", "uncap a", "cap b 100m")
}

func TestAntagonistThatEnds(t *testing.T) { // P6
	b := newBench(t, classic)
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	b.spec("victim", 1.08, 0.1)
	loop(b, 17, 2, 1)
	b.want("cap a 10m", "cap of a for v: success", "uncap a", "cap a 10m")
	b.note(b.d.Forget(b.now, "a"))
	b.want("cap a 10m", "cap of a for v: success", "uncap a", "cap a 10m", "cap of a for v: gone")
	if _, ok := b.d.Next(); ok || len(b.d.InForce()) != 0 {
		t.Error("the cap of a container that ended is still in force")
	}
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	if may := b.d.whyNotActed(&b.d.all[b.refs["v"]], &b.d.all[b.refs["a"]], true); may != "" {
		t.Errorf("its successor is spared: %s", may)
	}
}

func TestVictimThatEnds(t *testing.T) {
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	b.blame("v", map[string]float64{"a": 0.5})
	b.note(b.d.Forget(b.now, "v"))
	b.want("cap a 10m", "uncap a")
}

func TestOneOfTwoVictimsEnds(t *testing.T) {
	b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE},
		cpi.Container{ID: "w", Job: "victim", Class: cpi.LSR})
	b.blame("v", map[string]float64{"a": 0.6})
	b.blame("w", map[string]float64{"a": 0.5})
	b.note(b.d.Forget(b.now, "v"))
	if force := b.d.InForce(); len(force) != 1 || force[0].Victim != b.refs["w"] {
		t.Errorf("in force for the victim that is left: %+v", force)
	}
	for range 5 {
		b.minute(map[string]reading{"w": {1, 1}})
	}
	b.want("cap a 10m", "cap of a for w: success", "uncap a")
}

func TestEarlyRelease(t *testing.T) {
	b := cast(t, nil, cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
	for range 3 {
		b.minute(map[string]reading{"v": {1, 2}})
	}
	b.blame("v", map[string]float64{"a": 0.99})
	for range 3 {
		b.minute(map[string]reading{"v": {1, 2}})
	}
	b.want("cap a 100m", "cap of a for v: failure", "uncap a")
}

func TestAdaptiveLevel(t *testing.T) {
	b := cast(t, nil, cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
	round := func(before, after float64) {
		for range 3 {
			b.minute(map[string]reading{"v": {1, before}})
		}
		b.blame("v", map[string]float64{"a": 0.99})
		for range 5 {
			b.minute(map[string]reading{"v": {1, after}})
		}
		b.now = b.now.Add(20 * time.Minute)
	}
	round(2, 1)    // more than enough: ease
	round(2, 1)    // still
	round(2, 1.15) // just enough: keep
	round(2, 1.4)  // not enough: tighten
	round(2, 1)
	var caps []string
	for _, line := range b.log {
		if strings.HasPrefix(line, "cap a") {
			caps = append(caps, line)
		}
	}
	if want := []string{"cap a 100m", "cap a 200m", "cap a 400m", "cap a 400m", "cap a 200m"}; !slices.Equal(caps,
		want) {
		t.Errorf("%q, want %q", caps, want)
	}
}

// How much was more than enough is measured where the victim runs: in a band of usage
// where it varies a lot, halfway to the threshold is farther than in an even one.
func TestAdaptiveLevelByTheVictimsBand(t *testing.T) {
	for _, c := range []struct {
		usage, after float64
		want         string
	}{
		{1, 1.5, "cap a 100m"}, // normal is 1, the threshold 1.96: nearer to that
		{1, 1.3, "cap a 200m"},
		{0.3, 1.03, "cap a 100m"}, // the threshold is 1.046
		{0.3, 1.01, "cap a 200m"},
	} {
		b := newBench(t, nil)
		b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
		b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
		spec := Spec{
			Job: "victim", Mean: 1, StdDev: 0.2, Samples: 2000, Tasks: 10,
			Bands: []BandSpec{{Band: 0, Samples: 1000, Median: 1, LogSD: 0.02},
				{Band: 2, Samples: 1000, Median: 1, LogSD: 0.3}},
		}
		if err := b.d.SetSpec(b.now, spec, b.now.Add(100*time.Hour)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for range 3 {
				b.minute(map[string]reading{"v": {c.usage, 4}})
			}
			b.blame("v", map[string]float64{"a": 0.99})
			for range 5 {
				b.minute(map[string]reading{"v": {c.usage, c.after}})
			}
			b.now = b.now.Add(20 * time.Minute)
		}
		b.want("cap a 100m", "cap of a for v: success", "uncap a", c.want, "cap of a for v: success", "uncap a")
	}
}

func TestPoolMovesFirst(t *testing.T) {
	for _, c := range []struct {
		name  string
		after float64
		want  []string
	}{
		{"it helps", 1, []string{"move-pool v", "move-pool of a for v: success", "restore-pool v"}},
		{"it does not", 2, []string{"move-pool v", "move-pool of a for v: failure", "restore-pool v", "cap a 10m"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, nil)
			var l3 cpi.Domains
			l3.Add(3)
			b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LSR, Place: cpi.Place{L3s: l3}, MovablePool: true})
			b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE, Place: cpi.Place{L3s: l3}})
			b.spec("victim", 1, 0.1)
			for range 3 {
				b.minute(map[string]reading{"v": {1, 2}})
			}
			b.blame("v", map[string]float64{"a": 0.99})
			if force := b.d.InForce(); len(force) != 1 || !force[0].Until.Equal(b.now.Add(30*time.Minute)) {
				t.Errorf("in force: %+v; want what was commanded", force)
			}
			for range 5 {
				b.minute(map[string]reading{"v": {1, c.after}})
			}
			if c.after > 1 {
				b.blame("v", map[string]float64{"a": 0.99})
			} else {
				b.tick(24*time.Minute + 59*time.Second)
				if len(b.d.InForce()) != 1 {
					t.Error("a move that helped is undone before its time")
				}
				b.tick(time.Second)
			}
			b.want(c.want...)
		})
	}
}

// The pool moves where that takes every suspect away from the victim, and where it has
// not been in vain; otherwise they are capped.
func TestWhenThePoolMoves(t *testing.T) {
	domain := func(i int) cpi.Place { var d cpi.Domains; d.Add(i); return cpi.Place{L3s: d} }
	key := PairKey{Victim: "victim", Antagonist: "a"}
	for name, c := range map[string]struct {
		edit func(victim, suspect *cpi.Container, d *Detector)
		move bool
	}{
		"both in one domain":         {func(*cpi.Container, *cpi.Container, *Detector) {}, true},
		"the pool has nowhere to go": {func(v, _ *cpi.Container, _ *Detector) { v.MovablePool = false }, false},
		"classic mode":               {func(_, _ *cpi.Container, d *Detector) { d.cfg.Mode = Classic }, false},
		"the suspect is in another":  {func(_, s *cpi.Container, _ *Detector) { s.Place = domain(2) }, false},
		"the suspect is not in the pool": {func(_, s *cpi.Container, _ *Detector) {
			s.Class, s.Capping = cpi.LS, cpi.CapAllowed
		}, false},
		"in vain moments ago": {func(_, _ *cpi.Container, d *Detector) {
			d.pairs.known[key] = &Pair{PairKey: key, Moved: epoch.Add(-blockFor + 1)}
		}, false},
		"in vain an hour ago": {func(_, _ *cpi.Container, d *Detector) {
			d.pairs.known[key] = &Pair{PairKey: key, Moved: epoch.Add(-blockFor)}
		}, true},
		"moved away for another victim": {func(_, _ *cpi.Container, d *Detector) {
			d.actions[0].parties[0].victim = d.byID["same"]
		}, false},
		"moved away from another domain": {func(_, _ *cpi.Container, d *Detector) {
			d.actions[0].parties[0].victim = d.byID["other"]
		}, true},
		"another is capped in the domain": {func(_, _ *cpi.Container, d *Detector) {
			d.actions[0].kind, d.actions[0].parties[0].victim = DoCap, d.byID["same"]
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			for id, l3 := range map[string]int{"same": 1, "other": 2, "x": 2} {
				b.put(cpi.Container{ID: id, Job: id, Class: cpi.LS, Place: domain(l3)})
			}
			b.d.actions = []action{{kind: DoMove, antagonist: b.refs["x"], until: math.MaxInt64,
				parties: []party{{victim: b.refs["other"]}}}}
			v := cpi.Container{ID: "v", Job: "victim", Class: cpi.LS, Place: domain(1), MovablePool: true}
			a := cpi.Container{ID: "a", Job: "a", Class: cpi.Batch, Place: domain(1)}
			c.edit(&v, &a, b.d)
			b.put(v)
			b.put(a)
			b.spec("victim", 1, 0.1)
			b.blame("v", map[string]float64{"a": 0.99})
			b.want(map[bool]string{true: "move-pool v", false: "cap a 100m"}[c.move])
		})
	}
}

func TestEvictionAfterCaps(t *testing.T) {
	for _, c := range []struct {
		n    int
		each time.Duration // a cap
		want int           // evictions requested after four caps
	}{
		{0, 10 * time.Minute, 0},
		{2, 10 * time.Minute, 1}, // once an hour
		{2, time.Hour, 2},
		{2, 12 * time.Hour, 2},
		{2, 12*time.Hour + time.Second, 0}, // the first of two is more than a day ago
		{3, 10 * time.Minute, 1},
		{4, 10 * time.Minute, 0},
	} {
		b := cast(t, func(cfg *Config) {
			cfg.EvictAfter = c.n
			cfg.Mode = Classic
		}, cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
		for range 4 {
			b.blame("v", map[string]float64{"a": 0.5})
			b.tick(5 * time.Minute)
			b.now = b.now.Add(c.each - 5*time.Minute)
		}
		if got := b.count("evict a"); got != c.want || b.count("cap a") != 4 {
			t.Errorf("EvictAfter %d, a cap every %v: %d evictions wished of %d caps, want %d of 4", c.n, c.each, got,
				b.count("cap a"), c.want)
		}
	}
}

func TestEvictionsAfterAClockThatWentBack(t *testing.T) {
	b := cast(t, func(c *Config) {
		c.EvictAfter = 1
		c.Mode = Classic
	}, cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
	for range 2 {
		for range 2 {
			b.blame("v", map[string]float64{"a": 0.5})
			b.tick(10 * time.Minute)
		}
		b.tick(-24 * time.Hour)
	}
	if got := b.count("evict a"); got != 2 {
		t.Errorf("%d evictions wished, want one before the step and one after: %q", got, b.log)
	}
}

// Harm is a growth of the threads to four times as many, and by 16 at least: a few more
// are what programs do.
func TestGrowthThatIsHarm(t *testing.T) {
	for _, c := range []struct {
		before, after int32
		late          time.Duration // reported this late
		want          bool
	}{
		{before: 3, after: 18},
		{before: 3, after: 19, want: true},
		{before: 8, after: 31},
		{before: 8, after: 32, want: true},
		{before: 0, after: 1000}, // what it had before is not known
		{before: 8, after: 32, late: 10 * time.Minute},
	} {
		b := cast(t, classic, cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
		feed := func(threads int32, late time.Duration) {
			b.now = b.now.Add(time.Minute)
			ref := b.refs["a"]
			b.note(b.d.Observe(b.now, []Sample{{Ref: ref, At: b.now.Add(-late), Usage: 0.1, Threads: threads}}))
		}
		feed(c.before, 0)
		b.blame("v", map[string]float64{"a": 0.5})
		feed(c.after, c.late)
		if harm := b.count("cap of a for v: harm") == 1; harm != c.want || b.count("uncap a") == 1 != c.want {
			t.Errorf("%d threads, then %d, told %v late: harm %t, want %t: %q", c.before, c.after, c.late, harm,
				c.want, b.log)
		}
	}
}

func TestFellowVictims(t *testing.T) {
	b := newBench(t, nil)
	for _, id := range []string{"v", "w", "x"} {
		b.put(cpi.Container{ID: id, Job: "victim", Class: cpi.LS})
	}
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
	b.put(cpi.Container{ID: "b", Job: "b", Class: cpi.Batch})
	b.spec("victim", 1.8, 0.16)
	for k, c := range paperCPI {
		// The victims work longer while they are disturbed: that is no cause.
		r := reading{1 * c / 1.8, c}
		b.minute(map[string]reading{"v": r, "w": r, "x": r, "a": {usage: guilty[k]}, "b": {usage: 1}})
	}
	if b.count("cap a") != 1 || b.count("cap ") != 1+b.count("cap of") {
		t.Errorf("want one cap, of a: %q", b.log)
	}
	for _, s := range lastOf(b, AnalysisEvent).Verdict.Suspects {
		if c := b.d.Container(s.Ref); c.Class == cpi.LS && s.Confidence != 0 {
			t.Errorf("%s suffers too, and is to blame with a probability of %v", c.ID, s.Confidence)
		}
	}
}

// What victims of one place have in common is analysed: up to four besides the one in
// question, each of which is protected, suffers now and suffered at the same times.
func TestVictimsThatAreAveraged(t *testing.T) {
	ill := []float64{1, 1, 1, 2, 2, 1, 1, 2, 2, 2}
	for name, c := range map[string]struct {
		others int
		edit   func(*cpi.Container)
		cpi    func(i int, cpi float64) float64 // of the others
		want   float64                          // mean logarithm of the CPI in the last sample
	}{
		"alone":             {0, nil, nil, math.Log(2)},
		"one":               {1, nil, nil, 1.5 * math.Log(2)},
		"four":              {4, nil, nil, 1.8 * math.Log(2)},
		"no more than four": {7, nil, nil, 1.8 * math.Log(2)},
		"not protected":     {1, func(c *cpi.Container) { c.Class = cpi.Batch }, nil, math.Log(2)},
		"elsewhere":         {1, func(c *cpi.Container) { c.Place.L3s = cpi.Domains{2} }, nil, math.Log(2)},
		"at other times": {1, nil, func(i int, cpi float64) float64 {
			return []float64{4, 4, 4, 1, 1, 4, 4, 4, 4, 4}[i]
		}, math.Log(2)},
		"well again": {1, nil, func(i int, cpi float64) float64 {
			return map[bool]float64{true: cpi, false: 1}[i < 7]
		}, math.Log(2)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.AnalysisPause = time.Hour })
			b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS, Place: cpi.Place{L3s: cpi.Domains{1}}})
			for i := range c.others {
				other := cpi.Container{ID: fmt.Sprint("w", i), Job: "victim", Class: cpi.LS,
					Place: cpi.Place{L3s: cpi.Domains{1}}}
				if c.edit != nil {
					c.edit(&other)
				}
				b.put(other)
			}
			b.spec("victim", 1, 0.02)
			for i, cpi := range ill {
				round := map[string]reading{"v": {cpi, cpi}} // as many instructions a second, always
				for k := range c.others {
					theirs := cpi * cpi
					if c.cpi != nil {
						theirs = c.cpi(i, cpi)
					}
					round[fmt.Sprint("w", k)] = reading{theirs, theirs}
				}
				b.minute(round)
			}
			b.d.work.reset()
			b.d.loadVictim(queuedAnomaly{victim: b.refs["v"], at: b.now.UnixNano()})
			if got := b.d.work.y[len(ill)-1]; math.Abs(got-c.want) > 1e-3 {
				t.Errorf("the residual is %.4f, want %.4f", got, c.want)
			}
		})
	}
}

func TestWhatSufficesForBlame(t *testing.T) {
	for _, c := range []struct {
		mode            Mode
		pairs           int
		score, contrast float64
		want            bool
	}{
		{Contrast, 6, 0.35, 0.2, true},
		{Contrast, 5, 0.35, 0.2, false},
		{Contrast, 6, 0.349, 0.2, false},
		{Contrast, 6, 0.35, 0.199, false},
		{Classic, 6, 0.35, 0, true},
		{Classic, 5, 0.35, 0, false},
		{Classic, 6, 0.349, 0, false},
	} {
		b := newBench(t, func(cfg *Config) { cfg.Mode = c.mode })
		if got := b.d.blameable(&Suspect{Pairs: c.pairs, Score: c.score, Contrast: c.contrast}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// A container that suffers like the victim uses more CPU time for the same work: it is no
// antagonist. One that does more work is, and so is one that saturates the memory.
func TestWorkIsHeldAgainstSuspectsAndNotTime(t *testing.T) {
	for name, c := range map[string]struct {
		suspect func(k int, slow float64) Sample
		caps    int
	}{
		"disturbed too": {func(_ int, slow float64) Sample { return Sample{Usage: 0.5 * slow, CPI: slow} }, 0},
		"disturbed, at random": {func(k int, slow float64) Sample {
			return Sample{Usage: 0.5 * slow * (1 + 0.02*float64(k%5)), CPI: slow}
		}, 0},
		"no CPI is known": {func(_ int, slow float64) Sample { return Sample{Usage: 0.5 * slow} }, 1},
		"it does more": {func(_ int, slow float64) Sample {
			return Sample{Usage: 0.5 * slow * slow, CPI: slow / 2}
		}, 1},
		"it misses more": {func(_ int, slow float64) Sample {
			return Sample{Usage: 0.5 * slow, CPI: slow, Misses: 1e6 * slow * slow}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
			b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
			b.spec("victim", 1, 0.1)
			for k := range 40 {
				slow := 1 + 0.01*float64(k%3)
				if k/5%2 == 1 {
					slow *= 2
				}
				b.now = b.now.Add(time.Minute)
				s := c.suspect(k, slow)
				s.Ref, s.At = b.refs["a"], b.now
				b.note(b.d.Observe(b.now, []Sample{{Ref: b.refs["v"], At: b.now, Usage: 1, CPI: slow}, s}))
				if b.count("cap a") > 0 {
					break
				}
			}
			if got := b.count("cap a"); got != c.caps {
				t.Errorf("%d caps, want %d: %q", got, c.caps, b.log)
			}
		})
	}
}
