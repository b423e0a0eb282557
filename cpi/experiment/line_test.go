package experiment

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLineFollowsTheLoad, whatever a tenth of the windows are.
func TestLineFollowsTheLoad(t *testing.T) {
	for _, c := range []struct{ slope, want float64 }{{0.5, 0.5}, {-0.3, -0.3}, {0, 0}, {3, maxSlope}} {
		r := rand.New(rand.NewPCG(1, 1))
		var points []point
		for i := range 300 {
			x := 0.5 * r.NormFloat64()
			y := 1 + c.slope*x + 0.05*r.NormFloat64()
			if i%12 == 0 {
				y += 0.7
			}
			points = append(points, point{float32(x), float32(y)})
		}
		var w fitting
		l := w.fit(points)
		if math.Abs(l.B-c.want) > 0.05 || c.slope < 1 && math.Abs(l.SD-0.05) > 0.015 {
			t.Errorf("slope %v: %+v", c.slope, l)
		}
		if c.slope < 1 && math.Abs(l.predict(0)-1) > 0.02 {
			t.Errorf("slope %v: %v at 0", c.slope, l.predict(0))
		}
		// Beyond what was seen, a load counts as the most or least that was.
		if l.predict(10) != l.predict(l.High) || l.predict(-10) != l.predict(l.Low) {
			t.Errorf("slope %v: %v and %v far out", c.slope, l.predict(10), l.predict(-10))
		}
	}
}

// TestLineOverWork: of who serves a steady rate, usage rises with CPI whatever the cause, and a line over usage
// would explain a disturbance away. Of who is always busy, work falls with CPI. A load that does matter is
// followed over usage.
func TestLineOverWork(t *testing.T) {
	for name, c := range map[string]struct {
		window      func(r *rand.Rand, slow float64) (usage, cpi float64) // logarithms, slowed by so much
		most, least float64                                               // residual when slowed by 0.7
	}{
		"steady rate": {func(r *rand.Rand, slow float64) (float64, float64) {
			cpi := 0.3*r.NormFloat64() + slow
			return 0.05*r.NormFloat64() + cpi, cpi
		}, 1.1, 0.6},
		"always busy": {func(r *rand.Rand, slow float64) (float64, float64) {
			return 0.05 * r.NormFloat64(), 0.3*r.NormFloat64() + slow
		}, 0.8, 0.6},
		"follows its load": {func(r *rand.Rand, slow float64) (float64, float64) {
			load := 0.4 * r.NormFloat64()
			return load, 0.6*load + 0.05*r.NormFloat64() + slow
		}, 0.8, 0.6},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		var points []point
		for range 300 {
			x, y := c.window(r, 0)
			points = append(points, point{float32(x), float32(y)})
		}
		var w fitting
		l := w.fit(points)
		var rest float64
		const windows = 400
		for range windows {
			x, y := c.window(r, 0.7)
			rest += (y - l.predict(l.load(point{float32(x), float32(y)}))) / windows
		}
		if rest < c.least || rest > c.most || l.OverWork != (name == "steady rate") {
			t.Errorf("%s: slowed by 0.7 it is %.2f off %+v", name, rest, l)
		}
	}
}

// TestOwnNature: what more than a tenth of its windows do is no outlier.
func TestOwnNature(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var points []point
	for i := range 200 {
		y := 0.03 * r.NormFloat64()
		if i%6 == 0 {
			y += 0.5
		}
		points = append(points, point{0, float32(y)})
	}
	var w fitting
	if l := w.fit(points); l.Thr < 0.45 || l.Thr > 0.65 {
		t.Errorf("the threshold is %v above normal, where every sixth window is 0.5 above", l.Thr)
	}
}

func TestNth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 60).Draw(t, "list")
		n := rapid.IntRange(0, len(list)-1).Draw(t, "n")
		sorted := slices.Clone(list)
		slices.Sort(sorted)
		if got := nth(list, n); got != sorted[n] {
			t.Fatalf("%v, want %v", got, sorted[n])
		}
	})
}
