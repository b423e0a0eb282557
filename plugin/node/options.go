package node

import (
	"log/slog"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Options are the parts of a Core. All but Topology, Log and Metrics may be zero.
type Options struct {
	Topology *topology.Topology
	Config   policy.Config
	Saved    state.Snapshot // what the last daemon saved
	Tree     TreeOptions
	Stores   bool // there is a state file
	// Observe carries out no decision from the start; see Mode. With Undo, what an earlier daemon enforced is undone
	// first; else nothing is written at all.
	Observe, Undo bool

	// Facts is what the API server has on a pod, ok false while that is not known. Notify gets
	// what operators should see. Changed is called when the snapshot has changed. Moved is called when a container
	// was moved through its runtime, and is to be moved back. None of them may block.
	Facts   func(uid string) (facts policy.PodFacts, ok bool)
	Notify  func(policy.Notice)
	Changed func()
	Moved   func(container string, to, back cpuset.Set)

	Log     *slog.Logger
	Metrics *metrics.Metrics
	// At is called at every failpoint within a step; nil: at none.
	At func(failpoint.Point)
	// Step is the policy's; tests replace it.
	Step StepFunc
	// SaveEvery is the least time between two saves; 0: 250 ms.
	SaveEvery time.Duration
	// Late selects the naive order, for tests only: an owner starts at once, and the others
	// leave this much later. It proves that a test of the order can fail.
	Late time.Duration
}

// TreeOptions say what of the cgroup tree is accessible.
type TreeOptions struct {
	Reads   bool // it can be read
	Writes  bool // and written
	Records bool // ReadRecord is supported: the cgroups have a manager
	Flat    bool // cgroup v1, where nothing inherits
}

func (o *Options) fill() {
	if o.Facts == nil {
		o.Facts = func(string) (policy.PodFacts, bool) { return policy.PodFacts{}, false }
	}
	if o.Notify == nil {
		o.Notify = func(policy.Notice) {}
	}
	if o.Moved == nil {
		o.Moved = func(string, cpuset.Set, cpuset.Set) {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.At == nil {
		o.At = func(failpoint.Point) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New("", func() (metrics.Stats, bool) { return metrics.Stats{}, false })
	}
	if o.Step == nil {
		o.Step = (*policy.Machine).Step
	}
	if o.SaveEvery == 0 {
		o.SaveEvery = saveEvery
	}
	o.Tree.Writes = o.Tree.Writes && o.Tree.Reads
}
