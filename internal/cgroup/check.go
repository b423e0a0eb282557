package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// Drift is a cgroup that differs from what the tree wrote.
type Drift struct {
	ID, Path string
	// Want and Got are the effective sets.
	Want, Got cpuset.Set
	// Wrote is the mask that the tree knew on the cgroup, Own the mask that it has now; empty:
	// none. They show the cause: if Own is empty, its manager reset it; if Own is unchanged and Got
	// differs, a cgroup above was changed.
	Wrote, Own cpuset.Set
	// Inherited is set if the cgroup's own mask is right and one above has drifted: a consequence,
	// not another cause.
	Inherited bool
	// Above is a cgroup above the tree that allows less than Want, and Allows what it allows; "" if
	// there is none. No write of ours can fix it.
	Above  string
	Allows cpuset.Set
	// Trespass is set if nothing of Want is allowed: the CPUs of others that the cgroup has
	// instead.
	Trespass cpuset.Set
	outside  bool
	// Err is set, and the sets are not, if the cgroup could not be read.
	Err error
}

// Outside reports whether the cgroup has the mask that the tree wrote, and only a limit from
// outside keeps it from what it needs.
func (d Drift) Outside() bool { return d.outside }

func (d Drift) String() string {
	if d.Err != nil {
		return fmt.Sprintf("cgroup %s: %v", d.Path, d.Err)
	}
	text := fmt.Sprintf("cgroup %s: effective %q instead of %q, own mask %q, last written %q", d.Path, d.Got, d.Want,
		d.Own, d.Wrote)
	if d.Above == "" {
		return text
	}
	text += fmt.Sprintf("; cgroup %s above it, which is not ours, allows only %s", d.Above, d.Allows)
	switch {
	case !d.Trespass.IsEmpty():
		text += fmt.Sprintf(": it runs on CPUs %s, which belong to others; widen that cgroup or remove the mask there",
			d.Trespass)
	case !d.Want.Intersects(&d.Allows):
		text += ": it has none of the CPUs that it needs, and runs on CPUs without an owner"
	}
	return text
}

// Check reads every cgroup and returns those that have drifted, by path. What was read replaces
// what was known, so the next Plan repairs it. Cgroups that do not exist any more are no drift:
// their masks are gone, too.
func (t *Tree) Check(read func(path string) (Effective, error)) []Drift {
	nodes := make([]*node, 0, len(t.byPath))
	for _, n := range t.byPath {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.path, b.path) })
	var found []Drift
	drifted := map[*node]bool{}
	for _, n := range nodes {
		d := t.check(n, read)
		if d == nil {
			continue
		}
		drifted[n] = true
		d.Inherited = d.Inherited || drifted[n.parent] && d.Err == nil && t.settled(n, n.own)
		found = append(found, *d)
	}
	return found
}

// CheckOne is Check for one pod, container or slice: the read-back after a write. ok is false if
// there is nothing to report.
func (t *Tree) CheckOne(id string, read func(path string) (Effective, error)) (drift Drift, ok bool) {
	n := t.byID[id]
	if n == nil {
		return Drift{}, false
	}
	if d := t.check(n, read); d != nil {
		return *d, true
	}
	return Drift{}, false
}

// auditTurns is the number of audits in which the own mask of every cgroup is read once.
const auditTurns = 8

// Audit is CheckOne in audit number round, with one file instead of two for most cgroups: the mask
// of a cgroup without one of ours is read only in every eighth round, or if its tasks' CPUs are not
// the expected ones. Until its turn, a foreign mask is not noticed as long as it takes nothing
// away; it can give nothing while the masks above are right.
func (t *Tree) Audit(id string, round uint64, r Reader) (drift Drift, ok bool) {
	if n := t.byID[id]; n != nil && !inTurn(n.path, round) && t.fine(n, r) {
		return Drift{}, false
	}
	return t.CheckOne(id, r.CPUs)
}

func inTurn(path string, round uint64) bool {
	return (uint64(crc32.ChecksumIEEE([]byte(path)))+round)%auditTurns == 0
}

// fine reports that n neither has nor needs a mask and has the CPUs that it should.
func (t *Tree) fine(n *node, r Reader) bool {
	mask := t.wish(n)
	if mask == nil {
		return true
	}
	if _, due := t.dirty[n]; n.gone || n.own != nil || due && !t.settled(n, n.own) || !mask.SubsetOf(&t.online) {
		return false
	}
	allowed, err := r.Allowed(n.path)
	return err == nil && allowed == *mask
}

// check returns nil if nothing differs. A set is 1 KiB and an audit visits thousands, so nothing is
// copied until there is something to report.
func (t *Tree) check(n *node, read func(path string) (Effective, error)) *Drift {
	mask := t.wish(n)
	if mask == nil || n.room {
		return nil
	}
	e, err := read(n.path)
	if errors.Is(err, ErrGone) {
		t.vanished(n)
		return nil
	}
	if err != nil {
		return &Drift{ID: n.ids[len(n.ids)-1], Path: n.path, Err: err}
	}
	was := n.own
	t.observe(n, &e)
	_, due := t.dirty[n]
	due = due && !t.settled(n, n.own)
	if !due && e.CPUs == *mask && mask.SubsetOf(&t.online) {
		return nil
	}
	return t.drift(n, &e, was, read)
}

func (t *Tree) drift(n *node, e *Effective, was *cpuset.Set, read func(path string) (Effective, error)) *Drift {
	want, _ := t.want(n)
	if goal, _ := t.goal(n); e.CPUs != goal || n.parent == t.top && e.CPUs != want {
		t.lookAbove(n, read)
	}
	t.unexplained(n, e.CPUs)
	d := &Drift{ID: n.ids[len(n.ids)-1], Path: n.path, Want: want, Got: e.CPUs, Own: e.OwnCPUs}
	if was != nil {
		d.Wrote = *was
	}
	t.explain(d, n)
	if _, due := t.dirty[n]; d.Got == want && !(due && !t.settled(n, n.own)) {
		return nil
	}
	return d
}

// explain adds how a limit from outside contributes.
func (t *Tree) explain(d *Drift, n *node) {
	o := t.outerOf(n)
	if o == nil || d.Want.SubsetOf(&o.allows) {
		return
	}
	d.Above, d.Allows = o.by, o.allows
	if !d.Want.Intersects(&o.allows) {
		d.Trespass = t.owned().And(d.Got)
	}
	d.outside = d.Own == d.Wrote || t.settled(n, n.own)
	d.Inherited = n.parent != t.top && d.outside
}

// observe records the masks that a cgroup really has. A reader that does not read memory nodes
// leaves the known ones unchanged.
func (t *Tree) observe(n *node, e *Effective) {
	n.gone = false
	t.certain(n)
	n.gaveUp = false
	if n.own == nil || *n.own != e.OwnCPUs {
		n.own = known(&e.OwnCPUs)
	}
	if !e.Mems.IsEmpty() {
		n.ownMems = known(&e.OwnMems)
	}
	if !t.settled(n, n.own) || !t.memsSettled(n) {
		t.dirty[n] = struct{}{}
	}
}
