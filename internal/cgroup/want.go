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

// Own returns the CPUs that a pod or a container should have to itself, of those that are online; false where
// it belongs in a pool.
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

// within is the kernel's rule for a mask in what there is: where all its CPUs
// are offline, a cgroup gets what its parent has until policy has found it others.
func within(mask, there *cpuset.Set) (cpuset.Set, bool) {
	if mask == nil {
		return cpuset.Set{}, false
	}
	if both := mask.And(*there); !both.IsEmpty() {
		return both, true
	}
	return *there, true
}
