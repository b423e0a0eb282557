package main

import (
	"fmt"
	"io"
	"strings"
)

// report writes the page and returns the scenarios that do not hold.
func report(w io.Writer, list []scenario, tests, proofs map[string]outcome) (bad []string) {
	var rows strings.Builder
	n := 0
	for i, s := range list {
		result, ok := s.result(tests, proofs)
		if !ok {
			bad = append(bad, s.name)
		}
		if result == whole {
			n++
		}
		fmt.Fprintf(&rows, "| %d | %s | %s | %s | %s |\n", i+1, s.name, s.want, s.evidence(), result)
	}
	others := "; the others say what is missing"
	if n == len(list) {
		others = ""
	}
	fmt.Fprintf(w, `# Scenarios

| | |
|---|---|
| played as a whole | %d of %d%s |
| tests | `+"`make campaign`"+`, which writes this page |
| proofs | `+"`go run ./e2e/proof`, `go run ./e2e/kubernetes`"+` |

| | scenario | promise | played by | result |
|---|---|---|---|---|
`, n, len(list), others)
	io.WriteString(w, rows.String())
	return bad
}

// whole is the result of a scenario of which everything was played, and holds.
const whole = "holds"

// evidence names what plays a scenario.
func (s *scenario) evidence() string {
	var list []string
	last := ""
	for _, t := range s.tests {
		dir, test, _ := strings.Cut(t, " ")
		if dir != last {
			test = dir + " " + test
		}
		last = dir
		list = append(list, "`"+test+"`")
	}
	for _, g := range s.guests {
		list = append(list, "proof `"+g+"`")
	}
	return strings.Join(list, ", ")
}

// result of a scenario, and whether everything that was played holds.
func (s *scenario) result(tests, proofs map[string]outcome) (string, bool) {
	var notes []string
	ok := true
	for _, t := range s.tests {
		if o := tests[t]; o != held {
			_, name, _ := strings.Cut(t, " ")
			notes = append(notes, fmt.Sprintf("**%s: %s**", name, o.word()))
			ok = ok && o == skipped
		}
	}
	for _, g := range s.guests {
		if o := proofs[g]; o != held {
			notes = append(notes, fmt.Sprintf("proof %s: %s", g, o.word()))
			ok = ok && o != failed
		}
	}
	if s.lacks != "" {
		notes = append(notes, "in part; not played: "+s.lacks)
	}
	if len(notes) == 0 {
		return whole, true
	}
	return strings.Join(notes, "; "), ok
}

func (o outcome) word() string {
	switch o {
	case held:
		return "holds"
	case failed:
		return "FAILED"
	case skipped:
		return "skipped here"
	}
	return "not played this time"
}
