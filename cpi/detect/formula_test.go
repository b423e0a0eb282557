package detect

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

// paperCPI is a victim whose CPI doubles in samples 5 to 9 of 10; its threshold
// is 1.8 + 2·0.16.
var paperCPI = []float64{1.8, 1.7, 1.9, 1.8, 3.6, 3.9, 3.7, 4.0, 3.8, 1.8}

const paperT = 2.12

var guilty = []float64{.2, .1, .2, .2, 3.0, 3.2, 3.1, 3.3, 3.0, .2}

func constant(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

func TestScore(t *testing.T) {
	half := []float64{4, 4, 4, 4, 4, 1, 1, 1, 1, 1}
	on := []float64{1, 1, 1, 1, 1, 0, 0, 0, 0, 0}
	off := []float64{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}
	opposite := []float64{2.0, 2.1, 2.0, 2.2, .3, .2, .3, .2, .3, 2.0}
	late := append([]float64{guilty[9]}, guilty[:9]...)
	turn1 := []float64{.1, .1, .1, .1, 3, .1, 3, .1, 3, .1}
	turn2 := []float64{.1, .1, .1, .1, .1, 3, .1, 3, .1, .1}
	both := make([]float64, 10)
	times1000 := make([]float64, 10)
	for i := range both {
		both[i] = turn1[i] + turn2[i]
		times1000[i] = 1000 * on[i]
	}
	for _, c := range []struct {
		name      string
		threshold float64
		cpi       []float64
		usage     []float64
		want      float64
		tolerance float64
	}{
		{"F1 constant", 2, half, constant(1, 10), 0, 1e-9},
		{"F2 together", 2, half, on, .5, 1e-9},
		{"F3 opposite", 2, half, off, -.5, 1e-9},
		{"F4 at the threshold", 2, constant(2, 10), guilty, 0, 1e-9},
		{"F6 a thousand times", 2, half, times1000, .5, 1e-9},
		{"F7 huge", 2, constant(1e9, 10), guilty, 1, 1e-8},
		{"F7 tiny", 2, constant(1e-9, 10), guilty, -1, 1e-8},
		{"F8 antagonist", paperT, paperCPI, guilty, .4099, 5e-5},
		{"F9 steady", paperT, paperCPI, constant(1, 10), .1452, 5e-5},
		{"F10 opposite", paperT, paperCPI, opposite, -.0854, 5e-5},
		{"F11 late", paperT, paperCPI, late, .3134, 5e-5},
		{"F12 first", paperT, paperCPI, turn1, .3977, 5e-5},
		{"F12 second", paperT, paperCPI, turn2, .4164, 5e-5},
		{"F12 joint", paperT, paperCPI, both, .4054, 5e-5},
		{"F13 steady, all bad", 2, constant(4, 10), constant(1, 10), .5, 1e-9},
	} {
		got, ok := Score(c.threshold, c.cpi, c.usage)
		if !ok || math.Abs(got-c.want) > c.tolerance {
			t.Errorf("%s: got %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
	if got, ok := Score(2, half, constant(0, 10)); ok || got != 0 {
		t.Errorf("F5 no usage: got %v, %v; want none", got, ok)
	}
}

func TestScoreIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		cpi := rapid.SliceOfN(rapid.Float64Range(1e-12, 1e12), n, n).Draw(t, "cpi")
		usage := rapid.SliceOfN(rapid.Float64Range(0, 1e6), n, n).Draw(t, "usage")
		threshold := rapid.Float64Range(1e-6, 1e6).Draw(t, "T")
		got, ok := Score(threshold, cpi, usage)
		if !(got >= -1 && got <= 1) {
			t.Fatalf("score %v", got)
		}
		if ok == (slices.Max(usage) == 0) {
			t.Fatalf("ok is %v with usage %v", ok, usage)
		}
		order := rapid.Permutation(indices(n)).Draw(t, "order")
		c2, u2 := make([]float64, n), make([]float64, n)
		for i, j := range order {
			c2[i], u2[i] = cpi[j], usage[j]
		}
		if again, _ := Score(threshold, c2, u2); math.Abs(again-got) > 1e-9 {
			t.Fatalf("score %v in one order, %v in another", got, again)
		}
	})
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// epoch is when the tests' series begin.
var epoch = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// bench drives a detector minute by minute.
type bench struct {
	t    testing.TB
	d    *Detector
	now  time.Time
	refs map[string]Ref
	log  []string // one line an event of interest
	all  []Event
}

func newBench(t testing.TB, edit func(*Config)) *bench {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Enforce = true
	if edit != nil {
		edit(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, d: d, now: epoch, refs: map[string]Ref{}}
}

func (b *bench) put(c cpi.Container) Ref {
	b.t.Helper()
	ref, err := b.d.Put(b.now, &c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.refs[c.ID] = ref
	return ref
}

// spec gives a job its spec.
func (b *bench) spec(job string, mean, sd float64) {
	b.t.Helper()
	if err := b.d.SetSpec(b.now, Spec{Job: job, Mean: mean, StdDev: sd, Samples: 1000, Tasks: 10},
		b.now.Add(1000*time.Hour)); err != nil {
		b.t.Fatal(err)
	}
}

type reading struct{ usage, cpi float64 }

// minute passes, and gives each named container one sample.
func (b *bench) minute(samples map[string]reading) []Event {
	b.now = b.now.Add(time.Minute)
	return b.observe(samples)
}

func (b *bench) observe(samples map[string]reading) []Event {
	var list []Sample
	for name, r := range samples {
		list = append(list, Sample{Ref: b.refs[name], At: b.now, Usage: r.usage, CPI: r.cpi})
	}
	return b.note(b.d.Observe(b.now, list))
}

func (b *bench) tick(after time.Duration) []Event {
	b.now = b.now.Add(after)
	return b.note(b.d.Tick(b.now))
}

func (b *bench) note(events []Event) []Event {
	for _, e := range events {
		switch e.Kind {
		case CommandEvent:
			line := fmt.Sprintf("%s %s", e.Command.Kind, b.d.Container(e.Command.Container).ID)
			if e.Command.Kind == DoCap {
				line += fmt.Sprintf(" %dm", e.Command.Milli)
			}
			b.log = append(b.log, line)
		case OutcomeEvent:
			b.log = append(b.log, fmt.Sprintf("%s of %s for %s: %s", e.Outcome.Kind,
				b.d.Container(e.Outcome.Antagonist).ID, e.Victim.ID, e.Outcome.Result))
		case AnomalyEvent:
			b.log = append(b.log, "anomaly "+e.Victim.ID)
		case AnalysisEvent:
			b.log = append(b.log, fmt.Sprintf("%s: %s", e.Verdict.Kind, e.Verdict.Why))
		case OutlierEvent, SpecEvent:
		}
		b.all = append(b.all, e)
	}
	return events
}

// count of log lines that begin so.
func (b *bench) count(prefix string) (n int) {
	for _, line := range b.log {
		if len(line) >= len(prefix) && line[:len(prefix)] == prefix {
			n++
		}
	}
	return n
}

// play runs series of equal length against a victim "v" of class LS with
// paperT, the suspects being of class BATCH and named u0, u1, ...
func play(t testing.TB, mode Mode, cpis []float64, usages ...[]float64) *bench {
	t.Helper()
	return playWith(t, func(c *Config) { c.Mode = mode }, cpis, usages...)
}

func playWith(t testing.TB, edit func(*Config), cpis []float64, usages ...[]float64) *bench {
	t.Helper()
	b := newBench(t, func(c *Config) { c.RobustSigmas = 2; edit(c) })
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	for i := range usages {
		id := fmt.Sprintf("u%d", i)
		b.put(cpi.Container{ID: id, Job: id, Class: cpi.Batch})
	}
	b.spec("victim", 1.8, 0.16)
	for k, c := range cpis {
		round := map[string]reading{"v": {1, c}}
		for i, u := range usages {
			round[fmt.Sprintf("u%d", i)] = reading{usage: u[k]}
		}
		b.minute(round)
	}
	return b
}

func TestVerdictsOnTheFormulasCases(t *testing.T) {
	opposite := []float64{2.0, 2.1, 2.0, 2.2, .3, .2, .3, .2, .3, 2.0}
	late := append([]float64{guilty[9]}, guilty[:9]...)
	turn1 := []float64{.1, .1, .1, .1, 3, .1, 3, .1, 3, .1}
	turn2 := []float64{.1, .1, .1, .1, .1, 3, .1, 3, .1, .1}
	allBad := constant(4, 10)
	for _, c := range []struct {
		name      string
		mode      Mode
		cpi       []float64
		usages    [][]float64
		caps      []string
		innocents []string
	}{
		{"F8 classic", Classic, paperCPI, [][]float64{guilty, constant(1, 10), opposite}, []string{"u0"},
			[]string{"u1", "u2"}},
		{"F8 default", Contrast, paperCPI, [][]float64{guilty, constant(1, 10), opposite}, []string{"u0"},
			[]string{"u1", "u2"}},
		{"F9 and F10 default", Contrast, paperCPI, [][]float64{constant(1, 10), opposite}, nil, []string{"u0", "u1"}},
		{"F11 default", Contrast, paperCPI, [][]float64{late, constant(1, 10), opposite}, []string{"u0"},
			[]string{"u1", "u2"}},
		{"F12 default", Contrast, paperCPI, [][]float64{turn1, turn2, constant(1, 10)}, []string{"u0", "u1"},
			[]string{"u2"}},
		{"F13 classic errs", Classic, allBad, [][]float64{constant(1, 10)}, []string{"u0"}, nil},
		{"F13 default", Contrast, allBad, [][]float64{constant(1, 10)}, nil, []string{"u0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := play(t, c.mode, c.cpi, c.usages...)
			for _, id := range c.caps {
				if b.count("cap "+id) == 0 {
					t.Errorf("%s is not capped", id)
				}
			}
			for _, id := range c.innocents {
				if b.count("cap "+id) > 0 {
					t.Errorf("%s is capped", id)
				}
			}
			if t.Failed() {
				for _, line := range b.log {
					t.Log(line)
				}
			}
		})
	}
}

// A group has to be as sure as one suspect.
func TestGroupsNeedConfidence(t *testing.T) {
	turn1 := []float64{.1, .1, .1, .1, 3, .1, 3, .1, 3, .1}
	turn2 := []float64{.1, .1, .1, .1, .1, 3, .1, 3, .1, .1}
	for confidence, want := range map[float64]int{0.97: 1, 1: 0} {
		b := playWith(t, func(c *Config) { c.MinConfidence = confidence }, paperCPI, turn1, turn2)
		if got := b.count("cap u0"); got != want || b.count("cap u1") != want {
			t.Errorf("confidence %v is needed: %d caps, want %d: %q", confidence, got, want, b.log)
		}
	}
}
