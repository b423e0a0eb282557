package world

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Job is a neighbour: containers that share one demand.
type Job struct {
	Name  string
	Class string // LS, BATCH or BE
	// Guilty says that the victim suffers from it.
	Guilty bool

	level     float64   // CPUs when it is busy
	demand    []float32 // CPUs that it wants in each step
	cpi       float64
	suffers   bool // from what disturbs the victim: the same work takes it longer
	catchesUp bool // work that a throttle prevented is done later
	skew      int  // steps by which its samples are late
	inPool    bool // it shares the victim's CPUs
	pods      []pod

	backlog float64 // CPU-steps of work put off
	used    float64 // CPUs in this step
}

// pod is one container of a job.
type pod struct {
	id       string
	from, to int // steps in which it runs: [from, to)
	limit    float64
	used     float64
	bitten   bool // the limit took something away in this step
}

const noLimit = math.MaxFloat64

func (p *pod) runs(step int) bool { return p.from <= step && step < p.to }

// on gives a job that many containers, which run from a step to the end.
func (j *Job) on(containers, from, end int) *Job {
	for i := range containers {
		j.pods = append(j.pods, pod{id: fmt.Sprintf("%s-%d", j.Name, i), from: from, to: end, limit: noLimit})
	}
	return j
}

// churning gives a job containers that live 3 to 7 minutes, each followed by the next.
func (j *Job) churning(r *rand.Rand, from, end int) *Job {
	for at, i := from, 0; at < end; i++ {
		life := 3*Minute + r.IntN(4*Minute+1)
		j.pods = append(j.pods, pod{id: fmt.Sprintf("%s-%d", j.Name, i), from: at, to: min(at+life, end),
			limit: noLimit})
		at += life
	}
	return j
}

// run spreads the demand of a step over the containers that run, as far as they are
// let.
func (j *Job) run(step int) {
	living := 0
	for i := range j.pods {
		p := &j.pods[i]
		p.used, p.bitten = 0, false
		if p.runs(step) {
			living++
		}
	}
	j.used = 0
	if living == 0 {
		j.backlog = 0
		return
	}
	want := float64(j.demand[step])
	if j.catchesUp {
		want = min(want+j.backlog, max(want, 1.5*j.level))
	}
	for i := range j.pods {
		p := &j.pods[i]
		if !p.runs(step) {
			continue
		}
		share := want / float64(living)
		p.used, p.bitten = min(share, p.limit), share > p.limit
		j.used += p.used
	}
	j.backlog = min(max(j.backlog+float64(j.demand[step])-j.used, 0), 3*Minute*j.level)
}

// activity is how busy a job is: 1 at its level.
func (j *Job) activity(cpus float64) float64 { return min(cpus/j.level, 1.3) }

// pattern is a demand between 0 and 1 in each step.
type pattern []float32

func (p pattern) of(level, idle, noise float64, r *rand.Rand) []float32 {
	out := make([]float32, len(p))
	for i, v := range p {
		out[i] = float32(level * (float64(v) + (1-float64(v))*idle) * math.Exp(noise*r.NormFloat64()))
	}
	return out
}

func always(steps, from int) pattern {
	p := make(pattern, steps)
	for i := from; i < steps; i++ {
		p[i] = 1
	}
	return p
}

// resting leaves out two steps of each minute.
func resting(p pattern, at int) pattern {
	for i := range p {
		if since := (i - at + Minute) % Minute; since < 2 {
			p[i] = 0
		}
	}
	return p
}

// bursts are on and off for exponential times of these means, in steps.
func bursts(r *rand.Rand, steps, from int, on, off float64) pattern {
	p := make(pattern, steps)
	at := from - int(r.Float64()*off)
	for at < steps {
		until := at + 2 + int(r.ExpFloat64()*on)
		for ; at < min(until, steps); at++ {
			if at >= from {
				p[at] = 1
			}
		}
		at += 2 + int(r.ExpFloat64()*off)
	}
	return p
}

// duty is bursts of 4 to 10 minutes on average that fill a share of the time.
func duty(r *rand.Rand, steps, from int, low, high float64) pattern {
	share := low + (high-low)*r.Float64()
	on := (4 + 6*r.Float64()) * Minute
	return bursts(r, steps, from, on, on*(1-share)/share)
}

// timetable is waves by a clock: all begin within a minute.
type timetable struct{ every, first int }

func newTimetable(r *rand.Rand) timetable {
	every := []int{15, 20, 30}[r.IntN(3)] * Minute
	return timetable{every: every, first: r.IntN(every)}
}

func (t timetable) waves(r *rand.Rand, steps, from int) pattern {
	p := make(pattern, steps)
	length := (4 + 6*r.Float64()) * Minute
	for at := t.first; at < steps; at += t.every {
		begin := at + r.IntN(Minute)
		for i := begin; i < min(begin+int(length*(0.8+0.4*r.Float64())), steps); i++ {
			if i >= from {
				p[i] = 1
			}
		}
	}
	return p
}

func daily(steps int, phase, swing float64) pattern {
	p := make(pattern, steps)
	for i := range p {
		p[i] = float32((1 + swing*math.Sin(2*math.Pi*(float64(i)/Day+phase))) / (1 + swing))
	}
	return p
}

// later is a pattern shifted by steps.
func (p pattern) later(steps int) pattern {
	out := make(pattern, len(p))
	for i := range out {
		if k := i - steps; k >= 0 && k < len(p) {
			out[i] = p[k]
		}
	}
	return out
}
