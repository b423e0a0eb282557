package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/topology"
)

// detail is one container with its neighbours.
type detail struct {
	name string
	why  string
	note string             // what the daemon did not say
	topo *topology.Topology // nil: not known yet
}

// take is the daemon's answer about the machine and the container.
func (d *detail) take(s *control.Status, err error) {
	if err == nil {
		for _, c := range s.Containers {
			if c.Namespace+"/"+c.Pod+"/"+c.Container == d.name {
				d.why = c.Why
			}
		}
		d.topo, err = topodoc.Parse(s.Topology)
	}
	if err != nil {
		d.note = err.Error()
	}
}

// lines draws the container's figures, and who is next to it, the nearest first.
func (d *detail) lines(f *Frame, l Look) []string {
	at := slices.IndexFunc(f.Containers, func(r Row) bool { return r.name() == d.name })
	lines := []string{paint(clip(d.name, l.Width), bold, l.Color)}
	if at < 0 {
		lines = append(lines, clip("it has ended", l.Width))
	} else {
		r := &f.Containers[at]
		for _, text := range d.figures(r) {
			lines = append(lines, clip(text, l.Width))
		}
		lines = append(lines, "")
		lines = append(lines, d.neighbours(f, r, l)...)
	}
	foot := "esc: back  q: quit"
	if note := cmp.Or(l.Note, d.note); note != "" {
		foot += "  " + note
	}
	lines = lines[:min(len(lines), max(l.Height-1, 0))]
	return append(lines, clip(foot, l.Width))
}

func (d *detail) figures(r *Row) []string {
	list := []string{
		fmt.Sprintf("class %s, pool %s, CPUs %s", r.Class, poolText(r), r.CPUs),
	}
	var known []string
	for _, f := range []struct{ form, value string }{
		{"usage %s CPUs", number(r.Usage, "%.2f")}, {"CPI %s", number(r.Sample.CPI, "%.2f")},
		{"MPKI %s", number(r.MPKI, "%.2f")}, {"waits %s %% of the time", strings.TrimSpace(waitText(r))},
	} {
		if f.value != unknown {
			known = append(known, fmt.Sprintf(f.form, f.value))
		}
	}
	list = append(list, cmp.Or(strings.Join(known, ", "), "nothing is known of its use yet"))
	if r.Lacks != "" {
		list = append(list, "disturbed in the last ten minutes: it lacked "+r.Lacks)
	}
	if r.Throttled != "" {
		list = append(list, "throttled: "+r.Throttled)
	}
	if r.Why != "" {
		list = append(list, "not counted: "+r.Why)
	}
	if d.why != "" {
		list = append(list, "why there: "+d.why)
	}
	return list
}

// neighbour is another container, and what the two share; the nearest has the lowest rank.
type neighbour struct {
	row    *Row
	rank   int
	shares string
}

func (d *detail) neighbours(f *Frame, r *Row, l Look) []string {
	own, err := cpuset.Parse(r.CPUs)
	if err != nil || own.IsEmpty() {
		return []string{clip("its CPUs are not known, so neither are its neighbours", l.Width)}
	}
	var list []neighbour
	for i := range f.Containers {
		other := &f.Containers[i]
		theirs, err := cpuset.Parse(other.CPUs)
		if other.name() == d.name || err != nil {
			continue
		}
		if rank, shares := d.shared(own, theirs); shares != "" {
			list = append(list, neighbour{other, rank, shares})
		}
	}
	slices.SortStableFunc(list, func(a, b neighbour) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), larger(a.row.Usage, b.row.Usage),
			cmp.Compare(a.row.name(), b.row.name()))
	})
	lines := []string{clip(count(len(list), "neighbour")+", the nearest first", l.Width),
		paint(clip(fmt.Sprintf("%-16s %-6s %6s %6s %s", "SHARES", "CLASS", "USAGE", "CPI", "CONTAINER"), l.Width),
			inverse, l.Color)}
	for _, n := range list {
		lines = append(lines, clip(fmt.Sprintf("%-16s %-6s %6s %6s %s", n.shares, n.row.Class,
			number(n.row.Usage, "%.2f"), number(n.row.Sample.CPI, "%.2f"),
			printable.Clip(n.row.name(), longest)), l.Width))
	}
	return lines
}

// shared says what two sets of CPUs have in common; empty: nothing, or it is not known.
func (d *detail) shared(a, b cpuset.Set) (rank int, what string) {
	if both := a.And(b); !both.IsEmpty() {
		return 0, count(both.Count(), "CPU")
	}
	if d.topo == nil {
		return 0, ""
	}
	if !d.topo.Siblings(a).And(b).IsEmpty() {
		return 1, "a core"
	}
	for _, domain := range d.topo.L3s() {
		if !domain.CPUs.And(a).IsEmpty() && !domain.CPUs.And(b).IsEmpty() {
			return 2, "an L3"
		}
	}
	if !d.topo.NodesOf(a).And(d.topo.NodesOf(b)).IsEmpty() {
		return 3, "a NUMA node"
	}
	return 0, ""
}
