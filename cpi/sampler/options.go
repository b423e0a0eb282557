package sampler

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Counter counts; *counter.Counter implements it.
type Counter interface {
	Follow(id, cgroupPath string) error
	Forget(id string)
	// Enable and Disable read what they begin and end.
	Enable(*counter.Reading) error
	Disable(*counter.Reading) error
	SetSkip(cpuset.Set) error
}

// Node is what runs, and the machine it runs on.
type Node struct {
	Containers []*cpi.Container
	Topology   *topology.Topology // replaced whenever a CPU goes online or offline
	Skip       cpuset.Set         // CPUs that are left alone: nothing is counted there
}

// Options configure a Sampler. Counter, Node and CgroupID are required.
type Options struct {
	Counter Counter
	// Node is called at both edges of a window.
	Node func() Node
	// CgroupID identifies a cgroup; no later cgroup with the same path has the same ID
	// (the inode number, for example). An error means that the cgroup does not exist.
	CgroupID func(cgroup string) (uint64, error)
	// Accounts returns the kernel's own account of the containers, by ID.
	// nil: counts are not compared with it.
	Accounts func([]*cpi.Container) map[string]sample.Used
	// Most is how many containers are followed; 0: as many as the counter takes. Of more, as
	// where the Budget leaves fewer places, sample.Choose says who is counted. Of the others
	// the usage is known by Accounts.
	Most int
	// Questions names the victims that may be disturbed, and whom it is known to watch with
	// them. It is called before each window. nil: nobody is in question.
	Questions func() []cpi.Question
	// Short is asked between two intervals' windows: 0, or how long further windows are to be,
	// as a test runs. Those count the Questions with a test alone, and cost Budget.Test at most.
	// nil: there are none.
	Short func() time.Duration
	// Budget bounds what counting takes. The zero value: nothing does.
	Budget Budget
	// LeaveOut has the counter leave out events, which it may until the next call, and why.
	// Required with a Budget.
	LeaveOut func(events [sample.NumEvents]bool, why string) error
	// Waits says that the counter counts run queue waits, Causes that it does by cause.
	Waits, Causes bool
	// Taken returns the time so far that nobody had, by CPU. nil: it is not known.
	Taken func() []sample.Taken
	// Threads returns the number of a cgroup's threads. nil, or an error: unknown.
	Threads func(cgroup string) (int32, error)
	// Window is the counted part of every Interval.
	Interval, Window time.Duration
	Rules            sample.Rules
	// Begin is called at the beginning of every interval but those that a window was late
	// for: moments that say nothing about when windows open. nil: nobody is told.
	Begin func()
	// Worth is the weight of one count of an event; 0 means 1.
	Worth [sample.NumEvents]uint64
	Clock Clock
	Log   *slog.Logger
}

// Clock is the sampler's source of time. Nil fields use the system's clocks.
type Clock struct {
	Wall func() time.Time
	// Monotonic is the clock of counter.Reading.At. Boot also advances while the
	// machine is suspended.
	Monotonic, Boot func() time.Duration
	After           func(time.Duration) <-chan time.Time
	// Jitter places each window in its interval, so that nobody can foresee it and nodes
	// do not all count at once; a number in [0, 1).
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
	if o.Most == 0 {
		o.Most = math.MaxInt
	}
	if o.Questions == nil {
		o.Questions = func() []cpi.Question { return nil }
	}
	if o.Begin == nil {
		o.Begin = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func clock(id int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts) // cannot fail: every kernel has these two clocks
	return time.Duration(ts.Nano())
}

// kept is how far back histories reach. Detection looks back ten minutes; the rest
// allows for late windows.
const kept = 15 * time.Minute

// Bounds of a history's length. With short windows histories reach less far back, so
// that a container never costs more than maxDepth samples.
const (
	minDepth = 4
	maxDepth = 64
)

func depth(interval time.Duration) int {
	return min(max(int(kept/interval)+1, minDepth), maxDepth)
}
