package policy

import (
	"fmt"
	"math"

	"github.com/quietcore/quietcore/cpuallocator"
)

// placeShared binds an LS pod to the shared pool of one NUMA node where
// something says so; other LS pods run in the whole pool.
func (m *Machine) placeShared(p *pod, recovered *Recovered) *Refusal {
	in := &p.in
	if recovered != nil && recovered.BoundNode != nil {
		if node := *recovered.BoundNode; node == AnyNode || m.sharedOn(node) > 0 {
			p.node = node
			return nil
		}
	}
	if !in.burst && !in.bindNode && in.scheduled == nil {
		return nil
	}
	if s := in.scheduled; s != nil && s.nodes.Count() == 1 {
		return m.bindScheduled(p, s.nodes.First())
	}
	if in.burst {
		return m.bindBurst(p)
	}
	return m.bindAligned(p)
}

func (m *Machine) sharedOn(node int) int {
	cpus := m.nodeCPUs(node)
	return m.pools.Shared.CountAnd(&cpus)
}

func (m *Machine) bindScheduled(p *pod, node int) *Refusal {
	if m.sharedOn(node) == 0 {
		return refuse(cpuallocator.TopologyAffinityError, "annotation %s binds the pod to NUMA node %d, which has no CPU in the shared pool", AnnStatus, node)
	}
	p.node = node
	return nil
}

// bindBurst is ConstrainedBurst: the least loaded NUMA node whose shared pool
// holds the pod's limit. Limits of several pods do not add up.
func (m *Machine) bindBurst(p *pod) *Refusal {
	if p.resources == nil {
		return nil
	}
	limit := p.resources.LimitMilli
	if limit <= 0 {
		return refuse(InvalidRequest, "ConstrainedBurst needs a CPU limit on every container of the pod, to find a NUMA node that holds it")
	}
	best, least, largest := AnyNode, int64(math.MaxInt64), 0
	for i := range m.topo.Nodes() {
		id := m.topo.Nodes()[i].ID
		n := m.sharedOn(id)
		largest = max(largest, n)
		if load := m.boundLoad(id); int64(n)*1000 >= limit && load < least {
			best, least = id, load
		}
	}
	if best == AnyNode {
		return refuse(cpuallocator.TopologyAffinityError, "ConstrainedBurst: no NUMA node's shared pool holds the limit of %s; the largest has %s", milli(limit), count(largest, "CPU"))
	}
	p.node = best
	return nil
}

// bindAligned binds to the best-fit NUMA node: the one whose shared pool has the
// least room left that still holds the request. Requests do add up.
func (m *Machine) bindAligned(p *pod) *Refusal {
	if p.resources == nil {
		return nil
	}
	want := p.resources.RequestMilli
	best, least, most, largest := AnyNode, int64(math.MaxInt64), int64(0), int64(0)
	for i := range m.topo.Nodes() {
		node := &m.topo.Nodes()[i]
		n := m.sharedOn(node.ID)
		room := int64(n)*1000 - m.boundLoad(node.ID)
		most, largest = max(most, room), max(largest, int64(node.CPUs.Count())*1000)
		if n > 0 && room >= want && room < least {
			best, least = node.ID, room
		}
	}
	if best == AnyNode {
		if p.in.request.Alignment == cpuallocator.AlignRestricted && want > largest {
			return nil // an empty machine would need several nodes too
		}
		return refuse(cpuallocator.TopologyAffinityError, "no NUMA node's shared pool has room for the request of %s; the most is %s", milli(want), milli(max(most, 0)))
	}
	p.node = best
	return nil
}

// boundLoad is the sum of requests of the pods bound to a NUMA node.
func (m *Machine) boundLoad(node int) int64 {
	var sum int64
	for _, p := range m.bound {
		if p.node == node && p.resources != nil {
			sum += p.resources.RequestMilli
		}
	}
	return sum
}

// rebind moves the pods of a NUMA node whose shared pool became empty: an empty
// cpuset would let them run anywhere, on exclusive CPUs too.
func (m *Machine) rebind() {
	if len(m.bound) == 0 {
		return
	}
	for _, p := range ordered(m.bound) {
		if m.sharedOn(p.node) > 0 {
			continue
		}
		was := p.node
		p.node = AnyNode
		delete(m.bound, p.ref.UID)
		if m.placeShared(p, nil) != nil || p.node == AnyNode || m.sharedOn(p.node) == 0 {
			p.node = AnyNode
		} else {
			m.bound[p.ref.UID] = p
		}
		m.explain(p)
		m.notice(p, "NUMANodeLost", "the shared pool of NUMA node %d has no CPU left; the pod %s", was, whereTo(p.node))
		m.podChanged(p)
	}
}

func whereTo(node int) string {
	if node == AnyNode {
		return "runs in the whole shared pool"
	}
	return fmt.Sprintf("moves to NUMA node %d", node)
}
