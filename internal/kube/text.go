package kube

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable is text that people can be shown: one line of valid UTF-8, of at most
// limit bytes, without characters that control a terminal or turn the direction
// of writing.
func printable(text string, limit int) string {
	if len(text) > 4*limit { // what is cut anyway need not be looked at
		text = text[:4*limit]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
	return clip(text, limit)
}

const ellipsis = "…"

// clip cuts text to at most limit bytes, between two characters.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
