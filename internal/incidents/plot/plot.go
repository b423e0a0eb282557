// Package plot draws one incident: the victim's CPI with its normal value and
// threshold, the suspects' CPU use below on the same time axis, and the times of caps
// and moves. [SVG] writes the drawing, [HTML] a page with it.
//
//	plot.SVG(w, incident)   // a picture that stands alone
//	plot.HTML(w, incident)  // a page with it and the tables
//
// Both follow the reader's light or dark setting, distinguish lines without colour too,
// and load nothing. Names come from tenants: the output contains neither their markup
// nor their control characters.
package plot

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
)

const (
	width       = 1000
	left, right = 74, 270 // of the plots; the right is for the names of lines
	cpiTop      = 92
	cpiHeight   = 220
	usageTop    = cpiTop + cpiHeight + 46
	usageHeight = 170
	axisHeight  = 46
	plotWidth   = width - left - right
	maxLines    = 6 // suspects that are drawn
)

// SVG draws the incident.
func SVG(w io.Writer, i *incidents.Incident) error {
	d := newDrawing(i)
	d.frame()
	d.spans()
	d.cpi()
	d.coins()
	d.usage()
	d.time()
	d.b.WriteString("</svg>\n")
	_, err := io.WriteString(w, d.b.String())
	return err
}

type drawing struct {
	i     *incidents.Incident
	lines []incidents.Suspect
	x     scale // seconds from the incident
	b     strings.Builder
}

func newDrawing(i *incidents.Incident) *drawing {
	d := &drawing{i: i, lines: drawn(i)}
	low, high := -60.0, 60.0
	see := func(s float64) { low, high = min(low, s), max(high, s) }
	for _, p := range i.Series {
		see(p.Offset.Seconds())
	}
	for _, s := range d.lines {
		for _, p := range s.Series {
			see(p.Offset.Seconds())
		}
	}
	d.x = scale{low, high, left, left + plotWidth}
	return d
}

// drawn are the antagonists, then the most suspicious others that have a series.
func drawn(i *incidents.Incident) []incidents.Suspect {
	list := slices.DeleteFunc(slices.Clone(i.Suspects), func(s incidents.Suspect) bool { return len(s.Series) == 0 })
	rank := func(s incidents.Suspect) int {
		if slices.ContainsFunc(i.Antagonists, s.Same) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b incidents.Suspect) int { return cmp.Compare(rank(a), rank(b)) })
	return list[:min(len(list), maxLines)]
}

// scale maps values to pixels.
type scale struct{ low, high, from, to float64 }

func (s scale) at(v float64) float64 {
	if s.high <= s.low {
		return s.from
	}
	return s.from + (s.to-s.from)*(v-s.low)/(s.high-s.low)
}

func (s scale) clamped(v float64) float64 { return s.at(max(s.low, min(s.high, v))) }

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// text escapes untrusted text for XML and bounds its length.
func text(s string, most int) string { return html.EscapeString(clean(s, most)) }

func clean(s string, most int) string {
	var out []rune
	for _, r := range s {
		if len(out) == most {
			out[most-1] = '…'
			break
		}
		if (r < ' ' || r > '~') && r != '…' { // what was cut before stays cut
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

// Colours are those of Okabe and Ito, which colour-blind people can tell apart,
// darker on white and lighter on black; each line has dashes and a mark of its own
// in addition.
const style = `<style>
text{font-family:"DejaVu Sans","Segoe UI",Helvetica,Arial,sans-serif;font-size:12px;fill:#1c2333}
.page{fill:#ffffff}
.h1{font-size:18px;font-weight:600}
.sub{font-size:13px;fill:#4b5464}
.halo{paint-order:stroke;stroke:#ffffff;stroke-width:4px;stroke-linejoin:round}
.axis{stroke:#5b6577;fill:none}
.grid{stroke:#e1e5ec;fill:none}
.unit{font-size:12px;font-weight:600}
.span{fill:#e69f00;fill-opacity:.20}
.move{fill:#56b4e9;fill-opacity:.22}
.coin{fill:none;stroke:#7a5200;stroke-width:.8}
.on{fill:#7a5200}
.edge{stroke:#b37a00;stroke-dasharray:2 3}
.spanlabel{font-size:11px;fill:#7a5200}
.now{stroke:#1c2333;stroke-width:1.2}
.limit{stroke:#b3261e;stroke-width:1.6;stroke-dasharray:8 4;fill:none}
.mean{stroke:#00694b;stroke-width:1.6;stroke-dasharray:2 3;fill:none}
.victim{stroke:#1c2333;stroke-width:2;fill:none}
.dot{fill:#1c2333}
.bad{fill:#b3261e}
.effect{stroke:#8f3f71;stroke-width:4;stroke-opacity:.75;fill:none}
.s0{stroke:#0063a0}.m0{fill:#0063a0}
.s1{stroke:#c24e00}.m1{fill:#c24e00}
.s2{stroke:#00785a}.m2{fill:#00785a}
.s3{stroke:#a0457b}.m3{fill:#a0457b}
.s4{stroke:#8a6200}.m4{fill:#8a6200}
.s5{stroke:#5b6577}.m5{fill:#5b6577}
.s0,.s1,.s2,.s3,.s4,.s5{fill:none;stroke-width:1.6}
.blamed{stroke-width:3.2}
@media (prefers-color-scheme:dark){
text{fill:#e8ebf1}
.page{fill:#14171d}
.sub{fill:#aab2c2}
.halo{stroke:#14171d}
.axis{stroke:#98a1b3}
.grid{stroke:#2b313c}
.spanlabel{fill:#f0c36a}
.edge{stroke:#e69f00}
.coin{stroke:#f0c36a}
.on{fill:#f0c36a}
.now,.victim{stroke:#e8ebf1}
.dot{fill:#e8ebf1}
.limit{stroke:#ff8a80}
.bad{fill:#ff8a80}
.mean{stroke:#4fd6ae}
.effect{stroke:#e59ac6}
.s0{stroke:#56b4e9}.m0{fill:#56b4e9}
.s1{stroke:#ff8f4d}.m1{fill:#ff8f4d}
.s2{stroke:#2fc99c}.m2{fill:#2fc99c}
.s3{stroke:#e59ac6}.m3{fill:#e59ac6}
.s4{stroke:#e6c34a}.m4{fill:#e6c34a}
.s5{stroke:#98a1b3}.m5{fill:#98a1b3}
.s0,.s1,.s2,.s3,.s4,.s5{fill:none}
}
</style>
`

func dashes(n int) string {
	return []string{"", "9 4", "3 3", "12 3 2 3", "6 2 2 2 2 2", "1 4"}[n%maxLines]
}

func (d *drawing) frame() {
	height := usageTop + usageHeight + axisHeight
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		width, height, width, height)
	d.printf("<title>%s</title>\n", text("Incident "+d.i.ID+": "+d.i.Victim.Name(), 200))
	d.b.WriteString(style)
	d.printf(`<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	d.printf(`<text class="h1" x="16" y="28">%s</text>`+"\n", text(d.i.Victim.Name(), 82))
	d.printf(`<text class="sub" x="16" y="48">%s</text>`+"\n", text(headline(d.i), 128))
	d.printf(`<text class="sub" x="16" y="67">%s</text>`+"\n", text(verdict(d.i), 128))
}

// headline describes the incident in one line.
func headline(i *incidents.Incident) string {
	s := fmt.Sprintf("%s: CPI %s", i.At.UTC().Format("2006-01-02 15:04:05 UTC"), num(i.CPI))
	if i.Spec.Mean > 0 {
		s += fmt.Sprintf(", %.0f %% of its normal %s", 100*i.CPI/i.Spec.Mean, num(i.Spec.Mean))
	}
	if i.Node != "" {
		s += ", on " + i.Node
	}
	return s
}

// verdict describes the consequence in one line.
func verdict(i *incidents.Incident) string {
	s := "verdict: " + i.Verdict
	for n, a := range i.Antagonists {
		if n == 2 {
			s += fmt.Sprintf(" and %d more", len(i.Antagonists)-n)
			break
		}
		s += []string{" ", ", "}[n] + clean(a.Name(), 60)
	}
	if i.Outcome.Result != "" {
		s += "; " + i.Outcome.Result
		if i.Outcome.Before > 0 && i.Outcome.After > 0 {
			first, second := i.Arms()
			s += fmt.Sprintf(": mean CPI %s %s, %s %s", num(i.Outcome.Before), first, num(i.Outcome.After), second)
		}
	}
	return s
}

// num formats three significant digits without exponent, in the range of measurements.
func num(v float64) string {
	if a := math.Abs(v); a != 0 && (a < 0.001 || a >= 1e6) {
		return fmt.Sprintf("%.2e", v)
	}
	digits := 2
	for a := math.Abs(v); a >= 10 && digits > 0; a /= 10 {
		digits--
	}
	s := fmt.Sprintf("%.*f", digits, v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// spans shades the times of caps and moves, through both plots, and names them as far
// as there is room.
func (d *drawing) spans() {
	free := math.Inf(-1) // from where on there is room for a name
	for _, a := range d.i.Actions {
		from, to := d.seconds(a.From), d.seconds(a.End())
		if a.From.IsZero() || a.End().IsZero() || to <= d.x.low || from >= d.x.high || to <= from {
			continue
		}
		class := "span"
		if a.Kind != incidents.Cap {
			class = "move"
		}
		x, end := d.x.clamped(from), d.x.clamped(to)
		d.printf(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`+"\n",
			class, x, cpiTop, end-x, usageTop+usageHeight-cpiTop, text(describe(a), 240))
		for _, edge := range []float64{from, to} {
			if edge > d.x.low && edge < d.x.high {
				d.printf(`<line class="edge" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", d.x.at(edge), d.x.at(edge),
					cpiTop, usageTop+usageHeight)
			}
		}
		free = d.name(a, x, end, free)
	}
}

// name labels a span, briefly if the label would cover the next one, and returns where
// the next label may start.
func (d *drawing) name(a incidents.Action, from, to, free float64) float64 {
	for _, label := range []string{spanLabel(a), shortLabel(a)} {
		long := float64(7 * min(len(label), mostLabel))
		for _, at := range []struct {
			anchor  string
			x, from float64
		}{{"start", from, from}, {"end", to - apart, to - apart - long}} {
			if at.from < free || at.from+long > left+plotWidth+1 {
				continue
			}
			d.printf(`<text class="spanlabel" x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", at.x, cpiTop-5,
				at.anchor, text(label, mostLabel))
			return at.from + long
		}
	}
	return free
}

const (
	mostLabel = 60
	apart     = 4 // of a name and the span after its own
)

func shortLabel(a incidents.Action) string {
	if a.Kind == incidents.Cap {
		return num(float64(a.Milli)/1000) + " CPU"
	}
	return a.Kind
}

func (d *drawing) seconds(t time.Time) float64 { return t.Sub(d.i.At).Seconds() }

func spanLabel(a incidents.Action) string {
	took := a.End().Sub(a.From).Round(time.Second).String()
	if a.Kind == incidents.Cap {
		return fmt.Sprintf("capped at %s CPU for %s", num(float64(a.Milli)/1000), took)
	}
	if a.Off != "" {
		return fmt.Sprintf("moved off CPUs %s for %s", a.Off, took)
	}
	if a.Kind == incidents.Idle {
		return "on idle CPUs only, for " + took
	}
	if a.Kind == incidents.Narrow {
		return "least memory bandwidth, for " + took
	}
	return a.Kind + " for " + took
}

func describe(a incidents.Action) string {
	s := a.Subject.Name() + ": " + spanLabel(a)
	if a.EndedWhy != "" {
		s += "; " + a.EndedWhy
	}
	return s
}

// panel draws the axes of one plot and returns its scale.
func (d *drawing) panel(top, height int, most float64, unit string) scale {
	step := tick(most / 4)
	y := scale{0, math.Ceil(most/step) * step, float64(top + height), float64(top)}
	for v := 0.0; v <= y.high+step/2; v += step {
		d.printf(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, left+plotWidth, y.at(v), y.at(v))
		d.printf(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-8, y.at(v)+4, num(v))
	}
	d.printf(`<path class="axis" d="M%d %dV%dH%d"/>`+"\n", left, top, top+height, left+plotWidth)
	d.printf(`<text class="unit" x="18" y="%d" transform="rotate(-90 18 %d)" text-anchor="middle">%s</text>`+"\n", top+
		height/2, top+height/2, unit)
	return y
}

// tick is the next of 1, 2 and 5 times a power of ten.
func tick(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*power*1.0001 {
			return m * power
		}
	}
	return 10 * power
}

func (d *drawing) cpi() {
	i := d.i
	y := d.panel(cpiTop, cpiHeight, mostCPI(i)*1.05, "CPI (cycles per instruction)")
	notes := []label{}
	level := func(v float64, class, name string) {
		if v > 0 {
			d.printf(`<line class="%s" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", class, left, left+plotWidth,
				y.at(v), y.at(v))
			notes = append(notes, label{at: y.at(v), text: name + " " + num(v), line: class})
		}
	}
	level(i.Threshold, "limit", "threshold")
	level(i.Spec.Mean, "mean", "normal")
	d.path(y, i.Series, "victim", "")
	for _, p := range i.Series {
		class, r := "dot", 2.4
		if i.Threshold > 0 && p.Value > i.Threshold {
			class, r = "bad", 3.6
		}
		x := d.x.at(p.Offset.Seconds())
		if p.Value > y.high { // it lies above the plot
			d.printf(`<path class="%s" d="M%.1f %dl4.5 8h-9z"/><text class="halo" x="%.1f" y="%d">%s</text>`, class, x,
				cpiTop, x+7, cpiTop+10, num(p.Value))
			continue
		}
		d.printf(`<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"/>`, class, x, y.clamped(p.Value), r)
	}
	d.effect(y)
	if n := len(i.Series); n > 0 {
		notes = append(notes, label{at: y.clamped(i.Series[n-1].Value), text: "the victim", line: "victim"})
	}
	d.printf(`<line class="now" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", d.x.at(0), d.x.at(0), cpiTop, usageTop+
		usageHeight)
	if len(i.Series) == 0 {
		d.printf(`<text class="sub" x="%d" y="%d" text-anchor="middle">no samples were kept</text>`+"\n", left+
			plotWidth/2, cpiTop+cpiHeight/2)
	}
	d.labels(notes, cpiTop, cpiTop+cpiHeight)
}

// wild is how many times as high as all others a sample may be to be drawn to scale.
const wild = 2

// mostCPI is the plot's upper bound. A container's first sample may be a hundred times
// the others, which would then be a line at the bottom.
func mostCPI(i *incidents.Incident) float64 {
	most := max(i.CPI, i.Threshold, i.Spec.Mean, i.Outcome.Before, i.Outcome.After, 0.1)
	values := make([]float64, 0, len(i.Series))
	for _, p := range i.Series {
		values = append(values, p.Value)
	}
	if len(values) == 0 {
		return most
	}
	slices.Sort(values)
	reach := wild * max(most, values[len(values)*3/4])
	return max(most, min(values[len(values)-1], reach))
}

// effect draws the mean CPI before the first action and from then on. That of an experiment has its arms over all
// windows of its coins, where they lie between one another.
func (d *drawing) effect(y scale) {
	o := d.i.Outcome
	if o.Before <= 0 || o.After <= 0 {
		return
	}
	first, second := d.i.Arms()
	if x := d.i.Judged(); x != nil {
		if n := len(x.Coins); n > 0 {
			from, to := x.Coins[0].Offset.Seconds(), (x.Coins[n-1].Offset + x.Coins[n-1].Length).Seconds()
			d.mean(y, from, to, effectLine{o.Before, first + ": mean", "start"})
			d.mean(y, from, to, effectLine{o.After, second + ": mean", "start"})
		}
		return
	}
	begin, end := math.Inf(1), math.Inf(-1)
	for _, a := range d.i.Actions {
		begin, end = min(begin, d.seconds(a.From)), max(end, d.seconds(a.End()))
	}
	if begin <= d.x.low || begin >= d.x.high {
		return
	}
	d.mean(y, max(d.x.low, begin-300), begin, effectLine{o.Before, first + ": mean", "end"})
	d.mean(y, begin, end, effectLine{o.After, second + ": mean", "start"})
}

// effectLine is a mean CPI and its name, which is at the start or the end of the line.
type effectLine struct {
	value        float64
	name, anchor string
}

func (d *drawing) mean(y scale, from, to float64, l effectLine) {
	x1, x2 := d.x.clamped(from), d.x.clamped(to)
	d.printf(`<line class="effect" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x1, x2, y.at(l.value), y.at(l.value))
	x, line := x1+4, y.at(l.value)-8
	if l.anchor == "end" {
		x = x2 - 4
		if x1-left > 130 { // next to the line it covers no sample
			x, line = x1-8, y.at(l.value)+4
		}
	}
	d.printf(`<text class="halo" x="%.1f" y="%.1f" text-anchor="%s">%s %s</text>`+"\n", x, line, l.anchor, l.name,
		num(l.value))
}

func (d *drawing) usage() {
	most := 0.1
	for _, s := range d.lines {
		for _, p := range s.Series {
			most = max(most, p.Value)
		}
	}
	y := d.panel(usageTop, usageHeight, most*1.05, "usage (CPUs)")
	var notes []label
	for n := len(d.lines) - 1; n >= 0; n-- { // the antagonists on top
		s := d.lines[n]
		class := fmt.Sprintf("s%d", n)
		blamed := slices.ContainsFunc(d.i.Antagonists, s.Same)
		if blamed {
			class += " blamed"
		}
		d.path(y, s.Series, class, dashes(n))
		for k, p := range s.Series {
			if k%4 == n%4 {
				d.mark(n, d.x.at(p.Offset.Seconds()), y.clamped(p.Value))
			}
		}
		last := s.Series[len(s.Series)-1].Value
		notes = append(notes, label{at: y.clamped(last), text: fmt.Sprintf("%s %.2f", clean(s.Pod, 23), s.Score),
			line: class, mark: n, marked: true, bold: blamed, tip: s.Name()})
	}
	if rest := len(d.i.Suspects) - len(d.lines); rest > 0 {
		notes = append(notes, label{at: y.from, text: fmt.Sprintf("and %d more", rest)})
	}
	if len(d.lines) > 0 {
		d.printf(`<text class="sub" x="%d" y="%d">suspect and score; bold: antagonist</text>`+"\n", left+plotWidth+11,
			usageTop-12)
	} else {
		d.printf(`<text class="sub" x="%d" y="%d" text-anchor="middle">no suspects</text>`+"\n", left+
			plotWidth/2, usageTop+usageHeight/2)
	}
	d.labels(notes, usageTop, usageTop+usageHeight)
}

// path joins points, except across a gap of more than three times the usual distance.
func (d *drawing) path(y scale, list []incidents.Point, class, dash string) {
	if len(list) == 0 {
		return
	}
	var gaps []time.Duration
	for k := 1; k < len(list); k++ {
		gaps = append(gaps, list[k].Offset-list[k-1].Offset)
	}
	slices.Sort(gaps)
	d.printf(`<path class="%s" d="`, class)
	for k, p := range list {
		op := byte('L')
		if k == 0 || p.Offset-list[k-1].Offset > 3*gaps[len(gaps)/2] {
			op = 'M'
		}
		d.printf("%c%.1f %.1f", op, d.x.at(p.Offset.Seconds()), y.clamped(p.Value))
	}
	d.b.WriteByte('"')
	if dash != "" {
		d.printf(` stroke-dasharray="%s"`, dash)
	}
	d.b.WriteString("/>\n")
}

// mark is the shape of line n.
func (d *drawing) mark(n int, x, y float64) {
	const r = 4.0
	switch n % maxLines {
	case 0:
		d.printf(`<circle class="m%d" cx="%.1f" cy="%.1f" r="%.1f"/>`, n, x, y, r)
	case 1:
		d.printf(`<rect class="m%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, n, x-r+.5, y-r+.5, 2*r-1, 2*r-1)
	case 2:
		d.printf(`<path class="m%d" d="M%.1f %.1fl4.5 8h-9z"/>`, n, x, y-5)
	case 3:
		d.printf(`<path class="m%d" d="M%.1f %.1fl5 5l-5 5l-5 -5z"/>`, n, x, y-5)
	case 4:
		d.printf(`<path class="m%d" d="M%.1f %.1fl4.5 -8h-9z"/>`, n, x, y+5)
	default:
		d.printf(`<path class="s%d" d="M%.1f %.1fl7 7m0 -7l-7 7"/>`, n, x-3.5, y-3.5)
	}
}

// label names a line at its right end.
type label struct {
	at     float64
	text   string
	line   string
	tip    string
	mark   int
	marked bool
	bold   bool
}

// labels moves overlapping names apart.
func (d *drawing) labels(list []label, top, bottom int) {
	const height = 18
	slices.SortStableFunc(list, func(a, b label) int { return cmp.Compare(a.at, b.at) })
	y := make([]float64, len(list))
	next := float64(top) + 4
	for n, l := range list {
		y[n] = max(l.at, next)
		next = y[n] + height
	}
	limit := float64(bottom)
	for n := len(list) - 1; n >= 0 && y[n] > limit; n-- {
		y[n] = limit
		limit -= height
	}
	const x = left + plotWidth
	for n, l := range list {
		if l.line != "" {
			d.printf(`<path class="axis" style="stroke-opacity:.5" d="M%d %.1fL%d %.1f"/>`, x+2, l.at, x+10, y[n])
			d.printf(`<line class="%s" x1="%d" x2="%d" y1="%.1f" y2="%.1f"`, l.line, x+11, x+37, y[n], y[n])
			if l.marked {
				if dash := dashes(l.mark); dash != "" {
					d.printf(` stroke-dasharray="%s"`, dash)
				}
			}
			d.b.WriteString("/>")
		}
		if l.marked {
			d.mark(l.mark, x+24, y[n])
		}
		weight := "normal"
		if l.bold {
			weight = "bold"
		}
		d.printf(`<text x="%d" y="%.1f" font-weight="%s">`, x+42, y[n]+4, weight)
		if l.tip != "" {
			d.printf("<title>%s</title>", text(l.tip, 200))
		}
		d.printf("%s</text>\n", text(l.text, 46))
	}
}

// time draws the common axis below.
func (d *drawing) time() {
	bottom := usageTop + usageHeight
	step := timeStep((d.x.high - d.x.low) / 6)
	start := d.i.At.Add(time.Duration(d.x.low * float64(time.Second))).Truncate(step)
	form := "15:04"
	if step < time.Minute {
		form = "15:04:05"
	}
	for t := start; ; t = t.Add(step) {
		s := d.seconds(t)
		if s > d.x.high+0.5 {
			break
		}
		if s < d.x.low-0.5 {
			continue
		}
		d.printf(`<line class="axis" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, d.x.at(s), d.x.at(s), bottom, bottom+5)
		d.printf(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", d.x.at(s), bottom+19,
			t.UTC().Format(form))
	}
	d.printf(
		`<text class="unit" x="%d" y="%d" text-anchor="middle">time (UTC), %s; the line is the incident at %s</text>`+
			"\n",
		left+plotWidth/2, bottom+38, d.i.At.UTC().Format("2006-01-02"), d.i.At.UTC().Format("15:04:05"))
}

func timeStep(seconds float64) time.Duration {
	steps := []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute,
		10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
	}
	for _, s := range steps {
		if s.Seconds() >= seconds {
			return s
		}
	}
	return 12 * time.Hour
}
