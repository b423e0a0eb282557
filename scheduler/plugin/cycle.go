package plugin

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/scheduler/placement"
)

const cycleKey = fwk.StateKey(Name)

// cycle is what is known of the pod that is being scheduled.
type cycle struct {
	wish *placement.Wish
	// as are nodes that are to be taken as something else than they are: while it is tried
	// whom to preempt, and where pods are nominated.
	as map[string]changes
	// off are nodes that refused such a pod; nil: none did.
	off map[string]refusal
	// glances says that a glance at a node is enough: the pod asks for nothing, and was refused by none.
	glances bool

	mu     sync.Mutex       // guards what filters on several nodes at a time write
	costs  map[string]int64 // of places, packed; nil once nobody asks any more
	place  placement.Place  // once it was reserved
	placed bool
}

type changes struct {
	// state is the node's by which it was found what a nominated pod would get; nil: none is. What is
	// asked of the node next is asked of the same: of a newer one its place might be another's.
	state   *placement.State
	without []string
	more    []policy.Holding
}

// stateOf is a node's for this pod.
func (p *Plugin) stateOf(c *cycle, node string) *placement.State {
	if s := c.as[node].state; s != nil {
		return s
	}
	return p.cluster.Node(node)
}

// Clone is what preemption tries on one node: it shares what does not change.
func (c *cycle) Clone() fwk.StateData {
	as := make(map[string]changes, len(c.as))
	for node, ch := range c.as {
		as[node] = changes{ch.state, slices.Clone(ch.without), slices.Clone(ch.more)}
	}
	return &cycle{wish: c.wish, off: c.off, glances: c.glances, as: as, costs: map[string]int64{}}
}

func (c *cycle) setCost(node string, cost placement.Cost) {
	n := packed(cost)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.costs == nil {
		c.costs = map[string]int64{}
	}
	c.costs[node] = n
}

func (c *cycle) cost(node string) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cost, ok := c.costs[node]
	return cost, ok
}

// newCycle begins a pod's. Its costs are hundreds of nodes' and are written in a map that one before had.
func (p *Plugin) newCycle(w *placement.Wish, off map[string]refusal) *cycle {
	costs, ok := p.costs.Get().(map[string]int64)
	if !ok {
		costs = map[string]int64{}
	}
	return &cycle{wish: w, off: off, glances: w.Plain() && off == nil, as: map[string]changes{}, costs: costs}
}

// chosen ends the search for a node: costs are asked for no more.
func (p *Plugin) chosen(c *cycle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.costs != nil {
		clear(c.costs)
		p.costs.Put(c.costs)
		c.costs = nil
	}
}

// cycleOf is nil for a pod that the plugin has nothing to do with.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}

// PreFilterExtensions tells of pods that come and go on paper.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// RemovePod takes a pod as gone, to see whether preempting it helps.
func (p *Plugin) RemovePod(_ context.Context, state fwk.CycleState, _ *v1.Pod, gone fwk.PodInfo,
	n fwk.NodeInfo) *fwk.Status {
	c, uid := cycleOf(state), string(gone.GetPod().UID)
	if c == nil {
		return nil
	}
	ch := c.as[n.Node().Name]
	if i := slices.IndexFunc(ch.more, func(h policy.Holding) bool { return h.UID == uid }); i >= 0 {
		ch.more = slices.Delete(ch.more, i, i+1)
	} else {
		ch.without = append(ch.without, uid)
	}
	c.as[n.Node().Name] = ch
	return nil
}

// AddPod takes a pod as being there: one that was taken as gone, or one that is nominated,
// which has no CPUs yet and is given those that it would get.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo,
	n fwk.NodeInfo) *fwk.Status {
	c, node, uid := cycleOf(state), n.Node().Name, string(added.GetPod().UID)
	if c == nil {
		return nil
	}
	ch := maps.Clone(c.as)[node]
	if i := slices.Index(ch.without, uid); i >= 0 {
		ch.without = slices.Delete(slices.Clone(ch.without), i, i+1)
		c.as[node] = ch
		return nil
	}
	s := p.stateOf(c, node)
	if _, owns := s.Owner(uid); owns || !s.Known() {
		return nil
	}
	wish := wishOf(added.GetPod())
	if wish.Plain() {
		return nil
	}
	ch.state = s
	if place, refusal := s.Ask(wish, p.load(s, n, ch)); refusal == nil {
		ch.more = append(slices.Clone(ch.more), place.Holding)
	}
	c.as[node] = ch
	return nil
}

// load is how a node stands beyond what is in its state.
func (p *Plugin) load(s *placement.State, n fwk.NodeInfo, ch changes) placement.Load {
	return placement.Load{SharedMilli: sharedMilli(s, n), Without: ch.without, More: ch.more}
}

// sharedMilli is what pods on a node request of its shared pool: all but owners and best
// effort. Pods that are assumed to be there count.
func sharedMilli(s *placement.State, n fwk.NodeInfo) int64 {
	return s.SharedOf(n.GetGeneration(), func() (sum int64) {
		for _, info := range n.GetPods() {
			pod := info.GetPod()
			if policy.Class(pod.Labels[policy.LabelClass]) == policy.BE {
				continue
			}
			// Containers of an owner that own nothing share.
			cpus, _ := s.Owner(string(pod.UID))
			sum += max(info.CalculateResource().Resource.GetMilliCPU()-int64(cpus)*1000, 0)
		}
		return sum
	})
}
