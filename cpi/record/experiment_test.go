package record

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/incidents"
)

// TestAnIncidentShowsItsExperiments: coins, windows, both arms, the e-value and what it cost,
// in the incident of every victim of the job, and in no other.
func TestAnIncidentShowsItsExperiments(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	last := map[string]incidents.Incident{}
	r := New(Options{Node: "n", History: func(string) []sample.Sample { return nil },
		Put: func(i incidents.Incident) string { last[i.Victim.Pod] = i; return i.ID }})
	web, twin, other := who("web-0", "Deployment/web"), who("web-1", "Deployment/web"), who("db", "Deployment/db")
	batch := who("batch", "Job/batch")
	for _, v := range []*loop.Finding{{Victim: web}, {Victim: twin}, {Victim: other}} {
		v.Kind, v.At, v.CPI, v.Threshold, v.Verdict = detect.AnalysisEvent, start, 3, 2, detect.Test
		v.Suspects = []loop.Suspect{{Container: batch, Prior: 3.5, EValue: 1.2}}
		r.Find(v)
	}
	find := func(minute int, kind detect.Kind, test loop.Test) {
		test.Job = batch.Job
		f := &loop.Finding{Kind: kind, At: at(minute), Victim: web, Target: batch, Until: at(minute + 1), Test: &test}
		if kind == detect.OutcomeEvent {
			f.Outcome = &detect.Outcome{Kind: detect.DoCap, Result: detect.Success, Before: 1.5, After: 0.75}
		}
		r.Find(f)
	}
	arms := [2]experiment.Arm{{Windows: 6, Excess: 1.5}, {Windows: 5, Excess: 0.75}}
	find(1, loop.TestEvent, loop.Test{Begun: true, E: 1})
	find(2, loop.TestEvent, loop.Test{P: 0.25, On: true, E: 1.5, Harm: 1})
	if w := last["web-0"].Experiments[0].Witness; w != nil {
		t.Errorf("a witness of a test without a verdict: %+v", w)
	}
	find(3, loop.TestEvent, loop.Test{P: 0.5, E: 4, Harm: 1})
	find(4, detect.OutcomeEvent, loop.Test{E: 210, Verdict: true, Harm: 2.5, Arms: arms,
		Witness: experiment.Witness{E: 0.7, Jobs: 2}})
	if w := last["web-0"].Experiments[0].Witness; w == nil || *w != (incidents.Witness{EValue: 0.7, Jobs: 2}) ||
		w.Text() != "no neutral witness yet: e-value 0.7 of 2 jobs" {
		t.Errorf("before it is confirmed: %+v", w)
	}
	find(5, loop.TestEvent, loop.Test{P: 0.8, On: true, E: 220, Verdict: true, Arms: arms,
		Witness: experiment.Witness{Job: "db/Deployment/db", E: 4.5, Jobs: 2}})
	if got := len(last["db"].Experiments); got != 0 {
		t.Errorf("%d tests for another victim", got)
	}
	for _, pod := range []string{"web-0", "web-1"} {
		i := last[pod]
		if i.Verdict != incidents.Test || len(i.Experiments) != 1 || i.Suspects[0].Prior != 3.5 ||
			i.Suspects[0].EValue != 1.2 {
			t.Fatalf("%s: %+v", pod, i)
		}
		x := i.Experiments[0]
		if x.Job != batch.Job || x.Result != incidents.Guilty || x.EValue != 220 || x.Minutes != 2.5 ||
			x.Alone != (incidents.Arm{Windows: 6, CPI: 3}) || x.Under != (incidents.Arm{Windows: 5, CPI: 1.5}) {
			t.Errorf("%s: %+v", pod, x)
		}
		if x.Witness == nil || x.Witness.Text() != "confirmed by db/Deployment/db, e-value 4.5" {
			t.Errorf("%s: witness %+v", pod, x.Witness)
		}
		if len(x.Coins) != 3 || !x.Coins[0].On || x.Coins[1].On || x.Coins[0].Offset != 2*time.Minute ||
			x.Coins[0].Length != time.Minute || x.Coins[2].P != 0.8 {
			t.Errorf("%s: %+v", pod, x.Coins)
		}
	}
	find(6, detect.OutcomeEvent, loop.Test{E: 0.1, Harm: 1})
	find(90, loop.TestEvent, loop.Test{Begun: true, E: 1})
	got := last["web-0"].Experiments
	if len(got) != 2 || got[0].Result != incidents.Innocent || got[1].Result != "" ||
		got[1].Witness != nil {
		t.Errorf("a test that begins anew: %+v", got)
	}
}
