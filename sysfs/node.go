package sysfs

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/quietcore/quietcore/cpuset"
)

const (
	nodeDir = "devices/system/node"
	// maxNodes is the most NUMA nodes that Linux can be built for.
	maxNodes = 1024
)

func nodePath(node int, file string) string {
	return nodeDir + "/node" + strconv.Itoa(node) + "/" + file
}

// readNodes finds the NUMA node of every CPU, and every node's memory and
// distances. Without any node the machine counts as one.
func (r *reader) readNodes() {
	nodes := r.listNodes()
	r.memory = map[int]uint64{}
	for _, node := range nodes {
		r.memory[node] = r.readMemory(node)
	}
	for i := range r.cpus {
		r.cpus[i].Node = unknown
	}
	r.assignNodes(nodes)
	r.assignRest(nodes)
	for _, c := range r.cpus {
		if _, known := r.memory[c.Node]; !known {
			r.memory[c.Node] = 0
		}
	}
	r.readDistances(nodes)
}

func (r *reader) listNodes() []int {
	names, err := r.names(nodeDir)
	var nodes []int
	for _, name := range names {
		if id, ok := numbered(name, "node", maxNodes); ok {
			nodes = append(nodes, id)
		}
	}
	if len(nodes) == 0 {
		if err == nil {
			err = fmt.Errorf("lists no node")
		}
		r.warn(nodeDir, err, "all CPUs count as one NUMA node")
	}
	slices.Sort(nodes)
	return nodes
}

func (r *reader) readMemory(node int) uint64 {
	name := nodePath(node, "meminfo")
	text, err := r.text(name)
	var bytes uint64
	if err == nil {
		bytes, err = parseMemTotal(text)
	}
	if err != nil {
		r.warn(name, err, "its memory is not known")
	}
	return bytes
}

// nodeCPUs reads which online CPUs a node counts.
func (r *reader) nodeCPUs(node int) (cpuset.Set, error) {
	s, err := r.firstSet(nodePath(node, ""), []form{{"cpumap", true}, {"cpulist", false}})
	if err != nil {
		return s, err
	}
	return s.And(r.online), nil
}

// assignNodes gives every CPU the lowest node that lists it. Nodes that list the same CPUs come
// from the kernel parameter numa=fake, which splits one real node: the others remain as nodes
// without CPUs, because their memory is real.
func (r *reader) assignNodes(nodes []int) {
	at := map[int]int{}
	for i, c := range r.cpus {
		at[c.ID] = i
	}
	first := map[cpuset.Set]int{}
	for _, node := range nodes {
		s, err := r.nodeCPUs(node)
		if err != nil {
			r.warn(nodePath(node, "cpumap"), err, "the node counts as one without CPUs")
			continue
		}
		if s.IsEmpty() {
			continue
		}
		if same, dup := first[s]; dup {
			r.warnf(nodePath(node, "cpumap"),
				"names the CPUs of node %d, %s; they count as that node's and this one as memory only", same, brief(s))
			continue
		}
		first[s] = node
		var taken cpuset.Set
		for cpu := range s.All() {
			if c := &r.cpus[at[cpu]]; c.Node == unknown {
				c.Node = node
			} else {
				taken.Add(cpu)
			}
		}
		if !taken.IsEmpty() {
			r.warnf(nodePath(node, "cpumap"),
				"names CPUs %s, which a lower node names as well; they count as the lower one's", brief(taken))
		}
	}
}

// assignRest places CPUs that no node counts: by the link to a node in their
// own directory (a node whose memory is offline has no directory), else with
// the lowest node.
func (r *reader) assignRest(nodes []int) {
	lowest := 0
	if len(nodes) > 0 {
		lowest = nodes[0]
	}
	var m misses
	for i := range r.cpus {
		c := &r.cpus[i]
		if c.Node != unknown {
			continue
		}
		c.Node = lowest
		if len(nodes) == 0 {
			continue
		}
		if node, ok := r.linkedNode(c.ID); ok {
			c.Node = node
			continue
		}
		m.add(c.ID, errMissing)
	}
	r.warnMisses("node*", &m, fmt.Sprintf("no node counts them; they count as CPUs of node %d", lowest))
}

func (r *reader) linkedNode(cpu int) (int, bool) {
	if !r.dirs.Has(cpu) {
		return 0, false
	}
	names, err := r.names(cpuPath(cpu, "")[:len(cpuPath(cpu, ""))-1])
	if err != nil {
		return 0, false
	}
	slices.Sort(names)
	for _, name := range names {
		if id, ok := numbered(name, "node", maxNodes); ok {
			return id, true
		}
	}
	return 0, false
}

// readDistances reads the rows; their columns are the online nodes in order,
// on some kernels the possible ones.
func (r *reader) readDistances(nodes []int) {
	r.distance = map[int]map[int]int{}
	columns := [][]int{nodes, r.nodeList("online"), r.nodeList("possible")}
	for _, node := range nodes {
		name := nodePath(node, "distance")
		text, err := r.text(name)
		var row []int
		if err == nil {
			row, err = parseDistances(text)
		}
		if err != nil {
			r.warn(name, err, "10 within the node and 20 to others is assumed")
			continue
		}
		of := slices.IndexFunc(columns, func(c []int) bool { return len(c) == len(row) && slices.Contains(c, node) })
		if of < 0 {
			r.warnf(name, "has %d distances for %d nodes; 10 within the node and 20 to others is assumed", len(row),
				len(nodes))
			continue
		}
		for i, to := range columns[of] {
			r.setDistance(node, to, row[i])
		}
	}
	r.mirrorDistances()
}

func (r *reader) nodeList(file string) []int {
	s, err := r.list(nodeDir + "/" + file)
	if err != nil {
		return nil
	}
	return slices.Collect(s.All())
}

func (r *reader) setDistance(from, to, d int) {
	if r.distance[from] == nil {
		r.distance[from] = map[int]int{}
	}
	r.distance[from][to] = d
}

// mirrorDistances gives a node without a row of its own the distances from other nodes to it.
func (r *reader) mirrorDistances() {
	rows := make(map[int]bool, len(r.distance))
	for node := range r.distance {
		rows[node] = true
	}
	for from := range rows {
		for to, d := range r.distance[from] {
			if !rows[to] {
				r.setDistance(to, from, d)
			}
		}
	}
}
