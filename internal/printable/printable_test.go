package printable

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"shop/web-1":             "shop/web-1",
		"\x1b[2Jweb\u202e\r\n\t": "?[2Jweb????",
		"\x9b31m":                "?31m",
		"grüße":                  "gr??e",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"web", 3, "web"}, {"webs", 3, "we…"}, {"w\x1bb", 5, "w?b"}, {"", 1, ""}} {
		if got := Clip(c.text, c.most); got != c.want {
			t.Errorf("%q in %d characters becomes %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestNothingElseGetsThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(1, 40).Draw(t, "most")
		clipped := Clip(text, most)
		if n := utf8.RuneCountInString(clipped); n > most {
			t.Fatalf("%d characters of %d", n, most)
		}
		if bad := func(r rune) bool {
			return r < ' ' || r > '~'
		}; strings.ContainsFunc(Text(text), bad) || strings.ContainsFunc(strings.TrimSuffix(clipped, "…"), bad) {
			t.Fatalf("%q becomes %q and %q", text, Text(text), clipped)
		}
	})
}
