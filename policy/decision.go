package policy

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Class is Koordinator's QoS class of a pod.
type Class string

const (
	LSE    Class = "LSE"
	LSR    Class = "LSR"
	LS     Class = "LS"
	BE     Class = "BE"
	SYSTEM Class = "SYSTEM"
)

// PoolKind names where a container runs.
type PoolKind string

const (
	PoolExclusive PoolKind = "exclusive"
	PoolShared    PoolKind = "shared"
	PoolBE        PoolKind = "be"
	PoolReserved  PoolKind = "reserved"
	PoolSystem    PoolKind = "system"
	PoolUnmanaged PoolKind = "unmanaged"
)

// PoolKinds lists all kinds of pools.
func PoolKinds() []PoolKind {
	return []PoolKind{PoolExclusive, PoolShared, PoolBE, PoolReserved, PoolSystem, PoolUnmanaged}
}

// AnyNode stands for the whole pool in place of a NUMA node ID.
const AnyNode = -1

// Need defines the CPUs that a pod or container has to run on: its own, or those that a pool has at
// any time.
type Need struct {
	Own  *cpuset.Set // not nil: exactly these; never written to
	Pool PoolID      // empty where Own is set
}

// Cap is a hard cap on one container with its deadline.
type Cap struct {
	PodUID    string    `json:"podUID"`
	Container string    `json:"container"`
	Milli     int64     `json:"milli"`
	Until     time.Time `json:"until"` // zero: it has ended, but a cgroup or the runtime's store may still have it
	// Limit is the limit that kubelet set for the container, in thousandths of a CPU; it applies
	// again after the cap. Nil: unknown.
	Limit *int64 `json:"limit,omitempty"`
	// Request is the container's request when Limit was recorded, in thousandths of a CPU. A
	// different request now means that the container was resized since. 0: none, or unknown.
	Request int64 `json:"request,omitempty"`
}

// PodRef and ContainerRef name the subject of a decision.
type PodRef struct {
	UID          string
	Namespace    string
	Name         string
	QoS          QoS
	CgroupParent string
}

type ContainerRef struct {
	ID         string
	Name       string
	CgroupPath string
}

// Decision is the whole desired state of one subject, so applying it twice is harmless.
type Decision interface{ decision() }

// SetPool sets the CPUs of a pool. It precedes the first decision that refers to the pool, and is
// repeated whenever the CPUs change. CPUs is never empty.
type SetPool struct {
	ID   PoolID
	CPUs cpuset.Set
	// QuotaMilli limits the pool's slice; 0: no limit.
	QuotaMilli int64
}

// DropPool follows when no decision refers to the pool any more.
type DropPool struct{ ID PoolID }

// SetPod is the desired state of a pod's cgroup.
type SetPod struct {
	Pod  PodRef
	Need Need
	// Owned lists the CPUs of containers that own CPUs, by name, including containers that do not
	// run.
	Owned []Owned
	Mems  *cpuset.Set // NUMA node IDs; nil: we do not restrict them
	// Quota is what the cgroup should have. QuotaOurs means that it differs from what kubelet
	// requested. Otherwise kubelet manages the quota, and Quota is the value to restore where it
	// was ours; it may be unknown.
	Quota     Quota
	QuotaOurs bool
	// Asked is what kubelet requested.
	Asked Quota
	// WeightMilli is the request that the pod's weight stands for; 0: kubelet manages the weight.
	WeightMilli int64
	// StaleMilli is the same of a weight that an earlier daemon may have left, together with a quota:
	// where it is found both are kubelet's again. 0: none.
	StaleMilli int64
	// Idle means that the pod runs only when the CPU is otherwise idle (cpu.idle).
	Idle bool
	Why  string
	Rev  uint64
}

// SetContainer is the desired state of a container.
type SetContainer struct {
	Pod       PodRef
	Container ContainerRef
	Need      Need
	// StartMask is the CPUs of its pool, if its pod's cgroup also has CPUs of other containers: the
	// container then has to start with a mask of its own. Nil: the pod's mask will do.
	StartMask *cpuset.Set
	// Foreign means that a container of the pod has a claim of another DRA driver, which sets the cpusets of its
	// containers as they are created. The runtime refuses a container whose cpuset two plugins set.
	Foreign bool
	Mems    *cpuset.Set
	// PreferNodes is the memory policy to request (memory: preferred); nil: none.
	PreferNodes *cpuset.Set
	// Quota is what the container should have. QuotaOurs means that it differs from what kubelet
	// requested, which is in Asked together with what the runtime had stored before.
	Quota     Quota
	QuotaOurs bool
	Asked     Asked
	Cap       *Cap
	Why       string
	Rev       uint64
}

// Owned is what one container of a pod owns.
type Owned struct {
	Container string
	CPUs      cpuset.Set
}

// DropContainer and DropPod mean that nothing is left to enforce.
type DropContainer struct{ ID string }
type DropPod struct{ UID string }

// Notice is a message for people: it becomes a log line and a Kubernetes Event.
type Notice struct {
	Pod     PodRef // zero: about the node
	Reason  string // one CamelCase word
	Message string
}

func (SetPool) decision()       {}
func (DropPool) decision()      {}
func (SetPod) decision()        {}
func (SetContainer) decision()  {}
func (DropContainer) decision() {}
func (DropPod) decision()       {}
func (Notice) decision()        {}

// RefusedPod is a pod that was refused at admission.
type RefusedPod struct {
	UID       string    `json:"podUID"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Code      Code      `json:"code"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since"`
}

// Code is the machine-readable reason of a refusal; docs/semantics/refusals.md lists the codes.
type Code = cpuallocator.Code

const (
	InvalidQoS        Code = "InvalidQoS"
	InvalidAnnotation Code = "InvalidAnnotation"
	Unauthorized      Code = "Unauthorized"
	KubeletOwned      Code = "KubeletOwned"
)

// Refusal is the error of Step: a code for programs and a sentence for people.
type Refusal = cpuallocator.Error

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}
