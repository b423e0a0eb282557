// Package cgroup puts CPUs, memory nodes, quota and weight on the cgroups of
// pods and containers, and knows the least number of writes that does it.
//
// It has three parts that do not know each other's insides:
//
//   - Tree plans: which cgroup carries which cpuset, and in which order the
//     differences are written. Pure logic, no I/O.
//   - Driver writes: FS through files, another one through systemd.
//   - Reader reads back, always from files, since only the kernel's own
//     cpuset.cpus.effective proves anything.
//
// # Where a mask goes
//
// On cgroup v2 a cgroup with an empty cpuset.cpus has what its parent has, and
// otherwise the intersection of the two; an intersection that is empty counts
// as the parent's set, silently (kernel, Documentation/admin-guide/cgroup-v2.rst,
// "Cpuset Interface Files"). So a slice whose members all need the same set
// carries it alone, and changing it is one write however many run there:
//
//	kubepods                         -            never written
//	├── burstable                    0-3,6-15     all members need "shared"
//	│   ├── podA                     -            inherits
//	│   └── podB                     -            inherits
//	├── besteffort                   -            needs every CPU: no mask
//	└── podC                         4-5          Guaranteed: its own mask
//
// A slice with one member that differs protects none of them: it carries the
// union of what its members need, and every member its own mask. The same holds
// one level down for a pod and its containers. The slice's own need (what an
// unknown newcomer gets) is always part of the union. What counts is where a
// cgroup lies, not whose it is: a container whose cgroup is elsewhere than its
// pod's widens what it does lie in. Cgroups that a workload makes inside its
// container are left alone: the kernel keeps them within the container's set,
// whatever they carry.
//
// # Limits from outside
//
// Above the slices others rule: an administrator may have given kubepods a mask,
// or the whole node runs in a container. Such a mask is read (LookAbove, and
// Check at any difference), never written. A cgroup that keeps some of its CPUs
// within the limit keeps its mask, which is right again by itself when the limit
// is lifted. A cgroup that keeps none would get, by the kernel's rule, every CPU
// within the limit, owners' included: it gets the CPUs that a pool has there
// instead. Either is a Drift that names the cgroup above (Drift.Above,
// Drift.Outside) for as long as it lasts, and neither is written twice. Where
// every CPU that is left has an owner, the Drift says so (Drift.Trespass).
//
// # The order of a change
//
// A write must never give a cgroup a CPU on which another still runs that has no
// right to it. A plan therefore has two phases. In Shrink each cgroup leaves the
// CPUs it has lost, children before parents; a mask that neither shrinks nor
// grows first becomes the common part of old and new. Where there is no common
// part the cgroup moves in one write, after all others have left: its parent's
// mask is widened for it first (every cgroup below such a parent has a mask of
// its own, so no other gains), because a mask outside its parent's would
// mean the parent's whole set. Owners that trade CPUs, so that none can go
// first, pass through CPUs of the pools that have no owner. In Grow masks become
// final, parents before children. Shrink must be done before a new owner starts; Grow can wait.
package cgroup
