package policy

import (
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// takeBack returns CPUs that owners have beyond their requests to the shared pool, if its pods
// request them: CPUs from rounding up, then siblings kept idle; the youngest owner's first, and no
// more than needed. Siblings of required isolation are not taken.
func (m *Machine) takeBack() {
	if !m.hasDonor() {
		return // this check avoids visiting every pod in every step
	}
	shared := m.pools.Shared
	returned := map[*holder]cpuset.Set{}
	reasons := map[*holder]string{}
	for _, f := range m.floors(claim{}) {
		for f.room(&shared, &m.pools.Reserved) < 0 {
			h, cpu := m.donor(f.cpus)
			if h == nil {
				break
			}
			m.withdraw(h, cpu)
			shared.Add(cpu)
			all := returned[h]
			all.Add(cpu)
			returned[h], reasons[h] = all, m.needs(&f)
		}
	}
	if len(returned) == 0 {
		return
	}
	m.recompute()
	for _, h := range slices.SortedFunc(maps.Keys(returned), holdersByAge) {
		owner := "the pod"
		switch {
		case h.pod.claim != nil:
			owner = h.String()
		case h.name != "":
			owner = "container " + literal(h.name)
		}
		m.explain(h.pod)
		m.notice(h.pod, "CPUsReturned", "CPUs %s, which %s has beyond its request, go back to the shared pool: %s",
			returned[h], owner, reasons[h])
		m.podChanged(h.pod)
	}
}

// hasDonor reports whether any owner has CPUs beyond its request, or siblings kept idle.
func (m *Machine) hasDonor() bool {
	if !m.owned.withheld.IsEmpty() {
		return true
	}
	for _, h := range m.exclusive {
		if m.surplus(h) > 0 {
			return true
		}
	}
	return false
}

// donor finds the next CPU to take back among some CPUs, and its owner. What another driver gave to a claim goes to
// that claim, and not to the pool.
func (m *Machine) donor(among cpuset.Set) (*holder, int) {
	among = among.And(m.shareable()).Minus(m.cfg.reserved()).Minus(m.foreignClaimed())
	owners := orderedHolders(m.exclusive)
	slices.Reverse(owners)
	for _, h := range owners {
		if surplus := m.surplus(h); surplus > 0 {
			if cpus := h.grant.cpus.And(among); !cpus.IsEmpty() {
				return h, last(cpus)
			}
		}
	}
	if m.cfg.Allocation.SMTRequired {
		return nil, 0
	}
	for _, h := range owners {
		if cpus := h.grant.withheld.And(among); !cpus.IsEmpty() && !h.pod.reserved() {
			return h, last(cpus)
		}
	}
	return nil, 0
}

// surplus is the number of CPUs that an owner has because its request was rounded up to whole
// cores.
func (m *Machine) surplus(h *holder) int {
	if h.grant.request.SMT != cpuallocator.SMTRoundUp {
		return 0
	}
	online := m.topo.Online()
	return h.grant.cpus.CountAnd(&online) - h.grant.request.CPUs
}

// withdraw takes a CPU out of a copy of a grant: readers may hold the old one.
func (m *Machine) withdraw(h *holder, cpu int) {
	g := *h.grant
	g.cpus.Remove(cpu)
	g.withheld.Remove(cpu)
	m.release(h)
	h.grant = &g
	m.own(h)
}

// keepsIsolation refuses a pod of the shared pool if only siblings kept idle by required isolation
// could meet its request: the pod waits. requested is its request there.
func (m *Machine) keepsIsolation(p *pod, requested int64) *Refusal {
	if !m.cfg.Allocation.SMTRequired || requested <= 0 || m.owned.withheld.IsEmpty() {
		return nil
	}
	floors := m.floors(claim{holder: &p.holder})[:1]
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
		if f.room(&m.pools.Shared, &m.pools.Reserved)+surplus < 0 && !idle.IsEmpty() {
			return refuse(cpuallocator.InsufficientCPUs,
				"%s has %s and with this pod %s; the siblings %s are kept idle for other pods, whose isolation is "+
					"required (allocation.smtRequired)", f.name(), count(m.pools.Shared.CountAnd(&f.cpus), "CPU"),
				m.needs(&f), idle)
		}
	}
	return nil
}
