package topology

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// Numbering is how a machine numbers SMT siblings.
type Numbering string

const (
	Adjacent Numbering = "adjacent" // siblings are neighbours: 0,1 | 2,3
	Split    Numbering = "split"    // second threads come after all first threads: 0,8 | 1,9
)

// Grid is a regular machine.
type Grid struct {
	Sockets        int       `json:"sockets"`
	NodesPerSocket int       `json:"nodesPerSocket"`
	L3PerNode      int       `json:"l3PerNode"`
	CoresPerL3     int       `json:"coresPerL3"`
	ThreadsPerCore int       `json:"threadsPerCore"`
	Numbering      Numbering `json:"numbering"`
}

// Build makes the machine. Counts of 0 mean 1.
func (g Grid) Build() (*Topology, error) {
	for name, n := range map[string]*int{"sockets": &g.Sockets, "nodesPerSocket": &g.NodesPerSocket,
		"l3PerNode": &g.L3PerNode, "coresPerL3": &g.CoresPerL3, "threadsPerCore": &g.ThreadsPerCore} {
		if *n < 0 || *n > cpuset.MaxCPUs {
			return nil, fmt.Errorf("topology: grid: %s is %d, must be 1 to %d", name, *n, cpuset.MaxCPUs)
		}
		*n = max(*n, 1)
	}
	if g.Numbering == "" {
		g.Numbering = Adjacent
	}
	if g.Numbering != Adjacent && g.Numbering != Split {
		return nil, fmt.Errorf("topology: grid: numbering is %q, must be %q or %q", g.Numbering, Adjacent, Split)
	}
	total := 1
	for _, n := range []int{g.Sockets, g.NodesPerSocket, g.L3PerNode, g.CoresPerL3, g.ThreadsPerCore} {
		if total *= n; total > cpuset.MaxCPUs {
			return nil, fmt.Errorf("topology: grid has more than %d CPUs", cpuset.MaxCPUs)
		}
	}
	cores := total / g.ThreadsPerCore
	cpus := make([]CPU, 0, total)
	for core := range cores {
		for thread := range g.ThreadsPerCore {
			id := core*g.ThreadsPerCore + thread
			if g.Numbering == Split {
				id = thread*cores + core
			}
			l3 := core / g.CoresPerL3
			node := l3 / g.L3PerNode
			socket := node / g.NodesPerSocket
			cpus = append(cpus, CPU{ID: id, Core: core, L2: core, L3: l3, Die: socket, Node: node, Socket: socket})
		}
	}
	return New(cpus, Options{Distances: gridDistances(g)})
}

// gridDistances are those of a typical machine: 10 within a node, 12 to another
// node of the socket, 20 to another socket.
func gridDistances(g Grid) map[int]map[int]int {
	nodes := g.Sockets * g.NodesPerSocket
	d := make(map[int]map[int]int, nodes)
	for a := range nodes {
		d[a] = make(map[int]int, nodes)
		for b := range nodes {
			switch {
			case a == b:
				d[a][b] = 10
			case a/g.NodesPerSocket == b/g.NodesPerSocket:
				d[a][b] = 12
			default:
				d[a][b] = 20
			}
		}
	}
	return d
}
