package scenario

import (
	"fmt"
	"io"
	"strings"
)

// Text writes a line for people.
func (l *Line) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", l.Step, l.Op)
	if l.Error != nil {
		fmt.Fprintf(&b, ": refused: %s: %s", l.Error.Code, l.Error.Message)
	}
	b.WriteByte('\n')
	for _, c := range l.Containers {
		quota := "no quota"
		if c.QuotaMilli >= 0 {
			quota = fmt.Sprintf("quota %dm", c.QuotaMilli)
		}
		fmt.Fprintf(&b, "  %-30s %-4s %-10s CPUs %-12s memory %-6s %s\n", c.key(), c.Class, c.Pool, c.CPUs, c.Mems, quota)
	}
	if len(l.Pools) > 0 {
		fmt.Fprintf(&b, "  shared %s | best effort %s | exclusive %s\n", l.Pools["shared"], l.Pools["be"], l.Pools["exclusive"])
	}
	_, err := io.WriteString(w, b.String())
	return err
}
