package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/quietcore/quietcore/policy"
)

// autoscaler does with pods that no scheduler has a node for what cluster-autoscaler does: it runs
// kube-scheduler's PreFilter and Filter on a copy of the cluster, first on the nodes that there are, and then on
// one more of its group. That one is on paper only: no object of the API server has its name, and no
// daemon has published anything of it.
type autoscaler struct {
	w        *world
	group    func(name string) *v1.Node // the template
	runs     framework.Framework
	snapshot *paper
	plugin   *Plugin // nil: cluster-autoscaler as it is released, which has the plugins of kube-scheduler only
}

// paper is the copy. It is another one for each question.
type paper struct{ fwk.SharedLister }

// configured is a handle of a framework that knows its API server, as the process does that it is part of.
type configured struct {
	fwk.Handle
	config *rest.Config
}

func (c configured) KubeConfig() *rest.Config { return c.config }

// newAutoscaler makes one whose framework has what cluster-autoscaler gives its own: followed objects and the
// copy, and nothing that it could write with. args: it is built with the plugin, too.
func newAutoscaler(w *world, args *Args, group func(name string) *v1.Node) *autoscaler {
	w.t.Helper()
	metrics.InitMetrics()
	a := &autoscaler{w: w, group: group, snapshot: &paper{}}
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	cfg := schedulerapi.KubeSchedulerConfiguration{}
	if err := scheme.Scheme.Convert(&versioned, &cfg, nil); err != nil {
		w.t.Fatal(err)
	}
	registry, m := plugins.NewInTreeRegistry(), &cfg.Profiles[0].Plugins.MultiPoint
	m.Enabled = slices.DeleteFunc(m.Enabled, func(p schedulerapi.Plugin) bool {
		return p.Name == names.DynamicResources // as cluster-autoscaler has it where it simulates no devices
	})
	if args != nil {
		m.Enabled = append(m.Enabled, schedulerapi.Plugin{Name: Name})
		if err := registry.Register(Name, a.built(*args)); err != nil {
			w.t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(w.client, 0)
	var err error
	a.runs, err = frameworkruntime.NewFramework(w.ctx, registry, &cfg.Profiles[0],
		frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithSnapshotSharedLister(a.snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(
			factory.Storage().V1().CSINodes().Lister())))
	if err != nil {
		w.t.Fatal(err)
	}
	factory.Start(w.ctx.Done())
	factory.WaitForCacheSync(w.ctx.Done())
	return a
}

// built makes the plugin for it.
func (a *autoscaler) built(args Args) frameworkruntime.PluginFactory {
	return func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		if a.w.server == nil {
			a.plugin = newPlugin(args, h)
			a.plugin.simulates = true
			return a.plugin, a.plugin.followPods()
		}
		text, err := json.Marshal(args)
		if err != nil {
			return nil, err
		}
		p, err := New(ctx, &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON},
			configured{h, a.w.server.theirs})
		a.plugin, _ = p.(*Plugin)
		return p, err
	}
}

// knows waits until its plugin has heard of all that the nodes publish.
func (a *autoscaler) knows() {
	a.w.t.Helper()
	if a.plugin == nil {
		return
	}
	a.w.mu.Lock()
	var daemons []string
	for name, m := range a.w.nodes {
		if m.Machine != nil {
			daemons = append(daemons, name)
		}
	}
	a.w.mu.Unlock()
	for _, name := range daemons {
		if a.w.server == nil {
			a.plugin.nodes.take(name, a.w.annotations(name))
		}
		a.w.until("the autoscaler knows "+name, func() bool {
			return a.plugin.cluster.Generation(name) == a.w.plugin.cluster.Generation(name)
		})
	}
}

// fits is a question about one node of the copy.
func (a *autoscaler) fits(pod *v1.Pod, node string, nodes []*v1.Node, pods []*v1.Pod) error {
	a.w.t.Helper()
	a.snapshot.SharedLister = internalcache.NewSnapshot(pods, nodes)
	defer func() { a.snapshot.SharedLister = nil }()
	info, err := a.snapshot.NodeInfos().Get(node)
	if err != nil {
		a.w.t.Fatal(err)
	}
	state := framework.NewCycleState()
	result, status, _ := a.runs.RunPreFilterPlugins(a.w.ctx, state, pod)
	if !status.IsSuccess() {
		return status.AsError()
	}
	if !result.AllNodes() && !result.NodeNames.Has(node) {
		return fmt.Errorf("PreFilter leaves %v", sets.List(result.NodeNames))
	}
	return a.runs.RunFilterPlugins(a.w.ctx, state, pod, info).AsError()
}

// round looks at all pods whose scheduler has said that no node will do, and says how many nodes they need, and of
// those that one more node is no help to, why.
func (a *autoscaler) round() (needed int, helpless map[string]string) {
	a.w.t.Helper()
	a.knows()
	nodes, pods, pending := a.cluster()
	helpless = map[string]string{}
next:
	for _, pod := range pending {
		on := pod.DeepCopy()
		for _, n := range nodes {
			if a.fits(pod, n.Name, nodes, pods) == nil {
				on.Spec.NodeName = n.Name
				pods = append(pods, on)
				continue next
			}
		}
		name := fmt.Sprintf("template-node-for-group-%d", needed)
		more := a.group(name)
		more.UID, more.Labels["cluster-autoscaler.kubernetes.io/template-node"] = types.UID(name), "true"
		if err := a.fits(pod, name, append(slices.Clone(nodes), more), pods); err != nil {
			helpless[pod.Name] = err.Error()
			continue
		}
		needed++
		on.Spec.NodeName = name
		nodes, pods = append(nodes, more), append(pods, on)
	}
	return needed, helpless
}

// cluster is the copy's origin, and who waits.
func (a *autoscaler) cluster() (nodes []*v1.Node, pods, pending []*v1.Pod) {
	a.w.t.Helper()
	allNodes, err := a.w.client.CoreV1().Nodes().List(a.w.ctx, metav1.ListOptions{})
	if err != nil {
		a.w.t.Fatal(err)
	}
	allPods, err := a.w.client.CoreV1().Pods("default").List(a.w.ctx, metav1.ListOptions{})
	if err != nil {
		a.w.t.Fatal(err)
	}
	for i := range allNodes.Items {
		nodes = append(nodes, &allNodes.Items[i])
	}
	for i := range allPods.Items {
		p := &allPods.Items[i]
		if p.Spec.NodeName != "" {
			pods = append(pods, p)
		} else if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
		}) {
			pending = append(pending, p)
		}
	}
	return nodes, pods, pending
}

// pool is a label as a group of nodes has.
const pool = "pool"

// ofProvider is a template that a provider makes from what is written down of a group: nothing of a
// node, since the group may have none.
func ofProvider(cpus int64, group string) func(name string) *v1.Node {
	return func(name string) *v1.Node {
		amount := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI),
			v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("500")}
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{pool: group}},
			Status: v1.NodeStatus{Capacity: amount, Allocatable: amount}}
	}
}

// ofNode is a template that is copied from a node of the group, whose ledger nobody copies.
func (w *world) ofNode(node string) func(name string) *v1.Node {
	w.t.Helper()
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return func(name string) *v1.Node {
		c := n.DeepCopy()
		c.Name, c.Labels[v1.LabelHostname] = name, name
		return c
	}
}

// add starts a node of a group, which has no daemon yet.
func (w *world) add(name, group string) {
	w.t.Helper()
	w.equip(name, nil, policy.Config{})
	n := ofProvider(16, group)(name)
	n.CreationTimestamp = metav1.Now() // the API server says it, one in memory does not
	if _, err := w.client.CoreV1().Nodes().Create(w.ctx, n, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func inPool(group string) podOption {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{pool: group} }
}

// TestScaleUp: nodes are added for pods with a wish and without, whatever absentNodes says and whether the
// autoscaler knows the plugin or not, and no more than are needed; the pods land as soon as the daemons are there.
func TestScaleUp(t *testing.T) {
	for _, absent := range []Absent{AbsentRefuse, AbsentIgnore} {
		for _, built := range []bool{false, true} {
			for _, copied := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s plugin=%v copied=%v", absent, built, copied), func(t *testing.T) {
					args := Args{AbsentNodes: absent, Annotate: TellBinding, RefusedPods: RefusedLeave}
					scaleUp(t, args, built, copied)
				})
			}
		}
	}
}

func scaleUp(t *testing.T, args Args, built, copied bool) {
	w := newWorld(t, options{args: args})
	w.node("full", 0, &small, trusting())
	w.create("first", "LSR", "12")
	w.lands("first", "full")
	w.create("owner", "LSR", "10")
	w.create("plain", "", "10")
	w.says("owner", "Insufficient")
	w.says("plain", "Insufficient")
	group, with := ofProvider(16, "cores"), (*Args)(nil)
	if copied {
		group = w.ofNode("full")
	}
	if built {
		with = &args
	}
	a := newAutoscaler(w, with, group)
	if needed, helpless := a.round(); needed != 2 || len(helpless) > 0 {
		t.Fatalf("%d nodes are to be added, want 2; no node helps %v", needed, helpless)
	}
	for _, name := range []string{"added-0", "added-1"} {
		w.add(name, "cores")
	}
	w.until("the plain pod lands", func() bool { return strings.HasPrefix(w.where("plain"), "added") })
	if args.AbsentNodes == AbsentRefuse {
		w.says("owner", "no ledger")
		w.until("the autoscaler has seen the nodes", func() bool {
			list, err := a.runs.SharedInformerFactory().Core().V1().Nodes().Lister().Get("added-1")
			return err == nil && list != nil
		})
		if needed, helpless := a.round(); needed != 0 || len(helpless) > 0 {
			t.Errorf("while the daemons start, %d more nodes are to be added; no node helps %v", needed, helpless)
		}
	}
	for _, name := range []string{"added-0", "added-1"} {
		w.equip(name, &small, trusting())
	}
	w.until("the owner lands", func() bool { return strings.HasPrefix(w.where("owner"), "added") })
	w.check()
	if needed, helpless := a.round(); needed != 0 || len(helpless) > 0 {
		t.Errorf("all pods run, and %d nodes are to be added; no node helps %v", needed, helpless)
	}
}

// TestTemplates: what a group of nodes has to say of itself, and what becomes of it where it does not. Autoscalers
// go by sums, taints and labels.
func TestTemplates(t *testing.T) {
	for _, c := range []struct {
		name   string
		cpu    string
		pod    podOption
		group  func(name string) *v1.Node
		needed int
		why    string // pods are helped by no node
	}{
		{"a group with the label that the pod asks for", "10", inPool("cores"), ofProvider(16, "cores"), 1, ""},
		{"a group without it", "10", inPool("cores"), ofProvider(16, "others"), 0, "didn't match"},
		// What is not published of a new node cannot be taken into account: one is added that is no help.
		{"more than the node leaves for owners", "16", inPool("cores"), ofProvider(16, "cores"), 1, ""},
		{"the same, where the template has less", "16", inPool("cores"), ofProvider(15, "cores"), 0, "Insufficient"},
		// Another pool's free node has no daemon: by the sums the pod fits there, and nothing is added.
		{"a pod that asks for no pool", "10", func(*v1.Pod) {}, ofProvider(16, "cores"), 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{})
			w.add("bare", "others")
			w.create("owner", "LSR", c.cpu, c.pod)
			w.until("the owner is pending", func() bool { return strings.HasPrefix(w.where("owner"), "Pending") })
			a := newAutoscaler(w, nil, c.group)
			needed, helpless := a.round()
			if needed != c.needed || !strings.Contains(helpless["owner"], c.why) || c.why == "" && len(helpless) > 0 {
				t.Errorf("%d nodes are to be added, want %d; no node helps %v", needed, c.needed, helpless)
			}
		})
	}
}

// TestComing: an autoscaler's plugin waits for the daemon of a new node as long as for the node, and counts it
// as a node without one after that. A scheduler's plugin does not wait.
func TestComing(t *testing.T) {
	w := newWorld(t, options{})
	w.add("young", "cores")
	a := newAutoscaler(w, &Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding, RefusedPods: RefusedLeave},
		ofProvider(16, "cores"))
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, "young", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created := n.CreationTimestamp.Time
	for _, c := range []struct {
		node *v1.Node
		age  time.Duration
		want bool
	}{{n, startup - time.Second, true}, {n, startup, false}, {ofProvider(16, "cores")("paper"), 24 * time.Hour, true}} {
		a.plugin.nodes.mu.Lock()
		a.plugin.nodes.now = func() time.Time { return created.Add(c.age) }
		a.plugin.nodes.mu.Unlock()
		if got := a.plugin.coming(c.node); got != c.want {
			t.Errorf("%s after %s: coming is %v", c.node.Name, c.age, got)
		}
		if w.plugin.coming(c.node) {
			t.Errorf("the scheduler takes %s for one that is coming", c.node.Name)
		}
	}
}
