package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWhatTestsSay: an attack is held where its test passed, broken where it failed, and not played where it was
// skipped or is not there.
func TestWhatTestsSay(t *testing.T) {
	got, err := resultsOf(io.Discard, strings.NewReader(`{"Action":"run","Test":"T/0"}
{"Action":"output","Test":"T/0","Output":"    attacks_test.go:1: held by: the policy `+"`p`"+`\n"}
{"Action":"pass","Test":"T/0"}
{"Action":"fail","Test":"T/1"}
{"Action":"skip","Test":"T/2"}
{"Action":"pass"}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]result{
		"T/0": {held, "the policy `p`"}, "T/1": {broken, ""}, "T/2": {}, "T/3": {},
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if _, err := resultsOf(io.Discard, strings.NewReader("no JSON\n")); err == nil {
		t.Error("what is no JSON is a result")
	}
}

// TestTheTable: the sum counts each outcome, and nothing but all is all.
func TestTheTable(t *testing.T) {
	rows := []row{{"w", "a", held, "b", "c"}, {"w", "d", broken, "", ""}, {"w", "e", notPlayed, "", ""}}
	var out strings.Builder
	if err := report(&out, rows); err != nil {
		t.Fatal(err)
	}
	const want = "3 attacks: 1 held, 1 broken, 1 not played"
	if !strings.HasSuffix(out.String(), want+"\n") || !strings.Contains(pageOf(rows), want+".\n") {
		t.Errorf("it says %s", out.String())
	}
	if allHeld(rows) || allHeld(nil) || !allHeld(rows[:1]) {
		t.Error("what is held is counted wrong")
	}
}

// TestEveryPlayIsATest: a play that names no test would never be played.
func TestEveryPlayIsATest(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range plays() {
		name, _, _ := strings.Cut(p.test, "/")
		files, err := filepath.Glob(filepath.Join("../..", p.module, p.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+name+"(")
		}
		if !found {
			t.Errorf("%s has no %s", p.pkg, name)
		}
		if p.who == "" || p.what == "" || p.by == "" || p.cost == "" || seen[p.pkg+p.test] {
			t.Errorf("%+v lacks something, or is there twice", p)
		}
		seen[p.pkg+p.test] = true
	}
}

// TestThePageIsOfTheseAttacks: what was added since has to be played before the page speaks of it, and what is gone is
// not on it.
func TestThePageIsOfTheseAttacks(t *testing.T) {
	page, err := os.ReadFile("../../docs/security/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, a := range attacks() {
		want = append(want, a.who+" | "+a.what)
	}
	for _, p := range plays() {
		want = append(want, p.who+" | "+p.what)
	}
	for _, w := range want {
		if !strings.Contains(string(page), "\n| "+w+" | held | ") {
			t.Errorf("the page does not have %q as held; run make test-hostile", w)
		}
	}
	if got := len(regexp.MustCompile(`(?m)^\| [^|-][^|]* \| [^|]* \| held`).FindAllString(string(page), -1)); got !=
		len(want) {
		t.Errorf("the page has %d attacks, and there are %d", got, len(want))
	}
}
