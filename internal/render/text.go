package render

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/topology"
)

// textWidth is the most columns that a map takes.
const textWidth = 100

// maxOwners bounds the legend of owners.
const maxOwners = 64

// mark is one thread on the map.
type mark struct {
	cpu     int
	symbol  rune
	ansi    string
	changed bool
}

// line is one row of the map: a heading, or some cores of one L3.
type line struct {
	heading string
	label   string
	cores   [][]mark
}

// Text draws the map of a machine for a terminal: a line an L3 (several where
// it is wide), a group of characters a core, a character a thread. Without
// colour the characters alone say everything.
func Text(w io.Writer, v View, color bool) error {
	if v.Topology == nil {
		return errNoTopology
	}
	all := owners(v)
	m := newMap(v, all, nil, textWidth)
	var b strings.Builder
	b.WriteString(title(v))
	for _, l := range m.lines {
		m.write(&b, l, color)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	writeLegend(&b, v, all, color)
	_, err := io.WriteString(w, b.String())
	return err
}

func title(v View) string {
	summary := summaryOf(v.Topology)
	if v.Title == "" {
		return summary + "\n"
	}
	return printable.Clip(v.Title, 60) + ": " + summary + "\n"
}

func summaryOf(t *topology.Topology) string {
	text := fmt.Sprintf("%s, %s, %s, %s, %s", count(t.Online().Count(), "CPU"), count(len(t.Cores()), "core"),
		count(len(t.L3s()), "L3"), count(len(t.Nodes()), "NUMA node"), count(len(t.Sockets()), "socket"))
	if off := t.Offline(); !off.IsEmpty() {
		text += fmt.Sprintf(", %d offline", off.Count())
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// textMap is the laid-out map; all lines share the width of the label column.
type textMap struct {
	view    View
	owners  map[CPUInfo]*owner
	changed func(cpu int) bool
	lines   []line
	label   int // columns of the widest label
	width   int
}

func newMap(v View, all map[CPUInfo]*owner, changed func(int) bool, width int) *textMap {
	m := &textMap{view: v, owners: all, changed: changed, width: width}
	for _, p := range layout(v.Topology) {
		m.lines = append(m.lines, line{heading: p.name})
		for _, n := range p.nodes {
			m.lines = append(m.lines, line{heading: "  " + n.name})
			for _, d := range n.l3s {
				m.addL3(d)
			}
		}
	}
	for _, name := range memoryNodes(v.Topology) {
		m.lines = append(m.lines, line{heading: name + ", memory only"})
	}
	for _, l := range m.lines {
		m.label = max(m.label, utf8.RuneCountInString(l.label))
	}
	return m
}

// addL3 adds the lines of one L3: efficiency cores start a line of their own,
// and no line is wider than the map.
func (m *textMap) addL3(d l3Place) {
	t := m.view.Topology
	perCore := t.ThreadsPerCore() + 1
	perLine := max(1, (m.width-m.labelRoom())/perCore)
	if perLine >= 8 {
		perLine -= perLine % 8
	}
	for _, run := range runsOfKind(t, d.cores) {
		for len(run) > 0 {
			n := min(perLine, len(run))
			m.lines = append(m.lines, m.coreLine(d, run[:n]))
			run = run[n:]
		}
	}
}

// labelRoom is the width of the widest label that coreLine makes.
func (m *textMap) labelRoom() int { return 4 + len("L3 0000 ") + listRoom + len(" E-cores") + 2 }

const listRoom = 18

func (m *textMap) coreLine(d l3Place, cores []int) line {
	t := m.view.Topology
	var cpus cpuset.Set
	l := line{}
	for _, c := range cores {
		var marks []mark
		for _, cpu := range t.Cores()[c].CPUs {
			cpus.Add(cpu)
			marks = append(marks, m.mark(cpu))
		}
		l.cores = append(l.cores, marks)
	}
	kind := ""
	if t.Cores()[cores[0]].Kind == topology.Efficiency {
		kind = " E-cores"
	}
	l.label = fmt.Sprintf("    L3 %-3d %s%s", d.id, brief(cpus, listRoom), kind)
	return l
}

func (m *textMap) mark(cpu int) mark {
	i := m.view.info(cpu)
	l := lookOf(i.Pool)
	k := mark{cpu: cpu, symbol: l.symbol, ansi: l.ansi}
	if o := m.owners[i]; o != nil {
		k.symbol = o.symbol()
	}
	k.changed = m.changed != nil && m.changed(cpu)
	return k
}

// write writes one line without its end.
func (m *textMap) write(b *strings.Builder, l line, color bool) {
	if l.heading != "" {
		b.WriteString(l.heading)
		return
	}
	fmt.Fprintf(b, "%-*s ", m.label, l.label)
	for _, core := range l.cores {
		b.WriteByte(' ')
		for _, k := range core {
			ansi := k.ansi
			if k.changed {
				ansi += ";4;7"
			}
			paint(b, string(k.symbol), ansi, color)
		}
	}
}

// columns is the width of a line on the screen.
func (m *textMap) columns(l line) int {
	if l.heading != "" {
		return utf8.RuneCountInString(l.heading)
	}
	n := m.label + 1
	for _, core := range l.cores {
		n += 1 + len(core)
	}
	return n
}

func paint(b *strings.Builder, text, ansi string, color bool) {
	if !color {
		b.WriteString(text)
		return
	}
	b.WriteString("\x1b[" + ansi + "m" + text + "\x1b[0m")
}

func orNow(s cpuset.Set) string {
	if s.IsEmpty() {
		return "none now"
	}
	return brief(s, 25)
}

// writeLegend names the owners, then the pools.
func writeLegend(b *strings.Builder, v View, all map[CPUInfo]*owner, color bool) {
	for n, o := range byIndex(all) {
		if n == maxOwners {
			fmt.Fprintf(b, "  … and %d more owners\n", len(all)-n)
			break
		}
		l := lookOf(o.Pool)
		b.WriteString("  ")
		paint(b, string(o.symbol()), l.ansi, color)
		fmt.Fprintf(b, "  %-44s %-24s %s\n", printable.Clip(o.Owner, 44), l.name, orNow(o.cpus))
	}
	order, sets := v.poolSets()
	for _, l := range order {
		b.WriteString("  ")
		paint(b, string(l.symbol), l.ansi, color)
		fmt.Fprintf(b, "  %-24s %s\n", l.name, brief(sets[l.pool], 68))
	}
	for _, note := range v.Notes {
		b.WriteString("  " + printable.Clip(note, textWidth-2) + "\n")
	}
}
