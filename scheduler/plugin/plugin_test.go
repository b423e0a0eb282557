package plugin

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/scheduler/placement"
)

// Scenario 16: pods without a wish are passed over, and all have one signature, so that they
// are scheduled as with any scheduler.
func TestPodsWithoutAWish(t *testing.T) {
	p := newPlugin(Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding}, nil)
	w := &world{}
	for _, c := range []struct {
		pod    *v1.Pod
		passed bool
	}{
		{w.object("plain", "", "2"), true},
		{w.object("shares", "LS", "2"), true},
		{w.object("batch", "BE", "2"), true},
		{w.object("owner", "LSR", "2"), false},
		{w.object("bound", "", "2", annotated(policy.AnnNUMASpec, `{"numaTopologyPolicy":"SingleNUMANode"}`)), false},
	} {
		state := framework.NewCycleState()
		_, status := p.PreFilter(context.Background(), state, c.pod, nil)
		if got := status.Code() == fwk.Skip; got != c.passed {
			t.Errorf("%s: passed over: %v", c.pod.Name, got)
		}
		if _, status := p.SignPod(context.Background(), c.pod); status.IsSuccess() != c.passed {
			t.Errorf("%s: signed: %v", c.pod.Name, status.IsSuccess())
		}
	}
}

// TestScoresKeepTheOrder: scores rank nodes as costs do, whatever the numbers.
func TestScoresKeepTheOrder(t *testing.T) {
	p := newPlugin(Args{}, nil)
	costs := []placement.Cost{{Nodes: 1, L3s: 1}, {Nodes: 1, L3s: 1, Leftover: 9}, {Nodes: 1, L3s: 2},
		{Nodes: 1, L3s: 2, Broken: 1}, {Nodes: 2, L3s: 2, Free: 3}, {Nodes: 2, L3s: 2, Free: 4000}}
	var scores fwk.NodeScoreList
	for i, c := range costs {
		if i > 0 && (c.Compare(costs[i-1]) <= 0 || packed(c) <= packed(costs[i-1])) {
			t.Errorf("%+v is not after %+v", c, costs[i-1])
		}
		scores = append(scores, fwk.NodeScore{Score: packed(c)})
	}
	scores = append(scores, fwk.NodeScore{Score: unknownCost})
	if s := p.NormalizeScore(context.Background(), nil, nil, scores); !s.IsSuccess() {
		t.Fatal(s)
	}
	for i := 1; i < len(scores); i++ {
		if scores[i].Score >= scores[i-1].Score {
			t.Errorf("scores are %v", scores)
		}
	}
	if scores[0].Score != fwk.MaxScore || scores[len(scores)-1].Score != 0 {
		t.Errorf("scores are %v", scores)
	}
}
