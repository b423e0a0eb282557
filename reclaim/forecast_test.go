package reclaim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// observe shows a forecast steps of five minutes and returns what it foresees after the last.
func observe(f *Forecast, uses ...float64) float64 {
	at := f.now.at
	p := Production{Request: 64}
	for _, u := range uses {
		at += 5 * time.Minute
		p.At, p.Seconds, p.Use = at, 300, u
		f.Observe(p)
	}
	return f.Peak(p)
}

func repeated(n int, uses ...float64) []float64 {
	var all []float64
	for range n {
		all = append(all, uses...)
	}
	return all
}

func newForecast(risk float64) *Forecast { return NewForecast(risk, 15*time.Minute, DefaultTuning()) }

func TestForecast(t *testing.T) {
	// Every two hours production uses 6 CPUs for five minutes, else 2.
	bursts := repeated(60, append(repeated(23, 2), 6)...)
	for name, c := range map[string]struct {
		risk   float64
		uses   []float64
		lo, hi float64
	}{
		"nothing is known":                  {0.01, nil, 64, 64},
		"too little is known":               {0.01, []float64{2, 2, 2}, 64, 64},
		"steady use":                        {0.01, repeated(500, 2), 2, 2.02},
		"no use":                            {0.01, repeated(500, 0), 0, 0.02},
		"bursts of 4 % of the time, 1 %":    {0.01, bursts[:len(bursts)-3], 6, 6.3},
		"bursts of 4 % of the time, 10 %":   {0.10, bursts[:len(bursts)-3], 2, 2.02},
		"during a burst it is no more":      {0.01, append(bursts, 6), 6, 6.3},
		"a burst of two weeks ago":          {0.01, append([]float64{2, 2, 2, 2, 40}, repeated(15*288, 2)...), 2, 2.02},
		"more than can be told apart":       {0.01, repeated(200, 1, 1e9), 1e4, 2e9},
		"a rise is known at the next lower": {0.01, append(repeated(300, 2, 2, 3), 3), 3, 3.02},
	} {
		if got := observe(newForecast(c.risk), c.uses...); got < c.lo-1e-6 || got > c.hi {
			t.Errorf("%s: foreseen are %v CPUs, want %v to %v", name, got, c.lo, c.hi)
		}
	}
}

// Whatever production does, in the long run it uses more than was foreseen in about the share
// of time that is the risk. Seeded: the noise is part of the case.
func TestForecastIsExceededAsOftenAsTheRiskSays(t *testing.T) {
	for _, risk := range []float64{0.01, 0.05} {
		for seed := range uint64(2) {
			random := rand.New(rand.NewPCG(seed, 24))
			f, exceeded, judged := newForecast(risk), 0.0, 0.0
			use, foreseen := 8.0, []float64{}
			for i := range 28 * 288 {
				switch { // walks, a daily wave, and bursts at any time
				case random.IntN(100) == 0:
					use = 20 + 10*random.Float64()
				default:
					use = 8 + 3*math.Sin(float64(i)/288*2*math.Pi) + random.NormFloat64()
				}
				if n := len(foreseen); i > 7*288 {
					judged++
					for _, was := range foreseen[n-3:] {
						if use > was {
							exceeded += 1.0 / 3
						}
					}
				}
				foreseen = append(foreseen, observe(f, max(use, 0)))
			}
			if got := exceeded / judged; got > 1.25*risk || got < risk/4 {
				t.Errorf("seed %d: a risk of %v was exceeded %v of the time", seed, risk, got)
			}
		}
	}
}

// Time counts once, whatever the lengths of the measurements, and time that was not measured
// not at all.
func TestForecastCountsTimeOnce(t *testing.T) {
	whole, parts := newForecast(0.01), newForecast(0.01)
	at := time.Duration(0)
	for i := range 300 {
		use := float64(i % 7)
		whole.Observe(Production{At: at + 5*time.Minute, Seconds: 300, Use: use})
		for range 30 {
			at += 10 * time.Second
			parts.Observe(Production{At: at, Seconds: 10, Use: use})
			parts.Observe(Production{At: at, Seconds: 10, Use: 50})               // a clock that stands
			parts.Observe(Production{At: at - time.Minute, Seconds: 10, Use: 50}) // or goes back
		}
	}
	if a, b := whole.Peak(Production{}), parts.Peak(Production{}); math.Abs(a-b) > 1e-3 {
		t.Errorf("of the same use %v CPUs are foreseen by samples of 5 min and %v by those of 10 s", a, b)
	}
	before := len(parts.past)
	parts.Observe(Production{At: at + 24*time.Hour, Seconds: 10, Use: 2})
	parts.Observe(Production{At: at + 24*time.Hour + 5*time.Minute, Seconds: 300, Use: 2})
	if n := len(parts.past); n != before+1 || parts.past[n-2].rises[3] != unknownRise {
		t.Errorf("after a hole of a day %d steps were learned, want 1; rises before it: %v", n-before,
			parts.past[n-2].rises)
	}
	parts.Observe(Production{At: at + 365*24*time.Hour, Seconds: 365 * 24 * 3600, Use: 2})
	if n := len(parts.past); n > 2*DefaultTuning().Past {
		t.Errorf("%d steps are kept", n)
	}
}

// What was learned survives a restart, another risk and another horizon.
func TestForecastResumes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newForecast(0.01)
		at := time.Duration(0)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			at += time.Duration(rapid.SampledFrom([]int{1, 1, 1, 1, 9}).Draw(t, "distance")) * 5 * time.Minute
			f.Observe(Production{At: at, Seconds: 300, Use: float64(rapid.IntRange(0, 9).Draw(t, "use"))})
		}
		text, err := json.Marshal(f.Past())
		if err != nil {
			t.Fatal(err)
		}
		var past Past
		if err := json.Unmarshal(text, &past); err != nil {
			t.Fatal(err)
		}
		again := newForecast(0.01)
		if !again.resume(past, at) {
			t.Fatalf("refused: %s", text)
		}
		if a, b := fmt.Sprint(f.Past()), fmt.Sprint(again.Past()); a != b {
			t.Fatalf("%s became %s", a, b)
		}
		p := Production{Request: 64}
		if a, b := f.Peak(p), again.Peak(p); math.Abs(a-b) > 1e-6 {
			t.Fatalf("%v CPUs are foreseen, before the restart %v", b, a)
		}
		for _, horizon := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
			other := NewForecast(0.05, horizon, DefaultTuning())
			if !other.resume(past, at) || len(other.past) < len(f.past) {
				t.Fatalf("with a horizon of %v %d steps are known of %d", horizon, len(other.past), len(f.past))
			}
		}
	})
}

// A week is kept, in which a rise of three days ago weighs half as much as one of now.
func TestWhatAForecastRemembers(t *testing.T) {
	f := newForecast(0.01)
	f.Observe(Production{At: 365 * 24 * time.Hour, Seconds: 365 * 24 * 3600, Use: 2})
	spells := f.Past().Spells
	if len(spells) != 1 || len(spells[0].Uses) != 7*24*12 {
		t.Errorf("of a year %d spells are kept, want one of a week", len(spells))
	}
	near(t, "the weight of a rise of three days ago", f.weights[3*24*12]/f.weights[0], 0.5)
}

// A rise counts for as long as the past is kept, and no longer.
func TestRisesEndWithThePast(t *testing.T) {
	tuning := DefaultTuning()
	tuning.Past, tuning.Uncalibrated = 10, true
	f := NewForecast(0.01, 5*time.Minute, tuning)
	for _, c := range []struct {
		uses   []float64
		lo, hi float64
	}{
		{append([]float64{1, 9}, repeated(9, 1)...), 9, 9.5}, // it began ten steps ago
		{[]float64{1}, 1, 1.02},
	} {
		if got := observe(f, c.uses...); got < c.lo-1e-6 || got > c.hi {
			t.Errorf("foreseen are %v CPUs, want %v to %v", got, c.lo, c.hi)
		}
	}
}

// A rise at the same time of a day weighs more where that is asked for.
func TestRisesOfTheSameTimeOfDay(t *testing.T) {
	tuning := DefaultTuning()
	tuning.OfDay, tuning.Uncalibrated = 1000, true
	f := NewForecast(0.001, 5*time.Minute, tuning)
	noon := append(append(repeated(144, 1), 9), repeated(143+144, 1)...) // up to the next day's noon
	if got := observe(f, noon...); got < 9-1e-6 || got > 9.5 {
		t.Errorf("at noon %v CPUs are foreseen, want 9 as the day before", got)
	}
	if got := observe(f, repeated(72, 1)...); got > 1.02 {
		t.Errorf("in the evening %v CPUs are foreseen, want 1", got)
	}
}

// A step of which less than half was measured is not learned.
func TestStepsThatWereMeasuredInPart(t *testing.T) {
	f := newForecast(0.01)
	f.Observe(Production{At: 5 * time.Minute, Seconds: 150, Use: 2})
	f.Observe(Production{At: 10 * time.Minute, Seconds: 149, Use: 3})
	if got := f.Past().Spells; len(got) != 1 || len(got[0].Uses) != 1 || got[0].Uses[0] != 2 {
		t.Errorf("learned are %v, want the first step only", got)
	}
}

// Where even the most careful bound was exceeded too often, it is the forecast.
func TestTheMostCarefulBound(t *testing.T) {
	f := newForecast(0.01)
	f.total = 1000
	for k := range f.exceeds {
		f.exceeds[k] = 100
	}
	if got := f.chosen(); got != bounds-1 {
		t.Errorf("bound %d is chosen, want %d", got, bounds-1)
	}
}

// The most that a pod used counts in its fortnight and in the next one.
func TestPeaksOfAPodEnd(t *testing.T) {
	l := begin(t, nil)
	const days = 24 * time.Hour
	s := &podState{request: 1}
	for _, c := range []struct {
		at        time.Duration
		use, want float64
	}{
		{0, 7, 7}, {14*days - 1, 1, 7}, {14 * days, 1, 7}, {28*days - 1, 2, 7}, {28 * days, 1, 2}, {29 * days, 3, 3},
		{56 * days, 1, 1}, // in the fortnight before nothing was measured
	} {
		l.elapsed = c.at
		near(t, fmt.Sprintf("the peak after %v", c.at), l.peakOf(s, 2*day, c.use), c.want)
	}
}

func TestPastsThatAreRefused(t *testing.T) {
	minutes := Duration(5 * time.Minute)
	for name, p := range map[string]Past{
		"no step":         {Spells: []Spell{{0, []float64{1}}}},
		"a step too long": {Step: Duration(25 * time.Hour)},
		"of the future":   {minutes, []Spell{{12, []float64{1}}}},
		"out of order":    {minutes, []Spell{{5, []float64{1}}, {5, []float64{1}}}},
		"an empty spell":  {minutes, []Spell{{5, nil}}},
		"no number":       {minutes, []Spell{{5, []float64{math.NaN()}}}},
		"too long":        {Duration(time.Second), []Spell{{0, make([]float64, maxPast+1)}}},
		"overflow":        {minutes, []Spell{{math.MaxUint32, []float64{1}}}},
	} {
		f := newForecast(0.01)
		now := time.Hour
		if name == "too long" {
			now = 1000 * time.Hour
		}
		if f.resume(p, now) || len(f.past) > 0 {
			t.Errorf("%s: taken", name)
		}
	}
}

// A pod's own peak leaves with it, and one that comes counts with its request.
func TestPeaksLeaveWithTheirPods(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	web, bursts := production("web", 8, 2), production("bursts", 8, 0.1)
	for i := range 3 * day {
		bursts.Use = 0.1
		if i%24 < 2 {
			bursts.Use = 7
		}
		l.sample(web, bursts)
	}
	with := l.sample(web, bursts).Expected
	without := l.sample(web).Expected
	if with < 8.9 || without > 2.1 {
		t.Errorf("expected are %.2f CPUs with a pod that has bursts of 7, and %.2f without, want about 2",
			with, without)
	}
	if o := l.sample(web, production("new", 8, 0.1)); o.Expected < 9 {
		t.Errorf("expected are %.2f CPUs with a pod that is new and requests 8", o.Expected)
	}
}

func TestTrustGrowsOverAWindow(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	web := production("web", 10, 2)
	near(t, "supply at the first sample", l.sample(web).Supply, 6)
	half := l.samples(day/2, web).Supply
	if half < 8 || half > 11 {
		t.Errorf("supply after half a window is %v, want half way from 6 to about 14", half)
	}
	if full := l.samples(day/2, web).Supply; full < 13.6 || full > 14.1 {
		t.Errorf("supply after a window is %v, want about 14", full)
	}
	// Use above every expectation counts at once.
	near(t, "supply when production uses 12", min(l.sample(production("web", 10, 12)).Supply, 4),
		4-max(0, l.out.Expected-12))
	if o := l.event(web); o.Supply > 14 || o.ProductionUse != 12 {
		t.Errorf("between samples production uses %v, want the 12 of the last sample", o.ProductionUse)
	}
}

// What is expected is never below what is in use; of production that was not measured it is what
// it last used, or its request.
func TestExpectedIsNotBelowUse(t *testing.T) {
	l := begin(t, func(c *Config) { c.From = FromUsage })
	l.samples(day+1, production("web", 4, 3))
	near(t, "expected of production that uses 5", l.sample(production("web", 4, 5)).Expected, 5)
	missing := production("web", 4, 0)
	missing.Sampled = false
	near(t, "production's use where a sample is missing, after 5 of 4", l.sample(missing).ProductionUse, 5)
	l.sample(production("web", 4, 1))
	near(t, "production's use between samples, after 1 of 4", l.event(production("web", 4, 0)).ProductionUse, 1)
	near(t, "production's use where a sample is missing, after 1 of 4", l.sample(missing).ProductionUse, 4)
}

func TestForecastAllocatesNothing(t *testing.T) {
	tuning := DefaultTuning()
	tuning.Past = 288
	f := NewForecast(0.01, 15*time.Minute, tuning)
	observe(f, repeated(4*tuning.Past, 1, 2, 3)...)
	at := f.now.at
	if n := testing.AllocsPerRun(100, func() {
		at += 5 * time.Minute
		f.Observe(Production{At: at, Seconds: 300, Use: 2})
	}); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

// A step of five minutes with a full past; what comes between costs next to nothing.
func BenchmarkForecast(b *testing.B) {
	f := newForecast(0.01)
	observe(f, repeated(DefaultTuning().Past, 1, 2, 3)...)
	at := f.now.at
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at += 5 * time.Minute
		f.Observe(Production{At: at, Seconds: 300, Use: float64(i % 5)})
	}
}
