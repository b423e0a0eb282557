package detect

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

// teach feeds a job's tasks n samples each, one a minute; shows is what task i
// does in minute k.
func teach(b *bench, job, platform string, tasks, n int, shows func(i, k int) reading) {
	b.t.Helper()
	for i := range tasks {
		b.put(cpi.Container{ID: fmt.Sprintf("%s-%s-%d", job, platform, i), Job: job, Platform: platform, Class: cpi.LS})
	}
	for k := range n {
		round := map[string]reading{}
		for i := range tasks {
			round[fmt.Sprintf("%s-%s-%d", job, platform, i)] = shows(i, k)
		}
		b.minute(round)
	}
}

func even(v float64) func(i, k int) reading {
	return func(i, k int) reading { return reading{1, v * (1 + 0.01*float64((i+k)%3-1))} }
}

// A job that is not judged says what it lacks, and from when it has it at the earliest.
func TestWhatAJobLacks(t *testing.T) {
	for _, c := range []struct {
		tasks, samples int
		given          bool
		lack           Lack
		in             time.Duration // 0: nobody knows
	}{
		{5, 100, false, NoLack, 0},
		{5, 99, false, LacksSamples, time.Minute},
		{7, 40, false, LacksSamples, time.Hour},
		{4, 99, false, LacksTasks, 0},
		{5, 99, true, LacksTasks, 0},
	} {
		b := newBench(t, func(cfg *Config) { cfg.GivenSpecs = c.given })
		teach(b, "web", "skylake", c.tasks, c.samples, even(1.5))
		j, want := b.d.Jobs()[0], time.Time{}
		if c.in > 0 {
			want = stamp(b.d.now).Add(c.in)
		}
		if j.Lack != c.lack || !j.From.Equal(want) {
			t.Errorf("%d tasks, %d samples: lacks %q until %v, want %q until %v", c.tasks, c.samples, j.Lack, j.From,
				c.lack, want)
		}
	}
	// One that ended counts as a task, and the two that have the most samples are awaited.
	b := newBench(t, nil)
	teach(b, "web", "skylake", 3, 100, even(1.5))
	b.d.Forget(b.now, "web-skylake-0")
	teach(b, "web", "skylake", 6, 30, even(1.5))
	if j := b.d.Jobs()[0]; j.Lack != LacksSamples || !j.From.Equal(stamp(b.d.now).Add(70*time.Minute)) {
		t.Errorf("%+v at %v", j, stamp(b.d.now))
	}
}

func TestEligibility(t *testing.T) { // O6
	for _, c := range []struct {
		tasks, samples int
		want           bool
		why            string
	}{
		{5, 100, true, ""},
		{4, 1000, false, "4 tasks have 100 samples each; 5 are needed"},
		{5, 99, false, "0 tasks have 100 samples each; 5 are needed"},
	} {
		b := newBench(t, nil)
		teach(b, "web", "skylake", c.tasks, c.samples, even(1.5))
		_, got := b.d.SpecOf("web", "skylake")
		if got != c.want || b.d.WhyNoSpec("web", "skylake") != c.why {
			t.Errorf("%d tasks, %d samples: spec %v, %q; want %v, %q", c.tasks, c.samples, got,
				b.d.WhyNoSpec("web", "skylake"), c.want, c.why)
		}
	}
	b := newBench(t, nil)
	teach(b, "web", "skylake", 5, 99, even(1.5))
	b.minute(map[string]reading{"web-skylake-0": {1, 1.5}})
	if _, ok := b.d.SpecOf("web", "skylake"); ok {
		t.Error("a spec with 100 samples of one task only")
	}
}

func TestNoSpecNoVerdict(t *testing.T) { // O6
	b := newBench(t, nil)
	teach(b, "web", "", 4, 200, func(_, k int) reading { return reading{1, 1 + 9*float64(k/100)} })
	if c := b.d.Counters(); c.Outliers != 0 || c.Unspecified != 800 {
		t.Errorf("%d outliers, %d samples without a spec; want 0 and 800", c.Outliers, c.Unspecified)
	}
}

func TestPlatforms(t *testing.T) { // O7
	b := newBench(t, nil)
	teach(b, "web", "old", 5, 110, even(2))
	teach(b, "web", "new", 5, 110, even(1))
	one, _ := b.d.SpecOf("web", "new")
	two, _ := b.d.SpecOf("web", "old")
	if math.Abs(one.Mean-1) > 0.01 || math.Abs(two.Mean-2) > 0.01 {
		t.Fatalf("means %v and %v; want 1 and 2", one.Mean, two.Mean)
	}
	for range 5 {
		b.minute(map[string]reading{"web-old-0": {1, 2}})
	}
	if n := b.d.Counters().Outliers; n != 0 {
		t.Errorf("CPI 2.0 is an outlier on the platform where it is normal")
	}
	for range 5 {
		b.minute(map[string]reading{"web-new-0": {1, 2}})
	}
	if n := b.d.Counters().Outliers; n != 5 {
		t.Errorf("%d outliers where 2.0 is not normal; want 5", n)
	}
}

func TestAgeWeights(t *testing.T) { // O8
	for _, c := range []struct {
		days []float64
		want float64
	}{
		{[]float64{1, 2}, 1.5263},
		{[]float64{1, 1.2, 2}, 1.4354},
	} {
		j := &job{}
		for day, mean := range c.days {
			j.age(int64(day), 0.9)
			for range 500 {
				j.learn(1, mean, 0)
			}
		}
		if math.Abs(j.all.mean-c.want) > 5e-5 {
			t.Errorf("days %v: mean %.5f, want %.4f", c.days, j.all.mean, c.want)
		}
	}
}

// gevDraw is a draw from what the paper found for a web search job.
func gevDraw(r *rand.Rand) float64 {
	return 1.73 + 0.133*(math.Pow(-math.Log(r.Float64()), 0.0534)-1)/-0.0534
}

func TestPaperDistribution(t *testing.T) { // O9
	r := rand.New(rand.NewPCG(1, 2))
	var m moments
	h := new(Histogram)
	draws := make([]float64, 100_000)
	for i := range draws {
		draws[i] = gevDraw(r)
		m.add(draws[i], 1)
		h.add(math.Log2(draws[i]))
	}
	cfg := DefaultConfig()
	median, sd := h.Robust()
	flagged := func(threshold float64) float64 {
		n := 0
		for _, x := range draws {
			if x > threshold {
				n++
			}
		}
		return 100 * float64(n) / float64(len(draws))
	}
	if math.Abs(m.mean-1.8) > 0.005 || math.Abs(m.sd()-0.16) > 0.005 {
		t.Errorf("mean %.4f, deviation %.4f; want 1.80 and 0.16", m.mean, m.sd())
	}
	if got := flagged(m.mean + 2*m.sd()); math.Abs(got-4) > 0.2 {
		t.Errorf("classic flags %.2f %%; want 4.0 ± 0.2", got)
	}
	if got := flagged(math.Exp(median + cfg.RobustSigmas*sd)); got > 5 {
		t.Errorf("default flags %.2f %%; want 5 at most", got)
	}
	want := 1.73 + 0.133*(math.Pow(math.Ln2, 0.0534)-1)/-0.0534
	if got := h.Quantile(0.5); math.Abs(got/want-1) > 0.01 {
		t.Errorf("median %.4f, want %.4f", got, want)
	}
}

func TestPollution(t *testing.T) { // O12
	r := rand.New(rand.NewPCG(3, 4))
	var clean, dirty job
	for i := range 100_000 {
		x := math.Exp(0.09 * r.NormFloat64())
		clean.learn(1, x, 2)
		if i%5 == 0 {
			x *= 2
		}
		dirty.learn(1, x, 2)
	}
	threshold := func(j *job) float64 {
		median, sd := j.bands[2].Robust()
		return math.Exp(median + DefaultConfig().RobustSigmas*sd)
	}
	if moved := threshold(&dirty)/threshold(&clean) - 1; moved > 0.1 {
		t.Errorf("the robust threshold moves by %.1f %%; want under 10", 100*moved)
	}
	plain := (dirty.all.mean+2*dirty.all.sd())/(clean.all.mean+2*clean.all.sd()) - 1
	if plain < 0.5 {
		t.Errorf("mean + 2σ moves by %.1f %% only: the case shows nothing", 100*plain)
	}
}

// TestTwoNatures is a job of which two fifths of the samples have another CPI.
func TestTwoNatures(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	h := new(Histogram)
	for i := range 10_000 {
		x := math.Exp(0.05 * r.NormFloat64())
		if i%5 < 2 {
			x *= 1.5
		}
		h.add(math.Log2(x))
	}
	median, sd := h.Robust()
	if threshold := math.Exp(median + 2.25*sd); threshold < 1.6 || threshold > 3 {
		t.Errorf("the threshold is %.2f: what two fifths of the samples do is normal", threshold)
	}
}

func TestIntensityIsNoInterference(t *testing.T) { // O13
	b := newBench(t, nil)
	r := rand.New(rand.NewPCG(5, 6))
	teach(b, "web", "", 6, 300, func(i, k int) reading {
		noise := math.Exp(0.04 * r.NormFloat64())
		if i%2 == 0 {
			return reading{1, noise}
		}
		return reading{2, 1.15 * noise}
	})
	before := b.d.Counters().Anomalies
	for range 20 {
		b.minute(map[string]reading{"web--0": {2, 1.15}})
	}
	if got := b.d.Counters().Anomalies - before; got != 0 {
		t.Errorf("%d anomalies of a task whose load doubled; want none", got)
	}
	for range 5 {
		b.minute(map[string]reading{"web--0": {1, 1.15}})
	}
	if got := b.d.Counters().Outliers; got == 0 {
		t.Error("the same CPI without the load is no outlier: the case shows nothing")
	}
}

func TestSpecsMoveSlowly(t *testing.T) {
	b := newBench(t, func(c *Config) { c.RespecEvery = 10 * time.Minute })
	teach(b, "web", "", 5, 100, even(1))
	first := b.d.jobs[jobKey{"web", ""}]
	was := first.robust[2].logMedian
	if err := b.d.SetSpec(b.now, Spec{Job: "web", Mean: 1.9, StdDev: 0.1, Samples: 1e9, Tasks: 1000},
		b.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b.minute(map[string]reading{"web--0": {1, 1}})
	}
	if moved := first.robust[2].logMedian - was; math.Abs(moved-specStep) > 1e-9 {
		t.Errorf("one spec moved the median by %.3f in logarithms; want the bound, %v", moved, specStep)
	}
}

func TestForeignSpecsThatCannotBe(t *testing.T) {
	b := newBench(t, nil)
	teach(b, "web", "", 5, 100, even(1))
	good := Spec{Job: "web", Mean: 1, StdDev: 0.1, Samples: 1000, Tasks: 10}
	if err := b.d.SetSpec(b.now, good, b.now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Spec){
		"mean CPI 0":           func(s *Spec) { s.Mean = 0 },
		"mean CPI NaN":         func(s *Spec) { s.Mean = math.NaN() },
		"mean CPI +Inf":        func(s *Spec) { s.Mean = math.Inf(1) },
		"deviation -1":         func(s *Spec) { s.StdDev = -1 },
		"deviation 7":          func(s *Spec) { s.StdDev = 7 },
		"4 tasks":              func(s *Spec) { s.Tasks = 4 },
		"499 samples":          func(s *Spec) { s.Samples = 499 },
		"mean CPI 2.5":         func(s *Spec) { s.Mean = 2.5 },
		"band 7 has median 1":  func(s *Spec) { s.Bands = []BandSpec{{Band: 7, Median: 1}} },
		"band 1 has median -1": func(s *Spec) { s.Bands = []BandSpec{{Band: 1, Median: -1}} },
		"samples seen here":    func(s *Spec) { s.Mean = 0.3 },
		"mean usage -1":        func(s *Spec) { s.UsageMean = -1 },
		"mean usage NaN":       func(s *Spec) { s.UsageMean = math.NaN() },
		"1e+15 samples":        func(s *Spec) { s.Samples = 1e15 },
		"NaN samples":          func(s *Spec) { s.Samples = math.NaN() },
		"deviation 3 in":       func(s *Spec) { s.Bands = []BandSpec{{Band: 1, Median: 1, LogSD: 3}} },
		"deviation -0.1 in":    func(s *Spec) { s.Bands = []BandSpec{{Band: 1, Median: 1, LogSD: -0.1}} },
		"and -1 samples":       func(s *Spec) { s.Bands = []BandSpec{{Band: 1, Median: 1, Samples: -1}} },
		"CPI 2.5 in band 2":    func(s *Spec) { s.Bands = []BandSpec{{Band: 2, Median: 2.5, Samples: 100}} },
		"CPI 0.4 in band 2":    func(s *Spec) { s.Bands = []BandSpec{{Band: 2, Median: 0.4, Samples: 100}} },
	} {
		s := good
		edit(&s)
		if err := b.d.SetSpec(b.now, s, b.now.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if got := b.d.Counters().Refused; got != 20 {
		t.Errorf("%d refused, want 20", got)
	}
	// What was not seen here may be otherwise, and a little off is no contradiction.
	good.Mean, good.Bands = 1.9, []BandSpec{{Band: 2, Median: 0.55, Samples: 100}, {Band: 4, Median: 2.5, Samples: 100}}
	if err := b.d.SetSpec(b.now, good, b.now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
}

// Of two specs each counts by its samples, in each band those of that band. One without
// bands has its samples where the other has its.
func TestSpecsAreMergedBySamples(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	own := &Spec{Mean: 1, StdDev: 0.2, UsageMean: 2, Samples: 300, Tasks: 5,
		Bands: []BandSpec{{Band: 0, Samples: 100, Median: 1, LogSD: 0.1},
			{Band: 2, Samples: 200, Median: 1, LogSD: 0.2}}}
	foreign := &Spec{Mean: 2, StdDev: 0.4, UsageMean: 3, Samples: 900, Tasks: 50}
	m := merged(own, foreign)
	near("the mean", m.Mean, 1.75)
	near("the variance", m.StdDev*m.StdDev, 0.25*(0.04+0.5625)+0.75*(0.16+0.0625))
	near("the usage", m.UsageMean, 2.75)
	near("the number of samples", m.Samples, 1200)
	median, sd := logNormal(2, 0.4)
	if m.Tasks != 50 || len(m.Bands) != 2 || m.Bands[0].Band != 0 || m.Bands[1].Band != 2 {
		t.Fatalf("merged: %+v", m)
	}
	for i, own := range own.Bands {
		near("a band's number", m.Bands[i].Samples, 4*own.Samples)
		near("a band's median", math.Log(m.Bands[i].Median), 0.75*median)
		near("a band's deviation", m.Bands[i].LogSD, 0.25*own.LogSD+0.75*sd)
	}

	foreign.Bands = []BandSpec{{Band: 2, Samples: 600, Median: math.E, LogSD: 0.4},
		{Band: 3, Samples: 300, Median: 5, LogSD: 0.3}}
	m = merged(own, foreign)
	if len(m.Bands) != 3 || m.Bands[0] != own.Bands[0] {
		t.Fatalf("merged: %+v", m)
	}
	near("the median of both", math.Log(m.Bands[1].Median), 0.75)
	near("the deviation of both", m.Bands[1].LogSD, 0.35)
	near("the number of both", m.Bands[1].Samples, 800)
	near("the other's median", m.Bands[2].Median, 5)
}

func TestBandOf(t *testing.T) {
	for usage, want := range map[float64]int{0.25: 0, 0.49: 0, 0.5: 1, 0.99: 1, 1: 2, 2: 3, 4: 4, 1000: 4} {
		if got := BandOf(usage, 0.25); got != want {
			t.Errorf("usage %v is in band %d, want %d", usage, got, want)
		}
	}
}

func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := new(Histogram)
		values := rapid.SliceOfN(rapid.Float64Range(0.1, 60), 1, 200).Draw(t, "values")
		for _, v := range values {
			i := bucketOf(math.Log2(v))
			if v > UpperBound(i)*(1+1e-12) || i > 0 && v < UpperBound(i-1)*(1-1e-12) {
				t.Fatalf("%v is in bucket %d, which ends at %v", v, i, UpperBound(i))
			}
			h.add(math.Log2(v))
		}
		low, high := math.Inf(1), 0.0
		for _, v := range values {
			low, high = min(low, v), max(high, v)
		}
		for _, q := range []float64{0.01, 0.16, 0.5, 0.84, 0.99} {
			if got := h.Quantile(q); got < low/1.05 || got > high*1.05 {
				t.Fatalf("quantile %v is %v of values in [%v, %v]", q, got, low, high)
			}
		}
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var back Histogram
		if err := json.Unmarshal(text, &back); err != nil || back != *h {
			t.Fatalf("written and read it differs: %v", err)
		}
	})
	for _, text := range []string{`{"999":1}`, `{"-1":1}`, `{"3":-1}`, `[]`} {
		if err := json.Unmarshal([]byte(text), new(Histogram)); err == nil {
			t.Errorf("%s is read as a histogram", text)
		}
	}
}

// The start of a container has CPIs that nothing else has. They neither keep its
// job from having a spec nor move the mean for days.
func TestWildSamplesAtTheStart(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MinTasks, c.MinTaskSamples = 2, 20 })
	teach(b, "victim", "", 2, 25, func(_, k int) reading {
		if k == 0 {
			return reading{1, 9000}
		}
		return reading{1, 1.5 + 0.1*float64(k%3)}
	})
	if jobs := b.d.Jobs(); len(jobs) != 1 || jobs[0].Source != FromHere {
		t.Errorf("the job has no spec: %+v", jobs)
	}
	if s := b.d.jobOf("victim", "").spec; s.Mean > 5 || s.Mean < 1.5 {
		t.Errorf("the mean is %v", s.Mean)
	}
}
