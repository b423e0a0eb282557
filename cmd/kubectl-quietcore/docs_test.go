package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/doctext"
)

// TestCommandsOfTheDocs: `kubectl quietcore …` of the documentation has that
// subcommand, those flags and as many arguments, also within a sentence. That they work is
// shown by cmd/quietcore, where a daemon answers.
func TestCommandsOfTheDocs(t *testing.T) {
	pages, err := doctext.Pages(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range pages {
		texts := p.Spans
		for _, c := range p.Commands() {
			texts = append(texts, doctext.Span{Text: c.Text, Line: c.Line})
		}
		for _, s := range texts {
			words := strings.Fields(strings.ReplaceAll(s.Text, "…", ""))
			if len(words) < 3 || words[0] != "kubectl" || words[1] != "quietcore" {
				continue
			}
			n++
			if err := parses(words[2:]); err != nil {
				t.Errorf("%s:%d: `%s`: %v", p.Path, s.Line, s.Text, err)
			}
		}
	}
	if n < 5 {
		t.Errorf("only %d were found", n)
	}
}

func parses(args []string) error {
	found, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	if !found.HasParent() {
		return fmt.Errorf("there is no command %q", args[0])
	}
	if err := found.ParseFlags(rest); err != nil {
		return err
	}
	if free := found.Flags().Args(); len(free) > 0 {
		return found.ValidateArgs(free)
	}
	return nil
}
