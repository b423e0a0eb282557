package policy

import (
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Memory says whether memory follows CPUs.
type Memory string

const (
	MemoryOff       Memory = "off"
	MemoryPreferred Memory = "preferred" // NRI's memory policy, where the runtime has it
	MemoryStrict    Memory = "strict"    // cpuset.mems
)

// Allocation holds the defaults of the last level of precedence.
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

// Authority says who may ask for what.
type Authority struct {
	Profile    Profile            // empty: ProfileDefault
	Namespaces map[Power][]string // that have a power; empty: as the profile says
	// most exclusive CPUs a namespace, withheld and surplus ones included; "*" for the others
	MaxCPUs     map[string]int
	TrustStatus bool // a scheduler writes resource-status
}

// System configures the class SYSTEM.
type System struct {
	CPUs       cpuset.Set // empty: the shared pool
	Exclusive  bool       // the CPUs leave every other pool
	Namespaces []string   // may use the class
}

// Kubelet is what is configured in kubelet on this node.
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
	// NoHeal leaves owners that lost their CPUs, or were given none, as they are. The others
	// wait for CPUs; those that never had any take only what has been free for HealAfter.
	NoHeal         bool
	HealAfter      time.Duration
	Memory         Memory
	Reserved       cpuset.Set
	ReservedStrict bool
	SharedFloor    int // CPUs that the shared pool keeps; 0 means one physical core
	BEFloor        int // CPUs that best effort keeps while it is suppressed; 0 means one physical core
	// MaskUnannounced keeps pods that were never announced off the CPUs that others own.
	MaskUnannounced bool
	// ProtectRequest lets a cap quiet containers of every class, down to their requests.
	ProtectRequest bool
	BEIdle         bool // best effort that was lent nothing runs only where nothing else wants to
	Allocation     Allocation
	LiftContainers bool // lift the quota of each container of a pinned pod, not only of a single one
	System         System
	Authority      Authority
	JobLabel       string // of a pod: names its job where the API server does not; empty: none
	NodeLabels     map[string]string
	Kubelet        Kubelet
}

// arm says that the node is one to which the restrictions for Arm apply that Koordinator's
// proposal of fine-grained CPU orchestration names: FullPCPUs and NUMANodeLevel only.
func (c *Config) arm() bool { return c.NodeLabels[LabelArch] == "arm64" }

func (c *Config) reserved() cpuset.Set { return c.Reserved.Or(c.Kubelet.Reserved) }

func (c *Config) reservedStrict() bool {
	return c.ReservedStrict || c.Kubelet.Options["strict-cpu-reservation"] == "true"
}
