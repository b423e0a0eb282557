package reclaim

import (
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Masks say which CPUs batch pods may have, and who else wants them.
type Masks struct {
	Pool     cpuset.Set // the best-effort pool without suppression
	Reserved cpuset.Set // used first: production never owns them
	// Pinned are CPUs of LSR pods, used last: an owner cannot move away from them,
	// while the shared pool can.
	Pinned cpuset.Set
	// Apart are CPUs whose cores batch pods keep off, siblings included: those of
	// LSE pods, those withheld for somebody, and kubelet's exclusive ones.
	Apart cpuset.Set
}

// Choose returns the CPUs that batch pods run on when they may have so many:
// whole cores, reserved ones first, evenly over the NUMA nodes, one core at least.
// A smaller number always gives a subset of a larger one's answer, so that a
// budget that moves moves as few tasks as it can. The set is empty where every
// core belongs to somebody whom batch pods keep off; a quota has to do then.
func Choose(t *topology.Topology, m Masks, cpus int) cpuset.Set {
	var chosen cpuset.Set
	if m.Pool.IsEmpty() {
		return chosen
	}
	queues := m.queues(t)
	perNode := make([]int, len(t.Nodes()))
	count := 0
	for rank := range queues {
		for {
			node, core := queues[rank].next(perNode)
			if node < 0 {
				break
			}
			n := 0
			for _, cpu := range t.Cores()[core].CPUs {
				if m.Pool.Has(cpu) {
					n++
				}
			}
			if count > 0 && count+n > cpus {
				return chosen
			}
			for _, cpu := range t.Cores()[core].CPUs {
				if m.Pool.Has(cpu) {
					chosen.Add(cpu)
				}
			}
			count += n
			perNode[node] += n
		}
	}
	return chosen
}

// queue holds indexes of cores, ascending, by index of the NUMA node.
type queue [][]int

// next takes the next core of the node that gave the fewest CPUs so far; node is
// -1 when none is left.
func (q queue) next(perNode []int) (node, core int) {
	node = -1
	for i := range q {
		if len(q[i]) > 0 && (node < 0 || perNode[i] < perNode[node]) {
			node = i
		}
	}
	if node >= 0 {
		core, q[node] = q[node][0], q[node][1:]
	}
	return node, core
}

// queues sorts the cores that batch pods may use: reserved, free, pinned.
func (m Masks) queues(t *topology.Topology) [3]queue {
	var queues [3]queue
	for i := range queues {
		queues[i] = make(queue, len(t.Nodes()))
	}
	for i := range t.Cores() {
		c := &t.Cores()[i]
		some := func(s *cpuset.Set) bool { return slices.ContainsFunc(c.CPUs, s.Has) }
		if !some(&m.Pool) || some(&m.Apart) {
			continue
		}
		rank := 1
		switch {
		case some(&m.Pinned):
			rank = 2
		case some(&m.Reserved):
			rank = 0
		}
		queues[rank][c.Node] = append(queues[rank][c.Node], i)
	}
	return queues
}
