// Package chart generates and tests the Helm chart charts/quietcore. Its values schema
// and the table of its README are generated from values.yaml, and tests render the
// chart and check the result.
//
// It is a module of its own, so that helm and the API server's libraries are no
// dependencies of the daemon. `go test ./... -update` writes the generated files.
// helm-docs would write the table alone; the schema, the daemon's values and its list
// of keys that need a restart come from the same source, and from the daemon's own
// code.
package chart

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/reclaim"
)

// Value is one key of values.yaml, children included.
type Value struct {
	Name, Text string
	Schema     map[string]any // what "# @schema {…}" adds
	Config     string         // "# @schema config": the daemon's file; "config.reclaim": that key of it
	Default    *yaml.Node
	Children   []Value // of a mapping whose keys are fixed
}

const mark = "@schema "

// ReadValues reads values.yaml and the comments of its keys.
func ReadValues(text []byte) ([]Value, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	return children(doc.Content[0], "")
}

func children(m *yaml.Node, path string) ([]Value, error) {
	var list []Value
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		v := Value{Name: key.Value, Default: value}
		if err := v.comment(key.HeadComment); err != nil {
			return nil, fmt.Errorf("%s%s: %w", path, key.Value, err)
		}
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && v.Text == "" {
			var err error
			if v.Children, err = children(value, path+key.Value+"."); err != nil {
				return nil, err
			}
		} else if v.Text == "" {
			return nil, fmt.Errorf("%s%s has no comment that begins with \"# -- \"", path, key.Value)
		}
		list = append(list, v)
	}
	return list, nil
}

func (v *Value) comment(text string) error {
	speaking := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		switch {
		case strings.HasPrefix(line, mark):
			speaking = false
			what := strings.TrimPrefix(line, mark)
			if what == "config" || strings.HasPrefix(what, "config.") {
				v.Config = what
			} else if err := json.Unmarshal([]byte(what), &v.Schema); err != nil {
				return fmt.Errorf("%s%s: %w", mark, what, err)
			}
		case strings.HasPrefix(line, "-- "):
			speaking = true
			v.Text = strings.TrimPrefix(line, "-- ")
		case line == "":
			speaking = false
		case speaking:
			v.Text += " " + line
		}
	}
	return nil
}

// Schema is the JSON schema of values.yaml. about describes the keys of the
// daemon's file.
func Schema(values []Value, about map[string]string) ([]byte, error) {
	root, err := object(values, about)
	if err != nil {
		return nil, err
	}
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "Values of the chart quietcore"
	props := root["properties"].(map[string]any)
	// Helm sets these itself when the chart is a part of another one.
	props["global"] = map[string]any{"type": "object", "description": "Values of a parent chart; not read."}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(root)
	return b.Bytes(), err
}

func object(values []Value, about map[string]string) (map[string]any, error) {
	props := map[string]any{}
	for _, v := range values {
		var (
			s   map[string]any
			err error
		)
		switch {
		case v.Config != "":
			s = configSchema(reflect.TypeFor[config.Config](), "", about)
			if _, key, part := strings.Cut(v.Config, "."); part {
				s = s["properties"].(map[string]any)[key].(map[string]any)
			}
		case v.Children != nil:
			s, err = object(v.Children, about)
		default:
			s, err = leaf(v)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
		if v.Text != "" {
			s["description"] = v.Text
		}
		props[v.Name] = s
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": props}, nil
}

func leaf(v Value) (map[string]any, error) {
	s := map[string]any{}
	switch v.Default.Kind {
	case yaml.MappingNode:
		s["type"] = "object"
	case yaml.SequenceNode:
		s["type"] = "array"
	default:
		kind, ok := map[string]string{"!!str": "string", "!!bool": "boolean", "!!int": "integer"}[v.Default.Tag]
		if !ok {
			return nil, fmt.Errorf("no schema type for a value tagged %s", v.Default.Tag)
		}
		s["type"] = kind
	}
	for k, x := range v.Schema {
		s[k] = x
	}
	if list, ok := s["enum"].([]any); ok {
		var words []string
		for _, w := range list {
			words = append(words, fmt.Sprint(w))
		}
		delete(s, "enum")
		onlyWords(s, words)
	}
	return s, nil
}

// onlyWords expresses an enum as a pattern: Helm's message for an enum does not name
// the wrong value. Editors complete examples.
func onlyWords(s map[string]any, words []string) {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = regexp.QuoteMeta(w)
	}
	s["pattern"], s["examples"] = "^("+strings.Join(quoted, "|")+")$", words
}

// configSchema is the schema of the daemon's file: keys, kinds, values and ranges of
// numbers, checked before anything is installed. Ranges of durations and relations
// between keys are left to the daemon, which reports all errors at once.
func configSchema(t reflect.Type, path string, about map[string]string) map[string]any {
	s := map[string]any{}
	if text := about[path]; text != "" {
		s["description"] = text
	}
	switch {
	case t.Implements(reflect.TypeFor[json.Marshaler]()) || implementsText(t):
		s["type"] = "string"
		if words := wordsOf(t); words != nil {
			onlyWords(s, words)
		}
		if t == reflect.TypeFor[config.Duration]() || t == reflect.TypeFor[reclaim.Duration]() {
			s["pattern"] = duration
		}
	case t.Kind() == reflect.Struct:
		props := map[string]any{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			path := strings.TrimPrefix(path+"."+name, ".")
			if options == "omitzero" { // of an earlier version: the daemon checks it
				props[name] = map[string]any{"description": about[path]}
				continue
			}
			props[name] = configSchema(f.Type, path, about)
		}
		s["type"], s["additionalProperties"], s["properties"] = "object", false, props
		if _, short := reflect.PointerTo(t).MethodByName("UnmarshalWord"); short { // for its first key
			s["type"] = []string{"object", "string"}
			onlyWords(s, wordsOf(t.Field(0).Type))
		}
	case t.Kind() == reflect.Map:
		each := configSchema(t.Elem(), "", about)
		within(each, about[path])
		s["type"], s["additionalProperties"] = "object", each
	case t.Kind() == reflect.Slice:
		s["type"], s["items"] = "array", configSchema(t.Elem(), "", about)
	case t.Kind() == reflect.Pointer:
		return configSchema(t.Elem(), path, about)
	case t.Kind() == reflect.Bool:
		s["type"] = "boolean"
	case t.Kind() == reflect.Float64:
		s["type"] = "number"
		within(s, about[path])
	case t.Kind() == reflect.String:
		s["type"] = "string"
	default:
		s["type"] = "integer"
		within(s, about[path])
	}
	return s
}

// duration is what the daemon reads as a length of time; none may be below 0.
const duration = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

var (
	closedRange = regexp.MustCompile(`(?:^|[ :(])(\d[\d.]*) (?:\(\w+\) )?to (\d+(?:\.\d+)?)`)
	openRange   = regexp.MustCompile(`above (\d+) and at most (\d+)`)
	atLeast     = regexp.MustCompile(`(\d+) or more`)
)

// within adds the range of a number, as the text says it: a test of the pages holds what
// they say to what the daemon takes.
func within(s map[string]any, text string) {
	if s["type"] != "integer" && s["type"] != "number" {
		return
	}
	if m := closedRange.FindStringSubmatch(text); m != nil {
		s["minimum"], s["maximum"] = json.Number(m[1]), json.Number(m[2])
	} else if m := openRange.FindStringSubmatch(text); m != nil {
		s["exclusiveMinimum"], s["maximum"] = json.Number(m[1]), json.Number(m[2])
	} else if m := atLeast.FindStringSubmatch(text); m != nil {
		s["minimum"] = json.Number(m[1])
	}
}

func implementsText(t reflect.Type) bool {
	_, value := t.MethodByName("MarshalText")
	_, pointer := reflect.PointerTo(t).MethodByName("UnmarshalText")
	return value || pointer
}

// wordsOf are the values that a type of the daemon's file accepts, from its own error
// message; nil if it accepts more than a few.
func wordsOf(t reflect.Type) []string {
	take := func(word string) error {
		v, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler)
		if !ok {
			return errors.ErrUnsupported
		}
		return v.UnmarshalText([]byte(word))
	}
	err := take("no such word")
	if err == nil {
		return nil
	}
	_, list, ok := strings.Cut(err.Error(), ", must be ")
	if !ok {
		return nil
	}
	words := strings.Split(strings.ReplaceAll(list, " or ", ", "), ", ")
	if take("") == nil {
		words = append(words, "")
	}
	for _, w := range words {
		if take(w) != nil {
			return nil
		}
	}
	return words
}

// RestartKeys are the configuration keys that need a restart, by the daemon's own code:
// all that differ between two files that agree in nothing.
func RestartKeys() []string {
	a, b := config.Default(), config.Default()
	differ(reflect.ValueOf(&b).Elem())
	return config.NeedsRestart(&a, &b)
}

// differ changes every plain value of v.
func differ(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				differ(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(v.Float() + 1)
	}
}

var keyRow = regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\|[^|]*\\| (.*) \\|$")

// ConfigKeys is what docs/configuration.md says of every key.
func ConfigKeys(page string) (map[string]string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	about := map[string]string{}
	for _, m := range keyRow.FindAllStringSubmatch(string(text), -1) {
		about[m[1]] = m[2]
	}
	return about, nil
}

// Table is the table of values for people.
func Table(values []Value) (string, error) {
	var b strings.Builder
	b.WriteString("| Value | Default | Meaning |\n|---|---|---|\n")
	err := rows(&b, values, "")
	return b.String(), err
}

func rows(b *strings.Builder, values []Value, path string) error {
	for _, v := range values {
		if v.Children != nil {
			if err := rows(b, v.Children, path+v.Name+"."); err != nil {
				return err
			}
			continue
		}
		var x any
		if err := v.Default.Decode(&x); err != nil {
			return err
		}
		text, err := json.Marshal(x)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "| `%s%s` | `%s` | %s |\n", path, v.Name, text, v.Text)
	}
	return nil
}
