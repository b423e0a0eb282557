package sysfs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

var update = flag.Bool("update", false, "write what was read as the wanted result into testdata")

// TestFixtures reads small machines: the comment of each archive says what it
// is, its file "want" what must be read.
func TestFixtures(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			tree, want := fixture(a)
			got := describe(sysfs.Read(tree))
			if *update {
				a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == "want" })
				a.Files = slices.Insert(a.Files, 0, txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("read\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func fixture(a *txtar.Archive) (tree fstest.MapFS, want string) {
	tree = fstest.MapFS{}
	for _, f := range a.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		tree[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o444}
	}
	return tree, want
}

// describe writes all that was read in lines that a reviewer can check.
func describe(t *topology.Topology, warnings []sysfs.Warning, err error) string {
	var b strings.Builder
	line := func(name string, value any) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-9s %v", name, value), " ") + "\n")
	}
	if err != nil {
		line("error", err)
		return b.String()
	}
	of := levels()
	line("online", t.Online())
	line("offline", t.Offline())
	line("isolated", t.Isolated())
	for _, level := range []string{"socket", "die", "node", "l3", "l2", "core"} {
		line(level, blocks(t, of[level]))
	}
	line("slow", efficiencyOf(t))
	for i, n := range t.Nodes() {
		row := []string{}
		for j := range t.Nodes() {
			row = append(row, fmt.Sprint(t.Distance(i, j)))
		}
		line(fmt.Sprintf("node %d", n.ID), fmt.Sprintf("CPUs %s, %d bytes, distances %s", orNone(n.CPUs),
			n.MemoryBytes, strings.Join(row, " ")))
	}
	for _, w := range warnings {
		line("warning", w)
	}
	return b.String()
}

func orNone(s cpuset.Set) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}

func TestNoCPUIsAnError(t *testing.T) {
	for name, tree := range map[string]fstest.MapFS{
		"nothing":        {},
		"something else": {"etc/passwd": {}},
		"no CPU":         {"devices/system/cpu/possible": {Data: []byte("0-3\n")}},
		"online empty":   {"devices/system/cpu/online": {Data: []byte("\n")}},
	} {
		if got, _, err := sysfs.Read(tree); err == nil {
			t.Errorf("%s: read %v, want an error", name, got.Online())
		}
	}
}

// FuzzRead changes files of the fixtures: whatever they say, a reading ends in
// a machine or an error, and a machine is one that can be asked everything.
func FuzzRead(f *testing.F) {
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	var trees []*txtar.Archive
	for i, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		trees = append(trees, a)
		f.Add(uint8(i), uint16(3), "0-99999999", uint16(7), "-1")
	}
	for i, text := range []string{"", "0-8191", "ffffffff,ffffffff", "2147483647",
		"Node 0 MemTotal: 18446744073709551615 kB", "3", "255 255", "(null)"} {
		f.Add(uint8(i), uint16(i*5), text, uint16(i*11+1), "0")
	}
	f.Fuzz(func(t *testing.T, which uint8, first uint16, a string, second uint16, b string) {
		archive := trees[int(which)%len(trees)]
		tree, _ := fixture(archive)
		replace := func(at uint16, text string) {
			name := archive.Files[int(at)%len(archive.Files)].Name
			if text == "" {
				delete(tree, name)
				return
			}
			tree[name] = &fstest.MapFile{Data: []byte(text)}
		}
		replace(first, a)
		replace(second, b)
		got, warnings, err := sysfs.Read(tree)
		if err != nil {
			return
		}
		for _, c := range got.CPUs() {
			if got.CoreOf(c.ID) < 0 {
				t.Fatalf("CPU %d has no core", c.ID)
			}
		}
		for _, w := range warnings {
			if s := w.String(); len(s) > 600 || strings.ContainsAny(s, "\x1b\n") {
				t.Fatalf("warning of %d bytes or with control characters: %q", len(s), s)
			}
		}
		describe(got, warnings, err)
	})
}
