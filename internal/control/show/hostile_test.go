package show

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// No text of a tenant's moves the cursor, makes a line or names a link, wherever it
// is shown.
func TestHostileNamesReachNoTerminal(t *testing.T) {
	topo := `{"cpus":[{"cpu":0,"core":0,"socket":0,"node":0,"l3":0,"online":true}]}`
	plain := []string{"web", "main", "shared pool"}
	hostile := []string{"\x1b[2J\x1b]0;owned\x07\nroot\r\n\u202e<b>&", "\x9b31m\u0007\u2028",
		strings.Repeat("n", 253) + "\x1b]8;;http://evil\x1b\\"}
	shown := func(text []string) (lines int, all string) {
		t.Helper()
		s := &control.Status{Topology: []byte(topo), Containers: []script.State{{Namespace: text[0], Pod: text[0],
			Container: text[1], Class: "LS", Pool: "shared", CPUs: "0", Why: text[2]}},
			Claims: []policy.ClaimView{{Namespace: text[0], Name: text[0], Requests: []policy.ClaimPart{
				{Device: text[1], Asked: 2, Lost: text[2]}}}}}
		s.CPI.Why = text[2]
		var out bytes.Buffer
		if err := writeStatus(&out, s, s.Containers); err != nil {
			t.Fatal(err)
		}
		if !explained(&out, s, []string{text[0], text[0]}) {
			t.Error("nothing is explained")
		}
		return strings.Count(out.String(), "\n"), out.String()
	}
	want, _ := shown(plain)
	lines, all := shown(hostile)
	if lines != want {
		t.Errorf("%d lines, want %d:\n%q", lines, want, all)
	}
	for _, r := range all {
		if r != '\n' && r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u202e' || r == '\u2028' {
			t.Errorf("%q reaches the terminal", r)
		}
	}
}
