package world

import "math"

// pool is a machine without CPIs: victim and neighbours share CPUs, and wait for one another.
type pool struct {
	cpus  float64
	share float64 // CPUs that the victim's weight is worth where all want them
	// slices says how long who comes waits where the others have all CPUs, for each second of
	// work: what they are let run before the scheduler takes the CPU from them.
	slices float64
	self   []float32 // by step: how long its threads wait for one another, for each second of work
	host   []float32 // by step: CPUs that services of the host take
	quota  float64   // CPUs that the victim may use; 0: any number

	own     float64 // the victim's usage in this step
	stopped float64 // share of the step in which its quota stopped it
}

// Waits are what the victim waited for in a step, in seconds for each second.
type Waits struct {
	By         []Wait
	Self, Host float64
	// Some is the share of the step in which some thread of it waited, Stopped that in which
	// its quota stopped it.
	Some, Stopped float64
}

// Wait is time that the victim waited for a container.
type Wait struct {
	Container string
	For       float64
}

// ByQueue says that the machine counts no CPI, but what the victim waits for.
func (m *Machine) ByQueue() bool { return m.pool != nil }

// run lets the victim and its neighbours have their CPUs.
func (p *pool) run(m *Machine) moment {
	want := m.v.level * float64(m.v.load[m.step]) * float64(m.v.trend[m.step])
	p.stopped = 0
	if p.quota > 0 && want > p.quota {
		p.stopped, want = 1-p.quota/want, p.quota
	}
	var innocent, guilty, wouldBe float64
	for _, j := range m.Jobs {
		switch {
		case !j.inPool:
		case !j.Guilty:
			innocent += j.used
		default:
			guilty += j.used
			if j.living(m.step) {
				wouldBe += float64(j.demand[m.step])
			}
		}
	}
	innocent += float64(p.host[m.step])
	var is float64
	is, p.own = p.waits(want, innocent+guilty)
	without, _ := p.waits(want, innocent)
	all, _ := p.waits(want, innocent+wouldBe)
	return moment{slowed: 1 + is, disturb: is - without, wouldBe: all - without}
}

// waits is how long who wants so many CPUs waits for each second that it gets, and what it
// gets, where the others want so many. They have at most what its weight leaves.
func (p *pool) waits(want, others float64) (waits, own float64) {
	own = min(want, max(p.cpus-others, min(p.share, p.cpus)))
	busy := min(others, p.cpus-own) / max(p.cpus-own, 1e-9)
	// A CPU that is free is found the less often the fewer there are, and the more often the
	// more CPUs there are to look for one.
	return p.slices*math.Pow(busy, math.Sqrt(2*(p.cpus+1))-1) + want/own - 1, own
}

// Waits draws the noise of what the victim waited for in this step. Who had the CPU is blamed by
// how much of them it had.
func (m *Machine) Waits() Waits {
	p := m.pool
	waited := (m.moment.slowed - 1) * p.own * math.Exp(0.25*m.r.NormFloat64())
	waited += 0.01 * p.own * m.r.ExpFloat64()
	w := Waits{Self: float64(p.self[m.step]) * p.own, Stopped: p.stopped}
	total := float64(p.host[m.step])
	for _, j := range m.Jobs {
		if j.inPool {
			total += j.used
		}
	}
	if total > 0 {
		w.Host = waited * float64(p.host[m.step]) / total
	}
	for _, j := range m.Jobs {
		for i := range j.pods {
			if c := &j.pods[i]; j.inPool && c.used > 0 {
				w.By = append(w.By, Wait{Container: c.id, For: waited * c.used / total})
			}
		}
	}
	w.Some = 1 - math.Exp(-(waited + w.Self))
	return w
}

// Machines without CPIs on which somebody is guilty.
const (
	QueueBase    Kind = "queue-base"    // comes and goes, wants about all CPUs
	QueueSteady  Kind = "queue-steady"  // never pauses
	QueueTwo     Kind = "queue-two"     // each wants half of them
	QueueFull    Kind = "queue-full"    // comes to a pool that is well used already
	QueueStarved Kind = "queue-starved" // the victim's weight is worth less than it needs
	QueueChurn   Kind = "queue-churn"   // its pods live 3 to 7 minutes
	QueueTwin    Kind = "queue-twin"    // a louder one on other CPUs keeps about the same hours
)

// Machines without CPIs on which nobody is.
const (
	QueueQuiet Kind = "queue-quiet" // nothing
	QueueCrowd Kind = "queue-crowd" // production that may not be capped fills the pool at times
	QueueHost  Kind = "queue-host"  // services of the host do
	QueueSelf  Kind = "queue-self"  // its threads wait for one another, in phases; consumers work in them
	QueueQuota Kind = "queue-quota" // its own quota stops it, in phases; consumers work in them
	QueueDaily Kind = "queue-daily" // a steep day for all
)

// QueuesWithGuilty lists the kinds of machines without CPIs on which somebody disturbs the victim.
func QueuesWithGuilty() []Kind {
	return []Kind{QueueBase, QueueSteady, QueueTwo, QueueFull, QueueStarved, QueueChurn, QueueTwin}
}

// CalmQueues lists those on which nobody that may be capped does.
func CalmQueues() []Kind {
	return []Kind{QueueQuiet, QueueCrowd, QueueHost, QueueSelf, QueueQuota, QueueDaily}
}

// QuietOf is the kind on which nothing happens, of machines that count as this one does.
func QuietOf(kind Kind) Kind {
	for _, k := range append(QueuesWithGuilty(), CalmQueues()...) {
		if k == kind {
			return QueueQuiet
		}
	}
	return Quiet
}

// makePool has victim and neighbours share CPUs, of which the innocents use a part.
func (m *maker) makePool() {
	r, v := m.r, &m.v
	p := &pool{cpus: float64(4 * (1 + r.IntN(8))), slices: 0.5 + r.Float64(), self: make([]float32, m.Steps),
		host: make([]float32, m.Steps)}
	m.pool = p
	v.level = (0.05 + 0.2*r.Float64()) * p.cpus
	p.share = 1.3 * v.level * (0.8 + 0.4*r.Float64())
	part := 0.1 + 0.2*r.Float64()
	if m.Kind == QueueFull {
		part = 0.45
	}
	var level float64
	for _, j := range m.Jobs {
		if j.inPool = r.IntN(2) == 0; j.inPool {
			level += j.level
		}
	}
	for _, j := range m.Jobs {
		if j.inPool {
			j.resize(part * p.cpus / level)
		}
	}
	for i := range p.host {
		p.host[i] = float32(0.02 * p.cpus * r.ExpFloat64())
		p.self[i] = float32(0.02 * r.ExpFloat64())
	}
	m.fillPool(p)
}

// resize makes a job so many times as large.
func (j *Job) resize(by float64) {
	j.level *= by
	for i := range j.demand {
		j.demand[i] *= float32(by)
	}
}

// crowd adds a job of the pool that wants so much of it.
func (m *maker) crowd(name string, class string, part float64, on pattern) *Job {
	j := &Job{Name: name, Class: class, level: part * m.pool.cpus, inPool: true, catchesUp: m.r.IntN(2) == 0,
		Guilty: class != "OTHER"}
	return m.add(j, on, 0.02, 0.1)
}

// fillPool adds who is guilty, and what else happens.
func (m *maker) fillPool(p *pool) {
	r, steps, comes, v := m.r, m.Steps, m.comes, &m.v
	all := 0.9 + 0.4*r.Float64()
	usual := duty(r, steps, comes, 0.25, 0.5)
	phases := duty(r, steps, 0, 0.2, 0.4)
	switch m.Kind {
	case QueueBase, QueueFull:
		m.crowd("antagonist", m.batch(), all, usual).on(1+r.IntN(3), comes, steps)
	case QueueStarved:
		p.share = 0.4 * v.level
		m.crowd("antagonist", m.batch(), all, usual).on(1+r.IntN(3), comes, steps)
	case QueueSteady:
		m.crowd("antagonist", m.batch(), all, always(steps, comes)).on(1+r.IntN(3), comes, steps)
	case QueueChurn:
		m.crowd("antagonist", m.batch(), all, usual).churning(r, comes, steps)
	case QueueTwin:
		j := m.crowd("antagonist", m.batch(), all, usual).on(1+r.IntN(3), comes, steps)
		m.twin(j)
	case QueueTwo:
		m.crowd("antagonist-a", m.batch(), all/2, usual).on(1, comes, steps)
		m.crowd("antagonist-b", m.batch(), all/2, duty(r, steps, comes, 0.4, 0.6)).on(1, comes, steps)
	case QueueCrowd:
		m.crowd("production", "OTHER", all, usual).on(3, comes, steps)
	case QueueHost:
		for i, on := range usual {
			p.host[i] += float32(all*p.cpus) * on
		}
	case QueueSelf:
		for i, on := range phases {
			p.self[i] += 2 * on
		}
		m.consumers(phases)
	case QueueQuota:
		p.quota = 1.2 * v.level
		during(v.trend, phases, 2)
		m.consumers(phases)
	case QueueDaily:
		for _, j := range m.Jobs {
			if j.inPool {
				j.resize(2.5) // well used at its height
			}
		}
		m.steepen(daily(steps, r.Float64(), 0.8))
	default:
	}
}

// batch is a class that may be capped.
func (m *maker) batch() string {
	if m.r.IntN(3) == 0 {
		return "BE"
	}
	return "BATCH"
}

// consumers work while the victim does, on the CPUs that it shares.
func (m *maker) consumers(phases pattern) {
	for _, name := range []string{"consumer0", "consumer1", "consumer2"} {
		j := m.crowd(name, "BATCH", 0.05+0.1*m.r.Float64(), phases.later(m.r.IntN(2*Minute+1)))
		j.Guilty = false
		j.on(1+m.r.IntN(2), 0, m.Steps)
	}
}
