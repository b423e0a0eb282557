package cgroup

import (
	"cmp"
	"errors"
	"slices"

	"github.com/quietcore/quietcore/internal/cpuset"
)

// Phase says when a write must be done.
type Phase int

const (
	// Shrink writes take CPUs away from those who must leave, or move somebody
	// onto CPUs that these have left. They must all have succeeded before a new
	// owner starts, and are executed in order.
	Shrink Phase = iota
	// Grow writes give CPUs that are free by now; they may be coalesced.
	Grow
)

func (p Phase) String() string { return [...]string{"shrink", "grow"}[p] }

// Write is one mask for one cgroup.
type Write struct {
	ID    string // of the pod, container or slice (its path)
	Path  string
	Phase Phase
	CPUs  Mask
	Mems  Mask
}

// Values returns the write as a driver takes it.
func (w Write) Values() Values { return Values{CPUs: w.CPUs, Mems: w.Mems} }

// Plan returns the ordered writes that turn what was last written into what is
// needed, and nothing when they agree. It changes nothing that a caller can
// see: until Written says otherwise the next Plan returns the same writes.
//
// Cost is that of the cgroups concerned: one pod more in a slice whose members
// all need the same costs no write and no walk.
func (t *Tree) Plan() []Write {
	p := planner{t: t, masks: map[*node]*cpuset.Set{}}
	todo := t.unsettled()
	if len(todo) == 0 {
		return nil
	}
	p.findMovers(todo)
	for _, n := range slices.Backward(todo) {
		if !p.aboveMover[n] {
			p.leave(n)
		}
	}
	p.moveAll(todo)
	for _, n := range todo {
		p.arrive(n)
	}
	return p.writes
}

// unsettled returns the dirty cgroups that need a write, parents first, in an
// order that is the same in every run.
func (t *Tree) unsettled() []*node {
	var todo []*node
	for n := range t.dirty {
		if n.gone || t.settled(n, n.own) && t.memsSettled(n) {
			delete(t.dirty, n)
			continue
		}
		todo = append(todo, n)
	}
	slices.SortFunc(todo, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.path, b.path))
	})
	return todo
}

// Written records the result of one write of a plan. ErrGone counts as done:
// who does not exist is on no CPU.
func (t *Tree) Written(w Write, err error) {
	n := t.byPath[w.Path]
	if n == nil {
		return
	}
	if errors.Is(err, ErrGone) {
		n.gone = true
		return
	}
	t.dirty[n] = struct{}{}
	if err != nil {
		return
	}
	if w.CPUs.set != nil {
		// After Inherit the kernel holds either nothing or the widest set, which
		// does not matter until CPUs come online: the wider assumption is the
		// one that gets repaired then.
		n.own = w.CPUs.set
	}
	if w.Mems.set != nil {
		n.ownMems = w.Mems.set
	}
}

// Execute runs writes of a plan in order and records each result. When a
// Shrink write fails the others still run, since each protects somebody; but
// no later write may then touch the CPUs that could not be freed. Those writes
// are left for the next plan. It returns the failures, not ErrGone.
func (t *Tree) Execute(writes []Write, apply func(Write) error) error {
	var failures []error
	var held cpuset.Set
	for _, w := range writes {
		if w.CPUs.set != nil && !held.IsEmpty() && t.gains(w).Intersects(&held) {
			continue
		}
		stuck := t.loses(w)
		err := apply(w)
		t.Written(w, err)
		if err == nil || errors.Is(err, ErrGone) {
			continue
		}
		failures = append(failures, err)
		held.AddSet(&stuck)
	}
	return errors.Join(failures...)
}

func (t *Tree) gains(w Write) *cpuset.Set {
	set := w.CPUs.Set()
	if n := t.byPath[w.Path]; n != nil {
		set = set.Minus(t.effective(n))
	}
	return &set
}

func (t *Tree) loses(w Write) cpuset.Set {
	n := t.byPath[w.Path]
	if n == nil || w.CPUs.set == nil {
		return cpuset.Set{}
	}
	return t.effective(n).Minus(*w.CPUs.set)
}

// effective is what n's tasks have by the masks last written.
func (t *Tree) effective(n *node) cpuset.Set {
	p := planner{t: t}
	return p.effective(n)
}

// planner is one run of Plan: the masks as they will be after the writes so far.
type planner struct {
	t      *Tree
	masks  map[*node]*cpuset.Set
	writes []Write
	movers []*node
	// aboveMover holds the cgroups that a mover lies in; they are trimmed only
	// after it has moved.
	aboveMover map[*node]bool
}

func (p *planner) own(n *node) *cpuset.Set {
	if m, ok := p.masks[n]; ok {
		return m
	}
	return n.own
}

// effective is the kernel's rule: own and parent's, or else the parent's.
func (p *planner) effective(n *node) cpuset.Set {
	if n == p.t.top {
		return p.t.online
	}
	above := p.effective(n.parent)
	own := p.own(n)
	if own == nil {
		return above
	}
	if both := own.And(above); !both.IsEmpty() {
		return both
	}
	return above
}

func (p *planner) set(n *node, phase Phase, mask *cpuset.Set) {
	p.emit(n, phase, Mask{set: mask}, Mask{})
}

func (p *planner) emit(n *node, phase Phase, cpus, mems Mask) {
	if cpus.set != nil {
		p.masks[n] = cpus.set
	}
	p.writes = append(p.writes, Write{ID: n.ids[len(n.ids)-1], Path: n.path, Phase: phase, CPUs: cpus, Mems: mems})
}

// leave takes from n the CPUs that its target does not have, so that from now
// on no change above can give it any that it must not have.
func (p *planner) leave(n *node) {
	target, managed := p.t.target(n)
	own := p.own(n)
	if target == nil || !managed || own != nil && own.SubsetOf(target) {
		return
	}
	above, now := p.effective(n.parent), p.effective(n)
	later := target.And(above)
	if !p.t.flat && !later.IsEmpty() && later.SubsetOf(&now) {
		p.set(n, Shrink, target)
		return
	}
	if common := now.And(*target); !common.IsEmpty() && (own == nil || common != *own) {
		p.set(n, Shrink, &common)
	}
}

// findMovers lists the cgroups whose present CPUs and target share nothing.
func (p *planner) findMovers(todo []*node) {
	p.aboveMover = map[*node]bool{}
	for _, n := range todo {
		target, managed := p.t.target(n)
		if target == nil || !managed {
			continue
		}
		if now := p.effective(n); now.Intersects(target) {
			continue
		}
		p.movers = append(p.movers, n)
		for a := n.parent; a != p.t.top; a = a.parent {
			p.aboveMover[a] = true
		}
	}
}

// moveAll moves the movers, those first whose target nobody else is about to
// leave. Movers that wait for each other in a circle are broken up by parking
// one of them on CPUs that are nobody's own.
func (p *planner) moveAll(todo []*node) {
	waiting := slices.Clone(p.movers)
	for len(waiting) > 0 {
		i := slices.IndexFunc(waiting, func(n *node) bool { return !p.blocked(n, waiting) })
		if i < 0 {
			p.park(waiting[0])
			i = slices.IndexFunc(waiting, func(n *node) bool { return !p.blocked(n, waiting) })
		}
		i = max(i, 0)
		target, _ := p.t.target(waiting[i])
		p.move(waiting[i], target)
		waiting = slices.Delete(waiting, i, i+1)
	}
	for _, n := range slices.Backward(todo) {
		if p.aboveMover[n] {
			p.leave(n)
		}
	}
}

func (p *planner) blocked(n *node, waiting []*node) bool {
	target, _ := p.t.target(n)
	for _, other := range waiting {
		theirs, _ := p.t.target(other)
		leaving := p.effective(other)
		leaving.RemoveSet(theirs)
		if other != n && leaving.Intersects(target) {
			return true
		}
	}
	return false
}

// move puts n on mask in one write. The cgroups above are widened for it
// first, for which n needs a mask of its own lest it gain what others gain.
func (p *planner) move(n *node, mask *cpuset.Set) {
	above := p.effective(n.parent)
	if there := mask.And(p.t.online); !there.SubsetOf(&above) {
		if p.own(n) == nil {
			p.set(n, Shrink, &above)
		}
		p.widen(n.parent, &there)
	}
	p.set(n, Shrink, mask)
}

func (p *planner) widen(n *node, mask *cpuset.Set) {
	above := p.effective(n)
	if n == p.t.top || mask.SubsetOf(&above) {
		return
	}
	if p.own(n) == nil {
		p.set(n, Shrink, &above)
	}
	p.widen(n.parent, mask)
	wider := p.own(n).Or(*mask)
	p.set(n, Shrink, &wider)
}

func (p *planner) park(n *node) {
	free := p.effective(n.parent)
	for _, other := range p.t.byPath {
		if cpus := other.need.cpus; cpus != nil {
			free.RemoveSet(cpus)
		}
	}
	for _, other := range p.movers {
		now := p.effective(other)
		free.RemoveSet(&now)
	}
	if !free.IsEmpty() {
		p.move(n, &free)
	}
}

// arrive makes n's mask final.
func (p *planner) arrive(n *node) {
	var cpus, mems Mask
	if !p.t.settled(n, p.own(n)) {
		cpus = p.final(n)
	}
	if !p.t.memsSettled(n) {
		mems = Mask{set: n.mems}
	}
	if !cpus.IsZero() || !mems.IsZero() {
		p.emit(n, Grow, cpus, mems)
	}
}

func (p *planner) final(n *node) Mask {
	target, _ := p.t.target(n)
	if target != nil {
		return Mask{set: target}
	}
	if own := p.t.needOf(n).cpus; own != nil && p.t.covered(n) {
		return Mask{set: own}
	}
	return Inherit(p.t.online)
}
