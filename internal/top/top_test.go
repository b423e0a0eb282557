package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

var update = flag.Bool("update", false, "write the golden files")

func of(v float64) *float64 { return &v }

func container(id, pod string, class policy.Class, pool policy.PoolKind, cpus string) control.TopContainer {
	return control.TopContainer{ID: id, Namespace: "default", Pod: pod, Container: "main", Class: class, Pool: pool,
		CPUs: cpus}
}

// answers are two answers of a daemon, two seconds apart.
func answers() (before, now *control.Top) {
	now = &control.Top{
		At: time.Date(2026, 3, 4, 12, 30, 5, 0, time.UTC), Connected: true, CPUs: 16,
		Pools: script.Pools{Shared: "4-15", BE: "0-15", Exclusive: "0-3"},
		CPI:   control.CPI{Mode: "observe", Counting: true, Interval: 60, Window: 10, Age: of(23.4), Reference: true},
	}
	db := container("a", "db-0", policy.LSR, policy.PoolExclusive, "0-3")
	db.Sample = control.Sample{Usage: of(3.5), CPI: of(0.873), MPKI: of(1.25), Wait: of(0.001)}
	web := container("b", "web-7db6d8ff4d-x2x4j", policy.LS, policy.PoolShared, "4-15")
	web.Sample = control.Sample{Usage: of(1.1), CPI: of(1.94), MPKI: of(14.5), Wait: of(0.034)}
	web.Lacks = "L3+queue"
	batch := container("c", "batch", policy.BE, policy.PoolBE, "0-15")
	batch.CapMilli = 100
	batch.Sample = control.Sample{Usage: of(0.1), CPI: of(1234.5), Wait: of(0.99)}
	young := container("d", "young", policy.LS, policy.PoolShared, "4-15")
	young.Sample = control.Sample{Why: "it began in the last window"}
	hostile := container("e", "x\x1b[2J\nroot\u202e", policy.LS, policy.PoolShared,
		"0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30")
	now.Containers = []control.TopContainer{batch, db, hostile, web, young}
	before = &control.Top{}
	for i := range now.Containers {
		c := now.Containers[i]
		if c.ID != "d" {
			used := float64(len(c.Pod)) / 4
			c.UsageSeconds, c.UsageAt = of(100), 5000
			now.Containers[i].UsageSeconds, now.Containers[i].UsageAt = of(100+used), 5002
		} else {
			now.Containers[i].UsageSeconds, now.Containers[i].UsageAt = of(7), 5002
		}
		if c.ID != "d" {
			before.Containers = append(before.Containers, c)
		}
	}
	return before, now
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestTables(t *testing.T) {
	for name, l := range map[string]Look{
		"batch.txt":    {Sort: "usage"},
		"terminal.txt": {Width: 80, Height: 24, Sort: "cpi"},
		"narrow.txt":   {Width: 40, Height: 10, Sort: "wait"},
		"color.txt":    {Width: 120, Height: 9, Sort: "name", Color: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := Compare(answers())
			f.Sort(l.Sort)
			golden(t, name, strings.Join(f.Lines(l), "\n")+"\n")
		})
	}
}

func TestTheHeadSaysWhyThereIsNoCPI(t *testing.T) {
	for want, c := range map[string]control.CPI{
		"CPI: not counted: cpi.mode is off": {Mode: "off"},
		"CPI: not counted: Linux 4.4 is too old": {Mode: "observe",
			Why: "Linux 4.4 is too old"},
		"CPI: windows of 10s every 1m; the first one's numbers come in 42s": {Counting: true, Window: 10,
			Interval: 60, Next: 42.1},
		"CPI: windows of 500ms every 2s, the last one 1.5s ago; this machine has no PMU": {Counting: true, Window: 0.5,
			Interval: 2, Age: of(1.5), Why: "this machine has no PMU", Reference: true},
		"CPI: windows of 10s every 1m; the first one's numbers come in 5s; 3 of 14 jobs are judged; 9 with fewer " +
			"than 5 containers are not; 2 lack samples (100 in each of 5 containers), the first for 37m at least; " +
			"12 containers were not counted in the last window": {Counting: true, Window: 10, Interval: 60,
			Next: 5, Jobs: &control.Jobs{Judged: 3, LackTasks: 9, LackSamples: 2, MinTasks: 5, MinTaskSamples: 100,
				Next: of(2220), Uncounted: 12}},
		"CPI: windows of 10s every 1m, the last one 1s ago; 10 of 40 containers were counted in the last window: " +
			"1 as victims, 2 as suspects, 4 because they had waited longest, 3 because they use most": {Counting: true,
			Window: 10, Interval: 60, Age: of(1), Watchlist: &control.Watchlist{Counted: 10, Containers: 40, Victims: 1,
				Suspects: 2, Turns: 4}},
		"CPI: windows of 10s every 1m; the last one was dropped: a CPU came or went": {Counting: true, Window: 10,
			Interval: 60, Age: of(1), Dropped: "a CPU came or went"},
	} {
		_, now := answers()
		now.CPI = c
		if lines := Compare(now, now).Lines(Look{}); lines[2] != want {
			t.Errorf("says %q, want %q", lines[2], want)
		}
	}
	_, now := answers()
	now.Connected = false
	if lines := Compare(now, now).Lines(Look{}); !strings.Contains(lines[0], "; not connected to the runtime") {
		t.Errorf("says %q", lines[0])
	}
}

func TestUsageIsWhatCameBetween(t *testing.T) {
	before, now := answers()
	f := Compare(before, now)
	for _, r := range f.Containers {
		want := float64(len(r.Pod)) / 8
		if r.Pod == "young" {
			if r.Usage != nil {
				t.Errorf("a container that was not there before uses %v", *r.Usage)
			}
		} else if r.Usage == nil || *r.Usage != want {
			t.Errorf("%s uses %v, want %v", r.Pod, r.Usage, want)
		}
	}
	now.Containers[0].UsageSeconds = of(1) // less than before: another cgroup
	now.Containers[1].UsageSeconds = nil
	f = Compare(before, now)
	for i := range 2 {
		if f.Containers[i].Usage != nil {
			t.Errorf("%s uses %v", f.Containers[i].Pod, *f.Containers[i].Usage)
		}
	}
}

func TestSorting(t *testing.T) {
	for key, want := range map[Key]string{
		"usage": "web-7db6d8ff4d-x2x4j x\x1b[2J\nroot\u202e batch db-0 young",
		"cpi":   "batch web-7db6d8ff4d-x2x4j db-0 x\x1b[2J\nroot\u202e young",
		"mpki":  "web-7db6d8ff4d-x2x4j db-0 batch x\x1b[2J\nroot\u202e young",
		"wait":  "batch web-7db6d8ff4d-x2x4j db-0 x\x1b[2J\nroot\u202e young",
		"class": "db-0 web-7db6d8ff4d-x2x4j x\x1b[2J\nroot\u202e young batch",
		"name":  "batch db-0 web-7db6d8ff4d-x2x4j x\x1b[2J\nroot\u202e young",
	} {
		f := Compare(answers())
		f.Sort(key)
		var got []string
		for _, r := range f.Containers {
			got = append(got, r.Pod)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", key, strings.Join(got, " "), want)
		}
	}
	seen := map[Key]bool{}
	for k := Key("usage"); !seen[k]; k = k.Next() {
		seen[k] = true
	}
	if len(seen) != len(Keys()) {
		t.Errorf("the key goes through %d of %d columns", len(seen), len(Keys()))
	}
}

// No text of a tenant and no size of a screen breaks the table.
func TestLinesFitEveryScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\x1b]0;x\a", "\u202e", "世界",
			strings.Repeat("z", 600), "\xff\x00"}))
		any := rapid.Custom(func(t *rapid.T) *float64 {
			if rapid.Bool().Draw(t, "none") {
				return nil
			}
			return of(rapid.Float64Range(0, 1e12).Draw(t, "value"))
		})
		now := &control.Top{Pools: script.Pools{Shared: text.Draw(t, "pool")},
			CPI: control.CPI{Why: text.Draw(t, "why")}}
		for i := range rapid.IntRange(0, 30).Draw(t, "rows") {
			c := container(fmt.Sprint(i), text.Draw(t, "pod"), policy.Class(text.Draw(t, "class")),
				policy.PoolKind(text.Draw(t, "kind")), text.Draw(t, "cpus"))
			c.Sample = control.Sample{CPI: any.Draw(t, "cpi"), MPKI: any.Draw(t, "mpki"), Wait: any.Draw(t, "wait")}
			now.Containers = append(now.Containers, c)
		}
		l := Look{Width: rapid.IntRange(1, 250).Draw(t, "width"), Height: rapid.IntRange(1, 60).Draw(t, "height"),
			Sort: rapid.SampledFrom(Keys()).Draw(t, "sort")}
		f := Compare(now, now)
		f.Sort(l.Sort)
		lines := f.Lines(l)
		if len(lines) > l.Height {
			t.Fatalf("%d lines on a screen of %d", len(lines), l.Height)
		}
		for _, one := range lines {
			if n := utf8.RuneCountInString(one); n > l.Width && l.Width >= 9 {
				t.Fatalf("%d columns on a screen of %d: %q", n, l.Width, one)
			}
			if i := strings.IndexFunc(one, func(r rune) bool { return r != '…' && (r < ' ' || r > '~') }); i >= 0 {
				t.Fatalf("a control character in %q", one)
			}
		}
		if !slices.IsSortedFunc(f.Containers, func(a, b Row) int { return l.Sort.compare(&a, &b) }) {
			t.Fatal("not sorted")
		}
	})
}
