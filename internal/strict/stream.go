package strict

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader cuts a stream into documents: JSON values, one a line or spread over
// lines, or YAML documents between --- lines. It holds one document at a time.
type Reader struct {
	r    *bufio.Reader
	line int // lines read so far
	held []byte
	err  error
}

// NewReader reads documents from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10)}
}

// Next returns the next document and the line that it begins on; io.EOF after
// the last. The bytes are the caller's.
func (r *Reader) Next() ([]byte, int, error) {
	for {
		text, err := r.take()
		if err != nil {
			return nil, r.line, err
		}
		trimmed := bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
		if len(trimmed) == 0 || trimmed[0] == '#' || isSeparator(text) && len(trimmed) == 3 {
			continue
		}
		first := r.line
		var doc []byte
		if trimmed[0] == '{' {
			doc, err = r.braces(text)
		} else {
			doc, err = r.untilSeparator(text)
		}
		return doc, first, err
	}
}

// Drained says that the next document is not in memory yet, so that asking for
// it may wait for whoever writes the stream.
func (r *Reader) Drained() bool { return r.held == nil && r.r.Buffered() == 0 }

// take returns the next line with its end.
func (r *Reader) take() ([]byte, error) {
	if r.held != nil {
		text := r.held
		r.held = nil
		r.line++
		return text, nil
	}
	if r.err != nil {
		return nil, r.err
	}
	var text []byte
	for {
		part, err := r.r.ReadSlice('\n')
		text = append(text, part...)
		if len(text) > MaxBytes {
			r.err = tooLarge(r.line + 1)
			return nil, r.err
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		r.err = err
		if err != nil && (len(text) == 0 || !errors.Is(err, io.EOF)) {
			return nil, err
		}
		r.line++
		return text, nil
	}
}

func tooLarge(line int) error {
	return &Error{Line: line, Msg: fmt.Sprintf("the document is larger than the %d bytes that are read", MaxBytes)}
}

func (r *Reader) giveBack(text []byte) {
	r.held = text
	r.line--
}

func isSeparator(text []byte) bool {
	if !bytes.HasPrefix(text, []byte("---")) && !bytes.HasPrefix(text, []byte("...")) {
		return false
	}
	return len(text) == 3 || bytes.IndexByte([]byte(" \t\r\n"), text[3]) >= 0
}

func (r *Reader) untilSeparator(doc []byte) ([]byte, error) {
	first := r.line
	for {
		text, err := r.take()
		if errors.Is(err, io.EOF) {
			return doc, nil
		}
		if err != nil {
			return nil, err
		}
		if isSeparator(text) {
			r.giveBack(text)
			return doc, nil
		}
		if doc = append(doc, text...); len(doc) > MaxBytes {
			return nil, tooLarge(first)
		}
	}
}

// braces reads lines until the braces match. A line that begins with a brace in
// the first column begins the next document whatever is still open, so that one
// broken line of a stream is reported as itself.
func (r *Reader) braces(doc []byte) ([]byte, error) {
	first := r.line
	var s scanner
	s.scan(doc)
	for s.depth > 0 {
		text, err := r.take()
		if errors.Is(err, io.EOF) {
			return doc, nil
		}
		if err != nil {
			return nil, err
		}
		if text[0] == '{' || isSeparator(text) {
			r.giveBack(text)
			return doc, nil
		}
		s.scan(text)
		if doc = append(doc, text...); len(doc) > MaxBytes {
			return nil, tooLarge(first)
		}
	}
	return doc, nil
}

// scanner counts open braces outside of quotes and comments, in JSON and in
// YAML's flow style.
type scanner struct {
	depth int
	quote byte
}

func (s *scanner) scan(text []byte) {
	before := byte(' ')
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case s.quote == '"' && c == '\\', s.quote == '\'' && c == '\'' && i+1 < len(text) && text[i+1] == '\'':
			i++
		case s.quote != 0:
			if c == s.quote {
				s.quote = 0
			}
		case c == '"' || c == '\'' && bytes.IndexByte([]byte(" \t\n,:[{"), before) >= 0:
			s.quote = c
		case c == '#' && (before == ' ' || before == '\t' || before == '\n'):
			return
		case c == '{' || c == '[':
			s.depth++
		case c == '}' || c == ']':
			s.depth--
		}
		before = c
	}
}
