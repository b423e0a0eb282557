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
	// Start starts the daemon with the state file's content.
	Start(saved state.Snapshot)
	// Kill ends the daemon as kill -9 does: none of its ops takes effect any more.
	Kill()
	// Call delivers a request. It does not wait for the reply.
	Call(*Request)
	// Run lets time pass, then runs the daemon until everything in it waits for the world.
	Run(time.Duration) Output
	// View is the daemon's own view of the node. It is called only between two Runs.
	View() View
}

// Output is what a shell has produced since the last Run.
type Output struct {
	Ops     []*Op
	Answers []Answer
	Panics  []string // that nothing in the shell recovered
}

// View is the state of a daemon as the checks need it.
type View struct {
	Synced  bool // it has taken over running pods
	Frozen  bool // it has no machine to decide or save from
	Unread  bool // there are pods whose cgroups it has not read, and it withholds CPUs that they may own
	Settled bool // everything decided is written, read back and saved
	Shared  cpuset.Set
	BE      cpuset.Set
	Online  cpuset.Set // as far as the daemon knows
	// Grants are the CPUs that pods and claims own, by UID, including offline ones. It costs more than the rest.
	Grants func() map[string]cpuset.Set
}

// Kind is what an op does.
type Kind string

const (
	Write Kind = "write" // values to a cgroup
	Read  Kind = "read"  // of a cgroup, or a list of its children
	Save  Kind = "save"  // the state file
	Point Kind = "point" // a failpoint: the shell may be killed there
)

// Op is an I/O operation of the shell, which waits for its end.
type Op struct {
	Kind   Kind
	Path   string // the cgroup's, or the point's name
	What   string // which read: effective, cpus, allowed or children
	Values cgroup.Values
	State  state.Snapshot
	// Finish is called once, by the world, with the result. Ops of a daemon that was killed are never
	// finished.
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

// RequestKind is the kind of an input of the shell.
type RequestKind string

// The runtime's requests, which need a reply, and the other inputs.
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

	// kubelet's calls of the DRA driver, which need an answer too
	Prepare   RequestKind = "NodePrepareResources"
	Unprepare RequestKind = "NodeUnprepareResources"

	Connected RequestKind = "connected" // the runtime has connected
	Lost      RequestKind = "lost"      // its connection is lost
	Tick      RequestKind = "tick"
	Audit     RequestKind = "audit"
	Vanish    RequestKind = "vanish" // a round that looks for pods that are gone
	Happened  RequestKind = "event"  // an event that does not come from the runtime
)

// Request is one input of the shell.
type Request struct {
	Kind       RequestKind
	Pod        *Pod
	Container  *Container
	Claim      *Claim       // of a call of the DRA driver
	Pods       []*Pod       // of Synchronize
	Containers []*Container // of Synchronize
	Event      policy.Event
	Resources  *api.LinuxCPU // of an update

	sent    time.Time
	offline cpuset.Set // when it was sent
	unread  bool       // the daemon did not know all owners when it was sent
	sandbox string     // of the pod when it was queued
}

// Sandbox is the ID of the pod's sandbox that the request is about.
func (r *Request) Sandbox() string { return r.sandbox }

// Answer is the shell's answer to a request.
type Answer struct {
	To    *Request
	Claim []cpuset.Set // that a claim was given
	CPUs  string       // the cpuset that the runtime has to set for the container; empty: none
	Quota int64        // in milli-CPUs, policy.NoLimit for none; 0: unchanged
	Err   error

	unconnected bool // the runtime had no connection and went on without a reply
}
