package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/quietcore/quietcore/internal/printable"
)

// Text writes the report for people: everything, or without what is well.
func (r *Report) Text(w io.Writer, all bool) error {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Level == OK && !all {
			continue
		}
		fmt.Fprintf(&b, "%-7s  %-26s %s\n", f.Level, f.ID, line(f.What))
		if f.Fix != "" && f.Level != OK {
			fmt.Fprintf(&b, "%-7s  %-26s -> %s\n", "", "", line(f.Fix))
		}
	}
	fmt.Fprintf(&b, "%d errors, %d warnings, %d notes", r.Count(Error), r.Count(Warning), r.Count(Note))
	if r.Node != "" {
		fmt.Fprintf(&b, " on node %s", line(r.Node))
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

// line is text that came from files and names, on one line.
func line(text string) string { return printable.Text(strings.ReplaceAll(text, "\n", " ")) }
