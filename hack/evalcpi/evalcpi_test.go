package main

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

func chosen(t *testing.T, name string) detector {
	t.Helper()
	at := slices.IndexFunc(detectors(), func(d detector) bool { return d.name == name })
	return detectors()[at]
}

func measured(t *testing.T, kind world.Kind, name string, trials int) *cell {
	t.Helper()
	c, err := measure(kind, chosen(t, name), trials, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(c.line())
	return c
}

// TestFewMachines is the evaluation in small: the same seeds give the same figures, the
// order of the detectors is as the tables say, and nobody is blamed where nobody is.
func TestFewMachines(t *testing.T) {
	one, two := measured(t, world.Base, "default", 10), measured(t, world.Base, "default", 10)
	if !reflect.DeepEqual(one, two) {
		t.Errorf("the same machines gave\n%+v and\n%+v", one, two)
	}
	if one.sum.recall() < 0.8 || one.sum.relief() < 0.5 || one.sum.wrong > 0 {
		t.Errorf("base: %s", one.line())
	}
	classic := measured(t, world.Base, "classic", 10)
	if classic.sum.relief() >= one.sum.relief() || classic.sum.recall() >= one.sum.recall() {
		t.Errorf("classic is not worse: %s", classic.line())
	}
	steady, contrast := measured(t, world.Steady, "default", 10), measured(t, world.Steady, "contrast", 10)
	if steady.sum.recall() < 0.9 || contrast.sum.recall() > 0.5 {
		t.Errorf("steady: %s\n%s", steady.line(), contrast.line())
	}
	for _, kind := range []world.Kind{world.Coupled, world.Deploy, world.Quiet} {
		if c := measured(t, kind, "default", 10); c.sum.wrong > 0 {
			t.Errorf("nobody is to blame: %s", c.line())
		}
	}
}

// TestIntervals of 95 %, against tables.
// TestScores: what an untested suspect is said to be worth is what was measured.
func TestScores(t *testing.T) {
	var s scores
	for _, kind := range slices.Concat(world.WithGuilty(), world.Calm()) {
		if err := s.observe(kind, 2, 7_000_000); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range s {
		// Analyses of one machine resemble one another, hence the width.
		low, high := interval(n.guilty, n.of)
		if said := experiment.Precisions()[i].Guilty; n.of < 20 || said < low-0.12 || said > high+0.12 {
			t.Errorf("score from %g on: %d of %d guilty, said is %.2f", experiment.Precisions()[i].From, n.guilty, n.of,
				said)
		}
	}
	t.Log("\n" + s.String())
}

func TestIntervals(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {5, 10, 0.2366, 0.7634}, {0, 0, 0, 1}} {
		if low, high := interval(c.k, c.n); math.Abs(low-c.low) > 1e-3 || math.Abs(high-c.high) > 1e-3 {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", c.k, c.n, low, high, c.low, c.high)
		}
	}
	for _, c := range []struct {
		k         int
		low, high float64
	}{{0, 0, 3.69}, {1, 0.025, 5.57}, {10, 4.80, 18.39}} {
		if low, high := poisson(c.k); math.Abs(low-c.low) > 0.06 || math.Abs(high-c.high) > 0.06 {
			t.Errorf("%d: %.2f to %.2f, want %.2f to %.2f", c.k, low, high, c.low, c.high)
		}
	}
}

func TestReportGoesBetweenTheMarks(t *testing.T) {
	var o options
	if err := o.choose("base,quiet", "classic,default"); err == nil {
		t.Error("no trials are taken")
	}
	o.trials, o.detectors = 1, nil
	if err := o.choose("base,quiet", "classic,default"); err != nil {
		t.Fatal(err)
	}
	s := &study{options: o}
	for _, kind := range o.kinds {
		for _, d := range o.detectors {
			s.cells = append(s.cells, measured(t, kind, d.name, 1))
		}
	}
	dir := t.TempDir()
	if err := s.write(dir); err == nil {
		t.Error("a page that is not there is written")
	}
	name := filepath.Join(dir, "detector.md")
	if err := os.WriteFile(name, []byte("head\n"+begin+"old\n"+end+"tail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(page); !strings.HasPrefix(text, "head\n"+begin+"1 machines of each kind") ||
		!strings.HasSuffix(text, end+"tail\n") || strings.Contains(text, "old") ||
		strings.Count(text, "\n| base |") != 2 || strings.Count(text, "\n| quiet |") != 2 {
		t.Errorf("the page is now\n%s", page)
	}
}

func TestChoiceRefuses(t *testing.T) {
	for _, c := range []struct{ kinds, only, want string }{
		{"bass", "default", `kind "bass" is not known`}, {"", "best", `detector "best" is not known`},
	} {
		o := options{trials: 1}
		if err := o.choose(c.kinds, c.only); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
