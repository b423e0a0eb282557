package world

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Choice is one thing that the world chose to happen. Its words alone say what it
// is, so that a run can be repeated with some of its choices left out.
type Choice struct {
	Do   string // what happens
	What string // to what
	How  string // and how
}

func (c Choice) String() string {
	text := c.Do
	if c.What != "" {
		text += " " + c.What
	}
	if c.How != "" {
		text += ": " + c.How
	}
	return text
}

// parseChoice is the inverse of String.
func parseChoice(line string) Choice {
	head, how, _ := strings.Cut(line, ": ")
	do, what, _ := strings.Cut(head, " ")
	return Choice{Do: do, What: what, How: how}
}

// ParseTrace reads choices, one a line; empty lines and lines after # are left out.
func ParseTrace(text string) []Choice {
	var trace []Choice
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			trace = append(trace, parseChoice(line))
		}
	}
	return trace
}

// FormatTrace is the inverse of ParseTrace.
func FormatTrace(trace []Choice) string {
	var b strings.Builder
	for _, c := range trace {
		fmt.Fprintln(&b, c)
	}
	return b.String()
}

// digest is a short name for everything that happened in a run.
func digest(log []string) string {
	sum := sha256.Sum256([]byte(strings.Join(log, "\n")))
	return hex.EncodeToString(sum[:6])
}
