package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// traces are not part of this repository.
const traces = "../../../shared/testdata/traces"

func loaded(t *testing.T) []set {
	t.Helper()
	if _, err := os.Stat(traces); err != nil {
		t.Skipf("needs the recorded data at %s, which are not part of this repository: %v", traces, err)
	}
	sets, err := load(traces)
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// TestFiguresOfThePage holds what docs/evidence/lending.md says within a hundredth.
func TestFiguresOfThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: not with -short")
	}
	sets := loaded(t)
	want := map[string][2]float64{ // of the oracle's, violated
		"Bitbrains " + defaultName:    {0.870, 0.0026},
		"Google 2011 " + defaultName:  {0.995, 0.0065},
		"Alibaba 2018 " + defaultName: {0.759, 0.0054},
	}
	for _, s := range sets {
		sc, w := measure(s, usual().named(defaultName)), want[s.name+" "+defaultName]
		if math.Abs(sc.ofOracle()-w[0]) > 0.01 || math.Abs(sc.violated()-w[1]) > 0.001 {
			t.Errorf("%s: %.3f of the oracle's with %.4f violated, want %v", s.name, sc.ofOracle(), sc.violated(), w)
		}
	}
	_, rows, err := idleTable(sets)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.set == "Bitbrains" && r.rule == "p95" && (math.Abs(r.share()-0.928) > 0.01 ||
			math.Abs(r.cores-0.752) > 0.01 || math.Abs(r.flip()-0.006) > 0.01) {
			t.Errorf("idle VM-days: %+v", r)
		}
	}
}

func TestFill(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n<!-- a -->\nold\n<!-- /a -->\nafter\n")
	for range 2 {
		if err := fill(name, map[string]string{"a": "new\n"}); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "before\n<!-- a -->\nnew\n<!-- /a -->\nafter\n" {
		t.Errorf("the page is %q, %v", text, err)
	}
	if err := fill(name, map[string]string{"b": ""}); err == nil || !strings.Contains(err.Error(), "<!-- b -->") {
		t.Errorf("a place that is not there: %v", err)
	}
}

func TestBins(t *testing.T) {
	var b bins
	for _, s := range [][2]float64{{0, 1}, {299, 2}, {301, 4}, {1200, 5}} {
		b.add(s[0], s[1])
	}
	b.size = 8
	if got := b.series("x", 0, 6).use; len(got) != 6 || got[0] != 1 || got[1] != 3 || got[2] != 3 || got[4] != 5 ||
		got[5] != 5 || b.twice {
		t.Errorf("series %v, twice %v", got, b.twice)
	}
	b.add(1200, 1)
	if !b.twice {
		t.Error("two rows of one time were not noticed")
	}
}

func TestFuture(t *testing.T) {
	got := future([]float64{5, 1, 4, 2, 3}, 2)
	for i, want := range []float64{4, 4, 3, 3, 0} {
		if got[i] != want {
			t.Fatalf("the future is %v", got)
		}
	}
}

func TestNoTraces(t *testing.T) {
	if err := run(io.Discard, t.TempDir(), false); err == nil || !strings.Contains(err.Error(), "-traces") {
		t.Errorf("without traces: %v", err)
	}
}

// One margin for everything exceeds all rises but as many as may be violated; one for each kind costs
// no more, and nothing where each kind is one interval.
func TestHindsight(t *testing.T) {
	one := map[[3]int][]float64{{}: {0, 1, 2, 3, 10}}
	for _, c := range []struct{ most, want float64 }{{0, 50}, {1, 15}, {4, 0}} {
		if got := leastMargins(one, c.most); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v violations: margins of %v, want %v", c.most, got, c.want)
		}
	}
	each := map[[3]int][]float64{}
	for i, rise := range one[[3]int{}] {
		each[[3]int{i}] = []float64{rise}
	}
	if got := leastMargins(each, 0); math.Abs(got-16) > 1e-9 {
		t.Errorf("each interval's own: %v, want the sum of the rises", got)
	}
}
