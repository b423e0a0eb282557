package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// The terminal, in characters and in units of the SVG.
const (
	columns, rows       = 126, 20
	charWide, lineHigh  = 7.2, 17.0
	border, bar         = 14.0, 28.0
	fontSize            = 12
	typing, answer, row = 1.2, 0.4, 0.08 // seconds: a command is typed, thought about, and answered line by line
)

// screen is a scene with what was printed.
type screen struct {
	scene
	printed []string
}

// line is a row of the terminal between two moments.
type line struct {
	class, text string
	at, until   float64
	typed       float64 // seconds that typing it takes
}

// lines are the rows of a screen that begins at a moment.
func (s screen) lines(begin float64) ([]line, error) {
	until := begin + s.seconds
	list := []line{{class: "r", text: "# " + s.remark, at: begin, until: until}}
	typed := wrap("$ " + s.command)
	for i, text := range typed {
		part := typing / float64(len(typed))
		list = append(list, line{"c", text, begin + 0.4 + float64(i)*part, until, part})
	}
	at := begin + 0.4 + typing + answer
	for _, p := range s.printed {
		for _, text := range wrap(p) {
			list = append(list, line{class: "o", text: text, at: at, until: until})
			at += row
		}
	}
	switch {
	case len(list) > rows:
		return nil, fmt.Errorf("%s: %d lines on a screen of %d", s.command, len(list), rows)
	case at > until-1.5:
		return nil, fmt.Errorf("%s: nobody can read it in %.1f s", s.command, s.seconds)
	}
	return list, nil
}

// wrap breaks a line where the terminal does.
func wrap(s string) []string {
	var list []string
	r := []rune(s)
	for ; len(r) > columns; r = r[columns:] {
		list = append(list, string(r[:columns]))
	}
	return append(list, string(r))
}

// draw is the SVG. Without motion, where the reader's system asks for that, it shows the first screen.
func draw(screens []screen) ([]byte, error) {
	var style, body bytes.Buffer
	total := 0.0
	for _, s := range screens {
		total += s.seconds
	}
	begin, n := 0.0, 0
	for i, s := range screens {
		list, err := s.lines(begin)
		if err != nil {
			return nil, err
		}
		begin += s.seconds
		fmt.Fprintf(&body, "<g class=\"s%d\">\n", i)
		for y, l := range list {
			fmt.Fprintf(&style, "#l%d{animation-name:k%d%s}\n", n, n, l.typing())
			style.WriteString(l.keyframes(n, total))
			fmt.Fprintf(&body, "<text id=\"l%d\" class=\"%s\" x=\"%g\" y=\"%g\" textLength=\"%.1f\">%s</text>\n",
				n, l.class, border, bar+border+float64(y)*lineHigh+fontSize, float64(len([]rune(l.text)))*charWide,
				escape(l.text))
			n++
		}
		body.WriteString("</g>\n")
	}
	wide, high := 2*border+columns*charWide, bar+2*border+rows*lineHigh
	var out bytes.Buffer
	fmt.Fprintf(&out, frame, wide, high, wide, high, fontSize, total, style.String(), wide, high, wide-8, body.String())
	return out.Bytes(), nil
}

// frame is the window around the text.
const frame = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img">
<title>A terminal: quietcore simulates a node, finds an antagonist, and says what can be lent</title>
<style>
text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#d5dbe3;
animation-duration:%gs;animation-timing-function:step-end;animation-iteration-count:infinite}
.r{fill:#8b98a8}.c{fill:#fff;font-weight:bold}
%s@media (prefers-reduced-motion:reduce){text{animation:none!important}g+g{opacity:0}}
</style>
<rect width="%g" height="%g" rx="8" fill="#12181f"/>
<path d="M4 28H%g" stroke="#2b3542"/>
<circle cx="18" cy="14" r="5" fill="#e0645c"/><circle cx="36" cy="14" r="5" fill="#dfab3b"/>` +
	`<circle cx="54" cy="14" r="5" fill="#5fb35d"/>
%s</svg>
`

// typing makes a line that is typed appear character by character.
func (l line) typing() string {
	if l.typed == 0 {
		return ""
	}
	return fmt.Sprintf(";animation-timing-function:steps(%d)", len([]rune(l.text)))
}

// keyframes are when a line is there. The percentages are of the whole session.
func (l line) keyframes(n int, total float64) string {
	percent := func(at float64) string {
		return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", 100*at/total), "0"), ".") + "%"
	}
	gone := ""
	if l.until < total {
		gone = percent(l.until-0.01) + "{opacity:1}" + percent(l.until) + ",to{opacity:0}"
	}
	if l.typed == 0 {
		return fmt.Sprintf("@keyframes k%d{from{opacity:0}%s{opacity:1}%s}\n", n, percent(l.at), gone)
	}
	gone = strings.ReplaceAll(gone, "{opacity:1}", "{opacity:1;clip-path:inset(0)}")
	const none = "clip-path:inset(0 100% 0 0)}"
	return fmt.Sprintf("@keyframes k%d{from,%s{opacity:0;%s%s{opacity:1;%s%s{opacity:1;clip-path:inset(0)}%s}\n",
		n, percent(l.at), none, percent(l.at+0.01), none, percent(l.at+l.typed), gone)
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}
