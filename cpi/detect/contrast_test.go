package detect

import (
	"math"
	"testing"
)

// victimOf is the workspace of a victim with these residuals, of which those above 0.5
// are bad, one sample a period.
func victimOf(y ...float64) *workspace {
	w := &workspace{victimSeries: victimSeries{threshold: 2}}
	for i, v := range y {
		w.y = append(w.y, v)
		w.cpi = append(w.cpi, 1+v*3)
		w.load = append(w.load, 0)
		w.bad = append(w.bad, v > 0.5)
		w.next = append(w.next, i > 0)
	}
	return w
}

// One bad sample, or one good one, is nothing to compare with.
func TestTwoOfEachAreCompared(t *testing.T) {
	for _, c := range []struct {
		y    []float64
		want bool
	}{
		{[]float64{0, 0, 1, 0, 0}, false},
		{[]float64{1, 1, 0, 1, 1}, false},
		{[]float64{0, 0, 1, 1, 0}, true},
		{[]float64{1, 1, 0, 0, 1}, true},
		{[]float64{0, 1}, false},
	} {
		w := victimOf(c.y...)
		got := w.correlate(c.y, 0)
		if (got.r > 0.99) != c.want || c.want && (got.badX != 1 || got.goodX != 0) {
			t.Errorf("%v: %+v, want a relation %t", c.y, got, c.want)
		}
	}
}

// A suspect's usage that shows in the victim's next sample is scored against that.
func TestPaperScoreOfALag(t *testing.T) {
	w := victimOf(0, 0, 1, 0, 1, 1, 0)
	early := []float64{0, 1, 0, 1, 1, 0, 0}
	late := []float64{0, 0, 0, 1, 0, 1, 1}
	for lag, x := range map[int][]float64{-1: early, 1: late, 0: w.y} {
		if got, ok := w.paperScore(x, lag); !ok || got != 0.5 {
			t.Errorf("lag %d: %v, %t, want 0.5", lag, got, ok)
		}
		if got, _ := w.paperScore(x, -lag); lag != 0 && got >= 0.3 {
			t.Errorf("lag %d the wrong way round: %v", lag, got)
		}
	}
	for i := range w.next {
		w.next[i] = false // no two samples are neighbours
	}
	if got, ok := w.paperScore(early, -1); ok {
		t.Errorf("over gaps: %v", got)
	}
}

func TestTheVictimsOwnLoad(t *testing.T) {
	y := []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}
	for _, c := range []struct {
		name string
		n    int
		load func(i int) float64
		want float64
	}{
		{"half as steep", 8, func(i int) float64 { return 0.2 * float64(i) }, 0.5},
		{"six samples", 6, func(i int) float64 { return 0.2 * float64(i) }, 0.5},
		{"too few", 5, func(i int) float64 { return 0.2 * float64(i) }, 0},
		{"less work when it is bad", 8, func(i int) float64 { return -0.2 * float64(i) }, 0},
		{"unrelated", 8, func(i int) float64 { return float64(i % 2) }, 0},
		{"always the same", 8, func(int) float64 { return 3 }, 0},
	} {
		w := victimOf(y[:c.n]...)
		for i := range w.load {
			w.load[i] = c.load(i)
		}
		if got := w.loadSlope(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: slope %v, want %v", c.name, got, c.want)
		}
	}
}

// What the load explains is taken out around its mean; what is left changes as often as
// it goes from good to bad and back.
func TestSettledSeries(t *testing.T) {
	w := victimOf(0, 0, 1, 1, 0, 0, 1, 1, 0)
	if w.settle(); w.changes != 4 {
		t.Errorf("%d changes, want 4", w.changes)
	}
	if w.rhoY <= 0 || w.rhoY >= 0.5 {
		t.Errorf("it moves as slowly as %v", w.rhoY)
	}
	w = victimOf(0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
	copy(w.load, w.y)
	w.settle()
	for _, y := range w.y {
		if math.Abs(y-0.3) > 1e-9 {
			t.Errorf("%v is left where the load explains all", w.y)
			break
		}
	}
}

// What a suspect did says more than the time it took, where enough of it is known.
func TestWhatIsKnownOfASuspect(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name    string
		x, done []float64
		want    bool
	}{
		{"all", []float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}, true},
		{"half", []float64{1, 1, 1, 1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, nan, nan, nan, nan}, true},
		{"less than half", []float64{1, 1, 1, 1, 1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, nan, nan, nan, nan, nan}, false},
		{"of the time that it ran", []float64{1, 1, 1, 1, nan, nan, nan, nan, nan},
			[]float64{1, 1, 1, 1, nan, nan, nan, nan, nan}, true},
		{"one sample when it was bad", []float64{1, 1, 1, 1}, []float64{1, 1, 1, nan}, false},
		{"one sample when it was good", []float64{1, 1, 1, 1}, []float64{nan, 1, 1, 1}, false},
	} {
		w := victimOf(0, 0, 1, 1, 0, 0, 1, 1, 0)
		w.x = c.x
		if got := w.known(c.done); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		e            *entry
		done, missed float64
	}{
		"no sample":        {nil, nan, nan},
		"a CPI":            {&entry{usage: 3, cpi: 2, misses: 7}, 1.5, 7},
		"idle":             {&entry{usage: 0.0009}, 0, 0},
		"used, and no CPI": {&entry{usage: 0.001, misses: 7}, nan, nan},
	} {
		done, missed := effect(c.e)
		if done != c.done && !(done != done && c.done != c.done) || missed != c.missed && !(missed != missed &&
			c.missed != c.missed) {
			t.Errorf("%s: did %v and missed %v, want %v and %v", name, done, missed, c.done, c.missed)
		}
	}
}

// However well one change fits another, it is one coincidence. It says more where the
// paper's score alone would blame the suspect.
func TestOneChangeIsOneCoincidence(t *testing.T) {
	for _, c := range []struct {
		ill     float64 // CPI; the threshold is 2
		changes int
		want    float64 // evidence, but for the cost of the relation itself
	}{
		{2.1, 1, perChange},
		{2.1, 3, 3 * perChange},
		{9, 1, perSevereChange},
		{9, 0, 0},
	} {
		d := newBench(t, nil).d
		y := append(constant(0, 30), constant(1, 30)...)
		if c.changes == 3 {
			y = append(append(constant(0, 15), constant(1, 15)...), append(constant(0, 15), constant(1, 15)...)...)
		}
		w := victimOf(y...)
		for i := range w.cpi {
			if w.cpi[i] = 1; w.bad[i] {
				w.cpi[i] = c.ill
			}
		}
		w.changes = c.changes
		d.work = *w
		rel := d.relateUsage(y)
		if got := rel.evidence + math.Log(60)/2; math.Abs(got-c.want) > 1e-9 {
			t.Errorf("CPI %v, %d changes: evidence %v, want %v", c.ill, c.changes, got, c.want)
		}
	}
}

// Classic mode looks back as far as the paper's score does, the other for an hour, in
// which the score has its ten minutes.
func TestHowFarAnAnalysisLooksBack(t *testing.T) {
	for mode, want := range map[Mode][2]int{Classic: {10, 0}, Contrast: {60, 50}} {
		b := victimBench(t, func(c *Config) { c.Mode = mode })
		for range 64 {
			b.minute(map[string]reading{"v": {1, 1}})
		}
		w := &b.d.work
		w.reset()
		b.d.loadVictim(queuedAnomaly{victim: b.refs["v"], at: b.now.UnixNano()})
		if got := [2]int{len(w.at), w.first}; got != want {
			t.Errorf("%v: %d samples, of which those from number %d on are scored; want %v", mode, got[0], got[1], want)
		}
	}
}
