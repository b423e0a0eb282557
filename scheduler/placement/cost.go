package placement

import (
	"cmp"

	"github.com/quietcore/quietcore/policy"
)

// Cost is what a place costs, the first field before the second and so on: what the pod
// suffers, and then what is left for others.
type Cost struct {
	Apart    int // pods on the node that it is better apart from
	Nodes    int // NUMA nodes that it is spread over
	L3s      int // L3s that it is spread over
	Broken   int // free cores of which a part is taken
	Leftover int // free CPUs that stay behind in the L3s that are used
	Free     int // free CPUs of the node afterwards: nodes that are full go first
}

// Compare orders costs, the lower one first.
func (c Cost) Compare(o Cost) int {
	return cmp.Or(cmp.Compare(c.Apart, o.Apart), cmp.Compare(c.Nodes, o.Nodes), cmp.Compare(c.L3s, o.L3s),
		cmp.Compare(c.Broken, o.Broken), cmp.Compare(c.Leftover, o.Leftover), cmp.Compare(c.Free, o.Free))
}

func (s *State) cost(o *policy.Offer, l *Load) Cost {
	t, free := s.site.topology, s.freeWith(l)
	all := o.CPUs.Or(o.Withheld)
	rest := free.Minus(all)
	nodes := t.NodesOf(o.CPUs)
	c := Cost{Nodes: nodes.Count(), Free: rest.Count()}
	if all.IsEmpty() {
		c.Nodes = o.Nodes.Count()
		return c
	}
	for left := o.CPUs; !left.IsEmpty(); {
		cpu := left.First()
		left.Remove(cpu) // in case that the machine does not have it
		if place, ok := t.CPU(cpu); ok {
			d := &t.L3s()[place.L3]
			left.RemoveSet(&d.CPUs)
			c.L3s++
			c.Leftover += d.CPUs.CountAnd(&rest)
		}
	}
	for cpu := all.First(); cpu >= 0; cpu = all.Next(cpu + 1) {
		core := t.CoreOf(cpu)
		if core < 0 {
			continue
		}
		for _, sibling := range t.Cores()[core].CPUs {
			if sibling != cpu && rest.Has(sibling) {
				c.Broken++ // counted for each CPU: cores have two, or the pod has all
				break
			}
		}
	}
	return c
}
