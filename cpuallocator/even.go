package cpuallocator

// shareEvenly gives each node of a set an equal share: in whole cores where the
// request takes such, else in CPUs. Larger shares go to emptier nodes, so that
// what stays free is balanced too; among equals to the lowest numbers.
//
// Shares are equal when they differ by one unit at most. In whole cores the
// shares are multiples of a core but for one, which has the odd rest.
func (a *Allocator) shareEvenly(set *nodeSet, score *Score) bool {
	unit := a.unit()
	score.Split = 0
	if !a.split(set, unit) {
		if unit == 1 || a.q.mode == wholeCores {
			return false
		}
		score.Split = 1
		if !a.split(set, 1) {
			return false
		}
	}
	score.Strategy = a.balance(set)
	return true
}

// unit is what shares are multiples of.
func (a *Allocator) unit() int {
	if a.q.mode == wholeCores || a.q.mode == anyThreads && !a.q.spread {
		return a.m.threads
	}
	return 1
}

// split divides the request by unit: everybody q units, some one more, one the
// rest of less than a unit. The rest may have to lie where the result has CPUs
// anyway; then every node is tried for it.
func (a *Allocator) split(set *nodeSet, unit int) bool {
	total := a.q.want + int(a.s.nodes.had)
	rest := int32(total % unit)
	if rest == 0 || !a.q.hasKept {
		return a.splitUnits(set, unit, -1)
	}
	best, where := int32(0), int16(-1)
	for _, i := range set.nodes {
		if !a.splitUnits(set, unit, i) {
			continue
		}
		if b := a.balance(set); where < 0 || b < best {
			best, where = b, i
		}
	}
	return where >= 0 && a.splitUnits(set, unit, where)
}

// splitUnits divides with the rest on the given node, or with -1 on the
// emptiest that has room for it.
func (a *Allocator) splitUnits(set *nodeSet, unit int, restOn int16) bool {
	s := &a.s.nodes
	total := a.q.want + int(s.had)
	units, rest := total/unit, int32(total%unit)
	base, more := int32(units/int(set.count)*unit), units%int(set.count)
	if base == 0 && more+int(min(rest, 1)) < int(set.count) {
		return false
	}
	for _, i := range set.nodes {
		s.share[i] = base
		n := &a.s.node[i]
		switch {
		case i == restOn:
			s.share[i] += rest
		case n.had > base:
			more--
			s.share[i] += int32(unit)
		}
		if n.had > s.share[i] || n.had+n.within < s.share[i] {
			return false
		}
	}
	for ; more > 0; more-- {
		if !a.giveMore(set, base, int32(unit), restOn) {
			return false
		}
	}
	if more != 0 || rest != 0 && restOn < 0 && !a.giveMore(set, base, rest, -1) {
		return false
	}
	return a.q.mode != wholeCores || a.m.uniform || a.sharesInWholeCores(set)
}

// sharesInWholeCores says whether each node can make up its share of whole cores
// where cores are of unequal size. If not, no other shares are tried: the
// request then lies unevenly, or on more nodes.
func (a *Allocator) sharesInWholeCores(set *nodeSet) bool {
	sizes := a.s.l3.sizes
	for _, node := range set.nodes {
		clear(sizes)
		a.countSizes(set, node)
		if !reachable(sizes, int(a.s.nodes.share[node]-a.s.node[node].had), a.s.l3.reach) {
			return false
		}
	}
	return true
}

// giveMore adds to the share of the emptiest node that has room for it and got
// nothing extra yet.
func (a *Allocator) giveMore(set *nodeSet, base, extra int32, except int16) bool {
	s := &a.s.nodes
	best := int16(-1)
	for _, i := range set.nodes {
		n := &a.s.node[i]
		if i != except && s.share[i] == base && n.had+n.within >= base+extra && (best < 0 || n.raw+
			n.kept > a.s.node[best].raw+a.s.node[best].kept) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	s.share[best] += extra
	return true
}

// balance is how unequal the nodes' free CPUs are afterwards: the sum of their
// squares, less a constant.
func (a *Allocator) balance(set *nodeSet) int32 {
	total := int32(0)
	for _, i := range set.nodes {
		n := &a.s.node[i]
		taken := a.s.nodes.share[i] - n.kept
		total += taken*taken - 2*n.raw*taken
	}
	return total
}
