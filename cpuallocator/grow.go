package cpuallocator

// Machines with more NUMA nodes than a table of all sets allows (a BIOS can make
// every L3 a node) grow a set from each node in turn, always by the nearest node
// with which the request still fits in the fewest, and compare those sets. One
// node, and two, are thus found exactly; more are near each other, though
// perhaps not the nearest there are. The effort is nodes x nodes x size.

// grown is the scratch space.
type grown struct {
	set  nodeSet
	seed []int16
}

func newGrown(m *machine) grown {
	n := len(m.nodes)
	return grown{set: nodeSet{nodes: make([]int16, 0, n), sockets: allSockets}, seed: make([]int16, 0, n)}
}

// setTargetGrown tells how well the exclusive policy can be kept: not at all by
// nodes if not wholly.
func (a *Allocator) setTargetGrown() bool {
	s := &a.s.nodes
	if a.q.exclusive == NUMANodeLevel {
		if a.roomOn(a.q.limit, func(i int16) int32 {
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
	clean := a.roomOn(a.q.limit, func(i int16) int32 { return a.s.node[i].clean })
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

// avoidViolated takes the nodes to be avoided out of the request.
func (a *Allocator) avoidViolated() {
	for i := range a.m.cores {
		if a.s.violated[a.m.cores[i].node] {
			a.s.usable[i] = 0
		}
	}
	a.sum()
}

// roomOn is the most that count nodes have.
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

// searchGrown compares the sets grown from each node. Equal shares are tried on
// as many nodes as they take, before shares as they come.
func (a *Allocator) searchGrown() {
	s := &a.s.nodes
	first := a.fewestGrown()
	if a.q.strategy == DistributeEvenly && !a.short() {
		for count := first; count <= a.q.limit && count <= a.q.asked; count++ {
			if a.trySize(count, true); s.bestSet {
				return
			}
		}
	}
	for count := first; count <= a.q.limit && !s.bestSet; count++ {
		a.trySize(count, false)
	}
}

// fewestGrown is the fewest nodes that have room for the request and what it
// has anyway.
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

// trySize tries the sets of count nodes that grow from each node, the best by
// nodes first known only after all are compared.
func (a *Allocator) trySize(count int, even bool) {
	s := &a.s.nodes
	s.ties, s.bestSet = 0, false
	var best Score
	for start := range a.s.node {
		if a.s.node[start].usable+a.s.node[start].had == 0 || !a.growFrom(int16(start), count) {
			continue
		}
		set := &s.grown.set
		sum, violated := a.sumSet(set)
		if !a.holds(set, &sum) || a.q.exclusive == PCPULevel && a.violation(&sum, violated) != s.target {
			continue
		}
		score := a.scoreSet(set, &sum, violated)
		if even && !a.shareEvenly(set, &score) {
			continue
		}
		if even {
			score.Uneven = 0
		}
		if c := score.compareNodes(&best); s.bestSet && c > 0 {
			continue
		} else if c < 0 {
			s.ties, s.bestSet = 0, false
		}
		best = score
		a.consider(set, score, even)
	}
}

// growFrom builds a set of count nodes around a node and the nodes that the
// result lies on anyway.
func (a *Allocator) growFrom(start int16, count int) bool {
	set := &a.s.nodes.grown.set
	set.nodes, set.distance = set.nodes[:0], 0
	for i := range a.s.node {
		if a.s.node[i].had > 0 {
			a.addNode(int16(i))
		}
	}
	a.addNode(start)
	for len(set.nodes) < count {
		next := a.nearest(count)
		if next < 0 {
			return false
		}
		a.addNode(next)
	}
	set.count = int32(len(set.nodes))
	set.socketCount = a.socketsUsed(set)
	return len(set.nodes) == count
}

// addNode adds a node to the set, which stays ascending.
func (a *Allocator) addNode(node int16) {
	set := &a.s.nodes.grown.set
	k := len(set.nodes)
	for _, n := range set.nodes {
		if n == node {
			return
		}
	}
	set.distance += a.m.distanceTo(int(node), set.nodes)
	set.nodes = append(set.nodes, node)
	for ; k > 0 && set.nodes[k-1] > node; k-- {
		set.nodes[k] = set.nodes[k-1]
	}
	set.nodes[k] = node
}

// nearest is the node that adds the least distance, among those with which count
// nodes can still hold the request; of equals the one that the strategy likes.
func (a *Allocator) nearest(count int) int16 {
	set := &a.s.nodes.grown.set
	best, bestDistance, bestFree := int16(-1), int32(0), int32(0)
	for i := range a.s.node {
		node := int16(i)
		if a.s.node[i].usable == 0 || set.has(node) || !a.leavesRoom(node, count) {
			continue
		}
		d, free := a.m.distanceTo(i, set.nodes), a.s.node[i].raw
		if a.q.strategy != MostAllocated {
			free = -free
		}
		if best < 0 || d < bestDistance || d == bestDistance && free < bestFree {
			best, bestDistance, bestFree = node, d, free
		}
	}
	return best
}

func (set *nodeSet) has(node int16) bool {
	for _, n := range set.nodes {
		if n == node {
			return true
		}
	}
	return false
}

// leavesRoom says whether the set with a node more, and then the largest others,
// holds the request.
func (a *Allocator) leavesRoom(node int16, count int) bool {
	set := &a.s.nodes.grown.set
	room := a.s.node[node].usable
	for _, n := range set.nodes {
		room += a.s.node[n].usable
	}
	left := count - len(set.nodes) - 1
	for _, n := range a.s.nodes.order {
		if left <= 0 || int(room) >= a.q.want {
			break
		}
		if n != node && !set.has(n) {
			room += a.s.node[n].usable
			left--
		}
	}
	return int(room) >= a.q.want
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
