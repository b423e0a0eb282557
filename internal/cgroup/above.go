package cgroup

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// outer is what the cgroups between the hierarchy's root and the tree allow: an administrator may
// have set a mask on kubepods, and a node that runs in a container has one on the root itself. We
// never change those masks.
type outer struct {
	masks  []outerMask // from the top down
	allows cpuset.Set
	by     string // the lowest cgroup that narrows; "" if none does, with these CPUs online
}

type outerMask struct {
	path string
	cpus cpuset.Set
}

// fold applies the kernel's rule from the top down.
func (o *outer) fold(online cpuset.Set) {
	o.allows, o.by = online, ""
	for _, m := range o.masks {
		if both := o.allows.And(m.cpus); !both.IsEmpty() && both != o.allows {
			o.allows, o.by = both, m.path
		}
	}
}

// refoldOuter follows a change of the online CPUs. The mask of the root is known only by its
// effect, so it is dropped and read again at the next drift.
func (t *Tree) refoldOuter() {
	for _, o := range t.outer {
		o.masks = slices.DeleteFunc(o.masks, func(m outerMask) bool { return m.path == rootPath })
		o.fold(t.online)
	}
}

// LookAbove reads what the cgroups above those of the tree allow, and reports whether that has
// changed. Check and CheckOne read it only when a cgroup has drifted. Calling LookAbove before the
// first plan, at every audit and after CPU hotplug makes the next plan respect a new limit.
func (t *Tree) LookAbove(read func(path string) (Effective, error)) (changed bool) {
	seen := map[string]bool{}
	for _, n := range sorted(slices.Collect(maps.Keys(t.top.kids))) { // sorted: the same reads in every run
		if above := Parent(n.path); !seen[above] {
			seen[above] = true
			changed = t.lookAbove(n, read) || changed
		}
	}
	return changed
}

func (t *Tree) lookAbove(n *node, read func(path string) (Effective, error)) (changed bool) {
	for n.parent != t.top {
		n = n.parent
	}
	key, now := Parent(n.path), &outer{}
	for p := key; p != ""; p = Parent(p) {
		e, err := read(p)
		if err != nil && !errors.Is(err, ErrGone) {
			return false // unknown: keep the previous state
		}
		if !e.OwnCPUs.IsEmpty() {
			now.masks = append(now.masks, outerMask{path: p, cpus: e.OwnCPUs})
		}
	}
	// In a cgroup namespace the mask may be invisible, but its effect is not.
	if e, err := read(rootPath); err == nil && !e.CPUs.IsEmpty() && !t.online.SubsetOf(&e.CPUs) {
		now.masks = append(now.masks, outerMask{path: rootPath, cpus: e.CPUs})
	}
	slices.Reverse(now.masks)
	now.fold(t.online)
	was := t.outer[key]
	if len(now.masks) == 0 {
		delete(t.outer, key)
	} else {
		t.outer[key] = now
	}
	if was == nil {
		was = &outer{allows: t.online}
	}
	if changed = was.allows != now.allows; changed {
		t.touchAll()
	}
	return changed
}

// Limited reports whether, by the last read, any slice is limited from outside. Such a limit may
// disappear at any time, and masks that were planned for it would then take CPUs of others.
func (t *Tree) Limited() bool {
	for _, o := range t.outer {
		if o.by != "" {
			return true
		}
	}
	return false
}

// outerOf returns the limit from outside on n, nil if there is none.
func (t *Tree) outerOf(n *node) *outer {
	if len(t.outer) == 0 || n == t.top {
		return nil
	}
	for n.parent != t.top {
		n = n.parent
	}
	if o := t.outer[Parent(n.path)]; o != nil && o.by != "" {
		return o
	}
	return nil
}

// allowed is what the cgroups above the tree allow n.
func (t *Tree) allowed(n *node) *cpuset.Set {
	if o := t.outerOf(n); o != nil && !t.lifted {
		return &o.allows
	}
	return &t.online
}

// attainable is the mask that n should have: what n has a right to, if the cgroups above allow any
// of it. The mask is written unreduced, so that it becomes right by itself when they allow more. On
// v1 it is reduced, since v1 refuses CPUs that the parent does not have.
func (t *Tree) attainable(n *node) *cpuset.Set {
	right := t.right(n)
	o := t.outerOf(n)
	if o == nil || right == nil || !t.flat {
		return right
	}
	if both := right.And(o.allows); !both.IsEmpty() {
		return &both
	}
	return &o.allows
}

// right is what n needs. If the cgroups above allow nothing of it, the kernel would give n
// everything that they allow, including the CPUs of owners: so n gets CPUs of a pool instead, if
// any of these have no owner.
func (t *Tree) right(n *node) *cpuset.Set {
	need := t.resolve(t.needOf(n))
	o := t.outerOf(n)
	if o == nil || need == nil || need.Intersects(&o.allows) {
		return need
	}
	for _, pool := range t.ownerless() {
		if both := pool.And(o.allows); !both.IsEmpty() {
			return &both
		}
	}
	return need
}

// goal is want, restricted by the limits from outside.
func (t *Tree) goal(n *node) (cpuset.Set, bool) {
	return within(t.union(n), t.allowed(n))
}

// owned are the CPUs that have an owner.
func (t *Tree) owned() cpuset.Set {
	var all cpuset.Set
	for _, n := range t.byPath {
		if cpus := n.need.cpus; cpus != nil {
			all.AddSet(cpus)
		}
	}
	return all
}

// ownerless are the CPUs of each pool that have no owner, the largest set first.
func (t *Tree) ownerless() []cpuset.Set {
	if t.spare != nil {
		return t.spare
	}
	owned := t.owned()
	t.spare = make([]cpuset.Set, 0, len(t.pools))
	for _, pool := range t.pools {
		t.spare = append(t.spare, pool.Minus(owned))
	}
	slices.SortFunc(t.spare, func(a, b cpuset.Set) int {
		return cmp.Or(cmp.Compare(b.Count(), a.Count()), cmp.Compare(a.String(), b.String()))
	})
	return t.spare
}
