package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/quietcore/quietcore/internal/printable"
)

// printed writes what text makes for a terminal of so many columns, at once: so
// that a full disk is an error.
func printed(w io.Writer, text func(w io.Writer, columns int)) error {
	var b bytes.Buffer
	text(&b, terminalColumns(w))
	_, err := w.Write(b.Bytes())
	return err
}

// terminalColumns is the width of the terminal that w is; 0: as wide as need be.
func terminalColumns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// textTable is a table that fits into a terminal: flexible columns are cut first,
// and where that is not enough each row becomes lines of its own.
type textTable struct {
	head     []string
	flexible []int
	rows     [][]string
}

func (t *textTable) row(cells ...string) {
	for n := range cells {
		cells[n] = printable.Text(cells[n])
	}
	t.rows = append(t.rows, cells)
}

const tableGap = 2

func (t *textTable) write(w io.Writer, width int) {
	const least = 12
	all := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	total := -tableGap
	for n := range widths {
		for _, r := range all {
			widths[n] = max(widths[n], len(r[n]))
		}
		total += widths[n] + tableGap
	}
	for width > 0 && total > width {
		widest := slices.MaxFunc(t.flexible, func(a, b int) int { return widths[a] - widths[b] })
		if widths[widest] <= least {
			t.stack(w, width)
			return
		}
		widths[widest]--
		total--
	}
	for _, r := range all {
		line := ""
		for n, cell := range r {
			line += fmt.Sprintf("%-*s", widths[n]+tableGap, fitted(cell, widths[n]))
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// stack writes a row as "NAME value" lines.
func (t *textTable) stack(w io.Writer, width int) {
	label := 0
	for _, h := range t.head {
		label = max(label, len(h))
	}
	for n, r := range t.rows {
		if n > 0 {
			fmt.Fprintln(w)
		}
		for k, cell := range r {
			if cell != "" && cell != "-" {
				fmt.Fprintln(w, fitted(fmt.Sprintf("%-*s %s", label, t.head[k], cell), width))
			}
		}
	}
}

func fitted(text string, width int) string {
	if len(text) <= width || width < 1 {
		return text
	}
	return text[:width-1] + "~"
}
