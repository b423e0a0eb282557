package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/quietcore/quietcore/"

// pure packages decide; they do no I/O, own no clock and hold no lock, so that
// any run of them can be repeated.
var pure = []string{"topology", "cpuallocator", "policy", "cpi/sample", "cpi/detect", "reclaim", "cpuset"}

var impure = []string{"os", "net", "log", "log/slog", "context", "sync", "sync/atomic", "io/ioutil", "syscall",
	"math/rand", "math/rand/v2"}

type file struct {
	dir  string // relative to the root, with slashes
	path string
	ast  *ast.File
	test bool
}

func parseAll(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	root := filepath.Join("..", "..")
	fset := token.NewFileSet()
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" ||
			name == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		files = append(files, file{dir: filepath.ToSlash(rel), path: path, ast: f,
			test: strings.HasSuffix(path, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 30 {
		t.Fatalf("only %d files were found", len(files))
	}
	return fset, files
}

func imports(f file) []string {
	var list []string
	for _, i := range f.ast.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		list = append(list, path)
	}
	return list
}

func TestPurePackages(t *testing.T) {
	_, files := parseAll(t)
	for _, f := range files {
		if f.test || !slices.Contains(pure, f.dir) {
			continue
		}
		for _, i := range imports(f) {
			if slices.Contains(impure, i) {
				t.Errorf("%s imports %s: %s is pure", f.path, i, f.dir)
			}
			if in, ours := strings.CutPrefix(i, module); ours && !slices.Contains(pure, in) {
				t.Errorf("%s imports %s, which is not pure", f.path, i)
			}
			if first, _, _ := strings.Cut(i, "/"); strings.Contains(first, ".") && !strings.HasPrefix(i, module) {
				t.Errorf("%s imports %s: pure packages stand on the standard library alone", f.path, i)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" &&
					slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker"},
						sel.Sel.Name) {
					t.Errorf("%s reads the clock (time.%s): the time is a value here", f.path, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// TestEveryPackageSaysWhatItIs wants a package comment, as `go doc` shows it.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	_, files := parseAll(t)
	documented := map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		documented[f.dir] = documented[f.dir] || f.ast.Doc != nil && len(f.ast.Doc.Text()) > 40
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

// allowedWide are functions and interfaces that may be wider than the rule, each
// with its reason.
var allowedWide = map[string]string{
	"fillPairs": "one parameter a kind of core; see its comment",
}

func TestInterfacesAndParametersStayNarrow(t *testing.T) {
	const methods, parameters = 5, 5
	fset, files := parseAll(t)
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if i, ok := n.Type.(*ast.InterfaceType); ok && i.Methods.NumFields() > methods &&
					allowedWide[n.Name.Name] == "" {
					t.Errorf("%s: interface %s has %d methods, at most %d", fset.Position(n.Pos()), n.Name.Name,
						i.Methods.NumFields(), methods)
				}
			case *ast.FuncDecl:
				if p := n.Type.Params.NumFields(); p > parameters && allowedWide[n.Name.Name] == "" {
					t.Errorf("%s: %s has %d parameters, at most %d", fset.Position(n.Pos()), n.Name.Name, p, parameters)
				}
			}
			return true
		})
	}
}

func TestFilesStayReadable(t *testing.T) {
	const most = 700
	fset, files := parseAll(t)
	for _, f := range files {
		if lines := fset.File(f.ast.Pos()).LineCount(); lines > most && !f.test {
			t.Errorf("%s has %d lines, at most %d: it is perhaps several things", f.path, lines, most)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// TestLinksInDocsLead wants every relative link in the README and the docs to
// lead to a file.
func TestLinksInDocsLead(t *testing.T) {
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}
