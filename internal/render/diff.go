package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/printable"
)

// Diff draws what changed between two moments of a machine: side by side where
// both maps fit, else as pairs of the lines that differ, marked - and +. Carets
// stand under the CPUs that changed; below, every change is described in words.
func Diff(w io.Writer, before, after View, color bool) error {
	if before.Topology == nil || after.Topology == nil {
		return errNoTopology
	}
	all := owners(before, after)
	changed := func(cpu int) bool { return before.state(cpu) != after.state(cpu) }
	left, right := newMap(before, all, nil, textWidth), newMap(after, all, changed, textWidth)
	var b strings.Builder
	b.WriteString(title(after))
	if len(left.lines) == len(right.lines) && left.widest()+right.widest()+3 <= textWidth {
		sideBySide(&b, left, right, color)
	} else {
		stacked(&b, left, right, color)
	}
	b.WriteByte('\n')
	writeChanges(&b, before, after)
	b.WriteByte('\n')
	for _, o := range all {
		o.cpus = cpuset.Set{}
	}
	for _, c := range after.Topology.CPUs() {
		if o := all[after.info(c.ID)]; o != nil {
			o.cpus.Add(c.ID)
		}
	}
	writeLegend(&b, after, all, color)
	_, err := io.WriteString(w, b.String())
	return err
}

// state is what a change is a change of.
func (v View) state(cpu int) CPUInfo {
	if _, known := v.Topology.CPU(cpu); !known {
		return CPUInfo{Pool: Offline}
	}
	return v.info(cpu)
}

func (m *textMap) widest() (n int) {
	for _, l := range m.lines {
		n = max(n, m.columns(l))
	}
	return n
}

func sideBySide(b *strings.Builder, left, right *textMap, color bool) {
	width := left.widest()
	fmt.Fprintf(b, "%-*s | %s\n", width, "before", "after")
	for i, l := range left.lines {
		left.write(b, l, color)
		fmt.Fprintf(b, "%*s | ", width-left.columns(l), "")
		right.write(b, right.lines[i], color)
		b.WriteByte('\n')
		if carets := right.carets(right.lines[i]); carets != "" {
			fmt.Fprintf(b, "%*s | %s\n", width, "", carets)
		}
	}
}

// stacked shows only the lines that hold a change, under their headings.
func stacked(b *strings.Builder, left, right *textMap, color bool) {
	old := map[int]line{} // by first CPU: the other map may have other lines
	for _, l := range left.lines {
		if len(l.cores) > 0 {
			old[l.cores[0][0].cpu] = l
		}
	}
	var headings []line
	for _, l := range right.lines {
		if l.heading != "" {
			depth := len(l.heading) - len(strings.TrimLeft(l.heading, " "))
			headings = slices.DeleteFunc(headings, func(h line) bool {
				return len(h.heading)-len(strings.TrimLeft(h.heading, " ")) >= depth
			})
			headings = append(headings, l)
			continue
		}
		carets := right.carets(l)
		if carets == "" {
			continue
		}
		for _, h := range headings {
			b.WriteString("  " + h.heading + "\n")
		}
		headings = nil
		if was, there := old[l.cores[0][0].cpu]; there {
			b.WriteString("- ")
			left.write(b, was, color)
			b.WriteByte('\n')
		}
		b.WriteString("+ ")
		right.write(b, l, color)
		b.WriteString("\n  " + carets + "\n")
	}
}

// carets is the line that points at the changed CPUs of the line above.
func (m *textMap) carets(l line) string {
	text := strings.Repeat(" ", m.label+1)
	any := false
	for _, core := range l.cores {
		text += " "
		for _, k := range core {
			if k.changed {
				any = true
				text += "^"
			} else {
				text += " "
			}
		}
	}
	if !any {
		return ""
	}
	return strings.TrimRight(text, " ")
}

// writeChanges describes every change once, with all its CPUs.
func writeChanges(b *strings.Builder, before, after View) {
	type change struct{ from, to CPUInfo }
	cpus := map[change]cpuset.Set{}
	var order []change
	known := before.Topology.Known().Or(after.Topology.Known())
	for cpu := range known.All() {
		c := change{before.state(cpu), after.state(cpu)}
		if c.from == c.to {
			continue
		}
		s, seen := cpus[c]
		if !seen {
			order = append(order, c)
		}
		s.Add(cpu)
		cpus[c] = s
	}
	if len(order) == 0 {
		b.WriteString("  nothing changed\n")
	}
	for n, c := range order {
		if n == maxOwners {
			fmt.Fprintf(b, "  … and %d more changes\n", len(order)-n)
			break
		}
		fmt.Fprintf(b, "  %-18s %s -> %s\n", brief(cpus[c], 18), c.from.words(), c.to.words())
	}
}

func (i CPUInfo) words() string {
	text := lookOf(i.Pool).name
	if i.Owner != "" {
		text += " (" + printable.Clip(i.Owner, 44) + ")"
	}
	return text
}
