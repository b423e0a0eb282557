package plugin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

func topologies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2",
		Resource: "noderesourcetopologies"}
}

// follow starts to follow what nodes publish, and pods.
func (p *Plugin) follow(ctx context.Context) error {
	config := p.handle.KubeConfig()
	if config == nil {
		var err error
		if config, err = rest.InClusterConfig(); err != nil {
			return fmt.Errorf("no API server to follow %s of: the framework names none, and: %w", topologies().Resource,
				err)
		}
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of %s: %w", topologies().Resource, err)
	}
	api := client.Resource(topologies())
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, o)
		},
	}
	r := cache.NewReflectorWithOptions(lister, &metav1.PartialObjectMetadata{}, p.nodes,
		cache.ReflectorOptions{Name: "Quietcore's " + topologies().Resource})
	go r.RunWithContext(ctx)
	go p.tend(ctx)
	return p.followPods()
}

func (p *Plugin) followPods() error {
	if p.handle.SharedInformerFactory() == nil {
		return errors.New("the scheduler follows no pods")
	}
	core := p.handle.SharedInformerFactory().Core().V1()
	p.there = core.Nodes().Lister()
	_, err := core.Pods().Informer().AddEventHandler(
		cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { p.seen(o) },
			UpdateFunc: func(_, o any) { p.seen(o) },
			DeleteFunc: func(o any) {
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				if pod, ok := o.(*v1.Pod); ok {
					p.over(pod)
				}
			},
		})
	return err
}

func (p *Plugin) over(pod *v1.Pod) {
	p.pending.remove(string(pod.UID))
	p.cluster.Drop(string(pod.UID))
}

// seen takes over what a pod says of itself: that it is over, or where it is and on which
// CPUs. So a scheduler that starts knows of pods that their nodes do not show yet.
func (p *Plugin) seen(obj any) {
	pod, ok := obj.(*v1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		p.over(pod)
		return
	}
	p.pending.remove(string(pod.UID))
	class := policy.Class(pod.Labels[policy.LabelClass])
	o, told := policy.OfferIn(pod.Annotations[policy.AnnStatus])
	if !told && class != policy.LSE && class != policy.LSR {
		return
	}
	p.cluster.Assigned(pod.Spec.NodeName, wishOf(pod), o, pod.Status.Phase == v1.PodRunning)
}

type sums map[string][sha256.Size]byte

// nodes is where a reflector puts what nodes publish. It keeps no texts but to tell whether
// anything has changed.
type nodes struct {
	p       *Plugin
	mu      sync.Mutex
	decoder *ledger.Decoder
	texts   sums // of what was last read, by node
	beats   map[string]beat
	now     func() time.Time
}

// beat is the last sign of a daemon.
type beat struct {
	text  string
	at    time.Time // by this clock
	stale bool
}

func newNodes(p *Plugin) *nodes {
	return &nodes{p: p, decoder: ledger.NewDecoder(), texts: sums{}, beats: map[string]beat{}, now: time.Now}
}

var errStale = fmt.Errorf("its daemon has given no sign for %s: what it published is not believed",
	ledger.StaleAfter)

// listen takes note of a sign of a daemon. The clocks of others count only the first time, and
// only where they are behind: a scheduler that starts is not to believe the long dead.
func (n *nodes) listen(name, text string, changed bool) {
	before, known := n.beats[name]
	b := beat{text: text, at: n.now()}
	switch {
	case text == "": // a daemon of before gives none
		delete(n.beats, name)
		return
	case known && before.text == text && !changed:
		return
	case !known:
		if said := ledger.DecodeAlive(text); said.Before(b.at) {
			b.at = said
		}
	case before.stale:
		delete(n.texts, name) // so that it is read again
	}
	n.beats[name] = b
}

// distrust takes nodes whose daemons have given no sign for too long as nodes without one.
func (n *nodes) distrust() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	for name, b := range n.beats {
		if !b.stale && now.Sub(b.at) > ledger.StaleAfter {
			b.stale = true
			n.beats[name] = b
			n.p.cluster.Broken(name, errStale)
			klog.Background().Info("A node's daemon gives no sign", "node", name, "since", b.at)
		}
	}
}

func (n *nodes) Add(o any) error { return n.Update(o) }

func (n *nodes) Update(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	n.take(m.GetName(), m.GetAnnotations())
	return nil
}

func (n *nodes) take(name string, annotations map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := sha256.Sum256([]byte(annotations[ledger.AnnLedger] + "\n" + annotations[ledger.AnnRules] + "\n" +
		annotations[ledger.AnnMachine]))
	before, ok := n.texts[name]
	n.listen(name, annotations[ledger.AnnAlive], ok && before != text)
	n.p.apart.said(name, annotations[ledger.AnnPairs], n.now())
	defer n.p.refused.said(name, annotations[ledger.AnnRefused], func() uint64 { return n.p.cluster.Generation(name) })
	if before, ok = n.texts[name]; ok && before == text {
		return
	}
	n.texts[name] = text
	was := n.p.cluster.Node(name).Known()
	node, err := n.decoder.Decode(annotations)
	if err == nil {
		err = n.p.cluster.Publish(name, node)
	}
	switch {
	case err == nil && !was:
		n.p.pending.markAll() // why they wait is another reason by now, wherever there is no room
	case err != nil:
		n.p.cluster.Broken(name, err)
		klog.Background().Error(err, "What a node publishes cannot be read", "node", name)
	}
}

func (n *nodes) Delete(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.forget(m.GetName())
	n.mu.Unlock()
	n.p.cluster.Gone(m.GetName())
	return nil
}

func (n *nodes) forget(name string) {
	delete(n.texts, name)
	delete(n.beats, name)
	n.p.refused.said(name, "", nil)
	n.p.apart.said(name, "", n.now())
}

// Replace takes over a whole list: nodes that are not in it publish nothing any more.
func (n *nodes) Replace(list []any, _ string) error {
	there := map[string]bool{}
	for _, o := range list {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		there[m.GetName()] = true
		n.take(m.GetName(), m.GetAnnotations())
	}
	n.mu.Lock()
	var gone []string
	for name := range n.texts {
		if !there[name] {
			gone = append(gone, name)
			n.forget(name)
		}
	}
	n.mu.Unlock()
	for _, name := range gone {
		n.p.cluster.Gone(name)
	}
	return nil
}

// Resync has nothing to do: nothing is kept.
func (n *nodes) Resync() error { return nil }

var _ cache.ReflectorStore = &nodes{}
