// Package strict reads YAML or JSON into Go values and takes nothing that it
// does not understand.
//
// Keys are those of the json tags, case included. Every mistake in a document
// is reported at once, each with its line, its path and the way out:
//
//	line 3: allocation: unknown key "bindpolicy"; did you mean "bindPolicy"?
//
// A field with the tag strict:"required" must be there. A number or a word such
// as true means just these characters where text is due.
//
// One walk over the document both checks and decodes it, so that nothing can be
// accepted by one parser and understood differently by another: YAML 1.1 words
// such as off and yes are text, never booleans. Work and memory are bounded by
// the size of the document; aliases, which could multiply it, are refused.
package strict

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// MaxBytes bounds one document, unless its reader says otherwise.
const MaxBytes = 1 << 20

// maxDepth bounds nesting; no document of ours nests deeper than eight levels.
const maxDepth = 64

// maxErrors bounds how much a document full of mistakes can print.
const maxErrors = 50

// Error is one mistake in a document.
type Error struct {
	Line int    // counted from 1; 0 where there is no line to point at
	Path string // the keys that lead there, "" for the whole document
	Msg  string
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0 && e.Path == "":
		return e.Msg
	case e.Line == 0:
		return e.Path + ": " + e.Msg
	case e.Path == "":
		return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
	}
	return fmt.Sprintf("line %d: %s: %s", e.Line, e.Path, e.Msg)
}

// Unmarshal reads one document into the value that into points to. What the
// document leaves out keeps the value it has. The error joins one *Error for
// each mistake; the value is then partly written and of no use.
func Unmarshal(data []byte, into any) error {
	return NewDecoder().Unmarshal(data, 1, into)
}

func join(list []*Error) error {
	if len(list) == 0 {
		return nil
	}
	var errs []error
	for i, e := range list {
		if i == maxErrors {
			errs = append(errs, &Error{Msg: fmt.Sprintf("and %d more mistakes", len(list)-maxErrors)})
			break
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// quote keeps hostile text to one short, printable line.
func quote(text string) string {
	const most = 60
	if len(text) <= most {
		return strconv.Quote(text)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strconv.Quote(text[:cut]) + "…"
}
