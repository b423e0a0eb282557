package cpuallocator

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/quietcore/quietcore/topology"
)

// maxTableNodes bounds the machines whose sets of NUMA nodes are all listed
// once, 2^n of them; beyond it sets are grown node by node. Where a node spans
// sockets, the sets of sockets count as well.
const maxTableNodes = 10

// machine is what never changes between two requests. Everything is numbered by
// rank: ascending by the lowest online CPU, so that "lowest numbers" is the
// order of the slices. Whatever has no online CPU is not here.
type machine struct {
	coreTables
	words   int // 64-CPU words that hold every online CPU
	groups  []group
	l3s     []l3
	nodes   []node
	sockets int

	distance [][]int32 // by node rank, there and back
	nodeSets []nodeSet // every set of nodes, best first; nil beyond maxTableNodes
	ofCount  []int     // where in nodeSets the sets of so many nodes begin
	threads  int       // most online threads of a core
	kinds    int       // 2 on a hybrid machine
	online   int
	regularity
}

// coreTables are the cores, in the forms in which requests look at them.
type coreTables struct {
	cores  []core
	places []corePlace // of the cores
	runs   []run       // all of the cores
	coreOf []int16     // by CPU number; -1 unknown or offline
}

// regularity is what holds of every core, node and L3 of a machine: the search is
// shorter where it does.
type regularity struct {
	uniform     bool // every core has the same number of online threads
	oneSocket   bool // no node spans sockets
	l3InOneNode bool // no L3 spans nodes
}

// nested reports whether L3s lie in nodes and nodes in sockets.
func (r *regularity) nested() bool { return r.oneSocket && r.l3InOneNode }

type core struct {
	cpus   []int16 // online threads, ascending
	on     int16
	kind   uint8
	node   int16
	socket int16
	l3     int16
	group  int16
}

// corePlace is what every request asks of every core.
type corePlace struct {
	first, last int16 // its first thread, and its last: the second of two
	second      int16 // 1 if the core has a second thread
	on          int16
	state       coreState // where no CPU of it is taken
}

// run is cores in a row, from the rank first up to that of end, that are added up together.
type run struct {
	first, end      int
	tally           int // by group and kind
	node, l3, group int16
	kind            uint8
}

// maxRun is how many cores a run has at most, so that packedSorts can count them.
const maxRun = 1<<sortBits - 1

// group is the cores that share node, socket and L3: the choice of nodes and L3s
// does not distinguish them.
type group struct {
	node, socket, l3 int16
}

type l3 struct {
	groups []int16
	node   int16 // -1 where it spans nodes
}

type node struct {
	id     int
	groups []int16
	cores  []int16
	online int

	firstGroup int // how many groups the nodes before have
}

// allSockets stands for "no socket is excluded".
const allSockets = ^uint16(0)

// nodeSet is a set of nodes by rank with what is known of it in advance.
type nodeSet struct {
	nodes   []int16 // ascending
	sockets uint16  // sockets allowed by rank, as bits; all unless a node spans several

	count, distance, socketCount int32
}

// ranks hands out dense numbers in order of first use.
type ranks map[int]int16

func (r ranks) of(index int) int16 {
	n, ok := r[index]
	if !ok {
		n = int16(len(r))
		r[index] = n
	}
	return n
}

func newMachine(t *topology.Topology) *machine {
	online := t.Online()
	m := &machine{kinds: 1, regularity: regularity{uniform: true, oneSocket: true, l3InOneNode: true}}
	for _, c := range t.Cores() {
		k := core{kind: uint8(c.Kind), node: int16(c.Node), socket: int16(c.Socket), l3: int16(c.L3)}
		for _, cpu := range c.CPUs {
			if online.Has(cpu) {
				k.cpus = append(k.cpus, int16(cpu))
			}
		}
		if k.on = int16(len(k.cpus)); k.on > 0 {
			slices.Sort(k.cpus)
			m.cores = append(m.cores, k)
		}
	}
	slices.SortFunc(m.cores, func(a, b core) int { return cmp.Compare(a.cpus[0], b.cpus[0]) })
	var all []int16 // one array, since every request goes through all cores
	for i := range m.cores {
		all = append(all, m.cores[i].cpus...)
	}
	for i := range m.cores {
		c := &m.cores[i]
		c.cpus, all = all[:c.on:c.on], all[c.on:]
	}
	m.rank(t)
	m.measure(t)
	if len(m.nodes) <= maxTableNodes && (m.oneSocket || len(m.nodes)+m.sockets <= maxTableNodes) {
		m.nodeSets = m.listNodeSets()
		for i := range m.nodeSets {
			for len(m.ofCount) <= int(m.nodeSets[i].count) {
				m.ofCount = append(m.ofCount, i)
			}
		}
	}
	return m
}

// rank replaces the topology's indexes by ranks.
func (m *machine) rank(t *topology.Topology) {
	nodes, sockets, l3s, groups := ranks{}, ranks{}, ranks{}, map[group]int16{}
	last := 0
	for i := range m.cores {
		c := &m.cores[i]
		n := nodes.of(int(c.node))
		if int(n) == len(m.nodes) {
			m.nodes = append(m.nodes, node{id: t.Nodes()[c.node].ID})
		}
		c.node, c.socket, c.l3 = n, sockets.of(int(c.socket)), l3s.of(int(c.l3))
		if int(c.l3) == len(m.l3s) {
			m.l3s = append(m.l3s, l3{})
		}
		g := group{node: c.node, socket: c.socket, l3: c.l3}
		id, ok := groups[g]
		if !ok {
			id = int16(len(m.groups))
			groups[g] = id
			m.groups = append(m.groups, g)
			m.l3s[g.l3].groups = append(m.l3s[g.l3].groups, id)
			m.nodes[g.node].groups = append(m.nodes[g.node].groups, id)
		}
		c.group = id
		last = max(last, int(c.cpus[len(c.cpus)-1]))
	}
	m.sockets = len(sockets)
	for i := 1; i < len(m.nodes); i++ {
		m.nodes[i].firstGroup = m.nodes[i-1].firstGroup + len(m.nodes[i-1].groups)
	}
	m.words = last/64 + 1
	m.coreOf = make([]int16, m.words*64)
	for i := range m.coreOf {
		m.coreOf[i] = -1
	}
	for i, c := range m.cores {
		for _, cpu := range c.cpus {
			m.coreOf[cpu] = int16(i)
		}
	}
	m.distance = distances(t, nodes)
}

// distances are by rank and there and back, since firmware tables need not be
// symmetric.
func distances(t *topology.Topology, nodes ranks) [][]int32 {
	d := make([][]int32, len(nodes))
	for i := range d {
		d[i] = make([]int32, len(nodes))
	}
	for a, i := range nodes {
		for b, j := range nodes {
			if i != j {
				d[i][j] = int32(t.Distance(a, b) + t.Distance(b, a))
			}
		}
	}
	return d
}

// measure finds what the machine's cores have in common.
func (m *machine) measure(t *topology.Topology) {
	for i := range m.cores {
		c := &m.cores[i]
		m.threads = max(m.threads, int(c.on))
		m.online += int(c.on)
		m.nodes[c.node].cores = append(m.nodes[c.node].cores, int16(i))
		m.nodes[c.node].online += int(c.on)
		m.uniform = m.uniform && c.on == m.cores[0].on
		if c.kind != m.cores[0].kind {
			m.kinds = 2
		}
	}
	for i := range m.cores {
		c := &m.cores[i]
		if m.kinds == 1 {
			c.kind = 0
		}
		m.addToRun(i)
	}
	for _, n := range m.nodes {
		for _, g := range n.groups {
			m.oneSocket = m.oneSocket && m.groups[g].socket == m.groups[n.groups[0]].socket
		}
	}
	for i := range m.l3s {
		l := &m.l3s[i]
		l.node = m.groups[l.groups[0]].node
		for _, g := range l.groups {
			if m.groups[g].node != l.node {
				l.node, m.l3InOneNode = -1, false
				break
			}
		}
	}
}

// addToRun adds the next core to the last run, or begins another.
func (m *machine) addToRun(i int) {
	c := &m.cores[i]
	p := corePlace{first: c.cpus[0], last: c.cpus[c.on-1], second: min(c.on-1, 1), on: c.on}
	if c.on == 1 {
		p.state = stateLone
	}
	m.places = append(m.places, p)
	tally := m.tallyOf(c)
	if n := len(m.runs); n > 0 && m.runs[n-1].tally == tally && i-m.runs[n-1].first < maxRun {
		m.runs[n-1].end = i + 1
		return
	}
	m.runs = append(m.runs,
		run{first: i, end: i + 1, node: c.node, l3: c.l3, group: c.group, tally: tally, kind: c.kind})
}

// tallyOf is where the cores of the group and kind of c are counted.
func (m *machine) tallyOf(c *core) int { return int(c.group)*m.kinds + int(c.kind) }

// listNodeSets lists every set of nodes in the order of Score: fewest, nearest,
// fewest sockets, lowest numbers.
func (m *machine) listNodeSets() []nodeSet {
	sets := make([]nodeSet, 0, 1<<len(m.nodes)-1)
	for mask := 1; mask < 1<<len(m.nodes); mask++ {
		s := nodeSet{sockets: allSockets}
		var touched uint
		for i := range m.nodes {
			if mask>>i&1 != 0 {
				s.distance += m.distanceTo(i, s.nodes)
				s.nodes = append(s.nodes, int16(i))
				touched |= m.socketsOf(i)
			}
		}
		s.count = int32(len(s.nodes))
		if m.oneSocket {
			s.socketCount = int32(bits.OnesCount(touched))
			sets = append(sets, s)
			continue
		}
		for some := touched; some > 0; some = (some - 1) & touched {
			s.sockets, s.socketCount = uint16(some), int32(bits.OnesCount(some))
			sets = append(sets, s)
		}
	}
	slices.SortFunc(sets, func(a, b nodeSet) int {
		return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.distance, b.distance),
			cmp.Compare(a.socketCount, b.socketCount),
			slices.Compare(a.nodes, b.nodes), cmp.Compare(a.sockets, b.sockets))
	})
	return sets
}

// lastOf is where the sets of so many nodes end.
func (m *machine) lastOf(count int32) int {
	if next := int(count) + 1; next < len(m.ofCount) {
		return m.ofCount[next] - 1
	}
	return len(m.nodeSets) - 1
}

// distanceTo is how far a node is from those of a set, there and back.
func (m *machine) distanceTo(node int, set []int16) (d int32) {
	for _, n := range set {
		d += m.distance[node][n]
	}
	return d
}

// socketsOf are the sockets of a node, by rank, as bits; only machines with few
// nodes ask.
func (m *machine) socketsOf(node int) uint {
	var sockets uint
	for _, g := range m.nodes[node].groups {
		sockets |= 1 << m.groups[g].socket
	}
	return sockets
}
