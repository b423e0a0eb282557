package world

import (
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// Shell is a daemon under test. The world calls it from one goroutine.
type Shell interface {
	// Start begins a life of the daemon with what the disk holds.
	Start(saved state.Snapshot)
	// Kill ends the life as kill -9 does: none of its ops takes effect any more.
	Kill()
	// Call delivers a request. It does not wait for the answer.
	Call(*Request)
	// Run lets time pass and then everything run until it waits for the world.
	Run(time.Duration) Heard
	// View is the daemon's own view of the node. It is called only between two Runs.
	View() View
}

// Heard is what a shell has produced since the last Run.
type Heard struct {
	Ops     []*Op
	Answers []Answer
	Panics  []string // that nothing in the shell recovered
}

// View is the state of a daemon as the checks need it.
type View struct {
	Synced  bool // it has taken over what runs
	Frozen  bool // it has no machine to decide or save from
	Unread  bool // it withholds what pods that it has not read yet may own
	Settled bool // everything decided is written, read back and saved
	Shared  cpuset.Set
	BE      cpuset.Set
	Online  cpuset.Set // as the daemon knows the machine
	// Grants is what pods own, by UID; offline CPUs included. It is dearer than the rest.
	Grants func() map[string]cpuset.Set
}

// Kind is what an op does.
type Kind string

const (
	Write Kind = "write" // values to a cgroup
	Read  Kind = "read"  // of a cgroup, or a list of its children
	Save  Kind = "save"  // the state file
	Point Kind = "point" // nothing: a moment at which the shell may be killed
)

// Op is something that the shell wants from outside and waits for.
type Op struct {
	Kind   Kind
	Path   string // the cgroup's, or the point's name
	What   string // which read: effective, cpus, allowed or children
	Values cgroup.Values
	State  state.Snapshot
	// Finish is called once, by the world, with the result. An op of a life that is
	// over is never finished.
	Finish func(Result)

	hung bool
}

func (o *Op) key() string {
	if o.What != "" {
		return string(o.Kind) + " " + o.What + " " + o.Path
	}
	if o.Path != "" {
		return string(o.Kind) + " " + o.Path
	}
	return string(o.Kind)
}

// Result is how an op ended.
type Result struct {
	Err   error
	Seen  cgroup.Effective
	Names []string
}

// RequestKind names what happens to a shell.
type RequestKind string

// The runtime's requests, which are answered, and what else the daemon hears.
const (
	RunPod        RequestKind = "RunPodSandbox"
	StopPod       RequestKind = "StopPodSandbox"
	RemovePod     RequestKind = "RemovePodSandbox"
	Create        RequestKind = "CreateContainer"
	StartCtr      RequestKind = "StartContainer"
	PostStart     RequestKind = "PostStartContainer"
	StopCtr       RequestKind = "StopContainer"
	UpdatePod     RequestKind = "UpdatePodSandbox"
	PostUpdatePod RequestKind = "PostUpdatePodSandbox"
	UpdateCtr     RequestKind = "UpdateContainer"
	PostUpdateCtr RequestKind = "PostUpdateContainer"
	RemoveCtr     RequestKind = "RemoveContainer"
	Synchronize   RequestKind = "Synchronize"

	Connected RequestKind = "connected" // a new connection to the runtime
	Lost      RequestKind = "lost"      // its end
	Tick      RequestKind = "tick"
	Audit     RequestKind = "audit"
	Vanish    RequestKind = "vanish" // the round that looks for pods that are gone
	Happened  RequestKind = "event"  // one that does not come from the runtime
)

// Request is one thing that happens to the shell.
type Request struct {
	Kind       RequestKind
	Pod        *Pod
	Container  *Container
	Pods       []*Pod       // of Synchronize
	Containers []*Container // of Synchronize
	Event      policy.Event
	Resources  *api.LinuxCPU // of an update

	sent    time.Time
	offline cpuset.Set // then
	unread  bool       // then: the daemon did not know the owners
	sandbox string     // of the pod at that time
}

// Sandbox is the id of the pod's sandbox that the request is about.
func (r *Request) Sandbox() string { return r.sandbox }

// Answer is the shell's answer to a request.
type Answer struct {
	To    *Request
	CPUs  string // the cpuset that the runtime is to give the container; empty: none
	Quota int64  // in milli-CPUs, policy.NoLimit for none; 0: unchanged
	Err   error

	unasked bool // the runtime had no connection and went on
}
