package world

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Kind of a machine.
type Kind string

// Kinds with somebody guilty.
const (
	Base       Kind = "base"        // comes and goes, busy 25 to 50 % of the time
	Delayed    Kind = "delayed"     // its effect is 1 to 3 minutes late
	Steady     Kind = "steady"      // comes and never pauses
	TwoWeak    Kind = "two-weak"    // two that hurt little alone
	Bandwidth  Kind = "bandwidth"   // hurts where the sum of demands passes what there is
	L3         Kind = "l3"          // a cache that fills and empties in minutes
	SMT        Kind = "smt"         // on the victim's siblings in every second minute
	LowDuty    Kind = "low-duty"    // busy 8 to 15 % of the time, a minute or two each
	BatchWave  Kind = "batch-wave"  // six jobs run by the same clock, one hurts
	Restarts   Kind = "restarts"    // the victim restarts about every 75 minutes
	Churn      Kind = "churn"       // its pods live 3 to 7 minutes
	SmallJob   Kind = "small-job"   // the victim is the only task of its job
	Shed       Kind = "shed"        // the victim loses its load while it suffers
	Rate       Kind = "rate"        // serves a steady rate, collects at times; its usage follows its CPI
	RemoteTwin Kind = "remote-twin" // a louder one elsewhere keeps about the same hours
	HeavyTails Kind = "heavy-tails" // noise of Student's t with 3 degrees of freedom
	Missing    Kind = "missing"     // every fourth sample
	Skew       Kind = "skew"        // suspects' samples are up to half a minute late
)

// Kinds with nobody to blame.
const (
	SelfLoad  Kind = "self-load" // CPI follows its own load, which jumps
	Coupled   Kind = "coupled"   // has phases, and three consumers work in them
	GC        Kind = "gc"        // a minute or two of collection every half an hour
	Diurnal   Kind = "diurnal"   // a steep day for all
	Deploy    Kind = "deploy"    // a release that needs 30 % more cycles
	Deploy2x  Kind = "deploy-2x" // twice as many
	Phase     Kind = "phase"     // phases of its own
	External  Kind = "external"  // all are slower at times, by no neighbour
	Protected Kind = "protected" // whoever is to blame may not be capped
	Quiet     Kind = "quiet"     // nothing
)

// Rests is an attack: a steady antagonist rests for twenty seconds of each minute, always the same ones, as if it
// knew when windows are.
const Rests Kind = "rests"

// WithGuilty are the kinds with somebody to find, Calm those without.
func WithGuilty() []Kind {
	return []Kind{Base, Delayed, Steady, TwoWeak, Bandwidth, L3, SMT, LowDuty, BatchWave, Restarts, Churn, SmallJob,
		Shed, Rate, RemoteTwin, HeavyTails, Missing, Skew}
}

// Calm are the kinds of which every cap is false.
func Calm() []Kind {
	return []Kind{SelfLoad, Coupled, GC, Diurnal, Deploy, Deploy2x, Phase, External, Protected, Quiet}
}

// maker is a machine while it is made.
type maker struct {
	*Machine
	r      *rand.Rand
	effect float64 // of a single guilty job, minus one
	clock  timetable
	comes  int // when the guilty come
}

// New is the machine of a kind and a seed. Two hours pass before it is judged, for
// four; for eight in the kinds of releases.
func New(kind Kind, seed uint64) *Machine {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	m := &maker{r: r, Machine: &Machine{Kind: kind, Warm: 2 * Hour, Steps: 6 * Hour,
		r: rand.New(rand.NewPCG(seed, 0xbf58476d1ce4e5b9)), missing: 0.01}}
	if kind == Deploy || kind == Deploy2x {
		m.Steps = 10 * Hour
	}
	m.effect, m.clock = 0.4+0.6*r.Float64(), newTimetable(r)
	m.comes = m.Warm + r.IntN(15*Minute)
	m.world = flat(m.Steps)
	m.makeVictim()
	m.makeInnocents(17 + r.IntN(6))
	if QuietOf(kind) == QueueQuiet {
		m.makePool()
	} else {
		m.makeGuilty()
		m.makeTrouble()
	}
	for _, j := range m.Jobs {
		j.cpi = math.Exp(0.35 * r.NormFloat64())
		j.suffers = !j.Guilty && r.IntN(3) == 0 && m.pool == nil
		if kind == Skew {
			j.skew = r.IntN(4)
		}
		if j.Guilty {
			m.guilty = append(m.guilty, j)
		}
	}
	return m.Machine
}

func (m *maker) makeVictim() {
	r, steps := m.r, m.Steps
	v := &m.v
	*v = victim{base: math.Exp(0.35 * r.NormFloat64()), level: math.Exp2(2 * r.Float64()),
		follow: -0.1 + 0.25*r.Float64(), trend: flat(steps), warms: true}
	v.noise = skewed(r, steps, 0.5*r.Float64())
	phase := r.Float64()
	v.load = make([]float32, steps)
	for i := range v.load {
		v.load[i] = float32((1 + 0.3*math.Sin(2*math.Pi*(float64(i)/Day+phase))) * math.Exp(0.1*r.NormFloat64()))
	}
}

func (m *maker) add(j *Job, p pattern, idle, noise float64) *Job {
	j.demand = p.of(j.level, idle, noise, m.r)
	m.Jobs = append(m.Jobs, j)
	return j
}

// makeInnocents adds neighbours of all sorts: constant ones that nobody may throttle, daily, in
// bursts, by the clock. Every fifth comes in the middle.
func (m *maker) makeInnocents(n int) {
	r, steps := m.r, m.Steps
	for i := range n {
		j := &Job{Name: fmt.Sprintf("n%02d", i), Class: "BATCH", level: math.Exp2(-1 + 3.5*r.Float64()),
			catchesUp: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			j.Class = "BE"
		}
		from := 0
		if r.IntN(5) == 0 {
			from = r.IntN(steps)
		}
		var p pattern
		noise := 0.05 + 0.2*r.Float64()
		switch i % 4 {
		case 0:
			p, noise, j.Class = always(steps, from), 0.05, "OTHER"
		case 1:
			p = daily(steps, r.Float64(), 0.5)
		case 2:
			p = duty(r, steps, from, 0.2, 0.6)
		case 3:
			p = m.clock.waves(r, steps, from)
		}
		m.add(j, p, 0.1*r.Float64(), noise).on(1+r.IntN(3), from, steps)
	}
}

func (m *maker) culprit(name string, p pattern) *Job {
	r := m.r
	j := &Job{Name: name, Class: "BATCH", Guilty: true, level: 2 + 4*r.Float64(), catchesUp: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		j.Class = "BE"
	}
	return m.add(j, p, 0.05*r.Float64(), 0.15)
}

func (m *maker) both(make func() influence) { m.real, m.shadow = make(), make() }

// makeGuilty adds whoever the kind is about.
func (m *maker) makeGuilty() {
	r, steps, comes := m.r, m.Steps, m.comes
	usual := func() pattern { return duty(r, steps, comes, 0.25, 0.5) }
	delay := r.IntN(2)
	switch m.Kind {
	case Base, Restarts, SmallJob, Shed, Rate, HeavyTails, Missing, Skew, RemoteTwin, Delayed, L3, SMT, Bandwidth,
		Protected:
		j := m.culprit("antagonist", usual()).on(1+r.IntN(3), comes, steps)
		if m.Kind == Protected {
			j.Class = "OTHER"
		}
		if m.Kind == RemoteTwin {
			m.twin(j)
		}
	case Steady:
		m.culprit("antagonist", always(steps, comes)).on(1+r.IntN(3), comes, steps)
	case Rests:
		m.culprit("antagonist", resting(always(steps, comes), r.IntN(Minute))).on(1+r.IntN(3), comes, steps)
	case LowDuty:
		share, on := 0.08+0.07*r.Float64(), (1+r.Float64())*Minute
		m.culprit("antagonist", bursts(r, steps, comes, on, on*(1-share)/share)).on(1, comes, steps)
	case BatchWave:
		m.culprit("antagonist", m.clock.waves(r, steps, comes)).on(1, comes, steps)
		for i := range 5 {
			j := &Job{Name: fmt.Sprintf("wave%d", i), Class: "BATCH", level: 1 + 4*r.Float64()}
			m.add(j, m.clock.waves(r, steps, comes), 0.05*r.Float64(), 0.15).on(1, comes, steps)
		}
	case Churn:
		m.culprit("antagonist", usual()).churning(r, comes, steps)
	case TwoWeak:
		m.culprit("antagonist-a", usual()).on(1, comes, steps)
		m.culprit("antagonist-b", usual()).on(1, comes, steps)
		alone, both := 0.2+0.1*r.Float64(), 0.2+0.2*r.Float64()
		m.both(func() influence { return &joint{alone: alone, both: both} })
		return
	case SelfLoad, Coupled, GC, Diurnal, Deploy, Deploy2x, Phase, External, Quiet:
		return
	}
	m.reach(delay)
}

// reach is how the guilty reach the victim.
func (m *maker) reach(delay int) {
	r, steps := m.r, m.Steps
	switch m.Kind {
	case Delayed:
		delay = Minute + r.IntN(2*Minute+1)
	case L3:
		fill, drain := 0.08+0.1*r.Float64(), 0.05+0.05*r.Float64()
		m.both(func() influence { return &occupancy{effect: m.effect, fill: fill, drain: drain} })
		return
	case SMT:
		beside := newBeside(r, steps, 0.5)
		m.both(func() influence { return &partTime{effect: m.effect + 0.2, beside: beside} })
		return
	case Bandwidth:
		base := duty(r, steps, 0, 0.3, 0.6).of(0.4, 0.3, 0.2, r)
		m.both(func() influence { return &bandwidth{effect: m.effect, base: base} })
		return
	default:
	}
	m.both(func() influence { return &direct{effect: m.effect, delay: delay} })
}

// twin adds an innocent that is busy in nine of ten of the culprit's minutes, and louder.
func (m *maker) twin(j *Job) {
	r := m.r
	p := make(pattern, m.Steps)
	for minute := range m.Steps / Minute {
		miss := r.IntN(10) == 0
		for i := minute * Minute; i < (minute+1)*Minute; i++ {
			if busy := float64(j.demand[i]) > 0.4*j.level; busy != miss && i >= m.comes {
				p[i] = 1
			}
		}
	}
	t := &Job{Name: "twin", Class: "BATCH", level: 1.5 * j.level}
	m.add(t, p, 0.05*r.Float64(), 0.15).on(1, m.comes, m.Steps)
}

// makeTrouble gives the victim what is its own.
func (m *maker) makeTrouble() {
	r, steps, v := m.r, m.Steps, &m.v
	// Once in twelve hours every victim is in trouble of its own, for five minutes or so.
	during(v.trend, bursts(r, steps, r.IntN(12*Hour), 5*Minute, 12*Hour), 1.2+0.6*r.Float64())
	phases := duty(r, steps, 0, 0.3, 0.5)
	switch m.Kind {
	case Restarts:
		for at := r.IntN(75 * Minute); at < steps; at += (60 + r.IntN(31)) * Minute {
			v.lives = append(v.lives, at)
		}
	case Shed:
		v.shed = 2 + 2*r.Float64()
	case Rate:
		v.rate = true
		for i := range v.load {
			v.load[i] = float32(math.Exp(0.05 * r.NormFloat64()))
		}
		during(v.trend, bursts(r, steps, 0, 1.5*Minute, 20*Minute), 1.6+r.Float64())
	case HeavyTails:
		v.noise = heavy(r, steps)
	case Missing:
		m.missing = 0.25
	case SelfLoad:
		v.follow = 0.5 + 0.3*r.Float64()
		during(v.load, bursts(r, steps, 0, 15*Minute, 30*Minute), 2)
	case Phase, Coupled:
		during(v.trend, phases, 1.4+0.4*r.Float64())
		if m.Kind == Coupled {
			for i := range 3 {
				j := &Job{Name: fmt.Sprintf("consumer%d", i), Class: "BATCH", level: 1 + 3*r.Float64()}
				m.add(j, phases.later(r.IntN(2*Minute+1)), 0.05*r.Float64(), 0.15).on(1+r.IntN(2), 0, steps)
			}
		}
	case GC:
		during(v.trend, bursts(r, steps, 0, 1.5*Minute, 28*Minute), 1.5+0.4*r.Float64())
	case Diurnal:
		steep := daily(steps, r.Float64(), 0.8)
		v.follow = 0.2 + 0.2*r.Float64()
		m.steepen(steep)
	case Deploy, Deploy2x:
		at, factor := m.Warm+r.IntN(30*Minute), 1.3
		if m.Kind == Deploy2x {
			factor = 2
		}
		v.lives = append(v.lives, at)
		during(v.trend, always(steps, at), factor)
	case External:
		during(m.world, duty(r, steps, m.Warm, 0.2, 0.4), 1.4+0.4*r.Float64())
		for _, j := range m.Jobs {
			j.suffers = true
		}
	default:
	}
}

// steepen makes everybody's load follow a day.
func (m *maker) steepen(day pattern) {
	for i := range m.v.load {
		m.v.load[i] *= day[i]
	}
	for _, j := range m.Jobs {
		for i := range j.demand {
			j.demand[i] *= day[i]
		}
	}
}
