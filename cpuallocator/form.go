package cpuallocator

// lanes are the counts of one word of a tally.
func lanes(w uint64) (idle, half, own, mixed int) {
	return int(w & laneMask), int(w >> laneHalf & laneMask), int(w >> laneOwn & laneMask),
		int(w >> laneMixed & laneMask)
}

// form says how well want CPUs can lie on the cores of a tally, on top of what
// the result has anyway. It is false where they cannot be had: whole cores of
// unequal size do not make up every number. With relax it may answer better
// than can be.
func (a *Allocator) form(tally []uint64, want int, relax bool) (Score, bool) {
	b := &a.s.l3.base
	f := Score{Partial: b.partial, Cores: b.cores, Shared: b.shared, Doubled: b.doubled}
	performance, efficiency := want, 0
	if a.m.kinds > 1 {
		var ok bool
		performance, efficiency, ok = a.splitKinds(tally, want)
		if !ok {
			return f, false
		}
		f.Kind = kindScore(int(b.had-b.kind)+performance, int(b.kind)+efficiency)
	}
	ok := a.addForm(&f, tally[:a.m.threads], performance, 0, relax)
	if ok && efficiency > 0 {
		ok = a.addForm(&f, tally[a.m.threads:], efficiency, 1, relax)
	}
	return f, ok
}

func kindScore(performance, efficiency int) int32 {
	switch {
	case efficiency == 0:
		return 0
	case performance == 0:
		return 1
	}
	return int32(2 + efficiency)
}

// splitKinds says how many of the CPUs lie on performance and on efficiency
// cores: all on the former, else all on the latter, else as few as can be on
// the latter. SpreadByPCPUs wants its distinct cores first.
func (a *Allocator) splitKinds(tally []uint64, want int) (performance, efficiency int, ok bool) {
	t := a.m.threads
	p, e := tally[:t], tally[t:]
	hadE := int(a.s.l3.base.kind)
	hadP := int(a.s.l3.base.had) - hadE
	if a.q.spread {
		return splitSpread(p, e, want, hadP, hadE)
	}
	if hadE == 0 && a.fits(p, want) {
		return want, 0, true
	}
	if hadP == 0 && a.fits(e, want) {
		return 0, want, true
	}
	for some := max(0, want-offered(p)); some <= want; some++ {
		if a.fits(p, want-some) && a.fits(e, some) {
			return want - some, some, true
		}
	}
	return 0, 0, false
}

func splitSpread(p, e []uint64, want, hadP, hadE int) (performance, efficiency int, ok bool) {
	newP, newE := newCores(p), newCores(e)
	roomP, roomE := offered(p), offered(e)
	switch {
	case want > roomP+roomE:
		return 0, 0, false
	case want >= newP+newE:
		efficiency = max(newE, want-roomP)
	case hadE == 0 && newP >= want:
	case hadP == 0 && newE >= want:
		efficiency = want
	default:
		efficiency = max(0, want-newP)
	}
	return want - efficiency, efficiency, true
}

// offered is how many CPUs the cores of a tally offer.
func offered(tally []uint64) int {
	n := 0
	for f, w := range tally {
		idle, half, own, mixed := lanes(w)
		n += (f + 1) * (idle + half + own + mixed)
	}
	return n
}

// newCores is how many cores of a tally the result is not on yet.
func newCores(tally []uint64) int {
	n := 0
	for _, w := range tally {
		idle, half, _, _ := lanes(w)
		n += idle + half
	}
	return n
}

// fits says whether the cores of a tally can make up exactly n CPUs.
func (a *Allocator) fits(tally []uint64, n int) bool {
	if a.q.mode != wholeCores || a.m.uniform {
		return offered(tally) >= n
	}
	sizes := a.s.l3.sizes
	clear(sizes)
	for f, w := range tally {
		idle, half, own, mixed := lanes(w)
		sizes[f+1] = int32(idle + half + own + mixed)
	}
	return reachable(sizes, n, a.s.l3.reach)
}

// addForm adds what n CPUs on the cores of one kind count for.
func (a *Allocator) addForm(f *Score, tally []uint64, n int, kind uint8, relax bool) bool {
	switch {
	case n == 0:
		return true
	case a.q.spread:
		a.addSpread(f, tally, n)
		return offered(tally) >= n
	case len(tally) <= 2:
		var p pairPlan
		ok := a.planPairs(tally, n, &p)
		f.Partial += p.half + p.broken - p.own
		f.Cores += p.pair + p.single + p.half + p.broken
		f.Broken += p.broken
		f.Shared += p.half
		return ok
	case relax:
		a.addBound(f, tally, n)
		return true
	}
	return a.addThreads(f, n, kind)
}

// addSpread puts one thread on each core, idle ones first, and only then
// seconds.
func (a *Allocator) addSpread(f *Score, tally []uint64, n int) {
	idle := 0
	for _, w := range tally {
		i, _, _, _ := lanes(w)
		idle += i
	}
	cores := min(n, newCores(tally))
	f.Doubled += int32(n - cores)
	f.Shared += int32(max(0, cores-idle))
}

// pairPlan is how many cores of each sort a FullPCPUs request takes where cores
// have at most two threads.
type pairPlan struct {
	own    int32 // second threads of cores that the result has one of
	pair   int32 // whole cores of two threads
	single int32 // whole cores of one thread
	half   int32 // threads of cores that somebody else has the other of
	broken int32 // threads of whole cores whose other thread stays behind
}

// planPairs finds the best plan for n CPUs. Completing own cores and taking
// pairs come first; whether the last own core is completed decides whether the
// rest is odd, so both are tried.
func (a *Allocator) planPairs(tally []uint64, n int, best *pairPlan) bool {
	singles, halves, owns, _ := lanes(tally[0])
	pairs := 0
	if len(tally) > 1 {
		pairs, _, _, _ = lanes(tally[1])
	}
	own := min(owns, n)
	var ok bool
	*best, ok = fillPairs(n, own, pairs, singles, halves)
	if a.noBreaking(best) {
		ok = false
	}
	if own == 0 || ok && best.half+best.broken == 0 {
		return ok
	}
	if other, can := fillPairs(n, own-1, pairs, singles, halves); can && (!ok || other.less(best)) {
		*best, ok = other, true
	}
	return ok
}

// fillPairs takes the kinds in the order of preference. It reports whether they
// suffice.
func fillPairs(n, own, pairs, singles, halves int) (p pairPlan, enough bool) {
	n -= own
	pair := min(pairs, n/2)
	n -= 2 * pair
	single := min(singles, n)
	n -= single
	half := min(halves, n)
	n -= half
	broken := min(n, pairs-pair)
	p = pairPlan{own: int32(own), pair: int32(pair), single: int32(single), half: int32(half), broken: int32(broken)}
	return p, n == broken
}

// noBreaking turns down a plan that takes a part of a whole core.
func (a *Allocator) noBreaking(p *pairPlan) bool { return a.q.mode == wholeCores && p.broken > 0 }

func (p *pairPlan) less(o *pairPlan) bool {
	x, y := p.half+p.broken-p.own, o.half+o.broken-o.own
	if x != y {
		return x < y
	}
	x, y = p.pair+p.single+p.half+p.broken, o.pair+o.single+o.half+o.broken
	if x != y {
		return x < y
	}
	if p.broken != o.broken {
		return p.broken < o.broken
	}
	return p.half < o.half
}
