package cpi

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// Container is one container as it was at one moment. It is made once, at the edge of
// a window, and passed on by pointer from the sampler to the incident. It is never
// changed: what is newer is another Container with the same ID.
type Container struct {
	ID        string
	PodUID    string
	Namespace string
	Pod       string
	Name      string
	// Job names the work that it does: the containers of a job do the same, and what is
	// normal for one is normal for all.
	Job string
	// PodClass is the class of its pod: LSE, LSR, LS, BE or SYSTEM. Class is what
	// detection makes of it.
	PodClass string
	Class    Class
	Cgroup   string // below the hierarchy that is counted; empty: not known
	Place    Place
	// Platform is what its CPI may be compared with: CPU model, kind of core and kind
	// of cycles.
	Platform string
	// LimitMilli is its own CPU limit; 0 means none. A cap never raises it.
	LimitMilli int64
	Capping    Capping
	// MovablePool says, of a victim, that the BE pool can leave its L3 domains.
	MovablePool bool
	// Capped says that a cap holds it at this moment.
	Capped bool
}

// String names a container as people do.
func (c *Container) String() string { return c.Namespace + "/" + c.Pod + "/" + c.Name }

// MayBeCapped says whether it may be capped, and if not, why.
func (c *Container) MayBeCapped() (bool, string) {
	switch {
	case c.Capping == NeverCapped:
		return false, "exempt"
	case c.Class == Batch, c.Class == BE, c.Capping == CapAllowed:
		return true, ""
	}
	return false, "of class " + c.Class.String()
}

// Capping says whether the class decides that a container may be capped, or
// something else.
type Capping uint8

const (
	ByClass     Capping = iota // Batch and BE may be capped
	NeverCapped                // exempt; the BE pool is not moved for its sake either
	CapAllowed                 // although its class would forbid it
)

// Class of a container, as far as detection cares.
type Class uint8

const (
	// Other containers are suspects, never victims, and never capped.
	Other Class = iota
	LSE
	LSR
	LS
	// Batch is the class BE with a CPU request.
	Batch
	// BE is the class BE without one: Kubernetes' own BestEffort.
	BE
)

// classNames lists the classes' names in their order.
func classNames() [6]string {
	return [...]string{Other: "OTHER", LSE: "LSE", LSR: "LSR", LS: "LS", Batch: "BATCH", BE: "BE"}
}

func (c Class) String() string { return classNames()[c] }

// MarshalText writes the class as the replay's CSV does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads it.
func (c *Class) UnmarshalText(text []byte) error {
	got, ok := ParseClass(string(text))
	if !ok {
		return fmt.Errorf("class %q is not known; there are LSE, LSR, LS, BATCH and BE", text)
	}
	*c = got
	return nil
}

// ParseClass reads LSE, LSR, LS, BATCH, BE and OTHER.
func ParseClass(name string) (Class, bool) {
	for c, n := range classNames() {
		if n == name {
			return Class(c), true
		}
	}
	return Other, false
}

// LatencySensitive classes are protected: a cap is for their sake.
func (c Class) LatencySensitive() bool { return c == LSE || c == LSR || c == LS }

// InPool says that it runs in the BE pool.
func (c Class) InPool() bool { return c == Batch || c == BE }

// Place is where a container may run; what is empty is unknown.
type Place struct {
	CPUs              *cpuset.Set // nil: not known
	Cores, L3s, Nodes Domains
}

// Domains are the parts of the machine that a container runs on: a bit for each core,
// L3 domain or NUMA node. Numbers wrap at 256; two that fall together make a suspect
// more plausible, never less.
type Domains [4]uint64

// Add domain number i.
func (d *Domains) Add(i int) { d[i/64%4] |= 1 << (i % 64) }

// IsEmpty says that no domain is known.
func (d *Domains) IsEmpty() bool { return *d == Domains{} }

// Intersects says that there is a domain in both.
func (d *Domains) Intersects(o *Domains) bool {
	for i := range d {
		if d[i]&o[i] != 0 {
			return true
		}
	}
	return false
}
