package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWhen(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"90m": now.Add(-90 * time.Minute), "7d": now.AddDate(0, 0, -7), "0.5d": now.Add(-12 * time.Hour),
		"2026-11-20":           now.Add(-36 * time.Hour),
		"2026-11-21T11:00:00Z": now.Add(-time.Hour), "2026-11-21T12:00:00+01:00": now.Add(-time.Hour), "": {},
	} {
		if got, err := parseWhen("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
}

// A table fits its terminal, whatever is in it, and cuts no line in the middle of
// nothing.
func TestTablesFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := textTable{head: []string{"ID", "VICTIM", "CPI", "ANTAGONIST"}, flexible: []int{1, 3}}
		for range rapid.IntRange(0, 5).Draw(t, "rows") {
			table.row(rapid.StringN(0, 27, -1).Draw(t, "id"), rapid.String().Draw(t, "victim"), "3.50",
				rapid.String().Draw(t, "antagonist"))
		}
		width := rapid.IntRange(20, 200).Draw(t, "width")
		var b bytes.Buffer
		table.write(&b, width)
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > width ||
				strings.ContainsFunc(line, func(r rune) bool {
					return r < ' ' || r > '~'
				}) {
				t.Fatalf("%q has %d columns of %d", line, len(line), width)
			}
		}
	})
}
