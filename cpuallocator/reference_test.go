package cpuallocator

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// reference answers a request by looking at every subset of the free CPUs. It
// shares nothing with the search but Score and its comparison.
type reference struct {
	t    *topology.Topology
	free cpuset.Set // online, Keep taken off
	held []Held
	r    Request

	allowed, online cpuset.Set
	threads, cores  int
	cpus            []refCPU
	slot            map[int]int
	avoidedCore     map[int]bool
	avoidedNode     map[int]bool
	l3Free          map[int]int
	nodeFree        map[int]int
	shares          *[96]int // where set, only selections with these shares of the nodes count
}

type refCPU struct{ id, core, l3, node, socket, kind int }

func newReference(t *topology.Topology, free cpuset.Set, held []Held, r Request) *reference {
	ref := &reference{t: t, online: t.Online(), held: held, r: r, slot: map[int]int{},
		avoidedCore: map[int]bool{}, avoidedNode: map[int]bool{}, l3Free: map[int]int{}, nodeFree: map[int]int{}}
	ref.free = free.And(ref.online).Minus(r.Keep)
	kinds := map[topology.Kind]bool{}
	for _, c := range t.CPUs() {
		if ref.online.Has(c.ID) {
			kinds[c.Kind] = true
		}
	}
	coresSeen := map[int]bool{}
	for _, c := range t.CPUs() {
		if !ref.online.Has(c.ID) {
			continue
		}
		kind := 0
		if len(kinds) > 1 && c.Kind == topology.Efficiency {
			kind = 1
		}
		ref.slot[c.ID] = len(ref.cpus)
		ref.cpus = append(ref.cpus, refCPU{c.ID, c.Core, c.L3, c.Node, c.Socket, kind})
		if r.Nodes.IsEmpty() || r.Nodes.Has(c.Node) {
			ref.allowed.Add(c.ID)
			coresSeen[c.Core] = true
		}
		ref.threads = max(ref.threads, ref.onlineOf(c.Core))
		if ref.free.Has(c.ID) {
			ref.l3Free[c.L3]++
			ref.nodeFree[c.Node]++
		}
	}
	ref.cores = len(coresSeen)
	for _, h := range held {
		for cpu := range h.CPUs.All() {
			c, ok := t.CPU(cpu)
			if !ok || !ref.online.Has(cpu) || h.Exclusive == ExclusiveNone {
				continue
			}
			if r.Exclusive == PCPULevel && h.Exclusive == PCPULevel || r.Exclusive == NUMANodeLevel {
				ref.avoidedCore[c.Core] = true
			}
			if r.Exclusive == NUMANodeLevel && h.Exclusive == NUMANodeLevel {
				ref.avoidedNode[c.Node] = true
			}
		}
	}
	return ref
}

func (ref *reference) coreCPUs(core int) cpuset.Set {
	var s cpuset.Set
	for _, c := range ref.t.CPUs() {
		if c.Core == core && ref.online.Has(c.ID) {
			s.Add(c.ID)
		}
	}
	return s
}

func (ref *reference) onlineOf(core int) int {
	s := ref.coreCPUs(core)
	return s.Count()
}

// selection is one candidate with its score.
type selection struct {
	result Result
	score  Score
	shares [96]int // CPUs by node ID
	ranks  []int   // what breaks ties
}

// best tries sizes n, and for roundup the next ones, and returns the best legal
// selections of the first size that has any.
func (ref *reference) best() (best selection, ok bool) {
	sizes := []int{ref.r.CPUs}
	if ref.r.SMT == SMTRoundUp {
		for k := 1; k < ref.threads; k++ {
			sizes = append(sizes, ref.r.CPUs+k)
		}
	}
	for _, n := range sizes {
		limit := ref.nodeLimit(n)
		ref.each(n, ref.free.And(ref.allowed), func(s cpuset.Set) {
			c, legal := ref.judge(s, limit)
			if !legal {
				return
			}
			if ref.r.ExclusiveRequired && (c.score.ViolatedNodes > 0 || c.score.ViolatedCPUs > 0) {
				return
			}
			if !ok || c.less(&best) {
				best, ok = c, true
			}
		})
		if ok {
			return best, true
		}
	}
	return best, false
}

func (c *selection) less(o *selection) bool {
	return cmp.Or(c.score.Compare(&o.score), slices.Compare(c.ranks, o.ranks)) < 0
}

// each calls f with every set of n CPUs that has Keep and otherwise lies in pool.
func (ref *reference) each(n int, pool cpuset.Set, f func(cpuset.Set)) {
	var list []int
	for cpu := range pool.All() {
		list = append(list, cpu)
	}
	more := n - ref.r.Keep.Count()
	for mask := uint32(0); mask < 1<<len(list); mask++ {
		if bits.OnesCount32(mask) != more {
			continue
		}
		s := ref.r.Keep
		for i, cpu := range list {
			if mask>>i&1 != 0 {
				s.Add(cpu)
			}
		}
		f(s)
	}
}

// judge applies the hard rules and scores. limit is the most NUMA nodes.
func (ref *reference) judge(s cpuset.Set, limit int) (selection, bool) {
	c := selection{result: Result{CPUs: s}}
	cores, nodes, sockets, l3s := map[int]cpuset.Set{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	for cpu := range s.All() {
		i := ref.cpus[ref.slot[cpu]]
		in := cores[i.core]
		in.Add(cpu)
		cores[i.core] = in
		nodes[i.node], sockets[i.socket], l3s[i.l3] = true, true, true
		c.shares[i.node]++
	}
	if len(nodes) > limit || ref.shares != nil && *ref.shares != c.shares {
		return c, false
	}
	for core, taken := range cores {
		if !ref.coreLegal(core, taken) {
			return c, false
		}
		if ref.r.SMT == SMTIsolate {
			c.result.Withheld = c.result.Withheld.Or(ref.coreCPUs(core).Minus(taken))
		}
	}
	if ref.r.BindRequired && ref.r.Bind == SpreadByPCPUs && len(cores) != min(s.Count(), ref.cores) {
		return c, false
	}
	ref.scoreNodes(&c, nodes, sockets)
	ref.scoreCores(&c, cores, l3s)
	return c, true
}

func (ref *reference) whole() bool {
	return ref.r.SMT == SMTAlign || ref.r.SMT == SMTRoundUp || ref.r.BindRequired && ref.r.Bind == FullPCPUs &&
		ref.r.SMT != SMTIsolate
}

func (ref *reference) coreLegal(core int, taken cpuset.Set) bool {
	all := ref.coreCPUs(core)
	switch {
	case ref.whole():
		return taken == all
	case ref.r.SMT == SMTIsolate && taken.Intersects(&ref.r.Keep):
		return taken.Count() == 1
	case ref.r.SMT == SMTIsolate:
		return taken.Count() == 1 && all.SubsetOf(&ref.free) && taken.First() == all.First()
	}
	return true
}

func (ref *reference) scoreNodes(c *selection, nodes, sockets map[int]bool) {
	sc := &c.score
	fresh := c.result.CPUs.Minus(ref.r.Keep)
	for n := range nodes {
		if ref.avoidedNode[n] {
			sc.ViolatedNodes++
		}
	}
	for cpu := range fresh.All() {
		if ref.avoidedCore[ref.cpus[ref.slot[cpu]].core] && (ref.r.Exclusive == PCPULevel || sc.ViolatedNodes > 0) {
			sc.ViolatedCPUs++
		}
	}
	sc.Nodes, sc.Sockets = int32(len(nodes)), int32(len(sockets))
	index := map[int]int{}
	for i, n := range ref.t.Nodes() {
		index[n.ID] = i
	}
	free, balance := 0, 0
	for a := range nodes {
		for b := range nodes {
			if a != b {
				sc.Distance += int32(ref.t.Distance(index[a], index[b]))
			}
		}
		free += ref.nodeFree[a]
		onNode := 0
		for cpu := range fresh.All() {
			if ref.cpus[ref.slot[cpu]].node == a {
				onNode++
			}
		}
		balance += onNode*onNode - 2*ref.nodeFree[a]*onNode
	}
	switch ref.r.Strategy {
	case MostAllocated:
		sc.Strategy = int32(free)
	case LeastAllocated:
		sc.Strategy = int32(-free)
	case DistributeEvenly:
		switch {
		case ref.evenIn(c.shares, nodes, ref.unit()):
			sc.Strategy = int32(balance)
		case !ref.whole() && ref.evenIn(c.shares, nodes, 1):
			sc.Split, sc.Strategy = 1, int32(balance)
		default:
			sc.Uneven, sc.Strategy = 1, int32(-free)
		}
	}
}

func (ref *reference) unit() int {
	if ref.whole() || ref.r.Bind == FullPCPUs && ref.r.SMT == SMTNone {
		return ref.threads
	}
	return 1
}

// evenIn: shares differ by a unit at most and are whole units but for one.
func (ref *reference) evenIn(shares [96]int, nodes map[int]bool, unit int) bool {
	least, most, odd := 1<<30, 0, 0
	for n := range nodes {
		least, most = min(least, shares[n]), max(most, shares[n])
		if shares[n]%unit != 0 {
			odd++
		}
	}
	return most-least <= unit && odd <= 1
}

func (ref *reference) scoreCores(c *selection, cores map[int]cpuset.Set, l3s map[int]bool) {
	sc := &c.score
	sc.L3s = int32(len(l3s))
	for l := range l3s {
		sc.Leftover += int32(ref.l3Free[l])
	}
	sc.Leftover -= int32(c.result.CPUs.Count() - ref.r.Keep.Count())
	efficiency := 0
	for core, taken := range cores {
		all := ref.coreCPUs(core)
		others := all.Minus(ref.free).Minus(ref.r.Keep)
		if ref.r.SMT == SMTIsolate && taken.Intersects(&ref.r.Keep) {
			others = cpuset.Set{}
		}
		if !others.IsEmpty() {
			sc.Shared++
		}
		for cpu := range taken.All() {
			efficiency += ref.cpus[ref.slot[cpu]].kind
		}
		if ref.r.Bind == SpreadByPCPUs && !ref.whole() {
			sc.Doubled += int32(taken.Count() - 1)
			continue
		}
		sc.Cores++
		if taken != all && ref.r.SMT != SMTIsolate {
			sc.Partial++
			if others.IsEmpty() && !taken.Intersects(&ref.r.Keep) {
				sc.Broken++
			}
		}
	}
	sc.Kind = kindScore(c.result.CPUs.Count()-efficiency, efficiency)
	c.ranks = ref.ranks(c.result.CPUs)
}

// ranks are the lowest CPU numbers of the nodes, L3s and cores used, then the
// CPUs, each list ascending.
func (ref *reference) ranks(s cpuset.Set) []int {
	var out []int
	for _, of := range []func(refCPU) int{
		func(c refCPU) int {
			return c.node
		}, func(c refCPU) int { return c.l3 }, func(c refCPU) int { return c.core }, func(c refCPU) int { return c.id },
	} {
		lowest := map[int]int{}
		for _, c := range ref.cpus {
			if v, ok := lowest[of(c)]; !ok || c.id < v {
				lowest[of(c)] = c.id
			}
		}
		used := map[int]bool{}
		for cpu := range s.All() {
			used[lowest[of(ref.cpus[ref.slot[cpu]])]] = true
		}
		var list []int
		for v := range used {
			list = append(list, v)
		}
		slices.Sort(list)
		out = append(out, list...)
	}
	return out
}

// nodeLimit asks the empty machine, for Restricted.
func (ref *reference) nodeLimit(n int) int {
	switch ref.r.Alignment {
	case AlignSingleNode:
		return 1
	case AlignRestricted:
	default:
		return len(ref.t.Nodes())
	}
	r := ref.r
	r.Keep, r.Alignment, r.Exclusive, r.CPUs = cpuset.Set{}, AlignNone, ExclusiveNone, n
	if r.SMT == SMTRoundUp {
		r.SMT = SMTAlign
	}
	s, ok := newReference(ref.t, ref.online, nil, r).best()
	if !ok {
		return len(ref.t.Nodes())
	}
	return int(s.score.Nodes)
}
