package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// TestLinksInDocsLead wants every relative link in the README and the docs to
// lead to a file.
func TestLinksInDocsLead(t *testing.T) {
	var pages []string
	for _, dir := range []string{"docs", "docs/evidence", "docs/security", "docs/semantics", "docs/tutorials"} {
		found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.md"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%d pages in %s, %v", len(found), dir, err)
		}
		pages = append(pages, found...)
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
