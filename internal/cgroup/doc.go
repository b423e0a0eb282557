// Package cgroup sets CPUs, memory nodes, quota and weight on the cgroups of pods and containers,
// with the least number of writes.
//
// It has three parts that do not depend on each other's internals:
//
//   - Tree plans: which cgroup carries which cpuset, and in which order the
//     differences are written. Pure logic, no I/O.
//   - Driver writes: FS through files, another one through systemd.
//   - Reader reads back, always from files, since only the kernel's own
//     cpuset.cpus.effective is proof.
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
// A slice with one member that differs serves none of them: its mask is the union of what its
// members need, and every member has its own mask. The same holds one level down for a pod and its
// containers. The slice's own need (the CPUs of an unknown new member) is always part of the union.
// What counts is where a cgroup lies, not which pod it belongs to: a container whose cgroup is
// outside its pod's widens the cgroups in which it does lie. Cgroups that a workload creates inside
// its container are left alone: the kernel keeps them within the container's set, whatever masks
// they have.
//
// # Limits from outside
//
// The cgroups above the slices are not ours: an administrator may have set a mask on kubepods, or
// the whole node runs in a container. Such a mask is read (by LookAbove, and by Check when a cgroup
// has drifted), never written. A cgroup that keeps some of its CPUs within the limit keeps its
// mask, which becomes right by itself when the limit is lifted. A cgroup that keeps none would get,
// by the kernel's rule, every CPU within the limit, including those of owners: it gets the CPUs
// that a pool has there instead. Both cases are a Drift that names the cgroup above (Drift.Above,
// Drift.Outside) for as long as they last, and neither is written twice. If every remaining CPU has
// an owner, the Drift reports it (Drift.Trespass).
//
// # The order of a change
//
// A write must never give a cgroup a CPU on which another cgroup still runs without a right to it.
// A plan therefore has two phases. In Shrink each cgroup leaves the CPUs that it has lost, children
// before parents; a mask that neither shrinks nor grows first becomes the intersection of old and
// new. If that is empty, the cgroup moves in one write, after all others have left: its parent's
// mask is widened for it first (every cgroup below such a parent has a mask of its own, so no other
// gains CPUs), because a mask outside its parent's would mean the parent's whole set. Owners that
// swap CPUs, so that none can go first, are parked on CPUs of the pools that have no owner. In Grow
// masks become final, parents before children. Shrink must be done before a new owner starts; Grow
// can wait.
package cgroup
