package policy

import (
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// takeBack returns to the shared pool what its pods request and somebody has beyond a
// request: CPUs that owners were rounded up to, then siblings kept idle, of the youngest
// owner first and no more than is needed. Required isolation keeps its siblings.
func (m *Machine) takeBack() {
	if !m.hasDonor() {
		return // without a look at every pod, which each step would pay for
	}
	shared := m.pools.Shared
	returned := map[*pod]cpuset.Set{}
	reasons := map[*pod]string{}
	for _, f := range m.floors(nil) {
		for f.room(shared, m.pools.Reserved) < 0 {
			p, cpu := m.donor(f.cpus)
			if p == nil {
				break
			}
			m.withdraw(p, cpu)
			shared.Add(cpu)
			all := returned[p]
			all.Add(cpu)
			returned[p], reasons[p] = all, m.needs(&f)
		}
	}
	if len(returned) == 0 {
		return
	}
	m.recompute()
	for _, p := range slices.SortedFunc(maps.Keys(returned), byAge) {
		m.explain(p)
		m.notice(p, "CPUsReturned", "CPUs %s, which the pod has beyond its request, go back to the shared pool: %s",
			returned[p], reasons[p])
		m.podChanged(p)
	}
}

// hasDonor says whether any owner has CPUs beyond its request, or siblings kept idle.
func (m *Machine) hasDonor() bool {
	if !m.owned.withheld.IsEmpty() {
		return true
	}
	for _, p := range m.exclusive {
		if m.surplus(p) > 0 {
			return true
		}
	}
	return false
}

// donor finds the next CPU to take back among some, and whose it is.
func (m *Machine) donor(among cpuset.Set) (*pod, int) {
	among = among.And(m.shareable()).Minus(m.cfg.reserved())
	owners := ordered(m.exclusive)
	slices.Reverse(owners)
	for _, p := range owners {
		if surplus := m.surplus(p); surplus > 0 {
			if cpus := p.grant.cpus.And(among); !cpus.IsEmpty() {
				return p, last(cpus)
			}
		}
	}
	if m.cfg.Allocation.SMTRequired {
		return nil, 0
	}
	for _, p := range owners {
		if cpus := p.grant.withheld.And(among); !cpus.IsEmpty() && !p.reserved() {
			return p, last(cpus)
		}
	}
	return nil, 0
}

// surplus is how many CPUs a pod has because its request was rounded up to whole cores.
func (m *Machine) surplus(p *pod) int {
	if p.grant.request.SMT != cpuallocator.SMTRoundUp {
		return 0
	}
	online := m.topo.Online()
	return p.grant.cpus.CountAnd(&online) - p.grant.request.CPUs
}

// withdraw takes a CPU out of a pod's grant, which others may hold: they keep the old one.
func (m *Machine) withdraw(p *pod, cpu int) {
	g := *p.grant
	g.cpus.Remove(cpu)
	g.withheld.Remove(cpu)
	m.release(p)
	p.grant = &g
	m.own(p)
}

// keepsIsolation refuses a pod of the shared pool whose request only siblings kept idle
// could meet, where isolation is required: it waits. requested is what it requests there.
func (m *Machine) keepsIsolation(p *pod, requested int64) *Refusal {
	if !m.cfg.Allocation.SMTRequired || requested <= 0 || m.owned.withheld.IsEmpty() {
		return nil
	}
	floors := m.floors(p)[:1]
	if p.nodes != nil {
		floors = append(floors, m.floorOn(p.nodes, p))
	}
	for _, f := range floors {
		surplus := 0
		for _, o := range m.exclusive {
			surplus += max(min(m.surplus(o), o.grant.cpus.CountAnd(&f.cpus)), 0)
		}
		f.milli += requested
		idle := m.pools.Withheld.And(f.cpus)
		if f.room(m.pools.Shared, m.pools.Reserved)+surplus < 0 && !idle.IsEmpty() {
			return refuse(cpuallocator.InsufficientCPUs,
				"%s has %s and with this pod %s; the siblings %s are kept idle for other pods, whose isolation is "+
					"required (allocation.smtRequired)", f.name(), count(m.pools.Shared.CountAnd(&f.cpus), "CPU"),
				m.needs(&f), idle)
		}
	}
	return nil
}
