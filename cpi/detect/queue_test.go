package detect

import (
	"fmt"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// A victim that is not protected waits while protected ones suffer, here for longer than
// its window reaches back.
func TestAnomaliesThatNoWindowHoldsAnyMore(t *testing.T) {
	for _, mode := range []Mode{Classic, Contrast} {
		b := victimBench(t, func(c *Config) { c.Mode, c.Period = mode, 10*time.Second })
		b.put(cpi.Container{ID: "w", Job: "victim", Class: cpi.Batch})
		round := map[string]reading{"w": {1, 9}}
		for i := range 10 {
			id := fmt.Sprint("v", i)
			b.put(cpi.Container{ID: id, Job: "victim", Class: cpi.LS})
			round[id] = reading{1, 9}
		}
		for k := range 100 {
			if k == 3 {
				round["w"] = reading{1, 1}
			}
			b.now = b.now.Add(10 * time.Second)
			b.observe(round)
			if k == 98 {
				round = map[string]reading{"w": {1, 1}} // at last it is its turn
			}
			for range 9 {
				b.tick(time.Second)
			}
		}
		for _, e := range b.all {
			if e.Kind == AnalysisEvent && e.Victim.ID == "w" {
				t.Errorf("%v: an analysis at %v of what was over at %v", mode, e.At, epoch.Add(30*time.Second))
			}
		}
		if _, waits := b.d.Next(); waits || b.d.all[b.refs["w"]].queued {
			t.Errorf("%v: it waits on", mode)
		}
	}
}

// A container that changed its job is judged by the new job's spec, which is not there
// yet: a threshold of nothing would make every container a victim.
func TestAnomaliesOfAJobThatAContainerLeft(t *testing.T) {
	b := victimBench(t, nil)
	b.put(cpi.Container{ID: "a", Job: "a", Class: cpi.BE})
	for k := range 10 {
		if k == 9 {
			b.d.analysed = b.now.Add(time.Minute).UnixNano() // the third is not analysed at once
		}
		b.minute(map[string]reading{"v": {1, map[bool]float64{true: 3, false: 1}[k >= 7]}, "a": {usage: 1}})
	}
	if b.count("anomaly v") != 1 || b.count("none") != 0 {
		t.Fatalf("no anomaly waits: %q", b.log)
	}
	b.put(cpi.Container{ID: "v", Job: "other", Class: cpi.LS})
	b.tick(time.Second)
	b.want()
}
