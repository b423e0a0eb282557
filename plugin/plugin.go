package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// Plugin is the daemon's core: the policy's loop, the enforcer and the
// connection to the runtime. Run runs it; the other methods may be called from
// any goroutine while it runs.
type Plugin struct {
	o        Options
	loop     *loop
	enforcer *enforcer
	saver    *saver
	at       passing
	refusals *refusals

	// unsaid: the runtime does not tell of a pod's resize.
	unsaid       atomic.Bool
	connected    atomic.Bool
	synchronised atomic.Bool
	once         atomic.Bool // synchronised at least once in this life
	labelsMu     sync.Mutex
	labels       map[string]string // the Node's
	ending       *endings
	reads        *reads
	late         lateCreates
}

// New makes a plugin. The error says what of the configuration this machine
// cannot have.
func New(o Options) (*Plugin, error) {
	o.fill()
	if o.Topology == nil {
		return nil, errors.New("plugin: no topology is given")
	}
	l, err := newLoop(&o)
	if err != nil {
		return nil, err
	}
	p := &Plugin{o: o, loop: l, at: o.At, refusals: newRefusals(&o), ending: newEndings(),
		labels: maps.Clone(o.Config.NodeLabels)}
	p.enforcer = newEnforcer(&o, l.machine)
	p.saver = newSaver(&o)
	p.reads = newReads(o.Reader)
	p.enforcer.wrote = p.reads.wrote
	l.emit, l.saver = p.enforcer.put, p.saver
	o.Metrics.RequestTimeout(2 * half(0))
	return p, nil
}

// Run serves until ctx ends. It does not end because the runtime does.
func (p *Plugin) Run(ctx context.Context) {
	saving, saved := context.WithCancel(context.WithoutCancel(ctx))
	var parts, saver sync.WaitGroup
	saver.Go(func() { p.saver.run(saving) })
	for _, part := range []func(context.Context){p.loop.run, p.enforcer.run, p.connect, p.collect,
		p.finishTakings} {
		parts.Go(func() { part(ctx) })
	}
	parts.Wait()
	saved() // the loop's last state is on its way: the saver ends with it on disk
	saver.Wait()
}

// Submit gives the policy an event that did not come from the runtime.
func (p *Plugin) Submit(ctx context.Context, e policy.Event) error {
	return p.loop.submit(ctx, e, nil).err
}

// Snapshot is the present state, or a recent one where nobody has time to tell.
func (p *Plugin) Snapshot() *policy.Snapshot {
	view, _ := p.loop.snapshot()
	return view
}

// Look is Snapshot for those who must know whether it is the present state.
func (p *Plugin) Look() (view *policy.Snapshot, current bool) { return p.loop.snapshot() }

// Records is what happened, in a form that replays on an empty machine.
func (p *Plugin) Records(ctx context.Context) ([]policy.Record, error) {
	var records []policy.Record
	err := p.loop.ask(ctx, func(*policy.Machine) { records = p.loop.anchor.recorder.Records() })
	return records, err
}

// Pods lists the pods of the node in order of creation.
func (p *Plugin) Pods(ctx context.Context) ([]policy.PodView, error) {
	var pods []policy.PodView
	err := p.loop.ask(ctx, func(m *policy.Machine) { pods = m.Pods() })
	return pods, err
}

// Config is the policy's configuration in force.
func (p *Plugin) Config(ctx context.Context) (policy.Config, error) {
	var cfg policy.Config
	err := p.loop.ask(ctx, func(*policy.Machine) { cfg = p.loop.anchor.cfg })
	return cfg, err
}

// Advance puts the daemon's clock forward, for tests.
func (p *Plugin) Advance(ctx context.Context, d time.Duration) error {
	p.loop.offset.Add(int64(d))
	return p.Submit(ctx, policy.Tick{})
}

// Audit looks at every cgroup now instead of at the next half minute.
func (p *Plugin) Audit() { p.enforcer.put(batch{audit: true}) }

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
	if cfg.NodeLabels != nil {
		p.labels = maps.Clone(cfg.NodeLabels)
	}
	return nil
}

// Connected and Synchronised say how far the connection to the runtime is.
func (p *Plugin) Connected() bool    { return p.connected.Load() }
func (p *Plugin) Synchronised() bool { return p.synchronised.Load() }

// Beat is when the loop last turned, for a liveness probe.
func (p *Plugin) Beat() time.Time { return p.loop.start.Add(time.Duration(p.loop.beat.Load())) }

// Settled reports whether everything decided is written, read back and saved.
func (p *Plugin) Settled() bool {
	return p.Synchronised() && !p.reads.busy.Load() && p.Unread() == "" && !p.loop.dirty.Load() && p.saver.idle() &&
		p.enforcer.idle()
}

// Unsaved is for how long the state file has been behind; 0: it is not.
func (p *Plugin) Unsaved() time.Duration { return p.saver.unsaved() }

// Frozen is why no decisions are made; empty: they are.
func (p *Plugin) Frozen() string {
	if why := p.loop.frozen.Load(); why != nil {
		return *why
	}
	return ""
}

// Unpinned counts the containers that were last seen to run elsewhere than decided.
func (p *Plugin) Unpinned() int { return int(p.enforcer.astray.Load()) }

func (s *session) synced() {
	s.connected.Store(true)
	s.synchronised.Store(true)
	s.once.Store(true)
	s.ending.synchronized()
}

// Unread says what of the node is still being read since the last Synchronize;
// empty: nothing that anybody waits for.
func (p *Plugin) Unread() string {
	if n := p.loop.unread.Load(); n > 0 {
		return fmt.Sprintf("what %d pods own is still being read from their cgroups: until then no mask is written, "+
			"and pods that ask for CPUs of their own are refused as Busy", n)
	}
	return ""
}
