package cpuallocator

import "math"

// maxTied is the number of sets of nodes, equal in nodes and bind policy, that a request visits:
// more than any machine with a table has of one size.
const maxTied = 256

// shortEffort divided by the machine's cores, but at least minShort, is the number of sets of nodes
// that are visited if cores of owners to be avoided are needed: then all CPUs off such cores are
// taken first, set by set.
const (
	shortEffort = 1 << 10
	minShort    = 3
)

// tie is a set of nodes that is as good as others in nodes and bind policy.
type tie struct {
	set   int32
	key   uint64
	score Score // of the nodes
	bound Score // a lower bound of its score
}

// searchTable visits the machine's sets of nodes, best first, and stops after the last set that is
// as few, near and on as few sockets as the first that holds the request. With even only equal
// shares count. Of these sets it visits the L3s and cores of those that meet the bind policy best.
func (a *Allocator) searchTable(even bool) bool {
	s := &a.s.nodes
	a.unsettle()
	a.listTied(even)
	first := 0
	if len(s.tied) > 1 && a.m.kinds == 1 && a.bounded() {
		first = a.boundTied()
	}
	if len(s.tied) > 0 {
		a.tryTie(&s.tied[first], even)
	}
	tries := len(s.tied)
	if a.short() {
		tries = min(tries, max(minShort, shortEffort/len(a.m.cores)))
	}
	for i := range tries {
		if t := &s.tied[i]; i != first && (!s.bestSet || t.bound.Compare(&s.best.score) <= 0) {
			a.tryTie(t, even)
		}
	}
	return s.bestSet
}

// listTied lists the sets of nodes that are the best in nodes and bind policy. Of sets with the
// same key only the first is listed: the others would tie, and have higher numbers.
func (a *Allocator) listTied(even bool) {
	s := &a.s.nodes
	s.tied = s.tied[:0]
	a.keyNodes()
	var first *nodeSet
	most := a.q.limit.most(len(a.m.nodes))
	size, base := int32(0), int32(0) // of the current sets: the minimum share of each node
	for i := a.firstSet(); i < len(a.m.nodeSets); i++ {
		set := &a.m.nodeSets[i]
		if int(set.count) > most || first != nil && (set.count != first.count || set.distance != first.distance ||
			set.socketCount != first.socketCount) {
			break
		}
		if even && set.count != size {
			size = set.count
			d, ok := a.divide(size)
			if base = d.base; !ok || a.sharers(base) < size {
				i = a.m.lastOf(size)
				continue
			}
		}
		if !a.q.limit.allows(set.count, set.socketCount) || even && !a.roomyEach(set.nodes, base) {
			continue
		}
		score, ok := a.scoreHolding(set, even)
		if !ok {
			continue
		}
		first = set
		t := tie{set: int32(i), key: a.keyOf(set), score: score, bound: score}
		if a.looksLike(t.key) {
			continue
		}
		if a.bounded() {
			f := a.bestForm(set)
			f.addTo(&t.bound)
			if shared := even && set.count > 1; shared {
				t.bound.Strategy = math.MinInt32 // unknown before the shares are
			} else if len(s.tied) > 0 {
				c := f.compareBind(&form{bind: s.tied[0].bound.Bind, kind: s.tied[0].bound.Kind})
				if c > 0 {
					continue
				}
				if c < 0 {
					s.tied = s.tied[:0]
				}
			}
		}
		if len(s.tied) < maxTied {
			s.tied = append(s.tied, t)
		}
	}
}

// bounded reports whether the score of a set of nodes has a better bound than that of its nodes.
func (a *Allocator) bounded() bool { return a.m.threads <= 2 && a.m.nested() && !a.short() }

// keyNodes computes the keys by which nodes are distinguished.
func (a *Allocator) keyNodes() {
	for i := range a.s.node {
		n := &a.s.node[i]
		n.key = 0
		for _, id := range a.m.nodes[i].groups {
			g := &a.s.group[id]
			g.key = a.groupKey(id)
			n.key += g.key
		}
	}
}

// keyOf is equal for interchangeable sets of nodes.
func (a *Allocator) keyOf(set *nodeSet) uint64 {
	key := uint64(1)
	for _, i := range set.nodes {
		key += mix(a.s.node[i].key, 1)
	}
	return key
}

func (a *Allocator) looksLike(key uint64) bool {
	if !a.m.nested() || a.short() {
		return false
	}
	for i := range a.s.nodes.tied {
		if a.s.nodes.tied[i].key == key {
			return true
		}
	}
	return false
}

// boundTied completes the bounds of the sets with the fewest L3s that each
// needs, and returns the one with the best bound.
func (a *Allocator) boundTied() (first int) {
	s := &a.s.nodes
	a.sortCaps()
	for i := range s.tied {
		t := &s.tied[i]
		t.bound.L3s = a.fewestOn(&a.m.nodeSets[t.set], t.bound.Bind)
		if t.bound.Compare(&s.tied[first].bound) < 0 {
			first = i
		}
	}
	return first
}

// sortCaps sorts the L3s of each node by how much they can provide of what the fewest must provide.
func (a *Allocator) sortCaps() {
	c := &a.s.nodes.caps
	c.have, c.own, c.l3s = 0, 0, 0
	at := 0
	for i := range a.m.nodes {
		for k, id := range a.m.nodes[i].groups {
			tally := &a.s.tally[id]
			limit := int32(a.capOf(tally))
			if a.s.group[id].had {
				c.have, c.own, c.l3s = c.have+int(limit), c.own+int(tally[sortOwn]), c.l3s+1
				limit = 0
			}
			list := c.sorted[at : at+k+1]
			for ; k > 0 && list[k-1] < limit; k-- {
				list[k] = list[k-1]
			}
			list[k] = limit
		}
		at += len(a.m.nodes[i].groups)
	}
}

// fewestOn is the minimum number of L3s of a set of nodes for a bind this good.
func (a *Allocator) fewestOn(set *nodeSet, bind int32) int32 {
	c := &a.s.nodes.caps
	need := a.needOf(a.q.want-c.have, int(bind-a.s.base.form.bind), c.own)
	for _, i := range set.nodes {
		c.at[i] = 0
	}
	count := c.l3s
	for ; need > 0; count++ {
		most, where := int32(0), int16(0)
		for _, i := range set.nodes {
			n := &a.m.nodes[i]
			if k := int(c.at[i]); k < len(n.groups) && c.sorted[n.firstGroup+k] > most {
				most, where = c.sorted[n.firstGroup+k], i
			}
		}
		if most == 0 {
			break
		}
		c.at[where]++
		need -= int(most)
	}
	return int32(count)
}

// tryTie determines L3s and cores of a set of nodes and keeps it if it is the best so far.
func (a *Allocator) tryTie(t *tie, even bool) {
	set := &a.m.nodeSets[t.set]
	if !a.m.oneSocket {
		a.takeBack()
		a.sumSet(set)
	}
	a.s.nodes.set = t.set
	a.tryPlace(set, t.score, even)
}

// bestForm is the form that all cores of a set of nodes together allow.
func (a *Allocator) bestForm(set *nodeSet) form {
	kinds, sum := a.m.kinds, a.s.l3.relax
	clear(sum)
	for _, i := range set.nodes {
		for k := range kinds {
			sum[k].add(&a.s.sorts[int(i)*kinds+k])
		}
	}
	a.s.l3.base = a.s.base
	f, _, _ := a.formOf(sum, a.q.want)
	return f
}

// l3Caps is how much each L3 can provide of what the fewest L3s must provide, on machines where
// each L3 lies in one node.
type l3Caps struct {
	sorted []int32 // by node, the largest first
	at     []int16 // by node: how many of them are counted
	// Of the L3s that the result lies on anyway.
	have, own, l3s int
}
