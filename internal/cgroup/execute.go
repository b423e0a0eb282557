package cgroup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// Written records the result of one write of a plan. ErrGone counts as success: a cgroup that does
// not exist uses no CPU.
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

// ErrSkipRest is what apply returns if there is something more urgent to do.
var ErrSkipRest = errors.New("skip the rest of the plan")

// Execute runs writes of a plan in order and records each result. After a failure it continues as
// far as that is safe: no cgroup gains CPUs that could not be freed, and no mask changes above a
// cgroup whose own mask could not be written, since that cgroup would follow it, nor below one
// whose mask is unknown. Skipped writes remain for the next plan, and until then show in Held. It
// returns the failures joined; ErrGone is not a failure.
//
// The writes may be a part of a plan, but Shrink writes must come before Grow. If apply returns
// ErrSkipRest, that write and the rest remain for the next plan.
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
			failures = append(failures, fmt.Errorf("cgroup %s is not written: the mask of %s could not be read", n.path,
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

// Widens reports whether a write gives a cgroup CPUs that it did not have by its mask. The plan
// makes sure that no cgroup of the tree is still on them; unknown cgroups may be.
func (t *Tree) Widens(w Write) bool {
	n := t.byPath[w.Path]
	if n == nil || w.CPUs.set == nil {
		return false
	}
	p := planner{t: t}
	now := p.effective(n)
	return n.mayCome() || !w.CPUs.set.SubsetOf(&now)
}

// underWay is a write in flight: either the old or the new mask may be in force.
type underWay struct {
	node *node
	mask Mask
}

// execution records the failures so far.
type execution struct {
	t    *Tree
	held cpuset.Set         // CPUs that a cgroup should have left by now
	stay map[*node]struct{} // failed cgroups and all above them
	// unread means that the masks of some cgroups are unknown.
	unread bool
}

// uncertain adds the CPUs that n, and the cgroups below it that do not simply run where it does,
// may have because of what is uncertain about n.
func (x *execution) uncertain(n *node) {
	held := x.t.beyond(n)
	x.held.AddSet(&held)
	if len(n.odd) > 0 {
		for k := range n.kids {
			if !k.room { // no task runs there
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
		// The parent should have been widened and was not: the cgroup would silently stay on all
		// CPUs of its parent.
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

// change is the CPUs of a cgroup before a write and after it, for one of the possible states of it
// and of the cgroups above.
type change struct{ before, after cpuset.Set }

// safeBelow reports whether neither n nor anything below it gains CPUs that it must not have, in
// any possible state of what is uncertain. A mask that is loosened gives what the parent may turn
// out to have. A mask that is widened gives its CPUs to cgroups below whose masks a late write may
// loosen. A mask that is rewritten unchanged widens the cgroup if the kernel had a narrower one.
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

// changesOf is how the changes of its parent affect a cgroup.
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
