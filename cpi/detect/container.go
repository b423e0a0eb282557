package detect

import (
	"fmt"
	"time"
)

// Class of a container, as far as the detector cares.
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

var classWords = [...]string{Other: "OTHER", LSE: "LSE", LSR: "LSR", LS: "LS", Batch: "BATCH", BE: "BE"}

func (c Class) String() string { return classWords[c] }

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
func ParseClass(word string) (Class, bool) {
	for c, w := range classWords {
		if w == word {
			return Class(c), true
		}
	}
	return Other, false
}

func (c Class) latencySensitive() bool { return c == LSE || c == LSR || c == LS }

// inPool says that it runs in the BE pool.
func (c Class) inPool() bool { return c == Batch || c == BE }

// Domains are the parts of the machine that a container runs on: a bit a core,
// L3 domain or NUMA node. Numbers wrap at 256; two that fall together make a
// suspect more plausible, never less.
type Domains [4]uint64

// Add domain number i.
func (d *Domains) Add(i int) { d[i/64%4] |= 1 << (i % 64) }

func (d *Domains) empty() bool { return *d == Domains{} }

func (d *Domains) meets(o *Domains) bool {
	for i := range d {
		if d[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// Place is where a container may run; what is empty is unknown.
type Place struct{ Cores, L3, Nodes Domains }

// Container is what has to be known of a container beside its samples.
type Container struct {
	ID       string
	Job      string // owner workload: the containers that do the same work
	Platform string // CPU model and kind of core
	Class    Class
	Place    Place
	// LimitMilli is its own CPU limit; 0 means none. A cap never raises it.
	LimitMilli int64
	// Exempt containers are never capped, nor moved; OptIn lets one be capped
	// whose class would forbid it.
	Exempt, OptIn bool
	// MovablePool says, of a victim, that the BE pool can leave its L3 domain.
	MovablePool bool
	// Capped says that somebody holds it under a cap. What it does then is not
	// what is normal for its job.
	Capped bool
}

// mayBeCapped says whether, and if not, why.
func (c *Container) mayBeCapped() (bool, string) {
	switch {
	case c.Exempt:
		return false, "exempt"
	case c.Class == Batch, c.Class == BE, c.OptIn:
		return true, ""
	}
	return false, "of class " + c.Class.String()
}

// Ref is the detector's short name of a container, valid until Forget.
type Ref int32

// Sample is one window of one container.
type Sample struct {
	Ref   Ref
	At    time.Time // the window's end
	Usage float64   // CPU-seconds per second
	CPI   float64   // 0: none was measured; Usage counts all the same
	// Misses are LLC misses a second; 0: not known.
	Misses float64
	// Threads of the container; 0: not known.
	Threads int32
}
