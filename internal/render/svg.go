package render

import (
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/topology"
)

const (
	headH   = 72
	legendH = 24
)

func itoa(n int) string { return strconv.Itoa(n) }

// SVG draws the machine as a standalone picture: sockets, NUMA nodes, L3s,
// cores and threads, coloured by pool, with a tooltip on every CPU and a
// legend. It needs no font, script or file from anywhere.
func SVG(w io.Writer, v View) error {
	if v.Topology == nil {
		return errNoTopology
	}
	all := owners(v)
	sockets := boxes(v.Topology)
	right, bottom := flow(sockets, pagePad, headH, pageW-pagePad)
	for _, s := range sockets {
		s.place(0, 0)
	}
	entries := legend(v, all)
	right = max(right, 640, pagePad+len(subtitle(v.Topology))*15/2)
	d := &drawing{view: v, owners: all}
	legendTop := bottom + 28
	columns := max(1, (right-pagePad)/560)
	rows := (len(entries) + columns - 1) / columns
	d.open(right+pagePad, legendTop+rows*legendH+len(v.Notes)*18+pagePad)
	for _, s := range sockets {
		d.box(s)
	}
	d.legend(entries, legendTop, columns, (right-pagePad)/columns)
	d.notes(legendTop + rows*legendH + 8)
	d.b.WriteString("</svg>\n")
	_, err := io.WriteString(w, d.b.String())
	return err
}

type drawing struct {
	view   View
	owners map[CPUInfo]*owner
	b      strings.Builder
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// xmlText is a tenant's or our own text, safe in XML and bounded.
func xmlText(s string, most int) string { return html.EscapeString(printable.Clip(s, most)) }

func (d *drawing) open(w, h int) {
	name := d.view.Title
	if name == "" {
		name = "CPUs"
	}
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", w,
		h, w, h)
	d.printf("<title>%s</title>\n", xmlText(name, 80))
	d.b.WriteString(`<style>
text{font-family:"DejaVu Sans","Segoe UI",Helvetica,Arial,sans-serif;fill:#1c2333}
.page{fill:#ffffff}
.socket{fill:#f3f5f9;stroke:#aab2c2;stroke-width:1.2}
.node{fill:#fafbfd;stroke:#c3cad7}
.l3{fill:#ffffff;stroke:#c3cad7}
.core{fill:#e4e8ef}
.e{fill:#efe6d8;stroke:#a8824a;stroke-dasharray:3 2}
.cell{stroke:#5b6577;stroke-width:.6}
.off{stroke-dasharray:3 2}
.h1{font-size:21px;font-weight:600}
.sub{font-size:13px;fill:#4b5464}
.h{font-size:12.5px;font-weight:600}
.hl{font-size:11.5px;fill:#4b5464}
.tag{font-size:12px;font-weight:700;text-anchor:middle}
.id{font-size:9.5px;text-anchor:middle}
.leg{font-size:12.5px}
.cpus{font-size:11.5px;fill:#4b5464}
</style>
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" ` +
		`patternTransform="rotate(45)"><rect width="6" height="6" fill="#ffffff"/>` +
		`<line x1="0" y1="0" x2="0" y2="6" stroke="#b9bfca" stroke-width="2"/></pattern></defs>
`)
	d.printf(`<rect class="page" width="%d" height="%d"/>`+"\n", w, h)
	d.printf(`<text class="h1" x="%d" y="34">%s</text>`+"\n", pagePad, xmlText(name, 60))
	d.printf(`<text class="sub" x="%d" y="56">%s</text>`+"\n", pagePad, html.EscapeString(subtitle(d.view.Topology)))
}

func subtitle(t *topology.Topology) string {
	text := summaryOf(t)
	if names := memoryNodes(t); len(names) > 0 {
		text += "; memory only: " + strings.Join(names, "; ")
	}
	if hybridLook(t) {
		text += "; dashed frame: efficiency core"
	}
	return printable.Clip(text, 150)
}

func (d *drawing) box(b *box) {
	if b.kind == "core" {
		d.core(b)
		return
	}
	radius, class, baseline := 10, "h", 18
	if b.kind == "l3" {
		radius, class, baseline = 5, "hl", 18
	}
	d.printf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`, b.kind, b.x, b.y, b.w, b.h, radius)
	d.printf(`<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, b.x+boxPad, b.y+baseline, xmlText(b.title, 60))
	for _, i := range b.inner {
		d.box(i)
	}
}

func (d *drawing) core(b *box) {
	t := d.view.Topology
	core := t.Cores()[b.core]
	class := "core"
	if hybridLook(t) && core.Kind.String() == "efficiency" {
		class = "core e"
	}
	d.printf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`+"\n", class, b.x, b.y, b.w, b.h)
	for i, cpu := range core.CPUs {
		d.cell(cpu, b.x+corePad+i*cellW, b.y+corePad)
	}
}

// cell is one CPU: its pool by colour and by symbol, its number, and in the
// tooltip all that is known.
func (d *drawing) cell(cpu, x, y int) {
	info := d.view.info(cpu)
	l := lookOf(info.Pool)
	tag := string(l.symbol)
	if o := d.owners[info]; o != nil {
		tag = o.tag()
	}
	d.printf(`<g><title>%s</title>`, xmlText(d.tooltip(cpu, info, l), 240))
	d.swatch(l, x+1, y, cellW-2, cellH)
	d.printf(`<text class="tag" x="%d" y="%d" style="fill:%s">%s</text>`, x+cellW/2, y+14, l.ink, xmlText(tag, 3))
	d.printf(`<text class="id" x="%d" y="%d" style="fill:%s">%d</text></g>`+"\n", x+cellW/2, y+27, l.ink, cpu)
}

func (d *drawing) swatch(l look, x, y, w, h int) {
	fill, class := l.fill, "cell"
	switch l.pool {
	case Withheld:
		fill = "url(#hatch)"
	case Offline:
		class = "cell off"
	}
	d.printf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"/>`, class, x, y, w, h, fill)
}

func (d *drawing) tooltip(cpu int, info CPUInfo, l look) string {
	c, _ := d.view.Topology.CPU(cpu)
	text := fmt.Sprintf("CPU %d: %s", cpu, l.name)
	if info.Owner != "" {
		text += ", " + printable.Clip(info.Owner, 100)
	}
	text += fmt.Sprintf("; core %d, L3 %d, node %d, socket %d", c.Core, c.L3, c.Node, c.Socket)
	if hybridLook(d.view.Topology) {
		text += ", " + c.Kind.String() + " core"
	}
	return text
}

// entry is one line of the legend.
type entry struct {
	look       look
	tag        string
	name, cpus string
}

func legend(v View, all map[CPUInfo]*owner) (out []entry) {
	for n, o := range byIndex(all) {
		if n == maxOwners {
			out = append(out, entry{look: lookOf(""), tag: "…", name: fmt.Sprintf("and %d more owners", len(all)-n)})
			break
		}
		l := lookOf(o.Pool)
		out = append(out, entry{l, o.tag(), printable.Clip(o.Owner, 40), l.name + ": " + brief(o.cpus, 20)})
	}
	order, sets := v.poolSets()
	for _, l := range order {
		out = append(out, entry{l, string(l.symbol), l.name, brief(sets[l.pool], 40)})
	}
	return out
}

func (d *drawing) legend(entries []entry, top, columns, width int) {
	rows := (len(entries) + columns - 1) / columns
	for i, e := range entries {
		x, y := pagePad+i/max(rows, 1)*width, top+i%max(rows, 1)*legendH
		d.swatch(e.look, x, y, 24, 18)
		d.printf(`<text class="tag" x="%d" y="%d" style="fill:%s">%s</text>`, x+12, y+13, e.look.ink,
			html.EscapeString(e.tag))
		d.printf(`<text class="leg" x="%d" y="%d">%s<tspan class="cpus" dx="10">%s</tspan></text>`+"\n", x+34, y+14,
			html.EscapeString(e.name), html.EscapeString(e.cpus))
	}
}

func (d *drawing) notes(top int) {
	for i, n := range d.view.Notes {
		d.printf(`<text class="sub" x="%d" y="%d">%s</text>`+"\n", pagePad, top+12+i*18, xmlText(n, 140))
	}
}
