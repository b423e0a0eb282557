package cgroup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// Written records the result of one write of a plan. ErrGone counts as done:
// a cgroup that does not exist is on no CPU.
func (t *Tree) Written(w Write, err error) {
	n := t.byPath[w.Path]
	if n == nil {
		return
	}
	if errors.Is(err, ErrGone) {
		t.vanished(n)
		return
	}
	t.dirty[n] = struct{}{}
	if err != nil {
		t.failedWrite(n, w, err)
		return
	}
	if w.CPUs.set != nil {
		n.own, n.gaveUp = w.CPUs.set, w.CPUs.inherit
		t.certain(n)
	}
	if w.Mems.set != nil {
		n.ownMems = w.Mems.set
	}
}

// ErrSkipRest is what apply returns when there is something more urgent to do.
var ErrSkipRest = errors.New("skip the rest of the plan")

// Execute runs writes of a plan in order and records each result. After a
// failure the rest goes on as far as it stays safe: no cgroup gains CPUs that
// could not be freed, and no mask changes above a cgroup whose own could not be
// written, since that one would follow it, nor below one whose mask is not known. What
// is left out stays for the next plan, and until then shows in Held. It returns the
// failures joined; ErrGone is none.
//
// The writes may be a part of a plan, but Shrink writes must come before Grow.
// Where apply returns ErrSkipRest, that write and the rest are left for the next plan.
func (t *Tree) Execute(writes []Write, apply func(Write) error) error {
	x := execution{t: t}
	for n := range t.unsure {
		x.uncertain(n)
		x.unread = x.unread || n.unread()
	}
	var failures []error
	for _, w := range writes {
		n := t.byPath[w.Path]
		if n == nil { // removed since it was planned
			continue
		}
		if above := t.inUnread(n); above != nil && w.CPUs.set != nil {
			failures = append(failures, fmt.Errorf("cgroup %s is left: the mask of %s could not be read", n.path,
				above.path))
			x.failed(n)
			continue
		}
		if !x.safe(n, w) {
			x.failed(n)
			continue
		}
		if w.CPUs.set != nil {
			t.writing = &underWay{n, w.CPUs}
		}
		err := apply(w)
		t.writing = nil
		if errors.Is(err, ErrSkipRest) {
			break
		}
		t.Written(w, err)
		if err != nil && !errors.Is(err, ErrGone) {
			failures = append(failures, err)
			x.failed(n)
		}
	}
	return errors.Join(failures...)
}

// Widens reports whether a write gives a cgroup CPUs that it did not have by its mask. The
// plan keeps those that the tree knows off them; there may be others.
func (t *Tree) Widens(w Write) bool {
	n := t.byPath[w.Path]
	if n == nil || w.CPUs.set == nil {
		return false
	}
	p := planner{t: t}
	now := p.effective(n)
	return n.mayCome() || !w.CPUs.set.SubsetOf(&now)
}

// underWay is a write that has begun and not ended: either mask may be in force.
type underWay struct {
	node *node
	mask Mask
}

// execution remembers what went wrong so far.
type execution struct {
	t    *Tree
	held cpuset.Set         // CPUs that a cgroup should have left by now
	stay map[*node]struct{} // failed cgroups and all above them
	// unread says that the masks of some are not known.
	unread bool
}

// uncertain adds what n, and those in it that do not simply run where it does, may have
// because of what is uncertain about n.
func (x *execution) uncertain(n *node) {
	held := x.t.beyond(n)
	x.held.AddSet(&held)
	if len(n.odd) > 0 {
		for k := range n.kids {
			if !k.room { // nothing runs there
				x.uncertain(k)
			}
		}
	}
}

func (x *execution) failed(n *node) {
	if x.stay == nil {
		x.stay = map[*node]struct{}{}
	}
	p := planner{t: x.t}
	now := p.effective(n)
	if goal, ok := x.t.goal(n); ok {
		now.RemoveSet(&goal)
		x.held.AddSet(&now)
	}
	for ; n != x.t.top; n = n.parent {
		x.stay[n] = struct{}{}
	}
}

func (x *execution) safe(n *node, w Write) bool {
	if len(x.stay) == 0 && x.held.IsEmpty() && len(x.t.unsure) == 0 || w.CPUs.set == nil {
		return true
	}
	if _, stays := x.stay[n]; stays {
		return false
	}
	p := planner{t: x.t}
	if above := p.above(n); !w.CPUs.set.Intersects(&above) {
		// What should have been widened above was not: it would stay on all that
		// the parent has, unnoticed.
		return false
	}
	var changes []change
	for _, above := range x.t.mayHaveAbove(n) {
		for _, mask := range x.t.mayCarry(n) {
			for _, next := range w.CPUs.may() {
				changes = append(changes, change{given(mask, &above), given(next, &above)})
			}
		}
	}
	return x.safeBelow(n, changes)
}

// change is what a cgroup has before a write and after it, as far as what is uncertain about
// it and those above turns out one way.
type change struct{ before, after cpuset.Set }

// safeBelow reports whether neither n nor anything in it gains what it must not, however what
// is uncertain turns out: a mask that is loosened gives what the one above may still turn out
// to be, one that is widened gives it to cgroups that a late write may loosen, and one that is written
// as it is taken to be widens where it was narrower.
func (x *execution) safeBelow(n *node, changes []change) bool {
	var gains cpuset.Set
	for i := range changes {
		gained := changes[i].after
		if !n.unread() && x.t.inUnread(n) == nil {
			gained.RemoveSet(&changes[i].before)
		}
		gains.AddSet(&gained)
	}
	if gains.Intersects(&x.held) {
		return false
	}
	if goal, _ := x.t.goal(n); len(n.odd) == 0 && !gains.SubsetOf(&goal) {
		return false
	}
	for k := range n.kids {
		if !k.room && !x.safeBelow(k, x.changesOf(k, changes)) {
			return false
		}
	}
	return true
}

// changesOf is what the changes of the cgroup above make of one.
func (x *execution) changesOf(n *node, above []change) []change {
	var changes []change
	for i := range above {
		for _, mask := range x.t.mayCarry(n) {
			next := change{given(mask, &above[i].before), given(mask, &above[i].after)}
			if !slices.Contains(changes, next) {
				changes = append(changes, next)
			}
		}
	}
	return changes
}
