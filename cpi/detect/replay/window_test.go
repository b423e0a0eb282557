package replay

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// inWindows is 200 minutes of a victim and a job that disturbs it by turns, with a row of an
// interval in each, and where that is wanted with five of tests beside it.
func inWindows(between bool) string {
	r := rand.New(rand.NewPCG(4, 2))
	text := strings.Builder{}
	text.WriteString(strings.TrimSpace(header) + ",window\n")
	for m := range 200 {
		busy := m > 60 && m/6%2 == 1
		for k := range 6 {
			hog, factor, window := 0.02, 1.0, 10
			if busy {
				hog, factor = 3, 2
			}
			if k == 3 {
				window = 60
			}
			web := factor * math.Exp(0.05*r.NormFloat64())
			if k != 3 && !between {
				continue
			}
			at := 60*m + 10*k
			fmt.Fprintf(&text, "%d,web-0,web,LS,1,%.4f,%d\n", at, web, window)
			fmt.Fprintf(&text, "%d,hog-0,hog,BATCH,%.2f,1,%d\n", at, hog, window)
		}
	}
	return text.String()
}

// TestRowsOfTests: they are no interval's: what is normal, outliers and anomalies are the same
// without them. With the column window a probe lasts as long as a test's window.
func TestRowsOfTests(t *testing.T) {
	o := byExperiment(1)
	o.Period, o.Experiment.Budget = 0, 0
	alone, _ := toldWith(t, inWindows(false), o)
	with, summary := toldWith(t, inWindows(true), o)
	if len(alone) < 10 || !slices.Equal(alone, with) || summary.Dropped != nil {
		t.Errorf("%d lines without the rows of tests, %d with them; %+v", len(alone), len(with), summary)
	}
	o.Experiment.Budget = 5
	lines, summary := toldWith(t, inWindows(true), o)
	if summary.Probes < 2 {
		t.Errorf("%+v", summary)
	}
	for _, text := range lines {
		var l Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == "probe" && l.Until-l.Time != 10 {
			t.Errorf("a probe for %v seconds", l.Until-l.Time)
		}
	}
}
