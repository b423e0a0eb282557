package policy

import (
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// beLimits is what keeps best effort off CPUs that its pool could have.
type beLimits struct {
	suppressed cpuset.Set         // all that it is left with; empty: not suppressed
	quota      int64              // in thousandths of a CPU; 0: none
	keptOff    map[string]keptOff // by the victim
}

type keptOff struct {
	cpus  cpuset.Set
	until time.Time
}

// suppress takes over how much of its pool best effort is left with.
func (m *Machine) suppress(e BESuppressed) {
	quota := max(e.QuotaMilli, 0)
	if m.be.suppressed == e.CPUs && m.be.quota == quota {
		return
	}
	m.be.suppressed, m.be.quota = e.CPUs, quota
	m.recompute()
}

// judgeKeepOff looks at a request to keep best effort off CPUs. Where that would leave best
// effort too few it is refused: the caller has to do something else.
func (m *Machine) judgeKeepOff(now time.Time, e BEKeptOff) *Refusal {
	if e.Victim == "" || e.For < 0 {
		return refuse(InvalidRequest,
			"keep best effort off CPUs %s for %s: a victim and a time of at least 0 are needed", e.CPUs, e.For)
	}
	if e.ends() {
		return nil
	}
	off := m.offLimits(now, e.Victim).Or(e.CPUs)
	left, floor := m.pools.BEWhole.Minus(off), m.beFloor()
	if !m.be.suppressed.IsEmpty() {
		left = left.And(m.be.suppressed)
	}
	if n := left.Count(); n < floor {
		return refuse(cpuallocator.InsufficientCPUs,
			"keep best effort off CPUs %s: that leaves it %d CPUs, its floor is %d", off, n, floor)
	}
	return nil
}

func (e *BEKeptOff) ends() bool { return e.For == 0 || e.CPUs.IsEmpty() }

// keepOff moves best effort off the CPUs around a victim, the gentlest thing to do
// for it, or back.
func (m *Machine) keepOff(now time.Time, e BEKeptOff) {
	if e.ends() {
		if _, ok := m.be.keptOff[e.Victim]; ok {
			delete(m.be.keptOff, e.Victim)
			m.recompute()
		}
		return
	}
	if m.be.keptOff == nil {
		m.be.keptOff = map[string]keptOff{}
	}
	m.be.keptOff[e.Victim] = keptOff{cpus: e.CPUs, until: now.Add(e.For)}
	m.recompute()
}

// offLimits is where best effort is kept off for others than one victim.
func (m *Machine) offLimits(now time.Time, but string) cpuset.Set {
	var off cpuset.Set
	for victim, k := range m.be.keptOff {
		if victim != but && now.Before(k.until) {
			off.AddSet(&k.cpus)
		}
	}
	return off
}

// expireKeptOff lets best effort back where its time is over.
func (m *Machine) expireKeptOff(now time.Time) {
	changed := false
	for victim, k := range m.be.keptOff {
		if !now.Before(k.until) {
			delete(m.be.keptOff, victim)
			changed = true
		}
	}
	if changed {
		m.recompute()
	}
}

// beFloor is how many CPUs best effort keeps, whatever limits it.
func (m *Machine) beFloor() int {
	if m.cfg.BEFloor > 0 {
		return m.cfg.BEFloor
	}
	return m.topo.ThreadsPerCore()
}

// limitBE is what the limits leave of the pool. They were right when they were
// set; owners have come and CPUs gone since, so the floor is kept here again, from
// the reserved CPUs first.
func (m *Machine) limitBE(whole, reserved cpuset.Set) cpuset.Set {
	if m.be.suppressed.IsEmpty() && len(m.be.keptOff) == 0 {
		return whole
	}
	left := whole
	if !m.be.suppressed.IsEmpty() {
		left = left.And(m.be.suppressed)
	}
	var off cpuset.Set
	for _, k := range m.be.keptOff {
		off.AddSet(&k.cpus)
	}
	floor := min(m.beFloor(), whole.Count())
	if elsewhere := left.Minus(off); elsewhere.Count() >= floor {
		return elsewhere
	}
	for _, more := range []cpuset.Set{whole.And(reserved).Minus(off), whole.Minus(off), whole} {
		more = more.Minus(left)
		for cpu := range more.All() {
			if left.Count() >= floor {
				return left
			}
			left.Add(cpu)
		}
	}
	return left
}
