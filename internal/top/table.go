package top

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/quietcore/quietcore/internal/printable"
)

// Look is how a frame is drawn.
type Look struct {
	Width, Height int // of the screen; 0: no bound
	Sort          Key // marked in the heading
	Reverse       bool
	Color         bool
	Note          string // instead of the keys' help in the last line
	// Of a screen with keys: which rows are left out, the first that is shown, the one under the
	// cursor by its name, and whether the filter is being typed.
	Live   bool
	Filter string
	Offset int
	Chosen string
	Typing bool
}

// column is one of the table; all but the name are of fixed width.
type column struct {
	title string
	key   Key // that sorts by it; empty: none
	width int
	left  bool // aligned to the left
	// keep says which columns stay where the screen is narrow: the lowest goes first.
	keep int
	text func(*Row) string
}

// maxCPUs is the widest that the column of CPU lists gets.
const maxCPUs = 24

// maxLacks is the widest that the column of resources gets.
const maxLacks = 16

// minName is what the name needs before other columns have to go.
const minName = 18

func columns(f *Frame, sort Key) []column {
	cpus, lacks := len("CPUS"), 0
	for i := range f.Containers {
		cpus = max(cpus, min(len(f.Containers[i].CPUs), maxCPUs))
		lacks = max(lacks, min(len(f.Containers[i].Lacks), maxLacks))
	}
	all := []column{
		{"CLASS", "class", 6, true, 4, func(r *Row) string { return string(r.Class) }},
		{"POOL", "", 9, true, 2, poolText},
		{"CPUS", "", cpus, true, 1, func(r *Row) string { return r.CPUs }},
		{"USAGE", "usage", 6, false, 6, func(r *Row) string { return number(r.Usage, "%.2f") }},
		{"CPI", "cpi", 6, false, 5, func(r *Row) string { return number(r.Sample.CPI, "%.2f") }},
		{"MPKI", "mpki", 6, false, 0, func(r *Row) string { return number(r.MPKI, "%.2f") }},
		{"%WAIT", "wait", 6, false, 3, waitText},
	}
	if lacks > 0 { // somebody is disturbed: that is worth more than its pool
		width := max(lacks, len("LACKS"))
		all = append(all, column{"LACKS", "", width, true, 3, func(r *Row) string { return r.Lacks }})
	}
	for i := range all {
		if all[i].key == sort {
			all[i].keep += len(all) // what it is sorted by is seen
		}
	}
	return all
}

func poolText(r *Row) string {
	if r.CapMilli > 0 {
		return fmt.Sprintf("%s %dm", r.Pool, r.CapMilli) // only BE is capped
	}
	return string(r.Pool)
}

func waitText(r *Row) string {
	if r.Wait == nil {
		return unknown
	}
	percent := *r.Wait * 100
	return number(&percent, "%.1f")
}

// unknown stands in a column for what was not counted.
const unknown = "-"

// number fits six columns, whatever the number is.
func number(v *float64, format string) string {
	switch {
	case v == nil:
		return unknown
	case *v >= 1e6:
		return fmt.Sprintf("%.0e", *v)
	case *v >= 1000:
		return fmt.Sprintf("%.0f", *v)
	case *v >= 100:
		return fmt.Sprintf("%.1f", *v)
	}
	return fmt.Sprintf(format, *v)
}

// fit leaves out columns until the name has room.
func fit(all []column, width int) (kept []column, name int) {
	for kept = all; width > 0; {
		if name = width - widthOf(kept); name >= minName || len(kept) == 1 {
			return kept, max(name, 1)
		}
		worst := 0
		for i := range kept {
			if kept[i].keep < kept[worst].keep {
				worst = i
			}
		}
		kept = append(append([]column{}, kept[:worst]...), kept[worst+1:]...)
	}
	return kept, 0
}

func widthOf(columns []column) int {
	n := 0
	for _, c := range columns {
		n += c.width + 1
	}
	return n
}

const (
	bold    = "1"
	inverse = "7"
)

// Lines draws the frame: as many rows as fit, each line no wider than the
// screen. Sort it first.
func (f *Frame) Lines(l Look) []string {
	var lines []string
	for i, text := range f.head() {
		text = clip(text, l.Width)
		if i == 0 {
			text = paint(text, bold, l.Color)
		}
		lines = append(lines, text)
	}
	all, name := fit(columns(f, l.Sort), l.Width)
	lines = append(lines, "", mark(heading(all, name, l), false, l))
	rows := f.chosen(l.Filter)
	total := len(rows)
	rows = rows[min(max(l.Offset, 0), total):]
	if room := f.room(l); l.Height > 0 && len(rows) > room {
		rows = rows[:room]
	}
	for _, r := range rows {
		lines = append(lines, mark(line(all, name, r), l.Chosen == r.name(), l))
	}
	if l.Height > 0 {
		lines = lines[:min(len(lines), l.Height-1)]
		lines = append(lines, f.foot(l, len(rows), total))
	}
	return lines
}

// mark shows where the cursor is: in another colour, or in a column of its own without colours.
func mark(text string, here bool, l Look) string {
	switch {
	case !l.Live, l.Color && !here:
		return text
	case l.Color:
		return paint(pad(text, l.Width, true), inverse, true)
	case here:
		return clip(">"+text, l.Width)
	}
	return clip(" "+text, l.Width)
}

// above is how many lines are above the rows: the head, an empty one and the heading.
const above = 5

// room is how many rows fit.
func (f *Frame) room(l Look) int { return max(l.Height-above-1, 0) }

func heading(all []column, name int, l Look) string {
	var b strings.Builder
	for _, c := range all {
		title := pad(c.title, c.width, c.left)
		if c.key != "" && c.key == l.Sort {
			title = paint(title, inverse, l.Color)
		}
		b.WriteString(title + " ")
	}
	title := clip("CONTAINER", name)
	if l.Sort == "name" {
		title = paint(title, inverse, l.Color)
	}
	return b.String() + title
}

func line(all []column, name int, r *Row) string {
	var b strings.Builder
	for _, c := range all {
		b.WriteString(pad(clip(c.text(r), c.width), c.width, c.left) + " ")
	}
	b.WriteString(middle(printable.Clip(r.name(), longest), name))
	return b.String()
}

// longest bounds a name where the screen does not.
const longest = 400

func (f *Frame) foot(l Look, shown, total int) string {
	switch {
	case l.Typing:
		return clip(fmt.Sprintf("filter: %s_  (%d of %d; enter: keep, esc: clear)", l.Filter, total, len(f.Containers)),
			l.Width)
	case l.Note != "":
		return clip(l.Note, l.Width)
	}
	text := fmt.Sprintf("q: quit  s: sort (%s)", l.Sort)
	if l.Live {
		text += "  r: reverse  /: filter  enter: detail"
	}
	if l.Filter != "" {
		text = fmt.Sprintf("filter: %s (esc: clear)  ", l.Filter) + text
	}
	if shown < total {
		text = fmt.Sprintf("%d-%d of %d  ", l.Offset+1, l.Offset+shown, total) + text
	}
	return clip(text, l.Width)
}

func pad(text string, width int, left bool) string {
	room := strings.Repeat(" ", max(width-utf8.RuneCountInString(text), 0))
	if left {
		return text + room
	}
	return room + text
}

// clip cuts a line to a width; 0 means that there is none. What the daemon says
// may hold names that tenants chose.
func clip(text string, width int) string {
	if width <= 0 {
		width = 2000
	}
	return printable.Clip(text, width)
}

// middle shortens a name to its beginning and its end: that is where the names of
// one workload's pods differ.
func middle(name string, width int) string {
	all := []rune(name)
	if width <= 0 || len(all) <= width {
		return name
	}
	head := (width - 1) / 2
	return string(all[:head]) + "…" + string(all[len(all)-(width-1-head):])
}

func paint(text, ansi string, color bool) string {
	if !color {
		return text
	}
	return "\x1b[" + ansi + "m" + text + "\x1b[0m"
}
