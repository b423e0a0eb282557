package experiment

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestFactorIsFair: whatever the residual and the model, a bet's mean is 1 over the coin.
func TestFactorIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(0.01, 0.99).Draw(t, "p")
		m := model{a0: rapid.Float64Range(0.01, 2).Draw(t, "a0"), a1: rapid.Float64Range(0, 1).Draw(t, "a1"),
			s: rapid.Float64Range(0.05, 1).Draw(t, "s"), idle: rapid.Float64Range(0, 0.5).Draw(t, "idle")}
		r := rapid.Float64Range(-5, 5).Draw(t, "r")
		on := factor(&coin{P: p, On: true}, m.quiet(r), m.noisy(r))
		off := factor(&coin{P: p}, m.quiet(r), m.noisy(r))
		if got := p*on + (1-p)*off; math.Abs(got-1) > 1e-9 || on <= 0 || off <= 0 {
			t.Fatalf("factors %v and %v: the mean is %v", on, off, got)
		}
	})
}

func TestWeightsOfKernels(t *testing.T) {
	sum := 0.0
	for i, k := range kernelTable() {
		if sum += k.weight; (i < immediate) != (k.lag == 0) || k.lag > maxLag {
			t.Errorf("kernel %d has a lag of %d", i, k.lag)
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("the weights sum to %v", sum)
	}
}

// played is a process after windows of residuals, with coins of p.
func played(residuals []float64, coins []bool, p float64) *process {
	q := &process{}
	for i, r := range residuals {
		w := int64(i) + 1
		q.Coins[index(w, maxLag+1)] = coin{Window: w, P: p, On: coins[i], Active: true}
		q.observe(w, r, effect{disturbed: 0.5, sd: 0.06})
	}
	return q
}

// TestSureIsFair: over all sides of every coin, the mean of what a verdict goes by is 1
// at most, at every time, since each term of it is a martingale or a part of one.
func TestSureIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10).Draw(t, "windows")
		p := rapid.Float64Range(0.2, 0.8).Draw(t, "p")
		residuals := make([]float64, n)
		for i := range residuals {
			residuals[i] = rapid.Float64Range(-0.2, 0.8).Draw(t, "r")
		}
		var synchronous, now float64
		for sides := range 1 << n {
			coins, weight := make([]bool, n), 1.0
			for i := range coins {
				if coins[i] = sides>>i&1 == 1; coins[i] {
					weight *= p
				} else {
					weight *= 1 - p
				}
			}
			q := played(residuals, coins, p)
			now += weight * mean(&q.Now)
			synchronous += weight * q.synchronous()
		}
		if math.Abs(now-1) > 1e-9 || math.Abs(synchronous-1) > 1e-9 {
			t.Fatalf("means %v and %v", now, synchronous)
		}
	})
}

// TestSureStaysFair whenever one looks: over all sides of every coin, what a verdict goes
// by ever reaches c with probability 1/c at most.
func TestSureStaysFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 9).Draw(t, "windows")
		p := rapid.Float64Range(0.2, 0.8).Draw(t, "p")
		residuals := make([]float64, n)
		for i := range residuals {
			residuals[i] = rapid.Float64Range(-0.2, 0.8).Draw(t, "r")
		}
		reached := map[float64]float64{1.05: 0, 1.2: 0, 1.5: 0, 2: 0, 4: 0}
		for sides := range 1 << n {
			q, weight, most := &process{}, 1.0, 0.0
			for i, r := range residuals {
				w, on := int64(i)+1, sides>>i&1 == 1
				if weight *= 1 - p; on {
					weight *= p / (1 - p)
				}
				q.Coins[index(w, maxLag+1)] = coin{Window: w, P: p, On: on, Active: true}
				q.observe(w, r, effect{disturbed: 0.5, sd: 0.06})
				most = max(most, q.sure())
			}
			for c := range reached {
				if most >= c {
					reached[c] += weight
				}
			}
		}
		for c, share := range reached {
			if share > 1/c+1e-9 {
				t.Fatalf("%v is reached with probability %v", c, share)
			}
		}
	})
}

// TestEachKernelFindsItsKind: the evidence against who acts at once, later, in some
// windows only, through a cache, and against who does nothing.
func TestEachKernelFindsItsKind(t *testing.T) {
	const windows = 60
	for _, c := range []struct {
		name   string
		acts   func(coins []bool, i int, r *rand.Rand) float64
		guilty bool
	}{
		{"at once", func(coins []bool, i int, _ *rand.Rand) float64 { return off(coins, i, 0) }, true},
		{"a window later", func(coins []bool, i int, _ *rand.Rand) float64 { return off(coins, i, 1) }, true},
		{"three windows later", func(coins []bool, i int, _ *rand.Rand) float64 { return off(coins, i, 3) }, true},
		{"every second window", func(coins []bool, i int, r *rand.Rand) float64 {
			return off(coins, i, 0) * float64(r.IntN(2))
		}, true},
		{"never", func([]bool, int, *rand.Rand) float64 { return 0 }, false},
		{"always", func([]bool, int, *rand.Rand) float64 { return 0.5 }, false},
	} {
		found := 0
		for seed := range uint64(40) {
			r := rand.New(rand.NewPCG(seed, 1))
			coins, residuals := make([]bool, windows), make([]float64, windows)
			for i := range coins {
				coins[i] = r.IntN(2) == 0
				residuals[i] = c.acts(coins, i, r) + 0.06*r.NormFloat64()
			}
			if played(residuals, coins, 0.5).sure() >= 200 {
				found++
			}
		}
		if c.guilty && found < 32 || !c.guilty && found > 1 {
			t.Errorf("%s: %d of 40 reached 200", c.name, found)
		}
	}
}

// off is the disturbance of who was left alone so many windows ago.
func off(coins []bool, i, ago int) float64 {
	if i < ago || coins[i-ago] {
		return 0
	}
	return 0.5
}

func TestBound(t *testing.T) {
	q := &process{}
	for i := range q.Now {
		q.Now[i] = 20
	}
	q.bound(1000)
	if e := q.e(); math.Abs(e-1000) > 1e-6 {
		t.Errorf("e-value %v, bounded at 1000", e)
	}
}
