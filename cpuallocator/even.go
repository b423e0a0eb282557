package cpuallocator

// DistributeEvenly gives each node of a set an equal share: in whole cores if those are demanded,
// else in CPUs. Shares are equal if they differ by at most one unit; if whole cores are of unequal
// size, one share has the remainder.
//
// Which nodes get the larger shares depends on the cost of the shares on their nodes. The fields of
// Score are sums over the nodes (except the kind of core), so the nodes on which another unit costs
// least get it.

// division is how the nodes of a set share the request.
type division struct {
	base int32 // CPUs of every node
	unit int32 // some nodes have another unit
	more int   // how many nodes
	rest int32 // one node has the remainder instead, if there is one
}

// The shares that a node may have.
const (
	shareBase = iota
	shareMore
	shareRest
	numShares
)

// shareCost is the cost of a node's possible shares.
type shareCost struct {
	can, known [numShares]bool
	cost       [numShares]Score
	l3         [numShares][]bool // by L3 rank: whether it is chosen
}

// evenSearch is the scratch space of equal shares.
type evenSearch struct {
	even       bool        // the current nodes have equal shares
	shares     []shareCost // the possible shares of each node
	costed     int32       // the division for which the costs are known
	shortTries int         // sets of nodes that may still be tried if owners are disturbed
}

func newShareCosts(m *machine) []shareCost {
	list := make([]shareCost, len(m.nodes))
	for i := range list {
		for option := range numShares {
			list[i].l3[option] = make([]bool, len(m.l3s))
		}
	}
	return list
}

func (d *division) share(option int) int32 {
	return d.base + [numShares]int32{shareMore: d.unit, shareRest: d.rest}[option]
}

// divide is false if a node would get nothing.
func (a *Allocator) divide(nodes int32) (d division, ok bool) {
	unit := int32(1)
	if a.q.mode == wholeCores {
		unit = int32(a.m.threads)
	}
	units, rest := int32(a.q.asked)/unit, int32(a.q.asked)%unit
	d = division{base: units / nodes * unit, unit: unit, more: int(units % nodes), rest: rest}
	return d, d.base > 0 || d.more+int(min(rest, 1)) == int(nodes)
}

// canShare reports whether the nodes of a set can share equally, and records the shares that each
// can have.
func (a *Allocator) canShare(set *nodeSet) (division, bool) {
	d, ok := a.divide(set.count)
	if !ok {
		return d, false
	}
	for _, i := range set.nodes {
		c := &a.s.nodes.shares[i]
		for option := range numShares {
			c.can[option] = a.canHave(set, i, d.share(option))
		}
	}
	if d.rest == 0 {
		return d, a.adds(set, &d, -1)
	}
	for _, i := range set.nodes {
		if a.adds(set, &d, i) {
			return d, true
		}
	}
	return d, false
}

func (a *Allocator) canHave(set *nodeSet, node int16, share int32) bool {
	n := &a.s.node[node]
	if n.had > share || n.had+n.within < share {
		return false
	}
	if a.q.mode != wholeCores || a.m.uniform {
		return true
	}
	sizes := a.s.l3.sizes
	clear(sizes)
	a.countSizes(set, node)
	return reachable(sizes, int(share-n.had), a.s.l3.reach)
}

// adds reports whether the shares add up to the request with the remainder on the given node; -1:
// without a remainder.
func (a *Allocator) adds(set *nodeSet, d *division, holder int16) bool {
	forced, able := 0, 0
	for _, i := range set.nodes {
		can := &a.s.nodes.shares[i].can
		switch {
		case i == holder:
			if !can[shareRest] {
				return false
			}
		case can[shareBase] && can[shareMore]:
			able++
		case can[shareMore]:
			forced++
		case !can[shareBase]:
			return false
		}
	}
	return forced <= d.more && d.more <= forced+able
}

// tryShares completes the score of the current nodes with equal shares, and keeps the place if it
// is the best.
func (a *Allocator) tryShares(set *nodeSet, score Score) {
	s := &a.s.nodes
	if a.short() {
		a.settleClean()
		a.sumSet(set)
	}
	if d, ok := a.canShare(set); ok && set.count == 1 {
		s.even = false
		a.place(score)
	} else if ok {
		a.costShares(set, &d)
		best, where, found := Score{}, int16(-1), false
		for k := -1; k < len(set.nodes); k++ {
			holder := int16(-1)
			if k >= 0 {
				holder = set.nodes[k]
			}
			if (holder < 0) != (d.rest == 0) || !a.adds(set, &d, holder) {
				continue
			}
			if cost := a.assign(set, &d, holder); !found || cost.Compare(&best) < 0 {
				best, where, found = cost, holder, true
			}
		}
		if d.rest > 0 { // the last holder tried need not be the best
			a.assign(set, &d, where)
		}
		score.Strategy = 0
		if a.m.nested() {
			score.add(&best)
			a.placeShares(set, &d, where, &score)
		} else {
			score.Strategy = best.Strategy
			a.place(score)
		}
	}
}

// placeShares keeps the current nodes, with their shares and L3s, if they are the best.
func (a *Allocator) placeShares(set *nodeSet, d *division, holder int16, score *Score) {
	s := &a.s.nodes
	if !s.beatsBest(score) {
		return
	}
	clear(a.s.l3.open)
	for _, i := range set.nodes {
		option := shareBase
		switch {
		case i == holder:
			option = shareRest
		case s.share[i] != d.base:
			option = shareMore
		}
		for rank, open := range s.shares[i].l3[option] {
			a.s.l3.open[rank] = a.s.l3.open[rank] || open
		}
	}
	a.keep(score)
}

// costShares computes the cost of each share of each node of a set. On a machine whose L3s and
// sockets nest it does not depend on the set.
func (a *Allocator) costShares(set *nodeSet, d *division) {
	s := &a.s.nodes
	if s.costed != d.base || !a.m.nested() || a.short() {
		s.costed = d.base
		for i := range s.shares {
			clear(s.shares[i].known[:])
		}
	}
	for _, i := range set.nodes {
		c := &s.shares[i]
		for option := range numShares {
			if c.can[option] && !c.known[option] && (option != shareMore || d.more > 0) &&
				(option != shareRest || d.rest > 0) {
				c.known[option] = true
				c.cost[option] = a.costShare(int(i), d.share(option))
				copy(c.l3[option], a.s.l3.open)
			}
		}
	}
}

// costShare is the cost of a share on its node.
func (a *Allocator) costShare(node int, share int32) (cost Score) {
	n := &a.s.node[node]
	clear(a.s.l3.open)
	a.chooseL3s(node, int(share-n.had), &cost)
	cost.Strategy = a.balanceOf(int16(node), share)
	return cost
}

// balanceOf is what a share adds to the imbalance of the nodes' free CPUs afterwards: the sum of
// their squares, minus a constant.
func (a *Allocator) balanceOf(node int16, share int32) int32 {
	n := &a.s.node[node]
	taken := share - n.kept
	return taken*taken - 2*n.raw*taken
}

// assign gives the larger shares to the nodes on which they cost least, among equals to the lowest,
// and sums up the costs of all shares.
func (a *Allocator) assign(set *nodeSet, d *division, holder int16) (total Score) {
	s := &a.s.nodes
	more := d.more
	for _, i := range set.nodes {
		c := &s.shares[i]
		option := shareBase
		switch {
		case i == holder:
			option = shareRest
		case !c.can[shareBase]:
			option = shareMore
			more--
		}
		s.share[i] = d.share(option)
		total.add(&c.cost[option])
	}
	for ; more > 0; more-- {
		best, least := int16(-1), Score{}
		for _, i := range set.nodes {
			c := &s.shares[i]
			if i == holder || s.share[i] != d.base || !c.can[shareMore] {
				continue
			}
			extra := c.cost[shareMore]
			extra.subtract(&c.cost[shareBase])
			if best < 0 || extra.Compare(&least) < 0 {
				best, least = i, extra
			}
		}
		s.share[best] += d.unit
		total.add(&least)
	}
	return total
}

// add sums the fields that nodes add to a score.
func (s *Score) add(o *Score) {
	s.Bind += o.Bind
	s.Kind += o.Kind
	s.L3s += o.L3s
	s.BesideOwner += o.BesideOwner
	s.Beside += o.Beside
	s.Strategy += o.Strategy
	s.Broken += o.Broken
	s.Leftover += o.Leftover
}

func (s *Score) subtract(o *Score) {
	s.Bind -= o.Bind
	s.Kind -= o.Kind
	s.L3s -= o.L3s
	s.BesideOwner -= o.BesideOwner
	s.Beside -= o.Beside
	s.Strategy -= o.Strategy
	s.Broken -= o.Broken
	s.Leftover -= o.Leftover
}
