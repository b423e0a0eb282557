package counter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Slots are given to one group at a time, and a forgotten group's only after it
// has been retired.
func TestSlotsOfGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "groups")
		g := newGroups(n)
		taken := map[uint32]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				slot, ok := g.slot()
				if free := len(taken) < n; ok != free {
					t.Fatalf("a slot: %t, with %d of %d taken", ok, len(taken), n)
				}
				if !ok {
					return
				}
				if slot == other || int(slot) > n || int(slot) >= g.used || taken[slot] {
					t.Fatalf("slot %d, with %v taken and %d used", slot, taken, g.used)
				}
				taken[slot] = true
			},
			"forget": func(t *rapid.T) {
				for slot := range taken {
					if !slices.Contains(g.retiring, slot) {
						g.retiring = append(g.retiring, slot)
						return
					}
				}
			},
			"retire": func(t *rapid.T) {
				for _, slot := range g.takeRetiring() {
					delete(taken, slot)
				}
			},
		})
	})
}

// Whatever the rows hold, taking them loses nothing and leaves nothing.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 6).Draw(t, "slots")
		totals, want := make([]Counts, slots), make([]Counts, slots)
		for range rapid.IntRange(1, 5).Draw(t, "CPUs") {
			rows := make([]Counts, slots)
			for i := range rows {
				if rapid.Bool().Draw(t, "empty") {
					continue
				}
				n := rapid.Uint64Max(1 << 50)
				rows[i] = Counts{
					Events: [numEvents]uint64{n.Draw(t, "cycles"), n.Draw(t, "instructions"), n.Draw(t, "ref"),
						n.Draw(t, "llc")},
					OnCPU: n.Draw(t, "on CPU"), RunQueueWait: n.Draw(t, "wait"), Switches: n.Draw(t, "switches"),
				}
				rows[i].Counted = rapid.Uint64Max(rows[i].OnCPU).Draw(t, "counted")
				if rows[i].OnCPU == 0 { // no time, no events
					rows[i].Events = [numEvents]uint64{}
				}
				want[i].add(&rows[i])
			}
			take(totals, rows)
			if slices.ContainsFunc(rows, func(c Counts) bool { return c != Counts{} }) {
				t.Fatalf("left behind: %+v", rows)
			}
		}
		if !slices.Equal(totals, want) {
			t.Fatalf("%+v, want %+v", totals, want)
		}
	})
}

// A path never leaves the hierarchy, whatever a runtime says it is.
func FuzzCgroupPath(f *testing.F) {
	for _, path := range []string{"/", "", "/a", "a/b", "../x", "/a/../../b", "a\x00b", "//", "a/./b"} {
		f.Add(path)
	}
	root := f.TempDir()
	outside := filepath.Join(filepath.Dir(root), "outside")
	if err := os.MkdirAll(filepath.Join(root, "a", "b"), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.MkdirAll(outside, 0o755); err != nil {
		f.Fatal(err)
	}
	inside := map[uint64]bool{}
	c := &Counter{options: Options{Root: root}}
	for _, path := range []string{"/a", "/a/b"} {
		id, err := c.cgroupID(path)
		if err != nil {
			f.Fatal(err)
		}
		inside[id] = true
	}
	f.Fuzz(func(t *testing.T, path string) {
		if id, err := c.cgroupID(path); err == nil && !inside[id] {
			t.Errorf("%q is inode %d, which is outside", path, id)
		}
	})
}

// /proc/cgroups is the kernel's, but a mount in its place must not hurt.
func FuzzHierarchy(f *testing.F) {
	f.Add("#subsys_name\thierarchy\tnum_cgroups\tenabled\nperf_event\t0\t5\t1\n")
	f.Add("perf_event 7 5 1")
	f.Add("perf_event\n\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		got := hierarchyOf(&double{files: map[string]string{"/proc/cgroups": text}}, "perf_event")
		if got != "" && !strings.Contains(text, got) {
			t.Errorf("%q of %q", got, text)
		}
	})
}
