package deptest

import (
	"errors"
	"fmt"
	"go/ast"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// walks are the numbered walks of docs/architecture.md, by heading, and how many
// files each may pass at most. Each step links to files and names, right after
// each link and between backticks, what to look for in that file:
//
//  1. [plugin/nri.go](../plugin/nri.go) `CreateContainer`: the handler
//
// or the same as a row of a table, | 1 | … | … |.
//
// In a Go file the name has to be declared, elsewhere it has to occur.
var walks = map[string]int{
	"The path of a request":  8,
	"The path of a sample":   10,
	"The path of a lent CPU": 8,
}

// stop is one link of a walk.
type stop struct {
	file  string // relative to the root
	names []string
}

var (
	step    = regexp.MustCompile(`^(\d+\. |\| \d+ \| )`)
	stopAt  = regexp.MustCompile("\\[[^]]*\\]\\(([^)#]+)\\)((?:,? (?:and )?`[^`]+`)*)")
	between = regexp.MustCompile("`([^`]+)`")
)

// parseWalks returns the stops of every section that has numbered steps.
func parseWalks(page string) map[string][]stop {
	all := map[string][]stop{}
	heading, inStep := "", false
	for text := range strings.Lines(page) {
		text = strings.TrimRight(text, "\n")
		switch {
		case strings.HasPrefix(text, "#"):
			heading, inStep = strings.TrimSpace(strings.TrimLeft(text, "#")), false
		case step.MatchString(text):
			inStep = true
		case !strings.HasPrefix(text, " "):
			inStep = false
		}
		if !inStep {
			continue
		}
		for _, m := range stopAt.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasSuffix(m[1], ".md") {
				continue
			}
			s := stop{file: path.Clean(path.Join("docs", m[1]))}
			for _, name := range between.FindAllStringSubmatch(m[2], -1) {
				s.names = append(s.names, name[1])
			}
			all[heading] = append(all[heading], s)
		}
	}
	return all
}

// checkWalks compares the walks of a page with the files of a tree.
func checkWalks(page string, tree fs.FS) []finding {
	var list []finding
	all := parseWalks(page)
	for _, heading := range slices.Sorted(maps.Keys(walks)) {
		stops := all[heading]
		files := map[string]bool{}
		for _, s := range stops {
			files[s.file] = true
			if err := checkStop(s, tree); err != nil {
				list = append(list, found(heading, "%s: %v", heading, err))
			}
		}
		if n := len(files); n < 3 || n > walks[heading] {
			list = append(list, found(heading, "%s: its steps pass %d files, not 3 to %d", heading, n, walks[heading]))
		}
	}
	return list
}

func checkStop(s stop, tree fs.FS) error {
	text, err := fs.ReadFile(tree, s.file)
	if err != nil {
		return fmt.Errorf("%s is no file: %w", s.file, err)
	}
	if len(s.names) == 0 {
		return fmt.Errorf("the link to %s is not followed by a name to look for, between backticks", s.file)
	}
	var errs []error
	for _, name := range s.names {
		if !has(s.file, string(text), name) {
			errs = append(errs, fmt.Errorf("%s has no %s", s.file, name))
		}
	}
	return errors.Join(errs...)
}

// has says whether a file declares name (Go), or has it as a word.
func has(file, text, name string) bool {
	if !strings.HasSuffix(file, ".go") {
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(text)
	}
	f, err := parse(file, text)
	return err == nil && slices.Contains(declared(f), name)
}

// declared lists a file's types, functions, constants and variables, and its
// methods both as Type.Method and as Method.
func declared(f *file) []string {
	var names []string
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
			if d.Recv != nil {
				names = append(names, receiver(d)+"."+d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

func TestWalks(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, "walk", checkWalks(string(page), os.DirFS(root)))
}
