package plugin

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
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

// noQueue is a scheduler's that has no pods to try again.
type noQueue struct{ fwk.Handle }

func (noQueue) Activate(klog.Logger, map[string]*v1.Pod) {}

// TestNominated: while a node takes leave of a pod that was preempted, nobody else gets what it had:
// what the nominated pod would get, and what is left beside that, are asked of one state of the node.
func TestNominated(t *testing.T) {
	p := newPlugin(Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding}, noQueue{})
	topo, err := small.Build()
	if err != nil {
		t.Fatal(err)
	}
	rules, d := trusting(), ledger.NewDecoder()
	publish := func(generation uint64, holdings ...policy.Holding) {
		t.Helper()
		text, err := ledger.Encode(topo, &policy.Ledger{Rules: &rules, Holdings: holdings}, generation)
		if err != nil {
			t.Fatal(err)
		}
		node, err := d.Decode(text)
		if err == nil {
			err = p.cluster.Publish("a", node)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	victim := cpuset.Range(0, 9)
	publish(1, policy.Holding{UID: "victim", Class: policy.LSR, CPUs: victim.Pack(), Requested: 10})
	w := &world{}
	node := framework.NewNodeInfo()
	node.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	urgent, err := framework.NewPodInfo(w.object("urgent", "LSR", "10", priority(100)))
	if err != nil {
		t.Fatal(err)
	}
	cheeky := w.object("cheeky", "LSR", "8")
	filter := func(between func()) *fwk.Status {
		state := framework.NewCycleState()
		if _, s := p.PreFilter(t.Context(), state, cheeky, nil); !s.IsSuccess() {
			t.Fatal(s)
		}
		if s := p.AddPod(t.Context(), state, cheeky, urgent, node); !s.IsSuccess() {
			t.Fatal(s)
		}
		between()
		return p.Filter(t.Context(), state, cheeky, node)
	}
	if s := filter(func() { publish(2) }); s.IsSuccess() {
		t.Error("the ledger came in between, and the nominated pod's CPUs are given to another")
	}
	if s := filter(func() {}); s.IsSuccess() {
		t.Error("the nominated pod's CPUs are given to another")
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
