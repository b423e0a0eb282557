package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/quietcore/quietcore/"

// root is the module's directory, seen from this package.
var root = filepath.Join("..", "..")

// file is one parsed Go file of the module.
type file struct {
	dir  string // relative to the root, with slashes
	path string // the same with the file's name
	text string
	ast  *ast.File
	fset *token.FileSet
	test bool
}

func (f *file) line(p token.Pos) int { return f.fset.Position(p).Line }

// imports lists what the file imports.
func (f *file) imports() []string {
	var list []string
	for _, i := range f.ast.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		list = append(list, name)
	}
	return list
}

// parse makes a file of source text.
func parse(name, text string) (*file, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &file{
		dir: path.Dir(name), path: name, text: text, ast: tree, fset: fset, test: strings.HasSuffix(name, "_test.go"),
	}, nil
}

// module's files are parsed once for all tests.
var parsed = sync.OnceValues(func() ([]*file, error) {
	var files []*file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(name), string(text))
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err == nil && len(files) < 300 {
		err = fmt.Errorf("only %d files were found", len(files))
	}
	return files, err
})

func moduleFiles(t *testing.T) []*file {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// code leaves test files out.
func code(files []*file) []*file {
	var list []*file
	for _, f := range files {
		if !f.test {
			list = append(list, f)
		}
	}
	return list
}
