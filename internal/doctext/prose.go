package doctext

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// What a page is held to, so that people read it.
const (
	MaxColumns       = 120    // of a line of text
	MaxSentenceWords = 25     // of a sentence
	MaxPageWords     = 1500   // of a page, code and tables included
	MaxProseWords    = 30_000 // of all pages but the reference
)

// shorter are pages and folders that are held to fewer words.
var shorter = []struct {
	begins string
	words  int
}{{"README.md", 500}, {"docs/tutorials/", 600}}

// maxWords is how many words a page may have, code and tables included.
func (p Page) maxWords() int {
	for _, s := range shorter {
		if strings.HasPrefix(p.Path, s.begins) {
			return s.words
		}
	}
	return MaxPageWords
}

// words counts what has a letter or a digit: no bullet, dash or edge of a table.
func words(s string) int {
	n := 0
	for _, f := range strings.Fields(s) {
		if strings.IndexFunc(f, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			n++
		}
	}
	return n
}

// ProseWords counts what people read from beginning to end: headings, paragraphs and items, a code span being a word.
// Code and tables are looked at instead.
func (p Page) ProseWords() int {
	n := 0
	for _, t := range texts([]byte(p.Text)) {
		if !t.cell {
			n += words(t.Text)
		}
	}
	return n
}

// Finding is a place of a page that is not as it should be.
type Finding struct {
	Page string
	Line int
	What string
}

func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s", f.Page, f.Line, f.What) }

// better are words that have a better one: the first is what a reader of this field looks for.
var better = []struct{ word, use string }{
	{"astray", "on CPUs of others"}, {"strays", "unmanaged pods"}, {"stranger", "another pod or program"},
	{"unwelcome", "refused"}, {"bury", "forget"}, {"disown", "release"}, {"dally", "wait"}, {"stirred", "notified"},
	{"let go of", "released or disconnected"}, {"leverage", "use"}, {"utilize", "use"}, {"whilst", "while"},
	{"in order to", "to"}, {"prior to", "before"}, {"master node", "control plane"}, {"blacklist", "deny list"},
	{"whitelist", "allow list"},
}

// Prose is what keeps a page from being read easily: long lines, sentences and pages, and words that have a better one.
func (p Page) Prose() []Finding {
	var list []Finding
	add := func(line int, format string, args ...any) {
		list = append(list, Finding{p.Path, line, fmt.Sprintf(format, args...)})
	}
	if n := words(p.Text); n > p.maxWords() {
		add(1, "the page has %d words, at most %d", n, p.maxWords())
	}
	fenced := false
	for i, l := range strings.Split(p.Text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
		}
		cell := strings.HasPrefix(strings.TrimSpace(l), "|")
		if n := utf8.RuneCountInString(l); n > MaxColumns && !fenced && !cell && !strings.Contains(l, "](") {
			add(i+1, "the line has %d columns, at most %d", n, MaxColumns)
		}
	}
	for _, t := range texts([]byte(p.Text)) {
		for _, s := range sentences(t.Text) {
			if n := len(strings.Fields(s)); n > MaxSentenceWords {
				add(t.Line, "%d words in a sentence, at most %d: %s", n, MaxSentenceWords, beginning(s))
			}
		}
		lower := strings.ToLower(t.Text)
		for _, b := range better {
			if containsWord(lower, b.word) {
				add(t.Line, "%q: say %s", b.word, b.use)
			}
		}
	}
	return list
}

// passage is a text that stands for itself.
type passage struct {
	Span
	cell bool // of a table
}

// texts are the paragraphs, items, headings and cells of a page, a code span being one word.
func texts(source []byte) []passage {
	var list []passage
	at := 0
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindParagraph, ast.KindTextBlock, ast.KindHeading, extast.KindTableCell:
			if n.Lines().Len() > 0 {
				at = n.Lines().At(0).Start
			}
			list = append(list, passage{Span{said(n, source), 1 + strings.Count(string(source[:at]), "\n")},
				n.Kind() == extast.KindTableCell})
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return list
}

// said is the text of a node as one reads it.
func said(n ast.Node, source []byte) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.CodeSpan:
			b.WriteString("code")
		case *ast.RawHTML:
		case *ast.Text:
			b.Write(c.Segment.Value(source))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		default:
			b.WriteString(said(c, source))
		}
	}
	return b.String()
}

var (
	end   = regexp.MustCompile(`[.!?]["')]*\s+`)
	short = regexp.MustCompile(`\b(e\.g|i\.e|etc|vs|No|cf|al)\.$`)
)

// sentences splits a text at what ends a sentence, unless the next one begins with a small letter: that is an
// abbreviation.
func sentences(s string) []string {
	var list []string
	from := 0
	for _, at := range end.FindAllStringIndex(s, -1) {
		next, _ := utf8.DecodeRuneInString(s[at[1]:])
		word := strings.TrimSpace(s[from:at[1]])
		if unicode.IsLower(next) && !strings.HasPrefix(s[at[1]:], "code") || short.MatchString(word) {
			continue
		}
		list = append(list, word)
		from = at[1]
	}
	return append(list, s[from:])
}

// beginning is enough of a sentence to find it.
func beginning(s string) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(len(words), 8)], " ") + " …"
}

func containsWord(s, word string) bool {
	for from := 0; ; {
		i := strings.Index(s[from:], word)
		if i < 0 {
			return false
		}
		i += from
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		after, _ := utf8.DecodeRuneInString(s[i+len(word):])
		if !unicode.IsLetter(before) && !unicode.IsLetter(after) {
			return true
		}
		from = i + len(word)
	}
}
