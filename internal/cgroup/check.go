package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/quietcore/quietcore/internal/cpuset"
)

// Drift is one cgroup that is not as the tree left it.
type Drift struct {
	ID, Path string
	// Want and Got are the effective sets.
	Want, Got cpuset.Set
	// Wrote is the mask that the tree knew on the cgroup, Own what is there
	// now; empty: none. They tell sources apart: Own empty means that its
	// manager reset it; Own as before while Got differs means that a cgroup
	// above was changed.
	Wrote, Own cpuset.Set
	// Inherited is set where the cgroup's own mask is right and one above has
	// drifted: a consequence, not another source.
	Inherited bool
	// Err is set, and the sets are not, where the cgroup could not be read.
	Err error
}

func (d Drift) String() string {
	if d.Err != nil {
		return fmt.Sprintf("cgroup %s: %v", d.Path, d.Err)
	}
	return fmt.Sprintf("cgroup %s: effective %q instead of %q, own mask %q, last written %q", d.Path, d.Got, d.Want, d.Own, d.Wrote)
}

// Check reads every cgroup and returns those that differ, by path. What was
// read replaces what was known, so the next Plan repairs it. Cgroups that are
// gone are no drift: their masks went with them.
func (t *Tree) Check(read func(path string) (Effective, error)) []Drift {
	nodes := make([]*node, 0, len(t.byPath))
	for _, n := range t.byPath {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.path, b.path) })
	var found []Drift
	drifted := map[*node]bool{}
	for _, n := range nodes {
		d, ok := t.check(n, read)
		if !ok {
			continue
		}
		drifted[n] = true
		d.Inherited = drifted[n.parent] && d.Err == nil && t.settled(n, n.own)
		found = append(found, d)
	}
	return found
}

// CheckOne is Check for one pod, container or slice: the read-back after a
// write. ok is false when there is nothing to report.
func (t *Tree) CheckOne(id string, read func(path string) (Effective, error)) (drift Drift, ok bool) {
	n := t.byID[id]
	if n == nil {
		return Drift{}, false
	}
	return t.check(n, read)
}

func (t *Tree) check(n *node, read func(path string) (Effective, error)) (Drift, bool) {
	want, managed := t.want(n)
	if !managed {
		return Drift{}, false
	}
	e, err := read(n.path)
	if errors.Is(err, ErrGone) {
		n.gone, n.own, n.ownMems = true, nil, nil
		return Drift{}, false
	}
	d := Drift{ID: n.ids[len(n.ids)-1], Path: n.path, Err: err}
	if err != nil {
		return d, true
	}
	d.Want, d.Got, d.Own = want, e.CPUs, e.OwnCPUs
	if n.own != nil {
		d.Wrote = *n.own
	}
	t.observe(n, e)
	_, pending := t.dirty[n]
	return d, d.Got != d.Want || pending && !t.settled(n, n.own)
}

// observe notes the masks that a cgroup really has. A reader that does not
// read memory nodes leaves those known as they are.
func (t *Tree) observe(n *node, e Effective) {
	n.gone = false
	n.own = known(e.OwnCPUs)
	if !e.Mems.IsEmpty() {
		n.ownMems = known(e.OwnMems)
	}
	if !t.settled(n, n.own) || !t.memsSettled(n) {
		t.dirty[n] = struct{}{}
	}
}
