package cpuallocator

// extent is how many NUMA nodes and sockets a request uses.
type extent struct{ nodes, sockets int16 }

func (m *machine) extent() extent { return extent{int16(len(m.nodes)), int16(m.sockets)} }

// limit is the number of NUMA nodes that a request may use; with sockets set, it may also use more
// nodes on at most that many sockets.
type limit extent

func (l limit) allows(nodes, sockets int32) bool {
	return nodes <= int32(l.nodes) || sockets <= int32(l.sockets)
}

// most is the maximum number of nodes that a request may use on a machine with this many.
func (l limit) most(nodes int) int {
	if l.sockets > 0 {
		return nodes
	}
	return int(l.nodes)
}

// emptyLimits caches what a request needs on the empty machine, by its sort and size: it depends on
// nothing else. An extent without nodes is not computed yet.
type emptyLimits [2 * 4][]extent

func newEmptyLimits(m *machine) (l emptyLimits) {
	for i := range l {
		l[i] = make([]extent, m.online+1)
	}
	return l
}

// extentIfEmpty is how many NUMA nodes and sockets the request would need if all
// online CPUs were free.
func (a *Allocator) extentIfEmpty(r *Request, n int) extent {
	sort := 0
	switch {
	case a.q.mode == isolated:
		sort = 1
	case a.q.mode == wholeCores:
		sort = 2
	case a.q.spread && r.BindRequired:
		sort = 3
	}
	if r.Strategy == DistributeEvenly || a.q.named {
		// Equal shares depend on the bind policy too, so only the others are cached.
		return a.askIfEmpty(r, n)
	}
	known := &a.empty[sort][n]
	if known.nodes == 0 {
		*known = a.askIfEmpty(r, n)
	}
	return *known
}

// askIfEmpty runs the search with every CPU free, and restores the state.
func (a *Allocator) askIfEmpty(r *Request, n int) extent {
	s, q := &a.s, a.q
	cores := len(a.m.cores)
	copy(s.before, s.raw)
	copy(s.before[cores:], s.keep)
	for i := range a.m.cores {
		s.raw[i], s.keep[i], s.state[i] = a.m.cores[i].on, 0, s.state[i].withForeign(false)
	}
	a.q.mode, a.q.kept, a.q.exclusive = a.baseMode(r), 0, ExclusiveNone
	need := a.m.extent()
	if a.shape(r, n) == nil {
		a.sum()
		s.nodes.had, s.nodes.target = 0, violation{}
		for i := range s.node {
			s.nodes.had += s.node[i].had
		}
		need = a.leastExtent(r.Strategy == DistributeEvenly)
	}
	copy(s.raw, s.before)
	copy(s.keep, s.before[cores:])
	for i := range a.m.cores {
		s.state[i] = s.state[i].withForeign(s.raw[i]+s.keep[i] < a.m.cores[i].on)
	}
	a.q = q
	a.q.mode = a.baseMode(r)
	a.shape(r, n)
	a.sum()
	return need
}

// leastExtent is the extent of the smallest set of nodes that holds the request, on the fewest
// sockets; with even, in equal shares if possible.
func (a *Allocator) leastExtent(even bool) extent {
	if a.m.nodeSets == nil {
		return a.leastExtentGrown()
	}
	least := a.leastExtentOf(even)
	if least.nodes == 0 && even {
		least = a.leastExtentOf(false)
	}
	if least.nodes == 0 {
		return extent{1, 1}
	}
	return least
}

// leastExtentOf is zero if no set holds the request.
func (a *Allocator) leastExtentOf(even bool) (least extent) {
	for i := a.firstSet(); i < len(a.m.nodeSets); i++ {
		set := &a.m.nodeSets[i]
		if least.nodes > 0 && set.count > int32(least.nodes) {
			break
		}
		if least.nodes > 0 && set.socketCount >= int32(least.sockets) {
			continue
		}
		sum, _ := a.sumSet(set)
		if !a.holds(set, &sum) {
			continue
		}
		if even {
			if _, ok := a.canShare(set); !ok {
				continue
			}
		}
		least = extent{nodes: int16(set.count), sockets: int16(set.socketCount)}
	}
	return least
}
