package cpuallocator

import "math/bits"

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
// rest of less than a unit.
func (a *Allocator) split(set *nodeSet, unit int) bool {
	s := &a.s.nodes
	total := a.q.want + int(s.had)
	units, rest := total/unit, total%unit
	base, more := int32(units/int(set.count)*unit), units%int(set.count)
	for mask := set.mask; mask != 0; mask &= mask - 1 {
		s.share[bits.TrailingZeros16(mask)] = base
	}
	if base == 0 && more+min(rest, 1) < int(set.count) {
		return false
	}
	// What the result has anyway forces its node's hand.
	for mask := set.mask; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros16(mask)
		if n := &a.s.node[i]; n.had+n.usable < base {
			return false
		} else if n.had > base {
			if more == 0 || n.had > base+int32(unit) || n.had+n.usable < base+int32(unit) {
				return false
			}
			more--
			s.share[i] += int32(unit)
		}
	}
	for ; more > 0; more-- {
		if !a.giveMore(set, base, int32(unit)) {
			return false
		}
	}
	return rest == 0 || a.giveMore(set, base, int32(rest))
}

// giveMore adds to the share of the emptiest node that has room for it and got
// nothing extra yet.
func (a *Allocator) giveMore(set *nodeSet, base, extra int32) bool {
	s := &a.s.nodes
	best := -1
	for mask := set.mask; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros16(mask)
		n := &a.s.node[i]
		if s.share[i] == base && n.had+n.usable >= base+extra && (best < 0 || n.raw > a.s.node[best].raw) {
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
	for mask := set.mask; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros16(mask)
		n := &a.s.node[i]
		taken := a.s.nodes.share[i] - n.had
		total += taken*taken - 2*n.raw*taken
	}
	return total
}

// emptyNodes is how many NUMA nodes the request would need if the machine were
// empty.
func (a *Allocator) emptyNodes(n int) int {
	s, m := &a.s, a.m
	most := 0
	s.nodes.order = s.nodes.order[:0]
	caps := func(i int16) int {
		switch {
		case !s.nodeOK[i]:
			return 0
		case a.q.mode == isolated || a.q.mode == oneThread:
			return len(m.nodes[i].cores)
		}
		return m.nodes[i].online
	}
	for i := range m.nodes {
		s.nodes.order = append(s.nodes.order, int16(i))
	}
	order := s.nodes.order
	for k := range order {
		best := k
		for j := k + 1; j < len(order); j++ {
			if caps(order[j]) > caps(order[best]) {
				best = j
			}
		}
		order[k], order[best] = order[best], order[k]
		most += caps(order[k])
		if most >= n && (a.q.strategy != DistributeEvenly || a.evenOnEmpty(n, k+1, caps(order[k]))) {
			return k + 1
		}
	}
	// Not evenly, then on the fewest that hold it at all.
	most = 0
	for k, i := range order {
		if most += caps(i); most >= n {
			return k + 1
		}
	}
	return len(order)
}

// evenOnEmpty says whether the k largest nodes, the smallest of them with room
// for least, could share n equally.
func (a *Allocator) evenOnEmpty(n, k, least int) bool {
	unit := a.unit()
	return n/unit/k*unit <= least || n/k <= least
}
