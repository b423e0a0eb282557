package cpuallocator

// Machines with more NUMA nodes than a table of all sets allows (a BIOS can make
// every L3 a node) grow a set from one node after the other, always by the
// nearest node with which the request still fits in the fewest, and compare
// those sets. One node is thus found exactly; more are near each other, though
// perhaps not the nearest there are.

// growEffort bounds the work for one size: sets are grown from as many nodes as
// growEffort / (nodes x size) allows, but from minSeeds at least, those with the
// most room first.
const (
	growEffort = 1 << 14
	minSeeds   = 4
)

// grown is the scratch space.
type grown struct {
	set      nodeSet
	in       []bool
	distance []int32 // of each node from those of the set
	own      []int16 // nodes that the result lies on anyway
	room     int32   // of the set
}

func newGrown(m *machine) grown {
	n := len(m.nodes)
	if m.nodeSets != nil {
		return grown{}
	}
	return grown{set: nodeSet{nodes: make([]int16, 0, n), sockets: allSockets}, in: make([]bool, n),
		distance: make([]int32, n), own: make([]int16, 0, n)}
}

// setTargetGrown determines how well the exclusive policy can be kept: nodes are avoided either
// completely or not at all.
func (a *Allocator) setTargetGrown() bool {
	s := &a.s.nodes
	if a.q.exclusive == NUMANodeLevel {
		if a.roomOn(a.q.limit.most(len(a.m.nodes)), func(i int16) int32 {
			if a.s.violated[i] {
				return 0
			}
			return a.s.node[i].usable
		}) >= a.q.want && !a.keptOnViolated() {
			a.avoidViolated()
			return true
		}
		s.target.nodes = 1
	}
	clean := a.roomOn(a.q.limit.most(len(a.m.nodes)), func(i int16) int32 { return a.s.node[i].clean })
	s.target.cpus = a.q.settledBad + int32(max(0, a.q.want-clean))
	return true
}

func (a *Allocator) keptOnViolated() bool {
	for i := range a.s.node {
		if a.s.violated[i] && a.s.node[i].had > 0 {
			return true
		}
	}
	return false
}

// avoidViolated removes the nodes to be avoided from the request.
func (a *Allocator) avoidViolated() {
	for i := range a.m.cores {
		if a.s.violated[a.m.cores[i].node] {
			a.s.usable[i] = 0
		}
	}
	a.sum()
}

// roomOn is the largest room on count nodes.
func (a *Allocator) roomOn(count int, room func(int16) int32) int {
	s := &a.s.nodes
	s.order = s.order[:0]
	total := 0
	for i := range a.s.node {
		k := len(s.order)
		s.order = append(s.order, int16(i))
		for ; k > 0 && room(s.order[k-1]) < room(int16(i)); k-- {
			s.order[k] = s.order[k-1]
		}
		s.order[k] = int16(i)
	}
	for _, i := range s.order[:min(count, len(s.order))] {
		total += int(room(i))
	}
	return total
}

// searchGrown compares the sets grown from each node. Equal shares are tried first, on as many
// nodes as they need, then unequal ones.
func (a *Allocator) searchGrown() {
	s := &a.s.nodes
	first := a.fewestGrown()
	if a.short() {
		// Enough nodes that as few CPUs as possible are on cores to be avoided.
		clean := a.q.want - int(s.target.cpus-a.q.settledBad)
		for first < a.q.limit.most(len(a.m.nodes)) && a.roomOn(first, func(i int16) int32 {
			return a.s.node[i].clean
		}) < clean {
			first++
		}
	}
	if a.q.strategy == DistributeEvenly {
		for count := first; count <= a.q.limit.most(len(a.m.nodes)) && count <= a.q.asked; count++ {
			if a.trySize(count, true); s.bestSet {
				return
			}
		}
	}
	for count := first; count <= a.q.limit.most(len(a.m.nodes)) && !s.bestSet; count++ {
		a.trySize(count, false)
	}
}

// fewestGrown is the fewest nodes that have room for the request and what the result has anyway.
func (a *Allocator) fewestGrown() int {
	a.orderNodes()
	room, count := 0, 0
	for i := range a.s.node {
		if a.s.node[i].had > 0 {
			room += int(a.s.node[i].usable)
			count++
		}
	}
	for _, i := range a.s.nodes.order {
		if room >= a.q.want && count > 0 {
			break
		}
		if a.s.node[i].had == 0 {
			room += int(a.s.node[i].usable)
			count++
		}
	}
	return count
}

// leastExtentGrown is leastExtent: of sets grown from each node the one on the
// fewest sockets.
func (a *Allocator) leastExtentGrown() extent {
	count := a.fewestGrown()
	least := extent{nodes: int16(count), sockets: int16(a.m.sockets)}
	a.listOwn()
	for _, start := range a.s.nodes.order {
		if a.growFrom(start, count) {
			least.sockets = min(least.sockets, int16(a.s.nodes.grown.set.socketCount))
		}
	}
	return least
}

// listOwn lists the nodes that the result lies on anyway.
func (a *Allocator) listOwn() {
	g := &a.s.nodes.grown
	g.own = g.own[:0]
	for i := range a.s.node {
		if a.s.node[i].had > 0 {
			g.own = append(g.own, int16(i))
		}
	}
}

// trySize compares the sets of count nodes that grow from each seed.
func (a *Allocator) trySize(count int, even bool) {
	s := &a.s.nodes
	g := &s.grown
	s.bestSet, s.tied = false, s.tied[:0]
	a.keyNodes()
	a.listOwn()
	a.orderNodes()
	seeds := max(minSeeds, growEffort/(len(a.s.node)*count))
	if count == 1 {
		seeds = len(s.order)
	}
	var best Score
	for _, start := range s.order[:min(seeds, len(s.order))] {
		if a.s.node[start].usable+a.s.node[start].had == 0 || !a.growFrom(start, count) {
			continue
		}
		score, ok := a.scoreHolding(&g.set, even)
		if !ok || !a.q.limit.allows(g.set.count, g.set.socketCount) {
			continue
		}
		if s.bestSet && score.compareNodes(&best) > 0 {
			continue
		}
		if !s.bestSet || score.compareNodes(&best) < 0 {
			s.bestSet, best, s.tied = false, score, s.tied[:0]
		}
		// A set with the same key would tie.
		t := tie{key: a.keyOf(&g.set)}
		if a.looksLike(t.key) {
			continue
		}
		if len(s.tied) < cap(s.tied) {
			s.tied = append(s.tied, t)
		}
		a.tryPlace(&g.set, score, even)
		a.unsettle()
	}
}

// growFrom builds a set of count nodes around a node and the nodes that the
// result lies on anyway.
func (a *Allocator) growFrom(start int16, count int) bool {
	g := &a.s.nodes.grown
	g.set.nodes, g.set.distance, g.room = g.set.nodes[:0], 0, 0
	if count > 1 {
		clear(g.distance)
	}
	for _, n := range g.own {
		a.addNode(n, count)
	}
	if !g.in[start] {
		a.addNode(start, count)
	}
	for len(g.set.nodes) < count {
		next := a.nearest(count)
		if next < 0 {
			break
		}
		a.addNode(next, count)
	}
	for _, n := range g.set.nodes {
		g.in[n] = false
	}
	g.set.count = int32(len(g.set.nodes))
	g.set.socketCount = a.socketsUsed(&g.set)
	return len(g.set.nodes) == count
}

// addNode adds a node to the set, which stays ascending.
func (a *Allocator) addNode(node int16, count int) {
	g := &a.s.nodes.grown
	set := &g.set
	k := len(set.nodes)
	g.in[node] = true
	g.room += a.s.node[node].usable
	set.distance += g.distance[node]
	set.nodes = append(set.nodes, node)
	for ; k > 0 && set.nodes[k-1] > node; k-- {
		set.nodes[k] = set.nodes[k-1]
	}
	set.nodes[k] = node
	if count == 1 {
		return
	}
	for i, d := range a.m.distance[node] {
		g.distance[i] += d
	}
}

// nearest is the node that adds the least distance, among those with which count nodes can still
// hold the request; among equals the one that the strategy prefers.
func (a *Allocator) nearest(count int) int16 {
	g := &a.s.nodes.grown
	more, last := a.largest(count - len(g.set.nodes))
	best, bestFree := int16(-1), int32(0)
	for i := range a.s.node {
		n := &a.s.node[i]
		// The largest others follow; a node that is one of them takes its own place.
		if n.usable == 0 || g.in[i] || int(g.room+more-last+min(n.usable, last)) < a.q.want {
			continue
		}
		free := n.raw
		if a.q.strategy != MostAllocated {
			free = -free
		}
		if best < 0 || g.distance[i] < g.distance[best] || g.distance[i] == g.distance[best] && free < bestFree {
			best, bestFree = int16(i), free
		}
	}
	return best
}

// largest is the room of the count largest nodes outside the set, and of the
// smallest of them.
func (a *Allocator) largest(count int) (room, last int32) {
	for _, n := range a.s.nodes.order {
		if count == 0 {
			break
		}
		if !a.s.nodes.grown.in[n] {
			last = a.s.node[n].usable
			room += last
			count--
		}
	}
	return room, last
}

// socketsUsed counts the sockets that a set touches.
func (a *Allocator) socketsUsed(set *nodeSet) int32 {
	touched := a.s.nodes.socket
	clear(touched)
	count := int32(0)
	for _, n := range set.nodes {
		for _, g := range a.m.nodes[n].groups {
			if socket := a.m.groups[g].socket; !touched[socket] {
				touched[socket] = true
				count++
			}
		}
	}
	return count
}
