package main

import (
	"math"
	"testing"

	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// TestQueues: on machines without CPIs the guilty are found by what the victim waits for, and
// nobody is blamed for what it waits for itself, its quota and the host.
func TestQueues(t *testing.T) {
	for _, kind := range []world.Kind{world.QueueBase, world.QueueSteady} {
		c := measured(t, kind, "default", 8)
		if c.sum.recall() < 0.85 || c.sum.relief() < 0.6 || c.sum.wrong > 0 {
			t.Errorf("%s", c.line())
		}
	}
	for _, kind := range []world.Kind{world.QueueHost, world.QueueSelf, world.QueueQuota, world.QueueQuiet} {
		for _, name := range []string{"contrast", "default"} {
			if c := measured(t, kind, name, 5); c.sum.wrong > 0 || c.sum.anomalies > 10 {
				t.Errorf("nobody is to blame: %s", c.line())
			}
		}
	}
}

// TestRowsOfWaits: what stands for the victim's CPI rises with what the antagonist takes, and
// nobody else's does.
func TestRowsOfWaits(t *testing.T) {
	m := world.New(world.QueueSteady, 3)
	var sum, disturbed [2]float64 // before it comes, and since
	var n [2]float64
	var rows []world.Row
	for m.Step() {
		rows = rowsOf(m, rows[:0])
		since := 0
		if m.Now() > m.Jobs[len(m.Jobs)-1].Arrives() {
			since = 1
		}
		is, _ := m.Disturbance()
		for _, r := range rows {
			switch {
			case r.Job == world.VictimJob && r.CPI > 0:
				sum[since], n[since] = sum[since]+r.CPI, n[since]+1
				disturbed[since] += is
			case r.Job != world.VictimJob && r.CPI != 1 && r.CPI != 0:
				t.Fatalf("%s has %v", r.Container, r.CPI)
			case r.Caused < 0 || r.Job == world.VictimJob && r.Caused != 0:
				t.Fatalf("%+v", r)
			}
		}
	}
	rose, by := sum[1]/n[1]-sum[0]/n[0], disturbed[1]/n[1]
	if math.Abs(rose-by) > 0.3*by || by < 0.2 {
		t.Errorf("it rose by %.2f with a disturbance of %.2f", rose, by)
	}
}
