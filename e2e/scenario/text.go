package scenario

import (
	"fmt"
	"io"
	"strings"

	"github.com/quietcore/quietcore/internal/script"
)

// Text writes a line for people.
func Text(w io.Writer, l script.Line) error {
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
		fmt.Fprintf(&b, "  %-30s %-4s %-10s CPUs %-12s memory %-6s %s\n", keyOf(&c), c.Class, c.Pool, c.CPUs, c.Mems,
			quota)
	}
	if l.Pools.Shared != "" {
		fmt.Fprintf(&b, "  shared %s | best effort %s | exclusive %s\n", l.Pools.Shared, l.Pools.BE, l.Pools.Exclusive)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
