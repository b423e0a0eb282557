package kube

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable makes text safe to display: one line of valid UTF-8, of at most limit
// bytes, without characters that control a terminal or the direction of writing.
func printable(text string, limit int) string {
	if len(text) > 4*limit { // the rest is cut anyway
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

// clip shortens text to at most limit bytes, between two characters.
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
