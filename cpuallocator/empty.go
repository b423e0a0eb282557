package cpuallocator

// emptyLimits remembers how many NUMA nodes the empty machine needs, by the
// sort of request and its size: it depends on nothing else, and 0 is "not asked
// yet".
type emptyLimits [2 * 4][]int16

func newEmptyLimits(m *machine) (l emptyLimits) {
	for i := range l {
		l[i] = make([]int16, m.online+1)
	}
	return l
}

// nodesIfEmpty is how many NUMA nodes the request would need if all online CPUs
// were free.
func (a *Allocator) nodesIfEmpty(r *Request, n int) int {
	sort := 0
	switch {
	case a.q.mode == isolated:
		sort = 1
	case a.q.mode == wholeCores:
		sort = 2
	case a.q.spread && r.BindRequired:
		sort = 3
	}
	if r.Strategy == DistributeEvenly {
		// Equal shares depend on the bind policy too, so only the rest is kept.
		return a.countIfEmpty(r, n)
	}
	known := &a.empty[sort][n]
	if !r.Nodes.IsEmpty() {
		return a.countIfEmpty(r, n)
	}
	if *known == 0 {
		*known = int16(a.countIfEmpty(r, n))
	}
	return int(*known)
}

// countIfEmpty asks the search itself, with every CPU free, and puts everything
// back.
func (a *Allocator) countIfEmpty(r *Request, n int) int {
	s, q := &a.s, a.q
	cores := len(a.m.cores)
	copy(s.before, s.raw)
	copy(s.before[cores:], s.keep)
	for i := range a.m.cores {
		s.raw[i], s.keep[i], s.foreign[i] = a.m.cores[i].on, 0, false
	}
	a.q.mode, a.q.kept, a.q.exclusive = a.baseMode(r), 0, ExclusiveNone
	count := len(a.m.nodes)
	if a.shape(r, n) == nil {
		a.sum()
		s.nodes.had, s.nodes.target = 0, violation{}
		for i := range s.node {
			s.nodes.had += s.node[i].had
		}
		count = a.fewestNodes(r.Strategy == DistributeEvenly)
	}
	copy(s.raw, s.before)
	copy(s.keep, s.before[cores:])
	for i := range a.m.cores {
		s.foreign[i] = s.raw[i]+s.keep[i] < a.m.cores[i].on
	}
	a.q = q
	a.q.mode = a.baseMode(r)
	a.shape(r, n)
	a.sum()
	return count
}

// fewestNodes is the size of the smallest set of nodes that holds the request,
// in equal shares if it can be and even says so.
func (a *Allocator) fewestNodes(even bool) int {
	if a.m.nodeSets == nil {
		return a.fewestGrown()
	}
	fewest := 0
	for i := a.firstSet(); i < len(a.m.nodeSets); i++ {
		set := &a.m.nodeSets[i]
		sum, _ := a.sumSet(set)
		if !a.holds(set, &sum) {
			continue
		}
		if fewest == 0 {
			fewest = int(set.count)
		}
		if !even {
			return int(set.count)
		}
		if _, ok := a.canShare(set); ok {
			return int(set.count)
		}
	}
	return max(fewest, 1)
}
