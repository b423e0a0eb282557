package cpuallocator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
	"pgregory.net/rapid"
)

func parse(t testing.TB, list string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func build(t testing.TB, g topology.Grid) *topology.Topology {
	t.Helper()
	m, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// machines draws small machines of every odd kind: uneven cores, nodes and L3s
// that do not nest, hybrids, offline siblings, numbers with holes.
func machines(t *rapid.T, most int) *topology.Topology {
	if rapid.Bool().Draw(t, "regular") {
		return grids(t, most)
	}
	hybrid := rapid.IntRange(0, 3).Draw(t, "hybrid") == 0
	maxThreads := rapid.SampledFrom([]int{1, 2, 2, 2, 3, 4}).Draw(t, "threads")
	nodes, l3s, sockets := rapid.IntRange(1, 3).Draw(t, "nodes"), rapid.IntRange(1, 4).Draw(t,
		"l3s"), rapid.IntRange(1, 2).Draw(t, "sockets")
	nested := rapid.Bool().Draw(t, "nested")
	var cpus []topology.CPU
	for core := 0; len(cpus) < most; core++ {
		c := topology.CPU{Core: core, L3: rapid.IntRange(0, l3s-1).Draw(t, "l3"),
			Node: rapid.IntRange(0, nodes-1).Draw(t, "node"), Socket: rapid.IntRange(0, sockets-1).Draw(t, "socket")}
		if nested {
			c.Node, c.Socket = c.L3%nodes, c.L3%nodes%sockets
		}
		threads := maxThreads
		if hybrid && rapid.Bool().Draw(t, "efficient") {
			c.Kind, threads = topology.Efficiency, 1
		} else if rapid.IntRange(0, 4).Draw(t, "odd") == 0 {
			threads = rapid.IntRange(1, maxThreads).Draw(t, "fewer")
		}
		for range min(threads, most-len(cpus)) {
			c.ID = len(cpus)
			cpus = append(cpus, c)
		}
	}
	for i, id := range rapid.Permutation(ids(len(cpus))).Draw(t, "numbers") {
		cpus[i].ID = id
	}
	o := topology.Options{Offline: subset(t, "offline", cpuset.Range(0, most-1), 8)}
	o.Offline.Remove(0)
	m, err := topology.New(cpus, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ids(n int) []int {
	var list []int
	for i := range n {
		list = append(list, i)
	}
	return list
}

func grids(t *rapid.T, most int) *topology.Topology {
	g := topology.Grid{ThreadsPerCore: rapid.SampledFrom([]int{1, 2, 2, 2, 4}).Draw(t, "threads"),
		Numbering: rapid.SampledFrom([]topology.Numbering{topology.Adjacent, topology.Split}).Draw(t, "numbering")}
	left := most / g.ThreadsPerCore
	for _, n := range []*int{&g.Sockets, &g.NodesPerSocket, &g.L3PerNode} {
		*n = rapid.IntRange(1, max(1, min(3, left))).Draw(t, "count")
		left /= *n
	}
	g.CoresPerL3 = max(1, left)
	m, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 3).Draw(t, "some off") > 0 {
		return m
	}
	online := m.Online()
	off := subset(t, "offline", online, 6)
	off.Remove(online.First())
	m, err = m.WithOnline(online.Minus(off))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// subset draws about one in oneIn of the CPUs of s.
func subset(t *rapid.T, name string, s cpuset.Set, oneIn int) cpuset.Set {
	var out cpuset.Set
	for cpu := range s.All() {
		if rapid.IntRange(1, oneIn).Draw(t, name) == 1 {
			out.Add(cpu)
		}
	}
	return out
}

type asked struct {
	topo *topology.Topology
	free cpuset.Set
	held []Held
	r    Request
}

// requests draws a request with everything that may go with it.
func requests(t *rapid.T, most int) asked { return requestsOn(t, machines(t, most), most) }

func requestsOn(t *rapid.T, topo *topology.Topology, most int) asked {
	q := asked{topo: topo}
	online := q.topo.Online()
	taken := subset(t, "taken", online, rapid.SampledFrom([]int{2, 3, 6, 100}).Draw(t, "density"))
	q.free = online.Minus(taken)
	for _, p := range []ExclusivePolicy{PCPULevel, NUMANodeLevel, ExclusiveNone} {
		q.held = append(q.held, Held{CPUs: subset(t, "held", taken, 3), Exclusive: p})
	}
	q.r = Request{
		CPUs:      rapid.IntRange(1, max(1, q.free.Count()+1)).Draw(t, "n"),
		Bind:      rapid.SampledFrom([]BindPolicy{FullPCPUs, SpreadByPCPUs}).Draw(t, "bind"),
		SMT:       rapid.SampledFrom([]SMT{SMTNone, SMTNone, SMTNone, SMTIsolate, SMTAlign, SMTRoundUp}).Draw(t, "smt"),
		Exclusive: rapid.SampledFrom([]ExclusivePolicy{ExclusiveNone, PCPULevel, NUMANodeLevel}).Draw(t, "exclusive"),
		Strategy: rapid.SampledFrom([]NUMAStrategy{MostAllocated, LeastAllocated, DistributeEvenly}).Draw(t,
			"strategy"),
		Alignment: rapid.SampledFrom([]Alignment{AlignNone, AlignBestEffort, AlignRestricted, AlignSingleNode}).Draw(t,
			"alignment"),
	}
	q.r.BySocket = rapid.Bool().Draw(t, "by socket")
	q.r.BindRequired = rapid.IntRange(0, 3).Draw(t, "required") == 0
	q.r.ExclusiveRequired = rapid.IntRange(0, 5).Draw(t, "exclusive required") == 0
	if rapid.IntRange(0, 2).Draw(t, "grow") == 0 {
		q.r.Keep = subset(t, "keep", taken, 3)
		q.r.CPUs = min(q.r.CPUs+q.r.Keep.Count(), most)
		for i := range q.held {
			q.held[i].CPUs = q.held[i].CPUs.Minus(q.r.Keep)
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "some nodes") == 0 {
		q.r.Nodes = subset(t, "nodes", q.topo.MemoryNodes(), 2)
	}
	return q
}

// Twenty sizes of a hundred cases each: 2,000 a run, with a seed that changes. A
// failure prints how to replay it (-rapid.seed or -rapid.failfile).
func TestAllocateAgainstReference(t *testing.T) {
	for _, most := range []int{6, 7, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 14, 15, 16, 24, 32, 40, 48, 64} {
		checkAgainstReference(t, most)
	}
}

// checkAgainstReference asks machines of at most so many CPUs, 16 of them free:
// no subset of the free CPUs may be better, in any field of Score.
func checkAgainstReference(t *testing.T, most int) {
	rapid.Check(t, func(t *rapid.T) {
		q := requests(t, most)
		if most > 16 {
			q = q.narrowed(t, 13)
		}
		likeReference(t, q)
	})
}

// With align-by-socket and three nodes a socket or more it matters which goes first, a node or
// a socket fewer.
func TestBySocketAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threads := rapid.IntRange(1, 2).Draw(t, "threads")
		g := topology.Grid{Sockets: 2, NodesPerSocket: rapid.IntRange(3, 4).Draw(t, "nodes"), CoresPerL3: 3 - threads,
			ThreadsPerCore: threads}
		topo, err := g.Build()
		if err != nil {
			t.Fatal(err)
		}
		q := requestsOn(t, topo, len(topo.CPUs()))
		q.r.Alignment, q.r.BySocket = AlignRestricted, true
		likeReference(t, q)
	})
}

// likeReference wants the answer to be the best of all, with the lowest numbers.
func likeReference(t *rapid.T, q asked) {
	a := New(q.topo)
	got, err := a.Allocate(q.free, q.held, q.r)
	if err != nil && err.Code == InvalidRequest {
		return
	}
	ref := newReference(q.topo, q.free, q.held, q.r)
	want, ok := ref.best()
	if ok != (err == nil) {
		t.Fatalf("%s\ngot %s, %v; the reference has %s (%+v), %v", q, got.CPUs, err, want.result.CPUs, want.score,
			ok)
	}
	if err != nil {
		return
	}
	mine, legal := ref.judge(got.CPUs, ref.limitOf(got.CPUs.Count()))
	if !legal {
		t.Fatalf("%s\ngot %s, which is not legal", q, got.CPUs)
	}
	if got != mine.result {
		t.Fatalf("%s\ngot %s withheld %s, should withhold %s", q, got.CPUs, got.Withheld, mine.result.Withheld)
	}
	if q.r.Strategy == DistributeEvenly && want.score.Uneven == 0 && want.score.Nodes > 1 && !adds(q.topo) {
		// Documented: where costs do not add up over the nodes, each node is chosen for by itself.
		if mine.score.compareNodes(&want.score) != 0 || mine.score.Bind != want.score.Bind {
			t.Fatalf("%s\ngot  %s %+v\nwant %s %+v", q, got.CPUs, mine.score, want.result.CPUs, want.score)
		}
		return
	}
	if order := mine.score.Compare(&want.score); order != 0 {
		t.Fatalf("%s\ngot  %s %+v\nwant %s %+v", q, got.CPUs, mine.score, want.result.CPUs, want.score)
	}
	if !nested(q.topo) || q.topo.ThreadsPerCore() > 2 || !q.r.Keep.IsEmpty() || mine.score.ViolatedCPUs > 0 {
		return // the score is the best there is; of equals not always the lowest numbers
	}
	if q.r.Strategy == DistributeEvenly && want.score.Uneven == 0 && want.score.Nodes > 1 {
		// Of equal shares not always those with the lowest numbers.
		ref.judge(got.CPUs, allOf(q.topo))
		ref.shares = slices.Clone(ref.in.nodes)
		want, _ = ref.best()
	}
	if got != want.result {
		t.Fatalf("%s\ngot  %s %+v\nwant %s, as good and of lower numbers", q, got.CPUs, mine.score,
			want.result.CPUs)
	}
}

// The same request gets the same answer from an allocator that has answered
// others, and from one that has not.
func TestAllocateRemembersNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := requests(t, 24)
		used := New(q.topo)
		for range 3 {
			other := q.r
			other.CPUs = rapid.IntRange(1, 24).Draw(t, "other n")
			other.Strategy = NUMAStrategy(rapid.IntRange(0, 2).Draw(t, "other strategy"))
			other.Alignment = Alignment(rapid.IntRange(0, 3).Draw(t, "other alignment"))
			used.Allocate(q.free, q.held, other)
		}
		got, err := used.Allocate(q.free, q.held, q.r)
		want, wantErr := New(q.topo).Allocate(q.free, q.held, q.r)
		if got != want || (err == nil) != (wantErr == nil) || err != nil && *err != *wantErr {
			t.Fatalf("%s\ngot %s, %v, then %s, %v", q, got.CPUs, err, want.CPUs, wantErr)
		}
	})
}

// On machines too large for the reference what is given is at least legal, and
// a request is refused only if the plain rule refuses it.
func TestAllocateIsLegalOnLargeMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := requests(t, rapid.IntRange(20, 96).Draw(t, "size"))
		q.r.Nodes = cpuset.Set{}
		checkLegal(t, q)
	})
}

// Machines with more than ten nodes take another way through the nodes.
func TestAllocateManyNodes(t *testing.T) {
	for _, g := range []topology.Grid{
		{Sockets: 2, NodesPerSocket: 8, CoresPerL3: 2, ThreadsPerCore: 2},
		{Sockets: 4, NodesPerSocket: 20, CoresPerL3: 1, ThreadsPerCore: 2},
	} {
		m := build(t, g)
		rapid.Check(t, func(t *rapid.T) {
			q := requests(t, 10)
			q.topo, q.r.Nodes = m, cpuset.Set{}
			online := m.Online()
			taken := subset(t, "taken", online, 3)
			q.free = online.Minus(taken)
			q.r.Keep = cpuset.Set{}
			q.r.CPUs = rapid.IntRange(1, 70).Draw(t, "n")
			for i := range q.held {
				q.held[i].CPUs = subset(t, "held", taken, 6)
			}
			checkLegal(t, q)
		})
	}
}

func checkLegal(t *rapid.T, q asked) {
	got, err := New(q.topo).Allocate(q.free, q.held, q.r)
	ref := newReference(q.topo, q.free, q.held, q.r)
	plain := q.r.SMT == SMTNone && !q.r.BindRequired && !q.r.ExclusiveRequired && q.r.Alignment < AlignRestricted
	if err != nil {
		if err.Message == "" || plain && err.Code != InvalidRequest && q.r.CPUs <= ref.free.Count()+q.r.Keep.Count() {
			t.Fatalf("%s\nrefused: %v", q, err)
		}
		return
	}
	limit := allOf(q.topo)
	if q.r.Alignment == AlignSingleNode {
		limit.nodes = 1
	}
	c, legal := ref.judge(got.CPUs, limit)
	n := got.CPUs.Count()
	right := n == q.r.CPUs || q.r.SMT == SMTRoundUp && n > q.r.CPUs && n < q.r.CPUs+ref.threads
	outside := got.CPUs.Minus(ref.free).Minus(q.r.Keep)
	if !legal || !right || !outside.IsEmpty() || !q.r.Keep.SubsetOf(&got.CPUs) || got != c.result {
		t.Fatalf("%s\ngot %s withheld %s, which is not legal", q, got.CPUs, got.Withheld)
	}
}

// narrowed leaves so many free CPUs, and a request that they may hold.
func (q asked) narrowed(t *rapid.T, free int) asked {
	for q.free.Count() > free {
		q.free.Remove(rapid.SampledFrom(slices.Collect(q.free.All())).Draw(t, "not free"))
	}
	if kept := q.r.Keep.Count(); kept > 4 || q.r.CPUs > q.free.Count()+kept {
		q.r.Keep = cpuset.Set{}
		q.r.CPUs = rapid.IntRange(1, max(1, q.free.Count())).Draw(t, "fewer CPUs")
	}
	if q.r.Alignment == AlignRestricted {
		q.r.Alignment = AlignBestEffort // the reference cannot look at an empty machine of this size
	}
	return q
}

func TestShrinkAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := requests(t, 10)
		q.r.Keep, q.r.Nodes, q.r.Exclusive = cpuset.Set{}, cpuset.Set{}, ExclusiveNone
		if q.r.SMT == SMTIsolate || q.r.Strategy == DistributeEvenly {
			return
		}
		got, err := New(q.topo).Shrink(q.free, q.r)
		ref := newReference(q.topo, q.free, nil, q.r)
		want, ok := ref.best()
		if err != nil && err.Code == InvalidRequest {
			return
		}
		if ok != (err == nil) {
			t.Fatalf("%s\ngot %s, %v; the reference has %s, %v", q, got.CPUs, err, want.result.CPUs, ok)
		}
		if err != nil {
			return
		}
		mine, legal := ref.judge(got.CPUs, ref.limitOf(got.CPUs.Count()))
		if !legal || mine.score.Compare(&want.score) != 0 {
			t.Fatalf("%s\ngot  %s %+v\nwant %s %+v", q, got.CPUs, mine.score, want.result.CPUs, want.score)
		}
	})
}

func TestShrinkIsolated(t *testing.T) {
	m := build(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	got, err := New(m).Shrink(parse(t, "1,2,6"), Request{CPUs: 2, SMT: SMTIsolate})
	if err != nil || got.CPUs.String() != "1-2" || got.Withheld.String() != "0,3" {
		t.Errorf("got %s withheld %s, %v; want 1-2 of 1,2,6 with the siblings 0,3 withheld", got.CPUs, got.Withheld,
			err)
	}
}

func TestGrowIsolated(t *testing.T) {
	m := build(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	got, err := New(m).Allocate(parse(t, "4-7"), nil, Request{CPUs: 2, SMT: SMTIsolate, Keep: parse(t, "2")})
	if err != nil || got.CPUs.String() != "2,4" || got.Withheld.String() != "3,5" {
		t.Errorf("got %s withheld %s, %v; want 2,4 with 3,5 withheld, old and new", got.CPUs, got.Withheld, err)
	}
}

func FuzzAllocate(f *testing.F) {
	for seed := range uint64(8) { // long enough: a case that runs out of bytes is none
		data := make([]byte, 16<<10)
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
		f.Add(data)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		checkLegal(t, func() asked {
			q := requests(t, rapid.IntRange(1, 40).Draw(t, "size"))
			q.r.Nodes = cpuset.Set{}
			return q
		}())
	}))
}

func TestAllocateAllocatesNothing(t *testing.T) {
	for _, g := range benchGrids {
		m := build(t, g.grid)
		a := New(m)
		for _, free := range []cpuset.Set{m.Online(), fragmented(m, 1)} {
			held := benchHeld(m, free)
			for name, r := range benchRequests() {
				for _, r.CPUs = range benchSizes {
					if _, err := a.Allocate(free, held, r); err != nil {
						continue
					}
					if n := testing.AllocsPerRun(3, func() { a.Allocate(free, held, r) }); n > 0 {
						t.Errorf("%s %s n=%d: %v heap allocations", g.name, name, r.CPUs, n)
					}
				}
			}
		}
	}
}

func (q asked) String() string {
	s := ""
	for _, c := range q.topo.CPUs() {
		on := q.topo.Online()
		if on.Has(c.ID) {
			s += fmt.Sprintf("{cpu %d core %d l3 %d node %d socket %d %s} ", c.ID, c.Core, c.L3, c.Node, c.Socket,
				c.Kind)
		}
	}
	for _, h := range q.held {
		s += fmt.Sprintf("\nheld %s %d", h.CPUs, h.Exclusive)
	}
	return s + fmt.Sprintf("\nfree %s request %+v", q.free, q.r)
}

// adds reports whether the cost of a selection is the sum of its costs on each
// node: neither L3s nor kinds of cores are common to nodes.
func adds(m *topology.Topology) bool {
	node, on := map[int]int{}, m.Online()
	first := m.CPUs()[slices.IndexFunc(m.CPUs(), func(c topology.CPU) bool { return on.Has(c.ID) })]
	for _, c := range m.CPUs() {
		if v, ok := node[c.L3]; ok && v != c.Node || on.Has(c.ID) && c.Kind != first.Kind {
			return false
		}
		node[c.L3] = c.Node
	}
	return true
}

// nested reports whether L3s lie in one node, nodes in one socket, and all cores
// are alike.
func nested(m *topology.Topology) bool {
	l3, node, threads := map[int]int{}, map[int]int{}, map[int]int{}
	on := m.Online()
	first := m.CPUs()[on.First()]
	for _, c := range m.CPUs() {
		if v, ok := l3[c.L3]; ok && v != c.Node {
			return false
		}
		if v, ok := node[c.Node]; ok && v != c.Socket {
			return false
		}
		l3[c.L3], node[c.Node] = c.Node, c.Socket
		if on.Has(c.ID) {
			threads[c.Core]++
		}
		if c.Kind != first.Kind {
			return false
		}
	}
	for _, n := range threads {
		if n != threads[first.Core] {
			return false
		}
	}
	return true
}

// TestClone: what shares the machine answers the same, and neither disturbs the other.
func TestClone(t *testing.T) {
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	a := New(topo)
	b, free := a.Clone(), topo.Online()
	for n := 1; n <= 20; n++ {
		for _, r := range []Request{{CPUs: n}, {CPUs: n, Alignment: AlignRestricted}, {CPUs: n, SMT: SMTIsolate}} {
			want, refusal := a.Allocate(free, nil, r)
			other := r
			other.Bind = SpreadByPCPUs
			if _, err := a.Allocate(free, nil, other); err != nil && refusal == nil {
				t.Fatal(err)
			}
			got, again := b.Allocate(free, nil, r)
			if got != want || (refusal == nil) != (again == nil) {
				t.Errorf("%+v: %s, the clone says %s", r, want.CPUs, got.CPUs)
			}
		}
		free.Remove(3 * n % 32)
	}
}

// CPUs have higher numbers, on both sides of those that sets keep elsewhere: the result is the
// same, with higher numbers.
func TestHighNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := requestsOn(t, grids(t, 48), 48)
		shift := rapid.SampledFrom([]int{1000, 1024, 5000, cpuset.MaxCPUs - 48}).Draw(t, "shift")
		higher := func(s cpuset.Set) (out cpuset.Set) {
			for cpu := range s.All() {
				out.Add(cpu + shift)
			}
			return out
		}
		o := topology.Options{Offline: higher(q.topo.Offline()), Distances: map[int]map[int]int{}}
		for i, a := range q.topo.Nodes() {
			o.Distances[a.ID] = map[int]int{}
			for j, b := range q.topo.Nodes() {
				o.Distances[a.ID][b.ID] = q.topo.Distance(i, j)
			}
		}
		cpus := slices.Clone(q.topo.CPUs())
		for i := range cpus {
			cpus[i].ID += shift
		}
		topo, err := topology.New(cpus, o)
		if err != nil {
			t.Fatal(err)
		}
		if topo, err = topo.WithOnline(higher(q.topo.Online())); err != nil {
			t.Fatal(err)
		}
		want, refused := New(q.topo).Allocate(q.free, q.held, q.r)
		high := q.r
		high.Keep = higher(q.r.Keep)
		var held []Held
		for _, h := range q.held {
			held = append(held, Held{CPUs: higher(h.CPUs), Exclusive: h.Exclusive})
		}
		got, refusal := New(topo).Allocate(higher(q.free), held, high)
		if (refused == nil) != (refusal == nil) || refused != nil && refused.Code != refusal.Code {
			t.Fatalf("%v became %v", refused, refusal)
		}
		if got.CPUs != higher(want.CPUs) || got.Withheld != higher(want.Withheld) {
			t.Fatalf("%s and %s withheld became %s and %s", want.CPUs, want.Withheld, got.CPUs, got.Withheld)
		}
	})
}

// TestManyCoresInOneL3: cores are counted in small fields of a word, which would overflow.
func TestManyCoresInOneL3(t *testing.T) {
	const cores = 3000
	m := build(t, topology.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: cores, ThreadsPerCore: 2,
		Numbering: topology.Split})
	a, free := New(m), m.Online()
	for cpu := range 100 {
		free.Remove(cpu) // of 100 cores one thread is left
	}
	for _, c := range []struct{ cpus, onCores int }{{2 * (cores - 100), cores - 100}, {2*cores - 100, cores}} {
		got, err := a.Allocate(free, nil, Request{CPUs: c.cpus})
		if err != nil {
			t.Fatal(err)
		}
		on := map[int]bool{}
		for cpu := range got.CPUs.All() {
			on[m.CoreOf(cpu)] = true
		}
		if got.CPUs.Count() != c.cpus || !got.CPUs.SubsetOf(&free) || len(on) != c.onCores {
			t.Errorf("%d CPUs asked for: got %d on %d cores, want them on %d", c.cpus, got.CPUs.Count(), len(on),
				c.onCores)
		}
	}
}
