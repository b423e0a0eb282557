package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// floor is what must stay in the shared pool, or in its part on NUMA nodes that a pod is bound to:
// what the pods there request, and the reserved CPUs.
type floor struct {
	nodes *cpuset.Set // NUMA node IDs; nil: the whole pool
	cpus  cpuset.Set  // of the machine, or of these nodes
	milli int64       // requested by the pods there
}

// floors returns the floor of the whole pool and of each part, including what the rest of a pod
// requests that is about to own CPUs. Smaller parts come before the parts that contain them.
func (m *Machine) floors(c claim) []floor { return m.floorsIn(nil, c) }

// floorsIn appends the floors to a list of the caller.
func (m *Machine) floorsIn(list []floor, c claim) []floor {
	whole, except := floor{cpus: m.topo.Known(), milli: c.rest}, c.of()
	for _, p := range m.pods {
		if p != except {
			whole.milli += m.requestedFrom(p)
		}
	}
	list = append(list, whole)
	for _, p := range m.bound {
		if p == except {
			continue // it may no longer be bound
		}
		if !slices.ContainsFunc(list[1:], func(f floor) bool { return *f.nodes == *p.nodes }) {
			list = append(list, m.floorOn(p.nodes, except))
		}
	}
	slices.SortFunc(list[1:], func(a, b floor) int {
		if d := a.nodes.Count() - b.nodes.Count(); d != 0 {
			return d
		}
		return strings.Compare(a.nodes.String(), b.nodes.String())
	})
	return list
}

// floorOn is the floor of the part of the shared pool on some NUMA nodes.
func (m *Machine) floorOn(nodes *cpuset.Set, except *pod) floor {
	part := floor{nodes: nodes, cpus: cpusOn(m.topo, nodes)}
	for _, o := range m.bound {
		if o != except && o.nodes.SubsetOf(nodes) {
			part.milli += m.requestedFrom(o)
		}
	}
	return part
}

// of is the pod of a claim; nil: there is no claim.
func (c claim) of() *pod {
	if c.holder == nil {
		return nil
	}
	return c.pod
}

// requestedFrom is what a pod requests from the shared pool, in thousandths of a CPU: 0 if it runs
// elsewhere, or if its request is unknown.
func (m *Machine) requestedFrom(p *pod) int64 {
	if p.resources == nil || p.unread || m.poolOf(p) != PoolShared ||
		m.trying && p.holders == nil && m.waiting[p.ref.UID] != nil {
		return 0
	}
	requests := p.resources.RequestMilli + m.unserved(p)
	if p.holders != nil {
		return m.restOf(p, requests, nil, 0)
	}
	if p.kubelet {
		pinned := union(p.entries)
		return max(requests-1000*int64(pinned.Count()), 0)
	}
	if g := p.grant; g != nil {
		if online := m.topo.Online(); g.cpus.Intersects(&online) {
			return 0
		}
	}
	return max(requests, 0)
}

// room is the number of CPUs that can be taken from the shared pool without breaking the floor;
// negative if the pool is below it already. Reserved CPUs do not count towards the pods' requests.
func (f *floor) room(shared, reserved *cpuset.Set) int {
	open := *shared
	open.RemoveSet(reserved)
	return open.CountAnd(&f.cpus) - int((f.milli+999)/1000)
}

// keepsFloors refuses to take CPUs from the shared pool if its own pods requested them. A pool that
// is already below its floor loses no more; a change that takes nothing from it passes.
func (m *Machine) keepsFloors(c claim, taken cpuset.Set) *Refusal {
	if taken = taken.And(m.pools.Shared); taken.IsEmpty() {
		return nil
	}
	rest := m.pools.Shared.Minus(taken)
	least, left := m.floorOf(&m.cfg), rest.Count()
	if kept := rest.CountAnd(&m.pools.Kept); kept > 0 && c.holder != nil && c.pod.claim == nil && left-kept < least {
		return refuse(cpuallocator.InsufficientCPUs,
			"giving %d CPUs away exclusively would leave the shared pool %d of its %d CPUs once claims have the %d "+
				"that are kept for them, and its floor is %d",
			taken.Count(), left-kept, m.pools.Shared.Count(), m.pools.Kept.Count(), least)
	}
	if left < least {
		return refuse(cpuallocator.InsufficientCPUs,
			"giving %d CPUs away exclusively would leave the shared pool %d of its %d CPUs and its floor is %d",
			taken.Count(), left, m.pools.Shared.Count(), least)
	}
	var room [1]floor
	for _, f := range m.floorsIn(room[:0], c) {
		if taken.Intersects(&f.cpus) && f.room(&rest, &m.pools.Reserved) < 0 {
			return refuse(cpuallocator.InsufficientCPUs,
				"giving %s away exclusively would leave %s %d of its %s; %s", count(taken.CountAnd(&f.cpus), "CPU"),
				f.name(), rest.CountAnd(&f.cpus), count(m.pools.Shared.CountAnd(&f.cpus), "CPU"), m.needs(&f))
		}
	}
	return nil
}

func (f *floor) name() string {
	if f.nodes == nil {
		return "the shared pool"
	}
	return "the shared pool of " + nodesText(f.nodes)
}

// needs says what makes up a floor.
func (m *Machine) needs(f *floor) string {
	text := "its pods request " + milli(f.milli)
	if f.nodes != nil {
		text = "the pods bound there request " + milli(f.milli)
	}
	in := m.pools.Reserved.And(m.pools.Shared)
	if n := in.CountAnd(&f.cpus); n > 0 {
		text += fmt.Sprintf("; %s reserved for the system", count(n, "CPU"))
	}
	return text
}

// spare returns the free CPUs that can be taken without putting a part of the shared pool below its
// floor. From a part with too little room, whole cores are offered first.
func (m *Machine) spare(c claim, free cpuset.Set) cpuset.Set {
	for _, f := range m.floors(c)[1:] {
		room := max(f.room(&m.pools.Shared, &m.pools.Reserved), 0)
		here := free.And(f.cpus)
		if here.Count() <= room {
			continue
		}
		free = free.Minus(here).Or(m.someCores(here, room))
	}
	return free
}

// someCores returns n of the CPUs, whole cores first.
func (m *Machine) someCores(cpus cpuset.Set, n int) cpuset.Set {
	var chosen cpuset.Set
	for _, core := range m.topo.Cores() {
		all := cpuset.Of(core.CPUs...)
		if all.SubsetOf(&cpus) && chosen.Count()+all.Count() <= n {
			chosen.AddSet(&all)
		}
	}
	for cpu := range cpus.All() {
		if chosen.Count() < n {
			chosen.Add(cpu)
		}
	}
	return chosen
}

// Shortage is a part of the shared pool that has fewer CPUs than its pods request.
type Shortage struct {
	Pool         PoolID `json:"pool"`
	CPUs         int    `json:"cpus"`     // reserved ones included
	Reserved     int    `json:"reserved"` // how many of these are reserved
	RequestMilli int64  `json:"requestMilli"`
}

func (s Shortage) String() string {
	text := fmt.Sprintf("pool %s has %s, and its pods request %s", s.Pool, count(s.CPUs, "CPU"), milli(s.RequestMilli))
	if s.Reserved > 0 {
		text += fmt.Sprintf("; %s reserved for the system", count(s.Reserved, "CPU"))
	}
	return text
}

// Shortages lists the shortages, the whole pool first.
func (m *Machine) Shortages() []Shortage { return m.shortages(m.floors(claim{})) }

func (m *Machine) shortages(floors []floor) []Shortage {
	var list []Shortage
	for _, f := range floors {
		if f.room(&m.pools.Shared, &m.pools.Reserved) >= 0 {
			continue
		}
		here := m.pools.Shared.And(f.cpus)
		s := Shortage{Pool: PoolShared.ID(), CPUs: here.Count(), Reserved: here.CountAnd(&m.pools.Reserved),
			RequestMilli: f.milli}
		if f.nodes != nil {
			s.Pool = PoolShared.on(f.nodes)
		}
		list = append(list, s)
	}
	return list
}
