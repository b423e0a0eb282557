package cgroup

import (
	"context"
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// Router is the Driver of a node: each cgroup is written through its manager, units by systemd and
// everything else as files. On cgroup v1, where systemd does not support cpusets, units' masks are
// files and their quota and weight systemd's.
type Router struct {
	// UnitsOnly refuses cgroups that are not units.
	UnitsOnly bool

	files   *FS
	systemd *Systemd
}

// NewRouter combines the two.
func NewRouter(files *FS, systemd *Systemd) *Router { return &Router{files: files, systemd: systemd} }

// Apply writes through the cgroup's manager. There is no way around systemd: what it refuses stays
// unwritten, since raw writes would last only until its next change of the unit and then be lost
// silently.
func (r *Router) Apply(ctx context.Context, path string, v Values) error {
	if !IsUnit(path) {
		if r.UnitsOnly {
			return fmt.Errorf("cgroup %s is not a systemd unit, and cgroup.driver is systemd; auto writes both", path)
		}
		return r.files.Apply(ctx, path, v)
	}
	if r.files.v1 {
		if err := r.files.Apply(ctx, path, Values{CPUs: v.CPUs, Mems: v.Mems}); err != nil {
			return err
		}
		v.CPUs, v.Mems = Mask{}, Mask{}
	}
	return r.systemd.Apply(ctx, path, v)
}

// Recorded is what a cgroup's manager will restore on its own, which helps to find what changed a
// cgroup: ok is false if no manager restores anything.
func (r *Router) Recorded(ctx context.Context, path string) (set cpuset.Set, ok bool, err error) {
	if r.files.v1 || !IsUnit(path) {
		return cpuset.Set{}, false, nil
	}
	set, err = r.systemd.Recorded(ctx, path)
	return set, err == nil, err
}

// Close ends the connection to systemd; the opener of the files closes them.
func (r *Router) Close() error { return r.systemd.Close() }

// exists returns ErrGone if there is no cgroup at path.
func (fs *FS) exists(path string) error {
	g, err := fs.cpusets.group(path)
	if err != nil {
		return fmt.Errorf("look for cgroup %s: %w", path, err)
	}
	g.close()
	return nil
}
