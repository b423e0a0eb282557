package render

import (
	"fmt"

	"github.com/quietcore/quietcore/topology"
)

// socketPlace, nodePlace and l3Place are the machine as a drawing nests it:
// sockets hold nodes, nodes hold L3s, L3s hold cores. Where the machine does
// not nest so (NUMA off, an L3 over two nodes), a node or an L3 appears in
// every place that holds some of its cores; a core appears once.
type socketPlace struct {
	name  string
	nodes []nodePlace
}

type nodePlace struct {
	name string
	l3s  []l3Place
}

type l3Place struct {
	id    int
	cores []int // core indexes
}

func layout(t *topology.Topology) []socketPlace {
	var sockets []socketPlace
	for _, s := range t.Sockets() {
		p := socketPlace{name: fmt.Sprintf("socket %d", s.ID)}
		for i := range t.Nodes() {
			if cores := coresIn(t, s.Cores, func(c topology.Core) bool { return c.Node == i }); len(cores) > 0 {
				p.nodes = append(p.nodes, nodePlace{name: nodeName(t, i), l3s: l3sOf(t, cores)})
			}
		}
		sockets = append(sockets, p)
	}
	return sockets
}

func l3sOf(t *topology.Topology, cores []int) (out []l3Place) {
	at := map[int]int{}
	for _, c := range cores {
		l3 := t.Cores()[c].L3
		i, seen := at[l3]
		if !seen {
			i = len(out)
			at[l3] = i
			out = append(out, l3Place{id: t.L3s()[l3].ID})
		}
		out[i].cores = append(out[i].cores, c)
	}
	return out
}

func coresIn(t *topology.Topology, cores []int, in func(topology.Core) bool) (out []int) {
	for _, c := range cores {
		if in(t.Cores()[c]) {
			out = append(out, c)
		}
	}
	return out
}

// memoryNodes names the nodes that have memory and no CPU.
func memoryNodes(t *topology.Topology) (names []string) {
	for i, n := range t.Nodes() {
		if len(n.Cores) == 0 {
			names = append(names, nodeName(t, i))
		}
	}
	return names
}

func nodeName(t *topology.Topology, i int) string {
	n := t.Nodes()[i]
	name := fmt.Sprintf("node %d", n.ID)
	if n.MemoryBytes > 0 {
		name += ", " + bytesText(n.MemoryBytes)
	}
	return name
}

// bytesText is an amount of memory in the unit that reads best.
func bytesText(n uint64) string {
	const gib = 1 << 30
	switch {
	case n >= 1<<40:
		return fmt.Sprintf("%.1f TiB", float64(n)/(1<<40))
	case n >= 10*gib:
		return fmt.Sprintf("%.0f GiB", float64(n)/gib)
	case n >= gib:
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// runsOfKind splits cores into performance and efficiency cores.
func runsOfKind(t *topology.Topology, cores []int) (runs [][]int) {
	for _, kind := range []topology.Kind{topology.Performance, topology.Efficiency} {
		if run := coresIn(t, cores, func(c topology.Core) bool { return c.Kind == kind }); len(run) > 0 {
			runs = append(runs, run)
		}
	}
	return runs
}

// hybridLook reports whether the kinds of cores are worth showing.
func hybridLook(t *topology.Topology) bool { return len(runsOfKind(t, allCores(t))) > 1 }

func allCores(t *topology.Topology) []int {
	all := make([]int, len(t.Cores()))
	for i := range all {
		all[i] = i
	}
	return all
}
