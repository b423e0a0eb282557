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
	// Above is a cgroup above that is not ours and allows less than Want, and
	// Allows what it leaves; "" if none does. No write of ours can help.
	Above  string
	Allows cpuset.Set
	// Trespass is set where nothing of Want is allowed: the CPUs of others that
	// the cgroup has instead.
	Trespass cpuset.Set
	outside  bool
	// Err is set, and the sets are not, where the cgroup could not be read.
	Err error
}

// Outside reports whether the cgroup carries what the tree wrote, and only a
// limit from outside keeps it from what it needs.
func (d Drift) Outside() bool { return d.outside }

func (d Drift) String() string {
	if d.Err != nil {
		return fmt.Sprintf("cgroup %s: %v", d.Path, d.Err)
	}
	text := fmt.Sprintf("cgroup %s: effective %q instead of %q, own mask %q, last written %q", d.Path, d.Got, d.Want, d.Own, d.Wrote)
	if d.Above == "" {
		return text
	}
	text += fmt.Sprintf("; cgroup %s above it, which is not ours, allows only %s", d.Above, d.Allows)
	switch {
	case !d.Trespass.IsEmpty():
		text += fmt.Sprintf(": it runs on CPUs %s, which belong to others; widen that cgroup or remove the mask there", d.Trespass)
	case !d.Want.Intersects(&d.Allows):
		text += ": it has nothing of what it needs and runs on CPUs without an owner"
	}
	return text
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
		d.Inherited = d.Inherited || drifted[n.parent] && d.Err == nil && t.settled(n, n.own)
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
		t.vanished(n)
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
	if goal, _ := t.goal(n); d.Got != goal || n.parent == t.top && d.Got != want {
		t.lookAbove(n, read)
	}
	t.explain(&d, n)
	_, pending := t.dirty[n]
	return d, d.Got != d.Want || pending && !t.settled(n, n.own)
}

// explain adds what a limit from outside has to do with it.
func (t *Tree) explain(d *Drift, n *node) {
	o := t.outerOf(n)
	if o == nil || d.Want.SubsetOf(&o.allows) {
		return
	}
	d.Above, d.Allows = o.by, o.allows
	if !d.Want.Intersects(&o.allows) {
		d.Trespass = t.owned().And(d.Got)
	}
	goal, _ := t.goal(n)
	d.outside = d.Own == d.Wrote || d.Got == goal && t.settled(n, n.own)
	d.Inherited = n.parent != t.top && d.Got == goal
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
