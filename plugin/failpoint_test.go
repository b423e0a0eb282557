package plugin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every constant of type Point is listed, once.
func TestPointsAreAllThereAre(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "failpoint.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Point" {
				declared += len(v.Names)
			}
		}
		return true
	})
	all := Points()
	slices.Sort(all)
	if listed := len(slices.Compact(all)); listed != declared || declared < 20 {
		t.Errorf("%d points are declared and %d different ones listed", declared, listed)
	}
}

func TestFailAtCountsPassings(t *testing.T) {
	for text, want := range map[string]int{"create.reply": 1, "create.reply:1": 1, "create.reply:3": 3} {
		passed, died := 0, 0
		at, err := FailAt(text, func() { died = passed })
		if err != nil {
			t.Fatal(err)
		}
		for passed = 1; passed <= 5; passed++ {
			at(CreateReply)
			at(RunReply)
		}
		if died != want {
			t.Errorf("%s: died at passing %d, want %d", text, died, want)
		}
	}
	for _, text := range []string{"", "nowhere", "create.reply:", "create.reply:0", "create.reply:-1",
		"create.reply:1:2", ":1"} {
		if _, err := FailAt(text, func() {}); err == nil {
			t.Errorf("%q is taken", text)
		} else if !strings.Contains(err.Error(), strconv.Quote(text)) &&
			!strings.Contains(err.Error(), "there is no point") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
