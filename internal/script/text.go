package script

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteText prints a line for people: what the step did, which pods it changed and why, and the
// pools.
func (l *Line) WriteText(w io.Writer, why bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", l.Step, l.Op)
	if l.Error != nil {
		fmt.Fprintf(&b, ": refused: %s: %s", l.Error.Code, l.Error.Message)
	}
	b.WriteByte('\n')
	width := 0
	for _, key := range l.Changed {
		width = max(width, len(key))
	}
	for _, s := range l.Containers {
		if slices.Contains(l.Changed, s.key()) {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, s.key(), s.summary()+l.mems(s))
			if why {
				fmt.Fprintf(&b, "  %-*s  %s\n", width, "", s.Why)
			}
		}
	}
	for _, n := range l.Notices {
		fmt.Fprintf(&b, "  ! %s\n", n)
	}
	fmt.Fprintf(&b, "  pools: shared %s, be %s", orNone(l.Pools.Shared), orNone(l.Pools.BE))
	if l.Pools.Exclusive != "" {
		fmt.Fprintf(&b, ", exclusive %s", l.Pools.Exclusive)
	}
	if l.Pools.Reserved != "" {
		fmt.Fprintf(&b, ", reserved %s", l.Pools.Reserved)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// mems names the NUMA nodes whose memory a container may use, unless it may use all.
func (l *Line) mems(s State) string {
	if l.View == nil || s.Mems == l.View.Topology.MemoryNodes().String() {
		return ""
	}
	return ", mems " + s.Mems
}

func (s State) summary() string {
	text := fmt.Sprintf("%-6s %-9s cpus %s", s.Class, s.Pool, s.CPUs)
	if s.Withheld != "" {
		text += ", withheld " + s.Withheld
	}
	if s.QuotaMilli >= 0 {
		text += fmt.Sprintf(", quota %dm", s.QuotaMilli)
	}
	if s.CapMilli != nil {
		text += fmt.Sprintf(", capped at %dm", *s.CapMilli)
	}
	return text
}

func orNone(list string) string {
	if list == "" {
		return "none"
	}
	return list
}
