package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A scenario whose test was renamed is no evidence.
func TestWhatIsNamedExists(t *testing.T) {
	list := scenarios()
	if len(list) != 60 {
		t.Errorf("%d scenarios, want 60", len(list))
	}
	declared := map[string][]string{}
	for dir, names := range byPackage(list) {
		declared[dir] = testsOf(t, filepath.Join("../..", dir))
		for _, name := range names {
			if !slices.Contains(declared[dir], name) {
				t.Errorf("%s has no test %s", dir, name)
			}
		}
	}
	proofs := proofNames(t)
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s.name] || s.want == "" || len(s.tests) == 0 {
			t.Errorf("%q: a name of its own, a promise and a test are needed", s.name)
		}
		seen[s.name] = true
		for _, test := range s.tests {
			if _, script, ok := strings.Cut(test, "TestScenariosPlay/"); ok {
				if _, err := os.Stat(filepath.Join("../../e2e/scenarios", script)); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			}
		}
		for _, g := range s.guests {
			if !slices.Contains(proofs, g) {
				t.Errorf("%s: there is no proof %s", s.name, g)
			}
		}
	}
}

// testsOf a directory, without building it.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// proofNames are those of e2e/proof and e2e/kubernetes.
func proofNames(t *testing.T) (names []string) {
	t.Helper()
	for _, dir := range []string{"proof", "kubernetes"} {
		text, err := os.ReadFile(filepath.Join("../../e2e", dir, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\{Name: "([a-z-]+)"`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

func TestReport(t *testing.T) {
	s := scenario{"a storm", "nothing", []string{"plugin TestA", "plugin TestB/c"}, []string{"crash"}, ""}
	both := map[string]outcome{"plugin TestA": held, "plugin TestB/c": held}
	one := maps.Clone(both)
	one["plugin TestB/c"] = failed
	skip := maps.Clone(both)
	skip["plugin TestA"] = skipped
	in := s
	in.lacks = "a sea"
	for name, c := range map[string]struct {
		s      scenario
		tests  map[string]outcome
		proofs map[string]outcome
		want   string
		ok     bool
	}{
		"all":            {s, both, map[string]outcome{"crash": held}, "holds", true},
		"no guest":       {s, both, nil, "proof crash: not played this time", true},
		"a guest failed": {s, both, map[string]outcome{"crash": failed}, "proof crash: FAILED", false},
		"a test failed":  {s, one, map[string]outcome{"crash": held}, "**TestB/c: FAILED**", false},
		"a test is absent": {s, nil, map[string]outcome{"crash": held},
			"**TestA: not played this time**; **TestB/c: not played this time**", false},
		"a test skips": {s, skip, map[string]outcome{"crash": held}, "**TestA: skipped here**", true},
		"a part":       {in, both, map[string]outcome{"crash": held}, "in part; not played: a sea", true},
	} {
		got, ok := c.s.result(c.tests, c.proofs)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %t, want %q, %t", name, got, ok, c.want, c.ok)
		}
	}
	if got, want := s.evidence(), "`plugin TestA`, `TestB/c`, proof `crash`"; got != want {
		t.Errorf("played by %s, want %s", got, want)
	}
	var page strings.Builder
	other := s
	other.guests = []string{"drift"} // not played
	if bad := report(&page, []scenario{s, in, other}, both, map[string]outcome{"crash": held}); len(bad) > 0 ||
		!strings.Contains(page.String(), "| 1 of 3; the others") {
		t.Errorf("%v do not hold of\n%s", bad, &page)
	}
}

func TestWhatIsRead(t *testing.T) {
	got := map[string]outcome{}
	readProofs(got, "e2e: boot\ncrash     holds (systemd, 154 s)\n    points 7\ndrift     FAILS (systemd, 3 s)\n"+
		"drift     holds (cgroupfs, 1 s)\ncrash     holds (cgroupfs, 1 s)\n")
	if want := (map[string]outcome{"crash": held, "drift": failed}); !maps.Equal(got, want) {
		t.Errorf("proofs: %v, want %v", got, want)
	}
	tests := map[string]outcome{}
	n := readEvents(strings.NewReader(`{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"skip","Test":"TestA/b"}
{"Action":"pass","Test":"TestA"}
{"Action":"fail","Test":"TestB"}
{"Action":"fail"}
`), "plugin", tests)
	want := map[string]outcome{"plugin TestA": held, "plugin TestA/b": skipped, "plugin TestB": failed}
	if n != 3 || !maps.Equal(tests, want) {
		t.Errorf("%d tests: %v, want %v", n, tests, want)
	}
}
