package policy

import (
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// PoolID names a pool in decisions: "shared", or "shared@0,2" for the part of the shared pool on
// these NUMA nodes, or "be@-0-7" for the part of best effort's that lies off CPUs 0-7 and that nobody owns.
type PoolID string

// ID is the name of a whole pool.
func (k PoolKind) ID() PoolID { return PoolID(k) }

// on is the name of the part of a pool that lies on NUMA nodes.
func (k PoolKind) on(nodes *cpuset.Set) PoolID { return PoolID(string(k) + "@" + nodes.String()) }

// without is the name of the part of a pool that lies off CPUs.
func (k PoolKind) without(cpus *cpuset.Set) PoolID { return PoolID(string(k) + "@-" + cpus.String()) }

// Kind is the pool itself, or the pool that this is a part of.
func (id PoolID) Kind() PoolKind {
	kind, _, _ := strings.Cut(string(id), "@")
	return PoolKind(kind)
}

func (id PoolID) isPart() bool { return strings.Contains(string(id), "@") }

// usedPool is a pool that decisions may refer to.
type usedPool struct {
	id    PoolID
	nodes *cpuset.Set // NUMA node IDs; nil: on any
	off   *cpuset.Set // CPUs that it lies off; nil: off none
	// members counts the pods in it. A whole pool counts one more, for kubelet's slices.
	members int
	cpus    cpuset.Set
	quota   int64 // thousandths of a CPU; 0: none
	decided bool  // a SetPool was decided, and no DropPool since
}

// usedPools holds the whole pools, then the parts in the order of their first use.
type usedPools struct {
	list  []*usedPool
	stale bool // a pool may have to be dropped
}

func newUsedPools() usedPools {
	var u usedPools
	for _, kind := range []PoolKind{PoolShared, PoolBE, PoolSystem, PoolReserved} {
		u.list = append(u.list, &usedPool{id: kind.ID(), members: 1})
	}
	return u
}

func (u *usedPools) find(id PoolID) *usedPool {
	for _, p := range u.list {
		if p.id == id {
			return p
		}
	}
	return nil
}

// parts are the CPUs of the parts of pools; nil: there are none.
func (u *usedPools) parts() map[PoolID]cpuset.Set {
	var parts map[PoolID]cpuset.Set
	for _, p := range u.list {
		if !p.id.isPart() {
			continue
		}
		if parts == nil {
			parts = map[PoolID]cpuset.Set{}
		}
		parts[p.id] = p.cpus
	}
	return parts
}

// PoolCPUs returns the CPUs of a pool that decisions refer to; empty: none refers to it.
func (m *Machine) PoolCPUs(id PoolID) cpuset.Set {
	if u := m.used.find(id); u != nil {
		return u.cpus
	}
	return cpuset.Set{}
}

// UsedPools are the pools that decisions refer to, in their current state.
func (m *Machine) UsedPools() []SetPool {
	var list []SetPool
	for _, u := range m.used.list {
		if u.decided {
			list = append(list, u.decision())
		}
	}
	return list
}

func (u *usedPool) decision() SetPool {
	return SetPool{ID: u.id, CPUs: u.cpus, QuotaMilli: u.quota}
}

// setPool decides the CPUs of a pool if they changed. An empty pool is not decided: its members are
// moved in the same step, and an empty mask does not mean "no CPU".
func (m *Machine) setPool(u *usedPool) {
	cpus, quota := m.pools.of(u.id.Kind()), int64(0)
	if u.nodes != nil {
		cpus = cpus.And(cpusOn(m.topo, u.nodes))
	}
	if u.off != nil {
		cpus = m.leftOff(u.off)
	}
	if u.id == PoolBE.ID() {
		quota = m.be.sliceQuota()
	}
	if u.decided && cpus == u.cpus && quota == u.quota {
		return
	}
	u.cpus, u.quota = cpus, quota
	m.views.partsStale = m.views.partsStale || u.id.isPart()
	if cpus.IsEmpty() {
		m.used.stale = true
		return
	}
	u.decided = true
	m.decide(u.decision())
}

// enterPool counts a pod in the pool that its next decision refers to, and removes it from its
// previous pool. A new pool is decided first.
func (m *Machine) enterPool(p *pod, id PoolID) {
	if p.pool == id {
		return
	}
	m.leavePool(p)
	if p.pool = id; id == "" {
		return
	}
	u := m.used.find(id)
	if u == nil {
		u = &usedPool{id: id, nodes: p.nodes}
		if id.Kind() == PoolBE {
			off := m.be.away[p.ref.UID].cpus
			u.nodes, u.off = nil, &off
		}
		m.used.list = append(m.used.list, u)
	}
	if u.members++; !u.decided {
		m.setPool(u)
	}
}

func (m *Machine) leavePool(p *pod) {
	if u := m.used.find(p.pool); u != nil {
		u.members--
		m.used.stale = m.used.stale || u.members == 0
	}
	p.pool = ""
}

// dropPools ends a step: it drops pools without members or without CPUs.
func (m *Machine) dropPools() {
	if !m.used.stale {
		return
	}
	m.used.stale = false
	m.used.list = slices.DeleteFunc(m.used.list, func(u *usedPool) bool {
		if u.decided && (u.members == 0 || u.cpus.IsEmpty()) {
			u.decided = false
			m.views.partsStale = m.views.partsStale || u.id.isPart()
			m.decide(DropPool{ID: u.id})
		}
		return u.members == 0
	})
}
