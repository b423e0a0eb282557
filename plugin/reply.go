package plugin

import (
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// values are the values in a reply; the zero values change nothing.
type values struct {
	cpus, mems  string
	preferNodes string
	env         variable
	quota       *cgroup.Quota
}

// variable is an environment variable; no name, none.
type variable struct{ name, value string }

// envOf is the variable with an owner's CPUs. A container without CPUs of its own gets none: the CPUs
// of a pool change, and an environment does not.
func envOf(name string, d *policy.SetContainer) variable {
	if name == "" || d.Need.Own == nil {
		return variable{}
	}
	return variable{name, text(d.Need.Own)}
}

// valuesOf is a container's whole desired state as values of a reply. An empty cpuset would mean
// "unchanged", so if the runtime stores a set that is not ours the reply has the widest legal one,
// and the pool's mask decides.
func valuesOf(d *policy.SetContainer, t *topology.Topology) values {
	var v values
	switch {
	case d.Foreign: // the other driver's reply has it
	case d.Need.Own != nil:
		v.cpus = text(d.Need.Own)
	case d.StartMask != nil:
		v.cpus = text(d.StartMask)
	case d.Asked.CPUs:
		v.cpus = widest(t)
	}
	if d.Mems != nil {
		v.mems = text(d.Mems)
	}
	if d.PreferNodes != nil {
		v.preferNodes = text(d.PreferNodes)
	}
	if d.QuotaOurs || d.Asked.OurQuota {
		q := cgroup.Quota(d.Quota)
		v.quota = &q
	}
	return v
}

// text and widest keep copies of sets, a kilobyte each, out of the frames of their
// callers: a request runs on a goroutine of its own, and what made its stack grow once
// more cost 2 of 30 µs.
//
//go:noinline
func text(s *cpuset.Set) string { return s.String() }

//go:noinline
func widest(t *topology.Topology) string { return t.Online().String() }

func (v values) isZero() bool { return v == values{} }

func (v values) adjustment(memoryPolicy bool) *api.ContainerAdjustment {
	if v.isZero() {
		return nil
	}
	a := &api.ContainerAdjustment{}
	if v.cpus != "" {
		a.SetLinuxCPUSetCPUs(v.cpus)
	}
	if v.mems != "" {
		a.SetLinuxCPUSetMems(v.mems)
	}
	if v.preferNodes != "" && memoryPolicy {
		mode := api.MpolMode_MPOL_PREFERRED_MANY
		if _, err := strconv.Atoi(v.preferNodes); err == nil {
			mode = api.MpolMode_MPOL_PREFERRED // older kernels know only this one
		}
		a.SetLinuxMemoryPolicy(mode, v.preferNodes)
	}
	if v.env.name != "" {
		a.AddEnv(v.env.name, v.env.value) // over a variable of that name of the container's own
	}
	if v.quota != nil {
		a.SetLinuxCPUQuota(v.quota.Micros)
		if v.quota.Micros > 0 {
			a.SetLinuxCPUPeriod(v.quota.Period)
		}
	}
	return a
}

func (v values) update(id string) *api.ContainerUpdate {
	v.preferNodes, v.env = "", variable{} // fixed at creation
	if v.isZero() {
		return nil
	}
	u := &api.ContainerUpdate{ContainerId: id}
	if v.cpus != "" {
		u.SetLinuxCPUSetCPUs(v.cpus)
	}
	if v.mems != "" {
		u.SetLinuxCPUSetMems(v.mems)
	}
	if v.quota != nil {
		u.SetLinuxCPUQuota(v.quota.Micros)
		if v.quota.Micros > 0 {
			u.SetLinuxCPUPeriod(v.quota.Period)
		}
	}
	return u
}

// atLeast compares versions such as v0.11.0-beta; what is no version counts as
// new, since a development build is.
func atLeast(version string, major, minor int) bool {
	first, rest, ok := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(second)
	if !ok || errA != nil || errB != nil {
		return true
	}
	return a > major || a == major && b >= minor
}
