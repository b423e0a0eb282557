package kube

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"6 CPUs are free", "6 CPUs are free"},
		{"a\nb\tc\r", "a b c "},
		{"\x1b[31mred\x00", "?[31mred?"},
		{"turned \u202egnp.exe", "turned ?gnp.exe"},
		{"zero\u200bwidth", "zero?width"},
		{"bad \xff byte", "bad \ufffd byte"},
		{"größer, 数", "größer, 数"},
		{strings.Repeat("x", 30), strings.Repeat("x", 17) + "…"},
		{strings.Repeat("ü", 30), strings.Repeat("ü", 8) + "…"},
	} {
		if got := printable(c.in, 20); got != c.want {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("x\x1b", 5)
	f.Add("", 0)
	f.Add("\xf0\x9f\x98", 2)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 3 + (limit&0xfff)%2000
		got := printable(text, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%q is %d bytes of at most %d, or not UTF-8", got, len(got), limit)
		}
		for _, r := range got {
			if r != utf8.RuneError && !unicode.IsPrint(r) {
				t.Fatalf("%q has %U", got, r)
			}
		}
		if again := printable(got, limit); again != got {
			t.Fatalf("%q becomes %q", got, again)
		}
	})
}
