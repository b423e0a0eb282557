package cgroup

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// ErrInFlight means that a write was given up while systemd or the kernel may still carry it out:
// its effect may come later than any read now.
var ErrInFlight = errors.New("the write may still take effect")

// InFlightFor is how long a write that was given up may still take effect: systemd gets ten seconds
// for a change, and a daemon-reload of a large node keeps it busy for as long again.
const InFlightFor = 20 * time.Second

// masks are the own masks of a cgroup, as far as they are known.
type masks struct {
	// own and ownMems are the last written or read; nil: none.
	own, ownMems *cpuset.Set
	// gaveUp means that own was written to give the mask up and was not read since: the kernel may
	// have no mask instead, which makes no difference until CPUs come online.
	gaveUp bool
}

func (m *masks) setOwn(cpus *cpuset.Set) { m.own, m.gaveUp = cpus, false }

// doubtGivenUp records that cgroups whose masks were given up may have gained CPUs that came
// online.
func (t *Tree) doubtGivenUp() {
	for _, n := range t.byPath {
		if n.gaveUp && !t.online.SubsetOf(n.own) {
			u := t.doubt(n)
			u.masks = append(u.masks, nil)
		}
	}
}

// uncertainty is what the kernel may have on a cgroup besides the mask that the tree assumes. What
// a cgroup may allow is derived from this and from the masks on each call, and never stored.
type uncertainty struct {
	// masks are the possible contents of the file; nil: no mask.
	masks []*cpuset.Set
	// seen are CPUs that the cgroup allowed when it was read although its mask does not explain it,
	// or that could not be read; empty: none.
	seen cpuset.Set
	// unread means that it may have any mask: it existed before, and could not be read.
	unread bool
	// inFlight are masks of writes that were given up and may still take effect.
	inFlight []*cpuset.Set
	// since is when the mask was first read after the last such write; zero: not yet.
	since time.Time
}

// MayUse is every CPU that a cgroup may allow now, by what is known of it or, if it is not in the
// tree, of its nearest known ancestor. A write in flight counts together with the previous mask.
func (t *Tree) MayUse(path string) cpuset.Set {
	path = strings.Trim(path, "/")
	n := t.byPath[path]
	if n == nil || n.gone {
		if n = t.nearest(path); n == t.top {
			return t.online
		}
	}
	return t.mayUse(n)
}

// Has is the intersection of a cgroup's own mask with what its ancestors allow; empty if it has no
// mask or if that is uncertain.
func (t *Tree) Has(path string) (cpus cpuset.Set) {
	n := t.byPath[strings.Trim(path, "/")]
	if n == nil || n.gone || n.own == nil {
		return cpus
	}
	if may := t.mayHave(n); len(may) == 1 && n.unsure == nil {
		cpus = may[0]
	}
	return cpus
}

// MayGive is every CPU that a cgroup created with a mask in the cgroup at path may get: if the mask
// has nothing in common with what is allowed there, the kernel gives it all of that.
func (t *Tree) MayGive(path string, mask cpuset.Set) cpuset.Set {
	path = strings.Trim(path, "/")
	n := t.byPath[path]
	if n == nil {
		return t.MayUse(path) // the parent may have any mask, possibly one that shares nothing with this one
	}
	if n.gone {
		if n = t.nearest(path); n == t.top {
			return given(&mask, &t.online)
		}
	}
	if n.unread() || t.inUnread(n) != nil {
		return t.mayUse(n) // the same
	}
	var all cpuset.Set
	for _, above := range t.mayHave(n) {
		may := given(&mask, &above)
		all.AddSet(&may)
	}
	return all
}

// Made records that the runtime creates a container's cgroup now, with a mask or without one.
// Earlier reads may not have found the cgroup.
func (t *Tree) Made(id string, mask cpuset.Set) {
	n := t.byID[id]
	if n == nil || n.level != containerLevel {
		return
	}
	t.revive(n)
	n.setOwn(known(&mask))
	t.certain(n)
	t.touch(n)
}

func (t *Tree) mayUse(n *node) cpuset.Set {
	if only := t.certainlyHas(n); only != nil {
		return *only
	}
	var all cpuset.Set
	for _, may := range t.mayHave(n) {
		all.AddSet(&may)
	}
	return all
}

func (t *Tree) doubt(n *node) *uncertainty {
	if n.unsure == nil {
		n.unsure = &uncertainty{}
	}
	t.unsure[n] = struct{}{}
	t.dirty[n] = struct{}{}
	return n.unsure
}

// certain clears what was uncertain about n, but not the writes in flight.
func (t *Tree) certain(n *node) {
	u := n.unsure
	if u == nil {
		return
	}
	u.masks, u.seen, u.unread = nil, cpuset.Set{}, false
	if len(u.inFlight) == 0 {
		n.unsure = nil
		delete(t.unsure, n)
	}
}

// forget clears everything that was uncertain about n.
func (t *Tree) forget(n *node) {
	n.unsure = nil
	delete(t.unsure, n)
}

// failedWrite records that a write may have had its full effect, a part of it, or none.
func (t *Tree) failedWrite(n *node, w Write, err error) {
	if w.CPUs.set == nil {
		return
	}
	u := t.doubt(n)
	may := w.CPUs.may()
	if errors.Is(err, ErrInFlight) {
		u.inFlight = append(u.inFlight, may...)
		u.since = time.Time{}
		return
	}
	u.masks = append(u.masks, may...)
}

// MayAllow records that a cgroup allowed, or may allow, CPUs that its masks do not explain. It
// holds until the cgroup is read again.
func (t *Tree) MayAllow(path string, cpus cpuset.Set) {
	if n := t.byPath[strings.Trim(path, "/")]; n != nil && !cpus.IsEmpty() {
		u := t.doubt(n)
		u.seen.AddSet(&cpus)
	}
}

// Unread records that a cgroup exists and that its mask is unknown, until it is written or read.
// The cgroups in it may have all CPUs that its ancestors allow: the kernel gives them its CPUs if
// they share none with their own masks. So nothing in it is written meanwhile.
func (t *Tree) Unread(path string) {
	if n := t.byPath[strings.Trim(path, "/")]; n != nil {
		t.doubt(n).unread = true
	}
}

// UnreadAll records the same of every cgroup.
func (t *Tree) UnreadAll() {
	for _, n := range t.byPath {
		if !n.gone {
			t.doubt(n).unread = true
		}
	}
}

// unread reports whether the mask of n is unknown.
func (n *node) unread() bool { return n.unsure != nil && n.unsure.unread }

// inUnread returns the ancestor of n whose mask is unknown, nil if there is none.
func (t *Tree) inUnread(n *node) *node {
	for n = n.parent; n != nil && n != t.top; n = n.parent {
		if n.unread() {
			return n
		}
	}
	return nil
}

// Uncertain lists the cgroups that have to be read back, by path.
func (t *Tree) Uncertain() []string {
	paths := make([]string, 0, len(t.unsure))
	for n := range t.unsure {
		paths = append(paths, n.path)
	}
	slices.Sort(paths)
	return paths
}

// ReadBack settles what is uncertain about a cgroup by what was read of it at a given time. Writes
// in flight are settled when it is read again after InFlightFor, whatever else was written
// meanwhile.
func (t *Tree) ReadBack(path string, e Effective, at time.Time) {
	n := t.byPath[strings.Trim(path, "/")]
	if n == nil {
		return
	}
	t.observe(n, &e)
	t.unexplained(n, e.CPUs)
	u := n.unsure
	switch {
	case u == nil:
	case u.since.IsZero() || at.Before(u.since):
		u.since = at
	case at.Sub(u.since) >= InFlightFor:
		u.inFlight = nil
		if len(u.masks) == 0 && u.seen.IsEmpty() {
			t.forget(n)
		}
	}
}

// unexplained records CPUs that a cgroup allowed when it was read and that no known mask gives it.
func (t *Tree) unexplained(n *node, allowed cpuset.Set) {
	for _, may := range t.mayHave(n) {
		allowed.RemoveSet(&may)
	}
	if !allowed.IsEmpty() {
		t.doubt(n).seen.AddSet(&allowed)
	}
}

// Gone records that a cgroup and its descendants do not exist.
func (t *Tree) Gone(path string) {
	if n := t.byPath[path]; n != nil {
		t.vanished(n)
	}
}

// Held is the CPUs that cgroups may allow beyond those that they have a right to, because a write
// failed, was skipped, may still take effect or was never planned, or because no write can help: a
// cgroup all of whose CPUs are offline has those of its parent. An owner must not start on any of
// them. A limit from outside may disappear at any time, so CPUs that it hides count, too.
//
// Only cgroups with something to write or to read back are visited, and the subtrees of mixed ones:
// a cgroup that runs on its parent's mask adds nothing.
func (t *Tree) Held() cpuset.Set {
	all := t.held()
	if t.Limited() {
		t.lifted = true
		hidden := t.held()
		t.lifted = false
		all.AddSet(&hidden)
	}
	return all
}

func (t *Tree) held() (all cpuset.Set) {
	for n := range t.dirty {
		t.visitHeld(n, &all)
	}
	for n := range t.unsure {
		t.visitHeld(n, &all)
	}
	if t.writing != nil {
		t.visitHeld(t.writing.node, &all)
	}
	return all
}

func (t *Tree) visitHeld(n *node, all *cpuset.Set) {
	if n.gone || n == t.top {
		return
	}
	if right := t.unionOf(n, t.right); right != nil {
		for _, may := range t.mayHave(n) {
			may.RemoveSet(right)
			all.AddSet(&may)
		}
	}
	if len(n.odd) == 0 && !t.flat {
		return // those below may have no more than n, and should have as much
	}
	for k := range n.kids {
		t.visitHeld(k, all)
	}
}

// mostAlternatives bounds how many sets are tracked separately; beyond that they are merged.
const mostAlternatives = 8

// mayHave lists the effective sets that a cgroup may have, by the kernel's rule from every mask
// that it may have and every set that its parent may have.
func (t *Tree) mayHave(n *node) []cpuset.Set {
	if n == t.top {
		return []cpuset.Set{t.online}
	}
	var may []cpuset.Set
	add := func(s cpuset.Set) {
		if !slices.Contains(may, s) {
			may = append(may, s)
		}
	}
	for _, above := range t.mayHaveAbove(n) {
		for _, mask := range t.mayCarry(n) {
			add(given(mask, &above))
		}
	}
	if u := n.unsure; u != nil && !u.seen.IsEmpty() {
		add(u.seen)
	}
	if len(may) > mostAlternatives {
		for _, s := range may[1:] {
			may[0].AddSet(&s)
		}
		may = may[:1]
	}
	return may
}

// certainlyHas is the one set that mayHave would list, found without listing any: every container
// that starts asks for it. nil says that it has to be listed.
func (t *Tree) certainlyHas(n *node) *cpuset.Set {
	if n == t.top {
		return &t.online
	}
	if n.unsure != nil || t.writing != nil && t.writing.node == n {
		return nil
	}
	var above *cpuset.Set
	if n.parent == t.top {
		above = t.allowed(n)
	} else {
		above = t.certainlyHas(n.parent)
	}
	switch {
	case above == nil || n.own == nil:
		return above
	case !n.own.IsEmpty() && n.own.SubsetOf(above):
		return n.own
	}
	return nil
}

// mayHaveAbove lists the sets that the parent cgroup may have.
func (t *Tree) mayHaveAbove(n *node) []cpuset.Set {
	if n.parent == t.top {
		return []cpuset.Set{*t.allowed(n)}
	}
	return t.mayHave(n.parent)
}

// mayCarry lists the masks that a cgroup may have; a nil element: none.
func (t *Tree) mayCarry(n *node) []*cpuset.Set {
	masks := []*cpuset.Set{n.own}
	if w := t.writing; w != nil && w.node == n {
		masks = append(masks, w.mask.may()...)
	}
	if u := n.unsure; u != nil {
		masks = slices.Concat(masks, u.masks, u.inFlight)
	}
	if n.unread() || t.inUnread(n) != nil {
		masks = append(masks, nil)
	}
	return masks
}

// given is the effective set of a cgroup with a mask below a parent's set, by the kernel's rule.
func given(mask, above *cpuset.Set) cpuset.Set {
	if mask != nil {
		if both := mask.And(*above); !both.IsEmpty() {
			return both
		}
	}
	return *above
}

// beyond is what n may have because of what is uncertain, and should not have.
func (t *Tree) beyond(n *node) cpuset.Set {
	all := t.mayUse(n)
	p := planner{t: t}
	now := p.effective(n)
	all.RemoveSet(&now)
	if goal, ok := t.goal(n); ok {
		all.RemoveSet(&goal)
	}
	return all
}

// Interrupted records that Execute did not return from a write: it may have taken effect, or may do
// so later, since its result is unknown.
func (t *Tree) Interrupted() {
	if w := t.writing; w != nil {
		t.writing = nil
		t.failedWrite(w.node, Write{CPUs: w.mask}, ErrInFlight)
	}
}
