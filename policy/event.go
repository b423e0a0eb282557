package policy

import (
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// QoS is Kubernetes' own class of a pod.
type QoS string

const (
	Guaranteed QoS = "Guaranteed"
	Burstable  QoS = "Burstable"
	BestEffort QoS = "BestEffort"
)

// Resources of a pod or container in thousandths of a CPU. LimitMilli is
// NoLimit where nothing limits it.
type Resources struct {
	RequestMilli int64 `json:"requestMilli"`
	LimitMilli   int64 `json:"limitMilli"`
}

// NoLimit stands for "no limit" wherever a limit or quota is in milli-CPUs.
const NoLimit = -1

// Pod is a pod as the runtime reports it with one of its sandboxes.
type Pod struct {
	UID         string            `json:"uid"`
	Sandbox     string            `json:"sandbox"`
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	QoS         QoS               `json:"qos"`
	// Resources are the pod's sums; nil while unknown. LimitHidden says that the
	// sum of limits may be missing because one container has none.
	Resources    *Resources `json:"resources,omitempty"`
	LimitHidden  bool       `json:"limitHidden,omitempty"`
	CgroupParent string     `json:"cgroupParent,omitempty"`
	CreatedAt    time.Time  `json:"createdAt,omitzero"`
	// Asked is the quota that kubelet wrote for the pod. The zero value says that it
	// follows from Resources, a negative period that it is not known.
	Asked Quota `json:"asked,omitzero"`
	// DeviceNodes are the NUMA node IDs of the pod's devices; nil: none known.
	DeviceNodes *cpuset.Set `json:"deviceNodes,omitempty"`
	// Facts are the API server's word on the pod, over Resources and LimitHidden;
	// nil where it has none.
	Facts *PodFacts `json:"facts,omitempty"`
	// Recovered is what the pod was found to own when the daemon started.
	Recovered *Recovered `json:"recovered,omitempty"`
	// Unread says that the pod was found running, asks to own CPUs, and that what it has
	// is not known yet: a Corrected brings it.
	Unread bool `json:"unread,omitempty"`
}

// Exclusive says whether the pod asks to own CPUs.
func (p *Pod) Exclusive() bool {
	c := Class(p.Labels[LabelClass])
	return c == LSE || c == LSR
}

// Recovered is an exclusive allocation that outlived the daemon.
type Recovered struct {
	// CPUs and Withheld are nil where it owned none: a set takes 1 KiB, and most
	// pods own nothing.
	CPUs     *cpuset.Set `json:"cpus,omitempty"`
	Withheld *cpuset.Set `json:"withheld,omitempty"`
	From     string      `json:"from"` // kernel, state file or runtime
	// Request is how many CPUs were asked for; 0: as many as CPUs has.
	Request int `json:"request,omitempty"`
	// Reasons are the node's policies that decided then; they may be others by now.
	Reasons string `json:"reasons,omitempty"`
	// BoundNode is the NUMA node ID whose shared pool an LS pod is bound to,
	// AnyNode for one that is not or to several; nil: unknown.
	BoundNode *int `json:"boundNode,omitempty"`
	// BoundNodes are the nodes where there are several.
	BoundNodes *cpuset.Set `json:"boundNodes,omitempty"`
	// Degraded is why the pod runs in the shared pool although it asked for more:
	// it stays there, since a restart moves nothing.
	Degraded string `json:"degraded,omitempty"`
	// LostNodes are the NUMA node IDs on which hardware took CPUs and its memory stays.
	LostNodes *cpuset.Set `json:"lostNodes,omitempty"`
	// Demoted says that it owned CPUs before, Since when it began to wait for some.
	Demoted bool      `json:"demoted,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Several says that more than one container of the pod ran at a time.
	Several bool `json:"several,omitempty"`
	// Narrowed are the containers, "" for the pod itself, whose memory nodes are ours (memory:
	// strict), and not what kubelet's memory manager wrote.
	Narrowed []string `json:"narrowed,omitempty"`
	// Owners are the containers of the pod that own CPUs of their own, or were refused some.
	Owners []RecoveredContainer `json:"owners,omitempty"`
	// Reservation says that CPUs were given by a newer version, by rules unknown here.
	Reservation *Reservation `json:"reservation,omitempty"`
}

// RecoveredContainer is the same of one container that owns CPUs of its own, as far as that
// is about a container.
type RecoveredContainer struct {
	Container string `json:"container"`
	Recovered
}

// Container is a container as the runtime reports it.
type Container struct {
	ID         string    `json:"id"`
	Sandbox    string    `json:"sandbox"`
	Name       string    `json:"name"`
	Resources  Resources `json:"resources"`
	Shares     int64     `json:"shares"`
	CPUs       string    `json:"cpus,omitempty"` // the cpuset that kubelet asked for
	CgroupPath string    `json:"cgroupPath,omitempty"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	// Asked is Resources as exactly as kubelet wrote it. What is not known of it follows
	// from Resources and CPUs.
	Asked Asked `json:"asked,omitzero"`
	// StoredLimits are the limits of ours, in milli-CPUs, that the runtime may store; nil: any, where
	// Asked says that it stores one.
	StoredLimits []int64 `json:"storedLimits,omitzero"`
}

// owned is what the pod owned, siblings kept idle for it not included.
func (r *Recovered) owned() cpuset.Set {
	if r.CPUs == nil {
		return cpuset.Set{}
	}
	return *r.CPUs
}

// Event is something that happened on the node.
type Event interface{ event() }

// PodRun is a sandbox about to start: the moment of admission.
type PodRun struct {
	Pod Pod `json:"pod"`
}

// PodResized is what kubelet announces of a pod's resize: what changes of its shares and
// its quota in microseconds, 0 meaning unchanged and a negative quota none; or the new
// sums.
type PodResized struct {
	Sandbox   string    `json:"sandbox"`
	Shares    int64     `json:"shares,omitempty"`
	Quota     int64     `json:"quota,omitempty"`
	Period    int64     `json:"period,omitempty"`
	Resources Resources `json:"resources,omitzero"`
}

// PodRemoved is a sandbox that is gone for good.
type PodRemoved struct {
	Sandbox string `json:"sandbox"`
}

// PodVanished is a pod whose cgroup is gone although the runtime did not report its end.
type PodVanished struct {
	UID string `json:"uid"`
}

// ContainerCreate is a container about to be created. Pod comes along because
// its sandbox may never have been announced.
type ContainerCreate struct {
	Pod       Pod       `json:"pod"`
	Container Container `json:"container"`
}

// ContainerUpdate is a request to change a container: its shares, its quota in
// microseconds or the quota's period, its cpuset. 0 or empty means unchanged, a negative
// quota none. Where Resources is set it is what the container has afterwards.
type ContainerUpdate struct {
	ID        string     `json:"id"`
	Shares    int64      `json:"shares,omitempty"`
	Quota     int64      `json:"quota,omitempty"`
	Period    int64      `json:"period,omitempty"`
	CPUs      string     `json:"cpus,omitempty"`
	Resources *Resources `json:"resources,omitempty"`
	Pod       *Resources `json:"pod,omitempty"` // the pod's sums after it, where known
}

// ContainerStopped is a container whose processes are gone.
type ContainerStopped struct {
	ID string `json:"id"`
}

// Synchronized is everything that runs, after a start or a reconnection.
type Synchronized struct {
	Pods       []Pod       `json:"pods"`
	Containers []Container `json:"containers"`
	Caps       []Cap       `json:"caps,omitempty"`
	// Freed are the CPUs of a checkpoint that have not been free for long; nil: not known.
	Freed []Freed `json:"freed,omitzero"`
	// Moved is when an owner was last moved to a better place.
	Moved time.Time `json:"moved,omitzero"`
}

// NodeLabels replaces the labels of the Node object.
type NodeLabels struct {
	Labels map[string]string `json:"labels"`
}

// KubeletConfigured is what kubelet's own configuration says. From then on it
// stands in for what the operator's configuration says of kubelet, through every
// Reconfigured too.
type KubeletConfigured struct {
	Kubelet Kubelet `json:"kubelet"`
}

// KubeletState is kubelet's cpu_manager_state.
type KubeletState struct {
	PolicyName string                           `json:"policyName"`
	Default    cpuset.Set                       `json:"default"`
	Entries    map[string]map[string]cpuset.Set `json:"entries"` // by pod UID and container
}

// Hardware is the machine as it is now.
type Hardware struct {
	Topology *topology.Topology `json:"-"`
	Online   cpuset.Set         `json:"online"`
}

// Reconfigured replaces the configuration.
type Reconfigured struct {
	Config Config `json:"-"`
}

// CapVerdict is the detector's request to limit a container.
type CapVerdict struct {
	ID    string        `json:"id"`
	Milli int64         `json:"milli"`
	For   time.Duration `json:"for"`
}

// CapReleased ends a cap before its deadline, say because it did not help.
type CapReleased struct {
	ID string `json:"id"`
}

// BESuppressed is how much of its pool best effort is left with until further
// notice; no CPUs: all of it.
type BESuppressed struct {
	CPUs cpuset.Set `json:"cpus"`
	// QuotaMilli limits all of its slice together, where no CPUs would do; 0: nothing does.
	QuotaMilli int64 `json:"quotaMilli,omitempty"`
}

// BEKeptOff is the detector's request that best effort keeps off the CPUs around a
// victim, a container, for a while; 0 ends it.
type BEKeptOff struct {
	Victim string        `json:"victim"`
	CPUs   cpuset.Set    `json:"cpus"`
	For    time.Duration `json:"for"`
}

// Tick says that time has passed.
type Tick struct{}

func (PodRun) event()            {}
func (PodResized) event()        {}
func (PodRemoved) event()        {}
func (PodVanished) event()       {}
func (PodFacts) event()          {}
func (ContainerCreate) event()   {}
func (ContainerUpdate) event()   {}
func (ContainerStopped) event()  {}
func (Synchronized) event()      {}
func (NodeLabels) event()        {}
func (KubeletState) event()      {}
func (KubeletConfigured) event() {}
func (Hardware) event()          {}
func (Reconfigured) event()      {}
func (CapVerdict) event()        {}
func (CapReleased) event()       {}
func (BESuppressed) event()      {}
func (BEKeptOff) event()         {}
func (Tick) event()              {}

func (h Hardware) onlineCPUs() cpuset.Set {
	if h.Topology != nil {
		return h.Topology.Online()
	}
	return h.Online
}
