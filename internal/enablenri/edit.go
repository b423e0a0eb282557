package enablenri

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// setting is a key of the table and its value, a bool or a string.
type setting struct {
	key   string
	value any
}

func (s setting) text() string {
	if v, ok := s.value.(string); ok {
		return fmt.Sprintf("%q", v) // durations: nothing in them needs TOML's other escapes
	}
	return fmt.Sprint(s.value)
}

func parse(path string, text []byte) (map[string]any, error) {
	doc := map[string]any{}
	if err := toml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s is not TOML: %w", path, err)
	}
	return doc, nil
}

// tableOf descends; ok is false where there is no such table.
func tableOf(doc map[string]any, path []string) (map[string]any, bool) {
	for _, k := range path {
		next, ok := doc[k].(map[string]any)
		if !ok {
			return nil, false
		}
		doc = next
	}
	return doc, true
}

// header is the line that begins a table, however its keys are quoted.
func header(table []string) *regexp.Regexp {
	var parts []string
	for _, k := range table {
		quoted := regexp.QuoteMeta(k)
		part := `(?:"` + quoted + `"|'` + quoted + `'`
		if !strings.Contains(k, ".") {
			part += "|" + quoted
		}
		parts = append(parts, part+")")
	}
	return regexp.MustCompile(`^\s*\[\s*` + strings.Join(parts, `\s*\.\s*`) + `\s*\]\s*(?:#.*)?$`)
}

var anyHeader = regexp.MustCompile(`^\s*\[`)

// set returns text with the settings in the table. Lines that need no change stay
// as they are, byte by byte.
func set(path string, text []byte, table []string, settings []setting) ([]byte, error) {
	before, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(text), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	is := header(table)
	at := slices.IndexFunc(lines, func(l string) bool { return is.MatchString(strings.TrimRight(l, "\r\n")) })
	if at < 0 {
		if n := len(lines); n > 0 && !strings.HasSuffix(lines[n-1], "\n") {
			lines[n-1] += "\n"
		}
		if len(lines) > 0 {
			lines = append(lines, "\n")
		}
		lines = append(lines, headerLine(table))
		at = len(lines) - 1
	}
	end := len(lines)
	if next := slices.IndexFunc(lines[at+1:], anyHeader.MatchString); next >= 0 {
		end = at + 1 + next
	}
	var missing []string
	for _, s := range settings {
		key := regexp.MustCompile(`^(\s*(?:"` + s.key + `"|'` + s.key + `'|` + s.key +
			`)\s*=\s*)(?:true|false|"[^"\\]*"|'[^']*')(\s*(?:#.*)?)$`)
		found := false
		for i := at + 1; i < end && !found; i++ {
			body := strings.TrimRight(lines[i], "\r\n")
			if m := key.FindStringSubmatch(body); m != nil {
				lines[i] = m[1] + s.text() + m[2] + lines[i][len(body):]
				found = true
			}
		}
		if !found {
			missing = append(missing, "  "+s.key+" = "+s.text()+"\n")
		}
	}
	if len(missing) > 0 && !strings.HasSuffix(lines[at], "\n") {
		lines[at] += "\n"
	}
	lines = slices.Insert(lines, at+1, missing...)
	changed := []byte(strings.Join(lines, ""))
	return changed, verify(path, changed, before, table, settings)
}

func headerLine(table []string) string {
	parts := slices.Clone(table)
	for i, k := range parts {
		if strings.Contains(k, ".") {
			parts[i] = `"` + k + `"`
		}
	}
	return "[" + strings.Join(parts, ".") + "]\n"
}

// verify wants the new text to differ from the old one in the settings alone.
func verify(path string, changed []byte, before map[string]any, table []string, settings []setting) error {
	doc := before
	for _, k := range table {
		next, ok := doc[k].(map[string]any)
		if !ok {
			if _, other := doc[k]; other {
				return byHand(path, table, settings)
			}
			next = map[string]any{}
			doc[k] = next
		}
		doc = next
	}
	for _, s := range settings {
		doc[s.key] = s.value
	}
	after := map[string]any{}
	if err := toml.Unmarshal(changed, &after); err != nil || !reflect.DeepEqual(before, after) {
		return byHand(path, table, settings)
	}
	return nil
}

func byHand(path string, table []string, settings []setting) error {
	var b bytes.Buffer
	for i, s := range settings {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s = %s", s.key, s.text())
	}
	return fmt.Errorf("%s is written in a way that cannot be changed line by line; set %s in %s by hand", path,
		b.String(), strings.TrimSpace(headerLine(table)))
}
