package cgroup

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/quietcore/quietcore/cpuset"
)

// ErrGone means that the cgroup does not exist, or was removed while it was written. For a caller
// that wants a CPU free, that is success.
var ErrGone = errors.New("the cgroup is gone")

// ErrEmptySet refuses an empty cpuset: written to a file it would mean "all CPUs of the parent",
// the opposite of what it looks like.
var ErrEmptySet = errors.New("an empty set is never written; to go back to the parent's set use Inherit")

// ErrNoIdle means that cpu.idle is not supported here: it needs Linux 5.15, cgroup v2 and, for
// units, systemd 252.
var ErrNoIdle = errors.New("cpu.idle is not supported; it needs Linux 5.15, cgroup v2 and, for a unit, systemd 252")

// NoControllerError means that a cgroup exists but lacks a controller's files.
type NoControllerError struct {
	Path, Controller, File string
}

func (e *NoControllerError) Error() string {
	return fmt.Sprintf(
		"cgroup %s has no %s: controller %q is not enabled for it; enable it in cgroup.subtree_control of the "+
			"parent (kubelet does so for cgroups it creates)",
		e.Path, e.File, e.Controller)
}

// Driver writes values to cgroups. Paths are relative to the cgroup root, with or without a leading
// slash. Apply either writes every value that v sets or returns an error that names path, file and
// value, with errors.Is(err, ErrGone) if the cgroup does not exist. It is safe for concurrent use.
type Driver interface {
	Apply(ctx context.Context, path string, v Values) error
}

// Reader reads what the kernel made of the values. It never follows symbolic
// links and never leaves the cgroup root.
type Reader interface {
	// Effective reads everything; missing cpu controller files count as no quota.
	Effective(path string) (Effective, error)
	// CPUs reads only OwnCPUs and CPUs. "/" is the root of the hierarchy.
	CPUs(path string) (Effective, error)
	// Allowed reads only the effective CPUs: the cheap form for audits.
	Allowed(path string) (cpuset.Set, error)
	// Children lists the names of the cgroups directly below, sorted; "/" is the
	// root of the hierarchy.
	Children(path string) ([]string, error)
}

// Values is what one Apply changes; zero fields stay unchanged.
type Values struct {
	CPUs, Mems Mask
	Quota      *Quota
	Weight     uint64 // cpu.weight, 1 to 10000
	// Idle is cpu.idle: whether the cgroup runs only when the CPU is otherwise idle. The kernel
	// accepts no weight together with true, and forgets the previous one: false requires a weight.
	Idle *bool
}

// idleError reports a contradiction between Idle and Weight.
func (v *Values) idleError() error {
	if v.Idle == nil || *v.Idle == (v.Weight == 0) {
		return nil
	}
	return fmt.Errorf(
		"cpu.idle %t with weight %d: an idle cgroup has no weight, and one that is no longer idle needs one", *v.Idle,
		v.Weight)
}

// Mask is a cpuset to write: a set, or the return to the parent's set. The zero Mask writes
// nothing.
type Mask struct {
	set     *cpuset.Set
	inherit bool
}

// Only is the mask with exactly this set.
func Only(set cpuset.Set) Mask { return Mask{set: &set} }

// Inherit gives up a cgroup's own mask. Kernels refuse to empty the mask of a populated cgroup
// (ENOSPC on 6.1), so the widest valid set is written first: if the second step is refused, the
// first has the same effect.
func Inherit(widest cpuset.Set) Mask { return Mask{set: &widest, inherit: true} }

// IsZero reports whether the mask writes nothing.
func (m Mask) IsZero() bool { return m.set == nil }

// Inherits reports whether the mask goes back to the parent's set.
func (m Mask) Inherits() bool { return m.inherit }

// may lists the masks that a cgroup may have while the mask is written to it, or after a failed
// write; a nil element: no mask.
func (m Mask) may() []*cpuset.Set {
	if m.inherit {
		return []*cpuset.Set{m.set, nil}
	}
	return []*cpuset.Set{m.set}
}

// Set returns the set to write; of Inherit the widest one.
func (m Mask) Set() cpuset.Set {
	if m.set == nil {
		return cpuset.Set{}
	}
	return *m.set
}

func (m Mask) String() string {
	switch {
	case m.set == nil:
		return "unchanged"
	case m.inherit:
		return "inherit"
	}
	return m.set.String()
}

// Quota is CPU time in microseconds for each period.
type Quota struct {
	Micros int64 // negative: no limit
	Period int64 // 0: keep the period that is set
}

// NoQuota lifts the limit.
func NoQuota() *Quota { return &Quota{Micros: -1} }

// String returns the quota in the format of cpu.max.
func (q Quota) String() string {
	text := "max"
	if q.Micros >= 0 {
		text = strconv.FormatInt(q.Micros, 10)
	}
	if q.Period > 0 {
		text += " " + strconv.FormatInt(q.Period, 10)
	}
	return text
}

// Milli returns the quota in thousandths of a CPU, -1 for no limit.
func (q Quota) Milli() int64 {
	if q.Micros < 0 {
		return -1
	}
	if q.Period <= 0 {
		q.Period = defaultPeriod
	}
	whole, rest := q.Micros/q.Period, q.Micros%q.Period
	return whole*1000 + rest*1000/q.Period
}

const defaultPeriod = 100_000

// Effective is the kernel's state of one cgroup.
type Effective struct {
	CPUs, Mems       cpuset.Set // what its tasks may use
	OwnCPUs, OwnMems cpuset.Set // set on the cgroup itself; empty: inherits
	Quota            Quota
	QuotaMilli       int64  // -1 for none
	Weight           uint64 // cpu.weight; 0 without a cpu controller, and for an idle cgroup
	Idle             bool   // cpu.idle
	HasIdle          bool   // the kernel supports cpu.idle here
}
