package cpi

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// Container is one container at one moment. It is made once, at the edge of a window,
// and passed by pointer from the sampler to the incident. It is immutable: a newer view
// is another Container with the same ID.
type Container struct {
	ID        string
	PodUID    string
	Namespace string
	Pod       string
	Name      string
	// Job names the container's work. The containers of a job do the same, so they
	// share what is normal.
	Job      string
	PodClass string // LSE, LSR, LS, BE or SYSTEM
	Claims   string // of CPUs, that it has, as the policy names them; empty: none
	Cgroup   string // path below the counted hierarchy; empty: unknown
	Place    Place
	// Platform says which CPIs are comparable: CPU model and kind of core; to the detector
	// also the kind of cycles, which may change from one window to the next.
	Platform string
	// LimitMilli is the container's own CPU limit; 0: none. A cap never raises it.
	LimitMilli int64
	Class      Class // the detector's
	Capping    Capping
	// MovablePool says, of a victim, that the BE pool can leave its L3 domains.
	MovablePool bool
	// Capped says that a cap is in force.
	Capped bool
	// MayIdle says that it can be let run on otherwise idle CPUs alone, and is not always.
	MayIdle bool
	// MayNarrow says that it can be held back from memory.
	MayNarrow bool
}

// HostNamespace is that of units of the host. None of Kubernetes has such a name.
const HostNamespace = "(host)"

// OfHost says that a job is a unit of the host.
func OfHost(job string) bool { return strings.HasPrefix(job, HostNamespace+"/") }

// String returns namespace/pod/container.
func (c *Container) String() string { return c.Namespace + "/" + c.Pod + "/" + c.Name }

// MayBeCapped says whether the container may be capped, and if not, why.
func (c *Container) MayBeCapped() (bool, string) {
	switch {
	case c.Capping == NeverCapped:
		return false, "exempt"
	case c.Class == Batch, c.Class == BE, c.Capping == CapAllowed:
		return true, ""
	case c.Class == Host:
		return false, "a service of the host"
	}
	return false, "of class " + c.Class.String()
}

// Capping says whether a container's class decides whether it may be capped.
type Capping uint8

const (
	ByClass     Capping = iota // Batch and BE may be capped
	NeverCapped                // exempt; the BE pool is not moved for it either
	CapAllowed                 // despite its class
)

// Class is a container's class in detection.
type Class uint8

const (
	// Other containers are suspects, but never victims and never capped.
	Other Class = iota
	LSE
	LSR
	LS
	// Batch is a container of class BE with a CPU request.
	Batch
	// BE is a container of class BE without one: Kubernetes' BestEffort.
	BE
	// Host is no container: a unit of the host's services, or the kernel's threads. It is a
	// suspect, and never a victim and never capped.
	Host
)

// classNames lists the names in the order of the classes.
func classNames() [7]string {
	return [...]string{Other: "OTHER", LSE: "LSE", LSR: "LSR", LS: "LS", Batch: "BATCH", BE: "BE",
		Host: "HOST"}
}

func (c Class) String() string { return classNames()[c] }

// MarshalText writes the class as the replay's CSV does.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (c *Class) UnmarshalText(text []byte) error {
	got, ok := ParseClass(string(text))
	if !ok {
		return fmt.Errorf("class %q is not known; there are LSE, LSR, LS, BATCH and BE", text)
	}
	*c = got
	return nil
}

// ParseClass parses LSE, LSR, LS, BATCH, BE and OTHER.
func ParseClass(name string) (Class, bool) {
	for c, n := range classNames() {
		if n == name {
			return Class(c), true
		}
	}
	return Other, false
}

// LatencySensitive says that the class is protected by caps.
func (c Class) LatencySensitive() bool { return c == LSE || c == LSR || c == LS }

// InPool says that containers of the class run in the BE pool.
func (c Class) InPool() bool { return c == Batch || c == BE }

// Place is where a container may run. An empty field is unknown.
type Place struct {
	CPUs              *cpuset.Set // nil: unknown
	Cores, L3s, Nodes Domains
	// Rooms are where best effort may be moved for the sake of who runs here; nil: nowhere.
	Rooms *Rooms
}

// Rooms have the farthest first. One with nothing left is none.
type Rooms [2]Room

// Room is what best effort's pool has off some CPUs.
type Room struct {
	Off  cpuset.Set
	Left int // CPUs of the pool off them that nobody owns
}

// Domains is a set of cores, L3 domains or NUMA nodes that a container runs on. Numbers
// wrap at 256; a collision makes a suspect more plausible, never less.
type Domains [4]uint64

// Add adds domain number i.
func (d *Domains) Add(i int) { d[i/64%4] |= 1 << (i % 64) }

// IsEmpty says that no domain is known.
func (d *Domains) IsEmpty() bool { return *d == Domains{} }

// Intersects says that the two have a domain in common.
func (d *Domains) Intersects(o *Domains) bool {
	for i := range d {
		if d[i]&o[i] != 0 {
			return true
		}
	}
	return false
}
