// Package usage reads how much CPU time cgroups used and how often they were kept from
// using more. A [Reader] reads all followed cgroups in one pass, without allocation,
// from files that stay open.
//
//	r, err := usage.Open(usage.Options{Root: "/sys/fs/cgroup"})
//	r.Follow(podUID, "kubepods.slice/kubepods-besteffort.slice/…")
//	readings = r.Read(readings[:0])
//
// A [Reading] has the kernel's totals, unchanged. They go back when a cgroup is removed
// and created again, and the time between passes varies: Meter and Totals of package
// reclaim make samples of them.
package usage
