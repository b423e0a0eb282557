package replay

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi/detect"
)

// reading is a row, for the naive detector.
type reading struct{ at, usage, cpi float64 }

// naive is the paper's detector, written as it is described: for each row anew,
// over everything that was.
func naive(rows map[string][]reading, specs map[string]float64, now float64,
	victim string) (outlier, anomaly bool, scores map[string]float64) {
	const minUsage, period = 0.25, 60
	threshold := specs[victim]
	var mine []reading
	outliers := 0
	for _, r := range rows[victim] {
		if r.at > now || r.cpi == 0 || r.usage < minUsage {
			continue
		}
		if r.cpi > threshold {
			outlier = outlier || r.at == now
			if r.at > now-300 {
				outliers++
			}
		}
		if r.at > now-600 {
			mine = append(mine, r)
		}
	}
	anomaly = outlier && outliers >= 3
	scores = map[string]float64{}
	for id, theirs := range rows {
		if id == victim {
			continue
		}
		var total, score float64
		for _, m := range mine {
			best, usage := math.Inf(1), 0.0
			for _, r := range theirs {
				if off := math.Abs(r.at - m.at); off < period/2 && off < best && r.at <= now {
					best, usage = off, r.usage
				}
			}
			if math.IsInf(best, 1) {
				continue
			}
			total += usage
			if m.cpi > threshold {
				score += usage * (1 - threshold/m.cpi)
			} else if m.cpi < threshold {
				score += usage * (m.cpi/threshold - 1)
			}
		}
		if total > 0 {
			scores[id] = score / total
		}
	}
	return outlier, anomaly, scores
}

func TestClassicIsThePaper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "containers")
		minutes := rapid.IntRange(3, 40).Draw(t, "minutes")
		rows := map[string][]reading{}
		specs := map[string]float64{"c0": 1.8}
		text := []string{strings.TrimSpace(header)}
		// Rows of one round are up to 20 s apart; the victim's come on the minute.
		offset := make([]float64, n)
		for i := 1; i < n; i++ {
			offset[i] = float64(rapid.IntRange(-20, 20).Draw(t, "offset"))
		}
		for m := 1; m <= minutes; m++ {
			for i := range n {
				if rapid.IntRange(0, 9).Draw(t, "missing") == 0 {
					continue
				}
				r := reading{at: float64(m)*60 + offset[i], usage: rapid.Float64Range(0, 3).Draw(t, "usage")}
				if i == 0 {
					r.cpi = rapid.Float64Range(1, 4).Draw(t, "cpi")
				}
				id := fmt.Sprint("c", i)
				rows[id] = append(rows[id], r)
				text = append(text, fmt.Sprintf("%v,%s,j%d,LS,%v,%v", r.at, id, i, r.usage, r.cpi))
			}
		}
		trace, err := Read(strings.NewReader(strings.Join(text, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		cfg := detect.DefaultConfig()
		cfg.Mode = detect.Classic
		got := map[string]map[string]float64{}
		_, err = Run(trace, Options{Config: cfg, Period: time.Minute,
			Specs: []GivenSpec{{Job: "j0", Mean: 1.5, StdDev: 0.15}}}, func(l *Line) error {
			key := fmt.Sprint(l.Event, " ", l.Time)
			got[key] = map[string]float64{}
			for _, s := range l.Suspects {
				got[key][s.Container] = s.Correlation
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows["c0"] {
			outlier, anomaly, scores := naive(rows, specs, r.at, "c0")
			if _, ok := got[fmt.Sprint("outlier ", r.at)]; ok != outlier {
				t.Fatalf("outlier at %v: %v, the naive detector says %v", r.at, ok, outlier)
			}
			if _, ok := got[fmt.Sprint("anomaly ", r.at)]; ok != anomaly {
				t.Fatalf("anomaly at %v: %v, the naive detector says %v", r.at, ok, anomaly)
			}
			analysed, ok := got[fmt.Sprint("analysis ", r.at)]
			if ok != anomaly {
				t.Fatalf("analysis at %v: %v, the naive detector says %v", r.at, ok, anomaly)
			}
			if !ok {
				continue
			}
			if !maps.EqualFunc(analysed, scores, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
				t.Fatalf("at %v: %v, the naive detector says %v", r.at, analysed, scores)
			}
		}
	})
}
