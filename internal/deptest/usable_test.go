package deptest

import (
	"go/ast"
	"slices"
	"strings"
)

// open packages can be used by other modules: each shows how in an Example, in a
// package of its own that imports nothing internal.
var open = []string{
	"cpuset", "topology", "cpuallocator", "sysfs", "reclaim", "policy", "cpi", "cpi/sample", "cpi/detect",
	"cpi/detect/replay", "reclaim/replay",
}

func checkExamples(files []*file) []finding {
	shown, looked := map[string]bool{}, map[string]bool{}
	var list []finding
	for _, f := range files {
		looked[f.dir] = true
		if !slices.Contains(open, f.dir) || !f.test || !hasExample(f) || !strings.HasSuffix(f.ast.Name.Name, "_test") {
			continue
		}
		shown[f.dir] = true
		for _, i := range f.imports() {
			if strings.HasPrefix(i, module+"internal/") || strings.Contains(i, "/internal/") {
				list = append(list, found(f.dir, "%s shows how to use %s with %s, which no other module can import",
					f.path, f.dir, i))
			}
		}
	}
	for _, dir := range open {
		if looked[dir] && !shown[dir] {
			list = append(list, found(dir, "package %s has no Example in package %s_test that says how to use it", dir,
				dir[strings.LastIndex(dir, "/")+1:]))
		}
	}
	return list
}

// hasExample wants an example that is run: one with an output.
func hasExample(f *file) bool {
	return slices.ContainsFunc(f.ast.Decls, func(d ast.Decl) bool {
		fun, ok := d.(*ast.FuncDecl)
		return ok && fun.Recv == nil && strings.HasPrefix(fun.Name.Name, "Example") &&
			slices.ContainsFunc(f.ast.Comments, func(c *ast.CommentGroup) bool {
				return c.Pos() > fun.Pos() && c.End() < fun.End() && strings.Contains(c.Text(), "Output:")
			})
	})
}
