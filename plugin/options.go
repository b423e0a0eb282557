package plugin

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Options are the parts of a Plugin. All but Topology have a working default.
type Options struct {
	Topology *topology.Topology
	Config   policy.Config
	// Observe writes nothing, replies nothing and refuses no pod, until Enforce says otherwise.
	// With Undo, what an earlier daemon enforced is undone first.
	Observe, Undo bool

	// Driver and Reader are the cgroup tree; without them only replies pin.
	Driver cgroup.Driver
	Reader cgroup.Reader
	Flat   bool // cgroup v1, where nothing inherits
	// Recorded is the mask that a cgroup's manager would restore by itself; nil, or ok false, where
	// there is no such manager.
	Recorded func(ctx context.Context, path string) (cpus cpuset.Set, ok bool, err error)

	// Devices asks on which NUMA nodes a pod's devices are, with a short deadline of its
	// own; nil: unknown.
	Devices func(ctx context.Context, namespace, pod string) (cpuset.Set, error)
	// Claims looks at what other DRA drivers gave, and has the plugin take it over if it has changed; nil: nothing is
	// looked at.
	Claims func(context.Context)
	// CPUsEnv is the environment variable with the CPUs of a pod that owns some, for its containers;
	// empty: none.
	CPUsEnv string

	// Facts is what the API server has on a pod, ok false while that is not known. Notify gets what
	// operators should see. Changed is called when the snapshot has changed. None of them may block;
	// nil ones are not called.
	Facts   func(uid string) (facts policy.PodFacts, ok bool)
	Notify  func(policy.Notice)
	Changed func()

	Store   Store
	Saved   state.Snapshot // what the last daemon saved
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Clock   Clock
	// At is called at every failpoint, for tests; nil: at none.
	At func(failpoint.Point)
	// late, for tests only, selects the naive order: an owner starts at once, and the others leave
	// this much later. It proves that a test of the order can fail.
	late time.Duration
	step node.StepFunc // the policy's; tests replace it
	// saveEvery, for tests only, is the least time between two saves.
	saveEvery time.Duration

	// Socket, Name and Index are for the registration with the runtime.
	Socket, Name, Index string
	Registration        time.Duration // watchdog for one attempt to register
}

// Store keeps the state across restarts of the daemon. Save returns when it is durable.
type Store interface {
	Save(state.Snapshot) error
}

// Clock is the plugin's time. Nil fields mean real time.
type Clock struct {
	Now func() time.Time
	// Slept is for how long the machine has been suspended since it booted, which Now does not count.
	Slept func() time.Duration
	Tick  <-chan time.Time // one a second: deadlines of caps
	Audit <-chan time.Time // one in 30 s: drift
	// Vanish is one in 30 s too: rounds that look for pods that ended without an event.
	Vanish <-chan time.Time
	After  func(time.Duration) <-chan time.Time
	// Jitter spreads attempts to reconnect; a number in [0, 1).
	Jitter func() float64
}

const (
	tickEvery  = time.Second
	auditEvery = 30 * time.Second
)

func (c *Clock) fill() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Slept == nil {
		c.Slept = sleptSinceBoot
	}
	if c.After == nil {
		c.After = time.After
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
}

func sleptSinceBoot() time.Duration {
	var up, awake unix.Timespec
	// Neither can fail: every supported kernel has both clocks.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake)
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up)
	return time.Duration(up.Nano() - awake.Nano())
}

func (o *Options) fill() {
	o.Clock.fill()
	if o.Facts == nil {
		o.Facts = func(string) (policy.PodFacts, bool) { return policy.PodFacts{}, false }
	}
	if o.Claims == nil {
		o.Claims = func(context.Context) {}
	}
	if o.Notify == nil {
		o.Notify = func(policy.Notice) {}
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New("", func() (metrics.Stats, bool) { return metrics.Stats{}, false })
	}
	if o.Name == "" {
		o.Name = "quietcore"
	}
	if o.Index == "" {
		o.Index = "90"
	}
	if o.Registration == 0 {
		o.Registration = 10 * time.Second
	}
}

// GCPercent is how much garbage the daemon lets pile up, as a share of what it
// holds. It is idle most of the time and the node's pods pay for its memory: at
// the default of 100 a node of a thousand containers costs 55 MiB, at 40 about 36.
const GCPercent = 40
