package experiment

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// blocks plays a test in blocks, and says how many it took to reach 200; most: it did not. The
// residual is what level says, given whether the suspect is throttled, and noise.
func blocks(r *rand.Rand, most int, disturbed float64, level func(on bool) float64) int {
	b, q := bankFor(6), &process{}
	for n := range most {
		on := r.IntN(2) == 0
		for k := range b.block {
			w := int64(n*b.block+k) + 1
			if c := (coin{Window: w, P: 1, On: on, x: effect{disturbed: disturbed, sd: 0.085}}); k == 0 || on {
				if k == 0 {
					c.P, c.Block = pEven, true
				}
				q.Coins[index(w, recent)] = c
			} else {
				q.Coins[index(w, recent)] = coin{}
			}
			q.observe(b, w, seen{level(on) + 0.085*r.NormFloat64(), true})
		}
		if q.sure(b) >= 200 {
			return n + 1
		}
	}
	return most
}

// TestACacheIsFoundInBlocks: one that others fill in a minute or two and that drains in two or three,
// with a victim that is up to twice as slow while it is full. Where the coin does not matter it is not.
func TestACacheIsFoundInBlocks(t *testing.T) {
	const machines, most = 60, 120
	var took []int
	innocents := 0
	for seed := range uint64(machines) {
		r := rand.New(rand.NewPCG(seed, 7))
		does, fill, drain := 0.4+0.6*r.Float64(), 0.08+0.1*r.Float64(), 0.05+0.05*r.Float64()
		held := 0.5
		took = append(took, blocks(r, most, 0.8*math.Log1p(does), func(on bool) float64 {
			if on {
				held -= drain * held
			} else {
				held += fill * (1 - held)
			}
			return math.Log1p(does * held)
		}))
		if blocks(r, most, 0.4, func(bool) float64 { return 0.4 }) < most {
			innocents++
		}
	}
	slices.Sort(took)
	t.Logf("half of them in %d blocks, three of four in %d; %d of %d innocents", took[machines/2], took[machines*3/4],
		innocents, machines)
	if took[machines/2] > 20 || took[machines*3/4] > 25 || innocents > 3 {
		t.Errorf("half of them in %d blocks, three of four in %d; %d of %d innocents", took[machines/2],
			took[machines*3/4], innocents, machines)
	}
}

// TestPace: the slow one is tried where single windows say nothing, and kept for as long as blocks
// say more.
func TestPace(t *testing.T) {
	b := bankFor(6)
	for _, c := range []struct {
		name       string
		slow       bool
		bets       int
		fast, lazy float64 // ln of what kernels of single windows and of blocks have won
		want       bool
	}{
		{"too early", false, fastBets - 1, 0, 0, false},
		{"single windows say nothing", false, fastBets, 0, 0, true},
		{"single windows say much", false, fastBets, 3, 0, false},
		{"blocks say more already", false, fastBets, 3, 5, true},
		{"blocks too early", true, slowBets - 1, 0, 0, true},
		{"blocks say nothing", true, slowBets, 0, 0, false},
		{"blocks say a little", true, slowBets, -1, 0.5, true},
		{"blocks say much", true, slowBets, 0, 4, true},
		{"blocks say less", true, slowBets, 2, 2, false},
	} {
		p := &pair{stage: Testing, pace: pace{slow: c.slow, bets: c.bets}}
		for i, k := range b.list {
			p.proc.Now[i] = c.fast
			if k.block {
				p.proc.Now[i] = c.lazy
			}
		}
		early := c.bets != fastBets && c.bets != slowBets
		if p.choose(b); p.pace.slow != c.want || p.pace.bets != 0 != early {
			t.Errorf("%s: slow %t, want %t; %d bets", c.name, p.pace.slow, c.want, p.pace.bets)
		}
	}
}
