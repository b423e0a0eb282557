package strict

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Decoder is Unmarshal for many documents of the same types. It serves one
// goroutine.
type Decoder struct {
	// Max bounds a document; 0 means MaxBytes.
	Max int

	structs map[reflect.Type]*fields
	errs    []*Error
}

// NewDecoder returns an empty decoder.
func NewDecoder() *Decoder { return &Decoder{structs: map[reflect.Type]*fields{}} }

// Unmarshal is the package's Unmarshal for a document that begins at the given
// line of whatever it is part of.
func (d *Decoder) Unmarshal(data []byte, line int, into any) error {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("strict: cannot decode into a %T, it takes a pointer", into)
	}
	root, parseErr := parse(data, line, cmp.Or(d.Max, MaxBytes))
	if parseErr != nil {
		return parseErr
	}
	d.errs = nil
	if !root.empty {
		d.value(&root, v.Elem(), nil)
	}
	return join(d.errs)
}

func (d *Decoder) fail(line int, path *trail, format string, args ...any) {
	d.errs = append(d.errs, &Error{Line: line, Path: path.String(), Msg: fmt.Sprintf(format, args...)})
}

var (
	jsonLeaf = reflect.TypeFor[json.Unmarshaler]()
	textLeaf = reflect.TypeFor[encoding.TextUnmarshaler]()
	wordLeaf = reflect.TypeFor[Worded]()
	partLeaf = reflect.TypeFor[Part]()
)

// Worded is a mapping for which one word may stand.
type Worded interface{ UnmarshalWord(text []byte) error }

// Defaulted is a value behind a pointer whose missing keys are not all zero.
type Defaulted interface{ SetDefaults() }

func (n *node) isWord() bool { return n.kind != nullNode && n.kind != listNode && n.kind != mapNode }

// value decodes n into v, which can be set.
func (d *Decoder) value(n *node, v reflect.Value, path *trail) {
	t := v.Type()
	switch {
	case t == partLeaf:
		v.Set(reflect.ValueOf(Part{n, path}))
	case t.Kind() == reflect.Pointer:
		d.pointer(n, v, path)
	case reflect.PointerTo(t).Implements(jsonLeaf):
		d.unique(n, path)
		if err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(n.appendJSON(nil)); err != nil {
			d.fail(n.line, path, "%s", oneLine(err))
		}
	case n.isWord() && reflect.PointerTo(t).Implements(wordLeaf):
		if err := v.Addr().Interface().(Worded).UnmarshalWord([]byte(n.text)); err != nil {
			d.fail(n.line, path, "%s", oneLine(err))
		}
	case n.kind == nullNode && n.empty && isScalar(t):
		d.fail(n.line, path, "has no value; it takes %s", describe(t))
	case n.kind == nullNode:
		if t.Kind() == reflect.Interface || t.Kind() == reflect.Map || t.Kind() == reflect.Slice {
			v.SetZero()
		}
	case reflect.PointerTo(t).Implements(textLeaf):
		d.text(n, v, path)
	default:
		d.plain(n, v, path)
	}
}

func (d *Decoder) pointer(n *node, v reflect.Value, path *trail) {
	if n.kind == nullNode {
		v.SetZero()
		return
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
		if value, ok := v.Interface().(Defaulted); ok {
			value.SetDefaults()
		}
	}
	d.value(n, v.Elem(), path)
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Array:
		return reflect.PointerTo(t).Implements(textLeaf)
	case reflect.Map, reflect.Slice, reflect.Interface:
		return false
	}
	return true
}

func (d *Decoder) text(n *node, v reflect.Value, path *trail) {
	if n.kind == listNode || n.kind == mapNode {
		d.fail(n.line, path, "is %s, must be text", n.kind)
		return
	}
	if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.text)); err != nil {
		d.fail(n.line, path, "%s", oneLine(err))
	}
}

// oneLine bounds what a type's own parser says about hostile text.
func oneLine(err error) string {
	const most = 500
	s := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func (d *Decoder) plain(n *node, v reflect.Value, path *trail) {
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Map:
		d.dictionary(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			d.unique(n, path)
			v.Set(reflect.ValueOf(n.generic()))
			return
		}
		d.fail(n.line, path, "cannot be written in a document")
	default:
		d.scalar(n, v, path)
	}
}

func (d *Decoder) scalar(n *node, v reflect.Value, path *trail) {
	wrong := func() { d.fail(n.line, path, "is %s, must be %s", n.describe(), describe(v.Type())) }
	switch v.Kind() {
	case reflect.String:
		// A number or a word such as true, written without quotes where text is
		// due, means just these characters.
		if n.kind == listNode || n.kind == mapNode {
			wrong()
			return
		}
		v.SetString(n.text)
	case reflect.Bool:
		if n.kind != boolNode {
			wrong()
			return
		}
		v.SetBool(strings.EqualFold(n.text, "true"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n.kind != intNode {
			wrong()
			return
		}
		i, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil || v.OverflowInt(i) || !decimal(n.text) {
			d.notDecimal(n, v, path)
			return
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n.kind != intNode {
			wrong()
			return
		}
		u, err := strconv.ParseUint(n.text, 10, 64)
		if err != nil || v.OverflowUint(u) || !decimal(n.text) {
			d.notDecimal(n, v, path)
			return
		}
		v.SetUint(u)
	case reflect.Float32, reflect.Float64:
		d.float(n, v, path)
	default:
		d.fail(n.line, path, "cannot be written in a document")
	}
}

func (d *Decoder) float(n *node, v reflect.Value, path *trail) {
	if n.kind != intNode && n.kind != floatNode {
		d.fail(n.line, path, "is %s, must be %s", n.describe(), describe(v.Type()))
		return
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || strings.ContainsAny(n.text, "_xX") || v.OverflowFloat(f) {
		d.notDecimal(n, v, path)
		return
	}
	v.SetFloat(f)
}

func (d *Decoder) notDecimal(n *node, v reflect.Value, path *trail) {
	d.fail(n.line, path, "is %s, must be %s in decimal digits within the range of %s", quote(n.text),
		describe(v.Type()), v.Kind())
}

// decimal excludes what YAML's versions read differently: 017, 0o17, 1_000.
func decimal(s string) bool {
	digits := strings.TrimLeft(s, "+-")
	return len(digits) == 1 || digits != "" && digits[0] != '0'
}

func (d *Decoder) list(n *node, v reflect.Value, path *trail) {
	if n.kind != listNode {
		d.fail(n.line, path, "is %s, must be a list", n.describe())
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i := range n.items {
		d.value(&n.items[i], list.Index(i), &trail{above: path, index: i})
	}
	v.Set(list)
}

func (d *Decoder) dictionary(n *node, v reflect.Value, path *trail) {
	t := v.Type()
	if t.Key().Kind() != reflect.String {
		d.fail(n.line, path, "cannot be written in a document")
		return
	}
	if n.kind != mapNode {
		d.fail(n.line, path, "is %s, must be a mapping", n.describe())
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeMapWithSize(t, len(n.items)))
	}
	seen := make(map[string]int, len(n.keys))
	for i := range n.items {
		key := &n.keys[i]
		if !d.first(seen, key, path) {
			continue
		}
		item := reflect.New(t.Elem()).Elem()
		d.value(&n.items[i], item, &trail{above: path, key: key.text, index: -1})
		v.SetMapIndex(reflect.ValueOf(key.text).Convert(t.Key()), item)
	}
}

func (d *Decoder) mapping(n *node, v reflect.Value, path *trail) {
	if n.kind != mapNode {
		d.fail(n.line, path, "is %s, must be a mapping", n.describe())
		return
	}
	known := d.fieldsOf(v.Type())
	seen := make(map[string]int, len(n.keys))
	for i := range n.items {
		key := &n.keys[i]
		index, ok := known.index[key.text]
		if !ok {
			d.fail(key.line, path, "unknown key %s; %s", quote(key.text), suggestion(key.text, known.names))
			continue
		}
		if !d.first(seen, key, path) {
			continue
		}
		d.value(&n.items[i], field(v, index), &trail{above: path, key: key.text, index: -1})
	}
	for _, name := range known.required {
		if _, there := seen[name]; !there {
			d.fail(n.line, path, "key %s is missing", quote(name))
		}
	}
}

// unique looks for keys that are there twice where no Go type says what keys
// there may be.
func (d *Decoder) unique(n *node, path *trail) {
	seen := map[string]int{}
	for i := range n.items {
		below := trail{above: path, index: i}
		if n.kind == mapNode {
			d.first(seen, &n.keys[i], path)
			below = trail{above: path, key: n.keys[i].text, index: -1}
		}
		d.unique(&n.items[i], &below)
	}
}

// first reports a key that a mapping has twice.
func (d *Decoder) first(seen map[string]int, key *key, path *trail) bool {
	if line, twice := seen[key.text]; twice {
		d.fail(key.line, path, "key %s is here twice, first on line %d; keep one", quote(key.text), line)
		return false
	}
	seen[key.text] = key.line
	return true
}

// trail is the way to a value, written out only where there is a mistake.
type trail struct {
	above *trail
	key   string
	index int // of a list; -1 where key counts
}

func (t *trail) String() string {
	if t == nil {
		return ""
	}
	above := t.above.String()
	odd := func(r rune) bool { return r <= ' ' || r == '.' || r == '[' || r > '~' }
	switch {
	case t.index >= 0:
		return above + "[" + strconv.Itoa(t.index) + "]"
	case t.key == "" || len(t.key) > 60 || strings.ContainsFunc(t.key, odd):
		return above + "[" + quote(t.key) + "]"
	case above == "":
		return t.key
	}
	return above + "." + t.key
}

// fields are the keys of a struct, those of embedded structs included.
type fields struct {
	names    []string
	index    map[string][]int
	required []string // those tagged strict:"required"
}

func (d *Decoder) fieldsOf(t reflect.Type) *fields {
	if f := d.structs[t]; f != nil {
		return f
	}
	f := &fields{index: map[string][]int{}}
	for _, sf := range reflect.VisibleFields(t) {
		name, tagged := jsonName(sf)
		inline := sf.Anonymous && !tagged
		if name == "-" || !sf.IsExported() || inline || hidden(t, sf) {
			continue
		}
		if len(f.index[name]) == 0 || len(sf.Index) < len(f.index[name]) {
			f.index[name] = sf.Index
		}
		if sf.Tag.Get("strict") == "required" {
			f.required = append(f.required, name)
		}
	}
	for name := range f.index {
		f.names = append(f.names, name)
	}
	slices.Sort(f.names)
	d.structs[t] = f
	return f
}

// hidden says that a promoted field lies in an embedded struct that has a key
// of its own, or none at all.
func hidden(t reflect.Type, sf reflect.StructField) bool {
	for depth := 1; depth < len(sf.Index); depth++ {
		if _, tagged := jsonName(t.FieldByIndex(sf.Index[:depth])); tagged {
			return true
		}
	}
	return false
}

func jsonName(sf reflect.StructField) (name string, tagged bool) {
	tag := sf.Tag.Get("json")
	if tag == "-" {
		return "-", true
	}
	if name, _, _ = strings.Cut(tag, ","); name != "" {
		return name, true
	}
	return sf.Name, false
}

// field is v.FieldByIndex that makes embedded pointers as it goes.
func field(v reflect.Value, index []int) reflect.Value {
	for _, i := range index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}
