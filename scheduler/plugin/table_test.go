package plugin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTheTableOfScenarios: each of the 16 scenarios has a row, and each test that is named there is one.
func TestTheTableOfScenarios(t *testing.T) {
	tests := map[string]bool{}
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no tests are found", err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	}
	page, err := os.ReadFile("../../docs/evidence/scheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \d+ \|[^|]*\|([^|]*)\|`).FindAllStringSubmatch(string(page), -1)
	if len(rows) != 16 {
		t.Errorf("%d scenarios have a row", len(rows))
	}
	for _, row := range rows {
		named := regexp.MustCompile(`Test\w+`).FindAllString(row[1], -1)
		if len(named) == 0 {
			t.Errorf("no test plays %s", row[0])
		}
		for _, name := range named {
			if !tests[name] {
				t.Errorf("%s names %s, which is no test of this module", row[0], name)
			}
		}
	}
}
