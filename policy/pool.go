package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Pools are the CPUs of each pool. Reserved CPUs are inside shared and be unless they are strict;
// isolated CPUs are in no pool.
type Pools struct {
	Shared    cpuset.Set
	BE        cpuset.Set
	BEWhole   cpuset.Set // BE without suppression and without CPUs kept off for victims
	BEQuota   int64      // limit of all of BE, in thousandths of a CPU; 0: no limit
	Reserved  cpuset.Set
	Exclusive cpuset.Set // owned by LSE, LSR and kubelet's pods, or claimed; online ones
	Withheld  cpuset.Set
	System    cpuset.Set
	Kubelet   cpuset.Set // kubelet's exclusive CPUs that we did not grant
	Foreign   cpuset.Set // CPUs that other DRA drivers gave to claims
	Kept      cpuset.Set // CPUs of the shared pool that only claims may take exclusively (Config.ClaimShares)
	// Overlap means that no CPU was left for the shared pool, so that it and best effort run on
	// owned CPUs.
	Overlap bool
}

// derive computes the pools from the grants. It is the only place that does, and does not depend on
// the previous pools.
func (m *Machine) derive() {
	online, p, all := m.topo.Online(), &m.pools, &m.owned
	// Every field, one by one: a scheduler derives the pools of each node that it asks.
	p.Reserved, p.System, p.Kubelet = m.cfg.reserved(), m.cfg.System.CPUs, m.kubeletCPUs()
	p.BE, p.Withheld, p.BEQuota = m.shareable(), all.withheld, m.be.quota
	p.Kept, p.Overlap = cpuset.Set{}, false
	p.Reserved.KeepSet(&online)
	p.System.KeepSet(&online)
	p.Foreign = m.foreignCPUs(&p.Kubelet)
	p.Foreign.KeepSet(&online)
	p.BE.RemoveSet(&p.Kubelet)
	p.BE.RemoveSet(&p.Foreign)
	p.Shared = p.BE
	p.Shared.RemoveSet(&all.cpus)
	p.Shared.RemoveSet(&all.withheld)
	p.BEWhole = p.BE
	p.BEWhole.RemoveSet(&all.notBE)
	p.BEWhole.RemoveSet(&all.withheld)
	p.BE = m.limitBE(p.BEWhole, p.Reserved)
	p.Exclusive = p.Kubelet
	p.Exclusive.AddSet(&p.Foreign)
	p.Exclusive.AddSet(&all.cpus)
	p.Exclusive.KeepSet(&online)
	p.Withheld.KeepSet(&online)
	// CPUs may be reserved, by the operator or kubelet, while a pod owns them.
	for _, taken := range []*cpuset.Set{&p.Exclusive, &p.Withheld} {
		p.Reserved.RemoveSet(taken)
		p.System.RemoveSet(taken)
	}
	switch {
	case m.promised != nil:
		p.Kept = *m.promised
		p.Kept.KeepSet(&p.Shared)
	case len(m.cfg.ClaimShares) > 0:
		p.Kept = m.keptForClaims()
	}
}

// recompute updates the pools, keeps them from being empty, and decides what changed. Every change
// of a grant ends with it.
func (m *Machine) recompute() {
	old, was := m.decided, m.pools // pods may have been placed by pools that were derived but not decided
	m.derive()
	m.rescue()
	m.rebind()
	m.followAway()
	for _, u := range m.used.list {
		m.setPool(u)
	}
	if old != m.pools {
		m.views.poolsChanged, m.news = true, true
	}
	if old.Foreign != m.pools.Foreign {
		m.moveClaims()
	}
	m.decided = m.pools
	m.views.ownersStale = true
	for _, before := range []*Pools{&old, &was} {
		if before.System.IsEmpty() != m.pools.System.IsEmpty() ||
			before.Reserved.IsEmpty() != m.pools.Reserved.IsEmpty() {
			m.moveSystem()
			break
		}
	}
}

// moveSystem decides SYSTEM pods again when a pool that they run in becomes empty or returns.
func (m *Machine) moveSystem() {
	for _, p := range ordered(m.pods) {
		if p.in.class == SYSTEM {
			m.explain(p)
			m.podChanged(p)
		}
	}
}

// rescue keeps the shared pool from being empty when hardware or kubelet takes its last CPU: the
// youngest owner that we may move gives up the CPUs of the pool's floor. If kubelet owns all
// remaining CPUs, the pool overlaps them: an empty cpuset would mean every CPU of the machine
// anyway.
func (m *Machine) rescue() {
	for m.pools.Shared.IsEmpty() {
		victim := m.youngest(func(h *holder) bool {
			usable := m.shareable()
			all := h.grant.all() // its own CPUs may be offline, and the siblings kept idle for it online
			return !h.pod.reserved() && all.Intersects(&usable)
		})
		if victim == nil {
			break
		}
		m.yieldCores(victim, m.floorOf(&m.cfg))
		m.derive()
	}
	if m.pools.Shared.IsEmpty() {
		m.pools.Shared = m.overlapping()
		m.pools.BEWhole = m.pools.Shared
		m.pools.BE, m.pools.Overlap = m.pools.BEWhole, true
		m.notice(nil, "SharedPoolOverlaps",
			"no online CPU is left for the shared pool; it overlaps the CPUs of kubelet's exclusive containers "+
				"and of other drivers' claims until one is free")
	}
	if m.pools.BE.IsEmpty() {
		m.pools.BE, m.pools.BEWhole = m.pools.Shared, m.pools.Shared
	}
}

// overlapping is the shared pool if no CPU is left for it: kubelet's CPUs, and those of our owners,
// which had none to give up, only if there are no others.
func (m *Machine) overlapping() cpuset.Set {
	online := m.topo.Online()
	if rest := online.Minus(m.owned.cpus).Minus(m.owned.withheld); !rest.IsEmpty() {
		return rest
	}
	return online
}

func (m *Machine) youngest(ok func(*holder) bool) *holder {
	var found *holder
	for _, h := range m.exclusive {
		if ok(h) && (found == nil || holdersByAge(found, h) < 0) {
			found = h
		}
	}
	return found
}

func olderThan(a, b *pod) bool {
	if !a.createdAt.Equal(b.createdAt) {
		return a.createdAt.Before(b.createdAt)
	}
	return a.order < b.order
}

func byAge(a, b *pod) int {
	switch {
	case olderThan(a, b):
		return -1
	case olderThan(b, a):
		return 1
	}
	return cmp.Compare(a.ref.UID, b.ref.UID)
}

// holdersByAge orders holders by pod, and the containers of a pod by name.
func holdersByAge(a, b *holder) int { return cmp.Or(byAge(a.pod, b.pod), cmp.Compare(a.name, b.name)) }

// orderedHolders returns the holders of a map in the order of holdersByAge.
func orderedHolders(holders map[string]*holder) []*holder {
	return slices.SortedFunc(maps.Values(holders), holdersByAge)
}

// ordered returns the pods of a map in order of creation, so that no decision depends on the order
// of a map.
func ordered(pods map[string]*pod) []*pod {
	return slices.SortedFunc(maps.Values(pods), byAge)
}

// degrade takes a holder's grant away: it runs in the shared pool from now on.
func (m *Machine) degrade(h *holder, why string) {
	p := h.pod
	h.demoted = h.grant != nil
	m.release(h)
	h.degraded = why
	if p.claim != nil {
		m.notice(p, "AllocationLost", "%s has no CPUs any more, its containers run in their pools: %s", h, why)
		m.podChanged(p)
		return
	}
	if h.name != "" {
		m.explain(p)
		m.notice(p, "AllocationLost", "container %s runs in the shared pool: %s", h, why)
		m.podChanged(p)
		return
	}
	if kubeletPins(p.labels, p.ref.QoS) {
		p.in.class = LS // it was LSR only because it was pinned
	}
	p.in.class = m.sharedClass(p)
	m.explain(p)
	m.notice(p, "AllocationLost", "%s %s/%s runs in the shared pool: %s", p.in.class, p.ref.Namespace, p.ref.Name, why)
	m.podChanged(p)
}

// poolOf is the pool of a pod without CPUs of its own.
func (m *Machine) poolOf(p *pod) PoolKind {
	switch p.in.class {
	case BE:
		return PoolBE
	case SYSTEM:
		switch {
		case !m.pools.System.IsEmpty():
			return PoolSystem
		case !m.pools.Reserved.IsEmpty():
			return PoolReserved
		}
	}
	return PoolShared
}

// needOf is where a container of a pod has to run; name "" stands for the pod itself.
func (m *Machine) needOf(p *pod, name string) (Need, PoolKind) {
	if found, ok := m.ownOf(p, name); ok {
		own := found // only owners allocate a set on the heap
		return Need{Own: &own}, PoolExclusive
	}
	pool := m.poolOf(p)
	switch {
	case p.in.unmanaged:
		return Need{Pool: pool.ID()}, PoolUnmanaged
	case pool == PoolBE:
		return Need{Pool: m.poolAway(p)}, pool
	case pool != PoolShared || p.nodes == nil:
		return Need{Pool: pool.ID()}, pool
	}
	return Need{Pool: pool.on(p.nodes)}, pool
}

// ownOf are the exclusive CPUs of a container of a pod, or of the pod with name "".
func (m *Machine) ownOf(p *pod, name string) (cpuset.Set, bool) {
	if name == "" && p.holders != nil {
		return m.ownOfAll(p)
	}
	if h := p.named(name); h != nil && h.grant != nil {
		if own := h.grant.cpus.And(m.topo.Online()); !own.IsEmpty() {
			return own, true
		}
	}
	if p.kubelet {
		return m.kubeletNeed(p, name)
	}
	if name != "" {
		return m.claimNeed(p, name)
	}
	return cpuset.Set{}, false
}

// ownOfAll are the CPUs of a pod whose containers own CPUs, if it is certain that all of them do:
// if kubelet pinned them.
func (m *Machine) ownOfAll(p *pod) (cpuset.Set, bool) {
	if p.in.named != nil {
		return cpuset.Set{}, false
	}
	for name := range p.containers {
		if h := p.holders[name]; h == nil || !m.pins(h) {
			return cpuset.Set{}, false
		}
	}
	own := m.ownedIn(p)
	return own, !own.IsEmpty()
}

// of returns the CPUs of a whole pool.
func (ps *Pools) of(kind PoolKind) cpuset.Set {
	switch kind {
	case PoolBE:
		return ps.BE
	case PoolSystem:
		return ps.System
	case PoolReserved:
		return ps.Reserved
	}
	return ps.Shared
}

// cpusOn returns the CPUs of NUMA nodes, given by ID.
func cpusOn(t *topology.Topology, nodes *cpuset.Set) cpuset.Set {
	var s cpuset.Set
	for i := range t.Nodes() {
		if n := &t.Nodes()[i]; nodes.Has(n.ID) {
			s.AddSet(&n.CPUs)
		}
	}
	return s
}
