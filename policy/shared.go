package policy

import (
	"math"
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// placeShared binds an LS pod to the shared pool of NUMA nodes if that is demanded; other LS pods
// run in the whole pool.
func (m *Machine) placeShared(p *pod, recovered *Recovered) *Refusal {
	in := &p.in
	if recovered != nil && p.isBoundBy(recovered) {
		_ = m.bindRecovered(p, recovered)
		p.found = recovered.boundTo()
		return nil
	}
	switch {
	case in.scheduled != nil:
		return m.bindScheduled(p)
	case in.burst:
		return m.bindBurst(p)
	case in.bindNode:
		return m.bindAligned(p)
	}
	return nil
}

// isBoundBy reports whether what was found of an LS pod shows what it is bound to. A mask found in
// the kernel may be that of the pool at that time, so it counts only for a pod that asks to be
// bound.
func (p *pod) isBoundBy(r *Recovered) bool {
	asks := p.in.scheduled != nil || p.in.burst || p.in.bindNode
	return r.BoundNode != nil && (asks || r.From != fromKernel)
}

// bindRecovered binds an LS pod to the nodes that it was found bound to, if these are known and the
// pool has CPUs there.
func (m *Machine) bindRecovered(p *pod, r *Recovered) bool {
	if !p.isBoundBy(r) {
		return false
	}
	nodes := r.boundTo()
	if nodes != nil && m.sharedOn(nodes) == 0 {
		return false
	}
	p.nodes = nodes
	return true
}

// bindFound binds LS pods to the nodes where they were found, once all running pods are placed:
// only then are the pools complete, and it is known on which nodes they have CPUs.
func (m *Machine) bindFound() {
	var found []*pod
	for _, p := range m.pods {
		if p.found != nil {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, byAge)
	for _, p := range found {
		nodes := p.found
		p.found = nil
		switch {
		case p.nodes != nil && *p.nodes == *nodes || p.in.class != LS || p.degraded != "":
		case m.sharedOn(nodes) > 0:
			p.nodes = nodes
			m.bound[p.ref.UID] = p
			m.explain(p)
			m.podChanged(p)
		case p.nodes == nil:
			m.moveFrom(p, nodes)
		}
	}
}

// boundTo are the NUMA nodes that an LS pod was bound to; nil: the whole pool.
func (r *Recovered) boundTo() *cpuset.Set {
	switch {
	case r.BoundNodes != nil && !r.BoundNodes.IsEmpty():
		return r.BoundNodes
	case *r.BoundNode == AnyNode:
		return nil
	}
	node := cpuset.Of(*r.BoundNode)
	return &node
}

// sharedOn counts the CPUs of the shared pool on NUMA nodes.
func (m *Machine) sharedOn(nodes *cpuset.Set) int {
	cpus := cpusOn(m.topo, nodes)
	return m.pools.Shared.CountAnd(&cpus)
}

func (m *Machine) sharedOnNode(id int) int {
	node := cpuset.Of(id)
	return m.sharedOn(&node)
}

func (p *pod) bind(node int) {
	nodes := cpuset.Of(node)
	p.nodes = &nodes
}

// bindScheduled binds a pod to the nodes that a trusted scheduler chose. It runs on the CPUs that
// the shared pool has there at any time.
func (m *Machine) bindScheduled(p *pod) *Refusal {
	s := p.in.scheduled
	for node := range s.nodes.All() {
		if n := m.sharedOnNode(node); int64(n)*1000 < s.milli[node] {
			return refuse(cpuallocator.InsufficientCPUs,
				"annotation %s gives %s on NUMA node %d, whose shared pool has %s", AnnStatus, milli(s.milli[node]),
				node, count(n, "CPU"))
		}
	}
	if m.sharedOn(&s.nodes) == 0 {
		return refuse(cpuallocator.TopologyAffinityError,
			"annotation %s binds the pod to %s, with no CPU in the shared pool", AnnStatus, nodesText(&s.nodes))
	}
	p.nodes = &s.nodes
	return nil
}

// candidate is a NUMA node that an LS pod may be bound to.
type candidate struct {
	id    int
	cpus  int // in the shared pool
	load  int64
	worse int // rank before load; lower is better
}

// candidates lists the NUMA nodes that an LS pod may be bound to: without those that
// singleNUMANodeExclusive forbids, and if the alignment is mandatory only those of the devices.
func (m *Machine) candidates(p *pod, demand bool) []candidate {
	hard, soft := m.barsFor(p)
	var list []candidate
	for i := range m.topo.Nodes() {
		id := m.topo.Nodes()[i].ID
		c := candidate{id: id, cpus: m.sharedOnNode(id), load: m.boundLoad(id)}
		away := p.devices != nil && !p.devices.IsEmpty() && !p.devices.Has(id)
		if c.cpus == 0 || hard.alone.Has(id) || demand && away {
			continue
		}
		if soft.alone.Has(id) {
			c.worse = 2
		}
		if away {
			c.worse++
		}
		list = append(list, c)
	}
	return list
}

// bindBurst implements ConstrainedBurst: it binds to the least loaded NUMA node whose shared pool
// holds the pod's limit. Limits of several pods do not add up.
func (m *Machine) bindBurst(p *pod) *Refusal {
	if p.resources == nil {
		return nil
	}
	limit := p.resources.LimitMilli
	if limit <= 0 {
		return refuse(InvalidRequest,
			"ConstrainedBurst needs a CPU limit on every container of the pod, to find a NUMA node that holds it")
	}
	best, largest := candidate{id: AnyNode, load: math.MaxInt64, worse: math.MaxInt}, 0
	for _, c := range m.candidates(p, false) {
		largest = max(largest, c.cpus)
		if int64(c.cpus)*1000 >= limit && (c.worse < best.worse || c.worse == best.worse && c.load < best.load) {
			best = c
		}
	}
	if best.id == AnyNode {
		return refuse(cpuallocator.TopologyAffinityError,
			"ConstrainedBurst: no NUMA node's shared pool holds the limit of %s; the largest has %s", milli(limit),
			count(largest, "CPU"))
	}
	p.bind(best.id)
	return nil
}

// holdsBurst refuses to raise a limit above what the nodes of a ConstrainedBurst pod hold. A limit
// that fitted when it was set stays, even if the pool has shrunk since.
func (m *Machine) holdsBurst(p *pod, r Resources) *Refusal {
	was := p.resources
	if !p.in.burst || p.nodes == nil || was == nil || was.LimitMilli <= 0 {
		return nil
	}
	switch n := m.sharedOn(p.nodes); {
	case r.LimitMilli <= 0:
		return refuse(InvalidRequest, "ConstrainedBurst needs a CPU limit on every container of the pod; it had %s",
			milli(was.LimitMilli))
	case r.LimitMilli > was.LimitMilli && r.LimitMilli > int64(n)*1000:
		return refuse(cpuallocator.TopologyAffinityError,
			"ConstrainedBurst: the limit of %s is more than the shared pool of %s holds, which has %s",
			milli(r.LimitMilli), nodesText(p.nodes), count(n, "CPU"))
	}
	return nil
}

// bindAligned binds to the best-fit NUMA node: the one whose shared pool has the least room left
// that still holds the request. Unlike limits, requests add up.
func (m *Machine) bindAligned(p *pod) *Refusal {
	if p.resources == nil {
		return nil
	}
	want := p.resources.RequestMilli
	largest := int64(0)
	for i := range m.topo.Nodes() {
		largest = max(largest, int64(m.topo.Nodes()[i].CPUs.Count())*1000)
	}
	// it would need several nodes on an empty machine, too
	several := p.in.request.Alignment == cpuallocator.AlignRestricted && want > largest
	if d := p.devices; d != nil && d.Count() > 1 && !several {
		return refuse(cpuallocator.TopologyAffinityError, "the pod's devices are on %s and %s allows one",
			nodesText(d), alignmentName(p.in.request.Alignment))
	}
	best, least, worse, most := AnyNode, int64(math.MaxInt64), math.MaxInt, int64(0)
	for _, c := range m.candidates(p, true) {
		room := int64(c.cpus)*1000 - c.load
		most = max(most, room)
		if room >= want && (c.worse < worse || c.worse == worse && room < least) {
			best, least, worse = c.id, room, c.worse
		}
	}
	if best == AnyNode {
		if several {
			return nil
		}
		where := ""
		if p.devices != nil && !p.devices.IsEmpty() {
			where = " near the pod's devices on " + nodesText(p.devices)
		}
		return refuse(cpuallocator.TopologyAffinityError,
			"no NUMA node's shared pool has room for the request of %s%s; the most is %s", milli(want), where,
			milli(max(most, 0)))
	}
	p.bind(best)
	return nil
}

// boundLoad is the sum of requests of the pods bound to a NUMA node; a pod bound to several counts
// with an equal share on each.
func (m *Machine) boundLoad(node int) int64 {
	var sum int64
	for _, p := range m.bound {
		if p.resources != nil && p.nodes.Has(node) {
			sum += p.resources.RequestMilli / int64(p.nodes.Count())
		}
	}
	return sum
}

// rebind moves pods off NUMA nodes whose shared pool became empty: an empty cpuset would allow them
// on every CPU, including exclusive ones.
func (m *Machine) rebind() {
	if len(m.bound) == 0 {
		return
	}
	for _, p := range ordered(m.bound) {
		if m.sharedOn(p.nodes) > 0 {
			continue
		}
		m.moveFrom(p, p.nodes)
	}
}

// moveFrom binds a pod to other NUMA nodes than those that have no CPU left for it, or to none.
func (m *Machine) moveFrom(p *pod, was *cpuset.Set) {
	p.nodes = nil
	delete(m.bound, p.ref.UID)
	if m.placeShared(p, nil) != nil || p.nodes != nil && m.sharedOn(p.nodes) == 0 {
		p.nodes = nil
	}
	if p.nodes != nil {
		m.bound[p.ref.UID] = p
	}
	m.explain(p)
	m.notice(p, "NUMANodeLost", "the shared pool of %s has no CPU left; the pod %s", nodesText(was), whereTo(p.nodes))
	m.podChanged(p)
}

func whereTo(nodes *cpuset.Set) string {
	if nodes == nil {
		return "runs in the whole shared pool"
	}
	return "moves to " + nodesText(nodes)
}
