package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/doctext"
)

// onPaper are commands of the tutorials that need neither a daemon nor a cluster.
var onPaper = regexp.MustCompile(`^bin/quietcore (simulate|cpi replay|reclaim replay) `)

// TestTutorials: what a tutorial shows below a command is what the command prints. A block of
// text above the first command is a part of a file beside the page.
func TestTutorials(t *testing.T) {
	t.Parallel()
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := doctext.Pages(repo)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range pages {
		if !strings.HasPrefix(p.Path, "docs/tutorials/") {
			continue
		}
		found++
		shown, output := 0, besides(t, filepath.Join(repo, filepath.FromSlash(p.Path)))
		commands := p.Commands()
		for _, b := range p.Blocks {
			for ; len(commands) > 0 && commands[0].Line < b.Line+strings.Count(b.Text, "\n"); commands = commands[1:] {
				if onPaper.MatchString(commands[0].Text) {
					output = printed(t, repo, commands[0])
				}
			}
			if b.Info != "text" {
				continue
			}
			shown++
			if !strings.Contains(output, b.Text) {
				t.Errorf("%s:%d: this is not printed:\n%sbut this:\n%s", p.Path, b.Line, b.Text, output)
			}
		}
		if shown < 2 {
			t.Errorf("%s shows %d outputs", p.Path, shown)
		}
	}
	if found < 3 {
		t.Errorf("%d tutorials were found", found)
	}
}

// besides is the text of the files beside a page.
func besides(t *testing.T, page string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(filepath.Dir(page), "*.csv"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files beside %s: %v", page, err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// printed is what a command prints in the root of the repository.
func printed(t *testing.T, repo string, c doctext.Command) string {
	t.Helper()
	calls, err := c.Calls()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range calls[1:] {
		if _, err := exec.LookPath(call[0]); err != nil && os.Getenv("QUIETCORE_CI") != "1" {
			t.Skipf("%s: %v: make setup-test installs it", c, err)
		}
	}
	run := exec.Command("sh", "-c", strings.TrimPrefix(c.Text, "bin/"))
	var out, errs bytes.Buffer
	run.Dir, run.Stdout, run.Stderr = repo, &out, &errs
	if err := run.Run(); err != nil || errs.Len() > 0 {
		t.Errorf("%s: %v\n%s", c, err, errs.String())
	}
	return out.String()
}
