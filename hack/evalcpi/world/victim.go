package world

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// victim is one task of a latency-sensitive job.
type victim struct {
	base   float64   // CPI
	level  float64   // CPUs
	load   []float32 // by step, relative to the level
	follow float64   // how its CPI follows its load, as a power
	trend  []float32 // factor on its CPI by step that is its own: phases, collections, releases
	noise  []float32 // factor on its CPI by step
	shed   float64   // power by which its usage falls with what slows it; 0: some of it waits
	rate   bool      // it serves a given rate of requests: whatever makes it slower shows in its usage, too
	lives  []int     // steps at which a new container takes over
	warms  bool      // a new container is slow in its first minute
}

// gev is the shape that the CPI² paper fitted to a web search job's CPI, relative to its
// mean: deviation 0.089, skewed to the right.
func gev(p float64) float64 {
	const location, scale, shape = 1.73, 0.133, -0.0534
	return (location + scale*(math.Pow(-math.Log(p), -shape)-1)/shape) / 1.8001
}

// skewed noise has the GEV's distribution. Its states of two steps resemble each other,
// by carry in a minute.
func skewed(r *rand.Rand, steps int, carry float64) []float32 {
	out := make([]float32, steps)
	carry = math.Pow(carry, 1.0/Minute)
	state := r.NormFloat64()
	for i := range out {
		state = carry*state + math.Sqrt(1-carry*carry)*r.NormFloat64()
		out[i] = float32(gev(min(max(0.5*math.Erfc(-state/math.Sqrt2), 1e-9), 1-1e-9)))
	}
	return out
}

// heavy noise is Student's t with three degrees of freedom, on the logarithm.
func heavy(r *rand.Rand, steps int) []float32 {
	out := make([]float32, steps)
	for i := range out {
		var chi float64
		for range 3 {
			x := r.NormFloat64()
			chi += x * x
		}
		t := r.NormFloat64() / math.Sqrt(chi/3)
		out[i] = float32(math.Exp(0.06 * min(max(t, -12), 12)))
	}
	return out
}

func (v *victim) life(step int) int {
	n := 0
	for _, at := range v.lives {
		if step >= at {
			n++
		}
	}
	return n
}

func (v *victim) id(step int) string { return fmt.Sprintf("victim-%d", v.life(step)) }

// sample is the victim's usage and CPI in a step, slowed by a factor.
func (v *victim) sample(step int, slowed float64) (usage, cpi float64) {
	load := float64(v.load[step])
	cpi = v.base * float64(v.noise[step]) * float64(v.trend[step]) * math.Pow(load, v.follow) * slowed
	if n := v.life(step); v.warms && n > 0 && step-v.lives[n-1] < Minute {
		cpi *= 1.8
	}
	switch {
	case v.shed > 0:
		return v.level * load * math.Pow(slowed, -v.shed), cpi
	case v.rate:
		return v.level * load * cpi / v.base, cpi
	}
	// The same work takes longer, but some of it waits.
	return v.level * load * math.Sqrt(slowed), cpi
}

func flat(steps int) []float32 {
	out := make([]float32, steps)
	for i := range out {
		out[i] = 1
	}
	return out
}

// during multiplies a series by a factor where a pattern is on.
func during(series []float32, p pattern, factor float64) {
	for i := range series {
		series[i] *= float32(1 + (factor-1)*float64(p[i]))
	}
}
