package world

import "math/rand/v2"

// influence is how the activity of the guilty becomes a factor on the victim's CPI.
// There are two of each on a machine: one sees what the jobs do, the other what they
// would have done had nobody been throttled.
type influence interface {
	// excess is the factor minus one, given the activity of each guilty job.
	excess(step int, activity []float64) float64
}

// direct follows the activity, late by some steps.
type direct struct {
	effect float64
	delay  int
	past   []float64
}

func (d *direct) excess(step int, activity []float64) float64 {
	if d.past == nil {
		d.past = make([]float64, d.delay+1)
	}
	d.past[step%len(d.past)] = activity[0]
	return d.effect * d.past[(step+1)%len(d.past)]
}

// occupancy fills and empties in minutes: a cache.
type occupancy struct{ effect, fill, drain, held float64 }

func (o *occupancy) excess(_ int, activity []float64) float64 {
	if a := min(activity[0], 1); a > o.held {
		o.held += o.fill * (a - o.held)
	} else {
		o.held += o.drain * (a - o.held)
	}
	return o.effect * o.held
}

// partTime reaches the victim in some minutes only: when the scheduler puts the two on
// siblings.
type partTime struct {
	effect float64
	beside []bool // by minute
}

func newBeside(r *rand.Rand, steps int, share float64) []bool {
	out := make([]bool, steps/Minute+1)
	for i := range out {
		out[i] = r.Float64() < share
	}
	return out
}

func (p *partTime) excess(step int, activity []float64) float64 {
	if !p.beside[step/Minute] {
		return 0
	}
	return p.effect * activity[0]
}

// joint is two that hurt little alone and more together.
type joint struct{ alone, both float64 }

func (j *joint) excess(_ int, activity []float64) float64 {
	return j.alone*(activity[0]+activity[1]) + j.both*activity[0]*activity[1]
}

// bandwidth hurts once the sum of all demands passes what there is. The guilty one wants
// most of it; the innocents' parts are in base.
type bandwidth struct {
	effect float64
	base   []float32 // by step, 0 to 0.4
}

func (b *bandwidth) excess(step int, activity []float64) float64 {
	over := activity[0] + float64(b.base[step]) - 0.5
	return b.effect * max(over, 0) / 0.7
}
