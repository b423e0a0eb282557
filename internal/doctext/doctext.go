// Package doctext reads the pages of the documentation for the tests that hold
// them: fenced blocks, the commands in them, code spans, headings and links.
//
//	pages, err := doctext.Pages("../..")
//	for _, c := range pages[0].Commands() { … } // c.Text: quietcore status | jq .pools
package doctext

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
	"mvdan.cc/sh/v3/syntax"
)

// Page is one file of Markdown.
type Page struct {
	Path    string // below the root, with slashes
	Text    string
	Blocks  []Block
	Spans   []Span
	Links   []Span // destinations, images too
	Anchors map[string]bool
}

// Block is a fenced block; Line is that of its first line of text.
type Block struct {
	Page, Info, Text string
	Line             int
}

// Span is a short text within a page.
type Span struct {
	Text string
	Line int
}

// Command is one command line of a block, as a shell reads it.
type Command struct {
	Page, Text string
	Line       int
}

func (c Command) String() string { return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, c.Text) }

// anchor is a place that a page names without a heading, such as a section that moved to another page.
var anchor = regexp.MustCompile(`^<a id="([^"]+)">$`)

// where lists what is documentation, below the root of the repository.
var where = []string{"*.md", "docs/*.md", "docs/tutorials/*.md", "docs/semantics/*.md", "docs/security/*.md",
	"charts/quietcore/README.md"}

// evidence are measurements, whose commands and figures are of the day on which they were taken.
var evidence = []string{"docs/evidence/*.md"}

// Pages reads all pages of the repository at root. The reference of commands,
// docs/cli, is generated and has a test of its own; a changelog quotes.
func Pages(root string) ([]Page, error) { return read(root, where) }

// Evidence reads the pages of measurements.
func Evidence(root string) ([]Page, error) { return read(root, evidence) }

func read(root string, patterns []string) ([]Page, error) {
	var pages []Page
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if base := filepath.Base(name); base == "CHANGELOG.md" || strings.HasPrefix(base, "THIRD_PARTY") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return nil, err
			}
			pages = append(pages, Parse(filepath.ToSlash(rel), source))
		}
	}
	if len(pages) < 5 {
		return nil, fmt.Errorf("%d pages below %s; that is not the documentation", len(pages), root)
	}
	return pages, nil
}

// Parse reads one page.
func Parse(name string, source []byte) Page {
	p := Page{Path: name, Text: string(source), Anchors: map[string]bool{}}
	line := func(at int) int { return 1 + strings.Count(p.Text[:at], "\n") }
	last := 1 // inline nodes without a segment of their own are near the last that had one
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines().Len() > 0 {
			last = line(n.Lines().At(0).Start)
		}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			info := ""
			if n.Info != nil {
				info = string(n.Info.Segment.Value(source))
			}
			p.Blocks = append(p.Blocks, Block{Page: name, Info: info, Text: string(n.Lines().Value(source)),
				Line: last})
		case *ast.Heading:
			slug := Slug(inline(n, source))
			for i, s := 1, slug; p.Anchors[slug]; i++ {
				slug = fmt.Sprintf("%s-%d", s, i)
			}
			p.Anchors[slug] = true
		case *ast.RawHTML:
			if id := anchor.FindSubmatch(n.Segments.Value(source)); id != nil {
				p.Anchors[string(id[1])] = true
			}
		case *ast.Link:
			p.Links = append(p.Links, Span{string(n.Destination), last})
		case *ast.Image:
			p.Links = append(p.Links, Span{string(n.Destination), last})
		case *ast.CodeSpan:
			p.Spans = append(p.Spans, Span{inline(n, source), last})
		case *ast.Text:
			last = line(n.Segment.Start)
		}
		return ast.WalkContinue, nil
	})
	return p
}

// inline is the text of a node without its markup.
func inline(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
			continue
		}
		b.WriteString(inline(c, source))
	}
	return b.String()
}

// Slug is the anchor that a heading gets where Markdown is shown on a forge.
func Slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// Target is the page and the anchor that a link on a page leads to; ok is false
// for what is outside of the repository.
func Target(page, link string) (file, anchor string, ok bool) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return "", "", false
	}
	file, anchor, _ = strings.Cut(link, "#")
	if file == "" {
		return page, anchor, true
	}
	return path.Join(path.Dir(page), file), anchor, true
}

// Programs begin a command line; a block without a language that begins with one
// of them is taken for commands.
var Programs = []string{
	"quietcore", "kubectl", "helm", "make", "go", "git", "curl", "systemctl", "journalctl", "ctr", "k3s", "crictl",
	"skopeo", "podman", "oc", "ssh", "scp",
	"cp", "mv", "rm", "mkdir", "cat", "sudo", "base64", "sha256sum", "tar", "promtool", "bin/quietcore",
}

// IsShell says whether a block is made of commands.
func (b Block) IsShell() bool {
	switch language, _, _ := strings.Cut(b.Info, " "); language {
	case "sh", "shell", "bash", "console":
		return true
	case "":
		first, _, _ := strings.Cut(strings.TrimSpace(b.Text), "\n")
		word, rest, _ := strings.Cut(first, " ")
		if strings.HasPrefix(first, "quietcore top - ") {
			return false // what it prints begins with its name
		}
		return slices.Contains(Programs, word) || strings.Contains(word, "=") && rest != ""
	}
	return false
}

// Commands lists the commands of a page in their order. A line that ends in a
// backslash goes on; `$ ` is a prompt, and in a block of the language console
// what has none is output; two spaces or ` #` begin a remark.
func (p Page) Commands() []Command {
	var list []Command
	for _, b := range p.Blocks {
		if b.IsShell() {
			list = append(list, b.commands()...)
		}
	}
	return list
}

func (b Block) commands() []Command {
	var list []Command
	held, within, from := "", false, 0
	for i, line := range strings.Split(b.Text, "\n") {
		prompt := strings.HasPrefix(line, "$ ")
		if strings.HasPrefix(b.Info, "console") && !prompt && held == "" {
			continue
		}
		goesOn := false
		switch {
		case within:
			held += "\n" + line
		case held == "":
			from = b.Line + i
			fallthrough
		default:
			line, goesOn = strings.CutSuffix(strings.TrimRight(strings.TrimPrefix(line, "$ "), " "), `\`)
			held = strings.TrimSpace(held + " " + withoutRemark(strings.TrimSpace(line)))
		}
		if within = !goesOn && open(held); goesOn || within {
			continue
		}
		if held != "" && !strings.HasPrefix(held, "#") {
			list = append(list, Command{Page: b.Page, Text: held, Line: from})
		}
		held = ""
	}
	if text := strings.TrimSpace(held); text != "" {
		list = append(list, Command{Page: b.Page, Text: text, Line: from})
	}
	return list
}

// open says that a command goes on in the next line, inside of a quotation or of
// a here-document.
func open(line string) bool {
	_, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	return err != nil && (syntax.IsIncomplete(err) || strings.Contains(err.Error(), "without matching") ||
		strings.Contains(err.Error(), "unclosed"))
}

// withoutRemark cuts off what begins with two spaces outside of quotation marks.
func withoutRemark(line string) string {
	var quote rune
	for i, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '#' && i > 0 && line[i-1] == ' ', strings.HasPrefix(line[i:], "  "):
			return strings.TrimSpace(line[:i])
		}
	}
	return line
}

// Calls are the programs that a command line runs, with their arguments, those of
// pipes and lists one after the other. Quotation marks are taken off; what a
// shell would put in stays as it is written.
func (c Command) Calls() ([][]string, error) {
	f, err := syntax.NewParser().Parse(strings.NewReader(c.Text), "")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	var calls [][]string
	syntax.Walk(f, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, word(w))
		}
		calls = append(calls, words)
		return true
	})
	return calls, nil
}

func word(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			b.WriteString(word(&syntax.Word{Parts: part.Parts}))
		case *syntax.Lit:
			b.WriteString(unescape(part.Value))
		default:
			var raw strings.Builder
			if err := syntax.NewPrinter().Print(&raw, part); err == nil {
				b.WriteString(raw.String())
			}
		}
	}
	return b.String()
}

func unescape(s string) string { return strings.ReplaceAll(s, `\`, "") }
