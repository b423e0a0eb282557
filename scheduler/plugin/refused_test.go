package plugin

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

// of makes a pod one of a workload's.
func of(workload string) podOption {
	yes := true
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: workload,
			UID: types.UID("uid-" + workload), Controller: &yes}}
	}
}

func (w *world) refusal(name string) (is v1.ConditionStatus, said string) {
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == ConditionRefused {
			return c.Status, c.Message
		}
	}
	return "", ""
}

// event waits for an Event of a reason.
func (w *world) event(reason string) string {
	w.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case said := <-w.events:
			if strings.Contains(said, reason) {
				return said
			}
		case <-deadline:
			w.t.Fatalf("no Event %s within %s", reason, patience)
		}
	}
}

func refusals(t *testing.T, ledger string) float64 {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(counters().WithLabelValues(ledger))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// behind lets a pod of ours go to node a by a ledger that lacks one that another scheduler sent
// there without telling anybody: the node refuses ours.
func behind(t *testing.T, o options) *world {
	w := newWorld(t, o)
	w.node("a", 0, &small, trusting())
	w.until("the ledger is there", func() bool { return w.plugin.cluster.Generation("a") != 0 })
	empty := w.plugin.cluster.Generation("a")
	w.create("witness", "LSR", "2", of("witness"))
	w.lands("witness", "a")
	// Or the ledger that has the witness would be written later, and have the thief, too.
	w.until("the ledger has the witness", func() bool { return w.plugin.cluster.Generation("a") != empty })
	w.mu.Lock()
	w.hold = true
	w.mu.Unlock()
	w.steal("a", 8)
	w.create("first", "LSR", "8", of("shop"))
	w.until("the node refuses it", func() bool { _, refused := w.counts(); return refused == 1 })
	w.mu.Lock()
	w.hold = false
	w.mu.Unlock()
	return w
}

// steal gives CPUs of a node to a pod that the API server does not know.
func (w *world) steal(node string, cpus int64) {
	w.t.Helper()
	r := policy.Resources{RequestMilli: cpus * 1000, LimitMilli: cpus * 1000}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.nodes[node].Step(time.Unix(int64(w.n), 0), policy.PodRun{Pod: policy.Pod{UID: "thief",
		Sandbox: "thief", Namespace: "default", Name: "thief", QoS: policy.Guaranteed, Resources: &r,
		Labels: map[string]string{policy.LabelClass: "LSR"}}}); err != nil {
		w.t.Fatal(err)
	}
}

// TestARefusalReachesTheAPI: a pod that its node refuses has a condition and an Event in the
// node's words and is counted; such a pod is not sent there again before the node publishes
// something else.
func TestARefusalReachesTheAPI(t *testing.T) {
	before := refusals(t, "behind")
	w := behind(t, options{})
	w.node("b", 0, &small, trusting())
	w.publish("a")
	w.until("the pod says so", func() bool {
		is, said := w.refusal("first")
		return is == v1.ConditionTrue && strings.HasPrefix(said, "node a: ") && strings.Contains(said, "CPUs")
	})
	if said := w.event("RefusedByNode"); !strings.Contains(said, "node a: ") {
		t.Errorf("the Event says %q", said)
	}
	w.until("it is counted", func() bool { return refusals(t, "behind") == before+1 })

	// As far as its ledger goes there is room for two more, and the node says no.
	w.mu.Lock()
	generation := w.plugin.cluster.Generation("a")
	w.mu.Unlock()
	for _, c := range []struct{ name, workload, node string }{{"second", "shop", "b"}, {"stranger", "other", "a"}} {
		w.create(c.name, "LSR", "2", of(c.workload))
		w.lands(c.name, c.node)
		if now := w.plugin.cluster.Generation("a"); c.node == "b" && now != generation {
			t.Fatalf("generation %d follows %d; the test shows nothing", now, generation)
		}
	}
	w.until("the stranger is there", func() bool { return w.plugin.cluster.Generation("a") != generation })
	if off := w.plugin.refused.keepOff(w.object("third", "LSR", "2", of("shop"))); len(off) != 1 ||
		off["a"].generation == w.plugin.cluster.Generation("a") {
		t.Errorf("kept off are %v", off)
	}
	w.mu.Lock()
	w.nodes["a"].refused = nil // kubelet asked again, and the node gave
	w.mu.Unlock()
	w.publish("a")
	w.until("the pod says that it is over", func() bool { is, _ := w.refusal("first"); return is == v1.ConditionFalse })
}

// TestARefusedPodIsReplaced: where that is wished, a refused pod that a controller makes anew is
// deleted; one that nobody makes anew stays.
func TestARefusedPodIsReplaced(t *testing.T) {
	w := behind(t, options{args: Args{RefusedPods: RefusedDelete}})
	w.publish("a")
	w.until("the pod is deleted", func() bool { return !w.exists("first") })
	if !w.exists("witness") {
		t.Error("a pod that nobody refused is deleted, too")
	}
}

// TestAPodWithoutAController is left where it is.
func TestAPodWithoutAController(t *testing.T) {
	w := newWorld(t, options{args: Args{RefusedPods: RefusedDelete}})
	w.node("a", 0, &small, trusting())
	w.create("ours", "LSR", "2")
	w.lands("ours", "a")
	w.bindByHand("late", "a", `{"cpuset":"0-1"}`)
	w.until("it says so", func() bool { is, _ := w.refusal("late"); return is == v1.ConditionTrue })
	if !w.exists("late") {
		t.Error("it is deleted")
	}
}

// TestTheGenerationIsTold: a pod says by which ledger its place was chosen, also on nodes that
// are not told its CPUs.
func TestTheGenerationIsTold(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, policy.Config{})
	w.create("pod", "LSR", "2")
	w.lands("pod", "a")
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, "pod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Annotations[ledger.AnnGeneration] == "" || w.told("pod") != "" {
		t.Errorf("annotations are %v", pod.Annotations)
	}
}

// TestSilence: a node whose daemon gives no sign is as one without a daemon after the bound, and
// not before; a sign makes it one with a daemon again.
func TestSilence(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	p := newPlugin(Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding}, nil)
	p.nodes.now = func() time.Time { return now }
	topo, err := small.Build()
	if err != nil {
		t.Fatal(err)
	}
	say := func(generation uint64, alive time.Time) {
		text, err := ledger.Encode(topo, &policy.Ledger{Rules: &policy.Config{}}, generation)
		if err != nil {
			t.Fatal(err)
		}
		if said := ledger.EncodeAlive(alive); said != "" {
			text[ledger.AnnAlive] = said
		}
		p.nodes.take("a", text)
		p.nodes.distrust()
	}
	pass := func(d time.Duration, known bool) {
		t.Helper()
		now = now.Add(d)
		p.nodes.distrust()
		if got := p.cluster.Node("a").Known(); got != known {
			t.Fatalf("known: %v", got)
		}
	}
	say(1, now)
	pass(ledger.StaleAfter, true)
	say(1, now)
	pass(ledger.StaleAfter, true)
	say(2, now) // anything that it says is a sign
	pass(ledger.StaleAfter, true)
	pass(time.Second, false)
	if why := p.cluster.Node("a").Why(); why == nil || !strings.Contains(why.Error(), "no sign for 20m0s") {
		t.Errorf("the reason is %v", why)
	}
	say(2, now.Add(-time.Hour)) // a clock that is behind is a sign all the same
	pass(ledger.StaleAfter, true)
	p.nodes.forget("a")
	p.cluster.Gone("a")
	say(3, now.Add(-2*ledger.StaleAfter)) // a scheduler that starts finds a dead one
	pass(0, false)
	p.nodes.forget("a")
	p.cluster.Gone("a")
	say(4, time.Time{}) // a daemon of before
	pass(24*time.Hour, true)
}
