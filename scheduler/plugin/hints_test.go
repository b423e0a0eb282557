package plugin

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

// TestAWishThatIsMended: a pod that no node could understand, or that asked for too much, is tried again when it
// asks for something else, and not only when it is its turn after minutes.
func TestAWishThatIsMended(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, trusting())
	w.create("bad", "LSR", "2", annotated(policy.AnnSMT, "isolated"))
	w.says("bad", "must be none, isolate, align or roundup")
	w.annotate("bad", policy.AnnSMT, "isolate")
	w.lands("bad", "a")
	w.create("tight", "LSR", "12", annotated(policy.AnnSMT, "isolate")) // of 12 CPUs that are left
	w.says("tight", "12 CPUs")
	w.annotate("tight", policy.AnnSMT, "wrong")
	w.says("tight", "must be none, isolate, align or roundup")
	w.check()
}

// annotate changes what a pod asks for.
func (w *world) annotate(name, key, value string) {
	w.t.Helper()
	pods := w.client.CoreV1().Pods("default")
	w.until(name+" is changed", func() bool { // unless the scheduler writes its status just then
		pod, err := pods.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		pod.Annotations[key] = value
		if w.memory != nil {
			pod.ResourceVersion += "1" // the API server's part: kube-scheduler takes equal ones for no change
		}
		_, err = pods.Update(w.ctx, pod, metav1.UpdateOptions{})
		return err == nil
	})
}

// TestHints: what cannot have made a place is no reason to try a pod again.
func TestHints(t *testing.T) {
	w := &world{}
	p := newPlugin(Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding}, nil)
	p.nodes.take("known", ledgers(t)[0])
	p.cluster.Broken("broken", ledger.ErrNone)
	ignoring := newPlugin(Args{AbsentNodes: AbsentIgnore, Annotate: TellBinding}, nil)
	node := func(name string) *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	owner, plain := w.object("owner", "LSR", "2"), w.object("plain", "", "2")
	labelled := w.object("owner", "LSR", "2", func(p *v1.Pod) { p.Status.Message = "pending" })
	none := w.object("none", "", "2", func(p *v1.Pod) { p.Spec.Containers[0].Resources = v1.ResourceRequirements{} })
	resized := func(cpu string) *v1.Pod {
		return w.object("plain", "", "2", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
		})
	}
	for name, c := range map[string]struct {
		hint        fwk.QueueingHintFn
		pod         *v1.Pod
		before, now any
		want        fwk.QueueingHint
	}{
		"it asks for more":                 {p.asksAnew, owner, owner, w.object("owner", "LSR", "4"), fwk.Queue},
		"it asks for nothing any more":     {p.asksAnew, owner, owner, plain, fwk.Queue},
		"its status is another":            {p.asksAnew, owner, owner, labelled, fwk.QueueSkip},
		"it is no pod":                     {p.asksAnew, owner, nil, node("known"), fwk.Queue},
		"a pod ends":                       {p.givesBack, owner, plain, nil, fwk.Queue},
		"a pod without requests ends":      {p.givesBack, owner, none, nil, fwk.QueueSkip},
		"a pod requests less":              {p.givesBack, owner, plain, resized("1"), fwk.Queue},
		"a pod requests less memory":       {p.givesBack, owner, plain, resized("2"), fwk.QueueSkip},
		"something is gone":                {p.givesBack, owner, nil, nil, fwk.Queue},
		"a node with a ledger":             {p.mayTake, owner, nil, node("known"), fwk.Queue},
		"a node whose ledger is to come":   {p.mayTake, owner, nil, node("new"), fwk.QueueSkip},
		"a node without one":               {p.mayTake, owner, nil, node("broken"), fwk.QueueSkip},
		"the same, where that is ignored":  {ignoring.mayTake, owner, nil, node("new"), fwk.Queue},
		"a node, for a pod without a wish": {p.mayTake, plain, nil, node("new"), fwk.Queue},
	} {
		if got, err := c.hint(klog.Background(), c.pod, c.before, c.now); err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}
