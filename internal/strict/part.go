package strict

import (
	"fmt"
	"reflect"
	"slices"
)

// Part is a value of a document that is read later, by what else is known then. Its mistakes
// have the lines and the paths of the whole document.
type Part struct {
	n    *node
	path *trail
}

// Values are those of a mapping or a list.
func (p Part) Values() []Part {
	values := make([]Part, len(p.n.items))
	for i := range p.n.items {
		path := &trail{above: p.path, index: i}
		if p.n.kind == mapNode {
			path = &trail{above: p.path, key: p.n.keys[i].text, index: -1}
		}
		values[i] = Part{&p.n.items[i], path}
	}
	return values
}

// Take takes a text out of a mapping; it is empty where there is no such key.
func (p Part) Take(key string) (string, error) {
	for i := range p.n.keys {
		if p.n.keys[i].text != key {
			continue
		}
		var text string
		err := p.Values()[i].Decode(&text)
		p.n.keys, p.n.items = slices.Delete(p.n.keys, i, i+1), slices.Delete(p.n.items, i, i+1)
		return text, err
	}
	return "", nil
}

// Decode reads the part into the value that into points to, as Unmarshal reads a document.
func (p Part) Decode(into any) error {
	d := NewDecoder()
	d.value(p.n, reflect.ValueOf(into).Elem(), p.path)
	return join(d.errs)
}

// Errorf is a mistake in the part that its types do not show.
func (p Part) Errorf(format string, args ...any) error {
	return &Error{Line: p.n.line, Path: p.path.String(), Msg: fmt.Sprintf(format, args...)}
}
