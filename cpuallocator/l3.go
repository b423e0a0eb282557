package cpuallocator

// l3Effort divided by the machine's cores is how many partial sets of L3s one request may visit:
// all of them on a small machine, and on a large one as many as fit into the time of a request.
// When it is used up, the best set so far is taken: always of the fewest L3s that the bind policy
// allows, perhaps not with the best neighbours or the best fit.
const l3Effort = 1 << 13

// l3Search is the scratch space of the choice of L3 domains.
type l3Search struct {
	l3Scratch
	open   []bool // by L3 rank: chosen for the current place
	list   []l3Item
	order  []int16 // items, the largest first
	chosen []int16
	best   []int16

	base  baseSum
	had   l3Base
	total l3Base // of the items and, if usable, those that the result lies on anyway
	node  int    // -1: all current nodes
	want  int
	left  int // L3s to choose
	steps int // that remain for the request

	ideal form // that all L3s together allow
	bestSet
}

// l3Scratch is by item or by depth.
type l3Scratch struct {
	tally  []sorts // of the base, then sums by depth; by kind
	joined []sorts // by L3 rank and kind, of L3s of several groups
	bound  []sorts // by item and kind: the most of each sort from it on, then the sums
	relax  []sorts // by kind
	skip   []bool  // by class
	sizes  []int32
	reach  []bool
}

// bestSet is the best set of L3s so far.
type bestSet struct {
	found    bool
	greedy   bool // it came from the greedy start, which ignores numbers
	form     form
	leftover int32
}

// l3Base is of several L3s; had are those that the result lies on anyway.
type l3Base struct{ usable, raw, l3s int32 }

// l3Item is an L3 that may be chosen.
type l3Item struct {
	rank   int16
	class  int16 // items of a class can be taken for one another
	usable int32
	raw    int32
	cap    int32  // what it has of what the fewest L3s must make up
	key    uint64 // equal for items that can be taken for one another
	tally  []sorts
	// Bounds over this item and those after it.
	maxUsable, minUsable int32
	maxRaw, minRaw       int32
}

func newL3Search(m *machine) l3Search {
	n := len(m.l3s)
	return l3Search{
		l3Scratch: l3Scratch{
			tally: make([]sorts, (n+2)*m.kinds), joined: make([]sorts, n*m.kinds),
			bound: make([]sorts, 2*(n+1)*m.kinds), relax: make([]sorts, m.kinds), skip: make([]bool, n),
			sizes: make([]int32, m.threads+1), reach: make([]bool, m.online+1),
		},
		open: make([]bool, n), list: make([]l3Item, 0, n), order: make([]int16, 0, n),
		chosen: make([]int16, 0, n), best: make([]int16, 0, n),
	}
}

// chooseL3s finds the fewest L3s of the current nodes (or of one node) on which want CPUs meet the
// bind policy and the kind of core, and among equally few those with the best neighbours and the
// best fit. It opens them and adds their cost and that of their cores to score. It is false if the
// CPUs are not available, or cannot beat the best place.
func (a *Allocator) chooseL3s(node, want int, score *Score) bool {
	s := &a.s.l3
	s.node, s.want = node, want
	a.listL3s(node)
	ok := false
	if s.ideal, ok = a.idealForm(); !ok {
		return false
	}
	a.fewestL3s()
	for ; s.left <= len(s.list); s.left++ {
		if !s.canBeat(&a.s.nodes, score) {
			return false
		}
		if a.searchL3s() {
			a.openL3s(score)
			return true
		}
	}
	return false
}

// canBeat reports whether this many L3s on a set of nodes, with the score of the nodes, may still
// beat the best place.
func (s *l3Search) canBeat(n *nodeSearch, score *Score) bool {
	if !n.bestSet || s.node >= 0 {
		return true
	}
	bound := *score
	s.ideal.addTo(&bound)
	bound.L3s += s.had.l3s + int32(s.left)
	return bound.Compare(&n.best.score) <= 0
}

// listL3s collects the L3s of the current nodes. Those that the result lies on anyway are open and
// part of the base.
func (a *Allocator) listL3s(node int) {
	s, m := &a.s.l3, a.m
	s.list, s.chosen, s.base, s.had = s.list[:0], s.chosen[:0], baseSum{}, l3Base{}
	clear(s.tally[:m.kinds])
	if node >= 0 && m.nested() {
		for _, id := range m.nodes[node].groups {
			a.listL3(int(m.groups[id].l3))
		}
		return
	}
	for rank := range m.l3s {
		if in := int(m.l3s[rank].node); in < 0 || a.s.nodes.in[in] && (node < 0 || node == in) {
			a.listL3(rank)
		}
	}
}

func (a *Allocator) listL3(rank int) {
	s := &a.s.l3
	n := len(s.list)
	s.list = s.list[:n+1]
	item := &s.list[n]
	*item = l3Item{rank: int16(rank), raw: a.s.l3raw[rank]}
	inPlace, had := a.addGroups(item, a.m.l3s[rank].groups)
	switch {
	case !inPlace:
	case had || s.open[rank]:
		if !s.open[rank] {
			s.had.l3s++
			s.had.raw += item.raw
		}
		s.open[rank] = true
		s.had.usable += item.usable
		for k := range item.tally {
			s.tally[k].add(&item.tally[k])
		}
	case item.usable > 0:
		return
	}
	s.list = s.list[:n]
}

// addGroups adds the groups of cores that an L3 has on the current nodes.
func (a *Allocator) addGroups(item *l3Item, groups []int16) (inPlace, had bool) {
	s, kinds := &a.s.l3, a.m.kinds
	for _, id := range groups {
		g := &a.m.groups[id]
		if !a.s.nodes.in[g.node] || !a.s.nodes.socket[g.socket] || s.node >= 0 && int(g.node) != s.node {
			continue
		}
		sum := &a.s.group[id]
		item.usable += sum.usable
		item.key += sum.key
		tally := a.s.tally[int(id)*kinds : int(id+1)*kinds]
		if !inPlace {
			item.tally = tally
		} else {
			to := s.joined[int(item.rank)*kinds : int(item.rank+1)*kinds]
			if &item.tally[0] != &to[0] {
				copy(to, item.tally)
				item.tally = to
			}
			for k := range to {
				to[k].add(&tally[k])
			}
		}
		inPlace = true
		if sum.had {
			had = true
			s.base.add(&sum.base)
		}
	}
	return inPlace, had
}

// depthTally is the tally of the base and the first items of the current set.
func (a *Allocator) depthTally(depth int) []sorts {
	return a.s.l3.tally[a.m.kinds*depth : a.m.kinds*(depth+1)]
}

// idealForm is the form that all listed L3s together allow: no set of them has a better one, and
// the chosen ones must be equally good in bind policy and kind of core.
func (a *Allocator) idealForm() (form, bool) {
	s := &a.s.l3
	sum := a.depthTally(1)
	copy(sum, a.depthTally(0))
	for i := range s.list {
		s.chosen = append(s.chosen, int16(i))
		for k := range sum {
			sum[k].add(&s.list[i].tally[k])
		}
	}
	ideal, _, ok := a.formOf(sum, s.want)
	s.chosen = s.chosen[:0]
	return ideal, ok
}

// formInHand is the form that the current set allows.
func (a *Allocator) formInHand() (form, bool) {
	f, _, ok := a.formOf(a.depthTally(len(a.s.l3.chosen)), a.s.l3.want)
	return f, ok
}

// fewestL3s finds the minimum number of further L3s: as many as the largest ones need to hold the
// CPUs, and to meet the bind policy: distinct cores, or whole ones.
func (a *Allocator) fewestL3s() {
	s := &a.s.l3
	need, total := a.needOfL3s()
	s.order = s.order[:0]
	for i := range s.list {
		it := &s.list[i]
		k := len(s.order)
		s.order = append(s.order, int16(i))
		for ; k > 0 && s.list[s.order[k-1]].holdsLess(it); k-- {
			s.order[k] = s.order[k-1]
		}
		s.order[k] = int16(i)
	}
	// If everything that counts is needed, the order is that of the fewest; else the CPUs may be
	// available in another order.
	all := need >= total
	usable := int(s.had.usable)
	for s.left = 0; s.left < len(s.order) && (need > 0 || all && usable < s.want); s.left++ {
		it := &s.list[s.order[s.left]]
		need -= int(it.cap)
		usable += int(it.usable)
	}
}

func (it *l3Item) holdsLess(o *l3Item) bool {
	return it.cap < o.cap || it.cap == o.cap && it.usable < o.usable
}

// needOfL3s computes what the fewest L3s have to provide, beyond the base, and how much of it there
// is.
func (a *Allocator) needOfL3s() (need, total int) {
	s := &a.s.l3
	first, last := 0, a.m.kinds-1
	if a.m.kinds > 1 && s.ideal.kind < 2 {
		first, last = int(s.ideal.kind), int(s.ideal.kind)
	}
	have, own := 0, 0
	for k := first; k <= last; k++ {
		have += a.capOf(&s.tally[k])
		own += int(s.tally[k][sortOwn])
	}
	need = s.want - have
	if a.m.threads > 2 && !a.q.spread {
		need = s.want - int(s.had.usable)
	}
	for i := range s.list {
		it := &s.list[i]
		it.cap = 0
		for k := first; k <= last; k++ {
			it.cap += int32(a.capOf(&s.list[i].tally[k]))
		}
		if a.m.threads > 2 && !a.q.spread {
			it.cap = it.usable
		}
		total += int(it.cap)
	}
	return min(a.needOf(need, int(s.ideal.bind-s.base.form.bind), own), total), total
}

// needOf is what the fewest L3s must provide of want CPUs, with partial further cores taken in
// part, where own of those in part may be completed.
func (a *Allocator) needOf(want, partial, own int) int {
	if a.q.spread || a.q.mode == isolated || a.m.threads > 2 {
		return want // more CPUs than cores use all of them
	}
	// CPUs on cores taken in part are one each, and as many as there are such cores
	// more, and own ones that are completed.
	return want - partial - 2*own
}

// capOf is how much the cores can provide of what the fewest L3s must provide.
func (a *Allocator) capOf(t *sorts) int {
	switch {
	case a.q.spread || a.q.mode == isolated:
		return t.newCores()
	}
	return int(2*t[sortWhole] + t[sortLone])
}

// searchL3s searches for the best s.left of the listed L3s.
func (a *Allocator) searchL3s() bool {
	s := &a.s.l3
	s.bestSet = bestSet{}
	s.chosen = s.chosen[:0]
	if s.left == 0 || s.left == len(s.list) {
		for i := range s.list {
			if s.left > 0 {
				a.push(i)
			}
		}
		a.leaf()
		return s.found
	}
	if len(s.list) <= fewL3s {
		a.eachSet(0)
		return s.found
	}
	a.classes()
	a.greedyL3s()
	clear(s.skip)
	s.chosen = s.chosen[:0]
	a.descend(0, partial{usable: s.had.usable})
	return s.found
}

// fewL3s is so few that to look at all their sets takes less time than bounds.
const fewL3s = 5

// eachSet looks at all sets that extend the current set with items from i on.
func (a *Allocator) eachSet(i int) {
	s := &a.s.l3
	missing := s.left - len(s.chosen)
	if missing == 0 {
		a.leaf()
		return
	}
	for ; i+missing <= len(s.list); i++ {
		a.push(i)
		a.eachSet(i + 1)
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
}

// classes finds items that can be taken for one another, and the bounds of what
// is still to come from each item on.
func (a *Allocator) classes() {
	s := &a.s.l3
	n := int16(0)
	for i := range s.list {
		it := &s.list[i]
		it.class = n
		for j := range s.list[:i] {
			if s.list[j].key == it.key {
				it.class = s.list[j].class
				break
			}
		}
		if it.class == n {
			n++
		}
	}
	s.total = l3Base{usable: s.had.usable}
	most, sums := a.bounds(len(s.list))
	clear(most)
	clear(sums)
	for i := len(s.list) - 1; i >= 0; i-- {
		it := &s.list[i]
		it.maxUsable, it.minUsable, it.maxRaw, it.minRaw = it.usable, it.usable, it.raw, it.raw
		s.total.usable += it.usable
		s.total.raw += it.raw
		if i+1 < len(s.list) {
			next := &s.list[i+1]
			it.maxUsable, it.minUsable = max(it.maxUsable, next.maxUsable), min(it.minUsable, next.minUsable)
			it.maxRaw, it.minRaw = max(it.maxRaw, next.maxRaw), min(it.minRaw, next.minRaw)
		}
		after, sumsAfter := a.bounds(i + 1)
		most, sums := a.bounds(i)
		for k := range most {
			t, m, u, m1, u1 := &it.tally[k], &most[k], &sums[k], &after[k], &sumsAfter[k]
			for sort := range t {
				m[sort] = max(t[sort], m1[sort])
				u[sort] = t[sort] + u1[sort]
			}
		}
	}
}

// bounds are the most cores of each sort that an item from i on has, and the
// sums of those from i on.
func (a *Allocator) bounds(i int) (most, sums []sorts) {
	k := a.m.kinds
	b := a.s.l3.bound[2*k*i : 2*k*(i+1)]
	return b[:k], b[k:]
}

// greedyL3s starts with the L3s that hold most, and for the last one tries every
// other.
func (a *Allocator) greedyL3s() {
	s := &a.s.l3
	for _, i := range s.order[:s.left-1] {
		a.push(int(i))
	}
	for _, i := range s.order[s.left-1:] {
		a.push(int(i))
		a.leaf()
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
	s.greedy = s.found
}

// push adds an item to the current set.
func (a *Allocator) push(i int) {
	s := &a.s.l3
	depth := len(s.chosen)
	from, to, item := a.depthTally(depth), a.depthTally(depth+1), s.list[i].tally
	for k := range to {
		to[k] = from[k]
		to[k].add(&item[k])
	}
	s.chosen = append(s.chosen, int16(i))
}

// partial is the state of a set of L3s that is not complete: what it has and
// what the items passed over would have had.
type partial struct {
	usable, raw         int32
	lostUsable, lostRaw int32
}

// descend tries the sets that extend the current set with items from i on, in
// the order of their numbers, so that of equals the first stays.
func (a *Allocator) descend(i int, p partial) {
	s := &a.s.l3
	missing := s.left - len(s.chosen)
	if missing == 0 {
		a.leaf()
		return
	}
	var skipped [64]int16
	skips := 0
	for ; i+missing <= len(s.list); i++ {
		it := &s.list[i]
		if s.steps--; s.steps < 0 || a.futile(i, int32(missing), &p) {
			break
		}
		if !s.skip[it.class] && int(p.usable+it.usable+int32(missing-1)*it.maxUsable) >= s.want {
			a.push(i)
			next := p
			next.usable += it.usable
			next.raw += it.raw
			a.descend(i+1, next)
			s.chosen = s.chosen[:len(s.chosen)-1]
			if skips < len(skipped) {
				skipped[skips] = it.class
				skips++
				s.skip[it.class] = true
			}
		}
		p.lostUsable += it.usable
		p.lostRaw += it.raw
	}
	for _, class := range skipped[:skips] {
		s.skip[class] = false
	}
}

// futile reports whether no set completed from item i on can hold the request, or
// none can be better than the best. The bounds are taken from what is still to
// be added and from what is still to be passed over.
func (a *Allocator) futile(i int, missing int32, p *partial) bool {
	s := &a.s.l3
	it := &s.list[i]
	pass := int32(len(s.list)-i) - missing
	most := min(p.usable+missing*it.maxUsable, s.total.usable-p.lostUsable-pass*it.minUsable)
	if int(most) < s.want {
		return true
	}
	c := -1
	switch {
	case missing == 1: // to look at the sets themselves takes no longer
	case a.m.threads <= 2:
		bound, ok := a.boundOf(i, missing)
		if !ok || bound.compareBind(&s.ideal) > 0 {
			return true
		}
		if s.found {
			c = bound.compare(&s.form)
		}
	case s.found:
		c = s.ideal.compare(&s.form)
	}
	spare := max(p.raw+missing*it.minRaw, s.total.raw-p.lostRaw-pass*it.maxRaw)
	return c > 0 || c == 0 && !s.improves(spare)
}

// boundOf is an upper bound of the form of all completions of the current set from item
// i on.
func (a *Allocator) boundOf(i int, missing int32) (form, bool) {
	s := &a.s.l3
	most, sums := a.bounds(i)
	inHand := a.depthTally(len(s.chosen))
	for k := range inHand {
		t, relaxed, m, u := &inHand[k], &s.relax[k], &most[k], &sums[k]
		for sort := range t {
			relaxed[sort] = t[sort] + min(missing*m[sort], u[sort])
		}
	}
	f, _, ok := a.formOf(s.relax, s.want)
	return f, ok
}

// improves reports whether a set of as good a form is better if it leaves spare
// free CPUs in its L3s.
func (b *bestSet) improves(spare int32) bool {
	return spare < b.leftover || spare == b.leftover && b.greedy
}

// leaf compares the current set with the best.
func (a *Allocator) leaf() {
	s := &a.s.l3
	f, ok := a.formInHand()
	if !ok || f.compareBind(&s.ideal) > 0 {
		return
	}
	spare := int32(0)
	for _, i := range s.chosen {
		spare += s.list[i].raw
	}
	if s.found {
		if c := f.compare(&s.form); c > 0 || c == 0 && !s.improves(spare) {
			return
		}
	}
	s.bestSet = bestSet{found: true, form: f, leftover: spare}
	s.best = append(s.best[:0], s.chosen...)
}

// openL3s opens the best set and adds it to the score.
func (a *Allocator) openL3s(score *Score) {
	s := &a.s.l3
	for _, i := range s.best {
		s.open[s.list[i].rank] = true
	}
	score.L3s += s.had.l3s + int32(len(s.best))
	s.form.addTo(score)
	score.Leftover += s.leftover + s.had.raw - int32(s.want)
}
