package cpuallocator

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// The machines of background scenarios: A has 2 sockets x 2 nodes x 2 cores x 2
// threads, E 2 x 2 x 32 x 2 with the siblings 128 apart.
var (
	gridA = topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 2, ThreadsPerCore: 2}
	gridE = topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 32, ThreadsPerCore: 2, Numbering: topology.Split}
)

// TestTraps are inputs on which allocators in wide use go wrong, and what is
// right. Each names the defect and which allocator has it.
func TestTraps(t *testing.T) {
	for _, c := range []struct {
		name string
		grid topology.Grid
		off  string // offline
		free string // "" = all that is online
		held []Held
		r    Request
		want string // CPUs, or the code of the refusal
	}{
		// nri-plugins' idle-core stage knows no NUMA: two idle cores on node 0 drew 16 CPUs over two nodes.
		{name: "one node though another has idle cores", grid: topology.Grid{Sockets: 1, NodesPerSocket: 4,
			CoresPerL3: 16, ThreadsPerCore: 2},
			free: "0-3,32-127", r: Request{CPUs: 16}, want: "32-47"},
		// nri-plugins returned nothing, no error, and lost CPU 0.
		{name: "free CPUs that are offline do not count", grid: topology.Grid{CoresPerL3: 128, ThreadsPerCore: 2},
			off:  "200-255",
			free: "0,200-210", r: Request{CPUs: 3}, want: "InsufficientCPUs"},
		{name: "nor do CPUs that the machine has not", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "0-1,600,8191", r: Request{CPUs: 3}, want: "InsufficientCPUs"},
		// nri-plugins put the odd thread of 17 next to a reserved CPU.
		{name: "the odd rest keeps off a core that is half used",
			grid: topology.Grid{CoresPerL3: 16, ThreadsPerCore: 2},
			free: "1-31", r: Request{CPUs: 17}, want: "2-18"},
		{name: "and joins it where that is all there is", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1-5", r: Request{CPUs: 5}, want: "1-5"},
		{name: "roundup leaves no half core", grid: topology.Grid{CoresPerL3: 16, ThreadsPerCore: 2},
			free: "0-20,22-31", r: Request{CPUs: 17, SMT: SMTRoundUp}, want: "0-17"},

		// Koordinator, kubernetes#124066: one offline sibling made every core "one thread", so four CPUs
		// lay on four half cores.
		{name: "an offline sibling does not spoil the other cores",
			grid: topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2}, off: "15",
			free: "1-14", r: Request{CPUs: 4}, want: "2-5"},
		{name: "nor whole cores on demand", grid: topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2}, off: "15",
			free: "1-14", r: Request{CPUs: 4, SMT: SMTAlign}, want: "2-5"},
		// Koordinator: socket-level picks ignore NUMA, 16 CPUs lay on three and four nodes where two suffice.
		{name: "two nodes where two suffice", grid: topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 4,
			ThreadsPerCore: 2},
			free: "6-31", r: Request{CPUs: 16}, want: "8-23"},
		{name: "two nodes where two suffice, spread", grid: topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 4,
			ThreadsPerCore: 2},
			free: "6-31", r: Request{CPUs: 16, Bind: SpreadByPCPUs}, want: "8-23"},
		// Koordinator: NUMANodeLevel beyond one node landed on the exclusive node's socket.
		{name: "NUMANodeLevel larger than a node avoids the owner's node", grid: gridA,
			free: "1-15", held: []Held{{cpuset.Of(0), NUMANodeLevel}}, r: Request{CPUs: 8, Exclusive: NUMANodeLevel},
			want: "8-15"},
		// Koordinator: NUMANodeLevel does not degrade to PCPULevel.
		{name: "NUMANodeLevel falls back to PCPULevel", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1-7", held: []Held{{cpuset.Of(0), NUMANodeLevel}}, r: Request{CPUs: 1, Exclusive: NUMANodeLevel},
			want: "2"},
		{name: "and then to nothing", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1,3,5,7", held: []Held{{parse(t, "0,2,4,6"), NUMANodeLevel}},
			r: Request{CPUs: 2, Exclusive: NUMANodeLevel}, want: "1,3"},
		{name: "unless it is required", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1,3,5,7", held: []Held{{parse(t, "0,2,4,6"), NUMANodeLevel}},
			r: Request{CPUs: 2, Exclusive: NUMANodeLevel, ExclusiveRequired: true}, want: "ExclusivityError"},
		{name: "PCPULevel avoids such cores", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1-7", held: []Held{{cpuset.Of(0), PCPULevel}}, r: Request{CPUs: 1, Exclusive: PCPULevel}, want: "2"},
		{name: "PCPULevel is among PCPULevel owners", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1,3", held: []Held{{cpuset.Of(0), PCPULevel}, {cpuset.Of(2), NUMANodeLevel}},
			r: Request{CPUs: 1, Exclusive: PCPULevel}, want: "3"},
		{name: "and a request without a policy avoids them too", grid: topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1,3", held: []Held{{cpuset.Of(0), PCPULevel}, {cpuset.Of(2), NUMANodeLevel}}, r: Request{CPUs: 1},
			want: "3"},
		{name: "but takes no node more for it", grid: gridA, free: "1-4",
			held: []Held{{cpuset.Of(0), PCPULevel}}, r: Request{CPUs: 3}, want: "1-3"},

		// kubelet 1.37: the subset iterator re-used its slice, and 112 CPUs straddled the sockets (nodes 0-2 and 7).
		{name: "112 evenly stay on one socket", grid: topology.Grid{Sockets: 2, NodesPerSocket: 4, CoresPerL3: 16,
			ThreadsPerCore: 2},
			r: Request{CPUs: 112, Strategy: DistributeEvenly}, want: "0-27,32-59,64-91,96-123"},
		{name: "128 evenly stay on one socket", grid: topology.Grid{Sockets: 2, NodesPerSocket: 4, CoresPerL3: 16,
			ThreadsPerCore: 2},
			r: Request{CPUs: 128, Strategy: DistributeEvenly}, want: "0-127"},
		// kubelet 1.37 never returned: shares in whole cores over free counts that are no multiple of a core.
		{name: "evenly over 5, 5, 5, 5 free", grid: topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 4,
			ThreadsPerCore: 2},
			free: "0-4,8-12,16-20,24-28", r: Request{CPUs: 20, Strategy: DistributeEvenly},
			want: "0-4,8-12,16-20,24-28"},
		{name: "evenly over 4, 5, 4, 5 free", grid: topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 4,
			ThreadsPerCore: 2},
			free: "0-3,8-12,16-19,24-28", r: Request{CPUs: 18, Strategy: DistributeEvenly},
			want: "0-3,8-12,16-19,24-28"},
		{name: "22 evenly over 6, 7, 6, 7 free", grid: topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 4,
			ThreadsPerCore: 2},
			free: "0-5,8-14,16-21,24-30", r: Request{CPUs: 22, Strategy: DistributeEvenly},
			want: "0-4,8-13,16-20,24-29"},
		{name: "10 evenly over two nodes are 5 and 5", grid: topology.Grid{NodesPerSocket: 2, CoresPerL3: 4,
			ThreadsPerCore: 2}, r: Request{CPUs: 10, Strategy: DistributeEvenly}, want: "0-4,8-12"},
		{name: "in whole cores 6 and 4", grid: topology.Grid{NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2},
			r: Request{CPUs: 10, Strategy: DistributeEvenly, BindRequired: true}, want: "0-5,8-11"},
		// kubelet 1.37: an L3 whose lowest core is half used was skipped although it has enough whole cores.
		{name: "a half-used core does not hide an L3", grid: topology.Grid{L3PerNode: 2, CoresPerL3: 4,
			ThreadsPerCore: 2},
			free: "1-7,10-13", r: Request{CPUs: 6}, want: "2-7"},
		{name: "nor half-used cores whole ones of another L3",
			grid: topology.Grid{L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2},
			free: "1,3,5,7,8-15", r: Request{CPUs: 4}, want: "8-11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := build(t, c.grid)
			online := m.Online()
			m, err := m.WithOnline(online.Minus(parse(t, c.off)))
			if err != nil {
				t.Fatal(err)
			}
			free := m.Online()
			if c.free != "" {
				free = parse(t, c.free)
			}
			expect(t, m, free, c.held, c.r, c.want)
		})
	}
}

func expect(t *testing.T, m *topology.Topology, free cpuset.Set, held []Held, r Request, want string) Result {
	t.Helper()
	got, err := New(m).Allocate(free, held, r)
	text := got.CPUs.String()
	if err != nil {
		text = string(err.Code)
		if !strings.ContainsAny(err.Message, "0123456789") {
			t.Errorf("%+v: refusal without a number: %s", r, err.Message)
		}
	}
	if text != want {
		t.Errorf("%d CPUs: got %s (%v), want %s", r.CPUs, text, err, want)
	}
	return got
}

// hybrid has four performance cores of two threads (0-7) and eight efficiency
// cores (8-15).
func hybrid(t *testing.T) *topology.Topology {
	var cpus []topology.CPU
	for id := range 16 {
		c := topology.CPU{ID: id, Core: id / 2}
		if id >= 8 {
			c.Core, c.Kind = id-4, topology.Efficiency
		}
		cpus = append(cpus, c)
	}
	m, err := topology.New(cpus, topology.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Koordinator gave efficiency cores to a request for four, and split performance
// cores for ten (kubernetes#140495).
func TestTrapsHybrid(t *testing.T) {
	m := hybrid(t)
	for _, c := range []struct {
		free string
		r    Request
		want string
	}{
		{"0-15", Request{CPUs: 4}, "0-3"},
		{"0-15", Request{CPUs: 10}, "0-9"},
		// The bind policy goes before the kind: efficiency cores have one thread, so none is taken in part.
		{"0-15", Request{CPUs: 3}, "8-10"},
		{"0-15", Request{CPUs: 1}, "8"},
		{"0-15", Request{CPUs: 3, Bind: SpreadByPCPUs}, "0,2,4"},
		{"6-15", Request{CPUs: 4}, "8-11"}, // not both kinds where one will do
		{"0-15", Request{CPUs: 5, SMT: SMTAlign}, "8-12"},
		{"0-10", Request{CPUs: 5, SMT: SMTAlign}, "0-3,8"}, // 2 + 2 + 1 whole
		{"0-7", Request{CPUs: 5, SMT: SMTAlign}, "SMTAlignmentError"},
		{"0-15", Request{CPUs: 4, Bind: SpreadByPCPUs}, "0,2,4,6"},
		{"0-15", Request{CPUs: 8, Bind: SpreadByPCPUs}, "8-15"}, // eight cores, all of one kind
		{"0-15", Request{CPUs: 12, Bind: SpreadByPCPUs, BindRequired: true}, "0,2,4,6,8-15"},
		{"0-15", Request{CPUs: 13, SMT: SMTIsolate}, "SMTAlignmentError"},
	} {
		expect(t, m, parse(t, c.free), nil, c.r, c.want)
	}
}

func TestRefusals(t *testing.T) {
	m := build(t, gridA)
	for _, c := range []struct {
		free string
		r    Request
		want string
	}{
		{"0-15", Request{}, "InvalidRequest"},
		{"0-15", Request{CPUs: -3}, "InvalidRequest"},
		{"0-15", Request{CPUs: 8193}, "InvalidRequest"},
		{"0-15", Request{CPUs: 2, SMT: 9}, "InvalidRequest"},
		{"0-15", Request{CPUs: 1, Keep: cpuset.Of(0, 1)}, "InvalidRequest"},
		{"0-15", Request{CPUs: 2, Keep: cpuset.Of(77)}, "InvalidRequest"},
		{"0-15", Request{CPUs: 2, Keep: cpuset.Of(0, 1), SMT: SMTIsolate}, "InvalidRequest"},
		{"0-15", Request{CPUs: 2, SMT: SMTAlign, Bind: SpreadByPCPUs, BindRequired: true}, "InvalidRequest"},
		{"0-15", Request{CPUs: 17}, "InsufficientCPUs"},
		{"0-3", Request{CPUs: 5}, "InsufficientCPUs"},
		{"", Request{CPUs: 1}, "InsufficientCPUs"},
		{"0-15", Request{CPUs: 3, SMT: SMTAlign}, "SMTAlignmentError"},
		{"0-15", Request{CPUs: 3, BindRequired: true}, "SMTAlignmentError"},
		{"0,2-3,5-15", Request{CPUs: 14, SMT: SMTAlign}, "SMTAlignmentError"},
		{"0,2,4,6,8,10", Request{CPUs: 1, SMT: SMTIsolate}, "SMTAlignmentError"},
		{"0-15", Request{CPUs: 9, SMT: SMTIsolate}, "SMTAlignmentError"},
		{"0-7", Request{CPUs: 8, Bind: SpreadByPCPUs, BindRequired: true}, "InsufficientCPUs"},
		{"0-15", Request{CPUs: 5, Alignment: AlignSingleNode}, "TopologyAffinityError"},
		{"0-1,4-5,8-9,12-13", Request{CPUs: 4, Alignment: AlignRestricted}, "TopologyAffinityError"},
		{"0-15", Request{CPUs: 6, Nodes: cpuset.Of(1)}, "TopologyAffinityError"},
		{"0-1,4-5,8-9,12-13", Request{CPUs: 4, Alignment: AlignBestEffort}, "0-1,4-5"},
		{"0-15", Request{CPUs: 8, Alignment: AlignRestricted}, "0-7"},
		{"0-15", Request{CPUs: 2, Nodes: cpuset.Of(2)}, "8-9"},
	} {
		expect(t, m, parse(t, c.free), nil, c.r, c.want)
	}
}

// play makes requests one after the other and checks that no owner's CPUs, or what
// is withheld for it, are given again.
func play(t *testing.T, m *topology.Topology, free cpuset.Set, requests ...Request) []Result {
	t.Helper()
	a := New(m)
	var held []Held
	var out []Result
	for i, r := range requests {
		got, err := a.Allocate(free, held, r)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		all := got.CPUs.Or(got.Withheld)
		if !all.SubsetOf(&free) {
			t.Fatalf("request %d: %s is not free", i, all.Minus(free))
		}
		free = free.Minus(all)
		held = append(held, Held{CPUs: all, Exclusive: r.Exclusive})
		out = append(out, got)
	}
	return out
}

func repeat(n int, r Request) []Request {
	var list []Request
	for range n {
		list = append(list, r)
	}
	return list
}

// distinctCores fails where two owners, or an owner and a CPU of others, share a
// core.
func distinctCores(t *testing.T, m *topology.Topology, others cpuset.Set, owners []Result) {
	t.Helper()
	for i, o := range owners {
		cores := m.Siblings(o.CPUs)
		if cores.Intersects(&others) {
			t.Errorf("owner %d on %s shares a core with another", i, o.CPUs)
		}
		others = others.Or(o.CPUs)
	}
}

// Scenario 1: four owners of one CPU each, on four nodes; ours adds four cores,
// none with a reserved CPU.
func TestScenario1(t *testing.T) {
	m := build(t, gridA)
	online := m.Online()
	got := play(t, m, online.Minus(cpuset.Of(0)), repeat(4,
		Request{CPUs: 1, Bind: SpreadByPCPUs, Exclusive: PCPULevel, Strategy: LeastAllocated})...)
	distinctCores(t, m, cpuset.Of(0), got)
	nodes := cpuset.Set{}
	for _, o := range got {
		nodes = nodes.Or(m.NodesOf(o.CPUs))
	}
	if nodes.Count() != 4 {
		t.Errorf("four owners lie on nodes %s", nodes)
	}
}

// Scenario 2: four pods of three, one of them two isolated CPUs, on four nodes.
func TestScenario2(t *testing.T) {
	m := build(t, gridA)
	three := Request{CPUs: 3, Strategy: LeastAllocated}
	got := play(t, m, m.Online(), three, three, Request{CPUs: 2, SMT: SMTIsolate, Strategy: LeastAllocated}, three)
	nodes := cpuset.Set{}
	for _, o := range got {
		on := m.NodesOf(o.CPUs)
		if on.Count() != 1 || on.Intersects(&nodes) {
			t.Errorf("%s lies on nodes %s", o.CPUs, on)
		}
		nodes = nodes.Or(on)
	}
	if got[2].CPUs.String() != "8,10" || got[2].Withheld.String() != "9,11" {
		t.Errorf("isolated: %s, withheld %s", got[2].CPUs, got[2].Withheld)
	}
}

// Scenario 4: CPU 0 is reserved, so node 0 has three; every size takes as little
// of the machine as it needs, and keeps off the reserved CPU's core where that
// costs no node and no socket.
func TestScenario4(t *testing.T) {
	m := build(t, gridA)
	for _, c := range []struct {
		n    int
		want string
	}{
		{2, "2-3"},  // one core
		{3, "4-6"},  // one node, two cores
		{5, "2-6"},  // one socket, three cores
		{7, "8-14"}, // a socket
		{9, "2-10"}, // two sockets, three nodes
		{15, "1-15"},
	} {
		online := m.Online()
		expect(t, m, online.Minus(cpuset.Of(0)), nil, Request{CPUs: c.n}, c.want)
	}
}

// Scenario 21: two pools that load cores never share one, and the marks go with
// the owner.
func TestScenario21(t *testing.T) {
	m := build(t, gridA)
	r := Request{CPUs: 3, Bind: SpreadByPCPUs, Exclusive: PCPULevel}
	got := play(t, m, m.Online(), r, r)
	distinctCores(t, m, cpuset.Set{}, got)
	online := m.Online()
	expect(t, m, online.Minus(got[1].CPUs), []Held{{got[1].CPUs, PCPULevel}}, r, got[0].CPUs.String())
}

// Scenario 22: nine balanced over four nodes are three on each of three; twelve
// three on each of four are not equal on fewer.
func TestScenario22(t *testing.T) {
	m := build(t, gridA)
	expect(t, m, m.Online(), nil, Request{CPUs: 9, Bind: SpreadByPCPUs, Strategy: DistributeEvenly}, "0-2,4-6,8-10")
	expect(t, m, parse(t, "0-2,4-6,8-10,12-14"), nil, Request{CPUs: 12, Bind: SpreadByPCPUs,
		Strategy: DistributeEvenly}, "0-2,4-6,8-10,12-14")
}

// Scenario 27: eight LSE pods of one CPU on an idle machine, two CPUs reserved:
// eight cores, none with a reserved sibling (nri-plugins shared at the fourth).
func TestScenario27(t *testing.T) {
	m := build(t, gridE)
	online := m.Online()
	for _, r := range []Request{
		{CPUs: 1, Bind: SpreadByPCPUs, Exclusive: PCPULevel},
		{CPUs: 1, Bind: SpreadByPCPUs},
		{CPUs: 1, SMT: SMTIsolate},
		{CPUs: 1, SMT: SMTRoundUp},
	} {
		distinctCores(t, m, cpuset.Of(0, 1), play(t, m, online.Minus(cpuset.Of(0, 1)), repeat(8, r)...))
	}
	// FullPCPUs too: no core is shared while there are others.
	distinctCores(t, m, cpuset.Set{}, play(t, m, online, repeat(8, Request{CPUs: 1})...))
}

// kubelet 4: one odd request poisoned packing, since later ones preferred
// half-used cores.
func TestOddRequestDoesNotPoison(t *testing.T) {
	m := build(t, topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2})
	got := play(t, m, m.Online(), Request{CPUs: 3}, Request{CPUs: 4}, Request{CPUs: 4}, Request{CPUs: 1},
		Request{CPUs: 2}, Request{CPUs: 1})
	distinctCores(t, m, cpuset.Set{}, got[:5])
	if got[5].CPUs.String() != "3" {
		t.Errorf("the last odd request lies on %s, not next to the first, though no core is wholly free", got[5].CPUs)
	}
}

// Growing in place keeps what there is and completes cores.
func TestGrow(t *testing.T) {
	m := build(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	for _, c := range []struct {
		free, keep string
		n          int
		want       string
	}{
		{"3-7", "0-2", 4, "0-3"},
		{"3-7", "0-2", 6, "0-5"},
		{"4-7", "0-2", 4, "0-2,4"},
		{"4-7", "0-3", 4, "0-3"},
	} {
		expect(t, m, parse(t, c.free), nil, Request{CPUs: c.n, Keep: parse(t, c.keep)}, c.want)
	}
}
