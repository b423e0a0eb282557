package incidents

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What is selected and ranked of a list is what the database selects and ranks, but for the time of caps.
func TestAListIsAnsweredOfAsTheDatabase(t *testing.T) {
	ctx := context.Background()
	s, _ := running(t, Options{Now: func() time.Time { return noon.Add(24 * time.Hour) }})
	for n := range 40 {
		b := blamed{cpi: 1.2 + float64(n%7)/10, scores: map[string]float64{}}
		for k := range n % 4 {
			b.scores[[]string{"encode", "sort", "index"}[(n+k)%3]] = 0.35 + float64(n%5)/10
		}
		i := b.incident(noon.Add(time.Duration(n) * time.Minute))
		i.Victim = subject([]string{"web", "db"}[n%2])
		if n%3 == 0 {
			i.Outcome.Result = "success"
		}
		if n%5 == 0 {
			i.Verdict = Observe
		}
		s.Put(i)
	}
	flush(t, s)
	all, err := s.List(ctx, Filter{})
	if err != nil || len(all.Incidents) != 40 {
		t.Fatalf("%v, %+v", err, all)
	}
	for n, f := range []Filter{{}, {Victim: "web"}, {Victim: "default/db"}, {Antagonist: "sort"},
		{Victim: "web", Antagonist: "encode"}, {Since: noon.Add(10 * time.Minute), Until: noon.Add(20 * time.Minute)},
		{Verdict: Observe}, {Victim: "nobody"}} {
		want, err := s.List(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Incidents, f.Select(all.Incidents), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("filter %d: %s", n, d)
		}
		for _, by := range []string{"", ByIncidents, ByScore, ByExcess} {
			for _, group := range []string{GroupJob, GroupPod} {
				q := TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since, Until: f.Until, By: by,
					Group: group, Limit: 2}
				want, err := s.Top(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, q.Of(all.Incidents), cmpopts.EquateApprox(0, 1e-12)); d != "" {
					t.Errorf("%s of %d: %s", fmt.Sprint(by, group), n, d)
				}
			}
		}
	}
}
