package plugin

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	listers "k8s.io/client-go/listers/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/scheduler/placement"
)

// Name of the plugin in the scheduler's configuration.
const Name = "Quietcore"

// Plugin is one profile's.
type Plugin struct {
	args    Args
	handle  fwk.Handle
	cluster *placement.Cluster
	pending *pending
	nodes   *nodes
	refused *refused
	apart   *apart
	costs   sync.Pool          // of the maps of cycles that are over
	there   listers.NodeLister // nodes that the API server has
	// simulates: an autoscaler asks, and nothing comes of what it hears.
	simulates bool
}

var (
	_ fwk.PreFilterPlugin     = &Plugin{}
	_ fwk.FilterPlugin        = &Plugin{}
	_ fwk.PreScorePlugin      = &Plugin{}
	_ fwk.ScorePlugin         = &Plugin{}
	_ fwk.ReservePlugin       = &Plugin{}
	_ fwk.PreBindPlugin       = &Plugin{}
	_ fwk.BindPlugin          = &Plugin{}
	_ fwk.SignPlugin          = &Plugin{}
	_ fwk.EnqueueExtensions   = &Plugin{}
	_ fwk.PreFilterExtensions = &Plugin{}
)

// New makes the plugin and follows nodes and pods until ctx ends.
func New(ctx context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := readArgs(obj)
	if err != nil {
		return nil, err
	}
	p := newPlugin(args, handle)
	p.simulates = handle.ClientSet() == nil // autoscalers' frameworks have none, and can write nothing
	counters()
	if err := p.follow(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func newPlugin(args Args, handle fwk.Handle) *Plugin {
	p := &Plugin{args: args, handle: handle, pending: newPending(), refused: newRefused(), apart: newApart()}
	p.cluster = placement.NewCluster(p.moreFits)
	p.nodes = newNodes(p)
	return p
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

func wishOf(pod *v1.Pod) *placement.Wish {
	asked := kube.PodOf(pod)
	if asked.QoS == "" {
		asked.QoS = policy.QoS(v1qos.GetPodQOS(pod))
	}
	return placement.NewWish(&asked)
}

// PreFilter reads the pod's wish.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	_ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !p.simulates {
		p.refused.leads()
	}
	off := p.refused.keepOff(pod)
	if !asks(pod) && !p.cluster.Odd() && off == nil {
		return nil, fwk.NewStatus(fwk.Skip) // without a wish, as with any scheduler
	}
	wish := wishOf(pod)
	if wish.Bad != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, wish.Bad.Error())
	}
	if wish.Plain() && !p.cluster.Odd() && off == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(cycleKey, p.newCycle(wish, off))
	if !p.simulates {
		p.pending.add(pod, wish)
	}
	return nil, nil
}

// asks says that a pod has any of the words that make a wish.
func asks(pod *v1.Pod) bool {
	return pod.Labels[policy.LabelClass] != "" || policy.Relevant(pod.Annotations, "") != nil
}

// Filter asks a node.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, n fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	name := n.Node().Name
	if c.glances && len(c.as) == 0 {
		if g := p.cluster.Glance(name); !g.Confines() {
			return unschedulable(g.Fits(c.wish, n.GetRequested().GetMilliCPU()))
		}
	}
	s := p.stateOf(c, name)
	if !s.Known() {
		if c.wish.Plain() || p.args.AbsentNodes == AbsentIgnore || p.coming(n.Node()) {
			return nil
		}
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, whyUnknown(s))
	}
	if r, ok := c.off[name]; ok && r.generation == s.Generation() {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the node has refused such a pod: "+r.Message)
	}
	if !c.wish.Says.Owns() {
		if no := unschedulable(s.Glance().Fits(c.wish, n.GetRequested().GetMilliCPU())); no != nil {
			return no
		}
		if c.wish.Plain() && !s.Glance().Confines() {
			return nil
		}
	}
	load := p.load(s, n, c.as[name])
	cost, refusal := s.Rate(c.wish, load)
	if refusal != nil {
		if fitsSoon(s, c.wish, n, load) {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, refusal.Error()+"; CPUs of pods that have ended "+
				"there are about to be free")
		}
		return fwk.NewStatus(fwk.Unschedulable, refusal.Error())
	}
	c.setCost(name, cost)
	return nil
}

// unschedulable is nil where there is no refusal.
func unschedulable(refusal *policy.Refusal) *fwk.Status {
	if refusal == nil {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, refusal.Error())
}

// startup is how long a new node's daemon has to publish something, for an autoscaler: as long as
// cluster-autoscaler gives the node itself by default.
const startup = 15 * time.Minute

// coming says that an autoscaler asks about a node that there is on paper only, or that it has just
// added: its daemon has had no time to publish anything, which is no reason against the node, or for one
// more.
func (p *Plugin) coming(n *v1.Node) bool {
	if !p.simulates {
		return false
	}
	_, err := p.there.Get(n.Name)
	return apierrors.IsNotFound(err) || p.nodes.now().Sub(n.CreationTimestamp.Time) < startup
}

// fitsSoon says that a pod has a place once the node shows who has ended there. Nobody else has
// to go for it, as preemption would have it.
func fitsSoon(s *placement.State, w *placement.Wish, n fwk.NodeInfo, l placement.Load) bool {
	generation := n.GetGeneration()
	if len(l.Without) > 0 {
		generation = 0 // on paper some of them are not there
	}
	ending := s.Ending(generation, func() map[string]bool {
		there := make(map[string]bool, len(n.GetPods()))
		for _, info := range n.GetPods() {
			there[string(info.GetPod().UID)] = true
		}
		for _, uid := range l.Without {
			there[uid] = true // it is, but for this trial
		}
		return there
	})
	if len(ending) == 0 {
		return false
	}
	l.Without = append(slices.Clone(l.Without), ending...)
	_, refusal := s.Ask(w, l)
	return refusal == nil
}

func whyUnknown(s *placement.State) string {
	if s == nil || s.Why() == nil {
		return "no ledger of the node's CPUs is published"
	}
	return s.Why().Error()
}

// PreScore leaves pods alone whose nodes differ in nothing that the plugin knows.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	others := p.apart.from(pod, p.nodes.now())
	if others != nil {
		state.Write(apartKey, others)
	} else if c := cycleOf(state); c == nil || c.wish.Plain() {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// unknownCost is that of a node that cannot be asked: behind all others.
const unknownCost = math.MaxInt64

// Score is what the place on a node costs, in one number.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	cost, ok := int64(0), true
	if c := cycleOf(state); c != nil && !c.wish.Plain() {
		cost, ok = c.cost(n.Node().Name)
	}
	if !ok {
		return unknownCost, nil
	}
	if others, err := state.Read(apartKey); err == nil {
		cost += packed(placement.Cost{Apart: others.(jobs).on(n)})
	}
	return cost, nil
}

// packed orders as Cost.Compare does; each field has its own bits.
func packed(c placement.Cost) (n int64) {
	for _, f := range [...]struct{ value, bits int }{{c.Apart, 4}, {c.Nodes, 8}, {c.L3s, 10}, {c.Broken, 13},
		{c.Leftover, 14}, {c.Free, 14}} {
		n = n<<f.bits | int64(min(f.value, 1<<f.bits-1))
	}
	return n
}

// ScoreExtensions implements fwk.ScorePlugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore ranks the nodes: the place that costs least has the most points, and equal
// ones have equal points.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	costs := make([]int64, 0, len(scores))
	for _, s := range scores {
		costs = append(costs, s.Score)
	}
	slices.Sort(costs)
	costs = slices.Compact(costs)
	for i := range scores {
		rank, _ := slices.BinarySearch(costs, scores[i].Score)
		scores[i].Score = fwk.MaxScore
		if len(costs) > 1 {
			scores[i].Score -= fwk.MaxScore * int64(rank) / int64(len(costs)-1)
		}
	}
	return nil
}

// Reserve takes the place.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	p.pending.remove(string(pod.UID))
	c, s := cycleOf(state), p.cluster.Node(node)
	if c != nil {
		p.chosen(c)
	}
	if p.simulates || c == nil || !s.Known() || c.wish.Plain() && !s.Glance().Confines() {
		return nil
	}
	n, err := p.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(err)
	}
	load := p.load(s, n, changes{})
	var place placement.Place
	if refusal := p.cluster.Take(node, c.wish, load, &place); refusal != nil {
		return fwk.NewStatus(fwk.Unschedulable, refusal.Error())
	}
	c.place, c.placed = place, true
	return nil
}

// Unreserve gives the place back; any number of times.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	p.cluster.Drop(string(pod.UID))
}

// tells are the annotations that the pod is to have; nil: none. Those that say by what the
// place was chosen are not worth a write of their own.
func tells(state fwk.CycleState) map[string]string {
	c := cycleOf(state)
	if c == nil || !c.placed {
		return nil
	}
	all := map[string]string{ledger.AnnGeneration: strconv.FormatUint(c.place.Generation, 10)}
	if status := c.place.Status(); c.place.Trusted && status != "" {
		all[policy.AnnStatus] = status
	}
	return all
}

// Bind binds the pod and tells the node its CPUs, in one write: no pod is ever on a node that
// was not told, and none is told that is not bound.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	told := tells(state)
	if told == nil || p.args.Annotate != TellBinding {
		return fwk.NewStatus(fwk.Skip)
	}
	b := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: told},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	}
	if cache := p.handle.APICacher(); cache != nil {
		finished, err := cache.BindPod(b)
		if err == nil {
			err = cache.WaitOnFinish(ctx, finished)
		}
		return fwk.AsStatus(err)
	}
	err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Bind(ctx, b, metav1.CreateOptions{})
	return fwk.AsStatus(err)
}

// PreBindPreFlight says whether PreBind has anything to do.
func (p *Plugin) PreBindPreFlight(_ context.Context, state fwk.CycleState, _ *v1.Pod,
	_ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if p.args.Annotate != TellPreBind || tells(state)[policy.AnnStatus] == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind tells the node its CPUs before another plugin binds the pod.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID,
		"annotations": tells(state)}})
	if err == nil {
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
	}
	return fwk.AsStatus(err)
}

// SignPod lets pods without a wish be placed in batches: to the plugin they differ in class
// alone. Others are each looked at.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if p.refused.keepOff(pod) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "a node has refused such a pod")
	}
	if p.apart.from(pod, p.nodes.now()) != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod is better apart from others")
	}
	if !asks(pod) {
		return []fwk.SignFragment{{Key: "quietcore.dev/wish", Value: "none"}}, nil
	}
	wish := wishOf(pod)
	if !wish.Plain() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "the pod asks for CPUs")
	}
	return []fwk.SignFragment{{Key: "quietcore.dev/wish", Value: string(wish.Says.Class)}}, nil
}
