package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Text writes the report for people: everything, or without what is well.
func (r *Report) Text(w io.Writer, all bool) error {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Level == OK && !all {
			continue
		}
		fmt.Fprintf(&b, "%-7s  %-26s %s\n", f.Level, f.ID, printable(f.What))
		if f.Fix != "" && f.Level != OK {
			fmt.Fprintf(&b, "%-7s  %-26s -> %s\n", "", "", printable(f.Fix))
		}
	}
	fmt.Fprintf(&b, "%d errors, %d warnings, %d notes", r.Count(Error), r.Count(Warning), r.Count(Note))
	if r.Node != "" {
		fmt.Fprintf(&b, " on node %s", printable(r.Node))
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

// printable keeps text that came from files and names from moving the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return ' '
		}
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
