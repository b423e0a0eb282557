package cgroup

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// ErrInFlight says that a write was given up while whoever carries it out may
// still do so: its effect may come later than whatever is read now.
var ErrInFlight = errors.New("the write may still take effect")

// InFlightFor is for how long a write that was given up may still take effect:
// systemd is given ten seconds for a change, and a daemon-reload of a large node
// keeps it busy for as long again.
const InFlightFor = 20 * time.Second

// masks are those that a cgroup has of its own, as far as is known.
type masks struct {
	// own and ownMems are those last written or seen; nil: none.
	own, ownMems *cpuset.Set
	// gaveUp says that own was written to give the mask up, and that it was not read since:
	// the kernel may hold no mask instead, which is the same until CPUs come online.
	gaveUp bool
}

func (m *masks) setOwn(cpus *cpuset.Set) { m.own, m.gaveUp = cpus, false }

// doubtGivenUp notes that cgroups whose masks were given up may have got CPUs that came
// online.
func (t *Tree) doubtGivenUp() {
	for _, n := range t.byPath {
		if n.gaveUp && !t.online.SubsetOf(n.own) {
			u := t.doubt(n)
			u.masks = append(u.masks, nil)
		}
	}
}

// uncertainty is what the kernel may have on a cgroup beside the mask that the
// tree takes for its own. What a cgroup may allow is derived from this and from
// the masks each time it is asked for, and carried nowhere.
type uncertainty struct {
	// masks are what the file may hold instead; nil: no mask.
	masks []*cpuset.Set
	// seen are CPUs that it was read to allow although its mask does not say so,
	// or that could not be read; empty: none.
	seen cpuset.Set
	// unread says that its mask may be any: it was there before, and could not be read.
	unread bool
	// inFlight are masks of writes that were given up and may still take effect.
	inFlight []*cpuset.Set
	// since is when the mask was first read after the last such write; zero: not yet.
	since time.Time
}

// MayUse is every CPU that a cgroup may allow at this moment, by what is known of it or,
// where it is not in the tree, of the nearest cgroup above it. A write that is under way
// counts with what was there before.
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

// Has is what a cgroup with a mask of its own has of what those above allow it, empty where it has
// none or where that is not known.
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

// MayGive is every CPU that a cgroup with a mask, made in the one at path, may be given: where
// nothing of the mask is there the kernel gives all that is.
func (t *Tree) MayGive(path string, mask cpuset.Set) cpuset.Set {
	path = strings.Trim(path, "/")
	n := t.byPath[path]
	if n == nil {
		return t.MayUse(path) // its mask may be any, also one that has nothing of this one
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

// Made notes that the runtime makes a container's cgroup now, with a mask or with none. It may
// have been looked for in vain before.
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

// certain drops what was uncertain about n, but not what may still come.
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

// forget drops all that was uncertain about n.
func (t *Tree) forget(n *node) {
	n.unsure = nil
	delete(t.unsure, n)
}

// failedWrite notes that a write may have had its effect, some of it, or none.
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

// MayAllow notes that a cgroup was seen to allow CPUs, or may, that its masks do
// not explain. It holds until the cgroup is read again.
func (t *Tree) MayAllow(path string, cpus cpuset.Set) {
	if n := t.byPath[strings.Trim(path, "/")]; n != nil && !cpus.IsEmpty() {
		u := t.doubt(n)
		u.seen.AddSet(&cpus)
	}
}

// Unread notes that a cgroup is there and that its mask is not known, until it is written
// or read. Those in it may have all that the cgroups above it allow: the kernel gives them
// its CPUs where it has none of theirs. So nothing in it is written meanwhile.
func (t *Tree) Unread(path string) {
	if n := t.byPath[strings.Trim(path, "/")]; n != nil {
		t.doubt(n).unread = true
	}
}

// unread reports whether the mask of n is not known.
func (n *node) unread() bool { return n.unsure != nil && n.unsure.unread }

// inUnread returns the cgroup in which n lies whose mask is not known, nil if there is none.
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

// ReadBack settles what is uncertain about a cgroup by what was read of it at a
// time. What may still come of writes in flight is settled when it is read again after
// InFlightFor, whatever else was written meanwhile.
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

// unexplained notes what a cgroup was read to allow and no mask that is known gives it.
func (t *Tree) unexplained(n *node, allowed cpuset.Set) {
	for _, may := range t.mayHave(n) {
		allowed.RemoveSet(&may)
	}
	if !allowed.IsEmpty() {
		t.doubt(n).seen.AddSet(&allowed)
	}
}

// Gone notes that a cgroup does not exist, nor any below it.
func (t *Tree) Gone(path string) {
	if n := t.byPath[path]; n != nil {
		t.vanished(n)
	}
}

// Held is the CPUs that cgroups may allow beyond those that they have a right to, whether
// a write failed, was left out, may come later, was never planned, or cannot help: a
// cgroup all of whose CPUs are offline has those of its parent. An owner must not start
// on any of them.
//
// It looks only at cgroups with something to write or to read back, and below a
// mixed one at all: a cgroup that runs where the mask above says adds nothing.
func (t *Tree) Held() cpuset.Set {
	var all cpuset.Set
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

// mostAlternatives bounds how many sets are kept apart; beyond, they are one.
const mostAlternatives = 8

// mayHave lists the effective sets that a cgroup may have, by the kernel's rule
// from every mask that it may carry and every set that its parent may have.
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

// mayHaveAbove lists the sets that the cgroup above may have.
func (t *Tree) mayHaveAbove(n *node) []cpuset.Set {
	if n.parent == t.top {
		return []cpuset.Set{*t.allowed(n)}
	}
	return t.mayHave(n.parent)
}

// mayCarry lists the masks that a cgroup may carry; nil in it: none.
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

// given is what a cgroup with a mask has of what there is above, by the kernel's rule.
func given(mask, above *cpuset.Set) cpuset.Set {
	if mask != nil {
		if both := mask.And(*above); !both.IsEmpty() {
			return both
		}
	}
	return *above
}

// beyond is what n may have because of what is uncertain, and should not.
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

// Interrupted notes that Execute did not return from a write: it may have had its effect, or have
// it later, since nobody knows how it ended.
func (t *Tree) Interrupted() {
	if w := t.writing; w != nil {
		t.writing = nil
		t.failedWrite(w.node, Write{CPUs: w.mask}, ErrInFlight)
	}
}
