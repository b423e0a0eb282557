package policy

import (
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// judgePodOff checks a request to keep one pod off CPUs. It is refused if too few others are left that nobody owns:
// on those of other owners it would disturb these instead.
func (m *Machine) judgePodOff(e *BEKeptOff) *Refusal {
	p := m.pods[e.Pod]
	switch {
	case p == nil:
		return refuse(InvalidRequest, "keep pod %s off CPUs %s: it does not run", literal(e.Pod), e.CPUs)
	case !p.cappable() || p.in.class != BE:
		return refuse(InvalidRequest, "keep pod %s/%s off CPUs %s: only best effort is moved, and none that is exempt",
			literal(p.ref.Namespace), literal(p.ref.Name), e.CPUs)
	case len(p.claims) > 0 || p.holders != nil:
		return refuse(InvalidRequest, "keep pod %s/%s off CPUs %s: it has CPUs of its own",
			literal(p.ref.Namespace), literal(p.ref.Name), e.CPUs)
	}
	if left := m.leftOff(&e.CPUs); left.Count() < max(e.Least, 1) {
		return refuse(cpuallocator.InsufficientCPUs,
			"keep pod %s/%s off CPUs %s: that leaves it %d CPUs that nobody owns, and it needs %d",
			literal(p.ref.Namespace), literal(p.ref.Name), e.CPUs, left.Count(), max(e.Least, 1))
	}
	return nil
}

// leftOff is what best effort has off some CPUs that nobody owns. A pool that has nothing else keeps a CPU that is
// owned.
func (m *Machine) leftOff(off *cpuset.Set) cpuset.Set {
	left := m.pools.BE
	left.KeepSet(&m.pools.Shared)
	left.RemoveSet(&m.pools.Exclusive)
	left.RemoveSet(off)
	return left
}

// keepPodOff moves one pod of best effort off the CPUs around a victim, or ends that.
func (m *Machine) keepPodOff(now time.Time, e *BEKeptOff) {
	if e.ends() {
		m.letBack(e.Pod)
		return
	}
	if m.be.away == nil {
		m.be.away = map[string]away{}
	}
	m.be.away[e.Pod] = away{keptOff{cpus: e.CPUs, until: now.Add(e.For)}, e.Victim, e.Least}
	m.follow(m.pods[e.Pod])
}

// letBack ends that a pod is kept off CPUs.
func (m *Machine) letBack(uid string) {
	if _, is := m.be.away[uid]; !is {
		return
	}
	delete(m.be.away, uid)
	if p := m.pods[uid]; p != nil {
		m.follow(p)
	}
}

// poolAway is the part of best effort's pool that a pod runs in: the whole of it, too, as long as what it is to keep to
// is too little. An empty mask would not mean "no CPU".
func (m *Machine) poolAway(p *pod) PoolID {
	k, is := m.be.away[p.ref.UID]
	if !is {
		return PoolBE.ID()
	}
	if left := m.leftOff(&k.cpus); left.Count() < max(k.least, 1) {
		return PoolBE.ID()
	}
	return PoolBE.without(&k.cpus)
}

// follow moves a pod to the part of its pool that it is to run in.
func (m *Machine) follow(p *pod) {
	if need, _ := m.needOf(p, ""); p.unread || need.Pool == p.pool {
		return
	}
	m.explain(p)
	m.podChanged(p)
}

// followAway lets pods back whose part of the pool has become too small, and moves them again once it no longer is.
func (m *Machine) followAway() {
	for _, uid := range sortedKeys(m.be.away) {
		if p := m.pods[uid]; p != nil {
			m.follow(p)
		}
	}
}
