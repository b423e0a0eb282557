// Package printable makes text that a tenant may have chosen safe to show, on a
// terminal, on a page and in a metric's label: printable ASCII only, so that nothing
// moves the cursor, reverses the line or breaks a column.
package printable

import "strings"

// Text replaces every other character by a question mark.
func Text(text string) string { return strings.Map(replace, text) }

// Clip is Text of at most so many characters, the last an ellipsis where there were
// more.
func Clip(text string, most int) string {
	out := make([]rune, 0, min(len(text), most))
	for _, r := range text {
		if len(out) == most {
			out[most-1] = '…'
			break
		}
		out = append(out, replace(r))
	}
	return string(out)
}

func replace(r rune) rune {
	if r < ' ' || r > '~' {
		return '?'
	}
	return r
}
