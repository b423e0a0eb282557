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
			s: rapid.Float64Range(0.05, 1).Draw(t, "s"), idle: rapid.Float64Range(0, 0.5).Draw(t, "idle"),
			wide: rapid.Float64Range(0.05, 1).Draw(t, "wide")}
		r := rapid.Float64Range(-5, 5).Draw(t, "r")
		on := factor(&coin{P: p, On: true}, m.quiet(r), m.noisy(r))
		off := factor(&coin{P: p}, m.quiet(r), m.noisy(r))
		if got := p*on + (1-p)*off; math.Abs(got-1) > 1e-9 || on <= 0 || off <= 0 {
			t.Fatalf("factors %v and %v: the mean is %v", on, off, got)
		}
	})
}

func TestWeightsOfKernels(t *testing.T) {
	for span := 1; span <= MostWindows; span++ {
		b, sum := bankFor(span), 0.0
		if len(b.list) > kernels || b.longest >= recent || b.block >= recent {
			t.Errorf("%d windows in a period: %d kernels, lags up to %d, blocks of %d", span, len(b.list), b.longest,
				b.block)
		}
		for i := range b.list {
			if sum += b.list[i].weight; b.list[i].lag > b.longest || b.list[i].over > judged {
				t.Errorf("kernel %d has a lag of %d, and judges %d windows", i, b.list[i].lag, b.list[i].over)
			}
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Errorf("%d windows in a period: the weights sum to %v", span, sum)
		}
	}
}

// acts is how a window goes by the coins so far.
type acts func(coins []bool, i int, r *rand.Rand) float64

// play a process through windows of residuals, with coins of p; where blocks are wanted, each
// coin holds for one. After every window it calls each.
func play(b *bank, residuals []float64, toss []bool, p float64, each func(q *process)) {
	q := &process{}
	for i, r := range residuals {
		w := int64(i) + 1
		c := coin{Window: w, P: p, On: toss[i], x: effect{disturbed: 0.5, sd: 0.06}}
		q.Coins[index(w, recent)] = c
		q.observe(b, w, seen{r, true})
		each(q)
	}
}

// TestSureIsFair: over all sides of every coin, what kernels of one lag have won has their
// weight as its mean at every time, and what a verdict goes by ever reaches c with
// probability 1/c at most.
func TestSureIsFair(t *testing.T) {
	for _, span := range []int{1, 2, 6} {
		b := bankFor(span)
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(4, 9).Draw(t, "windows")
			residuals := make([]float64, n)
			for i := range residuals {
				residuals[i] = rapid.Float64Range(-0.2, 0.8).Draw(t, "r")
			}
			p := rapid.Float64Range(0.2, 0.8).Draw(t, "p")
			reached := map[float64]float64{1.05: 0, 1.2: 0, 1.5: 0, 2: 0, 4: 0}
			var won, weight [recent]float64
			for i := range b.list {
				weight[b.list[i].lag] += b.list[i].weight
			}
			for sides := range 1 << n {
				toss, chance, most := make([]bool, n), 1.0, 0.0
				for i := range toss {
					chance *= 1 - p
					if toss[i] = sides>>i&1 == 1; toss[i] {
						chance *= p / (1 - p)
					}
				}
				last := &process{}
				play(b, residuals, toss, p, func(q *process) { most, last = max(most, q.sure(b)), q })
				for i := range b.list {
					won[b.list[i].lag] += chance * b.list[i].weight * math.Exp(last.Now[i])
				}
				for c := range reached {
					if most >= c {
						reached[c] += chance
					}
				}
			}
			for lag := range won {
				if math.Abs(won[lag]-weight[lag]) > 1e-9 {
					t.Fatalf("lag %d: the mean is %v, the weight %v", lag, won[lag], weight[lag])
				}
			}
			for c, share := range reached {
				if share > 1/c+1e-9 {
					t.Fatalf("%v is reached with probability %v", c, share)
				}
			}
		})
	}
}

// TestEachKernelFindsItsKind: the evidence against who acts at once, later, in some
// windows only, through a cache, and against who does nothing.
func TestEachKernelFindsItsKind(t *testing.T) {
	later := func(by int) acts {
		return func(coins []bool, i int, _ *rand.Rand) float64 { return off(coins, i, by) }
	}
	now, half, never := later(0), func(coins []bool, i int, r *rand.Rand) float64 {
		return off(coins, i, 0) * float64(r.IntN(2))
	}, func([]bool, int, *rand.Rand) float64 { return 0 }
	always := func([]bool, int, *rand.Rand) float64 { return 0.5 }
	for _, c := range []struct {
		span   int
		name   string
		acts   acts
		guilty bool
	}{
		{1, "at once", now, true}, {6, "at once", now, true},
		{1, "a window later", later(1), true}, {6, "a window later", later(1), true},
		{1, "three windows later", later(3), true}, {6, "three minutes later", later(18), true},
		{1, "every second window", half, true}, {6, "every second window", half, true},
		{1, "never", never, false}, {6, "never", never, false},
		{1, "always", always, false}, {6, "always", always, false},
	} {
		found, b := 0, bankFor(c.span)
		for seed := range uint64(40) {
			r := rand.New(rand.NewPCG(seed, 1))
			toss, residuals := make([]bool, 60), make([]float64, 60)
			for i := range toss {
				toss[i] = r.IntN(2) == 0
				residuals[i] = c.acts(toss, i, r) + 0.06*r.NormFloat64()
			}
			reached := false
			play(b, residuals, toss, 0.5, func(q *process) { reached = reached || q.sure(b) >= 200 })
			if reached {
				found++
			}
		}
		if c.guilty && found < 32 || !c.guilty && found > 1 {
			t.Errorf("%s, %d windows a period: %d of 40 reached 200", c.name, c.span, found)
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
	q, b := &process{}, bankFor(6)
	for i := range b.list {
		q.Now[i] = 20
	}
	q.bound(b, 1000)
	if e := q.e(b); math.Abs(e-1000) > 1e-6 {
		t.Errorf("e-value %v, bounded at 1000", e)
	}
}
