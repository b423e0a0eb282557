package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/topology"
)

// Describe says what a machine is made of, a line an L3: what
// `quietcore topology` prints for people. Warnings are what /sys left open.
func Describe(w io.Writer, t *topology.Topology, warnings []string, color bool) error {
	var b strings.Builder
	paint(&b, summaryOf(t), "1", color)
	b.WriteByte('\n')
	for _, s := range layout(t) {
		paint(&b, s.name, "1", color)
		b.WriteByte('\n')
		for _, n := range s.nodes {
			fmt.Fprintf(&b, "  %s\n", n.name)
			for _, d := range n.l3s {
				for _, run := range runsOfKind(t, d.cores) {
					b.WriteString(describeCores(t, d, run))
				}
			}
		}
	}
	for _, name := range memoryNodes(t) {
		fmt.Fprintf(&b, "%s, memory only\n", name)
	}
	describeDistances(&b, t)
	describeSet(&b, "offline", t.Offline())
	describeSet(&b, "isolated", t.Isolated())
	for _, text := range warnings {
		paint(&b, "warning", "33", color)
		b.WriteString(": " + printable.Clip(text, 400) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func describeSet(b *strings.Builder, name string, s cpuset.Set) {
	if !s.IsEmpty() {
		fmt.Fprintf(b, "%-9s CPUs %s\n", name, brief(s, 80))
	}
}

// describeCores is one line: the CPUs of an L3, and its cores with their
// threads, the middle ones left out where there are many.
func describeCores(t *topology.Topology, d l3Place, cores []int) string {
	const most = 6
	var cpus cpuset.Set
	groups := make([]string, len(cores))
	for i, c := range cores {
		threads := cpuset.Of(t.Cores()[c].CPUs...)
		cpus = cpus.Or(threads)
		groups[i] = threads.String()
	}
	what := "core"
	if hybridLook(t) {
		what = t.Cores()[cores[0]].Kind.String() + " core"
	}
	if len(groups) > most {
		groups = append(groups[:most-2:most-2], "…", groups[len(groups)-1])
	}
	return fmt.Sprintf("    L3 %-4d CPUs %-18s %s: %s\n", d.id, brief(cpus, 18), count(len(cores), what),
		strings.Join(groups, " "))
}

// describeDistances prints the matrix where there is more than one node.
func describeDistances(b *strings.Builder, t *topology.Topology) {
	nodes := t.Nodes()
	const most = 16 // wider ones do not fit a terminal
	if len(nodes) < 2 || len(nodes) > most {
		return
	}
	b.WriteString("distances\n       ")
	for _, n := range nodes {
		fmt.Fprintf(b, "%5d", n.ID)
	}
	b.WriteByte('\n')
	for i, n := range nodes {
		fmt.Fprintf(b, "  %5d", n.ID)
		for j := range nodes {
			fmt.Fprintf(b, "%5d", t.Distance(i, j))
		}
		b.WriteByte('\n')
	}
}
