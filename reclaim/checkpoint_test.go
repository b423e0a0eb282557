package reclaim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sampled enters random samples at random cells.
func sampled(t *rapid.T, w *window, from uint32, s span, label string) uint32 {
	n := rapid.IntRange(0, 60).Draw(t, label+" samples")
	regular := rapid.Bool().Draw(t, label+" regular")
	for range n {
		if from++; !regular {
			from += uint32(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 5, 20}).Draw(t,
				"gap")) - uint32(rapid.IntRange(0, 1).Draw(t, "same"))
		}
		w.expire(from, s)
		w.add(from, rapid.OneOf(rapid.SampledFrom([]float64{0, 0.1, 0.25, 0.5, 1, 2, 4}),
			rapid.Float64Range(0, 4)).Draw(t, "use"), 10, s)
	}
	return from
}

// I6: a rebuilt window never turns a pod idle that is not, neither at once nor
// later, whatever comes in: of the samples in the rebuilt window at least as many
// are large, and no more are small, at every moment.
func TestRebuiltWindowsOverestimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := spanOf(uint32(rapid.IntRange(2, 40).Draw(t, "length")))
		cfg := Default()
		cfg.Idle.Percentile = float64(rapid.IntRange(50, 100).Draw(t, "percentile"))
		e := &Estimator{cfg: cfg}
		var truth window
		now := sampled(t, &truth, 1, s, "before")
		p := PodCheckpoint{ID: "a", Runs: runsOf(truth.all()), First: truth.first}
		if truth.count() > 0 {
			for _, percent := range e.points() {
				p.Points = append(p.Points, Point{percent, shortest(truth.percentile(percent, hole{}))})
			}
		}
		rebuilt, err := rebuild(p, now, s)
		if err != nil {
			t.Fatal(err)
		}
		if rebuilt.count() != truth.count() {
			t.Fatalf("rebuilt %v from %v", rebuilt, truth)
		}
		for _, p := range p.Points { // at first it is no more careful than it has to be
			if got, want := rebuilt.percentile(p[0], hole{}), truth.percentile(p[0], hole{}); got != want {
				t.Fatalf("p%v is %v rebuilt, %v in truth: %v from %v", p[0], got, want, rebuilt, truth)
			}
		}
		for range rapid.IntRange(0, 80).Draw(t, "after") {
			now += uint32(rapid.SampledFrom([]int{0, 0, 1, 1, 1, 2, 7}).Draw(t, "step"))
			truth.expire(now, s)
			rebuilt.expire(now, s)
			if rapid.IntRange(0, 9).Draw(t, "missing") > 0 {
				use := rapid.OneOf(rapid.SampledFrom([]float64{0, 0.1, 0.3, 1, 4}), rapid.Float64Range(0, 4)).Draw(t,
					"use")
				truth.add(now, use, 10, s)
				rebuilt.add(now, use, 10, s)
			}
			for _, level := range []float64{0.05, 0.1, 0.2, 0.4, 0.8, 3} {
				if small(&rebuilt, level) > small(&truth, level) || large(&rebuilt, level) < large(&truth, level) {
					t.Fatalf("cell %d, level %v: rebuilt has %d below and %d above, in truth %d and %d", now, level,
						small(&rebuilt, level), large(&rebuilt, level), small(&truth, level), large(&truth, level))
				}
				if rebuilt.atLeast(cfg.Idle.Percentile, level, hole{}) &&
					!truth.atLeast(cfg.Idle.Percentile, level, hole{}) && truth.count() > 0 {
					t.Fatalf("cell %d: rebuilt is idle below %v, in truth it is not", now, level)
				}
			}
			for _, percent := range []float64{50, 90, 95, 99, 100} {
				if truth.count() > 0 && rebuilt.percentile(percent, hole{}) < truth.percentile(percent, hole{}) {
					t.Fatalf("cell %d: p%v is %v rebuilt, %v in truth", now, percent,
						rebuilt.percentile(percent, hole{}), truth.percentile(percent, hole{}))
				}
			}
		}
	})
}

func small(w *window, use float64) int {
	n := 0
	w.each(func(v float64) {
		if v < use {
			n++
		}
	})
	return n
}

func large(w *window, use float64) int { return w.count() - small(w, use) }

// A window against the plain way to do the same.
func TestWindowAgainstNaive(t *testing.T) {
	type sample struct {
		cell uint32
		use  float32
	}
	rapid.Check(t, func(t *rapid.T) {
		s := spanOf(uint32(rapid.IntRange(1, 30).Draw(t, "length")))
		var w window
		var naive []sample
		cell := uint32(0)
		for range rapid.IntRange(0, 120).Draw(t, "steps") {
			cell += uint32(rapid.IntRange(1, 3).Draw(t, "step"))
			use := rapid.Float32Range(0, 4).Draw(t, "use")
			w.expire(cell, s)
			w.add(cell, float64(use), 1, s)
			naive = append(naive, sample{cell, use})
			naive = slices.DeleteFunc(naive, func(v sample) bool { return cell-v.cell >= s.length })
			var uses []float64
			for _, v := range naive {
				uses = append(uses, float64(v.use))
			}
			slices.Sort(uses)
			if w.count() != len(uses) {
				t.Fatalf("%d samples, want %d", w.count(), len(uses))
			}
			for _, percent := range []float64{50, 75, 90, 95, 99, 100} {
				want := uses[max(rank(percent, len(uses)), 1)-1]
				if got := w.percentile(percent, hole{}); got != want {
					t.Fatalf("p%v of %v is %v, want %v", percent, uses, got, want)
				}
			}
			below := 0
			for _, u := range uses {
				if u < float64(use) {
					below++
				}
			}
			if got, want := w.atLeast(80, float64(use), hole{}), below >= rank(80, len(uses)); got != want {
				t.Fatalf("80%% of %v below %v is %v, want %v", uses, use, got, want)
			}
		}
	})
}

// resume restarts the daemon.
func (l *life) resume(t *testing.T, node string) error {
	t.Helper()
	data, err := l.Checkpoint("node-a").Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := DecodeCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Resume(l.cfg, node, l.now.Add(time.Second), c)
	if err == nil {
		l.Estimator = e
	}
	return err
}

func TestRestartKeepsIdleness(t *testing.T) {
	l := begin(t, nil)
	pods := []Pod{batch("idle", 4, 0.1), batch("busy", 4, 3), production("web", 2, 1)}
	l.samples(day+40, pods...)
	before := *l.sample(pods...)
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	o := l.event(pods...)
	near(t, "the offer after a restart, before anything is measured", o.Offer, before.Offer)
	o = l.sample(pods...)
	if !slices.Equal(o.Idle, []string{"idle"}) || o.Offer != before.Offer {
		t.Errorf("after a restart idle are %v and the offer is %v, before it %v", o.Idle, o.Offer, before.Offer)
	}
	// Not after a day without the daemon: nothing of it was seen.
	l.now = l.now.Add(25 * time.Hour)
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	if o := l.sample(pods...); len(o.Idle) > 0 {
		t.Errorf("idle are %v after a day without samples", o.Idle)
	}
	if seen, unseen := len(l.Estimator.observed), len(l.Estimator.unseen); seen != day || unseen != day {
		t.Errorf("%d cells of the window are kept, %d of them unseen, want all %d", seen, unseen, day)
	}
}

// A clock that is set back after a restart loses no window, nor one that was set
// back before.
func TestRestartAndClockJumps(t *testing.T) {
	l := begin(t, nil)
	pods := []Pod{batch("idle", 4, 0.1), batch("busy", 4, 3)}
	l.samples(day/2, pods...)
	l.now = l.now.Add(-5 * time.Hour)
	l.samples(day/2+10, pods...)
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	l.now = l.now.Add(-3 * time.Hour)
	if o := l.sample(pods...); !slices.Equal(o.Idle, []string{"idle"}) {
		t.Errorf("idle are %v after the clock was set back", o.Idle)
	}
	if o := l.samples(day, pods...); !slices.Equal(o.Idle, []string{"idle"}) {
		t.Errorf("idle are %v a day later", o.Idle)
	}
}

// changing are batch pods that are busy for a while and idle for a longer one.
type changing map[string]bool // busy

func (c changing) next(t *rapid.T) []Pod {
	pods := []Pod{production("web", 4, 1)}
	for _, id := range []string{"x", "y", "z"} {
		if rarely(t, "turn", 8) {
			c[id] = !c[id] && rarely(t, "busy", 2)
		}
		p := batch(id, 4, rapid.SampledFrom([]float64{0, 0.1, 0.2, 0.3}).Draw(t, "use"))
		if c[id] {
			p.Use = 2
		}
		p.Sampled = !rarely(t, "missing", 40)
		pods = append(pods, p)
	}
	return pods
}

// sometimesIdle makes pods of changing idle for a part of a life of 100 samples.
func sometimesIdle(c *Config) {
	c.Idle.Window, c.Idle.Percentile, c.Idle.UsePercentile = Duration(100*time.Minute), 80, 90
}

// What is idle after any life and a restart would have been idle without it.
func TestRestartNeverMakesIdle(t *testing.T) {
	outer, idle := t, 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := begin(outer, sometimesIdle), begin(outer, sometimesIdle)
		pods, restarted := changing{}, false
		for i := range 100 {
			now := pods.next(t)
			throttled := rarely(t, "throttled", 40)
			a.Throttled, b.Throttled = throttled, throttled
			truth, after := a.sample(now...), b.sample(now...)
			for _, id := range after.Idle {
				if !slices.Contains(truth.Idle, id) {
					t.Fatalf("step %d: %s is idle after a restart, without one it is not", i, id)
				}
				if restarted {
					idle++
				}
			}
			if after.Offer > truth.Offer+1e-9 && after.Unutilised > truth.Unutilised+1e-9 {
				t.Fatalf("step %d: offers %v after a restart, without one %v", i, after.Offer, truth.Offer)
			}
			if rarely(t, "restart", 15) {
				restarted = true
				if err := b.resume(outer, "node-a"); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if idle < 100 && !t.Failed() {
		t.Errorf("pods were idle after a restart at %d samples only: this has tried nothing", idle)
	}
}

// What is idle after a restart with windows of another length, or of other samples, would have
// been idle had they been so from the beginning.
func TestConvertedWindowsNeverMakeIdle(t *testing.T) {
	outer, idle := t, 0
	rapid.Check(t, func(t *rapid.T) {
		windows := func(c *Config) {
			minutes := rapid.SampledFrom([]int{5, 10, 15, 20}).Draw(t, "sample")
			c.Idle.Sample = Duration(time.Duration(minutes) * time.Minute)
			c.Idle.Window = c.Idle.Sample * Duration(rapid.IntRange(2, 30).Draw(t, "length"))
		}
		other := func(c *Config) { sometimesIdle(c); windows(c) }
		a, b := begin(outer, other), begin(outer, sometimesIdle)
		if rapid.Bool().Draw(t, "shorter") {
			a, b = begin(outer, sometimesIdle), begin(outer, other)
		}
		pods, converted := changing{}, rapid.IntRange(0, 60).Draw(t, "converted")
		for i := range 120 {
			now := pods.next(t)
			truth, after := a.sample(now...), b.sample(now...)
			for _, id := range after.Idle {
				if i > converted && !slices.Contains(truth.Idle, id) {
					t.Fatalf("step %d: %s is idle, with these windows from the beginning it is not", i, id)
				}
				if i > converted {
					idle++
				}
			}
			if i == converted {
				c := b.Checkpoint("node-a")
				if cost := c.Conversion(a.cfg); (cost == "") != (a.cfg.Idle.Window == b.cfg.Idle.Window &&
					a.cfg.Idle.Sample == b.cfg.Idle.Sample) {
					t.Fatalf("windows of %v for %v cost %q", a.cfg.Idle, b.cfg.Idle, cost)
				}
				b.cfg = a.cfg
				if err := b.resume(outer, "node-a"); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if idle < 100 && !t.Failed() {
		t.Errorf("pods were idle with converted windows at %d samples only: this has tried nothing", idle)
	}
}

// What is idle after any life and kills, each of which goes on from a checkpoint of an
// earlier step, would have been idle without them.
func TestKillNeverMakesIdle(t *testing.T) {
	outer, idle := t, 0
	rapid.Check(t, func(t *rapid.T) {
		a, b := begin(outer, sometimesIdle), begin(outer, sometimesIdle)
		saved, at := b.Checkpoint("node-a"), b.now
		down, batches, killed := 0, changing{}, false
		for i := range 100 {
			pods := batches.next(t)
			throttled := rarely(t, "throttled", 40)
			a.Throttled, b.Throttled = throttled, throttled
			truth := a.sample(pods...)
			if down > 0 {
				if down--; down > 0 {
					b.now = a.now
					continue
				}
				e, err := Resume(b.cfg, "node-a", b.now.Add(time.Second), saved)
				if err != nil {
					t.Fatal(err)
				}
				b.Estimator, killed = e, true
			}
			after := b.sample(pods...)
			for _, id := range after.Idle {
				if killed {
					idle++
				}
				if !slices.Contains(truth.Idle, id) {
					t.Fatalf(
						"step %d: %s is idle after a kill, without one it is not; the checkpoint is of %v, it is %v",
						i, id, at, b.now)
				}
				if used, _ := b.View(id); used.Use < viewed(a, id).Use {
					t.Fatalf("step %d: %s counts with %v after a kill, without one with %v", i, id, used.Use,
						viewed(a, id).Use)
				}
			}
			if rarely(t, "save", 4) {
				saved, at = b.Checkpoint("node-a"), b.now
			}
			if !at.Equal(began) && rarely(t, "kill", 20) {
				down = rapid.IntRange(1, 3).Draw(t, "down")
			}
		}
	})
	if idle < 100 && !t.Failed() {
		t.Errorf("pods were idle after a kill at %d samples only: this has tried nothing", idle)
	}
}

// rarely is true once in so many times; the library's numbers are small more often.
func rarely(t *rapid.T, label string, times int) bool {
	return rapid.SampledFrom(append(make([]bool, times-1), true)).Draw(t, label)
}

func viewed(l *life, id string) View {
	v, _ := l.View(id)
	return v
}

// A pod that works between a checkpoint and a kill is not idle after it; one that does
// not is, after a minute without the daemon, and lends what it did.
func TestKillAfterACheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		lost time.Duration // between checkpoint and the end of the restart
		deaf time.Duration // between that and the first measurement
		idle bool
		use  float64 // what it counts with
		seen string
	}{
		"a minute":    {time.Minute, 0, true, 0.1, "288 samples, 287 below, 1 unseen"},
		"six minutes": {6 * time.Minute, 0, true, 0.1, "288 samples, 286 below, 2 unseen"},
		// three samples are more than 1 % of a day
		"eleven minutes":  {11 * time.Minute, 0, true, 4, "288 samples, 285 below, 3 unseen"},
		"an hour":         {time.Hour, 0, true, 4, "288 samples, 275 below, 13 unseen"},
		"an hour of both": {time.Minute, 59 * time.Minute, true, 4, "288 samples, 275 below, 13 unseen"},
		"more than 5 %":   {73 * time.Minute, 0, false, 4, "288 samples, 273 below, 15 unseen"},
	} {
		l := begin(t, nil)
		l.samples(day+10, batch("x", 4, 0.1))
		saved := l.Checkpoint("node-a")
		l.now = l.now.Add(c.lost)
		e, err := Resume(l.cfg, "node-a", l.now, saved)
		if err != nil {
			t.Fatal(err)
		}
		l.Estimator, l.tick = e, 10*time.Second
		l.event(batch("x", 4, 0.1)) // before anything is measured
		l.now = l.now.Add(c.deaf)
		l.event(batch("x", 4, 0.1))
		for range 2 {
			v := viewed(l, "x")
			if v.Idle != c.idle || math.Abs(v.Use-c.use) > 1e-6 || !strings.Contains(v.Why(), "because of a restart") {
				t.Errorf("%s: idle is %v and it counts with %v, want %v and %v: %s", name, v.Idle, v.Use, c.idle,
					c.use, v.Why())
			}
			if got := fmt.Sprintf("%d samples, %d below, %d unseen", v.Samples, v.Below, v.Unseen); got != c.seen {
				t.Errorf("%s: %s, want %s", name, got, c.seen)
			}
			l.sample(batch("x", 4, 0.1))
		}
		l.tick = 5 * time.Minute
		l.samples(day+1, batch("x", 4, 0.1))
		if v := viewed(l, "x"); !v.Idle || math.Abs(v.Use-0.1) > 1e-6 || v.Unseen != 0 {
			t.Errorf("%s: a day later idle is %v, and it counts with %v: %s", name, v.Idle, v.Use, v.Why())
		}
	}
}

func TestRestartRemembersEvictionsAndProduction(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	l.samples(2*day, production("web", 12, 2))
	supply := l.sample(production("web", 12, 2)).Supply
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	near(t, "supply after a restart", l.sample(production("web", 12, 2)).Supply, supply)
	c := l.Checkpoint("node-a")
	c.Known[0].Known = l.Cell() + 100
	e, err := Resume(l.cfg, "node-a", l.now, c)
	if err != nil {
		t.Fatal(err)
	}
	l.Estimator = e
	near(t, "supply where a pod is known since later than now", l.sample(production("web", 12, 2)).Supply, 4)
	for name, damage := range map[string]func(*Checkpoint){
		"of the first edition": func(c *Checkpoint) { c.Predictor = "peak(1.1)" },
		"damaged":              func(c *Checkpoint) { c.Production.Spells[0].Uses[0] = -1 },
	} {
		c = l.Checkpoint("node-a")
		damage(&c)
		if e, err = Resume(l.cfg, "node-a", l.now, c); err != nil {
			t.Fatal(err)
		}
		if got := c.Conversion(l.cfg); (got != "") != (name == "of the first edition") {
			t.Errorf("a past %s costs %q", name, got)
		}
		near(t, "supply where the forecast has to begin anew: "+name,
			first(t, e, l.now, production("web", 12, 2)).Supply, 4)
	}

	l = begin(t, nil)
	pods := []Pod{batch("a", 4, 3), production("web", 16, 1)}
	l.samples(1, pods[:1]...)
	if o := l.sample(pods...); len(o.Evict) != 1 {
		t.Fatal("nothing is evicted")
	}
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	if o := l.samples(5, pods...); len(o.Evict) > 0 {
		t.Error("evicted a second time after a restart")
	}
}

func TestCheckpointsThatAreRefused(t *testing.T) {
	l := begin(t, nil)
	l.samples(50, batch("a", 4, 0.1), batch("b", 4, 0.2), production("web", 2, 1))
	data, err := l.Checkpoint("node-a").Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) {
		if _, err := DecodeCheckpoint(data[:n]); err == nil {
			t.Fatalf("a checkpoint that ends after %d of %d bytes was accepted", n, len(data))
		}
	}
	if err := l.resume(t, "node-b"); err == nil || !strings.Contains(err.Error(), `"node-a"`) ||
		!strings.Contains(err.Error(), `"node-b"`) {
		t.Errorf("the checkpoint of another node: %v", err)
	}
	if _, err := Resume(Config{}, "node-a", l.now, l.Checkpoint("node-a")); err == nil {
		t.Error("a configuration without windows was accepted")
	}
	for name, damage := range map[string]func(*Checkpoint){
		"version": func(c *Checkpoint) { c.Version++ },
		"future":  func(c *Checkpoint) { c.At = c.At.Add(time.Hour) },
		"centuries old": func(c *Checkpoint) {
			c.At, c.Epoch = c.At.AddDate(-400, 0, 0), c.Epoch.AddDate(-400, 0, 0)
		},
		"centuries long":    func(c *Checkpoint) { c.Epoch = c.Epoch.AddDate(-400, 0, 0) },
		"ends before begin": func(c *Checkpoint) { c.Epoch = c.At.Add(time.Hour) },
		"no samples":        func(c *Checkpoint) { c.Cell = 0 },
		"negative samples":  func(c *Checkpoint) { c.Cell = -1 },
		"no windows":        func(c *Checkpoint) { c.Length = 0 },
		"endless windows":   func(c *Checkpoint) { c.Length = math.MaxUint32 },
		"offer":             func(c *Checkpoint) { c.Offered = -1 },
		"observed":          func(c *Checkpoint) { c.Observed = []Run{{4_000_000_000, 1, 2}} },
		"pod twice":         func(c *Checkpoint) { c.Pods = append(c.Pods, c.Pods[0]) },
		"no creation":       func(c *Checkpoint) { c.Pods[0].Created = time.Time{} },
		"too many":          func(c *Checkpoint) { c.Pods[0].Runs = []Run{{0, 0, 4_000_000_000}} },
		"same cell":         func(c *Checkpoint) { c.Pods[0].Runs = []Run{{0, 0, 2}} },
		"future cell":       func(c *Checkpoint) { c.Pods[0].Runs = []Run{{49, 1, 2}} },
		"overflow":          func(c *Checkpoint) { c.Pods[0].Runs = []Run{{1, 1 << 31, 3}} },
		"no percentiles":    func(c *Checkpoint) { c.Pods[0].Points = nil },
		"descending":        func(c *Checkpoint) { c.Pods[0].Points = []Point{{50, 2}, {100, 1}} },
		"percentile twice":  func(c *Checkpoint) { c.Pods[0].Points = []Point{{50, 0.1}, {50, 1}, {100, 1}} },
		"negative":          func(c *Checkpoint) { c.Pods[0].Points = []Point{{100, -1}} },
		"began later":       func(c *Checkpoint) { c.Pods[0].First = 99 },
	} {
		c, err := DecodeCheckpoint(data)
		if err != nil {
			t.Fatal(err)
		}
		damage(&c)
		if _, err := Resume(l.cfg, "node-a", l.now, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A window's numbers are written with no more digits than they have.
func TestNumbersOfACheckpointAreShort(t *testing.T) {
	l := begin(t, nil)
	l.sample(batch("a", 4, 0.1))
	if data, err := l.Checkpoint("node-a").Encode(); err != nil || !bytes.Contains(data, []byte(`[100,0.1]`)) {
		t.Errorf("%s (%v)", data, err)
	}
}

func TestSmallestAndLargestCheckpoint(t *testing.T) {
	l := begin(t, nil)
	l.sample()
	c := l.Checkpoint("node-a")
	c.Observed, c.Length = nil, 1
	if _, err := Resume(l.cfg, "node-a", l.now, c); err != nil {
		t.Errorf("windows of one sample: %v", err)
	}
	_, err := DecodeCheckpoint(make([]byte, 32<<20+1))
	if err == nil || !strings.Contains(err.Error(), "is longer than") {
		t.Errorf("a byte more than 32 MiB: %v", err)
	}
}

// The same state is the same text, whatever the order in which pods are visited.
func TestCheckpointIsSorted(t *testing.T) {
	l := begin(t, nil)
	var pods []Pod
	for i := range 20 {
		pods = append(pods, batch(fmt.Sprint("b", i), 1, 0.1), production(fmt.Sprint("p", i), 1, 0.1))
	}
	l.sample(pods...)
	var batches, others []string
	c := l.Checkpoint("node-a")
	for i := range c.Pods {
		batches, others = append(batches, c.Pods[i].ID), append(others, c.Known[i].ID)
	}
	if len(batches) != 20 || !slices.IsSorted(batches) || !slices.IsSorted(others) {
		t.Errorf("the pods are %v and %v", batches, others)
	}
}

func TestConversion(t *testing.T) {
	l := begin(t, nil)
	l.sample()
	was := l.Checkpoint("node-a")
	for _, c := range []struct {
		window, sample time.Duration
		want           string
	}{
		{24 * time.Hour, 5 * time.Minute, ""},
		{48 * time.Hour, 5 * time.Minute,
			"windows were 24h0m0s long and are 48h0m0s: no pod is idle until it was seen for 24h0m0s more"},
		{12 * time.Hour, 5 * time.Minute,
			"windows were 24h0m0s long and are 12h0m0s: what is older than that is left out"},
		{24 * time.Hour, 10 * time.Minute,
			"samples were 5m0s long and are 10m0s: each counts with the largest in it"},
		{12 * time.Hour, time.Minute,
			"windows were 24h0m0s long and are 12h0m0s: what is older than that is left out; " +
				"samples were 5m0s long and are 1m0s: no pod is idle until it was seen for 12h0m0s"},
	} {
		cfg := l.cfg
		cfg.Idle.Window, cfg.Idle.Sample = Duration(c.window), Duration(c.sample)
		if got := was.Conversion(cfg); got != c.want {
			t.Errorf("windows of %v in samples of %v cost %q, want %q", c.window, c.sample, got, c.want)
		}
	}
}

// A daemon that ends before its first report leaves a checkpoint without a time. The next one
// learns from it nothing, and nothing wrong.
func TestACheckpointFromBeforeTheFirstReport(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	pods := []Pod{batch("a", 4, 0.1), production("web", 8, 1)}
	if err := l.resume(t, "node-b"); err == nil {
		t.Error("the checkpoint of another node was accepted")
	}
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	o := l.samples(day+10, pods...)
	if l.elapsed != time.Duration(day+9)*l.tick {
		t.Errorf("%v passed since the first report, want %v", l.elapsed, time.Duration(day+9)*l.tick)
	}
	if v := viewed(l, "a"); !v.Idle || o.Supply < 14 {
		t.Errorf("idle is %v, the supply %v: nothing was learned after the restart", v.Idle, o.Supply)
	}
}

// The checkpoint of a node with 1,000 pods stays small, since regular samples are
// one run.
func TestSizeOfACheckpoint(t *testing.T) {
	l := begin(t, nil)
	for i := range day + 1 {
		l.sample(thousand(i)...)
	}
	data, err := l.Checkpoint("node-a").Encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the checkpoint of 500 batch and 500 production pods has %d bytes", len(data))
	if len(data) > 400<<10 {
		t.Errorf("the checkpoint has %d bytes", len(data))
	}
}

func FuzzCheckpoint(f *testing.F) {
	l := begin(&testing.T{}, nil)
	l.samples(5, batch("a", 4, 0.1), production("web", 2, 1))
	data, err := l.Checkpoint("node-a").Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"version":1,"node":"node-a","pods":[{"id":"x","runs":[[0,0,1]],"points":[[100,1e308]]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeCheckpoint(data)
		if err != nil {
			return
		}
		e, err := Resume(Default(), "node-a", began.Add(time.Hour), c)
		if err != nil {
			return
		}
		for i := range 3 {
			o, err := e.Step(began.Add(time.Hour+time.Duration(i)*time.Minute),
				Report{Capacity: 16, Span: time.Minute, Pods: []Pod{batch("a", 4, 1), production("web", 2, 1)}})
			if err != nil {
				continue
			}
			if o.Reclaimable < 0 || o.Reclaimable > 20 || o.Offer > o.Reclaimable {
				t.Fatalf("offers %v of %v", o.Offer, o.Reclaimable)
			}
		}
		again, err := e.Checkpoint("node-a").Encode()
		if err != nil || !json.Valid(again) || bytes.Contains(again, []byte("NaN")) {
			t.Fatalf("what was resumed cannot be written: %v", err)
		}
	})
}

// first is the estimate of a resumed estimator's first sample.
func first(t *testing.T, e *Estimator, now time.Time, pods ...Pod) *Estimate {
	t.Helper()
	o, err := e.Step(now.Add(time.Minute), Report{Capacity: 16, Pods: pods, Span: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// What a change of the configuration cost is told of each pod, as long as it lasts. Shorter
// samples cost a window, and evict nobody.
func TestExplainSaysWhatAConversionCost(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	pods := []Pod{batch("x", 12, 0.1), production("web", 12, 2)}
	l.samples(day+10, pods...)
	l.cfg.Idle.Sample = Duration(time.Minute)
	if err := l.resume(t, "node-a"); err != nil {
		t.Fatal(err)
	}
	l.tick = time.Minute
	o := l.sample(pods...)
	if v := viewed(l, "x"); v.Idle || v.Busy || !strings.Contains(v.Why(),
		"; samples were 5m0s long and are 1m0s: no pod is idle until it was seen for 24h0m0s") {
		t.Errorf("idle is %v, busy %v: %s", v.Idle, v.Busy, v.Why())
	}
	if len(o.Evict) > 0 || o.Supply < 13 {
		t.Errorf("evicts %v; the supply is %v, production's past is lost", o.Evict, o.Supply)
	}
	for range 5*day + 5 {
		if o := l.sample(pods...); len(o.Evict) > 0 {
			t.Fatalf("evicts %v", o.Evict)
		}
	}
	if v := viewed(l, "x"); !v.Idle || v.Conversion != "" {
		t.Errorf("a window later idle is %v: %s", v.Idle, v.Why())
	}
}
