package cgroup

import "github.com/quietcore/quietcore/cpuset"

// Want returns the CPUs that the tasks of a pod, a container or a slice (by
// path) should see as effective; false if it is unknown or unmanaged.
func (t *Tree) Want(id string) (cpuset.Set, bool) {
	n := t.byID[id]
	if n == nil {
		return cpuset.Set{}, false
	}
	return t.want(n)
}

func (t *Tree) want(n *node) (cpuset.Set, bool) {
	return within(t.wish(n), &t.online)
}

// Own returns the online CPUs that a pod or a container should have to itself; false if it belongs
// in a pool.
func (t *Tree) Own(id string) (cpuset.Set, bool) {
	n := t.byID[id]
	if n == nil {
		return cpuset.Set{}, false
	}
	own := t.needOf(n).cpus
	if own == nil {
		return cpuset.Set{}, false
	}
	return own.And(t.online), true
}

// within is the kernel's rule for a mask below a parent's set: if all its CPUs are offline, a
// cgroup gets its parent's set until policy has found it other CPUs.
func within(mask, there *cpuset.Set) (cpuset.Set, bool) {
	if mask == nil {
		return cpuset.Set{}, false
	}
	if both := mask.And(*there); !both.IsEmpty() {
		return both, true
	}
	return *there, true
}
