package cpuallocator

import (
	"math/bits"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// reference answers a request by looking at every subset of the free CPUs. It
// shares nothing with the search but Score and its comparison: every field is
// counted anew from the CPUs.
type reference struct {
	t    *topology.Topology
	free cpuset.Set // online, Keep taken off
	r    Request

	allowed, online cpuset.Set
	cpus            map[int]refCPU
	cores           []refCore // by number in order of first sight, as the following
	nodes           []refNode // by the topology's index
	l3Free          []int
	threads         int        // most online threads of a core
	allowedCores    int        // cores on the nodes that the request names
	shares          []int      // where set, only selections with these shares of the nodes count
	in              refCounted // scratch
}

type refCPU struct{ id, core, l3, node, socket, efficiency int }

type refCore struct {
	all     cpuset.Set // online threads
	beside  bool       // another owner has a CPU of it
	owner   bool       // a PCPULevel owner has
	avoided bool       // an owner has whom the request's exclusive policy avoids
}

type refNode struct {
	avoided bool
	free    int
}

// refCounted is how many CPUs of a selection are on each core, L3, node and
// socket, Keep left out in fresh.
type refCounted struct{ cores, l3s, nodes, sockets, fresh []int }

func (c *refCounted) reset() {
	clear(c.cores)
	clear(c.l3s)
	clear(c.nodes)
	clear(c.sockets)
	clear(c.fresh)
}

func newReference(t *topology.Topology, free cpuset.Set, held []Held, r Request) *reference {
	n := max(len(t.CPUs()), len(t.Nodes())) // no number is larger
	cores, l3s, sockets, nodes := refNumbers{}, refNumbers{}, refNumbers{}, refNumbers{}
	for i := range t.Nodes() {
		nodes.of(t.Nodes()[i].ID)
	}
	ref := &reference{t: t, online: t.Online(), r: r, cpus: map[int]refCPU{}, cores: make([]refCore, n),
		nodes: make([]refNode, n), l3Free: make([]int, n), in: refCounted{make([]int, n), make([]int, n),
			make([]int, n), make([]int, n), make([]int, n)}}
	ref.free = free.And(ref.online).Minus(r.Keep)
	kinds := map[topology.Kind]bool{}
	for _, c := range t.CPUs() {
		if ref.online.Has(c.ID) {
			kinds[c.Kind] = true
			ref.cores[cores.of(c.Core)].all.Add(c.ID)
		}
	}
	for _, c := range t.CPUs() {
		if !ref.online.Has(c.ID) {
			continue
		}
		cpu := refCPU{c.ID, cores.of(c.Core), l3s.of(c.L3), nodes.of(c.Node), sockets.of(c.Socket), 0}
		if len(kinds) > 1 && c.Kind == topology.Efficiency {
			cpu.efficiency = 1
		}
		ref.cpus[c.ID] = cpu
		core := &ref.cores[cpu.core]
		ref.threads = max(ref.threads, core.all.Count())
		if r.Nodes.IsEmpty() || r.Nodes.Has(c.Node) {
			ref.allowed.Add(c.ID)
			if c.ID == core.all.First() {
				ref.allowedCores++
			}
		}
		switch {
		case ref.free.Has(c.ID):
			ref.l3Free[cpu.l3]++
			ref.nodes[cpu.node].free++
		case !r.Keep.Has(c.ID):
			core.beside = true
		}
	}
	for _, h := range held {
		ref.hold(h)
	}
	return ref
}

// refNumbers hands out numbers from 0 in order of first sight.
type refNumbers map[int]int

func (n refNumbers) of(id int) int {
	if _, ok := n[id]; !ok {
		n[id] = len(n)
	}
	return n[id]
}

func (ref *reference) hold(h Held) {
	for cpu := range h.CPUs.All() {
		c, ok := ref.cpus[cpu]
		if !ok || h.Exclusive == ExclusiveNone {
			continue
		}
		core := &ref.cores[c.core]
		if h.Exclusive == PCPULevel {
			core.owner = true
		}
		if ref.r.Exclusive == PCPULevel && h.Exclusive == PCPULevel || ref.r.Exclusive == NUMANodeLevel {
			core.avoided = true
		}
		if ref.r.Exclusive == NUMANodeLevel && h.Exclusive == NUMANodeLevel {
			ref.nodes[c.node].avoided = true
		}
	}
}

// selection is one candidate with its score.
type selection struct {
	result Result
	score  Score
}

// best tries sizes n, and for roundup the next ones, and returns the best legal
// selection of the first size that has any.
func (ref *reference) best() (best selection, ok bool) {
	sizes := []int{ref.r.CPUs}
	if ref.r.SMT == SMTRoundUp {
		for k := 1; k < ref.threads; k++ {
			sizes = append(sizes, ref.r.CPUs+k)
		}
	}
	for _, n := range sizes {
		limit := ref.limitOf(n)
		ref.each(n, ref.free.And(ref.allowed), func(s cpuset.Set) {
			c, legal := ref.judge(s, limit)
			if !legal {
				return
			}
			if ref.r.ExclusiveRequired && (c.score.ViolatedNodes > 0 || c.score.ViolatedCPUs > 0) {
				return
			}
			if !ok || ref.less(&c, &best) {
				best, ok = c, true
			}
		})
		if ok {
			return best, true
		}
	}
	return best, false
}

func (ref *reference) less(c, o *selection) bool {
	if order := c.score.Compare(&o.score); order != 0 {
		return order < 0
	}
	return slices.Compare(ref.ranks(c.result.CPUs), ref.ranks(o.result.CPUs)) < 0
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
		for rest := mask; rest != 0; rest &= rest - 1 {
			s.Add(list[bits.TrailingZeros32(rest)])
		}
		f(s)
	}
}

// judge applies the hard rules and scores. limit is the most NUMA nodes, or
// sockets where it has some.
func (ref *reference) judge(s cpuset.Set, limit limit) (selection, bool) {
	c := selection{result: Result{CPUs: s}}
	in := &ref.in
	in.reset()
	total := 0
	for id := range s.All() {
		cpu := ref.cpus[id]
		in.cores[cpu.core]++
		in.l3s[cpu.l3]++
		in.nodes[cpu.node]++
		in.sockets[cpu.socket]++
		if !ref.r.Keep.Has(id) {
			in.fresh[cpu.node]++
		}
		total++
	}
	if used(in.nodes) > int(limit.nodes) && used(in.sockets) > int(limit.sockets) || ref.shares != nil &&
		!slices.Equal(ref.shares, in.nodes) {
		return c, false
	}
	for i, taken := range in.cores {
		if taken > 0 && !ref.coreLegal(&ref.cores[i], taken, s) {
			return c, false
		}
		if taken > 0 && ref.r.SMT == SMTIsolate {
			c.result.Withheld = c.result.Withheld.Or(ref.cores[i].all.Minus(s))
		}
	}
	if ref.r.BindRequired && ref.r.Bind == SpreadByPCPUs && used(in.cores) != min(total, ref.allowedCores) {
		return c, false
	}
	ref.scoreExclusive(&c.score, s)
	ref.scoreNodes(&c.score)
	if limit.sockets > 0 && c.score.Sockets > int32(limit.sockets) {
		c.score.Beyond = 1
	}
	ref.scoreCores(&c.score, s)
	return c, true
}

func used(counts []int) (n int) {
	for _, count := range counts {
		if count > 0 {
			n++
		}
	}
	return n
}

func (ref *reference) whole() bool {
	return ref.r.SMT == SMTAlign || ref.r.SMT == SMTRoundUp || ref.r.BindRequired && ref.r.Bind == FullPCPUs &&
		ref.r.SMT != SMTIsolate
}

func (ref *reference) coreLegal(core *refCore, taken int, s cpuset.Set) bool {
	switch {
	case ref.whole():
		return taken == core.all.Count()
	case ref.r.SMT == SMTIsolate && core.all.Intersects(&ref.r.Keep):
		return taken == 1
	case ref.r.SMT == SMTIsolate:
		return taken == 1 && core.all.SubsetOf(&ref.free) && s.Has(core.all.First())
	}
	return true
}

func (ref *reference) scoreExclusive(sc *Score, s cpuset.Set) {
	for i, n := range ref.in.nodes {
		if n > 0 && ref.nodes[i].avoided {
			sc.ViolatedNodes++
		}
	}
	if ref.r.Exclusive != PCPULevel && sc.ViolatedNodes == 0 {
		return
	}
	for id := range s.All() {
		if !ref.r.Keep.Has(id) && ref.cores[ref.cpus[id].core].avoided {
			sc.ViolatedCPUs++
		}
	}
}

func (ref *reference) scoreNodes(sc *Score) {
	in := &ref.in
	sc.Nodes, sc.Sockets, sc.L3s = int32(used(in.nodes)), int32(used(in.sockets)), int32(used(in.l3s))
	free, balance := 0, 0
	for a, n := range in.nodes {
		if n == 0 {
			continue
		}
		for b, m := range in.nodes {
			if m > 0 && a != b {
				sc.Distance += int32(ref.t.Distance(a, b))
			}
		}
		free += ref.nodes[a].free
		balance += in.fresh[a]*in.fresh[a] - 2*ref.nodes[a].free*in.fresh[a]
	}
	switch {
	case ref.r.Strategy == MostAllocated:
		sc.Strategy = int32(free)
	case ref.r.Strategy == LeastAllocated:
		sc.Strategy = int32(-free)
	case ref.even():
		sc.Strategy = int32(balance)
	default:
		sc.Uneven, sc.Strategy = 1, int32(-free)
	}
}

// even: shares differ by a unit at most, and all but one are whole units.
func (ref *reference) even() bool {
	unit := 1
	if ref.whole() {
		unit = ref.threads
	}
	least, most, odd := 1<<30, 0, 0
	for _, n := range ref.in.nodes {
		if n == 0 {
			continue
		}
		least, most = min(least, n), max(most, n)
		if n%unit != 0 {
			odd++
		}
	}
	return most-least <= unit && odd <= 1
}

func (ref *reference) scoreCores(sc *Score, s cpuset.Set) {
	for l, n := range ref.in.l3s {
		if n > 0 {
			sc.Leftover += int32(ref.l3Free[l])
		}
	}
	for _, n := range ref.in.fresh {
		sc.Leftover -= int32(n)
	}
	efficiency := 0
	for id := range s.All() {
		efficiency += ref.cpus[id].efficiency
	}
	sc.Kind = kindScore(s.Count()-efficiency, efficiency)
	for i, taken := range ref.in.cores {
		core := &ref.cores[i]
		if taken == 0 {
			continue
		}
		kept := core.all.Intersects(&ref.r.Keep)
		isolated := ref.r.SMT == SMTIsolate // the siblings are withheld: no other owner has them
		switch {
		case isolated:
		case core.owner:
			sc.BesideOwner += int32(taken)
		case core.beside:
			sc.Beside += int32(taken)
		}
		partial := taken < core.all.Count() && !isolated
		if partial && !core.beside && !kept {
			sc.Broken++
		}
		switch {
		case ref.r.Bind == SpreadByPCPUs && !ref.whole():
			sc.Bind += int32(taken - 1)
		case partial:
			sc.Bind++
		}
	}
}

// ranks are the lowest CPU numbers of the nodes, L3s and cores used, then the
// CPUs, each list ascending.
func (ref *reference) ranks(s cpuset.Set) []int {
	var out []int
	for _, of := range []func(refCPU) int{
		func(c refCPU) int { return c.node },
		func(c refCPU) int { return c.l3 },
		func(c refCPU) int { return c.core },
		func(c refCPU) int { return c.id },
	} {
		lowest := map[int]int{}
		for _, c := range ref.cpus {
			if v, ok := lowest[of(c)]; !ok || c.id < v {
				lowest[of(c)] = c.id
			}
		}
		in := map[int]bool{}
		for cpu := range s.All() {
			in[lowest[of(ref.cpus[cpu])]] = true
		}
		var list []int
		for v := range in {
			list = append(list, v)
		}
		slices.Sort(list)
		out = append(out, list...)
	}
	return out
}

// limitOf asks the empty machine, for Restricted.
func (ref *reference) limitOf(n int) limit {
	all := allOf(ref.t)
	switch ref.r.Alignment {
	case AlignSingleNode:
		return limit{nodes: 1}
	case AlignRestricted:
	default:
		return all
	}
	r := ref.r
	r.Keep, r.Alignment, r.Exclusive, r.CPUs = cpuset.Set{}, AlignNone, ExclusiveNone, n
	if r.SMT == SMTRoundUp {
		r.SMT = SMTAlign
	}
	empty := newReference(ref.t, ref.online, nil, r)
	best, ok := empty.best()
	if !ok {
		return all
	}
	least := limit{nodes: int16(best.score.Nodes)}
	if !ref.r.BySocket {
		return least
	}
	empty.each(n, empty.free.And(empty.allowed), func(s cpuset.Set) {
		c, legal := empty.judge(s, all)
		if legal && c.score.Uneven == best.score.Uneven && c.score.Nodes == best.score.Nodes &&
			(least.sockets == 0 || int16(c.score.Sockets) < least.sockets) {
			least.sockets = int16(c.score.Sockets)
		}
	})
	return least
}

func allOf(t *topology.Topology) limit { return limit{nodes: int16(len(t.Nodes()))} }
