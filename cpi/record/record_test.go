package record

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/internal/incidents"
)

func who(id, job string) *cpi.Container {
	return &cpi.Container{ID: id, Namespace: "default", Pod: id, Name: "main", Job: "default/" + job + "/main",
		PodClass: "LS", Class: cpi.LS, Claims: "default/cpus-of-" + id}
}

// An episode is one incident, published at every step, with what came before and after.
func TestAnEpisodeIsOneIncident(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	var told []incidents.Incident
	r := New(Options{
		Node: "n", Put: func(i incidents.Incident) string { told = append(told, i); return i.ID },
		History: func(id string) []sample.Sample {
			return []sample.Sample{{End: start.Add(-2 * time.Minute), Usage: 1, CPI: 1},
				{End: start.Add(-time.Minute), Usage: 3, CPI: 2}}
		},
	})
	web, batch := who("web", "Deployment/web"), who("batch", "Job/batch")
	at := func(minutes float64) time.Time { return start.Add(time.Duration(minutes * float64(time.Minute))) }
	analysis := func(minutes float64) *loop.Finding {
		return &loop.Finding{
			Kind: detect.AnalysisEvent, At: at(minutes), Victim: web, CPI: 2.5, Threshold: 1.5, Verdict: detect.Cap,
			Why:         "because",
			Spec:        &detect.Spec{Mean: 1, StdDev: 0.1, Platform: "p", Samples: 600, Tasks: 5},
			Normal:      detect.Normal{Band: 2, CPI: 1.25, StdDev: 0.05, Samples: 200},
			Suspects:    []loop.Suspect{{Container: batch, Score: 0.9, Shares: "L3"}},
			Antagonists: []*cpi.Container{batch},
		}
	}
	window := func(minutes float64) *sampler.Window {
		o := func(id string, usage, ratio float64) sample.Result {
			return sample.Result{Container: &cpi.Container{ID: id},
				Sample: sample.Sample{End: at(minutes), Usage: usage, CPI: ratio}}
		}
		return &sampler.Window{Window: sample.Window{End: at(minutes), Containers: []sample.Result{o("web", 1, 1.1),
			o("batch", 0.01, 1), o("other", 5, 5)}}}
	}
	r.Find(analysis(0))
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoCap, At: at(0), Victim: web, Target: batch,
		Milli: 100, Until: at(5)})
	r.Look(window(1))
	r.Find(analysis(2))
	r.Find(&loop.Finding{Kind: detect.OutcomeEvent, At: at(5), Victim: web, Target: batch,
		Outcome: &detect.Outcome{Kind: detect.DoCap, Result: detect.Success, Before: 1.6, After: 0.8, Samples: 4}})
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoUncap, At: at(5), Victim: web, Target: batch,
		Why: "its time is over"})
	r.Look(window(14))
	if len(r.open) != 1 {
		t.Fatal("it was over too early")
	}
	r.Look(window(16))
	if len(r.open) != 0 {
		t.Fatal("it is never over")
	}
	for _, i := range told {
		if i.ID != told[0].ID {
			t.Fatalf("two incidents: %s and %s", told[0].ID, i.ID)
		}
	}
	last := told[len(told)-1]
	if len(last.Actions) != 1 || last.Actions[0].Ended != at(5) || last.Actions[0].EndedWhy != "its time is over" ||
		last.Actions[0].Milli != 100 {
		t.Errorf("actions: %+v", last.Actions)
	}
	if o := last.Outcome; o.Result != "success" || o.Before < 2.39 || o.Before > 2.41 || o.After < 1.19 ||
		o.After > 1.21 {
		t.Errorf("outcome in multiples of the threshold: %+v", o)
	}
	if last.Victim.Job != "Deployment/web/main" || last.Verdict != incidents.Cap || last.Spec.Tasks != 5 ||
		len(last.Antagonists) != 1 {
		t.Errorf("incident: %+v", last)
	}
	if want := (incidents.Spec{Mean: 1.25, StdDev: 0.05, Platform: "p", Band: 2, Samples: 200,
		Tasks: 5}); last.Spec != want {
		t.Errorf("what is normal: %+v, want what the threshold is measured from: %+v", last.Spec, want)
	}
	if last.Victim.Claims != "default/cpus-of-web" || last.Suspects[0].Claims != "default/cpus-of-batch" {
		t.Errorf("claims of the victim %q, of the suspect %q", last.Victim.Claims, last.Suspects[0].Claims)
	}
	if last.Suspects[0].Shares != "L3" {
		t.Errorf("the suspect shares %q", last.Suspects[0].Shares)
	}
	if len(last.Series) != 5 || last.Series[0].Offset != -2*time.Minute || last.Series[4].Offset != 16*time.Minute {
		t.Errorf("the victim's series: %v", last.Series)
	}
	if s := last.Suspects[0].Series; len(s) != 5 || s[1].Value != 3 || s[4].Value != 0.01 {
		t.Errorf("the suspect's series: %v", s)
	}
	t.Log("the next episode is another incident, and what belongs to none is left")
	r.Find(&loop.Finding{Kind: detect.OutcomeEvent, At: at(20), Victim: web, Outcome: &detect.Outcome{}})
	r.Find(analysis(30))
	if n := len(told); told[n-1].ID == told[0].ID {
		t.Error("the second episode has the first one's name")
	}
}

// A victim is disturbed in the window in which its incident begins, and in each that is an anomaly while that is open.
func TestForHowLongAVictimIsDisturbed(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	var last incidents.Incident
	r := New(Options{Node: "n", Interval: 90 * time.Second, Put: func(i incidents.Incident) string {
		last = i
		return i.ID
	}, History: func(string) []sample.Sample { return nil }})
	web, db := who("web", "Deployment/web"), who("db", "Deployment/db")
	find := func(minutes int, victim *cpi.Container, kinds ...detect.Kind) {
		for _, kind := range kinds {
			r.Find(&loop.Finding{Kind: kind, At: start.Add(time.Duration(minutes) * time.Minute), Victim: victim,
				CPI: 2, Threshold: 1})
		}
	}
	find(0, web, detect.OutlierEvent, detect.AnomalyEvent, detect.AnalysisEvent)
	if last.DisturbedSeconds != 90 {
		t.Errorf("at first %v s", last.DisturbedSeconds)
	}
	find(1, web, detect.OutlierEvent)
	find(2, web, detect.OutlierEvent, detect.AnomalyEvent) // its analysis is not due yet
	find(2, db, detect.OutlierEvent, detect.AnomalyEvent)
	find(3, web, detect.OutlierEvent, detect.AnomalyEvent, detect.AnalysisEvent)
	if last.DisturbedSeconds != 270 {
		t.Errorf("after three windows %v s", last.DisturbedSeconds)
	}
	r.Look(&sampler.Window{Window: sample.Window{End: start.Add(time.Hour)}})
	find(120, web, detect.OutlierEvent, detect.AnomalyEvent, detect.AnalysisEvent)
	if last.DisturbedSeconds != 90 {
		t.Errorf("the next incident begins with %v s", last.DisturbedSeconds)
	}
}

// Two victims of one antagonist share one cap (case A9 of CPI²): both incidents show it
// and its end, and neither a victim that is not protected nor one that blames another.
func TestVictimsShareACap(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	told := map[string]incidents.Incident{}
	r := New(Options{Node: "n", Put: func(i incidents.Incident) string {
		told[i.Victim.Pod] = i
		return i.ID
	}, History: func(string) []sample.Sample { return nil }})
	batch, other, third := who("batch", "Job/batch"), who("other", "Job/other"), who("third", "Job/third")
	third.PodClass, third.Class = "BE", cpi.BE
	analysed := func(minutes int, victim, antagonist *cpi.Container, kind detect.VerdictKind) {
		r.Find(&loop.Finding{
			Kind: detect.AnalysisEvent, At: at(minutes), Victim: victim, CPI: 2, Threshold: 1, Verdict: kind,
			Suspects:    []loop.Suspect{{Container: batch, Score: 0.5}, {Container: other, Score: 0.4}},
			Antagonists: []*cpi.Container{antagonist},
		})
	}
	web, db, cache := who("web", "Deployment/web"), who("db", "Deployment/db"), who("cache", "Deployment/cache")
	analysed(0, web, batch, detect.Cap)
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoCap, At: at(0), Victim: web, Target: batch,
		Milli: 100, Until: at(5)})
	for range 2 { // reported twice it is one
		analysed(1, db, batch, detect.Observe)
	}
	analysed(1, cache, other, detect.Observe)
	analysed(1, third, batch, detect.Observe)
	if got := told["db"].Actions; len(got) != 1 || got[0] != told["web"].Actions[0] {
		t.Errorf("while the cap is in force the second victim's actions are %+v", got)
	}
	analysed(2, db, other, detect.Observe) // it takes a while to help
	r.Find(&loop.Finding{Kind: detect.OutcomeEvent, At: at(5), Victim: db, Target: batch,
		Outcome: &detect.Outcome{Kind: detect.DoCap, Result: detect.Success}})
	// The first victim ended meanwhile: the command names the present victim.
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoUncap, At: at(4), Victim: db, Target: batch,
		Why: "its time is over"})
	want := incidents.Action{Kind: incidents.Cap, Subject: subject(batch), Milli: 100, From: at(0), Until: at(5),
		Ended: at(4), EndedWhy: "its time is over"}
	for _, pod := range []string{"web", "db"} {
		i := told[pod]
		if len(i.Actions) != 1 || i.Actions[0] != want || !slices.ContainsFunc(i.Antagonists, want.Subject.Same) {
			t.Errorf("%s: actions %+v of antagonists %v; want %+v", pod, i.Actions, i.Antagonists, want)
		}
	}
	analysed(6, db, batch, detect.Observe)
	if n := len(told["db"].Actions) + len(told["cache"].Actions) + len(told["third"].Actions); n != 1 {
		t.Errorf("%d actions, want none of a cap that ended, for an unprotected victim and for one that another hurts",
			n-1)
	}
}

// While a cap is being verified its victim is analysed again: the incident goes on to
// report the cap.
func TestACapStaysTheVerdict(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	var last incidents.Incident
	r := New(Options{Node: "n", Put: func(i incidents.Incident) string {
		last = i
		return i.ID
	}, History: func(string) []sample.Sample { return nil }})
	web, batch, other := who("web", "Deployment/web"), who("batch", "Job/batch"), who("other", "Job/other")
	analysed := func(minute int, kind detect.VerdictKind, score float64, why string, antagonists ...*cpi.Container) {
		r.Find(&loop.Finding{Kind: detect.AnalysisEvent, At: start.Add(time.Duration(minute) * time.Minute),
			Victim: web, CPI: 2 + score, Threshold: 1, Verdict: kind, Why: why,
			Suspects:    []loop.Suspect{{Container: batch, Score: score}, {Container: other, Score: 0.1}},
			Antagonists: antagonists})
	}
	capped := func(minute int, target *cpi.Container) {
		at := start.Add(time.Duration(minute) * time.Minute)
		r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoCap, At: at, Victim: web, Target: target,
			Milli: 100, Until: at.Add(5 * time.Minute)})
	}
	analysed(0, detect.Observe, 0.3, "nobody is sure")
	analysed(1, detect.Cap, 0.9, "batch scores 0.9", batch)
	capped(1, batch)
	analysed(2, detect.Observe, 0.5, "cap of batch is being verified", batch)
	analysed(3, detect.None, 0.2, "nobody is sure")
	if last.Verdict != incidents.Cap || last.Why != "batch scores 0.9" || last.CPI != 2.9 ||
		last.Suspects[0].Score != 0.9 || len(last.Antagonists) != 1 {
		t.Errorf("the incident tells of %s for %q, CPI %v, %+v", last.Verdict, last.Why, last.CPI, last.Suspects)
	}
	at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoMove, At: at(4), Victim: web, Target: other,
		Off: "0-7", Until: at(9)})
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoRestore, At: at(6), Target: other,
		Why: "it did not help"})
	if want := (incidents.Action{Kind: incidents.Move, Subject: subject(other), Off: "0-7", From: at(4), Until: at(9),
		Ended: at(6), EndedWhy: "it did not help"}); len(last.Actions) != 2 || last.Actions[1] != want {
		t.Errorf("a move off some CPUs is recorded as %+v", last.Actions)
	}
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoIdle, At: at(6), Victim: web, Target: other,
		Until: at(9)})
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoWake, At: at(7), Target: other,
		Why: "nor did that"})
	if want := (incidents.Action{Kind: incidents.Idle, Subject: subject(other), From: at(6), Until: at(9), Ended: at(7),
		EndedWhy: "nor did that"}); len(last.Actions) != 3 || last.Actions[2] != want {
		t.Errorf("a time on idle CPUs only is recorded as %+v", last.Actions)
	}
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoNarrow, At: at(7), Victim: web, Target: other,
		Until: at(9)})
	r.Find(&loop.Finding{Kind: detect.CommandEvent, Command: detect.DoWiden, At: at(8), Target: other, Why: "in vain"})
	if want := (incidents.Action{Kind: incidents.Narrow, Subject: subject(other), From: at(7), Until: at(9),
		Ended: at(8), EndedWhy: "in vain"}); len(last.Actions) != 4 || last.Actions[3] != want {
		t.Errorf("a time with the least memory bandwidth is recorded as %+v", last.Actions)
	}
	analysed(7, detect.Cap, 0.8, "other scores 0.8", other)
	if !slices.ContainsFunc(last.Antagonists, subject(batch).Same) {
		t.Errorf("who was capped is no antagonist any more: %+v", last.Antagonists)
	}
	if last.Why != "other scores 0.8" {
		t.Errorf("of a second cap the incident says %q", last.Why)
	}
}

// A cap that was refused is no action, and the incident says why there is none.
func TestRefusalsAreRecorded(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	var last incidents.Incident
	r := New(Options{Node: "n", Put: func(i incidents.Incident) string {
		last = i
		return i.ID
	}, History: func(string) []sample.Sample { return nil }})
	web, batch := who("web", "Deployment/web"), who("batch", "Job/batch")
	r.Find(&loop.Finding{Kind: detect.AnalysisEvent, At: start, Victim: web, Verdict: detect.Cap,
		Why: "batch scores 0.9", Antagonists: []*cpi.Container{batch}})
	r.Find(&loop.Finding{Kind: detect.OutcomeEvent, At: start, Victim: web, Target: batch,
		Outcome: &detect.Outcome{Kind: detect.DoCap, Result: detect.Refused, Why: "exempt"}})
	if last.Outcome.Result != "refused" || len(last.Actions) != 0 ||
		last.Why != "batch scores 0.9; cap of default/batch/main was not carried out: exempt" {
		t.Errorf("incident %+v", last)
	}
}

// Thousands of victims at once, and a clock that stands still, do not make the recorder
// grow; the incident to which nothing has happened for longest is ended, and kept.
func TestOpenIncidentsAreBounded(t *testing.T) {
	told := map[string]incidents.Incident{}
	r := New(Options{
		Node: "n", Put: func(i incidents.Incident) string {
			told[i.ID] = i
			return i.ID
		}, History: func(string) []sample.Sample { return nil },
	})
	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	find := func(id string, minutes int) {
		r.Find(&loop.Finding{Kind: detect.AnalysisEvent, At: at.Add(time.Duration(minutes) * time.Minute),
			Victim: who(id, "Deployment/web"), CPI: 2, Threshold: 1})
	}
	find("first", -2)
	find("second", -1)
	r.Look(&sampler.Window{Window: sample.Window{End: at, Containers: []sample.Result{{
		Container: &cpi.Container{ID: "second"}, Sample: sample.Sample{End: at, CPI: 3}}}}})
	find("first", 0) // something has happened to it again
	for n := range 10 * maxOpen {
		find(fmt.Sprint("victim", n), 0)
		if n == maxOpen-2 && (r.open["first"] == nil || r.open["second"] != nil) {
			t.Errorf("with %d open, the first is %v and the second is %v", len(r.open), r.open["first"],
				r.open["second"])
		}
	}
	if len(r.open) != maxOpen || len(told) != 10*maxOpen+2 {
		t.Errorf("%d are open, %d were told", len(r.open), len(told))
	}
	for _, i := range told {
		if i.Victim.Pod == "second" && len(i.Series) != 1 {
			t.Errorf("what was drawn of the one that was ended is lost: %+v", i.Series)
		}
	}
}
