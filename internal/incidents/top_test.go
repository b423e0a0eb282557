package incidents

import (
	"context"
	"testing"
	"time"
)

// blamed is an incident of a victim in which each of the antagonists has that score
// and was capped for that long.
type blamed struct {
	cpi    float64
	scores map[string]float64
	capped map[string]time.Duration
}

func (b *blamed) incident(at time.Time) Incident {
	i := Incident{At: at, Victim: subject("web"), CPI: b.cpi, Threshold: 1.5, Spec: Spec{Mean: 1, Band: -1},
		Verdict: Cap}
	for job, score := range b.scores {
		who := subject(job)
		i.Suspects = append(i.Suspects, Suspect{Subject: who, Score: score})
		i.Antagonists = append(i.Antagonists, who)
		if term := b.capped[job]; term > 0 {
			i.Actions = append(i.Actions, Action{Kind: Cap, Subject: who, Milli: 100, From: at, Until: at.Add(term),
				Ended: at.Add(term)})
		}
	}
	return i
}

// TestTopRanks is case A10 of CPI²: what hurt a job most in a window is ranked by count,
// then by mean score; each other order is by what it is called.
func TestTopRanks(t *testing.T) {
	s, _ := running(t, Options{Now: func() time.Time { return noon.Add(24 * time.Hour) }})
	const minute = time.Minute
	for n, b := range []blamed{
		{cpi: 2, scores: map[string]float64{"often": 0.4}, capped: map[string]time.Duration{"often": minute}},
		{cpi: 2, scores: map[string]float64{"often": 0.5}},
		{cpi: 2, scores: map[string]float64{"often": 0.6}},
		{cpi: 2, scores: map[string]float64{"sure": 0.9}, capped: map[string]time.Duration{"sure": minute}},
		{cpi: 2, scores: map[string]float64{"sure": 0.7}},
		{cpi: 2, scores: map[string]float64{"long": 0.7}, capped: map[string]time.Duration{"long": 5 * minute}},
		{cpi: 2, scores: map[string]float64{"long": 0.5}, capped: map[string]time.Duration{"long": 5 * minute}},
		{cpi: 9, scores: map[string]float64{"hard": 0.55}, capped: map[string]time.Duration{"hard": 2 * minute}},
	} {
		s.Put(b.incident(noon.Add(time.Duration(n) * time.Minute)))
	}
	// Outside of the window it does not count.
	early := blamed{cpi: 99, scores: map[string]float64{"long": 1}, capped: map[string]time.Duration{"long": time.Hour}}
	s.Put(early.incident(noon.Add(-time.Hour)))
	flush(t, s)
	for by, want := range map[string][]string{
		"":          {"often", "sure", "long", "hard"}, // sure before long by its mean score, though capped for less
		ByIncidents: {"often", "sure", "long", "hard"},
		ByScore:     {"sure", "long", "hard", "often"},
		ByCapped:    {"long", "hard", "often", "sure"}, // often before sure by its count
		ByExcess:    {"hard", "often", "sure", "long"},
	} {
		top, err := s.Top(context.Background(), TopQuery{Victim: "web", Since: noon, By: by})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range top.Ranks {
			got = append(got, r.Name[len("default/Deployment/"):])
		}
		if len(got) != len(want) {
			t.Fatalf("by %q: %v, want %v", by, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("by %q: %v, want %v; %+v", by, got, want, top.Ranks)
				break
			}
		}
	}
}

// A cap that two victims share counts once for its antagonist, and for each victim.
func TestASharedCapCountsOnce(t *testing.T) {
	s, _ := running(t, Options{Now: func() time.Time { return noon.Add(time.Hour) }})
	b := blamed{cpi: 2, scores: map[string]float64{"batch": 0.5},
		capped: map[string]time.Duration{"batch": 5 * time.Minute}}
	first, second := b.incident(noon), b.incident(noon)
	second.At, second.Victim = noon.Add(time.Minute), subject("db")
	later := b.incident(noon.Add(20 * time.Minute))
	for _, i := range []Incident{first, second, later} {
		s.Put(i)
	}
	flush(t, s)
	for _, c := range []struct {
		q    TopQuery
		want map[string]float64
	}{
		{TopQuery{}, map[string]float64{"batch": 600}},
		{TopQuery{Victim: "db"}, map[string]float64{"batch": 300}},
		{TopQuery{Antagonist: "batch"}, map[string]float64{"web": 600, "db": 300}},
	} {
		top, err := s.Top(context.Background(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range top.Ranks {
			if want := c.want[r.Name[len("default/Deployment/"):]]; r.CappedSeconds != want {
				t.Errorf("%+v: %s was capped for %v s, want %v", c.q, r.Name, r.CappedSeconds, want)
			}
		}
		if len(top.Ranks) != len(c.want) {
			t.Errorf("%+v: %+v", c.q, top.Ranks)
		}
	}
}
