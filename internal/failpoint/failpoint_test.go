package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
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
