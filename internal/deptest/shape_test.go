package deptest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

const (
	mostFields     = 15 // of a struct with logic
	mostMethods    = 5  // of an interface
	mostParameters = 5
	mostLines      = 80  // of a function
	mostFileLines  = 700 // of a file that is no test
	mostColumns    = 120
	tab            = 4
)

// checkPackageComments wants a package comment, as `go doc` shows it.
func checkPackageComments(files []*file) []finding {
	documented := map[string]bool{}
	var dirs []string
	for _, f := range code(files) {
		if _, seen := documented[f.dir]; !seen {
			dirs = append(dirs, f.dir)
		}
		documented[f.dir] = documented[f.dir] || f.ast.Doc != nil && len(f.ast.Doc.Text()) > 40
	}
	var list []finding
	for _, dir := range dirs {
		if !documented[dir] {
			list = append(list, found(dir, "package %s has no doc comment", dir))
		}
	}
	return list
}

// plainMethods do not make logic of a struct: a struct of data may be checked,
// completed, compared, copied, written and read.
var plainMethods = []string{
	"Validate", "validate", "fill", "String", "Compare", "Equal", "Clone",
	"MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "UnmarshalYAML",
}

// hasLogic says whether a method is more than an accessor.
func hasLogic(m *ast.FuncDecl) bool {
	return !slices.Contains(plainMethods, m.Name.Name) && m.Body != nil && len(m.Body.List) > 1
}

// hasState says whether a struct has fields of its own. Where all are exported it
// is data, such as a configuration, of which methods derive other values.
func hasState(s *ast.StructType) bool {
	for _, field := range s.Fields.List {
		if slices.ContainsFunc(field.Names, func(n *ast.Ident) bool { return !n.IsExported() }) {
			return true
		}
	}
	return false
}

func checkStructs(files []*file) []finding {
	logic := map[string]bool{} // by package.type
	for _, f := range code(files) {
		for _, d := range f.ast.Decls {
			if m, ok := d.(*ast.FuncDecl); ok && m.Recv != nil && hasLogic(m) {
				logic[f.dir+"."+receiver(m)] = true
			}
		}
	}
	var list []finding
	for _, f := range code(files) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			name := f.dir + "." + spec.Name.Name
			if ok && logic[name] && s.Fields.NumFields() > mostFields && hasState(s) {
				list = append(list, found(name, "%s:%d: struct %s has methods and %d fields, at most %d",
					f.path, f.line(spec.Pos()), spec.Name.Name, s.Fields.NumFields(), mostFields))
			}
			return true
		})
	}
	return list
}

// receiver is the name of a method's type.
func receiver(m *ast.FuncDecl) string {
	t := m.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return fmt.Sprintf("%T", t)
		}
	}
}

func checkInterfaces(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		name := f.path
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				name = f.dir + "." + spec.Name.Name
			}
			if i, ok := n.(*ast.InterfaceType); ok && i.Methods.NumFields() > mostMethods {
				list = append(list, found(name, "%s:%d: interface %s has %d methods, at most %d",
					f.path, f.line(i.Pos()), name, i.Methods.NumFields(), mostMethods))
			}
			return true
		})
	}
	return list
}

// checkParameters looks at every function type: of functions, methods, literals,
// fields and interfaces.
func checkParameters(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		for _, d := range f.ast.Decls {
			name := f.path
			if fun, ok := d.(*ast.FuncDecl); ok {
				name = functionName(f, fun)
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if t, ok := n.(*ast.FuncType); ok && t.Params.NumFields() > mostParameters {
					list = append(list, found(name, "%s:%d: a function of %s has %d parameters, at most %d",
						f.path, f.line(t.Pos()), name, t.Params.NumFields(), mostParameters))
				}
				return true
			})
		}
	}
	return list
}

// functionName is package.function or package.Type.method.
func functionName(f *file, fun *ast.FuncDecl) string {
	if fun.Recv == nil {
		return f.dir + "." + fun.Name.Name
	}
	return f.dir + "." + receiver(fun) + "." + fun.Name.Name
}

func checkFunctions(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		for _, d := range f.ast.Decls {
			fun, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := f.line(fun.End()) - f.line(fun.Pos()) + 1; n > mostLines {
				name := functionName(f, fun)
				list = append(list, found(name, "%s:%d: %s has %d lines, at most %d",
					f.path, f.line(fun.Pos()), name, n, mostLines))
			}
		}
	}
	return list
}

func checkFiles(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		if n := strings.Count(f.text, "\n"); n > mostFileLines && !ast.IsGenerated(f.ast) {
			list = append(list, found(f.path, "%s has %d lines, at most %d: it is perhaps several things",
				f.path, n, mostFileLines))
		}
	}
	return list
}

func checkColumns(files []*file) []finding {
	var list []finding
	for _, f := range files {
		if ast.IsGenerated(f.ast) {
			continue
		}
		n := 0
		for text := range strings.Lines(f.text) {
			n++
			if strings.HasPrefix(text, "//go:") {
				continue // a directive cannot be broken
			}
			if w := width(strings.TrimRight(text, "\r\n")); w > mostColumns {
				list = append(list, found(f.path, "%s:%d has %d columns, at most %d", f.path, n, w, mostColumns))
			}
		}
	}
	return list
}

// width counts columns, a tab up to the next multiple of its width.
func width(line string) int {
	w := 0
	for _, r := range line {
		if r == '\t' {
			w += tab - w%tab
		} else {
			w++
		}
	}
	return w
}

// checkGoroutines wants goroutines to start in listed files only.
func checkGoroutines(files []*file) []finding {
	var list []finding
	for _, f := range code(files) {
		starts := 0
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if !startsGoroutine(n) {
				return true
			}
			starts++
			if goroutines[f.path] == "" {
				list = append(list, found(f.path,
					"%s:%d starts a goroutine: the table goroutines does not list the file",
					f.path, f.line(n.Pos())))
			}
			return true
		})
		if starts == 0 && goroutines[f.path] != "" {
			list = append(list, found(f.path, "%s starts no goroutine now: take it out of the table goroutines",
				f.path))
		}
	}
	return list
}

// startsGoroutine knows the go statement, the method Go of groups, and AfterFunc.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && (sel.Sel.Name == "Go" && len(n.Args) == 1 || sel.Sel.Name == "AfterFunc")
	}
	return false
}
