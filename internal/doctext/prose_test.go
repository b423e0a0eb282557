package doctext

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProse(t *testing.T) {
	words := func(n int) string { return "A" + strings.Repeat(" b", n-1) }
	wide := strings.Repeat("a", 130)
	const long = " words in a sentence, at most 25: A b b b b b b b …"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"as it should be": {"# A\n\n" + words(25) + ". Another one, e.g. this\none, with `a code span`.\n", nil},
		"a long sentence": {"One.\n\nTwo.\n" + words(26) + ".\n", []string{"a.md:3: 26" + long}},
		"over two lines":  {words(20) + "\n" + strings.Repeat("b ", 6) + ".\n", []string{"a.md:1: 27" + long}},
		"in an item and a cell": {"- " + words(26) + "\n\n| a | b |\n|---|---|\n| c | " + words(27) + " |\n",
			[]string{"a.md:1: 26" + long, "a.md:5: 27" + long}},
		"a code span is a word": {words(24) + " `a b c d`.\n", nil},
		"a wide line": {"a" + strings.Repeat("–", 120) + "\n",
			[]string{"a.md:1: the line has 121 columns, at most 120"}},
		"wide, but code, a row or a link": {"```\n" + wide + "\n```\n\n| " + wide + " |\n|---|\n\n[" + wide +
			"](b.md)\n", nil},
		"words with a better one": {"It is let go of. It dallies, burying nothing, in order to win.\n",
			[]string{`a.md:1: "let go of": say released or disconnected`, `a.md:1: "in order to": say to`}},
		"a long page": {strings.Repeat(words(20)+".\n\n", 76),
			[]string{"a.md:1: the page has 1520 words, at most 1500"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Parse("a.md", []byte(c.text))
			var got []string
			for _, f := range p.Prose() {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProseWords: headings, paragraphs and items are read; code and tables are looked at.
func TestProseWords(t *testing.T) {
	p := Parse("a.md", []byte("# A b\n\nOne `a b c` two.\n\n- three\n  four\n\n| a | b |\n|---|---|\n| c | d |\n\n"+
		"```\na b c\n```\n"))
	if got := p.ProseWords(); got != 7 {
		t.Errorf("%d words, want 7", got)
	}
}

// TestShorterPages: the README and tutorials are held to fewer words than other pages.
func TestShorterPages(t *testing.T) {
	text := []byte(strings.Repeat("A b.\n\n", 301))
	for name, want := range map[string]string{"README.md": "has 602 words, at most 500",
		"docs/tutorials/a.md": "has 602 words, at most 600", "docs/README.md": ""} {
		list := Parse(name, text).Prose()
		if want == "" && len(list) > 0 || want != "" && (len(list) != 1 || !strings.HasSuffix(list[0].What, want)) {
			t.Errorf("%s: %v, want %q", name, list, want)
		}
	}
}
