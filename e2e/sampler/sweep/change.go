package sweep

import "github.com/quietcore/quietcore/cpuset"

// Change is what a watcher of cgroups says when the effective CPUs of one are others.
type Change struct {
	At   int64      `json:"at"`   // nanoseconds since 1970
	Dir  int        `json:"dir"`  // which of the cgroups that it was given
	CPUs cpuset.Set `json:"cpus"` // from then on; empty: the cgroup is gone
}
