package daemon

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/ledger"
)

// TestProven: schedulers are told of jobs of which one was capped for the other's sake, where that
// helped, by the pods' owners; and no longer than a day and an hour.
func TestProven(t *testing.T) {
	now := time.Date(2026, 11, 25, 1, 0, 0, 0, time.UTC)
	victim, antagonist := &cpi.Container{Job: "shop/Deployment/web/main"}, &cpi.Container{Job: "batch/Job/count/run"}
	outcome := func(kind detect.CommandKind, result detect.Result) *loop.Finding {
		return &loop.Finding{Kind: detect.OutcomeEvent, Victim: victim, Target: antagonist,
			Outcome: &detect.Outcome{Kind: kind, Result: result}}
	}
	p := newProven()
	for _, f := range []*loop.Finding{outcome(detect.DoCap, detect.Failure), outcome(detect.DoCap, detect.Partial),
		outcome(detect.DoMove, detect.Success), {Kind: detect.AnalysisEvent, Victim: victim, Target: antagonist}} {
		p.find(f, now)
	}
	if list := p.pairs(now); len(list) > 0 {
		t.Fatalf("nothing was proven, and %+v are told", list)
	}
	p.find(outcome(detect.DoCap, detect.Success), now)
	want := ledger.Pair{Victim: "shop/Deployment/web", Antagonist: "batch/Job/count", Until: ledger.Holds(now)}
	if list := p.pairs(now); len(list) != 1 || list[0] != want {
		t.Fatalf("%+v are told, want %+v", list, want)
	}
	if list := p.pairs(now.Add(23 * time.Hour)); len(list) != 1 {
		t.Error("after 23 hours it is forgotten")
	}
	if list := p.pairs(now.Add(25 * time.Hour)); len(list) > 0 {
		t.Errorf("after 25 hours %+v are told", list)
	}
}
