package sampler

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/topology"
)

// Counter is what counts. *counter.Counter is one.
type Counter interface {
	Follow(id, cgroupPath string) error
	Forget(id string)
	Enable() error
	Disable() error
	Read(*counter.Reading) error
}

// Node is what runs, and on what.
type Node struct {
	Containers []*cpi.Container
	Topology   *topology.Topology // another one whenever a CPU came or went
}

// Options are what a Sampler is made of. Counter, Node and Life are required.
type Options struct {
	Counter Counter
	// Node is asked at both edges of a window.
	Node func() Node
	// Life is the identity of a cgroup, which no other cgroup of its path ever has:
	// its inode number. An error says that it is not there.
	Life func(cgroup string) (uint64, error)
	// Accounts is the kernel's own account of the CPU time of containers, by ID; nil:
	// what is counted is not compared with it.
	Accounts func([]*cpi.Container) map[string]time.Duration
	// Threads is how many threads a cgroup has. An error, or nil: not known.
	Threads func(cgroup string) (int32, error)
	// Window seconds of every Interval are counted.
	Interval, Window time.Duration
	Rules            sample.Rules
	// Worth is what one count of an event stands for; 0: for one.
	Worth [sample.NumEvents]uint64
	Clock Clock
	Log   *slog.Logger
}

// Clock is time as the sampler sees it. Nil fields are the real thing.
type Clock struct {
	Wall func() time.Time
	// Monotonic is the clock of counter.Reading.At, Boot the one that goes on while
	// the machine is suspended.
	Monotonic, Boot func() time.Duration
	After           func(time.Duration) <-chan time.Time
	// Jitter is when in the first interval the first window opens, so that not all
	// nodes count at once; a number in [0, 1).
	Jitter func() float64
}

func (o *Options) fill() {
	c := &o.Clock
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Monotonic == nil {
		c.Monotonic = func() time.Duration { return clock(unix.CLOCK_MONOTONIC) }
	}
	if c.Boot == nil {
		c.Boot = func() time.Duration { return clock(unix.CLOCK_BOOTTIME) }
	}
	if c.After == nil {
		c.After = time.After
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func clock(id int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // these two clocks are in every kernel
	return time.Duration(ts.Nano())
}

// kept is how far back histories reach; detection looks back ten minutes, and a
// window more is needed where one is late.
const kept = 15 * time.Minute

// Depths of histories: many short windows are kept for less long, so that a
// container never costs more than maxDepth samples.
const (
	minDepth = 4
	maxDepth = 64
)

func depth(interval time.Duration) int {
	return min(max(int(kept/interval)+1, minDepth), maxDepth)
}
