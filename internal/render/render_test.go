package render

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

var update = flag.Bool("update", false, "write what was drawn into testdata")

type fataler interface{ Fatal(...any) }

func build(t fataler, g topology.Grid) *topology.Topology {
	m, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// view draws every CPU as shared, but those of the lists "cpus pool owner".
func view(m *topology.Topology, lists ...string) View {
	v := View{Title: "node-a", Topology: m, CPUs: map[int]CPUInfo{}}
	for _, c := range m.CPUs() {
		v.CPUs[c.ID] = CPUInfo{Pool: Shared}
	}
	for _, l := range lists {
		f := strings.SplitN(l, " ", 3)
		cpus, err := cpuset.Parse(f[0])
		if err != nil {
			panic(err)
		}
		for cpu := range cpus.All() {
			v.CPUs[cpu] = CPUInfo{Pool: f[1], Owner: f[2]}
		}
	}
	return v
}

func server(t fataler) *topology.Topology {
	return build(t, topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2,
		Numbering: topology.Split})
}

func without(t fataler, m *topology.Topology, cpus ...int) *topology.Topology {
	off, err := m.WithOnline(m.Online().Minus(cpuset.Of(cpus...)))
	if err != nil {
		t.Fatal(err)
	}
	return off
}

func everyPool(t fataler) View {
	v := view(without(t, server(t), 15),
		"2-3,18-19 lse default/db/main", "4-5,20-21 lsr default/web/main", "6 lsr shop/cart/main",
		"22 withheld shop/cart/main",
		"8-9 kubelet kube-system/proxy/main", "24-25 be ", "0,16 reserved ", "10 system kube-system/agent",
		"11 exclusive default/x/y", "12 martian ")
	v.Notes = []string{"suppressed: BE pool is 2 CPUs"}
	return v
}

func hybrid(t fataler) View {
	var cpus []topology.CPU
	for id := range 4 {
		cpus = append(cpus, topology.CPU{ID: id, Core: id / 2})
	}
	for id := 4; id < 8; id++ {
		cpus = append(cpus, topology.CPU{ID: id, Core: id, Kind: topology.Efficiency})
	}
	m, err := topology.New(cpus, topology.Options{Memory: map[int]uint64{0: 32 << 30, 3: 512 << 30},
		Isolated: cpuset.Of(7)})
	if err != nil {
		t.Fatal(err)
	}
	return view(m, "0-1 lse default/db/main")
}

// TestGolden compares drawings with testdata; -update rewrites them, and a
// reviewer looks at them.
func TestGolden(t *testing.T) {
	before := view(server(t), "2-3,18-19 lse default/db/main", "4 lsr shop/old/main")
	after := view(without(t, server(t), 15), "2-3,18-19 lse default/db/main", "4-5,20-21 lsr default/web/main")
	wide := topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 24, ThreadsPerCore: 2}
	for name, draw := range map[string]func(io.Writer) error{
		"text":        func(w io.Writer) error { return Text(w, everyPool(t), false) },
		"text-hybrid": func(w io.Writer) error { return Text(w, hybrid(t), false) },
		"text-wide": func(w io.Writer) error {
			return Text(w, view(build(t, wide), "54-70 lsr default/web/main"), false)
		},
		"diff":         func(w io.Writer) error { return Diff(w, before, after, false) },
		"diff-nothing": func(w io.Writer) error { return Diff(w, before, before, false) },
		"diff-wide": func(w io.Writer) error {
			return Diff(w, view(build(t, wide), "2-3 lse default/db/main"),
				view(build(t, wide), "54-70 lsr default/web/main"), false)
		},
		"describe": func(w io.Writer) error { return Describe(w, build(t, wide), nil, false) },
		"describe-hybrid": func(w io.Writer) error {
			return Describe(w, hybrid(t).Topology, []string{"devices/x: is missing"}, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := draw(&b); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("drawn:\n%s\nwant:\n%s", &b, want)
			}
			for line := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > textWidth {
					t.Errorf("a line takes %d columns, more than %d: %s", n, textWidth, line)
				}
			}
		})
	}
}

// TestColorChangesNothingElse: without its escape sequences a coloured map is
// the plain one.
func TestColorChangesNothingElse(t *testing.T) {
	var plain, colored bytes.Buffer
	if err := errors.Join(Text(&plain, everyPool(t), false), Text(&colored, everyPool(t), true)); err != nil {
		t.Fatal(err)
	}
	if colored.Len() == plain.Len() || strip(colored.String()) != plain.String() {
		t.Errorf("coloured:\n%s\nplain:\n%s", colored.String(), plain.String())
	}
}

func strip(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			_, text, _ = strings.Cut(rest, "m")
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	return b.String()
}

// TestHostileNames: what tenants choose reaches neither the terminal nor the
// browser as anything but text.
func TestHostileNames(t *testing.T) {
	hostile := "\x1b[2J\x1b]0;owned\x07\r\n\u202e<script>alert(1)</script>&\"' ]]>" + strings.Repeat("x", 1<<16)
	m := server(t)
	v := view(m, "0-1 lse "+hostile, "2 withheld "+hostile, "3 "+strings.ReplaceAll(hostile, " ", "_")+" o")
	v.Title, v.Notes = hostile, []string{hostile}
	draws := map[string]func(io.Writer) error{
		"text":     func(w io.Writer) error { return Text(w, v, false) },
		"diff":     func(w io.Writer) error { return Diff(w, view(m), v, false) },
		"describe": func(w io.Writer) error { return Describe(w, m, []string{hostile}, false) },
		"svg":      func(w io.Writer) error { return SVG(w, v) },
	}
	for name, draw := range draws {
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, r := range text {
			if r != '\n' && (r < ' ' || r == 0x7f || r == '\u202e' || r == utf8.RuneError) {
				t.Errorf("%s holds %q", name, r)
			}
		}
		if strings.Contains(text, strings.Repeat("x", 500)) || b.Len() > 64<<10 {
			t.Errorf("%s: a name of %d bytes was not cut; %d bytes drawn", name, len(hostile), b.Len())
		}
		if !strings.Contains(text, "owned") {
			t.Errorf("%s does not show the name at all", name)
		}
	}
	checkSVG(t, v)
}

// checkSVG parses the picture, and fails on markup that we did not draw.
func checkSVG(t fataler, v View) string {
	var b bytes.Buffer
	if err := SVG(&b, v); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{"svg": true, "title": true, "style": true, "defs": true, "pattern": true, "rect": true,
		"line": true, "text": true, "tspan": true, "g": true}
	titles := map[string]bool{}
	for d, in := xml.NewDecoder(bytes.NewReader(b.Bytes())), ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal("not well-formed:", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if in = e.Name.Local; !allowed[in] {
				t.Fatal("draws an element", in)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") || a.Name.Local == "href" {
					t.Fatal("draws an attribute", a.Name.Local)
				}
			}
		case xml.CharData:
			if in == "title" && strings.HasPrefix(string(e), "CPU ") {
				number, _, _ := strings.Cut(strings.TrimPrefix(string(e), "CPU "), ":")
				if titles[number] {
					t.Fatal("draws CPU twice:", number)
				}
				titles[number] = true
			}
			in = ""
		}
	}
	for _, c := range v.Topology.CPUs() {
		if !titles[strconv.Itoa(c.ID)] {
			t.Fatal("does not draw CPU", c.ID)
		}
	}
	return b.String()
}

func TestSVGDrawsEveryCPUOnce(t *testing.T) {
	checkSVG(t, everyPool(t))
	checkSVG(t, hybrid(t))
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		g := topology.Grid{Sockets: n("sockets", 4), NodesPerSocket: n("nodes", 4), L3PerNode: n("l3s", 5),
			CoresPerL3: n("cores", 12), ThreadsPerCore: n("threads", 8)}
		v := view(build(t, g))
		for owner := range n("owners", 70) {
			v.CPUs[owner%len(v.CPUs)] = CPUInfo{Pool: LSR, Owner: fmt.Sprint("default/p", owner)}
		}
		checkSVG(t, v)
		nested(t, boxes(v.Topology), nil)
		var b bytes.Buffer
		if err := Text(&b, v, false); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > textWidth {
				t.Fatalf("a line takes %d columns: %s", n, line)
			}
		}
	})
}

// nested fails where a box leaves the one around it or overlaps its neighbour;
// positions are still relative to that one.
func nested(t *rapid.T, all []*box, in *box) {
	for i, b := range all {
		if in != nil && (b.x < 0 || b.y < 0 || b.x+b.w > in.w || b.y+b.h > in.h) {
			t.Fatalf("%s %q leaves its %s: %+v in %dx%d", b.kind, b.title, in.kind, *b, in.w, in.h)
		}
		for _, o := range all[:i] {
			if in != nil && b.x < o.x+o.w && o.x < b.x+b.w && b.y < o.y+o.h && o.y < b.y+b.h {
				t.Fatalf("%s %q overlaps %q", b.kind, b.title, o.title)
			}
		}
		nested(t, b.inner, b)
	}
}

// TestContrast holds the colours to the ratio that small text needs to be read.
func TestContrast(t *testing.T) {
	for _, l := range looks() {
		if c := contrast(l.fill, l.ink); c < 4.5 {
			t.Errorf("%s: %s on %s has contrast %.1f, want 4.5", l.name, l.ink, l.fill, c)
		}
	}
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(hex string) float64 {
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func TestOwnersHaveDistinctSymbols(t *testing.T) {
	m := build(t, topology.Grid{CoresPerL3: 128})
	v := view(m)
	for cpu := range 128 {
		v.CPUs[cpu] = CPUInfo{Pool: LSR, Owner: fmt.Sprint(cpu)}
	}
	symbols, tags := map[rune]int{}, map[string]int{}
	for _, o := range owners(v) {
		symbols[o.symbol()]++
		tags[o.tag()]++
	}
	for s, n := range symbols {
		if n > 1 && s != '#' {
			t.Errorf("%d owners are %c", n, s)
		}
	}
	if len(tags) != 128 {
		t.Errorf("128 owners have %d tags", len(tags))
	}
	for _, l := range looks() {
		if symbols[l.symbol] > 0 {
			t.Errorf("%c is an owner and the pool %s", l.symbol, l.name)
		}
	}
}

func TestNoTopology(t *testing.T) {
	for _, err := range []error{Text(io.Discard, View{}, false), SVG(io.Discard, View{}),
		Diff(io.Discard, View{}, View{}, false)} {
		if err == nil {
			t.Error("a view without topology was drawn")
		}
	}
}
