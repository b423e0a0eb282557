package render

import "github.com/quietcore/quietcore/topology"

// Sizes in pixels.
const (
	cellW, cellH = 28, 32
	corePad      = 3
	boxPad       = 10
	boxHead      = 26
	gap          = 8
	pageW        = 1320
	pagePad      = 28
)

// box is a rectangle of the drawing with what lies in it; x and y are absolute
// once place has run.
type box struct {
	x, y, w, h int
	kind       string // CSS class: socket, node, l3, core
	title      string
	core       int // core index, of a core
	inner      []*box
}

// boxes is the machine as nested rectangles.
func boxes(t *topology.Topology) []*box {
	var out []*box
	for _, s := range layout(t) {
		nodeW := pageW - 2*pagePad - 2*boxPad
		if len(s.nodes) > 1 {
			nodeW = (nodeW - gap) / 2
		}
		socket := &box{kind: "socket", title: s.name}
		for _, n := range s.nodes {
			node := &box{kind: "node", title: n.name}
			for _, d := range n.l3s {
				node.inner = append(node.inner, l3Box(t, d, nodeW-2*boxPad))
			}
			node.wrap(nodeW)
			socket.inner = append(socket.inner, node)
		}
		socket.wrap(pageW - 2*pagePad)
		out = append(out, socket)
	}
	return out
}

// l3Box lays cores out in rows that are about twice as wide as they are many.
func l3Box(t *topology.Topology, d l3Place, most int) *box {
	b := &box{kind: "l3", title: "L3 " + itoa(d.id)}
	widest := 0
	for _, c := range d.cores {
		n := len(t.Cores()[c].CPUs)
		core := &box{kind: "core", core: c, w: n*cellW + 2*corePad, h: cellH + 2*corePad}
		widest = max(widest, core.w)
		b.inner = append(b.inner, core)
	}
	perRow := len(b.inner)
	if perRow > 4 {
		perRow = min(max(4, (perRow+1)/2), 8)
	}
	b.wrap(min(most, perRow*(widest+gap)-gap+2*boxPad))
	return b
}

// wrap places the inner boxes in rows of at most the given outer width and
// takes the size that they need; positions are relative.
func (b *box) wrap(most int) {
	b.w, b.h = flow(b.inner, boxPad, boxHead, balanced(b.inner, most-2*boxPad)+boxPad)
	b.w, b.h = max(b.w+boxPad, len(b.title)*8+2*boxPad), b.h+boxPad
}

// balanced is the width at which the rows that are needed anyway become equally
// full: four boxes of which three fit become two rows of two.
func balanced(all []*box, most int) int {
	widest := 1
	for _, b := range all {
		widest = max(widest, b.w)
	}
	perRow := max(1, (most+gap)/(widest+gap))
	rows := max(1, (len(all)+perRow-1)/perRow)
	perRow = max(1, (len(all)+rows-1)/rows)
	return perRow*(widest+gap) - gap
}

// flow places boxes from left to right, top to bottom, and returns the right
// and lower ends.
func flow(all []*box, left, top, right int) (w, h int) {
	x, y, row := left, top, 0
	for _, b := range all {
		if x > left && x+b.w > right {
			x, y, row = left, y+row+gap, 0
		}
		b.x, b.y = x, y
		x += b.w + gap
		row = max(row, b.h)
		w, h = max(w, b.x+b.w), max(h, b.y+b.h)
	}
	return w, h
}

// place makes relative positions absolute.
func (b *box) place(dx, dy int) {
	b.x += dx
	b.y += dy
	for _, i := range b.inner {
		i.place(b.x, b.y)
	}
}
