package cpuallocator

import "slices"

// nodeSearch is the scratch space of the choice of NUMA nodes.
type nodeSearch struct {
	in     []bool  // nodes of the current set, by rank
	socket []bool  // sockets of the current set
	share  []int32 // CPUs of each node, if DistributeEvenly determines them
	evenSearch
	set     int32 // the current set in the machine's list
	had     int32 // CPUs that the result has anyway
	target  violation
	best    place
	bestSet bool
	order   []int16
	grown   grown
	tied    []tie
	caps    l3Caps
	settled settlement
}

// settlement is whether every clean CPU of the current nodes is put into the result. It stays until
// other nodes are visited: most often these are the best ones, and the last.
type settlement struct {
	done  bool
	stale bool // it is undone, but the sums still include it
	want  int  // before
}

// firstSet is the first set that is large enough to hold the request.
func (a *Allocator) firstSet() int {
	s := &a.s.nodes
	a.orderNodes()
	room := 0
	for k, i := range s.order {
		if room += int(a.s.node[i].usable); room >= a.q.want {
			return a.m.ofCount[k+1]
		}
	}
	return len(a.m.nodeSets)
}

// orderNodes sorts the nodes by room, the largest first.
func (a *Allocator) orderNodes() {
	s := &a.s.nodes
	s.order = s.order[:0]
	for i := range a.s.node {
		k := len(s.order)
		s.order = append(s.order, int16(i))
		for ; k > 0 && a.s.node[s.order[k-1]].usable < a.s.node[i].usable; k-- {
			s.order[k] = s.order[k-1]
		}
		s.order[k] = int16(i)
	}
}

// roomy is a quick check whether a set may hold the request.
func (a *Allocator) roomy(set *nodeSet) bool {
	room := int32(0)
	for _, i := range set.nodes {
		room += a.s.node[i].usable
	}
	return int(room) >= a.q.want
}

// roomyEach is a quick check whether each node of a set may hold its share.
func (a *Allocator) roomyEach(nodes []int16, base int32) bool {
	for _, i := range nodes {
		if a.s.node[i].had+a.s.node[i].usable < base {
			return false
		}
	}
	return true
}

// sharers is how many nodes may hold a share.
func (a *Allocator) sharers(base int32) (count int32) {
	for i := range a.s.node {
		if a.s.node[i].had+a.s.node[i].usable >= base {
			count++
		}
	}
	return count
}

// violation is how far the request's exclusive policy is violated.
type violation struct{ nodes, cpus int32 }

func (v violation) less(o violation) bool {
	return v.nodes < o.nodes || v.nodes == o.nodes && v.cpus < o.cpus
}

// place is a set of nodes with the L3s chosen on it, and its score.
type place struct {
	score  Score
	in     []bool
	socket []bool
	share  []int32
	even   bool
	l3     []bool
	set    int32 // the nodes' set in the machine's list; the first of equal sets has the lowest numbers
}

func newNodeSearch(m *machine) nodeSearch {
	n := len(m.nodes)
	return nodeSearch{
		in: make([]bool, n), socket: make([]bool, m.sockets), share: make([]int32, n), order: make([]int16, 0, n),
		grown: newGrown(m), tied: make([]tie, 0, maxTied),
		caps:       l3Caps{sorted: make([]int32, len(m.groups)), at: make([]int16, n)},
		evenSearch: evenSearch{shares: newShareCosts(m)},
		best: place{in: make([]bool, n), socket: make([]bool, m.sockets), share: make([]int32, n),
			l3: make([]bool, len(m.l3s))},
	}
}

// search finds the best place. Sets with few nodes are visited first. So a set within the sockets
// of an empty machine is searched separately, if these are enough and fewer nodes lie on more
// sockets.
func (a *Allocator) search(r *Request) *Error {
	err := a.searchWithin(r)
	first, allowed := a.s.nodes.best.score, a.q.limit
	if err != nil || first.Beyond == 0 {
		return err
	}
	a.searchAgain(r, limit{sockets: allowed.sockets})
	s := &a.s.nodes
	if s.bestSet && s.best.score.compareNodes(&first) < 0 {
		return nil
	}
	return a.searchAgain(r, allowed)
}

func (a *Allocator) searchAgain(r *Request, within limit) *Error {
	n := a.q.asked
	a.q.mode = a.baseMode(r)
	a.shape(r, n)
	a.sum()
	a.q.limit = within
	return a.searchWithin(r)
}

// searchWithin finds the best place that the limit allows: first how well the exclusive policy can
// be kept, then the sets of nodes in the order of Score, and for sets with equal nodes, their L3s
// and cores.
func (a *Allocator) searchWithin(r *Request) *Error {
	s := &a.s.nodes
	s.had, s.bestSet, s.costed = 0, false, -1
	s.shortTries = max(minShort, shortEffort/len(a.m.cores))
	a.s.l3.steps = l3Effort / len(a.m.cores)
	for i := range a.s.node {
		s.had += a.s.node[i].had
	}
	if !a.setTarget() {
		return a.refuseNodes(r)
	}
	if r.ExclusiveRequired && (s.target != violation{}) {
		return refuse(ExclusivityError,
			"%d CPUs are asked for and an exclusive policy is required; the fewest that can be had are %d NUMA "+
				"nodes and %d CPUs on cores of owners with such a policy",
			a.q.asked, s.target.nodes, s.target.cpus)
	}
	if !a.short() && (a.q.exclusive == PCPULevel || s.target.nodes > 0) {
		a.onlyClean()
	}
	if a.m.nodeSets == nil {
		a.searchGrown()
	} else if a.q.strategy != DistributeEvenly || !a.searchTable(true) {
		a.searchTable(false)
	}
	if !s.bestSet {
		a.unsettle()
		return a.refuseNodes(r)
	}
	return nil
}

// setTarget finds the least violation of the exclusive policy of any allowed set of nodes; false if
// no set holds the request.
func (a *Allocator) setTarget() bool {
	s := &a.s.nodes
	s.target = violation{}
	if a.q.exclusive == ExclusiveNone {
		return true
	}
	if a.m.nodeSets == nil {
		return a.setTargetGrown()
	}
	found, least := false, a.leastViolation()
	apart := 0
	for _, v := range a.s.violated {
		if !v {
			apart++
		}
	}
	for i := a.firstSet(); i < len(a.m.nodeSets); i++ {
		set := &a.m.nodeSets[i]
		// A set this large cannot have fewer nodes to be avoided than the best.
		if int(set.count) > a.q.limit.most(len(a.m.nodes)) || found && a.q.exclusive == NUMANodeLevel &&
			int(set.count)-apart > int(s.target.nodes) {
			break
		}
		if !a.q.limit.allows(set.count, set.socketCount) || !a.roomy(set) {
			continue
		}
		sum, violated := a.sumSet(set)
		if !a.holds(set, &sum) {
			continue
		}
		v := a.violation(&sum, violated)
		if !found || v.less(s.target) {
			found, s.target = true, v
		}
		if !least.less(s.target) {
			break
		}
	}
	return found
}

// leastViolation is a lower bound for every set: the violation of all nodes together.
func (a *Allocator) leastViolation() (v violation) {
	clean, apart := int32(0), int32(0)
	for i := range a.s.node {
		clean += a.s.node[i].clean
		if !a.s.violated[i] {
			apart += a.s.node[i].usable
		}
	}
	if a.q.exclusive == NUMANodeLevel {
		if int(apart) >= a.q.want {
			return v
		}
		v.nodes = 1
	}
	v.cpus = a.q.settledBad + max(0, int32(a.q.want)-clean)
	return v
}

func (a *Allocator) violation(sum *nodeSum, violated int32) violation {
	if a.q.exclusive == ExclusiveNone || a.q.exclusive == NUMANodeLevel && violated == 0 {
		return violation{}
	}
	return violation{nodes: violated, cpus: a.q.settledBad + max(0, int32(a.q.want)-sum.clean)}
}

// short reports whether cores of owners to be avoided are needed.
func (a *Allocator) short() bool { return a.s.nodes.target.cpus > a.q.settledBad }

// sumSet adds up the nodes of a set and counts those to be avoided.
func (a *Allocator) sumSet(set *nodeSet) (sum nodeSum, violated int32) {
	for _, i := range set.nodes {
		n := &a.s.node[i]
		sum.usable += n.usable
		sum.clean += n.clean
		sum.raw += n.raw
		sum.had += n.had
		if a.s.violated[i] {
			violated++
		}
	}
	if !a.m.oneSocket {
		a.sumSockets(set, &sum)
	}
	return sum, violated
}

// sumSockets counts again, for a set that may not use all sockets of its nodes.
func (a *Allocator) sumSockets(set *nodeSet, sum *nodeSum) {
	sum.usable, sum.clean, sum.had = 0, 0, 0
	for i := range a.s.node {
		a.s.node[i].within = 0
	}
	for _, node := range set.nodes {
		for _, i := range a.m.nodes[node].cores {
			if !set.allows(a.m.cores[i].socket) {
				continue
			}
			sum.had += int32(a.s.had[i])
			if !a.s.state[i].bad() {
				sum.clean += int32(a.s.usable[i])
			}
			if !a.q.cleanOnly || !a.s.state[i].bad() {
				sum.usable += int32(a.s.usable[i])
				a.s.node[node].within += int32(a.s.usable[i])
			}
		}
	}
}

// allows reports whether the set may use the cores of a socket.
func (set *nodeSet) allows(socket int16) bool {
	return set.sockets == allSockets || set.sockets>>socket&1 != 0
}

// holds reports whether a set of nodes contains what the result has anyway and has room for the
// rest.
func (a *Allocator) holds(set *nodeSet, sum *nodeSum) bool {
	if sum.had != a.s.nodes.had || int(sum.usable) < a.q.want {
		return false
	}
	return a.q.mode != wholeCores || a.m.uniform || a.holdsWhole(set)
}

// holdsWhole reports whether whole cores of the set add up to exactly the wanted number; unequal
// cores do not add up to every number.
func (a *Allocator) holdsWhole(set *nodeSet) bool {
	sizes := a.s.l3.sizes
	clear(sizes)
	for _, node := range set.nodes {
		a.countSizes(set, node)
	}
	return reachable(sizes, a.q.want, a.s.l3.reach)
}

// countSizes counts the cores of a node by the number of threads that they offer.
func (a *Allocator) countSizes(set *nodeSet, node int16) {
	for _, i := range a.m.nodes[node].cores {
		if set.allows(a.m.cores[i].socket) && !(a.q.cleanOnly && a.s.state[i].bad()) {
			a.s.l3.sizes[a.s.usable[i]]++
		}
	}
}

// scoreHolding scores a set if it holds the request.
func (a *Allocator) scoreHolding(set *nodeSet, even bool) (Score, bool) {
	if !a.roomy(set) {
		return Score{}, false
	}
	sum, violated := a.sumSet(set)
	if !a.holds(set, &sum) {
		return Score{}, false
	}
	v := a.violation(&sum, violated)
	// The least violation is known only if all sets are listed.
	if v != a.s.nodes.target && a.m.nodeSets != nil {
		return Score{}, false
	}
	score := a.scoreSet(set, &sum, v)
	if even {
		score.Uneven = 0
		if set.count == 1 {
			score.Strategy = a.balanceOf(set.nodes[0], int32(a.q.asked))
		}
		if !a.short() {
			_, ok := a.canShare(set)
			return score, ok
		}
		return score, a.canShareShort(set)
	}
	return score, true
}

// canShareShort is canShare if all CPUs are needed that are not to be avoided.
func (a *Allocator) canShareShort(set *nodeSet) bool {
	if a.s.nodes.shortTries--; a.s.nodes.shortTries < 0 {
		return false
	}
	a.takeInHand(set)
	a.settleClean()
	a.sumSet(set)
	_, ok := a.canShare(set)
	a.unsettle()
	a.sumSet(set)
	return ok
}

// scoreSet is the score of a set as far as it is known without its cores.
func (a *Allocator) scoreSet(set *nodeSet, sum *nodeSum, v violation) Score {
	score := Score{ViolatedNodes: v.nodes, ViolatedCPUs: v.cpus, Nodes: set.count, Distance: set.distance,
		Sockets: set.socketCount, Strategy: sum.raw}
	if a.q.strategy != MostAllocated {
		score.Strategy = -sum.raw
	}
	if a.q.strategy == DistributeEvenly {
		score.Uneven = 1
	}
	if most := int32(a.q.limit.sockets); most > 0 && set.socketCount > most {
		score.Beyond = 1
	}
	return score
}

func (a *Allocator) takeInHand(set *nodeSet) {
	s := &a.s.nodes
	clear(s.in)
	for _, i := range set.nodes {
		s.in[i] = true
	}
	for i := range s.socket {
		s.socket[i] = set.allows(int16(i))
	}
}

// tryPlace determines L3s and cores of a set of nodes and keeps it if it is the best so far.
func (a *Allocator) tryPlace(set *nodeSet, score Score, even bool) {
	a.s.nodes.even = even
	a.takeInHand(set)
	if even {
		a.tryShares(set, score)
		return
	}
	if a.short() {
		a.settleClean()
	}
	a.place(score)
}

// place completes the score of the current nodes and keeps them if they are the best.
func (a *Allocator) place(score Score) {
	s := &a.s.nodes
	if !a.placeCores(&score) {
		return
	}
	if s.beatsBest(&score) {
		a.keep(&score)
	}
}

func (s *nodeSearch) beatsBest(score *Score) bool {
	if !s.bestSet {
		return true
	}
	c := score.Compare(&s.best.score)
	return c < 0 || c == 0 && s.set < s.best.set
}

// keep stores the current nodes and the open L3s as the best place.
func (a *Allocator) keep(score *Score) {
	s := &a.s.nodes
	s.bestSet = true
	s.best.score, s.best.even, s.best.set = *score, s.even, s.set
	copy(s.best.in, s.in)
	copy(s.best.socket, s.socket)
	copy(s.best.share, s.share)
	copy(s.best.l3, a.s.l3.open)
}

// placeCores chooses L3s and cores on the current nodes: on all of them together, or one by one if
// their shares are settled.
func (a *Allocator) placeCores(score *Score) bool {
	s := &a.s.nodes
	clear(a.s.l3.open)
	if !s.even {
		return a.chooseL3s(-1, a.q.want, score)
	}
	for i := range s.in {
		if s.in[i] && !a.chooseL3s(i, int(s.share[i]-a.s.node[i].had), score) {
			return false
		}
	}
	return true
}

// settleClean puts every clean CPU of the current nodes into the result: only then is the number of
// violating CPUs the lowest.
func (a *Allocator) settleClean() {
	s := &a.s
	n := len(s.usable)
	a.takeBack()
	copy(s.saved, s.usable)
	copy(s.saved[n:], s.had)
	copy(s.saved[2*n:], s.take)
	s.nodes.settled = settlement{done: true, want: a.q.want}
	for i := range a.m.cores {
		c := &a.m.cores[i]
		if s.nodes.in[c.node] && s.nodes.socket[c.socket] && !s.state[i].bad() {
			a.settle(i, s.usable[i])
		}
	}
	a.sum()
}

// takeBack undoes a settlement, except in the sums.
func (a *Allocator) takeBack() {
	s := &a.s
	if !s.nodes.settled.done {
		return
	}
	n := len(s.usable)
	copy(s.usable, s.saved)
	copy(s.had, s.saved[n:])
	copy(s.take, s.saved[2*n:])
	a.q.want = s.nodes.settled.want
	s.nodes.settled = settlement{stale: true}
}

// unsettle undoes a settlement, if there is one.
func (a *Allocator) unsettle() {
	a.takeBack()
	if a.s.nodes.settled.stale {
		a.sum()
	}
}

// refuseNodes makes the refusal of a request that the machine can hold, but not on as few nodes or
// sockets as demanded.
func (a *Allocator) refuseNodes(r *Request) *Error {
	if r.Alignment == AlignRestricted && r.BySocket {
		return refuse(TopologyAffinityError,
			"%d CPUs are asked for on as few NUMA nodes or sockets as an empty machine would need (Restricted, "+
				"align-by-socket), which is %d and %d, and there are not as many free", a.q.asked, a.q.limit.nodes,
			a.q.limit.sockets)
	}
	most := a.mostOn(int(a.q.limit.nodes))
	if r.Alignment == AlignSingleNode {
		which := "no node can"
		if slices.ContainsFunc(a.s.node, func(n nodeSum) bool { return n.had > 0 }) {
			which = "that of its present CPUs cannot"
		}
		return refuse(TopologyAffinityError,
			"%d CPUs are asked for on one NUMA node (SingleNUMANode), and %s give more than %d", a.q.asked, which,
			most)
	}
	return refuse(TopologyAffinityError,
		"%d CPUs are asked for on as few NUMA nodes as an empty machine would need (Restricted), which is %d; as many "+
			"nodes can give no more than %d", a.q.asked, a.q.limit.nodes, most)
}

// mostOn is the largest number of CPUs that the given number of nodes offers, including nodes on
// which the request has CPUs already.
func (a *Allocator) mostOn(count int) int {
	a.orderNodes()
	total := int32(0)
	for _, i := range a.s.nodes.order {
		if n := &a.s.node[i]; n.had > 0 {
			total += n.had + n.usable
			count--
		}
	}
	for _, i := range a.s.nodes.order {
		if n := &a.s.node[i]; n.had == 0 && count > 0 {
			total += n.usable
			count--
		}
	}
	return int(total)
}
