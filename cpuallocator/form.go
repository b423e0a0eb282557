package cpuallocator

// formOf is how well want CPUs can lie on the cores of a tally (a count for each kind), together
// with what the result has anyway, and how many of them on efficiency cores. It is false if that
// number is impossible: whole cores of unequal size do not add up to every number. A tally with
// more cores of some sort never has a worse form.
//
// Cores of more than two threads are not in the tally: those of the open L3s and the current ones
// are visited instead.
func (a *Allocator) formOf(tally []sorts, want int) (best form, efficiency int, ok bool) {
	b := &a.s.l3.base
	if a.m.threads > 2 && a.q.mode != isolated {
		return a.formOfThreads(want)
	}
	if a.m.kinds == 1 {
		best = b.form
		return best, 0, a.addForm(&best, &tally[0], want)
	}
	for some := 0; some <= want; some++ {
		f := b.form
		if !a.addForm(&f, &tally[0], want-some) || !a.addForm(&f, &tally[1], some) {
			continue
		}
		f.kind = b.kindOf(want, some)
		if !ok || f.compare(&best) < 0 {
			best, efficiency, ok = f, some, true
		}
	}
	return best, efficiency, ok
}

// kindOf is the kind of a result with more CPUs, some of them on efficiency cores.
func (b *baseSum) kindOf(more, efficient int) int32 {
	return kindScore(int(b.had-b.efficiency)+more-efficient, int(b.efficiency)+efficient)
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

// addForm adds the cost of n CPUs on the cores of one kind.
func (a *Allocator) addForm(f *form, t *sorts, n int) bool {
	switch {
	case a.q.mode == isolated:
		return n <= t.newCores()
	case a.q.spread:
		return a.addSpread(f, t, n)
	}
	var p pairPlan
	ok := a.planPairs(t, n, &p)
	f.bind += p.partial()
	f.besideOwner += p.owner
	f.beside += p.beside
	f.broken += p.broken
	return ok
}

// addSpread puts one thread on each core, first on cores of which no CPU is taken, and only then
// second threads, which complete cores.
func (a *Allocator) addSpread(f *form, t *sorts, n int) bool {
	lone, whole := int(t[sortLone]), int(t[sortWhole])
	first := min(n, t.newCores())
	owner := max(0, first-lone-whole-int(t[sortBeside]))
	f.besideOwner += int32(owner)
	f.beside += int32(max(0, first-lone-whole) - owner)
	f.broken += int32(max(0, min(first-lone, whole)))
	seconds := n - first
	if seconds == 0 {
		return true
	}
	f.bind += int32(seconds)
	completed := min(seconds, whole+int(t[sortSettled]))
	f.broken -= int32(completed)
	return a.q.mode == anyThreads && seconds-completed <= int(t[sortOwn])
}

// pairPlan is how many cores of each sort a FullPCPUs request takes where cores
// have at most two threads.
type pairPlan struct {
	own    int32 // second threads of cores that the result has one of
	whole  int32 // whole cores of two threads
	lone   int32 // whole cores of one thread
	broken int32 // threads of whole cores whose other thread stays behind
	beside int32 // threads of cores whose other thread is taken
	owner  int32 // the same, a PCPULevel owner
}

// partial is how many cores more are taken in part.
func (p *pairPlan) partial() int32 { return p.broken + p.beside + p.owner - p.own }

// planPairs finds the best plan for n CPUs. Completing own cores and taking
// whole ones come first; whether the last own core is completed decides whether
// the rest is odd, so both are tried.
func (a *Allocator) planPairs(t *sorts, n int, best *pairPlan) bool {
	own := min(int(t[sortOwn]), n)
	ok := a.fillPairs(best, t, n, own)
	if own == 0 || ok && best.partial() == -best.own {
		return ok
	}
	var other pairPlan
	if a.fillPairs(&other, t, n, own-1) && (!ok || other.less(best)) {
		*best, ok = other, true
	}
	return ok
}

// fillPairs takes the sorts in the order of preference. It reports whether they are enough.
func (a *Allocator) fillPairs(p *pairPlan, t *sorts, n, own int) bool {
	rest := int32(n - own)
	p.own = int32(own)
	p.whole = min(t[sortWhole], rest/2)
	rest -= 2 * p.whole
	p.lone = min(t[sortLone], rest)
	rest -= p.lone
	p.broken = min(t[sortWhole]-p.whole, rest)
	rest -= p.broken
	p.beside = min(t[sortBeside], rest)
	rest -= p.beside
	p.owner = min(t[sortOwner], rest)
	return rest == p.owner && (a.q.mode != wholeCores || p.broken == 0)
}

func (p *pairPlan) less(o *pairPlan) bool {
	f := form{bind: p.partial(), besideOwner: p.owner, beside: p.beside, broken: p.broken}
	g := form{bind: o.partial(), besideOwner: o.owner, beside: o.beside, broken: o.broken}
	return f.compare(&g) < 0
}
