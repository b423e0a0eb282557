package policy

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Class is Koordinator's class of a pod.
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

// PoolKinds lists them all.
func PoolKinds() []PoolKind {
	return []PoolKind{PoolExclusive, PoolShared, PoolBE, PoolReserved, PoolSystem, PoolUnmanaged}
}

// AnyNode stands for the whole pool where one NUMA node is named.
const AnyNode = -1

// Need says on which CPUs something has to run: on CPUs of its own, or on what
// a pool holds at any time.
type Need struct {
	Own  *cpuset.Set // not nil: exactly these; never written to
	Pool PoolID      // empty where Own is set
}

// Cap is a hard cap on one container with its deadline.
type Cap struct {
	PodUID    string    `json:"podUID"`
	Container string    `json:"container"`
	Milli     int64     `json:"milli"`
	Until     time.Time `json:"until"` // zero: it is over, and may still be found somewhere
	// Limit is what kubelet asks for of the container, in thousandths of a CPU: what the cap
	// is followed by. Nil: not known.
	Limit *int64 `json:"limit,omitempty"`
	// Request is what the container was to be given when Limit was taken down, in thousandths of a
	// CPU: one that has another since was resized. 0: none, or not known.
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

// Decision is the whole desired state of one subject; applying it twice is
// harmless.
type Decision interface{ decision() }

// SetPool gives a pool its CPUs. It comes before the first decision that refers to the
// pool, and whenever the CPUs change; they are never empty.
type SetPool struct {
	ID   PoolID
	CPUs cpuset.Set
	// QuotaMilli limits all that is in the pool's slice together; 0: nothing does.
	QuotaMilli int64
}

// DropPool comes when nothing refers to a pool any more.
type DropPool struct{ ID PoolID }

// SetPod is the desired state of a pod's cgroup.
type SetPod struct {
	Pod  PodRef
	Need Need
	// Owned are the CPUs of containers that own theirs, by name, also of those that do not run.
	Owned []Owned
	Mems  *cpuset.Set // NUMA node IDs; nil: not ours to restrict
	// Quota is what the cgroup is to have. QuotaOurs says that it is not what kubelet
	// asked for. Otherwise the quota is kubelet's business, and Quota what is put back
	// where it was ours; it may be unknown.
	Quota     Quota
	QuotaOurs bool
	// Asked is what kubelet asked for.
	Asked Quota
	// WeightMilli is the request that the pod's weight stands for; 0: kubelet's business.
	WeightMilli int64
	// Idle says that the pod runs only where nothing else wants to (cpu.idle).
	Idle bool
	Why  string
	Rev  uint64
}

// SetContainer is the desired state of a container.
type SetContainer struct {
	Pod       PodRef
	Container ContainerRef
	Need      Need
	// Beside is what its pool has now, where its pod's cgroup has CPUs of other containers as
	// well: it has to start with a mask of its own. Nil: its pod's does.
	Beside *cpuset.Set
	Mems   *cpuset.Set
	// PreferNodes is the memory policy to ask for (memory: preferred); nil: none.
	PreferNodes *cpuset.Set
	// Quota is what the container is to have, QuotaOurs says that it differs from what
	// kubelet asked for, and that is Asked, with what the runtime had stored before.
	Quota     Quota
	QuotaOurs bool
	Asked     Asked
	Cap       *Cap
	Why       string
	Rev       uint64
}

// Owned is what a container of a pod owns.
type Owned struct {
	Container string
	CPUs      cpuset.Set
}

// DropContainer and DropPod say that there is nothing left to enforce.
type DropContainer struct{ ID string }
type DropPod struct{ UID string }

// Notice is for people: it becomes a log line and a Kubernetes Event.
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

// RefusedPod is a pod that the node turned away when it was to run.
type RefusedPod struct {
	UID       string    `json:"podUID"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Code      Code      `json:"code"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since"`
}

// Code names why something was refused; see DESIGN of the codes in docs/semantics.md.
type Code = cpuallocator.Code

const (
	InvalidQoS        Code = "InvalidQoS"
	InvalidAnnotation Code = "InvalidAnnotation"
	Unauthorized      Code = "Unauthorized"
	KubeletOwned      Code = "KubeletOwned"
)

// Refusal is the error of Step: a code that programs read and a sentence that
// people read.
type Refusal = cpuallocator.Error

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}
