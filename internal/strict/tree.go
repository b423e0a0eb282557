package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

type kind uint8

const (
	nullNode kind = iota
	boolNode
	intNode
	floatNode
	textNode
	listNode
	mapNode
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a whole number", "a number", "text", "a list", "a mapping"}[k]
}

// node is a document's value whichever syntax it came in.
type node struct {
	kind  kind
	line  int
	text  string // scalars: as written, quotes and escapes removed
	items []node // lists
	keys  []key  // mappings: in the order of items
	// empty is a null that was not written: "key:" with nothing behind it.
	empty bool
}

type key struct {
	text string
	line int
}

// parse turns a document into a tree. Lines count from first.
func parse(data []byte, first, most int) (node, *Error) {
	if len(data) > most {
		return node{}, &Error{Msg: fmt.Sprintf("document of %d bytes is larger than the %d that are read", len(data),
			most)}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return node{}, &Error{Line: first + lineOfInvalid(data), Msg: "the document is not UTF-8 text"}
	}
	// JSON goes its own way because YAML cannot read all of it (surrogate pairs)
	// and because streams of it are long.
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) > 0 && start[0] == '{' && json.Valid(data) {
		return parseJSON(data, first)
	}
	return parseYAML(data, first)
}

func lineOfInvalid(data []byte) int {
	line := 0
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[n:]
	}
	return line
}

// jsonReader reads JSON that is known to be valid, so it looks only for where
// things end.
type jsonReader struct {
	data string // what is read are parts of it, so nothing is copied
	at   int
	line int
}

func parseJSON(data []byte, first int) (node, *Error) {
	r := &jsonReader{data: string(data), line: first}
	return r.value(0)
}

// next skips to the next byte that is neither space nor one of the given.
func (r *jsonReader) next(skip byte) byte {
	for ; ; r.at++ {
		switch c := r.data[r.at]; c {
		case '\n':
			r.line++
		case ' ', '\t', '\r', skip:
		default:
			return c
		}
	}
}

func (r *jsonReader) value(depth int) (node, *Error) {
	c := r.next(' ')
	n := node{line: r.line}
	switch c {
	case '"':
		n.kind = textNode
		err := error(nil)
		if n.text, err = r.text(); err != nil {
			return n, &Error{Line: n.line, Msg: err.Error()}
		}
	case '{', '[':
		if depth == maxDepth {
			return n, tooDeep(n.line)
		}
		return r.compound(n, c, depth)
	case 'n':
		n.kind, n.text = nullNode, r.literal()
	case 't', 'f':
		n.kind, n.text = boolNode, r.literal()
	default:
		n.kind, n.text = intNode, r.literal()
		if strings.ContainsAny(n.text, ".eE") {
			n.kind = floatNode
		}
	}
	return n, nil
}

// text reads a string, whose opening quote is next.
func (r *jsonReader) text() (string, error) {
	from, plain := r.at, true
	for r.at++; r.data[r.at] != '"'; r.at++ {
		if r.data[r.at] == '\\' {
			plain = false
			r.at++
		}
	}
	r.at++
	if plain {
		return r.data[from+1 : r.at-1], nil
	}
	var s string
	err := json.Unmarshal([]byte(r.data[from:r.at]), &s)
	return s, err
}

func (r *jsonReader) literal() string {
	from := r.at
	for r.at < len(r.data) && !strings.ContainsRune(" \t\r\n,:]}", rune(r.data[r.at])) {
		r.at++
	}
	return r.data[from:r.at]
}

func (r *jsonReader) compound(n node, open byte, depth int) (node, *Error) {
	n.kind = listNode
	end := byte(']')
	if open == '{' {
		n.kind, end = mapNode, '}'
	}
	r.at++
	const few = 5 // keys of a usual mapping
	for r.next(',') != end {
		if n.items == nil {
			n.items = make([]node, 0, few)
			if n.kind == mapNode {
				n.keys = make([]key, 0, few)
			}
		}
		if n.kind == mapNode {
			name, err := r.text()
			if err != nil {
				return n, &Error{Line: r.line, Msg: err.Error()}
			}
			n.keys = append(n.keys, key{name, r.line})
			r.next(':')
		}
		item, err := r.value(depth + 1)
		if err != nil {
			return n, err
		}
		n.items = append(n.items, item)
	}
	r.at++
	return n, nil
}

func tooDeep(line int) *Error {
	return &Error{Line: line, Msg: fmt.Sprintf("nests deeper than %d levels", maxDepth)}
}

func parseYAML(data []byte, first int) (node, *Error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return node{kind: nullNode, line: first, empty: true}, nil
	case err != nil:
		return node{}, yamlError(err, first)
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		return node{}, &Error{Line: first - 1 + second.Line, Msg: "a second document begins here; one is read"}
	case !errors.Is(err, io.EOF):
		return node{}, yamlError(err, first)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return node{kind: nullNode, line: first, empty: true}, nil
	}
	return fromYAML(doc.Content[0], first-1, 0)
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?((?s).*)$`)

func yamlError(err error, first int) *Error {
	m := yamlLine.FindStringSubmatch(err.Error())
	e := &Error{Line: first, Msg: "not YAML: " + m[2]}
	if n, convErr := strconv.Atoi(m[1]); convErr == nil {
		e.Line = first - 1 + n
	}
	return e
}

func fromYAML(y *yaml.Node, offset, depth int) (node, *Error) {
	n := node{line: y.Line + offset, text: y.Value}
	if depth > maxDepth {
		return n, tooDeep(n.line)
	}
	if y.Style&yaml.TaggedStyle != 0 {
		return n, &Error{Line: n.line, Msg: fmt.Sprintf("tag %s is not read", quote(y.Tag))}
	}
	switch y.Kind {
	case yaml.AliasNode:
		return n, &Error{Line: n.line, Msg: fmt.Sprintf("alias %s: aliases are not read, write the value again",
			quote("*"+y.Value))}
	case yaml.ScalarNode:
		return scalar(y, n)
	case yaml.SequenceNode:
		n.kind, n.text = listNode, ""
	case yaml.MappingNode:
		n.kind, n.text = mapNode, ""
	default:
		return n, &Error{Line: n.line, Msg: "not a value"}
	}
	for i, c := range y.Content {
		item, err := fromYAML(c, offset, depth+1)
		if err != nil {
			return n, err
		}
		if n.kind == mapNode && i%2 == 0 {
			if item.kind == listNode || item.kind == mapNode {
				return n, &Error{Line: item.line, Msg: fmt.Sprintf("a key is %s; keys are text", item.kind)}
			}
			n.keys = append(n.keys, key{item.text, item.line})
			continue
		}
		n.items = append(n.items, item)
	}
	return n, nil
}

func scalar(y *yaml.Node, n node) (node, *Error) {
	switch tag := y.ShortTag(); tag {
	case "!!null":
		n.kind, n.empty = nullNode, y.Value == ""
	case "!!bool":
		n.kind = boolNode
	case "!!int":
		n.kind = intNode
	case "!!float":
		n.kind = floatNode
	case "!!str", "!!timestamp", "!!merge":
		n.kind = textNode
	default:
		return n, &Error{Line: n.line, Msg: fmt.Sprintf("tag %s is not read", quote(tag))}
	}
	return n, nil
}
