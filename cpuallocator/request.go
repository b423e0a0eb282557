package cpuallocator

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// BindPolicy defines how a request lies on cores.
type BindPolicy uint8

const (
	FullPCPUs     BindPolicy = iota // most whole cores
	SpreadByPCPUs                   // most distinct cores
)

// SMT defines what a request demands of the other threads of its cores.
type SMT uint8

const (
	SMTNone    SMT = iota
	SMTIsolate     // one CPU on each of n cores, the siblings withheld
	SMTAlign       // whole cores or an SMTAlignmentError
	SMTRoundUp     // whole cores, the surplus usable
)

// ExclusivePolicy defines whose cores or NUMA nodes a request avoids: those of owners with the same
// policy.
type ExclusivePolicy uint8

const (
	ExclusiveNone ExclusivePolicy = iota
	PCPULevel
	NUMANodeLevel
)

// NUMAStrategy defines which NUMA node is taken among those that fit equally well.
type NUMAStrategy uint8

const (
	MostAllocated    NUMAStrategy = iota // best fit: the fullest that holds it
	LeastAllocated                       // the emptiest
	DistributeEvenly                     // equal shares over the fewest nodes that can hold it evenly
)

// Alignment defines how much NUMA alignment is demanded.
type Alignment uint8

const (
	AlignNone       Alignment = iota
	AlignBestEffort           // prefer few nodes
	AlignRestricted           // no more nodes than an empty machine would need; see Request.BySocket
	AlignSingleNode           // one node
)

// Request is a request to the allocator.
type Request struct {
	CPUs              int
	Bind              BindPolicy
	BindRequired      bool // Bind is a demand, not a preference
	SMT               SMT
	Exclusive         ExclusivePolicy
	ExclusiveRequired bool // ExclusivityError instead of a fallback
	Strategy          NUMAStrategy
	Alignment         Alignment
	BySocket          bool // AlignRestricted: allow more nodes on as few sockets as an empty machine needs
	// Keep must be in the result: the current CPUs of an owner that grows. They need not be in the
	// free set.
	Keep cpuset.Set
	// Nodes restricts the result to these NUMA node IDs; empty means all.
	Nodes cpuset.Set
}

// Held are the CPUs of one owner with an exclusive policy.
type Held struct {
	CPUs      cpuset.Set
	Exclusive ExclusivePolicy
}

// Result holds the CPUs of a request.
type Result struct {
	CPUs     cpuset.Set // what the owner may run on; more than requested under SMTRoundUp
	Withheld cpuset.Set // siblings kept idle under SMTIsolate
}

// Code is the machine-readable reason of a refusal; the values are part of the CLI contract.
type Code string

const (
	InsufficientCPUs      Code = "InsufficientCPUs"
	SMTAlignmentError     Code = "SMTAlignmentError"
	TopologyAffinityError Code = "TopologyAffinityError"
	ExclusivityError      Code = "ExclusivityError"
	InvalidRequest        Code = "InvalidRequest"
)

// Error is a refusal: a result, not a failure.
type Error struct {
	Code    Code
	Message string // one sentence with the numbers in it
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }
