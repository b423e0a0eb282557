package policy

import (
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Memory defines whether memory follows CPUs.
type Memory string

const (
	MemoryOff       Memory = "off"
	MemoryPreferred Memory = "preferred" // NRI's memory policy, if the runtime supports it
	MemoryStrict    Memory = "strict"    // cpuset.mems
)

// Allocation holds the defaults, which have the lowest precedence.
type Allocation struct {
	Bind              cpuallocator.BindPolicy
	BindRequired      bool
	Exclusive         cpuallocator.ExclusivePolicy
	ExclusiveRequired bool
	Strategy          cpuallocator.NUMAStrategy
	Alignment         cpuallocator.Alignment
	SMT               cpuallocator.SMT
	SMTRequired       bool // siblings kept idle are not taken back for later pods of the shared pool
	Compact           Compact
}

// Authority defines which namespaces may use which powers.
type Authority struct {
	Profile    Profile            // empty: ProfileDefault
	Namespaces map[Power][]string // namespaces that have a power; empty: the profile decides
	// maximum of exclusive CPUs a namespace, withheld and surplus ones included; "*": all other
	// namespaces
	MaxCPUs     map[string]int
	TrustStatus bool // a scheduler writes resource-status
}

// System configures the class SYSTEM.
type System struct {
	CPUs       cpuset.Set // empty: the shared pool
	Exclusive  bool       // no other pool has these CPUs
	Namespaces []string   // may use the class
}

// ClaimShare is what claims of our own DRA driver may have of a device. Owners leave as many CPUs free as claims do not
// have yet, so that no claim is refused for owners that a scheduler of claims does not see. Shares have no CPU in
// common.
type ClaimShare struct {
	Within cpuset.Set // the CPUs of the device
	CPUs   int        // how many of them
}

// Kubelet is the part of kubelet's configuration on this node that matters here.
type Kubelet struct {
	Static   bool              `json:"static,omitempty"`
	Options  map[string]string `json:"options,omitempty"`
	Reserved cpuset.Set        `json:"reserved"`
	// none, best-effort, restricted, single-numa-node
	TopologyPolicy string `json:"topologyPolicy,omitempty"`
}

// Config is everything that the operator decides. The zero Config is the default.
type Config struct {
	Degrade bool // admission: put a pod that violates a rule in the shared pool instead of refusing it
	// NoHeal leaves owners that lost their CPUs, or got none, as they are. Otherwise they wait for
	// CPUs; an owner that never had any takes only CPUs that have been free for HealAfter.
	NoHeal         bool
	HealAfter      time.Duration
	Memory         Memory
	Reserved       cpuset.Set
	ReservedStrict bool
	SharedFloor    int // CPUs that the shared pool keeps; 0 means one physical core
	BEFloor        int // CPUs that best effort keeps while it is suppressed; 0 means one physical core
	// MaskUnannounced keeps pods that were never announced off owned CPUs.
	MaskUnannounced bool
	// ProtectRequest allows caps on containers of every class, down to their requests.
	ProtectRequest bool
	BEIdle         bool // best effort without lent CPUs runs only when the CPU is otherwise idle
	// BEGrouped makes a pod of class BE outside of the best-effort slice weigh as little as those of
	// lent CPUs, whatever CPUs it requests.
	BEGrouped      bool
	Allocation     Allocation
	LiftContainers bool // lift the quota of each container of a pinned pod, not only of a single one
	System         System
	Authority      Authority
	ClaimShares    []ClaimShare // what claims may have; none: they and owners have the same CPUs
	ClaimsCounted  bool         // Kubernetes counts CPUs of our claims among those of pods
	JobLabel       string       // the pod label that names its job if the API server does not; empty: none
	NodeLabels     map[string]string
	Kubelet        Kubelet
}

// arm reports whether the node is subject to the restrictions for Arm in Koordinator's proposal of
// fine-grained CPU orchestration: only FullPCPUs and NUMANodeLevel are supported.
func (c *Config) arm() bool { return c.NodeLabels[LabelArch] == "arm64" }

func (c *Config) reserved() cpuset.Set { return c.Reserved.Or(c.Kubelet.Reserved) }

func (c *Config) reservedStrict() bool {
	return c.ReservedStrict || c.Kubelet.Options["strict-cpu-reservation"] == "true"
}
