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

// Resources are the request and limit of a pod or container in thousandths of a CPU. LimitMilli is
// NoLimit if there is no limit.
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
	// Resources are the pod's sums; nil while unknown. LimitHidden means that the sum of limits may
	// leave out a container that has no limit.
	Resources    *Resources `json:"resources,omitempty"`
	LimitHidden  bool       `json:"limitHidden,omitempty"`
	CgroupParent string     `json:"cgroupParent,omitempty"`
	CreatedAt    time.Time  `json:"createdAt,omitzero"`
	// Asked is the quota that kubelet wrote for the pod. The zero value means that it follows from
	// Resources, a negative period that it is unknown.
	Asked Quota `json:"asked,omitzero"`
	// DeviceNodes are the NUMA node IDs of the pod's devices; nil: none known.
	DeviceNodes *cpuset.Set `json:"deviceNodes,omitempty"`
	// Facts are what the API server has about the pod; they override Resources and LimitHidden.
	// Nil: not known.
	Facts *PodFacts `json:"facts,omitempty"`
	// Recovered is what the pod owned when the daemon started.
	Recovered *Recovered `json:"recovered,omitempty"`
	// Unread means that the pod was found running and asks to own CPUs, but its cgroup has not been
	// read yet. A Corrected event follows with what it has.
	Unread bool `json:"unread,omitempty"`
	// Claims are the CDI devices by which containers of the pod have CPUs of DRA claims, by container name, as far as
	// they are known. Kubernetes' QoS class leaves them out.
	Claims map[string][]string `json:"claims,omitempty"`
}

// Claim adds a container's claims to the pod's.
func (p *Pod) Claim(container string, devices []string) {
	if len(devices) == 0 {
		return
	}
	if p.Claims == nil {
		p.Claims = map[string][]string{}
	}
	p.Claims[container] = devices
}

// Exclusive reports whether the pod asks to own CPUs.
func (p *Pod) Exclusive() bool {
	c := Class(p.Labels[LabelClass])
	return c == LSE || c == LSR
}

// Recovered is an exclusive allocation that survived a restart of the daemon.
type Recovered struct {
	// CPUs and Withheld are nil if the pod owned none: a set takes 1 KiB, and most pods own
	// nothing.
	CPUs     *cpuset.Set `json:"cpus,omitempty"`
	Withheld *cpuset.Set `json:"withheld,omitempty"`
	From     string      `json:"from"` // kernel, state file or runtime
	// Doubt is how much speaks for a mask in the kernel being a pool's and not the pod's own.
	Doubt int `json:"doubt,omitempty"`
	// Request is the requested number of CPUs; 0: as many as CPUs has.
	Request int `json:"request,omitempty"`
	// ResizedTo is how many of CPUs the pod requests since a resize to fewer that no daemon saw; 0: there was none.
	// The others are free at once, so that no owner loses its CPUs for want of them.
	ResizedTo int `json:"resizedTo,omitempty"`
	// Reasons are the node's policies that decided at that time; they may have changed since.
	Reasons string `json:"reasons,omitempty"`
	// BoundNode is the NUMA node ID whose shared pool an LS pod is bound to, AnyNode if it is bound
	// to none or to several; nil: unknown.
	BoundNode *int `json:"boundNode,omitempty"`
	// BoundNodes are the nodes if there are several.
	BoundNodes *cpuset.Set `json:"boundNodes,omitempty"`
	// Degraded is why the pod runs in the shared pool although it asked for more. It stays there,
	// since a restart must not move a pod.
	Degraded string `json:"degraded,omitempty"`
	// LostNodes are the NUMA node IDs where the pod's CPUs went offline but its memory stays.
	LostNodes *cpuset.Set `json:"lostNodes,omitempty"`
	// Demoted means that the pod owned CPUs before; Since is when it began to wait for CPUs.
	Demoted bool      `json:"demoted,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Several means that more than one container of the pod ran at the same time.
	Several bool `json:"several,omitempty"`
	// Narrowed lists the containers, "" for the pod itself, whose memory nodes were set by us
	// (memory: strict) and not by kubelet's memory manager.
	Narrowed []string `json:"narrowed,omitempty"`
	// Owners lists the containers of the pod that own CPUs of their own, or were refused them.
	Owners []RecoveredContainer `json:"owners,omitempty"`
	// Reservation is set if a newer version gave the CPUs, by rules unknown to this one.
	Reservation *Reservation `json:"reservation,omitempty"`
}

// RecoveredContainer is the same for one container that owns CPUs of its own, with the fields that
// apply to a container.
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
	CPUs       string    `json:"cpus,omitempty"` // the cpuset that kubelet requested
	CgroupPath string    `json:"cgroupPath,omitempty"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	// Asked is Resources exactly as kubelet wrote it. What it leaves open follows from Resources
	// and CPUs.
	Asked Asked `json:"asked,omitzero"`
	// StoredLimits are the limits of ours, in milli-CPUs, that the runtime may have stored; nil:
	// any, if Asked says that it stores one.
	StoredLimits []int64 `json:"storedLimits,omitzero"`
	// FoundCap is a cap in milli-CPUs that its cgroup or the runtime has and no record; 0: none. It has ended.
	FoundCap int64 `json:"foundCap,omitempty"`
	// Claims are the same for this container, sorted.
	Claims []string `json:"claims,omitempty"`
}

// owned is what the pod owned, without siblings kept idle for it.
func (r *Recovered) owned() cpuset.Set {
	if r.CPUs == nil {
		return cpuset.Set{}
	}
	return *r.CPUs
}

// all is what the pod and its containers own and withhold.
func (r *Recovered) all() (all cpuset.Set) {
	if r == nil {
		return all
	}
	all = r.owned()
	if r.Withheld != nil {
		all.AddSet(r.Withheld)
	}
	for i := range r.Owners {
		theirs := r.Owners[i].all()
		all.AddSet(&theirs)
	}
	return all
}

// Event is something that happened on the node.
type Event interface{ event() }

// PodRun is a sandbox that is about to start: the pod's admission.
type PodRun struct {
	Pod Pod `json:"pod"`
}

// PodResized is kubelet's announcement of a pod resize: the changes to its shares and its quota in
// microseconds (0: unchanged, a negative quota: no limit), or the new sums.
type PodResized struct {
	Sandbox   string    `json:"sandbox"`
	Shares    int64     `json:"shares,omitempty"`
	Quota     int64     `json:"quota,omitempty"`
	Period    int64     `json:"period,omitempty"`
	Resources Resources `json:"resources,omitzero"`
}

// PodRemoved is a sandbox that was removed.
type PodRemoved struct {
	Sandbox string `json:"sandbox"`
}

// PodVanished is a pod whose cgroup is gone although the runtime did not report its end.
type PodVanished struct {
	UID string `json:"uid"`
}

// ContainerCreate is a container that is about to be created. It carries the Pod because its
// sandbox may never have been announced.
type ContainerCreate struct {
	Pod       Pod       `json:"pod"`
	Container Container `json:"container"`
}

// ContainerUpdate is a request to change a container: its shares, its quota in microseconds, the
// quota's period, or its cpuset. 0 or empty means unchanged, a negative quota no limit. If
// Resources is set, it is the state after the update.
type ContainerUpdate struct {
	ID        string     `json:"id"`
	Shares    int64      `json:"shares,omitempty"`
	Quota     int64      `json:"quota,omitempty"`
	Period    int64      `json:"period,omitempty"`
	CPUs      string     `json:"cpus,omitempty"`
	Resources *Resources `json:"resources,omitempty"`
	Pod       *Resources `json:"pod,omitempty"` // the pod's sums after the update, if known
}

// ContainerStopped is a container that has no processes left.
type ContainerStopped struct {
	ID string `json:"id"`
}

// Synchronized lists everything that runs, after a start or a reconnection.
type Synchronized struct {
	Pods       []Pod       `json:"pods"`
	Containers []Container `json:"containers"`
	Caps       []Cap       `json:"caps,omitempty"`
	// Freed lists the CPUs of a checkpoint that became free recently; nil: unknown.
	Freed []Freed `json:"freed,omitzero"`
	// Moved is when an owner was last moved to a better place.
	Moved time.Time `json:"moved,omitzero"`
	// Claims are claims of our own DRA driver that were prepared before the restart.
	Claims []RecoveredClaim `json:"claims,omitempty"`
}

// NodeLabels replaces the labels of the Node object.
type NodeLabels struct {
	Labels map[string]string `json:"labels"`
}

// KubeletConfigured is kubelet's own configuration. From then on it replaces what the operator's
// configuration says about kubelet, also after each Reconfigured.
type KubeletConfigured struct {
	Kubelet Kubelet `json:"kubelet"`
}

// KubeletState is kubelet's cpu_manager_state.
type KubeletState struct {
	PolicyName string                           `json:"policyName"`
	Default    cpuset.Set                       `json:"default"`
	Entries    map[string]map[string]cpuset.Set `json:"entries"` // by pod UID and container
}

// Hardware is the current state of the machine.
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

// CapReleased ends a cap before its deadline, for example because it did not help.
type CapReleased struct {
	ID string `json:"id"`
}

// BESuppressed sets how much of its pool best effort may use until further notice; no CPUs: all of
// it.
type BESuppressed struct {
	CPUs cpuset.Set `json:"cpus"`
	// QuotaMilli limits it as a whole, where a set of CPUs cannot; 0: no limit.
	QuotaMilli int64 `json:"quotaMilli,omitempty"`
	// Grouped says that pods of class BE outside of kubelet's best-effort slice are part of what
	// QuotaMilli limits. Each then has its part in PodMilli, by UID, or the least that the kernel
	// takes; the slice has the rest. Otherwise the slice has all of it, and they have no limit.
	Grouped  bool             `json:"grouped,omitempty"`
	PodMilli map[string]int64 `json:"podMilli,omitempty"`
}

// BEKeptOff is the detector's request to keep best effort off the CPUs around a victim, a
// container, for a time; 0 ends it.
type BEKeptOff struct {
	Victim string        `json:"victim"`
	CPUs   cpuset.Set    `json:"cpus"`
	For    time.Duration `json:"for"`
	// Pod is the UID of the only pod that is kept off them; empty: all of best effort. It keeps to those CPUs of its
	// pool that nobody owns, while they are at least Least.
	Pod   string `json:"pod,omitempty"`
	Least int    `json:"least,omitempty"`
}

// Idled is the detector's request that a pod of best effort runs only on otherwise idle CPUs (cpu.idle) for a time; 0
// ends it.
type Idled struct {
	Pod string        `json:"pod"` // its UID
	For time.Duration `json:"for"`
}

// IdleRefused means that the kernel or systemd knows no cpu.idle. It ends every Idled, and none is accepted any more.
type IdleRefused struct{}

// Released ends every cap, and whatever keeps best effort off CPUs of its pool, or on otherwise idle ones.
type Released struct{}

// Tick means that time has passed, and for how much of it the machine slept, which the clock of the other events does
// not count.
type Tick struct {
	Slept time.Duration `json:"slept,omitempty"`
}

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
func (Idled) event()             {}
func (IdleRefused) event()       {}
func (Released) event()          {}
func (Tick) event()              {}

func (h Hardware) onlineCPUs() cpuset.Set {
	if h.Topology != nil {
		return h.Topology.Online()
	}
	return h.Online
}
