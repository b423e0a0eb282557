package cpuallocator

import (
	"testing"

	"github.com/quietcore/quietcore/topology"
)

// What other allocators give on machines of their own tests, and what is given
// here: as good or better by Score.
func TestAsGoodAsOthers(t *testing.T) {
	var (
		twoSockets = topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}
		fourNodes  = topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2}
		smallCores = topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 2, ThreadsPerCore: 2}
		smallL3s   = topology.Grid{L3PerNode: 4, CoresPerL3: 2, ThreadsPerCore: 2}
		spread     = Request{Bind: SpreadByPCPUs}
	)
	for _, c := range []struct {
		name   string
		grid   topology.Grid
		taken  string
		r      Request
		n      int
		theirs string
		want   string
	}{
		// Koordinator: these three came out worse while the strategy went before the bind policy.
		{"a thread a core on the emptier socket", twoSockets, "0-3", spread, 4, "8,10,12,14", "8,10,12,14"},
		{"a whole core on the emptier socket", topology.Grid{Sockets: 2, CoresPerL3: 2, ThreadsPerCore: 2}, "0,4,7",
			Request{}, 2, "2-3", "2-3"},
		{"whole cores on two nodes of the emptier socket", smallCores, "0,2,4,8,12", Request{}, 4, "10-11,14-15",
			"10-11,14-15"},
		// Koordinator: its others.
		{"two nodes fit as well", fourNodes, "0-5,16-23", Request{}, 6, "24-29", "8-13"},
		{"emptiest", fourNodes, "0-5,16-23", Request{Strategy: LeastAllocated}, 6, "8-13", "8-13"},
		{"a whole socket", twoSockets, "0-1", Request{}, 8, "8-15", "8-15"},
		{"across sockets", twoSockets, "", Request{}, 12, "0-11", "0-11"},
		{"better: fewer nodes", smallCores, "0,2,4,8-10,12", Request{}, 6, "6-7,11,13-15", "5-7,13-15"},
		{"better: no neighbours", twoSockets, "0,2", spread, 4, "1,3-4,6", "8,10,12,14"},
		{"seconds on cores of its own", twoSockets, "0,2", Request{Bind: SpreadByPCPUs, Strategy: LeastAllocated}, 6,
			"8-12,14", "8-12,14"},
		// kubelet: prefer-align-cpus-by-uncorecache.
		{"one L3, though a core of another is whole", smallL3s, "0-2,9-11,13-15", Request{}, 2, "4-5", "4-5"},
		// kubelet: distribute-cpus-across-cores.
		{"one L3 does not hold a thread a core", topology.Grid{L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2}, "",
			spread, 8, "0,2,4,6,8,10,12,14", "0,2,4,6,8,10,12,14"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := build(t, c.grid)
			online := m.Online()
			free := online.Minus(parse(t, c.taken))
			c.r.CPUs = c.n
			got := expect(t, m, free, nil, c.r, c.want)
			ref := newReference(m, free, nil, c.r)
			mine, _ := ref.judge(got.CPUs, allOf(m))
			theirs, legal := ref.judge(parse(t, c.theirs), allOf(m))
			if !legal || mine.score.Compare(&theirs.score) > 0 {
				t.Errorf("%s has %+v, theirs, %s, %+v", c.want, mine.score, c.theirs, theirs.score)
			}
		})
	}
}

// kubelet's case: an L3 that holds the request is not left for two on a NUMA
// node that is fuller.
func TestOneL3OfSeveral(t *testing.T) {
	for _, grid := range []topology.Grid{
		{NodesPerSocket: 2, L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 1},
		{Sockets: 2, L3PerNode: 2, CoresPerL3: 2, ThreadsPerCore: 2},
	} {
		expect(t, build(t, grid), parse(t, "3-8,12"), nil, Request{CPUs: 2}, "4-5")
	}
}

// The seed's example: 8 cores, 16 CPUs, a pod that spreads 8 has a CPU of each
// core, however the L3s lie; and 16 of 32 in L3s of eight cores.
func TestSpreadTakesAThreadOfEachCore(t *testing.T) {
	for _, c := range []struct {
		grid topology.Grid
		n    int
		want string
	}{
		{topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2}, 8, "0,2,4,6,8,10,12,14"},
		{topology.Grid{L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2}, 8, "0,2,4,6,8,10,12,14"},
		{topology.Grid{L3PerNode: 4, CoresPerL3: 2, ThreadsPerCore: 2, Numbering: topology.Split}, 8, "0-7"},
		{topology.Grid{L3PerNode: 2, CoresPerL3: 8, ThreadsPerCore: 2, Numbering: topology.Split}, 16, "0-15"},
	} {
		m := build(t, c.grid)
		expect(t, m, m.Online(), nil, Request{CPUs: c.n, Bind: SpreadByPCPUs}, c.want)
	}
}
