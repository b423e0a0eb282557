package machine

import (
	"fmt"
	"strconv"
	"strings"
)

// Grid is a regular machine. Counts are per parent, as in a scenario file:
// {2,2,1,2,2,"adjacent"} is 16 CPUs in 8 cores, 4 L3 domains and 4 NUMA nodes.
type Grid struct {
	Sockets        int
	NodesPerSocket int
	L3PerNode      int
	CoresPerL3     int
	ThreadsPerCore int
	Numbering      string // "adjacent" or "split"
	Isolated       string // CPUs that the kernel isolates, as a list
}

// NotRealisable says that no virtual machine can be what a scenario wants. It is
// an answer about the scenario, not a failure: the command exits with 2.
type NotRealisable struct{ Why string }

func (e NotRealisable) Error() string { return "not realisable: " + e.Why }

// CPUs is the number of logical CPUs.
func (g Grid) CPUs() int {
	return g.Sockets * g.NodesPerSocket * g.cpusPerNode()
}

func (g Grid) cpusPerNode() int { return g.L3PerNode * g.CoresPerL3 * g.ThreadsPerCore }

func (g Grid) nodes() int { return g.Sockets * g.NodesPerSocket }

// Key names the machine in the cache and groups scenarios that can share it.
func (g Grid) Key() string {
	key := fmt.Sprintf("s%dn%dl%dc%dt%d", g.Sockets, g.NodesPerSocket, g.L3PerNode, g.CoresPerL3, g.ThreadsPerCore)
	if g.Isolated != "" {
		key += "i" + g.Isolated
	}
	return key
}

// maxCPUs is what xAPIC ids of QEMU's pc machine can name.
const maxCPUs = 255

// Check says whether QEMU can be this machine.
func (g Grid) Check() error {
	for name, n := range map[string]int{"sockets": g.Sockets, "nodesPerSocket": g.NodesPerSocket,
		"l3PerNode":  g.L3PerNode,
		"coresPerL3": g.CoresPerL3, "threadsPerCore": g.ThreadsPerCore} {
		if n < 1 {
			return fmt.Errorf("topology: %s is %d, must be at least 1", name, n)
		}
	}
	switch {
	case g.Numbering == "split" && g.ThreadsPerCore > 1:
		return NotRealisable{"QEMU numbers siblings as neighbours, never split"}
	case g.Numbering != "" && g.Numbering != "adjacent" && g.Numbering != "split":
		return fmt.Errorf("topology: numbering %q, must be adjacent or split", g.Numbering)
	case g.ThreadsPerCore > 2:
		return NotRealisable{fmt.Sprintf("%d threads a core: QEMU's x86 machines are tried with 1 or 2",
			g.ThreadsPerCore)}
	case g.CPUs() > maxCPUs:
		return NotRealisable{fmt.Sprintf("%d CPUs: QEMU's pc machine has at most %d", g.CPUs(), maxCPUs)}
	}
	return nil
}

// qemuArgs maps an L3 domain to a die: QEMU gives each die an L3 of its own, and
// a NUMA node may hold several dies. The first CPUs are present; the others are sockets for later.
func (g Grid) qemuArgs(memoryMiB, present int) []string {
	smp := fmt.Sprintf("%d,maxcpus=%d,sockets=%d,dies=%d,cores=%d,threads=%d",
		present, g.CPUs(), g.Sockets, g.NodesPerSocket*g.L3PerNode, g.CoresPerL3, g.ThreadsPerCore)
	args := []string{"-smp", smp, "-m", strconv.Itoa(memoryMiB) + "M"}
	if g.nodes() == 1 {
		return args
	}
	size := memoryMiB / g.nodes()
	for n := range g.nodes() {
		if n == g.nodes()-1 {
			size = memoryMiB - size*(g.nodes()-1)
		}
		first, last := n*g.cpusPerNode(), (n+1)*g.cpusPerNode()-1
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", n, size),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=m%d", n, first, last, n))
	}
	return append(args, g.distanceArgs()...)
}

// distanceArgs states the distances that a grid has in `quietcore simulate`.
func (g Grid) distanceArgs() []string {
	var args []string
	for a := range g.nodes() {
		for b := range g.nodes() {
			if a == b {
				continue
			}
			args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", a, b, g.distance(a, b)))
		}
	}
	return args
}

func (g Grid) distance(a, b int) int {
	switch {
	case a == b:
		return 10
	case a/g.NodesPerSocket == b/g.NodesPerSocket:
		return 12
	default:
		return 20
	}
}

// String reads like the sentence one would say.
func (g Grid) String() string {
	var parts []string
	add := func(n int, one, many string) {
		if n == 1 {
			parts = append(parts, "1 "+one)
			return
		}
		parts = append(parts, strconv.Itoa(n)+" "+many)
	}
	add(g.Sockets, "socket", "sockets")
	add(g.nodes(), "NUMA node", "NUMA nodes")
	add(g.nodes()*g.L3PerNode, "L3 domain", "L3 domains")
	add(g.CPUs(), "CPU", "CPUs")
	return strings.Join(parts, ", ")
}
