package doctor

import (
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/enablenri"
	"github.com/quietcore/quietcore/internal/kubelet"
	"github.com/quietcore/quietcore/policy"
)

// Facts are what was observed of a node. What could not be observed is the zero value,
// and a field next to it says so.
type Facts struct {
	Root    string         // where the node's file system was looked for
	Profile policy.Profile // that is asked about; empty: none
	Now     time.Time
	Config  ConfigFacts
	Runtime RuntimeFacts
	Others  []Other // other programs that place containers on CPUs
	Kubelet KubeletFacts
	Cgroup  CgroupFacts
	Systemd SystemdFacts
	Kernel  KernelFacts
	Process ProcessFacts
	State   StateFacts
	Daemons []Process // quietcore daemons that run
	// AllProcesses says that all of the machine's processes are visible, not only those
	// of a pod.
	AllProcesses bool
	Lock         LockFacts
	Daemon       DaemonFacts
	API          APIFacts
}

// ConfigFacts are about the daemon's configuration.
type ConfigFacts struct {
	File    string // empty: the defaults
	Err     string // why it is refused; Config is then the default
	Config  *config.Config
	Machine string // why this machine cannot have it
	Node    string // the Node's name; empty: unknown
}

// RuntimeFacts are about the container runtime and its NRI.
type RuntimeFacts struct {
	Names       []enablenri.Runtime // whose socket or configuration is here
	Dir         string              // the configuration that was read; empty: none
	Version     string
	Listening   bool   // the NRI socket accepts connections
	Unclear     string // why the configuration is not understood
	Disabled    bool   // by the configuration on disk
	Closed      bool   // disable_connections
	Request     time.Duration
	Register    time.Duration
	WithoutFile bool // the runtime has no configuration file
}

// Other is a program that is known to set cpusets too.
type Other struct {
	Name  string // its usual name
	Where string // how it was found
	Known bool   // false: an unknown plugin
}

// KubeletFacts are about kubelet, from its files.
type KubeletFacts struct {
	ConfigErr string
	Config    *kubelet.Config // nil: not read
	StateErr  string
	State     *policy.KubeletState // nil: there is none
	Reserved  bool                 // it is known which CPUs are reserved
}

// CgroupFacts are about the cgroup tree.
type CgroupFacts struct {
	Version     int // 0: none is mounted, 1 or 2
	Hybrid      bool
	Controllers []string // of the root
	ReadOnly    bool
	Systemd     bool // there is a kubepods.slice
	Plain       bool // there is a kubepods
	Limited     map[string]cpuset.Set
	Online      cpuset.Set
	Containers  int
}

// SystemdFacts are about the connection to systemd.
type SystemdFacts struct {
	Booted  bool // systemd is the init system
	Sockets []Socket
}

// Socket is a Unix socket.
type Socket struct {
	Path    string
	There   bool
	Answers bool
}

// KernelFacts are about the kernel and its counters.
type KernelFacts struct {
	Release  string
	Lockdown string
	BTF      bool
	PMUs     []string // performance monitoring units of CPUs
	PMU      PMUFacts
	Watchdog bool   // the NMI watchdog holds a counter
	Paranoid int    // kernel.perf_event_paranoid
	Isolated string // CPUs taken from the scheduler
	Resctrl  string // why memory bandwidth cannot be limited; empty: it can, or need not
	Counters *CounterFacts
}

// PMUFacts are about the kind of PMU.
type PMUFacts struct {
	Vendor      string // of the CPUs, on x86
	Virtual     bool   // a hypervisor runs below
	Extended    bool   // an AMD CPU of which the kernel knows all six counters (perfctr_core)
	NoReference bool   // its events are named, and reference cycles are not among them
}

// CounterFacts are the result of opening the counters as the daemon does; nil: not
// tried.
type CounterFacts struct {
	Err    string
	Absent map[string]string // event -> why
}

// ProcessFacts are about this process and its rights.
type ProcessFacts struct {
	UID          int
	Capabilities uint64
	Known        bool
}

// Process is a running process.
type Process struct {
	PID    int
	Config string // its --config; empty: none
}

// StateFacts are about the state directory.
type StateFacts struct {
	Dir      string
	Err      string // it cannot be read
	There    bool   // there is a state file
	Bad      string // why it would not be used
	Rebooted bool
	SavedAt  time.Time
	Overdue  int      // caps whose time was over
	Aside    []string // bad ones that were renamed
	Open     string   // the mode, if others can read it
	ReadOnly bool
	Free     uint64 // bytes
	Known    bool   // ReadOnly and Free
}

// LockFacts are about the lock of the state directory.
type LockFacts struct {
	Known  bool
	Held   bool
	Holder string // what it wrote about itself
}

// DaemonFacts are what the daemon reports of itself.
type DaemonFacts struct {
	Socket       string
	There        bool   // the socket
	Err          string // why it does not answer
	Answers      bool
	Connected    bool
	Synchronised bool
	Containers   int
	Degraded     map[string]string // feature -> why
	Unjudged     string            // how many jobs are judged, where not all are; Uncounted likewise of containers
	Uncounted    string
	// Unannounced are the cgroups of pods that were never announced, Masked those of
	// them that are kept off others' CPUs.
	Unannounced, Masked []string
	Short               []policy.Shortage // of the shared pool
	// Powers are the pods that ask for powers, asked for where a profile is asked about;
	// PowersErr says why they are not known.
	Powers    []policy.PowersView
	PowersErr string
	// Writes are the folders that the kernel lets it write below; none: anywhere, and Unconfined says why.
	Writes     []string
	Unconfined string
	// Denied are the kinds of calls that the kernel denies it; none: Undenied says why.
	Denied   []string
	Undenied string
	// RestartRequired are the keys of the configuration file that wait for a restart.
	RestartRequired []string
}

// APIFacts are about the API server.
type APIFacts struct {
	Off     bool   // by configuration
	Asked   bool   // there was a way to ask
	Err     string // why it does not answer
	NoNode  bool   // there is no such Node
	NoCRD   bool   // NodeResourceTopology is not installed
	Denied  []Right
	Checked int
}

// Right is a permission that the daemon needs.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
	For      string `json:"for"` // what does not work without it
}

func (r Right) String() string {
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	return r.Verb + " " + name
}

// Rights lists the permissions that the daemon needs with a configuration.
func Rights(c *config.Config) []Right {
	k := &c.Kubernetes
	var list []Right
	add := func(group, resource, what string, verbs ...string) {
		for _, v := range verbs {
			list = append(list, Right{Verb: v, Group: group, Resource: resource, For: what})
		}
	}
	lends := c.Reclaim.Mode == config.SwitchEnforce
	if k.Pods || lends {
		add("", "pods", "requests, owners and extended resources of pods", "list", "watch")
	}
	if k.Labels || lends {
		add("", "nodes", "the Node's labels", "list", "watch")
	}
	if c.Mode == config.Observe {
		return list
	}
	if k.Events {
		add("events.k8s.io", "events", "Events on pods", "create", "patch")
	}
	if k.Topology.Enabled {
		add("topology.node.k8s.io", "noderesourcetopologies", "what topology-aware schedulers read", "get", "create",
			"patch")
	}
	if lends {
		add("", "nodes/status", "publishing idle CPUs", "patch")
	}
	if lends && c.Reclaim.Evict || c.CPI.Mode == config.CPIEnforce && c.CPI.EvictAfter > 0 {
		add("", "pods/status", "asking for the eviction of pods of this node", "patch")
	}
	return list
}
