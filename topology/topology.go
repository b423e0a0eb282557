// Package topology is the immutable model of one machine: which logical CPUs it has and what they
// share.
//
// Numbers named ID are the machine's own and may have holes; numbers named
// index are dense, 0 to len-1, and are what hot code works with. Two CPUs share
// a core, an L3, a NUMA node or a socket exactly when the IDs, and so the
// indexes, are equal. Every core lies within one L3, one node and one socket;
// nothing else is assumed to nest (a node may span sockets where NUMA is off,
// an L3 may span nodes).
//
//	t, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
package topology

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// Kind distinguishes performance from efficiency cores of a hybrid machine.
// Cores of a machine that is not hybrid are performance cores.
type Kind uint8

const (
	Performance Kind = iota
	Efficiency
)

func (k Kind) String() string {
	if k == Efficiency {
		return "efficiency"
	}
	return "performance"
}

// CPU is one logical CPU with the IDs of its core, L3, node and socket.
type CPU struct {
	ID     int
	Core   int
	L2     int
	L3     int
	Die    int
	Node   int
	Socket int
	Kind   Kind
}

// Core is one physical core.
type Core struct {
	ID   int
	CPUs []int // IDs of its SMT siblings, ascending
	// Indexes of what the core belongs to.
	L3, Node, Socket int
	Kind             Kind
}

// Domain is an L3, a NUMA node or a socket.
type Domain struct {
	ID    int
	CPUs  cpuset.Set
	Cores []int // core indexes, ascending by lowest CPU
}

// Node is a NUMA node; one without CPUs is a memory-only node.
type Node struct {
	Domain
	MemoryBytes uint64 // 0 where unknown
}

// Options are the facts of a machine that are not part of a CPU.
type Options struct {
	Offline  cpuset.Set // CPUs that exist and are offline; may or may not be among the listed CPUs
	Isolated cpuset.Set // kernel parameter isolcpus
	// Memory lists nodes by ID with their memory; it may name nodes without CPUs.
	// Empty means: the nodes of the CPUs, each with an unknown amount.
	Memory map[int]uint64
	// Distances by node ID, as in the kernel's SLIT (10 = local). Empty means 10 and 20.
	Distances map[int]map[int]int
}

// Topology is one machine. It never changes; WithOnline makes a changed copy.
type Topology struct {
	cpus     []CPU // ascending by ID
	index    [cpuset.MaxCPUs]int16
	known    cpuset.Set // those of cpus
	online   cpuset.Set
	offline  cpuset.Set
	isolated cpuset.Set

	cores   []Core
	l3s     []Domain
	nodes   []Node
	sockets []Domain
	coreOf  []int // by CPU index

	distance   [][]int // by node index
	maxThreads int
}

// New builds a machine from its CPUs. It refuses impossible machines: no CPU, a number used twice
// or out of range, a core in two places.
func New(cpus []CPU, o Options) (*Topology, error) {
	if len(cpus) == 0 {
		return nil, fmt.Errorf("topology: no CPU is listed")
	}
	t := &Topology{cpus: slices.SortedFunc(slices.Values(cpus), func(a, b CPU) int { return cmp.Compare(a.ID, b.ID) })}
	for i := range t.index {
		t.index[i] = -1
	}
	for i, c := range t.cpus {
		if c.ID < 0 || c.ID >= cpuset.MaxCPUs {
			return nil, fmt.Errorf("topology: CPU %d is outside 0-%d", c.ID, cpuset.MaxCPUs-1)
		}
		if t.index[c.ID] >= 0 {
			return nil, fmt.Errorf("topology: CPU %d is listed twice", c.ID)
		}
		if c.Core < 0 || c.L3 < 0 || c.Node < 0 || c.Socket < 0 {
			return nil, fmt.Errorf("topology: CPU %d has a negative core, l3, node or socket", c.ID)
		}
		if c.Node >= cpuset.MaxCPUs {
			return nil, fmt.Errorf("topology: CPU %d is on NUMA node %d; nodes end at %d", c.ID, c.Node,
				cpuset.MaxCPUs-1)
		}
		t.index[c.ID] = int16(i)
		t.known.Add(c.ID)
	}
	if err := t.group(o); err != nil {
		return nil, err
	}
	t.offline = o.Offline
	t.isolated = o.Isolated
	t.online = t.known.Minus(o.Offline)
	if t.online.IsEmpty() {
		return nil, fmt.Errorf("topology: no CPU is online")
	}
	return t, nil
}

// numbering maps IDs to dense indexes in ascending order of ID.
func numbering(ids map[int]bool) map[int]int {
	index := make(map[int]int, len(ids))
	for i, id := range slices.Sorted(keys(ids)) {
		index[id] = i
	}
	return index
}

func keys(m map[int]bool) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (t *Topology) group(o Options) error {
	for id := range o.Memory {
		if id < 0 || id >= cpuset.MaxCPUs {
			return fmt.Errorf("topology: NUMA node %d is outside 0-%d", id, cpuset.MaxCPUs-1)
		}
	}
	cores, l3s, nodes, sockets := map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, c := range t.cpus {
		cores[c.Core], l3s[c.L3], nodes[c.Node], sockets[c.Socket] = true, true, true, true
	}
	for id := range o.Memory {
		nodes[id] = true
	}
	coreIndex, l3Index, nodeIndex, socketIndex := numbering(cores), numbering(l3s), numbering(nodes), numbering(sockets)
	t.cores = make([]Core, len(cores))
	t.l3s, t.sockets = newDomains(l3Index), newDomains(socketIndex)
	t.nodes = make([]Node, len(nodes))
	for id, i := range nodeIndex {
		t.nodes[i] = Node{Domain: Domain{ID: id}, MemoryBytes: o.Memory[id]}
	}
	t.coreOf = make([]int, len(t.cpus))
	for i, c := range t.cpus {
		ci := coreIndex[c.Core]
		core := &t.cores[ci]
		l3, node, socket := l3Index[c.L3], nodeIndex[c.Node], socketIndex[c.Socket]
		if len(core.CPUs) == 0 {
			*core = Core{ID: c.Core, L3: l3, Node: node, Socket: socket, Kind: c.Kind}
			t.l3s[l3].Cores = append(t.l3s[l3].Cores, ci)
			t.nodes[node].Cores = append(t.nodes[node].Cores, ci)
			t.sockets[socket].Cores = append(t.sockets[socket].Cores, ci)
		}
		if core.L3 != l3 || core.Node != node || core.Socket != socket {
			return fmt.Errorf(
				"topology: core %d has CPU %d in l3 %d, node %d, socket %d and CPU %d in l3 %d, node %d, socket %d: "+
					"a core lies within one of each",
				c.Core, core.CPUs[0], t.l3s[core.L3].ID, t.nodes[core.Node].ID, t.sockets[core.Socket].ID, c.ID, c.L3,
				c.Node, c.Socket)
		}
		core.CPUs = append(core.CPUs, c.ID)
		t.coreOf[i] = ci
		t.l3s[l3].CPUs.Add(c.ID)
		t.nodes[node].CPUs.Add(c.ID)
		t.sockets[socket].CPUs.Add(c.ID)
		t.maxThreads = max(t.maxThreads, len(core.CPUs))
	}
	t.distance = distances(t.nodes, o.Distances)
	return nil
}

func newDomains(index map[int]int) []Domain {
	d := make([]Domain, len(index))
	for id, i := range index {
		d[i].ID = id
	}
	return d
}

func distances(nodes []Node, given map[int]map[int]int) [][]int {
	const local, remote = 10, 20
	d := make([][]int, len(nodes))
	for i, a := range nodes {
		d[i] = make([]int, len(nodes))
		for j, b := range nodes {
			switch v := given[a.ID][b.ID]; {
			case v > 0:
				d[i][j] = v
			case i == j:
				d[i][j] = local
			default:
				d[i][j] = remote
			}
		}
	}
	return d
}

// WithOnline returns the machine with exactly the given CPUs online. Unknown CPUs are ignored; a
// machine always has at least one online CPU.
func (t *Topology) WithOnline(online cpuset.Set) (*Topology, error) {
	known := t.Known()
	online = online.And(known)
	if online.IsEmpty() {
		return nil, fmt.Errorf("topology: no CPU would be online")
	}
	c := *t
	c.online, c.offline = online, t.offline.Or(known).Minus(online)
	return &c, nil
}

// WithIsolated returns the machine with exactly the given CPUs isolated from the kernel's
// scheduler.
func (t *Topology) WithIsolated(isolated cpuset.Set) (*Topology, error) {
	if missing := isolated.Minus(t.Known()); !missing.IsEmpty() {
		return nil, fmt.Errorf("topology: isolated: this machine has no CPU %s, it has %s", missing, t.Known())
	}
	c := *t
	c.isolated = isolated
	return &c, nil
}

// Known returns every CPU whose place is known, online or offline.
func (t *Topology) Known() cpuset.Set { return t.known }

// CPUs lists every CPU whose place is known, ascending. Callers must not modify it.
func (t *Topology) CPUs() []CPU { return t.cpus }

// Online returns the online CPUs.
func (t *Topology) Online() cpuset.Set { return t.online }

// Offline returns the CPUs that exist and are offline, whether or not their place is known.
func (t *Topology) Offline() cpuset.Set { return t.offline }

// Isolated returns the CPUs that the kernel does not balance (isolcpus).
func (t *Topology) Isolated() cpuset.Set { return t.isolated }

// CPU returns the CPU with the given ID.
func (t *Topology) CPU(id int) (CPU, bool) {
	if id < 0 || id >= cpuset.MaxCPUs || t.index[id] < 0 {
		return CPU{}, false
	}
	return t.cpus[t.index[id]], true
}

// CoreOf returns the index of the core of a CPU, or -1 if the machine does not have it.
func (t *Topology) CoreOf(cpu int) int {
	if cpu < 0 || cpu >= cpuset.MaxCPUs || t.index[cpu] < 0 {
		return -1
	}
	return t.coreOf[t.index[cpu]]
}

// Cores, L3s, Nodes and Sockets are by index; callers must not modify them.
func (t *Topology) Cores() []Core     { return t.cores }
func (t *Topology) L3s() []Domain     { return t.l3s }
func (t *Topology) Nodes() []Node     { return t.nodes }
func (t *Topology) Sockets() []Domain { return t.sockets }

// Distance between two NUMA nodes by index, 10 = local.
func (t *Topology) Distance(a, b int) int { return t.distance[a][b] }

// ThreadsPerCore is the most SMT siblings that any core has, offline ones included.
func (t *Topology) ThreadsPerCore() int { return t.maxThreads }

// Siblings returns the CPUs that share a core with any CPU of s, s included.
func (t *Topology) Siblings(s cpuset.Set) cpuset.Set {
	var all cpuset.Set
	for cpu := range s.All() {
		if core := t.CoreOf(cpu); core >= 0 {
			for _, sibling := range t.cores[core].CPUs {
				all.Add(sibling)
			}
		}
	}
	return all
}

// NodesOf returns the IDs of the NUMA nodes that hold the given CPUs.
func (t *Topology) NodesOf(s cpuset.Set) cpuset.Set {
	var ids cpuset.Set
	for i := range t.nodes {
		if t.nodes[i].CPUs.Intersects(&s) {
			ids.Add(t.nodes[i].ID)
		}
	}
	return ids
}

// MemoryNodes returns the IDs of the NUMA nodes that have memory, including those without CPUs; all
// nodes if no amount is known.
func (t *Topology) MemoryNodes() cpuset.Set {
	var all, with cpuset.Set
	for i := range t.nodes {
		all.Add(t.nodes[i].ID)
		if t.nodes[i].MemoryBytes > 0 {
			with.Add(t.nodes[i].ID)
		}
	}
	if with.IsEmpty() {
		return all
	}
	return with
}
