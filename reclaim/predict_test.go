package reclaim

import (
	"math"
	"strings"
	"testing"
	"time"
)

// watch shows a predictor an hour's worth of minutes.
func watch(t *testing.T, words string, cells uint32, uses ...float64) float64 {
	t.Helper()
	spec, err := ParsePredictor(words)
	if err != nil {
		t.Fatal(err)
	}
	p := spec.Build(cells)
	var last Production
	for i, u := range uses {
		last = Production{Cell: uint32(i), Seconds: 60, Pods: []Pod{production("a", 6, u*0.75),
			production("b", 2, u*0.25), batch("c", 8, 8)}, Request: 8, Use: u}
		p.Observe(last)
	}
	return p.Peak(last)
}

func TestPredictors(t *testing.T) {
	twos := make([]float64, 100)
	for i := range twos {
		twos[i] = 2
	}
	spike := append(append([]float64{}, twos...), 6, 2, 2, 2)
	for _, c := range []struct {
		words string
		uses  []float64
		want  float64
	}{
		{"limits(0.9)", twos, 7.2},
		{"limits(0)", twos, 0},
		{"pods(99)", twos, 2},
		{"pods(99)", spike, 2}, // one in a hundred
		{"pods(100)", spike, 6},
		{"pods(50)", []float64{1, 2, 3}, 2},
		{"sigma(5)", twos, 2},
		{"sigma(0)", []float64{1, 3}, 2},
		{"sigma(1)", []float64{1, 3}, 3},
		{"sigma(50)", []float64{1, 3}, 8}, // all that was requested
		{"max(limits(0.5),pods(99),sigma(1))", twos, 4},
		{"min(limits(0.5),max(pods(99),sigma(1)))", twos, 2},
	} {
		if got := watch(t, c.words, 1000, c.uses...); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s expects %v, want %v", c.words, got, c.want)
		}
	}
	// Buckets of the peak are 5 % wide and round up.
	for _, c := range []struct {
		words  string
		uses   []float64
		lo, hi float64
	}{{"peak(1)", twos, 2, 2.1}, {"peak", spike, 6.6, 6.93}, {"peak(2)", []float64{0}, 0, 0.02},
		{"peak(1)", []float64{1e9}, 1e4, 1e9}} {
		if got := watch(t, c.words, 1000, c.uses...); got < c.lo-1e-9 || got > c.hi+1e-9 {
			t.Errorf("%s expects %v, want %v to %v", c.words, got, c.lo, c.hi)
		}
	}
}

// A peak is forgotten when its weight has halved often enough: after nine or ten
// windows here.
func TestPeakDecays(t *testing.T) {
	uses := []float64{6}
	for len(uses) < 1000 {
		uses = append(uses, 2)
	}
	if got := watch(t, "peak(1)", 100, uses[:500]...); got < 6 {
		t.Errorf("after 5 windows the peak is %v, want 6", got)
	}
	if got := watch(t, "peak(1)", 100, uses...); got > 2.2 {
		t.Errorf("after 10 windows the peak is %v, want about 2", got)
	}
}

// The windows of pods that are gone are dropped, however many come and go.
func TestWindowsOfPodsThatAreGone(t *testing.T) {
	p := &pods{percent: 99, span: spanOf(100), windows: map[string]*podWindow{}}
	for i := range uint32(50) {
		p.Observe(Production{Cell: i, Seconds: 60, Pods: []Pod{production("stays", 4, 1),
			production(strings.Repeat("x", int(i)), 4, 1)}})
	}
	if len(p.windows) != 2 || p.windows["stays"] == nil || p.windows["stays"].count() != 50 {
		t.Errorf("of 2 pods that run %d windows are kept: %v", len(p.windows), p.windows)
	}
}

// What was not measured is no sample, nor is the share of no request.
func TestWindowsOfMeasuredPods(t *testing.T) {
	p := &pods{percent: 50, span: spanOf(100), windows: map[string]*podWindow{}}
	one := Production{Seconds: 60, Pods: []Pod{production("a", 4, 1), {ID: "b", Request: 4, Use: 1},
		production("none", 0, 1)}}
	for one.Cell = range uint32(10) {
		p.Observe(one)
	}
	for id, want := range map[string]int{"a": 10, "b": 0, "none": 0} {
		if got := p.windows[id].count(); got != want {
			t.Errorf("pod %s has %d samples, want %d", id, got, want)
		}
	}
	if got := p.Peak(one); got != 1+4 {
		t.Errorf("expected are %v CPUs, want 1 of the pod that was measured and the 4 that the other requested", got)
	}
}

// A memory that a predictor cannot have written leaves it as it is.
func TestMemoriesThatAreRefused(t *testing.T) {
	bucket := func(i int, w float64) Memory { return Memory{Buckets: map[int]float64{i: w}} }
	for _, c := range []struct {
		name, words string
		m           Memory
		ok          bool
	}{
		{"one bucket", "peak(1)", bucket(0, 1), true},
		{"the last bucket", "peak(1)", bucket(peakBuckets-1, 1), true},
		{"a bucket below", "peak(1)", bucket(-1, 1), false},
		{"a bucket above", "peak(1)", bucket(peakBuckets, 1), false},
		{"a negative weight", "peak(1)", Memory{Buckets: map[int]float64{0: 2, 1: -1}}, false},
		{"no number", "peak(1)", bucket(0, math.NaN()), false},
		{"no end", "peak(1)", bucket(0, math.Inf(1)), false},
		{"no end of the sum", "peak(1)", Memory{Buckets: map[int]float64{0: math.MaxFloat64, 1: math.MaxFloat64}},
			false},
		{"nothing", "peak(1)", Memory{}, false},
		{"no weight", "peak(1)", bucket(0, 0), false},
		{"all parts", "max(peak,limits)", Memory{Parts: []Memory{bucket(0, 1), {}}}, true},
		{"a part too few", "max(peak,limits)", Memory{Parts: []Memory{bucket(0, 1)}}, false},
		{"a part too many", "max(peak,limits)", Memory{Parts: []Memory{bucket(0, 1), {}, {}}}, false},
		{"a part without memory", "max(peak,limits)", Memory{Parts: []Memory{{}, {}}}, false},
		{"what keeps none", "max(peak,sigma)", Memory{Parts: []Memory{bucket(0, 1), {}}}, false},
	} {
		spec, err := ParsePredictor(c.words)
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.Build(100).Restore(c.m); got != c.ok {
			t.Errorf("%s of %s: restored is %v, want %v", c.name, c.words, got, c.ok)
		}
	}
}

func TestNothingObserved(t *testing.T) {
	for _, words := range []string{"pods(99)", "sigma(5)", "peak(1.1)", "max(sigma,peak)"} {
		spec, err := ParsePredictor(words)
		if err != nil {
			t.Fatal(err)
		}
		p := Production{Pods: []Pod{production("a", 6, 1), production("b", 2, 1)}, Request: 8}
		if got := spec.Build(288).Peak(p); got != 8 {
			t.Errorf("%s without history expects %v, want all 8 that were requested", words, got)
		}
	}
}

// Without history production counts with what it requests, and gains trust over
// one window.
func TestTrustGrowsOverAWindow(t *testing.T) {
	for _, words := range []string{"peak(1.1)", "pods(99)", "sigma(3)", "min(pods,peak)"} {
		l := begin(t, func(c *Config) { c.From, c.Predictor = FromUsage, words })
		web := production("web", 10, 2)
		near(t, words+": supply at the first sample", l.sample(web).Supply, 6)
		half := l.samples(day/2, web).Supply
		if half < 8 || half > 11 {
			t.Errorf("%s: supply after half a window is %v, want half way from 6 to about 14", words, half)
		}
		if full := l.samples(day/2, web).Supply; full < 13.6 || full > 14.1 {
			t.Errorf("%s: supply after a window is %v, want about 14", words, full)
		}
		// Use above every expectation counts at once.
		near(t, words+": supply when production uses 12", min(l.sample(production("web", 10, 12)).Supply, 4),
			4-max(0, l.out.Expected-12))
		if o := l.event(web); o.Supply > 14 || o.ProductionUse != 12 {
			t.Errorf("%s: between samples production uses %v, want the 12 of the last sample", words, o.ProductionUse)
		}
		supply := l.sample(web).Supply
		if o := l.event(web); o.Supply != supply || o.ProductionUse != 2 {
			t.Errorf(
				"%s: between samples production uses %v of 10 and the supply is %v, want the 2 of the last sample "+
					"and its supply, %v", words, o.ProductionUse, o.Supply, supply)
		}
	}
}

// What is expected is never below the peak, though less is requested, nor below what is
// in use; of production that was not measured it is what it last used, or its request.
func TestExpectedIsNotBelowUse(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	l.samples(day, production("web", 2, 6))
	if o := l.sample(production("web", 2, 1)); o.Expected < 6.6 || o.Expected > 6.93 {
		t.Errorf("expected are %v CPUs of production that requests 2 and used 6, want the peak and a tenth", o.Expected)
	}
	l = begin(t, func(c *Config) { c.From, c.Predictor = FromUsage, "limits(0)" })
	near(t, "expected of production that uses 3", l.samples(day+1, production("web", 4, 3)).Expected, 3)
	l.sample(production("web", 4, 5))
	missing := production("web", 4, 0)
	missing.Sampled = false
	near(t, "production's use where a sample is missing, after 5 of 4", l.sample(missing).ProductionUse, 5)
	l.sample(production("web", 4, 1))
	near(t, "production's use where a sample is missing, after 1 of 4", l.sample(missing).ProductionUse, 4)
}

// A sample is the mean over the time that was seen of its cell.
func TestSampleIsAMean(t *testing.T) {
	var w window
	for _, c := range []struct{ use, seconds float64 }{{4, 10}, {0, 10}, {0, 20}} {
		w.add(1, c.use, c.seconds, spanOf(100))
	}
	near(t, "the mean", w.percentile(100, hole{}), 1)
}

func TestParsePredictor(t *testing.T) {
	for in, want := range map[string]string{
		"peak":                        "peak(1.1)",
		"limits":                      "limits(0.9)",
		"max( pods(98.5) , sigma(3))": "max(pods(98.5),sigma(3))",
		"min(max(peak,pods),limits)":  "min(max(peak(1.1),pods(99)),limits(0.9))",
		"max(peak(1.2))":              "max(peak(1.2))",
	} {
		spec, err := ParsePredictor(in)
		if err != nil || spec.String() != want {
			t.Errorf("%q is %v, %v; want %s", in, spec, err, want)
		}
	}
	for _, bad := range []string{"", "max", "max()", "max(peak", "peak(", "peak(2", "peak(x)", "limits(x)", "peak(2." +
		strings.Repeat("0", 200) + ")", "peak(0.9)", "peak(NaN)", "limits(1.1)", "pods(49)", "peak(1.1)x",
		"max(peak,)", "peek", "sigma(-1)",
		"max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(max(peak)))))))))))))))))"} {
		if spec, err := ParsePredictor(bad); err == nil {
			t.Errorf("%q was accepted as %v", bad, spec)
		}
	}
}

func FuzzParsePredictor(f *testing.F) {
	for _, s := range []string{"peak(1.1)", "max(pods(99),min(sigma,limits(0.5)))", "max(", "peak)", "((((",
		"min(max(peak))"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := ParsePredictor(text)
		if err != nil {
			return
		}
		again, err := ParsePredictor(spec.String())
		if err != nil || again.String() != spec.String() {
			t.Fatalf("%q is read as %s, which is read as %v, %v", text, spec, again, err)
		}
		p := spec.Build(10)
		one := Production{Seconds: 1, Pods: []Pod{production("a", 4, 1)}, Request: 4, Use: 1}
		p.Observe(one)
		if v := p.Peak(one); !(v >= 0) || math.IsInf(v, 0) {
			t.Fatalf("%s expects %v", spec, v)
		}
	})
}

func TestMeter(t *testing.T) {
	var m Meter
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	for i, c := range []struct {
		seconds, total float64
		use            float64
		ok             bool
	}{
		{0, 100, 0, false}, // the first
		{10, 120, 2, true},
		{10, 121, 0, false}, // no time passed
		{5, 130, 0, false},  // the clock was set back
		{6, 131, 1, true},   // and goes on from there
		{16, 3, 0, false},   // the cgroup was made anew
		{26, 4, 0.1, true},  //
		{3626, 5, 0, false}, // an hour says nothing about now
		{3627, 5, 0, true},  //
		{3628, 6.5, 1.5, true},
	} {
		use, _, ok := m.Use(at(c.seconds), time.Duration(c.total*float64(time.Second)))
		if ok != c.ok || math.Abs(use-c.use) > 1e-9 {
			t.Errorf("reading %d: use %v, %v; want %v, %v", i, use, ok, c.use, c.ok)
		}
	}
}

func TestHiddenDemand(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after Totals
		between       time.Duration
		hid           bool
	}{
		{"a tenth of the time", Totals{Waiting: time.Minute}, Totals{Waiting: time.Minute + time.Second},
			10 * time.Second, false},
		{"more than a tenth", Totals{Waiting: time.Minute}, Totals{Waiting: time.Minute + time.Second + 1},
			10 * time.Second, true},
		{"ten of a hundred periods", Totals{Periods: 50, Throttled: 50}, Totals{Periods: 150, Throttled: 60},
			10 * time.Second, false},
		{"eleven of a hundred", Totals{Periods: 50, Throttled: 50}, Totals{Periods: 150, Throttled: 61},
			10 * time.Second, true},
		{"a new group", Totals{Waiting: time.Hour}, Totals{Waiting: time.Minute}, 10 * time.Second, false},
		{"no time", Totals{}, Totals{Waiting: time.Second}, 0, false},
	} {
		if got := c.after.Hid(c.before, c.between); got != c.hid {
			t.Errorf("%s: %v, want %v", c.name, got, c.hid)
		}
	}
}
