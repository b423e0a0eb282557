package detect

import (
	"math"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// victim is a bench with a victim whose threshold is exactly 2.0 in Classic mode.
func victimBench(t testing.TB, edit func(*Config)) *bench {
	t.Helper()
	b := newBench(t, func(c *Config) {
		c.Mode = Classic
		if edit != nil {
			edit(c)
		}
	})
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.spec("victim", 1.5, 0.25)
	return b
}

func TestAnomalies(t *testing.T) {
	for _, c := range []struct {
		name  string
		bad   []int // seconds at which the CPI is 3; it is 1 in all other minutes
		until int
		want  []int
	}{
		{"O1 two", []int{60, 120}, 600, nil},
		{"O2 three at once", []int{60, 120, 180}, 600, []int{180}},
		{"O2 three in five minutes", []int{60, 180, 300}, 600, []int{300}},
		{"O2 each further one", []int{60, 120, 180, 240}, 600, []int{180, 240}},
		{"O3 spread over six", []int{60, 240, 420}, 600, nil},
		{"five minutes to the second", []int{60, 120, 360}, 600, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := victimBench(t, nil)
			bad := map[int]bool{}
			for _, s := range c.bad {
				bad[s] = true
			}
			var got []int
			for s := 60; s <= c.until; s += 60 {
				cpi := 1.0
				if bad[s] {
					cpi = 3
				}
				for _, e := range b.minute(map[string]reading{"v": {1, cpi}}) {
					if e.Kind == AnomalyEvent {
						got = append(got, int(e.At.Sub(epoch)/time.Second))
					}
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("anomalies at %v, want %v", got, c.want)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("anomalies at %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestOutliers(t *testing.T) {
	for _, c := range []struct {
		name       string
		usage, cpi float64
		want       uint64
	}{
		{"O4 too little usage", 0.24, 10, 0},
		{"O4 enough usage", 0.25, 10, 1},
		{"O5 the threshold itself", 1, 2, 0},
		{"above it", 1, 2.0000001, 1},
		{"O10 no instructions", 1, 0, 0},
	} {
		b := victimBench(t, nil)
		b.minute(map[string]reading{"v": {c.usage, c.cpi}})
		if got := b.d.Counters().Outliers; got != c.want {
			t.Errorf("%s: %d outliers, want %d", c.name, got, c.want)
		}
	}
}

func TestLateSampleCompletesAnAnomaly(t *testing.T) { // O2, any order
	b := victimBench(t, nil)
	ref := b.refs["v"]
	at := func(minute int) time.Time { return epoch.Add(time.Duration(minute) * time.Minute) }
	b.now = at(5)
	send := func(minute int) { b.note(b.d.Observe(b.now, []Sample{{Ref: ref, At: at(minute), Usage: 1, CPI: 3}})) }
	send(3)
	send(5)
	send(3)
	if got := b.count("anomaly"); got != 0 {
		t.Fatalf("%d anomalies with two outliers, one of them told twice", got)
	}
	send(4)
	if got := b.count("anomaly"); got != 1 {
		t.Errorf("%d anomalies at the third outlier, want 1", got)
	}
	if c := b.d.Counters(); c.Dropped["duplicate"] != 1 || c.Samples != 3 {
		t.Errorf("counters %+v", c)
	}
}

func TestSamplesThatAreRefused(t *testing.T) { // O11
	b := victimBench(t, func(c *Config) { c.Mode = Contrast })
	ref := b.refs["v"]
	b.now = epoch.Add(100 * time.Hour)
	for _, s := range []Sample{
		{Ref: ref, At: b.now.Add(time.Hour), Usage: 1, CPI: 1},
		{Ref: ref, At: b.now, Usage: -1, CPI: 1},
		{Ref: ref, At: b.now, Usage: 1, CPI: -1},
		{Ref: ref, At: b.now, Usage: 1e9, CPI: 1},
		{Ref: ref, At: b.now, Usage: 1, CPI: 1e8},
		{Ref: ref, At: b.now, Usage: 1, CPI: 1e-4},
		{Ref: ref, At: b.now, Usage: 1, CPI: math.NaN()},
		{Ref: ref, At: b.now, Usage: 1, CPI: math.Inf(1)},
		{Ref: ref, At: b.now, Usage: math.NaN(), CPI: 1},
		{Ref: ref, At: b.now, Usage: math.Inf(1), CPI: 1},
		{Ref: 77, At: b.now, Usage: 1, CPI: 1},
		{Ref: -1, At: b.now, Usage: 1, CPI: 1},
	} {
		b.d.Observe(b.now, []Sample{s})
	}
	for i := range 100 {
		b.d.Observe(b.now, []Sample{{Ref: ref, At: b.now.Add(time.Duration(i-99) * time.Minute), Usage: 1, CPI: 1}})
	}
	b.d.Observe(b.now, []Sample{{Ref: ref, At: epoch, Usage: 1, CPI: 1}})
	c := b.d.Counters()
	want := map[string]uint64{"future": 1, "absurd": 9, "unknown-container": 2, "late": 1, "duplicate": 0}
	for why, n := range want {
		if c.Dropped[why] != n {
			t.Errorf("%d dropped as %s, want %d", c.Dropped[why], why, n)
		}
	}
	if c.Samples != 100 {
		t.Errorf("%d samples, want 100", c.Samples)
	}
}

func TestClockThatGoesBack(t *testing.T) { // O11
	b := victimBench(t, nil)
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	for range 10 {
		b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	}
	if b.count("cap a") != 1 {
		t.Fatalf("no cap to undo: %q", b.log)
	}
	b.log = nil
	b.now = epoch.Add(-24 * time.Hour)
	b.observe(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	if b.count("uncap a") != 1 {
		t.Errorf("the cap outlives the clock that would end it: %q", b.log)
	}
	b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	if b.count("anomaly") != 0 {
		t.Errorf("outliers of before and after the step are one window: %q", b.log)
	}
	b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	if b.count("anomaly") != 1 || b.d.Counters().ClockSteps != 1 {
		t.Errorf("not back to work after the step: %q", b.log)
	}
}

// A step back of more than a sampling period forgets every time that lies in the future
// then: nothing waits for the clock to catch up. Less is no step.
func TestWhatAClockThatWentBackForgets(t *testing.T) {
	for back, want := range map[time.Duration]uint64{30 * time.Second: 0, time.Minute: 0, time.Minute + 1: 1,
		240 * time.Hour: 1} {
		b := newBench(t, func(c *Config) { c.RespecEvery = 10 * time.Minute })
		teach(b, "victim", "", 5, 100, even(1))
		b.refs["v"] = b.refs["victim--0"]
		b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.Batch})
		b.put(cpi.Container{ID: "refused", Job: "refused", Class: cpi.Batch})
		key := PairKey{Victim: "victim", Antagonist: "a"}
		b.d.pairs.known[key] = &Pair{PairKey: key, Blocked: b.now.Add(time.Hour)}
		b.d.all[b.refs["refused"]].refused = b.now.UnixNano()
		b.d.all[b.refs["v"]].moveRefused = b.now.UnixNano()
		b.tick(-back)
		if got := b.d.Counters().ClockSteps; got != want {
			t.Errorf("back by %v: %d steps of the clock, want %d", back, got, want)
		}
		if now := stamp(b.d.now); want == 1 && !now.Equal(b.now) || want == 0 && !now.Equal(b.now.Add(back)) {
			t.Errorf("back by %v to %v: the detector's time is %v", back, b.now, now)
		}
		if want == 0 {
			continue
		}
		for _, id := range []string{"a", "refused"} {
			if why := b.d.whyNotActed(&b.d.all[b.refs["v"]], &b.d.all[b.refs[id]], true); why != "" {
				t.Errorf("back by %v: %s is %s", back, id, why)
			}
		}
		if b.d.all[b.refs["v"]].moveRefused != 0 {
			t.Errorf("back by %v: the pool is not moved for as long", back)
		}
		day := b.now.UnixNano() / int64(24*time.Hour)
		if j := b.d.jobOf("victim", ""); j.day > day || j.published > b.now.UnixNano() {
			t.Errorf("back by %v: samples are of day %d, specs of %v", back, j.day, stamp(j.published))
		}
	}
}

func TestShortWindows(t *testing.T) { // O11: fewer than six aligned samples
	for _, mode := range []Mode{Classic, Contrast} {
		for _, began := range []int{0, 5} { // one that had no samples, and one that was not there
			b := victimBench(t, func(c *Config) { c.Mode = mode })
			for i := range 10 {
				if i == began {
					b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
				}
				round := map[string]reading{"v": {1, 5}}
				if i >= 5 {
					round["a"] = reading{usage: 1 + float64(i)}
				}
				b.minute(round)
			}
			if b.count("cap") != 0 {
				t.Errorf("%v: a verdict on five aligned samples: %q", mode, b.log)
			}
			b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 11}})
			if got := b.count("cap a"); (got == 1) != (mode == Classic) { // nothing to compare with in the other
				t.Errorf("%v: %d caps on six: %q", mode, got, b.log)
			}
		}
	}
}

// The machine slept, or the clock was set: what was long ago is no evidence, and a cap
// whose time has passed ends.
func TestClockThatLeaps(t *testing.T) { // O11
	b := victimBench(t, nil)
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	for range 4 {
		b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	}
	b.log = nil
	b.now = b.now.Add(10 * time.Hour)
	b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	if b.count("anomaly") != 0 || b.count("cap a") != 0 {
		t.Errorf("outliers of ten hours ago are evidence: %q", b.log)
	}
	for range 10 {
		b.minute(map[string]reading{"v": {1, 5}, "a": {usage: 1}})
	}
	if b.count("cap a") == 0 {
		t.Fatalf("not back to work: %q", b.log)
	}
	b.log = nil
	b.now = b.now.Add(10 * time.Hour)
	b.note(b.d.Tick(b.now))
	if len(b.d.InForce()) != 0 {
		t.Errorf("a cap is in force ten hours after its term: %+v", b.d.InForce())
	}
}

func TestRestartedContainer(t *testing.T) { // O11
	b := victimBench(t, nil)
	b.minute(map[string]reading{"v": {1, 5}})
	b.minute(map[string]reading{"v": {1, 5}})
	b.note(b.d.Forget(b.now, "v"))
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.minute(map[string]reading{"v": {1, 5}})
	if b.count("anomaly") != 0 {
		t.Error("outliers of the container before count for its successor")
	}
}

func TestOneAnalysisASecond(t *testing.T) { // A4
	b := newBench(t, nil)
	names := []string{"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"}
	b.spec("victim", 1.5, 0.25)
	for _, name := range names {
		b.put(cpi.Container{ID: name, Job: "victim", Class: cpi.LS})
	}
	for range 3 {
		round := map[string]reading{}
		for i, name := range names {
			round[name] = reading{1, 5 + float64(i)}
		}
		b.minute(round)
	}
	if c := b.d.Counters(); c.Anomalies != 10 || c.Analyses != 1 {
		t.Fatalf("%d anomalies and %d analyses in one second, want 10 and 1", c.Anomalies, c.Analyses)
	}
	if first := lastOf(b, AnalysisEvent).Victim.ID; first != "v9" {
		t.Errorf("%s is analysed first; v9 is the worst", first)
	}
	b.tick(500 * time.Millisecond)
	if c := b.d.Counters(); c.Analyses != 1 {
		t.Errorf("%d analyses after half a second, want 1", c.Analyses)
	}
	for {
		next, ok := b.d.Next()
		if !ok {
			break
		}
		b.tick(next.Sub(b.now))
	}
	if c := b.d.Counters(); c.Analyses != 10 || b.now.Sub(epoch) != 3*time.Minute+9*time.Second {
		t.Errorf("%d analyses until %v, want 10 until 3m9s", c.Analyses, b.now.Sub(epoch))
	}
}

func lastOf(b *bench, kind Kind) Event {
	for i := len(b.all) - 1; i >= 0; i-- {
		if b.all[i].Kind == kind {
			return b.all[i]
		}
	}
	b.t.Fatalf("no event %s", kind)
	return Event{}
}

// A sample of which a quarter was counted deviates twice as much by chance.
func TestSamplesThatWereCountedInPartAreHeldAgainstMore(t *testing.T) {
	for _, m := range []Mode{Classic, Contrast} {
		j := &job{}
		j.spec.Mean, j.classic = 2, 2.5
		for b := range j.robust {
			j.robust[b] = band{logMedian: math.Log(2), logSD: 0.1, threshold: 2.4}
		}
		normal, whole := j.normal(m, 0).CPI, j.threshold(m, 0)
		distance := func(t float64) float64 {
			if m == Classic {
				return t - normal
			}
			return math.Log(t / normal)
		}
		for counted, factor := range map[float64]float64{0: 1, 1: 1, 0.25: 2, 0.01: 10} {
			got := distance(j.thresholdOf(m, 0, counted)) / distance(whole)
			if math.Abs(got-factor) > 1e-9 {
				t.Errorf("%v, a share of %v: the threshold is %v as far from normal, want %v", m, counted, got, factor)
			}
		}
	}
	for _, counted := range []float64{-0.1, 1.1, math.NaN()} {
		if s := (Sample{CPI: 1, Counted: counted}); !s.absurd(Contrast) || !s.absurd(Classic) {
			t.Errorf("a share of %v is taken", counted)
		}
	}
}
