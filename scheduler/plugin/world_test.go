package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// patience bounds a wait; nothing is ever waited for that has happened.
const patience = 30 * time.Second

// world is a real scheduler with the plugin, an API server in memory, and nodes that are real
// policy machines: a pod that is bound to one is asked for there as a runtime would.
type world struct {
	t      testing.TB
	ctx    context.Context
	client kubernetes.Interface
	memory *fake.Clientset // client, where it is not a real API server
	server *server         // else that
	plugin *Plugin
	reader *nodes

	publishing sync.Mutex

	mu      sync.Mutex
	nodes   map[string]*machine
	bound   map[string]string // node by pod
	refused []string
	n       int
	uids    map[string]string // of pods that were bound, by name
	wake    chan struct{}
	hold    bool   // ledgers are not published
	alive   string // the daemons' heartbeat
	events  chan string
	stop    func() // the scheduler
}

type machine struct {
	*policy.Machine
	stamp   ledger.Stamp
	refused []policy.RefusedPod
	pairs   []ledger.Pair
	text    map[string]string // all that one without a Machine says
}

type options struct {
	args Args
	// noPlugin is the stock scheduler, noScheduler none.
	noPlugin, noScheduler bool
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, nodes: map[string]*machine{}, bound: map[string]string{}, uids: map[string]string{},
		wake: make(chan struct{}, 1)}
	if w.server = realServer(t); w.server != nil {
		w.client = w.server.client
		w.server.clear(t)
		w.server.follow(w)
	} else {
		w.memory = fake.NewClientset()
		w.client = w.memory
		w.memory.PrependReactor("create", "pods", w.bind)
	}
	if !o.noScheduler {
		w.schedule(o)
	}
	return w
}

// schedule starts a scheduler, in place of the one before.
func (w *world) schedule(o options) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	client := w.client
	if w.server != nil {
		client = w.server.may(w.t, o.args)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	if o.args.AbsentNodes == "" {
		o.args.AbsentNodes = AbsentRefuse
	}
	if o.args.Annotate == "" {
		o.args.Annotate = TellBinding
	}
	if o.args.RefusedPods == "" {
		o.args.RefusedPods = RefusedLeave
	}
	registry := frameworkruntime.Registry{Name: func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin,
		error) {
		if w.server != nil {
			text, err := json.Marshal(o.args)
			if err != nil {
				return nil, err
			}
			p, err := New(ctx, &runtime.Unknown{Raw: text, ContentType: runtime.ContentTypeJSON}, h)
			w.plugin, _ = p.(*Plugin)
			return p, err
		}
		p := newPlugin(o.args, h)
		w.plugin, w.reader = p, p.nodes
		go p.tend(ctx)
		return p, p.followPods()
	}}
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	cfg := schedulerapi.KubeSchedulerConfiguration{}
	if err := scheme.Scheme.Convert(&versioned, &cfg, nil); err != nil {
		w.t.Fatal(err)
	}
	if !o.noPlugin {
		plugins := cfg.Profiles[0].Plugins
		plugins.MultiPoint.Enabled = append(plugins.MultiPoint.Enabled, schedulerapi.Plugin{Name: Name, Weight: 100})
		plugins.Bind.Enabled = []schedulerapi.Plugin{{Name: Name}}
	}
	recorder := events.NewFakeRecorder(10000)
	w.events = recorder.Events
	recorders := profile.RecorderFactory(func(string) events.EventRecorderLogger { return recorder })
	var api *rest.Config
	if w.server != nil {
		api = w.server.theirs
	}
	s, err := scheduler.New(ctx, client, factory, nil, recorders, scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithKubeConfig(api),
		scheduler.WithFrameworkOutOfTreeRegistry(registry), scheduler.WithPodInitialBackoffSeconds(1),
		scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		w.t.Fatal(err)
	}
	for name := range w.nodes {
		if !w.hold && w.server == nil {
			w.publish(name)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	w.t.Cleanup(w.stop)
}

// bind is what the API server does with a Binding: node and annotations in one write. Then
// the node's runtime is asked.
func (w *world) bind(a core.Action) (bool, runtime.Object, error) {
	create, ok := a.(core.CreateAction)
	if !ok || create.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := create.GetObject().(*v1.Binding)
	gvr := v1.SchemeGroupVersion.WithResource("pods")
	o, err := w.memory.Tracker().Get(gvr, b.Namespace, b.Name)
	if err != nil {
		return true, nil, err
	}
	pod := o.(*v1.Pod).DeepCopy()
	if b.UID != "" && b.UID != pod.UID || pod.Spec.NodeName != "" {
		return true, nil, errors.New("conflict")
	}
	pod.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	if err := w.memory.Tracker().Update(gvr, pod, pod.Namespace); err != nil {
		return true, nil, err
	}
	w.arrive(pod)
	return true, b, nil
}

func (w *world) arrive(pod *v1.Pod) {
	w.mu.Lock()
	w.n++
	m := w.nodes[pod.Spec.NodeName]
	if m.Machine != nil {
		asked := kube.PodOf(pod)
		if _, err := m.Step(time.Unix(int64(w.n), 0), policy.PodRun{Pod: asked}); err != nil {
			w.refused = append(w.refused, fmt.Sprintf("%s refuses %s: %v", pod.Spec.NodeName, pod.Name, err))
			m.refused = append(m.refused, policy.RefusedPod{UID: string(pod.UID), Namespace: pod.Namespace,
				Pod: pod.Name, Code: "InsufficientCPUs", Message: err.Error()})
		}
	}
	hold := w.hold
	w.mu.Unlock()
	if !hold {
		w.publish(pod.Spec.NodeName)
	}
	w.mu.Lock() // at last: whoever sees the pod here may take back what the node says of it
	w.bound[pod.Name], w.uids[pod.Name] = pod.Spec.NodeName, string(pod.UID)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// equip gives a node a daemon.
func (w *world) equip(name string, grid *topology.Grid, cfg policy.Config) (cpus int) {
	w.t.Helper()
	m := &machine{}
	if grid != nil {
		topo, err := grid.Build()
		if err != nil {
			w.t.Fatal(err)
		}
		if cfg.Authority.Profile == "" {
			cfg.Authority.Profile = policy.ProfileOpen
		}
		if m.Machine, err = policy.New(topo, cfg); err != nil {
			w.t.Fatal(err)
		}
		online := topo.Online()
		cpus = online.Count()
	}
	w.mu.Lock()
	w.nodes[name] = m
	w.mu.Unlock()
	w.publish(name)
	return cpus
}

// unpublish takes back what a node says.
func (w *world) unpublish(name string) {
	w.t.Helper()
	var err error
	if w.server != nil {
		err = w.server.objects.Resource(topologies()).Delete(w.ctx, name, metav1.DeleteOptions{})
	} else {
		err = w.reader.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// node adds a node. Without a grid it has no daemon.
func (w *world) node(name string, cpus int, grid *topology.Grid, cfg policy.Config) {
	w.t.Helper()
	if n := w.equip(name, grid, cfg); n > 0 {
		cpus = n
	}
	amount := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("500")}
	_, err := w.client.CoreV1().Nodes().Create(w.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{"node": name}},
		Status: v1.NodeStatus{Capacity: amount, Allocatable: amount}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// annotations is what a node says of itself.
func (w *world) annotations(name string) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.nodes[name]
	if m.Machine == nil {
		return m.text
	}
	s := m.Snapshot()
	l, generation := m.stamp.Of(s)
	text, err := ledger.Encode(s.Topology, l, generation)
	if err != nil {
		w.t.Error(err)
	}
	text[ledger.AnnAlive] = w.alive
	text[ledger.AnnPairs] = ledger.EncodePairs(m.pairs)
	if said := ledger.EncodeRefused(m.refused); said != "" {
		text[ledger.AnnRefused] = said
	}
	return text
}

func (w *world) publish(name string) {
	w.publishing.Lock() // what is older must not come later
	defer w.publishing.Unlock()
	text := w.annotations(name)
	if w.server != nil && text != nil {
		w.server.publish(w, name, text)
	} else if text != nil && w.reader != nil {
		if err := w.reader.Update(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: text}}); err != nil {
			w.t.Error(err)
		}
	}
}

type podOption func(*v1.Pod)

func annotated(key, value string) podOption {
	return func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func priority(n int32) podOption { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func (w *world) object(name, class string, cpu string, options ...podOption) *v1.Pod {
	amount := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Mi")}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name),
			Labels: map[string]string{}},
		Spec: v1.PodSpec{SchedulerName: v1.DefaultSchedulerName, Containers: []v1.Container{{Name: "main", Image: "i",
			Resources: v1.ResourceRequirements{Requests: amount, Limits: amount}}}},
		Status: v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSGuaranteed},
	}
	if class != "" {
		p.Labels[policy.LabelClass] = class
	}
	for _, o := range options {
		o(p)
	}
	return p
}

func (w *world) create(name, class string, cpu string, options ...podOption) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Pods("default").Create(w.ctx, w.object(name, class, cpu, options...),
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// bindByHand creates a pod that no scheduler of ours looks at, and binds it.
func (w *world) bindByHand(name, node, status string) {
	w.t.Helper()
	w.create(name, "LSR", "2", func(p *v1.Pod) { p.Spec.SchedulerName = "another" })
	b := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		Annotations: map[string]string{policy.AnnStatus: status}}, Target: v1.ObjectReference{Kind: "Node", Name: node}}
	if err := w.client.CoreV1().Pods("default").Bind(w.ctx, b, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := w.end(name); err != nil {
		w.t.Fatal(err)
	}
}

// end takes a pod from its node, and then from the API server.
func (w *world) end(name string) error {
	w.mu.Lock()
	node := w.bound[name]
	delete(w.bound, name)
	if m := w.nodes[node]; m != nil && m.Machine != nil {
		_, _ = m.Step(time.Unix(int64(w.n), 0), policy.PodRemoved{Sandbox: w.uids[name]})
	}
	hold := w.hold
	w.mu.Unlock()
	now := int64(0)
	err := w.client.CoreV1().Pods("default").Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if node != "" && !hold {
		w.publish(node)
	}
	return err
}

// where waits until a pod is bound or found to have no place, and says which.
func (w *world) where(name string) string {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
				return "Pending: " + c.Message
			}
		}
		select {
		case <-deadline:
			w.t.Fatalf("pod %s: nothing is decided after %s", name, patience)
		case <-w.wake:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lands waits until a pod is bound to a node and the node was asked for it: what it was told
// before, when less was known, does not count.
func (w *world) lands(name, node string) {
	w.t.Helper()
	w.until(name+" is on "+node, func() bool { return w.where(name) == node && w.asked(name) == node })
}

// asked is the node that was asked for a pod.
func (w *world) asked(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound[name]
}

// says waits until a pod is pending for a reason.
func (w *world) says(name, why string) {
	w.t.Helper()
	w.until(name+" waits: "+why, func() bool {
		said := w.where(name)
		if !strings.HasPrefix(said, "Pending") {
			w.t.Fatalf("%s is on %s", name, said)
		}
		return strings.Contains(said, why)
	})
}

// until waits until something is so.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for start := time.Now(); !is(); {
		if time.Since(start) > patience {
			list, _ := w.client.CoreV1().Pods("default").List(w.ctx, metav1.ListOptions{})
			for _, p := range list.Items {
				w.t.Logf("%s on %q nominated %q: %v", p.Name, p.Spec.NodeName, p.Status.NominatedNodeName,
					p.Status.Conditions)
			}
			w.t.Fatalf("not within %s: %s", patience, what)
		}
		select {
		case <-w.wake:
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// told is the annotation of a pod, and owned what it has on its node.
func (w *world) told(name string) string {
	pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod.Annotations[policy.AnnStatus]
}

func (w *world) owned(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.nodes[w.bound[name]]
	if m == nil || m.Machine == nil {
		return ""
	}
	for _, h := range m.Snapshot().Ledger.Holdings {
		if h.Pod == name {
			return h.CPUs.String()
		}
	}
	return ""
}

// check fails for each pod that a node refused.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.refused {
		w.t.Error(r)
	}
}

func (w *world) counts() (running int, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.bound), len(w.refused)
}

func trusting() policy.Config { return policy.Config{Authority: policy.Authority{TrustStatus: true}} }

func (w *world) exists(name string) bool {
	_, err := w.client.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
	return err == nil
}

// vanish tells the node of a pod that somebody else has deleted.
func (w *world) vanish(name string) {
	if w.server != nil {
		return // its kubelets see to it
	}
	w.mu.Lock()
	node := w.bound[name]
	delete(w.bound, name)
	if _, err := w.nodes[node].Step(time.Unix(int64(w.n), 0), policy.PodRemoved{Sandbox: w.uids[name]}); err != nil {
		w.t.Error(err)
	}
	w.mu.Unlock()
	w.publish(node)
}

// amplify makes a node say that it has more CPUs.
func (w *world) amplify(name string, cpus int64) {
	n, err := w.client.CoreV1().Nodes().Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	n.Status.Allocatable[v1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}
