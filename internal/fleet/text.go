package fleet

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/quietcore/quietcore/cpuset"
)

// Printable keeps text from elsewhere from moving the cursor; lines stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return '?'
	}, text)
}

// line is Printable text on one line.
func line(text string) string { return Printable(strings.Join(strings.Fields(text), " ")) }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return line(text)
}

// count is how many CPUs a list has; -1: it is none.
func count(list string) int {
	set, err := cpuset.Parse(list)
	if err != nil {
		return -1
	}
	return set.Count()
}

var name = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

// isName reports whether text can be the name of an object: what is put into a path is one.
func isName(text string) bool { return len(text) <= 253 && name.MatchString(text) }
