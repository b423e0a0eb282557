package cgroup

import (
	"errors"
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// Written records the result of one write of a plan. ErrGone counts as done:
// who does not exist is on no CPU.
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
// failure the rest goes on as far as it stays safe: nobody gains CPUs that
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
	return !w.CPUs.set.SubsetOf(&now)
}

// underWay is a write that has begun and not ended: either mask may be in force.
type underWay struct {
	node *node
	mask Mask
}

// execution remembers what went wrong so far.
type execution struct {
	t    *Tree
	held cpuset.Set         // CPUs that somebody should have left by now
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
			x.uncertain(k)
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
	certain := len(x.t.unsure) == 0
	if len(x.stay) == 0 && x.held.IsEmpty() && certain || w.CPUs.set == nil {
		return true
	}
	if _, stays := x.stay[n]; stays {
		return false
	}
	before := planner{t: x.t}
	if above := before.above(n); !w.CPUs.set.Intersects(&above) {
		// What should have been widened above was not: it would stay on all that
		// the parent has, and nobody would know.
		return false
	}
	after := planner{t: x.t, masks: map[*node]*cpuset.Set{n: w.CPUs.set}}
	return x.safeBelow(n, &before, &after) && (certain || x.safeIfUncertain(n, &underWay{n, w.CPUs}))
}

// safeIfUncertain asks the same of all that n and those in it may have: where a write is in
// flight, a mask that is loosened gives what the one above may still turn out to be, and one
// that is widened gives it to whom a late write may loosen.
func (x *execution) safeIfUncertain(n *node, w *underWay) bool {
	was := x.t.mayUse(n)
	x.t.writing = w
	gains := x.t.mayUse(n)
	x.t.writing = nil
	gains.RemoveSet(&was)
	if gains.Intersects(&x.held) {
		return false
	}
	if goal, _ := x.t.goal(n); len(n.odd) == 0 && !gains.SubsetOf(&goal) {
		return false
	}
	for k := range n.kids {
		if !x.safeIfUncertain(k, w) {
			return false
		}
	}
	return true
}

func (x *execution) safeBelow(n *node, before, after *planner) bool {
	gains := after.effective(n)
	if !n.unread() && x.t.inUnread(n) == nil {
		was := before.effective(n)
		gains.RemoveSet(&was)
	}
	if gains.Intersects(&x.held) {
		return false
	}
	if goal, _ := x.t.goal(n); len(n.odd) == 0 && !gains.SubsetOf(&goal) {
		return false
	}
	for k := range n.kids {
		if !x.safeBelow(k, before, after) {
			return false
		}
	}
	return true
}
