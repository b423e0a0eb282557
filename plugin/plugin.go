package plugin

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// Plugin is the daemon's core with the connection to the runtime. Run runs it; the other
// methods may be called from any goroutine while it runs.
type Plugin struct {
	o        Options
	runner   *runner
	refusals *refusals
	rivals   *rivals

	// unannounced means that the runtime does not announce a pod's resize.
	unannounced  atomic.Bool
	connected    atomic.Bool
	synchronised atomic.Bool
	labelsMu     sync.Mutex
	labels       map[string]string // the Node's
	mode         mode
	jobLabel     atomic.Pointer[string]
}

// New makes a plugin. The error names the part of the configuration that this machine cannot
// satisfy.
func New(o Options) (*Plugin, error) {
	o.fill()
	if o.Topology == nil {
		return nil, errors.New("plugin: no topology is given")
	}
	rivals := newRivals(&o)
	r, err := newRunner(&o, rivals)
	if err != nil {
		return nil, err
	}
	o.Metrics.RequestTimeout(2 * half(0))
	p := &Plugin{o: o, runner: r, refusals: newRefusals(&o), rivals: rivals, labels: maps.Clone(o.Config.NodeLabels),
		mode: mode{again: make(chan struct{}, 1)}}
	p.mode.wanted.Store(o.Observe)
	p.mode.observes.Store(o.Observe)
	p.jobLabel.Store(&o.Config.JobLabel)
	return p, nil
}

// Run serves until ctx ends, also while the runtime is down.
func (p *Plugin) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { p.connect(ctx) })
	parts.Go(func() { p.runner.run(ctx) })
	parts.Wait()
}

// Submit gives the policy an event that did not come from the runtime.
func (p *Plugin) Submit(ctx context.Context, e policy.Event) error {
	if s, is := e.(policy.KubeletState); is {
		p.rivals.takeKubelet(s)
	}
	return p.runner.submit(ctx, nil, &node.Request{Event: e}).Err
}

// claimFor bounds how long a claim waits until its CPUs are free and it is saved. kubelet asks again.
const claimFor = 5 * time.Second

// Prepare gives a claim of our own DRA driver its CPUs, in the order of its requests. When it returns without an error,
// they are on disk and no other pod runs on them.
func (p *Plugin) Prepare(ctx context.Context, e policy.ClaimPrepared) ([]cpuset.Set, error) {
	r := p.runner.submit(ctx, nil, &node.Request{Event: e, Deadline: p.runner.now().Add(claimFor)})
	return r.Claim, r.Err
}

// Unprepare takes the CPUs of a claim back; it is no error if it has none. When it returns without an error, that is on
// disk.
func (p *Plugin) Unprepare(ctx context.Context, e policy.ClaimUnprepared) error {
	return p.runner.submit(ctx, nil, &node.Request{Event: e, Deadline: p.runner.now().Add(claimFor)}).Err
}

// Refused are the pods that were refused and that kubelet keeps retrying, the oldest one first.
func (p *Plugin) Refused() []policy.RefusedPod { return p.refusals.list(p.o.Clock.Now()) }

// Rivals are other NRI plugins that were noticed to set the CPUs of containers.
func (p *Plugin) Rivals() []policy.Rival { return p.rivals.list() }

// Snapshot is the current state, or a recent one if the daemon is busy.
func (p *Plugin) Snapshot() *policy.Snapshot {
	view, _ := p.Look()
	return view
}

// Look is Snapshot, with whether it is the current state.
func (p *Plugin) Look() (view *policy.Snapshot, current bool) { return p.runner.snapshot() }

// Records is what happened, in a form that replays on an empty machine.
func (p *Plugin) Records(ctx context.Context) ([]policy.Record, error) {
	return ask(ctx, p.runner, (*node.Core).Records)
}

// Pods lists the pods of the node in order of creation.
func (p *Plugin) Pods(ctx context.Context) ([]policy.PodView, error) {
	return ask(ctx, p.runner, (*node.Core).Pods)
}

// Config is the policy's configuration in force.
func (p *Plugin) Config(ctx context.Context) (policy.Config, error) {
	return ask(ctx, p.runner, (*node.Core).Config)
}

// Advance puts the daemon's clock forward, for tests.
func (p *Plugin) Advance(ctx context.Context, d time.Duration) error {
	p.runner.offset.Add(int64(d))
	return p.Submit(ctx, policy.Tick{})
}

// Audit has every cgroup read back now instead of at the next half minute.
func (p *Plugin) Audit() {
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	_ = p.runner.put(ctx, node.Audit{}) // a core that is so busy audits soon anyway
}

// MergeLabels changes single labels of the Node; nil removes one.
func (p *Plugin) MergeLabels(ctx context.Context, changes map[string]*string) error {
	p.labelsMu.Lock()
	defer p.labelsMu.Unlock()
	next := maps.Clone(p.labels)
	if next == nil {
		next = map[string]string{}
	}
	for k, v := range changes {
		if v == nil {
			delete(next, k)
		} else {
			next[k] = *v
		}
	}
	return p.setLabels(ctx, next)
}

// TakeLabels takes over the labels of the Node.
func (p *Plugin) TakeLabels(ctx context.Context, labels map[string]string) error {
	p.labelsMu.Lock()
	defer p.labelsMu.Unlock()
	return p.setLabels(ctx, maps.Clone(labels))
}

func (p *Plugin) setLabels(ctx context.Context, labels map[string]string) error {
	if err := p.Submit(ctx, policy.NodeLabels{Labels: labels}); err != nil {
		return err
	}
	p.labels = labels
	return nil
}

// Reconfigure takes over a new configuration; allocations stay as they are.
func (p *Plugin) Reconfigure(ctx context.Context, cfg policy.Config) error {
	p.labelsMu.Lock()
	defer p.labelsMu.Unlock()
	if err := p.Submit(ctx, policy.Reconfigured{Config: cfg}); err != nil {
		return err
	}
	p.jobLabel.Store(&cfg.JobLabel)
	if cfg.NodeLabels != nil {
		p.labels = maps.Clone(cfg.NodeLabels)
	}
	return nil
}

// knows reports whether a container is known.
func (p *Plugin) knows(id string) bool {
	known, err := ask(context.Background(), p.runner, func(core *node.Core) bool { return core.Knows(id) })
	return err == nil && known
}

// Connected reports whether the runtime is connected, Synchronised whether it has been synchronized since.
func (p *Plugin) Connected() bool    { return p.connected.Load() }
func (p *Plugin) Synchronised() bool { return p.synchronised.Load() }

// Beat is when the core last took an input, for a liveness probe.
func (p *Plugin) Beat() time.Time { return p.runner.beatAt() }

// Settled reports whether everything decided is written, read back and saved.
func (p *Plugin) Settled() bool { return p.Synchronised() && p.runner.settled() }

// Unsaved is for how long the state file has been behind; 0: it is not.
func (p *Plugin) Unsaved() time.Duration {
	since := p.runner.status.Load().Unsaved
	if since.IsZero() {
		return 0
	}
	return max(p.runner.now().Sub(since), 0)
}

// Frozen is why no decisions are made; empty: they are.
func (p *Plugin) Frozen() string { return p.runner.status.Load().Frozen }

// Unpinned counts the containers that were last seen to run elsewhere than decided.
func (p *Plugin) Unpinned() int { return p.runner.status.Load().Unpinned }

// Unread says what is still being read since the last Synchronize, as long as decisions depend on it;
// empty: nothing.
func (p *Plugin) Unread() string { return p.runner.status.Load().Reading() }

// Unseen says why the daemon does not see all cgroups: their listings are not trusted, or reads are
// outstanding; empty: it does.
func (p *Plugin) Unseen() string { return p.runner.status.Load().Unseen() }

// Blind says why listings of cgroups are not trusted; empty: they are.
func (p *Plugin) Blind() string { return p.runner.status.Load().Blind }
