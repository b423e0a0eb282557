package node

import (
	"log/slog"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Options are what a Core is made of. All but Topology, Log and Metrics may be zero.
type Options struct {
	Topology *topology.Topology
	Config   policy.Config
	Saved    state.Snapshot // what the last daemon left
	Tree     TreeOptions
	Stores   bool // there is a state file

	// Facts is what the API server says of a pod, ok false where it has not said anything
	// yet. Notify is given what people should know, Changed is called when the snapshot is
	// another. None of them may wait.
	Facts   func(uid string) (facts policy.PodFacts, ok bool)
	Notify  func(policy.Notice)
	Changed func()

	Log     *slog.Logger
	Metrics *metrics.Metrics
	// At is called at every point that is passed within a step; nil: nothing is.
	At func(failpoint.Point)
	// Step is the policy's; tests replace it.
	Step StepFunc
	// SaveEvery is the least time between two saves; 0: 250 ms.
	SaveEvery time.Duration
	// Late is the naive order, for tests alone: an owner starts at once and the others
	// leave that much later. It shows that a test of the order sees a wrong one.
	Late time.Duration
}

// TreeOptions say what there is of a cgroup tree.
type TreeOptions struct {
	Reads   bool // effects that read are carried out
	Writes  bool // and those that write
	Records bool // ReadRecord is carried out
	Flat    bool // cgroup v1, where nothing inherits
}

func (o *Options) fill() {
	if o.Facts == nil {
		o.Facts = func(string) (policy.PodFacts, bool) { return policy.PodFacts{}, false }
	}
	if o.Notify == nil {
		o.Notify = func(policy.Notice) {}
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
