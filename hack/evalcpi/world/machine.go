package world

import (
	"math"
	"math/rand/v2"
)

// Times, in steps of ten seconds.
const (
	Minute = 6
	Hour   = 60 * Minute
	Day    = 24 * Hour
)

// Row is one container's sample of a step.
type Row struct {
	Container, Job, Class string
	Usage, CPI            float64
	// Caused is how long protected containers waited for it, as CPU-seconds per second; of
	// machines without CPIs, once a detector's shell has looked at Waits.
	Caused float64
}

// VictimJob is the name of the victim's job.
const VictimJob = "victim"

// Machine is a victim and its neighbours.
type Machine struct {
	Kind Kind
	// Warm is when judging begins and the guilty may come; Steps is the end.
	Warm, Steps int
	Jobs        []*Job

	r       *rand.Rand // of samples
	v       victim
	guilty  []*Job
	real    influence
	shadow  influence
	pool    *pool     // nil: the victim has CPUs of its own, and CPIs are counted
	world   []float32 // factor on everybody's CPI: an external cause
	missing float64

	step     int
	moment   moment
	activity []float64
}

// moment is a step: the factor on the victim's CPI, what the guilty add to it, and what
// they would add.
type moment struct{ slowed, disturb, wouldBe float64 }

// Step lets ten seconds pass; false at the end.
func (m *Machine) Step() bool {
	if m.step+1 >= m.Steps {
		return false
	}
	m.step++
	for _, j := range m.Jobs {
		j.run(m.step)
	}
	if m.pool != nil {
		m.moment = m.pool.run(m)
		return true
	}
	m.moment = moment{slowed: float64(m.world[m.step])}
	if m.real != nil {
		m.activity = m.activity[:0]
		for _, j := range m.guilty {
			m.activity = append(m.activity, j.activity(j.used))
		}
		m.moment.disturb = m.real.excess(m.step, m.activity)
		for i, j := range m.guilty {
			m.activity[i] = j.activity(float64(j.demand[m.step]))
			if !j.living(m.step) {
				m.activity[i] = 0
			}
		}
		m.moment.wouldBe = m.shadow.excess(m.step, m.activity)
		m.moment.slowed *= 1 + m.moment.disturb
	}
	return true
}

func (j *Job) living(step int) bool {
	for i := range j.pods {
		if j.pods[i].runs(step) {
			return true
		}
	}
	return false
}

// Now is the number of the step.
func (m *Machine) Now() int { return m.step }

// Disturbance is how much slower the victim is in this step for the guilty, and how
// much slower it would be had nobody been throttled; 0.5 is half as slow again.
func (m *Machine) Disturbance() (is, wouldBe float64) { return m.moment.disturb, m.moment.wouldBe }

// Rows are the samples of this step. Each call draws noise.
func (m *Machine) Rows(rows []Row) []Row {
	usage, cpi := m.v.sample(m.step, m.moment.slowed)
	if m.pool != nil {
		usage, cpi = m.pool.own, 0
	}
	if m.r.Float64() >= m.missing {
		rows = append(rows, Row{Container: m.v.id(m.step), Job: VictimJob, Class: "LS", Usage: usage, CPI: cpi})
	}
	for _, j := range m.Jobs {
		noise, jitter, lost := m.r.NormFloat64(), m.r.NormFloat64(), m.r.Float64() < m.missing
		if lost {
			continue
		}
		slowed := 1.0
		if j.suffers {
			slowed = m.moment.slowed
		}
		cpi := j.cpi * math.Exp(0.06*noise) * slowed
		for i := range j.pods {
			p := &j.pods[i]
			if !p.runs(m.step) {
				continue
			}
			used := p.used * math.Exp(0.04*jitter)
			if j.skew > 0 {
				used = float64(j.demand[max(m.step-j.skew, 0)]) / float64(len(j.pods))
			}
			// The same work takes longer.
			used = min(used*slowed, p.limit)
			rows = append(rows, Row{Container: p.id, Job: j.Name, Class: j.Class, Usage: used, CPI: cpi})
		}
	}
	return rows
}

// Throttle limits all containers of a job, those to come included, to so many CPUs
// each; 0: no limit. It is in force from the next step on.
func (m *Machine) Throttle(job string, cpus float64) {
	if cpus <= 0 {
		cpus = noLimit
	}
	for _, j := range m.Jobs {
		if j.Name != job {
			continue
		}
		for i := range j.pods {
			j.pods[i].limit = cpus
		}
	}
}

// ThrottleContainer limits one container.
func (m *Machine) ThrottleContainer(id string, cpus float64) {
	if cpus <= 0 {
		cpus = noLimit
	}
	for _, j := range m.Jobs {
		for i := range j.pods {
			if j.pods[i].id == id {
				j.pods[i].limit = cpus
			}
		}
	}
}

// Limited says whether a limit is in force on a job, and whether it took something
// away in this step.
func (j *Job) Limited(step int) (limited, bitten bool) {
	for i := range j.pods {
		p := &j.pods[i]
		if p.runs(step) && p.limit < noLimit {
			limited = true
			bitten = bitten || p.bitten
		}
	}
	return limited, bitten
}

// Arrives is the first step in which a job runs.
func (j *Job) Arrives() int {
	first := math.MaxInt
	for i := range j.pods {
		first = min(first, j.pods[i].from)
	}
	return first
}

// LikeVictimOf gives the victim the level, the load and the noise of another machine's,
// without its troubles: a task of the same job elsewhere.
func (m *Machine) LikeVictimOf(o *Machine) {
	m.v.base, m.v.level, m.v.follow, m.v.load = o.v.base, o.v.level, o.v.follow, o.v.load
	if m.pool != nil {
		m.pool.share, m.pool.quota = o.pool.share, o.pool.quota
	}
}
