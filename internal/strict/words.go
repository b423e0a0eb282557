package strict

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// describe names a Go type in the words of a document.
func describe(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(textLeaf) {
		return textNode.String()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intNode.String()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of at least 0"
	case reflect.Float32, reflect.Float64:
		return floatNode.String()
	}
	return textNode.String()
}

// describe says what is there instead, with the value where it is short.
func (n *node) describe() string {
	if n.kind == listNode || n.kind == mapNode || n.kind == nullNode {
		return n.kind.String()
	}
	return n.kind.String() + " (" + quote(n.text) + ")"
}

// generic is the value for a field of type any.
func (n *node) generic() any {
	switch n.kind {
	case nullNode:
		return nil
	case boolNode:
		return strings.EqualFold(n.text, "true")
	case intNode:
		if i, err := strconv.ParseInt(n.text, 0, 64); err == nil {
			return i
		}
		return n.number()
	case floatNode:
		return n.number()
	case listNode:
		list := make([]any, len(n.items))
		for i := range n.items {
			list[i] = n.items[i].generic()
		}
		return list
	case mapNode:
		m := make(map[string]any, len(n.items))
		for i := range n.items {
			m[n.keys[i].text] = n.items[i].generic()
		}
		return m
	}
	return n.text
}

// number is the value of a number that no int64 holds; text where JSON has no
// such number, so that it is not lost.
func (n *node) number() any {
	f, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return n.text
	}
	return f
}

// appendJSON writes the tree for types that read JSON themselves.
func (n *node) appendJSON(b []byte) []byte {
	text, err := json.Marshal(n.generic())
	if err != nil {
		return append(b, "null"...) // nothing that generic returns can fail
	}
	return append(b, text...)
}

// suggestion names the key that was probably meant: the same but for case, else
// the nearest by edits, else all there are.
func suggestion(key string, valid []string) string {
	if len(valid) == 0 {
		return "no key is valid here"
	}
	for _, v := range valid {
		if strings.EqualFold(key, v) {
			return "did you mean " + quote(v) + "? Keys are case-sensitive"
		}
	}
	best, least := "", math.MaxInt
	for _, v := range valid {
		if n := edits(strings.ToLower(key), strings.ToLower(v)); n < least {
			best, least = v, n
		}
	}
	if least <= max(2, len(best)/2) {
		return "did you mean " + quote(best) + "?"
	}
	return "the nearest is " + quote(best) + ", valid are " + strings.Join(valid, ", ")
}

// edits is the number of insertions, deletions, replacements and swaps of
// neighbours that lead from a to b.
func edits(a, b string) int {
	const most = 64 // longer keys are not typing mistakes
	if len(a) > most {
		a = a[:most]
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
