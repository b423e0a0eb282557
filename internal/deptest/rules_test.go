package deptest

import (
	"fmt"
	"slices"
	"testing"
)

// finding is one place that breaks a rule.
type finding struct {
	where string // what an exception names: a file, or package.identifier
	text  string
}

func found(where, format string, args ...any) finding {
	return finding{where: where, text: fmt.Sprintf(format, args...)}
}

// rule finds what is wrong with a set of files.
type rule struct {
	name  string
	check func(files []*file) []finding
}

var rules = []rule{
	{"imports", checkImports},
	{"reach", checkReach},
	{"pure", checkPure},
	{"package comment", checkPackageComments},
	{"example", checkExamples},
	{"struct", checkStructs},
	{"interface", checkInterfaces},
	{"parameters", checkParameters},
	{"function", checkFunctions},
	{"file", checkFiles},
	{"columns", checkColumns},
	{"goroutine", checkGoroutines},
}

func TestRules(t *testing.T) {
	files := moduleFiles(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { report(t, r.name, r.check(files)) })
	}
}

// report fails for each finding without an exception, and for each exception
// without a finding.
func report(t *testing.T, rule string, findings []finding) {
	t.Helper()
	used := map[string]bool{}
	for _, f := range findings {
		if slices.ContainsFunc(exceptions, func(e exception) bool { return e.rule == rule && e.where == f.where }) {
			used[f.where] = true
			continue
		}
		t.Error(f.text)
	}
	for _, e := range exceptions {
		if e.rule == rule && !used[e.where] {
			t.Errorf("%s keeps to the rule %q now: delete its exception", e.where, rule)
		}
	}
}

func TestExceptionsNameRules(t *testing.T) {
	seen := map[exception]bool{}
	for _, e := range exceptions {
		if e.rule != "walk" && !slices.ContainsFunc(rules, func(r rule) bool { return r.name == e.rule }) {
			t.Errorf("the exception for %s names a rule that does not exist: %q", e.where, e.rule)
		}
		if e.why == "" {
			t.Errorf("the exception for %s from %q has no reason", e.where, e.rule)
		}
		key := exception{rule: e.rule, where: e.where}
		if seen[key] {
			t.Errorf("%s has two exceptions from %q", e.where, e.rule)
		}
		seen[key] = true
	}
}
