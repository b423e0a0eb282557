package cgroup

import (
	"cmp"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// Phase is the point at which a write must be done.
type Phase int

const (
	// Shrink writes take CPUs away from cgroups that lost them, or move a cgroup onto CPUs that
	// others have left. They are executed in order, and all must have succeeded before a new owner
	// starts.
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

// Values returns the write in the form that a driver takes.
func (w Write) Values() Values { return Values{CPUs: w.CPUs, Mems: w.Mems} }

// Plan returns the ordered writes that turn what was last written into what is needed, and nothing
// when they agree. It has no visible effect: until a result is recorded with Written, the next Plan
// returns the same writes.
//
// The cost depends only on the affected cgroups: another pod in a slice whose members all need the
// same costs no write and no walk.
func (t *Tree) Plan() []Write {
	p := planner{t: t, masks: map[*node]*cpuset.Set{}, parked: map[*node]bool{}}
	todo := t.unsettled()
	if len(todo) == 0 {
		return nil
	}
	p.findMovers(todo)
	for _, late := range []bool{false, true} {
		for _, n := range slices.Backward(todo) {
			if n.mayCome() != late {
				continue
			}
			if kept, moves := p.keep[n]; moves {
				p.leaveAllBut(n, kept)
			} else if !p.aboveMover[n] {
				p.leave(n)
			}
		}
	}
	p.moveAll(todo)
	for a := range p.aboveMover { // perhaps widened without needing a write itself
		if _, changed := p.masks[a]; changed && !slices.Contains(todo, a) {
			todo = append(todo, a)
		}
	}
	for _, n := range sorted(todo) {
		p.arrive(n)
	}
	return p.writes
}

// unsettled returns the dirty cgroups that need a write, parents first, in a deterministic order.
func (t *Tree) unsettled() []*node {
	if t.Limited() {
		t.touchAll() // which cgroups a limit displaces depends on the CPUs of all
	}
	p := planner{t: t}
	var todo []*node
	for n := range t.dirty {
		switch {
		case n.gone:
			delete(t.dirty, n)
		case t.due(n):
			todo = append(todo, n)
		case !p.beyondRight(n):
			delete(t.dirty, n)
		}
	}
	for _, n := range slices.Clone(todo) {
		if now, u := p.effective(n), t.union(n); u != nil && !u.SubsetOf(&now) {
			todo = p.displaced(n, todo)
		}
	}
	return sorted(todo)
}

// due reports whether n needs a write.
func (t *Tree) due(n *node) bool { return !t.settled(n, n.own) || !t.memsSettled(n) }

// beyondRight reports whether the kernel gives n CPUs that it has no right to, in spite of its
// mask. It does if a limit from outside, or offline CPUs, leave nothing of the mask. No write
// helps.
func (p *planner) beyondRight(n *node) bool {
	right := p.t.unionOf(n, p.t.right)
	if right == nil {
		return false
	}
	now := p.effective(n)
	return !now.SubsetOf(right)
}

// displaced adds the members of a mixed cgroup whose mask is right but lies outside the CPUs of the
// cgroups above (after a change from outside, or an earlier failure): as long as that lasts they
// have all CPUs of their parent, and would gain with it.
func (p *planner) displaced(n *node, todo []*node) []*node {
	if len(n.odd) == 0 {
		return todo
	}
	above := p.effective(n)
	for k := range n.kids {
		if !p.t.due(k) && k.own != nil && !k.own.Intersects(&above) {
			todo = append(todo, k)
		}
		todo = p.displaced(k, todo)
	}
	return todo
}

func sorted(nodes []*node) []*node {
	slices.SortFunc(nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.path, b.path))
	})
	return nodes
}

// rank orders parents before kids, also if a pod lies in a container.
func (n *node) rank() level {
	if n.parent == nil {
		return n.level
	}
	return max(n.level, n.parent.rank())
}

// planner is one run of Plan: the masks after the writes so far.
type planner struct {
	t      *Tree
	masks  map[*node]*cpuset.Set
	writes []Write
	movers []*node
	// aboveMover holds the ancestors of movers; they are trimmed only after the mover has moved.
	aboveMover map[*node]bool
	// inside holds the movers and their ancestors by their parents.
	inside map[*node][]*node
	// keep holds, for a mover whose mask serves others, the CPUs of those that would fall onto its
	// new mask.
	keep map[*node]cpuset.Set
	// parked holds movers on CPUs without an owner, where they block no other mover.
	parked map[*node]bool
}

func (p *planner) own(n *node) *cpuset.Set {
	if m, ok := p.masks[n]; ok {
		return m
	}
	return n.own
}

// effective is the kernel's rule: the intersection with the parent's set, or the parent's set if
// that is empty.
func (p *planner) effective(n *node) cpuset.Set {
	if n == p.t.top {
		return p.t.online
	}
	above := p.above(n)
	own := p.own(n)
	if own == nil {
		return above
	}
	if both := own.And(above); !both.IsEmpty() {
		return both
	}
	return above
}

// above is what n would have without a mask of its own.
func (p *planner) above(n *node) cpuset.Set {
	if n.parent == p.t.top {
		return *p.t.allowed(n)
	}
	return p.effective(n.parent)
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

// leave takes from n the CPUs that are not in its target, so that no later change above it can give
// it CPUs that it must not have.
func (p *planner) leave(n *node) {
	target, managed := p.t.target(n)
	own := p.own(n)
	above, now := p.above(n), p.effective(n)
	if target == nil && managed && own != nil && !p.t.covered(n) && !own.SubsetOf(&now) {
		// It should have no mask, and part of its mask is not in effect now: when the parent grows,
		// the cgroups inside would gain that part.
		p.hold(n)
		return
	}
	if target == nil || !managed || own != nil && own.SubsetOf(target) && now.SubsetOf(own) {
		return
	}
	later := target.And(above)
	// The mask becomes final at once if it gains nothing; but a mover may widen the parent before
	// others have left.
	if !p.t.flat && len(p.movers) == 0 && !later.IsEmpty() && later.SubsetOf(&now) {
		p.set(n, Shrink, target)
		return
	}
	if common := now.And(*target); !common.IsEmpty() && (own == nil || common != *own) {
		p.set(n, Shrink, &common)
	}
}

// mayCome reports whether n is an owner whose mask is unknown: the mask that it gets may be wider,
// so the others leave first.
func (n *node) mayCome() bool { return n.unread() && n.need.cpus != nil }

// leaveAllBut takes from a mover the CPUs that are neither in its target nor still used by the
// cgroups below.
func (p *planner) leaveAllBut(n *node, kept cpuset.Set) {
	now := p.effective(n)
	if stays := now.And(kept.Or(*p.targetOf(n))); stays != now {
		p.set(n, Shrink, &stays)
	}
}

// findMovers lists the cgroups that move to CPUs of which they had none, and so must wait until
// others have left. A cgroup whose mask serves one below is a mover, too, if that one would fall
// onto its new mask: it has an own mask from elsewhere, which shares nothing with the new one. Of the CPUs that it has
// with a mask all of whose CPUs are offline it keeps none of an owner's: when the write lands, its own may be back.
func (p *planner) findMovers(todo []*node) {
	p.aboveMover, p.keep = map[*node]bool{}, map[*node]cpuset.Set{}
	for _, n := range todo {
		now, carrier := p.effective(n), n
		for p.t.covered(carrier) {
			carrier = carrier.parent
		}
		target, managed := p.t.target(carrier)
		if target == nil || !managed || now.Intersects(target) {
			continue
		}
		if carrier != n && p.fallsBack(carrier) { // n is where its own mask reaches, which may be on an owner's
			now = now.And(p.free(carrier))
		}
		p.keep[carrier] = p.keep[carrier].Or(now)
	}
	for _, n := range slices.Backward(todo) {
		if _, moves := p.keep[n]; !moves {
			continue
		}
		if p.aboveMover[n] {
			// It must keep containing those below: it is widened for them, and trimmed afterwards.
			delete(p.keep, n)
			continue
		}
		p.movers = append(p.movers, n)
		for a := n.parent; a != p.t.top; a = a.parent {
			p.aboveMover[a] = true
		}
	}
	p.inside = map[*node][]*node{}
	for _, n := range slices.Concat(p.movers, sorted(slices.Collect(maps.Keys(p.aboveMover)))) {
		p.inside[n.parent] = append(p.inside[n.parent], n)
	}
}

// fallsBack reports whether n has all CPUs of its parent because its mask has none of them: they are offline, or the
// parent does not have them.
func (p *planner) fallsBack(n *node) bool {
	own, above := p.own(n), p.above(n)
	return own != nil && !own.Intersects(&above)
}

// moveAll moves the movers, starting with those whose target no other mover is about to leave. A
// cycle of movers that wait for each other is broken by parking one of them on CPUs of the pools
// that have no owner.
func (p *planner) moveAll(todo []*node) {
	var waiting, others []*node
	for _, n := range slices.Backward(p.movers) {
		if p.fallsBack(n) { // before anything else is widened
			waiting = append(waiting, n)
		} else {
			others = append(others, n)
		}
	}
	waiting = append(waiting, others...)
	for len(waiting) > 0 {
		blocked := p.moveUnblocked(waiting)
		if len(blocked) == len(waiting) && !p.parkOne(waiting) {
			p.move(waiting[0], p.targetOf(waiting[0]))
			blocked = waiting[1:]
		}
		waiting = blocked
	}
	for _, n := range slices.Backward(todo) {
		if p.aboveMover[n] {
			p.leave(n)
		}
	}
}

// guard is called before a cgroup gets these CPUs. Those in it that have yet to move, or that contain such, get masks
// with the CPUs that they have if they would gain any that they have no right to; the others have left already.
//
// One that falls back gains all. A mask that holds it on its parent's CPUs would take it from its own onto those of
// others if its own were back by the time that it is written, so it gets none where it has a right to all, and else
// one of CPUs without an owner, if its parent has any.
func (p *planner) guard(n *node, gets *cpuset.Set) {
	for _, k := range p.inside[n] {
		gains := p.gains(k, gets)
		if gains.IsEmpty() {
			continue
		}
		now, next := p.effective(k), given(p.own(k), gets)
		leaves := len(k.odd) > 0 && !now.SubsetOf(&next) // and those in it would fall back
		right := p.t.union(k)
		if !leaves && right != nil && gains.SubsetOf(right) {
			p.guard(k, &next)
		} else if free := now.And(p.free(k)); p.fallsBack(k) && len(k.odd) == 0 && !free.IsEmpty() {
			p.set(k, Shrink, &free)
		} else {
			p.hold(k)
		}
	}
}

// gains is what n gains, with whichever mask it has, when its parent gets these CPUs. No mask helps against a write
// that may still take effect.
func (p *planner) gains(n *node, gets *cpuset.Set) (all cpuset.Set) {
	masks, above := []*cpuset.Set{p.own(n)}, p.above(n)
	if _, planned := p.masks[n]; n.unsure != nil && !planned {
		masks = append(masks, n.unsure.masks...)
		if n.unread() {
			masks = append(masks, nil)
		}
	}
	for _, mask := range masks {
		gained := given(mask, gets).Minus(given(mask, &above))
		all.AddSet(&gained)
	}
	return all
}

// hold gives n its current CPUs as a mask of its own, as far as they are certain.
func (p *planner) hold(n *node) {
	now := p.effective(n)
	if n.unsure != nil {
		for _, may := range p.t.mayHave(n) {
			if both := now.And(may); !both.IsEmpty() {
				now = both
			}
		}
	}
	now.AddSet(p.hidden(n))
	if own := p.own(n); own == nil || *own != now || n.unsure != nil {
		p.set(n, Shrink, &now)
	}
}

// hidden are CPUs of n's mask that are offline or that a limit from outside hides, beside others of it. They may come
// back at any time, and a cgroup below may have no others: a mask that keeps n where it is has them, too.
func (p *planner) hidden(n *node) *cpuset.Set {
	var hidden cpuset.Set
	allowed := p.t.allowed(n)
	if own := p.own(n); own != nil && own.Intersects(allowed) && !p.t.flat {
		hidden = own.Minus(*allowed)
	}
	return &hidden
}

func (p *planner) targetOf(n *node) *cpuset.Set {
	target, _ := p.t.target(n)
	return target
}

// leaving is what n still has and must not keep; empty if it is parked.
func (p *planner) leaving(n *node) cpuset.Set {
	if p.parked[n] {
		return cpuset.Set{}
	}
	now := p.effective(n)
	now.RemoveSet(p.targetOf(n))
	return now
}

// moveUnblocked moves the movers whose target no other mover has yet to leave, and returns the
// rest. The CPUs that n itself leaves are never in its own target.
func (p *planner) moveUnblocked(waiting []*node) (blocked []*node) {
	var busy cpuset.Set
	for _, n := range waiting {
		leaving := p.leaving(n)
		busy.AddSet(&leaving)
	}
	for _, n := range waiting {
		if target := p.targetOf(n); busy.Intersects(target) {
			blocked = append(blocked, n)
		} else {
			p.move(n, target)
		}
	}
	return blocked
}

// parkOne parks the first mover that blocks another; false if none does, or if none can be parked:
// the pools have no CPU without an owner.
func (p *planner) parkOne(waiting []*node) bool {
	var wanted cpuset.Set
	for _, n := range waiting {
		wanted.AddSet(p.targetOf(n))
	}
	for _, n := range waiting {
		if leaving := p.leaving(n); leaving.Intersects(&wanted) && p.park(n, p.quiet(n, &wanted)) {
			return true
		}
	}
	for _, n := range waiting {
		left := p.leaving(n)
		if left = left.And(wanted); !left.IsEmpty() && p.park(n, p.free(n).Minus(left)) {
			return true // on CPUs that others have to leave, but where it blocks none of them
		}
	}
	return false
}

// move puts n on mask in one write. Its ancestors are widened for it first.
func (p *planner) move(n *node, mask *cpuset.Set) {
	above := p.above(n)
	if there := mask.And(*p.t.allowed(n)); !there.SubsetOf(&above) {
		p.widen(n.parent, &there)
	}
	p.set(n, Shrink, mask)
}

func (p *planner) widen(n *node, mask *cpuset.Set) {
	if above := p.effective(n); n == p.t.top || mask.SubsetOf(&above) {
		return
	}
	p.widen(n.parent, mask)
	above := p.effective(n)
	if mask.SubsetOf(&above) {
		return
	}
	wider := above.Or(*mask)
	p.guard(n, &wider)
	wider.AddSet(p.hidden(n))
	p.set(n, Shrink, &wider)
}

// free is what n may be parked on: CPUs of the pools without an owner.
func (p *planner) free(n *node) cpuset.Set {
	var free cpuset.Set
	for _, pool := range p.t.ownerless() {
		free.AddSet(&pool)
	}
	return free.And(*p.t.allowed(n))
}

// quiet is the part of free on which n blocks no other mover: CPUs that no cgroup has to leave,
// else CPUs that n has and no mover wants.
func (p *planner) quiet(n *node, wanted *cpuset.Set) cpuset.Set {
	free, busy := p.free(n), p.leaving(n)
	for _, other := range p.movers {
		leaving := p.leaving(other)
		busy.AddSet(&leaving)
	}
	if quiet := free.Minus(busy); !quiet.IsEmpty() {
		return quiet
	}
	return p.effective(n).And(free).Minus(*wanted)
}

func (p *planner) park(n *node, on cpuset.Set) bool {
	if on.IsEmpty() {
		return false
	}
	p.move(n, &on)
	p.parked[n] = true
	return true
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
	if p.t.needOf(n).cpus != nil && p.t.covered(n) {
		return Mask{set: p.t.rest(n)}
	}
	return Inherit(p.t.online)
}
