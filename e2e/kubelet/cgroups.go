package kubelet

import (
	"strings"

	"github.com/quietcore/quietcore/e2e/wire"
)

// Driver is how kubelet and the runtime make cgroups.
type Driver string

// The drivers: as directories, or as units of systemd.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Drivers are all that there are.
func Drivers() []Driver { return []Driver{Cgroupfs, Systemd} }

// CgroupName is kubelet's own name of a cgroup, the same for both drivers, for
// example {"kubepods", "burstable", "pod8d1b-1"}.
type CgroupName []string

// Root is above all pods.
func Root() CgroupName { return CgroupName{"kubepods"} }

// ClassCgroup is above the pods of a class; Guaranteed pods are right below Root.
func ClassCgroup(class string) CgroupName {
	if class == Guaranteed {
		return Root()
	}
	return CgroupName{"kubepods", strings.ToLower(class)}
}

// BestEffortCPU is what kubelet gives the cgroup of the BestEffort class.
func BestEffortCPU() CPU { return CPU{Shares: minShares} }

// CgroupName of the pod.
func (p *Pod) CgroupName() CgroupName {
	return append(ClassCgroup(p.ClassOf()), "pod"+strings.ReplaceAll(p.UID, "/", "_"))
}

// Unit is the name of the cgroup's slice. A dash means one level down to systemd,
// so those within a name become underscores.
func (n CgroupName) Unit() string {
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = strings.ReplaceAll(p, "-", "_")
	}
	return strings.Join(parts, "-") + ".slice"
}

// Parent is one level up; that of Root is the root slice.
func (n CgroupName) Parent() CgroupName { return n[:len(n)-1] }

// ParentUnit is the slice that the cgroup's slice is in.
func (n CgroupName) ParentUnit() string {
	if len(n) == 1 {
		return "-.slice"
	}
	return n.Parent().Unit()
}

// Path is the cgroup below the cgroup root.
func (d Driver) Path(n CgroupName) string {
	var path string
	for i := range n {
		if d == Systemd {
			path += "/" + n[:i+1].Unit()
		} else {
			path += "/" + n[i]
		}
	}
	return path
}

// ContainerPath is where containerd puts a container of the pod.
func (d Driver) ContainerPath(p *Pod, id string) string {
	if d == Systemd {
		id = "cri-containerd-" + id + ".scope"
	}
	return d.Path(p.CgroupName()) + "/" + id
}

// SliceProperties are what libcontainer starts a slice with, before its limits.
func SliceProperties(n CgroupName) []wire.Property {
	yes, no := true, false
	return []wire.Property{
		{Name: "Description", Text: "libcontainer container " + n.Unit()},
		{Name: "Wants", Strings: []string{n.ParentUnit()}},
		{Name: "MemoryAccounting", Bool: &yes},
		{Name: "CPUAccounting", Bool: &yes},
		{Name: "IOAccounting", Bool: &yes},
		{Name: "TasksAccounting", Bool: &yes},
		{Name: "DefaultDependencies", Bool: &no},
	}
}

// quotaStep is systemd's resolution of a quota: one percent of a CPU.
const quotaStep = 10000

const second = 1000000

// Rounded is the configuration with a quota that systemd can hold. libcontainer
// rounds up, so that a container's exact one still fits below, and writes the
// rounded one into the file too.
func (c CPU) Rounded() CPU {
	if c.Quota > 0 {
		c.Quota = c.perSecond() * c.period() / second
	}
	return c
}

func (c CPU) period() int64 {
	if c.Period == 0 {
		return Period
	}
	return c.Period
}

func (c CPU) perSecond() int64 {
	exact := c.Quota * second / c.period()
	return (exact + quotaStep - 1) / quotaStep * quotaStep
}

// Infinity is systemd's value for no limit.
const Infinity = ^uint64(0)

// Properties are what libcontainer sets on a unit for the configuration.
func (c CPU) Properties() []wire.Property {
	var out []wire.Property
	number := func(name string, v uint64) { out = append(out, wire.Property{Name: name, Uint: &v}) }
	if c.Shares != 0 {
		number("CPUWeight", uint64(Weight(c.Shares)))
	}
	if c.Period != 0 {
		number("CPUQuotaPeriodUSec", uint64(c.Period))
	}
	if c.Quota != 0 || c.Period != 0 {
		perSecond := Infinity
		if c.Quota > 0 {
			perSecond = uint64(c.perSecond())
		}
		number("CPUQuotaPerSecUSec", perSecond)
	}
	if c.CPUs != 0 {
		out = append(out, wire.Property{Name: "AllowedCPUs", Bytes: firstCPUs(c.CPUs)})
	}
	return out
}

// firstCPUs is a mask of the CPUs 0 to n-1, the lowest in the first byte.
func firstCPUs(n int) []byte {
	mask := make([]byte, (n+7)/8)
	for cpu := range n {
		mask[cpu/8] |= 1 << (cpu % 8)
	}
	return mask
}

// File is one write to a file of a cgroup.
type File struct{ Name, Content string }

// Files are what libcontainer writes into the cgroup for the configuration, with
// systemd after the properties. What is not given is not written; an empty cpuset
// never is.
func (c CPU) Files() []File {
	var out []File
	if c.Shares != 0 {
		out = append(out, File{"cpu.weight", c.WeightFile()})
	}
	if c.Quota != 0 || c.Period != 0 {
		out = append(out, File{"cpu.max", c.MaxFile()})
	}
	if c.CPUs != 0 {
		out = append(out, File{"cpuset.cpus", c.CPUsFile()})
	}
	return out
}
