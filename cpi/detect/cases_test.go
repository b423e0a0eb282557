package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// The paper's cases, from series to verdict. Ten minutes, in the last three of which
// the victim suffers: the third of them is the anomaly, and what is analysed is exactly
// these.
func suffering(well, ill float64) []float64 {
	return append(constant(well, 7), constant(ill, 3)...)
}

// scoring is the usage of a suspect of exactly this score by the paper: little
// while the victim is well, and as much more while it suffers as that takes.
func scoring(t *testing.T, threshold float64, cpi []float64, score float64) []float64 {
	t.Helper()
	var gain, bad, loss, good float64
	for _, c := range cpi {
		if c > threshold {
			gain, bad = gain+1-threshold/c, bad+1
		} else {
			loss, good = loss+c/threshold-1, good+1
		}
	}
	const little = 0.1
	much := little * (score*good - loss) / (gain - score*bad)
	usage := make([]float64, len(cpi))
	for i, c := range cpi {
		if usage[i] = little; c > threshold {
			usage[i] = much
		}
	}
	if got, ok := Score(threshold, cpi, usage); !ok || math.Abs(got-score) > 1e-12 || !(much > 0) {
		t.Fatalf("usage %v scores %v, want %v", usage, got, score)
	}
	return usage
}

// watched is a victim with the threshold 2.0 of classic mode, among suspects.
func watched(t *testing.T, suspects ...cpi.Container) *bench {
	t.Helper()
	b := victimBench(t, nil)
	for _, c := range suspects {
		c.Job = c.ID
		b.put(c)
	}
	return b
}

// suffer plays a victim's series and its suspects'.
func (b *bench) suffer(cpi []float64, usages map[string][]float64, threads int32) {
	b.t.Helper()
	for k, c := range cpi {
		b.now = b.now.Add(time.Minute)
		round := []Sample{{Ref: b.refs["v"], At: b.now, Usage: 1, CPI: c}}
		for id, u := range usages {
			round = append(round, Sample{Ref: b.refs[id], At: b.now, Usage: u[k], Threads: threads})
		}
		b.note(b.d.Observe(b.now, round))
	}
}

func TestPaperOnlyBatchIsCapped(t *testing.T) { // P1
	scores := map[string]float64{"video": 0.46, "digitising": 0.44, "images": 0.43, "tablet": 0.39, "storage": 0.39}
	var suspects []cpi.Container
	usages := map[string][]float64{}
	slow := suffering(1, 5)
	for id, score := range scores {
		class := cpi.LS
		if id == "video" {
			class = cpi.Batch
		}
		suspects = append(suspects, cpi.Container{ID: id, Class: class})
		usages[id] = scoring(t, 2, slow, score)
	}
	usages["idle"] = constant(0, len(slow)) // a suspect without usage has no score
	b := watched(t, append(suspects, cpi.Container{ID: "idle", Class: cpi.BE})...)
	b.suffer(slow, usages, 0)
	b.want("cap video 100m")
	e := lastOf(b, AnalysisEvent)
	if e.Threshold != 2 || e.CPI != 5 || len(e.Verdict.Suspects) != len(scores) {
		t.Fatalf("CPI %v with the threshold %v, %d suspects", e.CPI, e.Threshold, len(e.Verdict.Suspects))
	}
	for _, s := range e.Verdict.Suspects {
		if id := b.d.Container(s.Ref).ID; math.Abs(s.Score-scores[id]) > 1e-9 {
			t.Errorf("%s scores %v, want %v", id, s.Score, scores[id])
		}
	}
	if first := b.d.Container(e.Verdict.Suspects[0].Ref).ID; first != "video" {
		t.Errorf("%s is the most suspicious", first)
	}
}

func TestScoresOfSeriesThatSuffice(t *testing.T) { // A1, A2
	for _, c := range []struct {
		class cpi.Class
		score float64
		want  []string
	}{
		{cpi.Batch, 0.349, nil},
		{cpi.Batch, 0.35 + 1e-9, []string{"cap a 100m"}},
		{cpi.BE, 0.349, nil},
		{cpi.BE, 0.35 + 1e-9, []string{"cap a 10m"}},
	} {
		slow := suffering(1, 5)
		b := watched(t, cpi.Container{ID: "a", Class: c.class})
		b.suffer(slow, map[string][]float64{"a": scoring(t, 2, slow, c.score)}, 0)
		b.want(c.want...)
		if v := lastOf(b, AnalysisEvent).Verdict; math.Abs(v.Suspects[0].Score-c.score) > 1e-8 {
			t.Errorf("the score is %v, want %v", v.Suspects[0].Score, c.score)
		}
	}
}

// TestSelfInflicted is P3: a web front-end's CPI goes from 3 to 10 as its own usage
// falls to nearly nothing. That is no anomaly; and would it be one, the best score is
// 0.07.
func TestSelfInflicted(t *testing.T) {
	const threshold = 4.0
	slow := suffering(3, 10)
	usage := scoring(t, threshold, slow, 0.07)
	for _, mode := range []Mode{Classic, Contrast} {
		for _, least := range []float64{0.25, 0} {
			b := newBench(t, func(c *Config) { c.Mode, c.MinUsage = mode, least })
			b.put(cpi.Container{ID: "v", Job: "web", Class: cpi.LS})
			b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
			b.spec("web", 3, 0.5)
			for k, c := range slow {
				own := 1.5
				if c > threshold {
					own = 0.02
				}
				b.minute(map[string]reading{"v": {own, c}, "a": {usage: usage[k]}})
			}
			if n := b.count("anomaly"); n != map[float64]int{0.25: 0, 0: 1}[least] {
				t.Errorf("%v: %d anomalies of a victim that idles, least usage %v", mode, n, least)
			}
			if least == 0 {
				v := lastOf(b, AnalysisEvent).Verdict
				if mode == Classic && math.Abs(v.Suspects[0].Paper-0.07) > 1e-9 {
					t.Errorf("%v: the best score is %v, want 0.07", mode, v.Suspects[0].Paper)
				}
				if mode == Contrast {
					continue // there the paper's score does not decide
				}
			}
			b.want()
		}
	}
}

// TestDerangedAntagonist is P5: its threads grow from 8 to 80 while it is capped, then
// there are 2 for tens of minutes. It is let go and left alone for an hour, however
// guilty.
func TestDerangedAntagonist(t *testing.T) {
	slow := suffering(1, 5)
	usage := map[string][]float64{"a": scoring(t, 2, slow, 0.46)}
	b := watched(t, cpi.Container{ID: "a", Class: cpi.Batch})
	b.suffer(slow, usage, 8)
	b.want("cap a 100m")
	capped := map[string][]float64{"a": {0.1}}
	b.suffer([]float64{1}, capped, 20)
	b.suffer([]float64{1}, capped, 0) // unknown: no harm
	b.want("cap a 100m")
	b.suffer([]float64{1}, capped, 80)
	b.want("cap a 100m", "cap of a for v: harm", "uncap a")
	for block := range 5 {
		b.suffer(slow, usage, 2)
		if v := lastOf(b, AnalysisEvent).Verdict; v.Kind != Observe ||
			!strings.Contains(v.Why, "a (a) is not tried before 13:13:00, since it did not help") {
			t.Errorf("block %d: %s: %s", block, v.Kind, v.Why)
		}
	}
	b.want("cap a 100m", "cap of a for v: harm", "uncap a")
	b.suffer(slow, usage, 2)
	b.want("cap a 100m", "cap of a for v: harm", "uncap a", "cap a 100m")
}

// Of a group each is released a minute after the one less suspicious, and none before
// three: the victim's reaction shows which cap was needed.
func TestGroupsAreReleasedOneByOne(t *testing.T) {
	b := newBench(t, nil)
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.spec("victim", 1, 0.1)
	for _, id := range []string{"a", "b", "c"} {
		b.put(cpi.Container{ID: id, Job: "replicas", Class: cpi.Batch})
	}
	for range 3 {
		b.minute(map[string]reading{"v": {1, 2}})
	}
	began := b.now
	b.blame("v", map[string]float64{"a": 0.38, "b": 0.37, "c": 0.36})
	b.want("cap a 100m", "cap b 100m", "cap c 100m")
	for i, c := range b.d.InForce() {
		if want := time.Duration(5-i) * time.Minute; c.Until.Sub(began) != want {
			t.Errorf("%s is capped for %s, want %s", b.d.Container(c.Container).ID, c.Until.Sub(began), want)
		}
	}
	b.log = nil
	var released []string
	for minute := 1; minute <= 5; minute++ {
		b.minute(map[string]reading{"v": {1, 1}})
		for _, line := range b.log {
			if id, ok := strings.CutPrefix(line, "uncap "); ok {
				released = append(released, fmt.Sprintf("%s after %d", id, minute))
			}
		}
		b.log = nil
	}
	if want := []string{"c after 3", "b after 4", "a after 5"}; !slices.Equal(released, want) {
		t.Errorf("released %q, want %q", released, want)
	}
}
