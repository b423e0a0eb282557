package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

type base struct {
	Name string `json:"name"`
}

type color string

func (c *color) UnmarshalText(text []byte) error {
	if s := string(text); s != "" && s != "red" && s != "blue" {
		return fmt.Errorf("is %q, must be red or blue", s)
	}
	*c = color(text)
	return nil
}

type inner struct {
	Cores  int     `json:"cores"`
	Weight float64 `json:"weight"`
	On     bool    `json:"on"`
	Small  uint8   `json:"small"`
}

type needy struct {
	ID   int `json:"id" strict:"required"`
	Core int `json:"core" strict:"required"`
	Node int `json:"node"`
}

type doc struct {
	base
	CPUs    cpuset.Set        `json:"cpus"`
	Color   color             `json:"color"`
	Inner   inner             `json:"inner"`
	Pointer *inner            `json:"pointer"`
	List    []inner           `json:"list"`
	Labels  map[string]string `json:"labels"`
	Null    map[string]*int   `json:"null"`
	Any     any               `json:"any"`
	At      time.Time         `json:"at"`
	Mode    string            `json:"mode"`
	Needy   []needy           `json:"needy"`
	secret  string
	Skipped string `json:"-"`
}

func TestReads(t *testing.T) {
	one := 1
	for name, c := range map[string]struct {
		in   string
		want doc
	}{
		"empty":        {"", doc{Mode: "kept"}},
		"comment only": {"# nothing\n", doc{Mode: "kept"}},
		"yaml": {"name: a\ncpus: 0-3\ninner: {cores: 4, weight: 1.5, on: true}\n",
			doc{base: base{"a"}, CPUs: cpuset.Of(0, 1, 2, 3), Inner: inner{Cores: 4, Weight: 1.5, On: true},
				Mode: "kept"}},
		"json": {`{"name":"a","cpus":"0-3","list":[{"cores":1},{"cores":2}]}`,
			doc{base: base{"a"}, CPUs: cpuset.Of(0, 1, 2, 3), List: []inner{{Cores: 1}, {Cores: 2}}, Mode: "kept"}},
		"off is a word": {"mode: off", doc{Mode: "off"}},
		"yes is a word": {"labels: {a: yes, n: no}",
			doc{Mode: "kept", Labels: map[string]string{"a": "yes", "n": "no"}}},
		"number as text": {"cpus: 7\nlabels: {a: 1.10, b: 007}",
			doc{Mode: "kept", CPUs: cpuset.Of(7), Labels: map[string]string{"a": "1.10", "b": "007"}}},
		"pointer and null": {"pointer: {cores: 1}\nnull: {a: 1, b: null, c: }",
			doc{Mode: "kept", Pointer: &inner{Cores: 1}, Null: map[string]*int{"a": &one, "b": nil, "c": nil}}},
		"any": {"any: {a: [1, 2.5, x, true, null]}",
			doc{Mode: "kept", Any: map[string]any{"a": []any{int64(1), 2.5, "x", true, nil}}}},
		"time": {"at: 2026-01-02T03:04:05Z",
			doc{Mode: "kept", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
		"empty section":         {"inner:\nlist:\nlabels:\n", doc{Mode: "kept"}},
		"json surrogates":       {`{"name":"\ud83d\ude00\/"}`, doc{base: base{"😀/"}, Mode: "kept"}},
		"explicit null":         {"name: null\ninner: {cores: null}", doc{Mode: "kept"}},
		"byte order mark":       {"\ufeffname: a", doc{base: base{"a"}, Mode: "kept"}},
		"one document with ---": {"---\nname: a\n...\n", doc{base: base{"a"}, Mode: "kept"}},
	} {
		got := doc{Mode: "kept"}
		if err := Unmarshal([]byte(c.in), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, c.want) || got.secret != "" {
			t.Errorf("%s: got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestRefuses(t *testing.T) {
	deep := strings.Repeat("[", 80) + strings.Repeat("]", 80)
	bomb := "any:\n  a: &a [x, x]\n  b: &b [*a, *a]\n"
	for name, c := range map[string]struct {
		in   string
		want []string // one a mistake, in order
	}{
		"unknown": {"name: a\ncolour: red\n",
			[]string{`line 2: unknown key "colour"; did you mean "color"?`}},
		"wrong case": {"inner:\n  Cores: 1\n",
			[]string{`line 2: inner: unknown key "Cores"; did you mean "cores"? Keys are case-sensitive`}},
		"far from any":        {"zzzzzzzz: 1", []string{`line 1: unknown key "zzzzzzzz"; the nearest is`}},
		"unexported, skipped": {"secret: a\nSkipped: b", []string{`unknown key "secret"`, `unknown key "Skipped"`}},
		"embedded struct":     {"base: {name: a}", []string{`unknown key "base"`}},
		"twice": {"name: a\nmode: b\nname: c\n",
			[]string{`line 3: key "name" is here twice, first on line 1; keep one`}},
		"twice in json": {"{\"name\":\"a\",\n\"name\":\"b\"}",
			[]string{`line 2: key "name" is here twice, first on line 1`}},
		"twice in a map": {"labels: {a: b, a: c}", []string{`line 1: labels: key "a" is here twice`}},
		"types": {
			"name: [a]\ninner: {cores: four, on: yes, weight: x, small: 256}\nlist: {}\nlabels: 3\npointer: " +
				"[]\ncpus: {}\n", []string{
				`line 1: name: is a list, must be text`,
				`line 2: inner.cores: is text ("four"), must be a whole number`,
				`line 2: inner.on: is text ("yes"), must be true or false`,
				`line 2: inner.weight: is text ("x"), must be a number`,
				`line 2: inner.small: is "256", must be a whole number of at least 0 in decimal digits within the ` +
					`range of uint8`,
				`line 3: list: is a mapping, must be a list`,
				`line 4: labels: is a whole number ("3"), must be a mapping`,
				`line 5: pointer: is a list, must be a mapping`,
				`line 6: cpus: is a mapping, must be text`,
			}},
		"numbers": {
			"list:\n- cores: 017\n- cores: 1_000\n- cores: 0x10\n- cores: 1e3\n- cores: 99999999999999999999\n- " +
				"weight: .inf\n- cores: 1.0", []string{
				`line 2: list[0].cores: is "017", must be a whole number in decimal digits`, `line 3: list[1].cores`,
				`line 4`, `line 5: list[3].cores: is a number ("1e3"), must be a whole number`, `line 6`, `line 7`,
				`line 8`,
			}},
		"text types": {"cpus: 3-1\ncolor: green\nat: noon",
			[]string{`line 1: cpus: CPU list "3-1"`, `line 2: color: is "green", must be red or blue`, `line 3: at: `}},
		"missing": {"needy:\n- {id: 0, core: 0}\n- {id: 1}\n- {}\n",
			[]string{`line 3: needy[1]: key "core" is missing`, `line 4: needy[2]: key "id" is missing`,
				`line 4: needy[2]: key "core" is missing`}},
		"no value": {"name:\ninner: {cores: }", []string{`line 1: name: has no value; it takes text`,
			`line 2: inner.cores: has no value; it takes a whole number`}},
		"twice in any":   {"any: [{a: {b: 1, b: 2}}]", []string{`line 1: any[0].a: key "b" is here twice`}},
		"second":         {"name: a\n---\nname: b\n", []string{`line 2: a second document begins here`}},
		"second json":    {`{"name":"a"} {"name":"b"}`, []string{`line 1: not YAML`}},
		"alias bomb":     {bomb, []string{`line 3: alias "*a": aliases are not read`}},
		"tag":            {"name: !!binary aGk=", []string{`line 1: tag "!!binary" is not read`}},
		"lying tag":      {"inner: {on: !!bool maybe}", []string{`tag "!!bool" is not read`}},
		"merge":          {"<<: {name: a}", []string{`unknown key "<<"`}},
		"deep yaml":      {"any: " + deep, []string{`line 1: nests deeper than 64 levels`}},
		"deep json":      {`{"any":` + deep + `}`, []string{`line 1: nests deeper than 64 levels`}},
		"too large":      {"name: " + strings.Repeat("a", MaxBytes), []string{`larger than the 1048576`}},
		"not utf-8":      {"name: a\nmode: \xff", []string{`line 2: the document is not UTF-8`}},
		"syntax":         {"name: a\nmode: [b", []string{`not YAML: `}},
		"key of a list":  {"? [a]\n: b", []string{`a key is a list; keys are text`}},
		"not a mapping":  {"just text", []string{`line 1: is text ("just text"), must be a mapping`}},
		"control in key": {"\"a\\e[31m\": 1", []string{`unknown key "a\x1b[31m"`}},
	} {
		var got doc
		err := Unmarshal([]byte(c.in), &got)
		if err == nil {
			t.Errorf("%s: accepted as %+v", name, got)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%s: %d mistakes reported, want %d:\n%v", name, len(lines), len(c.want), err)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: mistake %d is %q, want %q", name, i, lines[i], want)
			}
		}
	}
}

func TestManyMistakesAreBounded(t *testing.T) {
	var in strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&in, "k%d: 1\n", i)
	}
	err := Unmarshal([]byte(in.String()), &doc{})
	if n := strings.Count(err.Error(), "\n") + 1; n != maxErrors+1 || !strings.Contains(err.Error(), "and 9950 more") {
		t.Fatalf("%d lines: %.200s", n, err)
	}
	var first *Error
	if !errors.As(err, &first) || first.Line != 1 {
		t.Fatalf("first mistake: %+v", first)
	}
}

func TestHostileDocumentsAreCheap(t *testing.T) {
	for name, in := range map[string]string{
		"opening brackets": strings.Repeat("[", MaxBytes-10),
		"opening braces":   strings.Repeat("{", MaxBytes-10),
		"commas":           "[" + strings.Repeat(",", MaxBytes-10) + "]",
		"empty items":      "any: [" + strings.Repeat("a,", MaxBytes/2-10) + "]",
		"question marks":   strings.Repeat("? ", MaxBytes/2-10),
		"dashes":           strings.Repeat("- ", MaxBytes/2-10),
		"deep indents":     deepIndents(),
		"anchors":          strings.Repeat("- &a a\n", MaxBytes/8),
		"one key":          strings.Repeat("a", MaxBytes-10) + ": 1",
		"tags":             strings.Repeat("!a ", MaxBytes/4),
	} {
		before := cpuTime(t)
		err := Unmarshal([]byte(in), &doc{})
		took := cpuTime(t) - before
		t.Logf("%s: %v: %.80v", name, took, err)
		if took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// cpuTime is what this program has used so far: unlike the time of day it does not grow with what else runs.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func deepIndents() string {
	var b strings.Builder
	for i := 0; b.Len() < MaxBytes-2000; i++ {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

func TestReaderCutsStreams(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string // line:document, spaces trimmed
	}{
		"json lines": {"{\"a\":1}\n\n{\"a\":2}", []string{`1:{"a":1}`, `3:{"a":2}`}},
		"spread json": {"{\n  \"a\": {\n    \"b\": \"}\\\"\"\n  }\n}\n{\"a\":2}\n",
			[]string{"1:{\n  \"a\": {\n    \"b\": \"}\\\"\"\n  }\n}", `6:{"a":2}`}},
		"broken in middle": {"{\"a\":1}\n{\"a\":\n{\"a\":3}\n", []string{`1:{"a":1}`, `2:{"a":`, `3:{"a":3}`}},
		"yaml documents":   {"# cases\n---\na: 1\n---\na: 2\nb: {\n}\n...\n", []string{"3:a: 1", "5:a: 2\nb: {\n}"}},
		"one yaml":         {"a: 1\nb: 2\n", []string{"1:a: 1\nb: 2"}},
		"yaml flow": {"{a: 'it''s }', # }\n b: don't}\n{a: 2}\n",
			[]string{"1:{a: 'it''s }', # }\n b: don't}", "3:{a: 2}"}},
		"yaml on ---":      {"--- {a: 1}\n--- {a: 2}\n", []string{"1:--- {a: 1}", "2:--- {a: 2}"}},
		"almost separator": {"a: |\n x\n---y: 1\n", []string{"1:a: |\n x\n---y: 1"}},
		"empty":            {"\n\n# nothing\n", nil},
	} {
		r := NewReader(strings.NewReader(c.in))
		var got []string
		for {
			text, line, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, fmt.Sprintf("%d:%s", line, strings.TrimSpace(string(text))))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q\nwant %q", name, got, c.want)
		}
	}
	r := NewReader(strings.NewReader("a: 1\n---\nb: " + strings.Repeat("x", 2*MaxBytes)))
	if text, line, err := r.Next(); err != nil || string(text) != "a: 1\n" {
		t.Errorf("before an endless line: %q, %d, %v", text, line, err)
	}
	if _, _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "line 3: the document is larger") {
		t.Errorf("an endless line: %v", err)
	}
}

// accepts checks that what was read means the same when it is written and read
// again.
func accepts(t *testing.T, data []byte) {
	var got doc
	if Unmarshal(data, &got) != nil {
		return
	}
	text, err := json.Marshal(got)
	if err != nil {
		return // a year that JSON cannot hold
	}
	var again doc
	if err := Unmarshal(text, &again); err != nil {
		t.Fatalf("%q was accepted, what it means was not: %s: %v", data, text, err)
	}
	second, err := json.Marshal(again)
	if err != nil || string(second) != string(text) {
		t.Fatalf("%q means %s, then %s (%v)", data, text, second, err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{
		"name: a\ncpus: 0-3\ninner: {cores: 4, weight: 1.5, on: true}\n", `{"list":[{"cores":1}],"null":{"a":null}}`,
		"any: {a: [1, 2.5, x, true, null, 0x10, .nan, 1e999]}", "at: 2026-01-02T03:04:05Z", "a: &a b\nc: *a",
		"--- !!str a", "? a\n: b", "{\"a\":", "labels: {1: 2, true: false, ~: null}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(accepts)
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n---\na: 1\n{\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(strings.NewReader(string(data)))
		total := 0
		for {
			text, line, err := r.Next()
			if err != nil {
				return
			}
			if total += len(text); len(text) == 0 || total > len(data) || line < 1 {
				t.Fatalf("document %q at line %d of %q", text, line, data)
			}
		}
	})
}

func BenchmarkUnmarshalJSONLine(b *testing.B) {
	d := NewDecoder()
	in := []byte(
		`{"name":"case-1","cpus":"0-15","inner":{"cores":4,"weight":1.5},"list":[{"cores":1},{"cores":2}],` +
			`"mode":"x","labels":{"a":"b"}}`)
	b.ReportAllocs()
	for b.Loop() {
		var v doc
		if err := d.Unmarshal(in, 1, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshalLongList(b *testing.B) {
	var in strings.Builder
	in.WriteString(`{"list":[`)
	for i := range 512 {
		if i > 0 {
			in.WriteByte(',')
		}
		fmt.Fprintf(&in, `{"cores": %d, "weight": %d, "on": true, "small": 3}`, i, i/2)
	}
	in.WriteString("]}")
	d := NewDecoder()
	b.ReportAllocs()
	for b.Loop() {
		var v doc
		if err := d.Unmarshal([]byte(in.String()), 1, &v); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzJSON compares the reader of JSON with the standard library's.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"x\n\u00e9",true,null,{}],"b":{"c":[]}}`,
		"{ \"a\" :\n\t-0 , \"\\\"\":\"}\" }", `{"a":{"a":{}}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		var got any
		if Unmarshal([]byte(text), &got) != nil {
			return // too deep, or not UTF-8
		}
		if again := floats(got); !reflect.DeepEqual(again, want) {
			t.Fatalf("%q: got %#v, want %#v", text, again, want)
		}
	})
}

// floats turns numbers into what encoding/json makes of them.
func floats(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = floats(v[k])
		}
	}
	return v
}

// TestParts: what is read later has the lines and paths of the document.
func TestParts(t *testing.T) {
	var doc struct {
		Nodes []Part `json:"nodes"`
	}
	if err := Unmarshal([]byte("nodes:\n- name: a\n  cpus: 4\n- cpus: many\n  nam: b\n"), &doc); err != nil {
		t.Fatal(err)
	}
	var node struct {
		CPUs int `json:"cpus"`
	}
	name, err := doc.Nodes[0].Take("name")
	if err == nil {
		err = doc.Nodes[0].Decode(&node)
	}
	if err != nil || name != "a" || node.CPUs != 4 {
		t.Errorf("read %q, %+v: %v", name, node, err)
	}
	if name, err := doc.Nodes[1].Take("name"); name != "" || err != nil {
		t.Errorf("took %q: %v", name, err)
	}
	const want = `line 4: nodes[1].cpus: is text ("many"), must be a whole number
line 5: nodes[1]: unknown key "nam"; the nearest is "cpus", valid are cpus`
	if err := doc.Nodes[1].Decode(&node); err == nil || err.Error() != want {
		t.Errorf("says %v\nwant %s", err, want)
	}
}
