package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpi/detect"
)

// TestFewTrials is the evaluation in small: the same seeds, the same figures, and
// nothing worse than the targets by more than so few trials can be.
func TestFewTrials(t *testing.T) {
	one, err := measure(setting{detect.Default, 1.6, 20, trialLength}, 40, 1)
	if err != nil {
		t.Fatal(err)
	}
	two, err := measure(setting{detect.Default, 1.6, 20, trialLength}, 40, 1)
	if err != nil {
		t.Fatal(err)
	}
	if one.right != two.right || one.wrong != two.wrong || one.percentile != two.percentile {
		t.Errorf("the same trials gave %d+%d and %d+%d caps", one.right, one.wrong, two.right, two.wrong)
	}
	if one.recall() < 0.85 || one.precision() < 0.95 || one.rank() < 0.95 {
		t.Errorf("recall %.3f, precision %.3f, rank percentile %.3f", one.recall(), one.precision(), one.rank())
	}
	classic, err := measure(setting{detect.Classic, 1.6, 20, trialLength}, 40, 1)
	if err != nil {
		t.Fatal(err)
	}
	if classic.recall() >= one.recall() || classic.rank() >= one.rank() {
		t.Errorf("classic is not worse: recall %.3f, rank percentile %.3f", classic.recall(), classic.rank())
	}
}

// TestVictimsNoise is what the world says of it.
func TestVictimsNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	v := victim{carry: 0.5}
	const n = 200_000
	var sum, squares, cross, before float64
	for range n {
		x := v.noise(r)
		sum += x
		squares += x * x
		cross += x * before
		before = x
	}
	mean := sum / n
	variance := squares/n - mean*mean
	if math.Abs(mean-1) > 0.005 || math.Abs(math.Sqrt(variance)-0.089) > 0.003 {
		t.Errorf("mean %.4f, deviation %.4f; want 1 and 0.089", mean, math.Sqrt(variance))
	}
	if carry := (cross/n - mean*mean) / variance; math.Abs(carry-0.5) > 0.03 {
		t.Errorf("autocorrelation %.3f, want 0.5", carry)
	}
}

func TestReportGoesBetweenTheMarks(t *testing.T) {
	s := &study{trials: 1, seed: 1}
	for _, mode := range modes {
		for _, effect := range effects {
			for _, n := range crowds {
				s.cells = append(s.cells, &cell{mode: mode, effect: effect, suspects: n, trials: 1})
			}
		}
		s.calm = append(s.calm, &cell{mode: mode, effect: 1, suspects: 20, trials: 1, hours: 10})
	}
	dir := t.TempDir()
	if err := s.write(dir); err == nil {
		t.Error("a page that is not there is written")
	}
	name := filepath.Join(dir, "cpi.md")
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
	if text := string(page); !strings.HasPrefix(text, "head\n"+begin+"1 trials a cell") ||
		!strings.HasSuffix(text, end+"tail\n") || strings.Contains(text, "old") {
		t.Errorf("the page is now\n%s", page)
	}
	if err := s.target(); err == nil || !strings.Contains(err.Error(), "recall 0.000") {
		t.Errorf("the target is reached: %v", err)
	}
}
