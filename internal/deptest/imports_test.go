package deptest

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// pure packages decide; they do no I/O, own no clock and hold no lock, so that
// any run of them can be repeated.
var pure = []string{"topology", "cpuallocator", "policy", "cpi", "cpi/sample", "cpi/detect", "cpi/experiment",
	"reclaim", "cpuset"}

var impure = []string{
	"os", "net", "log", "log/slog", "context", "sync", "sync/atomic", "io/ioutil", "syscall", "math/rand",
	"math/rand/v2",
}

// clock is what reads or waits for the time.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func checkPure(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		if !slices.Contains(pure, f.dir) {
			continue
		}
		for _, i := range f.imports() {
			if slices.Contains(impure, i) {
				list = append(list, found(f.path, "%s imports %s: %s is pure", f.path, i, f.dir))
			}
			if in, ours := strings.CutPrefix(i, module); ours && !slices.Contains(pure, in) {
				list = append(list, found(f.path, "%s imports %s, which is not pure", f.path, i))
			}
			if first, _, _ := strings.Cut(i, "/"); strings.Contains(first, ".") && !strings.HasPrefix(i, module) {
				list = append(list, found(f.path, "%s imports %s: pure packages need the standard library alone",
					f.path, i))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, sel.Sel.Name) {
				list = append(list, found(f.path, "%s:%d reads the clock (time.%s): the time is a value here",
					f.path, f.line(sel.Pos()), sel.Sel.Name))
			}
			return true
		})
	}
	return list
}

// arrows are the module's packages that each package imports, without its tests.
func arrows(files []*file) map[string][]string {
	m := map[string][]string{}
	for _, f := range code(files) {
		list := m[f.dir]
		for _, i := range f.imports() {
			if in, ours := strings.CutPrefix(i, module); ours && !slices.Contains(list, in) {
				list = append(list, in)
			}
		}
		slices.Sort(list)
		m[f.dir] = list
	}
	return m
}

// checkImports compares each package's imports with the table.
func checkImports(files []*file) []finding {
	var list []finding
	is := arrows(files)
	for _, dir := range slices.Sorted(maps.Keys(is)) {
		may, listed := mayImport[dir]
		if !listed {
			list = append(list,
				found(dir, "package %s is not in the table mayImport: add it, with what it imports (%s)",
					dir, strings.Join(is[dir], " ")))
			continue
		}
		for _, i := range is[dir] {
			switch {
			case below(i, "cmd") || below(i, "e2e") && !below(dir, "e2e") || below(i, "hack") && !below(dir, "hack"):
				list = append(list, found(dir, "%s imports %s: nothing that ships does", dir, i))
			case may != anything && !slices.Contains(strings.Fields(may), i):
				list = append(list, found(dir, "%s imports %s, which the table mayImport does not allow", dir, i))
			}
		}
		for _, i := range strings.Fields(may) {
			if may != anything && !slices.Contains(is[dir], i) {
				list = append(list, found(dir, "%s no longer imports %s: take it out of the table mayImport", dir, i))
			}
		}
	}
	return list
}

func below(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }

// TestTablesNameWhatExists is apart from the rules, whose examples are a few
// files only.
func TestTablesNameWhatExists(t *testing.T) {
	files := moduleFiles(t)
	is := arrows(files)
	for dir := range mayImport {
		if _, ok := is[dir]; !ok {
			t.Errorf("the table mayImport names %s, which is gone", dir)
		}
	}
	for _, dir := range slices.Concat(pure, slices.Collect(maps.Keys(mayNotReach)),
		slices.Concat(slices.Collect(maps.Values(mayNotReach))...)) {
		if _, ok := is[dir]; !ok {
			t.Errorf("a rule names package %s, which is gone", dir)
		}
	}
	for name := range goroutines {
		if !slices.ContainsFunc(files, func(f *file) bool { return f.path == name }) {
			t.Errorf("the table goroutines names %s, which is gone", name)
		}
	}
}
