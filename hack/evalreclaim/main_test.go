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

// TestFiguresOfThePage holds what docs/oversubscription.md says within a hundredth.
func TestFiguresOfThePage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: not with -short")
	}
	sets := loaded(t)
	scores, err := scoreAll(sets)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][3]float64{ // violations within 1 h and 24 h, saving
		"Bitbrains peak(1.1), 1 d":    {0.0019, 0.0455, 0.638},
		"Bitbrains sigma(3), 7 d":     {0, 0, 0.483},
		"Bitbrains limits(0.9)":       {0, 0, 0.1},
		"Google 2011 peak(1.1), 1 d":  {0, 0, 0.803},
		"Google 2011 pods(99), 1 d":   {0.0192, 0.1549, 0.903},
		"Alibaba 2018 peak(1.1), 1 d": {0.0023, 0.0446, 0.234},
	}
	for _, s := range sets {
		for _, sc := range scores[s.name] {
			w, listed := want[s.name+" "+sc.String()]
			if !listed {
				continue
			}
			for i, got := range []float64{sc.violated(0), sc.violated(1), sc.saving()} {
				if math.Abs(got-w[i]) > 0.01 {
					t.Errorf("%s, %s: figure %d is %.4f, want %.4f", s.name, sc, i, got, w[i])
				}
			}
			delete(want, s.name+" "+sc.String())
		}
	}
	if len(sets) == 3 && len(want) > 0 {
		t.Errorf("nothing was measured for %v", want)
	}
	if got := best(sets, scores); len(sets) == 3 && !got.isDefault() {
		t.Errorf("the best predictor is %s, the default is another", got)
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
