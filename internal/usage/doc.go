// Package usage reads how much CPU time cgroups took and how often they were kept
// from more: one pass over all that are followed, without allocation, over files
// that stay open.
//
//	r, err := usage.Open(usage.Options{Root: "/sys/fs/cgroup"})
//	r.Follow(podUID, "kubepods.slice/kubepods-besteffort.slice/…")
//	readings = r.Read(readings[:0])
//
// Readings are the kernel's totals as they are. They may go back, when a cgroup
// was removed and made anew, and the time between two passes may be anything:
// package reclaim's Meter and Totals make samples of them.
package usage
