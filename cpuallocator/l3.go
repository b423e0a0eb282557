package cpuallocator

// l3Effort divided by the machine's cores is how many partial sets of L3s one
// request may look at: a small machine's are all looked at, and a large one's as
// many as fit the time that a request may take. Where it runs out, the best set
// seen by then is taken: always of the fewest L3s, perhaps not the best fit.
const l3Effort = 1 << 14

// l3Search is the scratch space of the choice of L3 domains.
type l3Search struct {
	open []bool // by L3 rank: chosen on the place in hand

	list   []l3Item
	tally  []uint64 // of the items, then sums by depth, then the base
	bySize []int16  // items, the largest first
	skip   []bool   // by class
	chosen []int16
	best   []int16
	sizes  []int32
	reach  []bool

	base     baseSum
	left     int // L3s to choose
	want     int
	steps    int // that the request may still make
	found    bool
	greedy   bool // best came from the greedy start, which ignores numbers
	ideal    Score
	form     Score
	leftover int32
	node     int

	totalUsable, totalRaw int32 // of all items
}

// l3Item is an L3 that may be chosen.
type l3Item struct {
	rank   int16
	class  int16 // items of a class can be taken for one another
	usable int32
	raw    int32
	// Bounds over this item and those after it.
	maxUsable, minUsable int32
	maxRaw, minRaw       int32
}

// baseSum is what the result has anyway on the nodes in hand.
type baseSum struct {
	had, kind        int32
	partial, cores   int32
	shared, doubled  int32
	usable, raw, l3s int32
	violated         int32
}

func newL3Search(m *machine) l3Search {
	n := len(m.l3s)
	return l3Search{
		open: make([]bool, n), list: make([]l3Item, 0, n), tally: make([]uint64, (2*n+3)*m.tallyWords()),
		bySize: make([]int16, 0, n),
		skip:   make([]bool, n), chosen: make([]int16, 0, n), best: make([]int16, 0, n),
		sizes: make([]int32, m.threads+1), reach: make([]bool, m.online+1),
	}
}

// chooseL3s finds the fewest L3s of the nodes in hand (or of one node) that
// hold want CPUs, and among as few those on which they lie best. It opens them
// and adds to score what they and their cores count for.
func (a *Allocator) chooseL3s(node, want int, score *Score) bool {
	s := &a.s.l3
	s.node, s.want = node, want
	a.listL3s(node)
	if !a.fewestL3s() {
		return false
	}
	for ; s.left <= len(s.list) && !a.cannotBeat(&Score{L3s: s.base.l3s + int32(s.left)}); s.left++ {
		if a.searchL3s() {
			a.openL3s(score)
			return true
		}
	}
	return false
}

// cannotBeat says that a set of nodes, equal to the best one as far as nodes
// tell, is worse by its L3s or cores: bound is the best that it could have.
func (a *Allocator) cannotBeat(bound *Score) bool {
	s := &a.s.nodes
	if !s.bestSet || s.even {
		return false
	}
	best := &s.best.score
	return bound.L3s > best.L3s || bound.L3s == best.L3s && a.m.threads <= 2 && bound.compareForm(best) > 0
}

// listL3s collects the L3s of the nodes in hand. Those that the result lies on
// anyway are open and part of the base.
func (a *Allocator) listL3s(node int) {
	s, m := &a.s.l3, a.m
	words := m.tallyWords()
	s.list, s.base = s.list[:0], baseSum{}
	base := s.tally[:words]
	clear(base)
	for rank := range m.l3s {
		item := l3Item{rank: int16(rank), raw: a.s.l3raw[rank]}
		at := words * (1 + len(s.list))
		sum := s.tally[at : at+words]
		clear(sum)
		inPlace, had := false, false
		for _, id := range m.l3s[rank].groups {
			g := &m.groups[id]
			if !a.s.nodes.in[g.node] || !a.s.nodes.socket[g.socket] || node >= 0 && int(g.node) != node {
				continue
			}
			inPlace = true
			item.usable += a.s.group[id].usable
			for i := range sum {
				sum[i] += a.s.tally[int(id)*words+i]
			}
			if a.s.group[id].had {
				had = true
				s.base.add(&a.s.group[id].base)
			}
		}
		switch {
		case !inPlace:
		case had || s.open[rank]:
			if !s.open[rank] {
				s.base.l3s++
				s.base.raw += item.raw
			}
			s.open[rank] = true
			s.base.usable += item.usable
			for i := range sum {
				base[i] += sum[i]
			}
		case item.usable > 0:
			s.list = append(s.list, item)
		}
	}
	for i := range m.nodes {
		if a.s.nodes.in[i] && (node < 0 || node == i) {
			s.base.had += a.s.node[i].had
		}
	}
}

func (b *baseSum) add(s *Score) {
	b.kind += s.Kind
	b.partial += s.Partial
	b.cores += s.Cores
	b.shared += s.Shared
	b.doubled += s.Doubled
	b.violated += s.ViolatedCPUs
}

// itemTally is the tally of an item of the list; depth sums lie after them.
func (a *Allocator) itemTally(i int) []uint64 {
	words := a.m.tallyWords()
	return a.s.l3.tally[words*(1+i) : words*(2+i)]
}

func (a *Allocator) depthTally(depth int) []uint64 {
	if depth == 0 {
		return a.s.l3.tally[:a.m.tallyWords()]
	}
	return a.itemTally(len(a.m.l3s) + depth)
}

// fewestL3s finds how many L3s more are needed at least.
func (a *Allocator) fewestL3s() bool {
	s := &a.s.l3
	s.bySize = s.bySize[:0]
	for i := range s.list {
		k := len(s.bySize)
		s.bySize = append(s.bySize, int16(i))
		for ; k > 0 && s.list[s.bySize[k-1]].usable < s.list[i].usable; k-- {
			s.bySize[k] = s.bySize[k-1]
		}
		s.bySize[k] = int16(i)
	}
	sum := int(s.base.usable)
	for s.left = 0; s.left < len(s.bySize) && sum < s.want; s.left++ {
		sum += int(s.list[s.bySize[s.left]].usable)
	}
	return sum >= s.want
}

// searchL3s looks for the best s.left of the listed L3s.
func (a *Allocator) searchL3s() bool {
	s := &a.s.l3
	s.found, s.greedy = false, false
	s.chosen = s.chosen[:0]
	if s.left == 0 || s.left == len(s.list) {
		for i := range s.list[:s.left] {
			a.push(i)
		}
		a.leaf(s.left)
		return s.found
	}
	a.classes()
	a.idealForm()
	bound := s.ideal
	bound.L3s = s.base.l3s + int32(s.left)
	if a.cannotBeat(&bound) {
		return false
	}
	a.greedyL3s()
	clear(s.skip)
	s.chosen = s.chosen[:0]
	a.descend(0, partial{usable: s.base.usable})
	return s.found
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
			if s.list[j].raw == it.raw && s.list[j].usable == it.usable && equalWords(a.itemTally(i), a.itemTally(j)) {
				it.class = s.list[j].class
				break
			}
		}
		if it.class == n {
			n++
		}
	}
	s.totalUsable, s.totalRaw = s.base.usable, 0
	for i := len(s.list) - 1; i >= 0; i-- {
		it := &s.list[i]
		it.maxUsable, it.minUsable, it.maxRaw, it.minRaw = it.usable, it.usable, it.raw, it.raw
		s.totalUsable += it.usable
		s.totalRaw += it.raw
		if i+1 < len(s.list) {
			next := &s.list[i+1]
			it.maxUsable, it.minUsable = max(it.maxUsable, next.maxUsable), min(it.minUsable, next.minUsable)
			it.maxRaw, it.minRaw = max(it.maxRaw, next.maxRaw), min(it.minRaw, next.minRaw)
		}
	}
}

func equalWords(x, y []uint64) bool {
	for i := range x {
		if x[i] != y[i] {
			return false
		}
	}
	return true
}

// idealForm is the form that all listed L3s together would allow: no set of
// them has a better one.
func (a *Allocator) idealForm() {
	s := &a.s.l3
	sum := a.depthTally(len(s.list) + 1)
	copy(sum, a.depthTally(0))
	for i := range s.list {
		for w, v := range a.itemTally(i) {
			sum[w] += v
		}
	}
	s.ideal, _ = a.form(sum, s.want, true)
}

// greedyL3s starts with the largest L3s, and the smallest that suffices for the
// last one.
func (a *Allocator) greedyL3s() {
	s := &a.s.l3
	sum := int(s.base.usable)
	for _, i := range s.bySize[:s.left-1] {
		sum += int(s.list[i].usable)
		a.push(int(i))
	}
	last := int16(-1)
	for _, i := range s.bySize[s.left-1:] {
		if sum+int(s.list[i].usable) >= s.want && (last < 0 || s.list[i].raw < s.list[last].raw) {
			last = i
		}
	}
	if last < 0 {
		return
	}
	a.push(int(last))
	a.leaf(s.left)
	s.greedy = s.found
}

// push adds an item to the set in hand.
func (a *Allocator) push(i int) {
	s := &a.s.l3
	depth := len(s.chosen)
	from, to := a.depthTally(depth), a.depthTally(depth+1)
	for w, v := range a.itemTally(i) {
		to[w] = from[w] + v
	}
	s.chosen = append(s.chosen, int16(i))
}

// partial is the state of a set of L3s that is not complete: what it has and
// what the items passed over would have had.
type partial struct {
	usable, raw         int32
	lostUsable, lostRaw int32
}

// descend tries the sets that extend the one in hand with items from i on, in
// the order of their numbers, so that of equals the first stays.
func (a *Allocator) descend(i int, p partial) {
	s := &a.s.l3
	missing := s.left - len(s.chosen)
	if missing == 0 {
		a.leaf(s.left)
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

// futile says that no set completed from item i on can hold the request, or
// none can be better than the best. Both bounds are taken from what is still to
// be added and from what is still to be passed over.
func (a *Allocator) futile(i int, missing int32, p *partial) bool {
	s := &a.s.l3
	it := &s.list[i]
	pass := int32(len(s.list)-i) - missing
	most := min(p.usable+missing*it.maxUsable, s.totalUsable-p.lostUsable-pass*it.minUsable)
	if int(most) < s.want {
		return true
	}
	return a.hopeless(max(p.raw+missing*it.minRaw, s.totalRaw-p.lostRaw-pass*it.maxRaw))
}

// hopeless says that no set that leaves at least spare free CPUs in its L3s can
// be better than the best.
func (a *Allocator) hopeless(spare int32) bool {
	s := &a.s.l3
	if !s.found || s.form.compareForm(&s.ideal) != 0 {
		return false
	}
	return spare > s.leftover || spare == s.leftover && !s.greedy
}

// leaf compares a whole set with the best.
func (a *Allocator) leaf(depth int) {
	s := &a.s.l3
	form, ok := a.form(a.depthTally(depth), s.want, false)
	if !ok {
		return
	}
	spare := int32(0)
	for _, i := range s.chosen {
		spare += s.list[i].raw
	}
	if s.found {
		c := form.compareForm(&s.form)
		if c > 0 || c == 0 && (spare > s.leftover || spare == s.leftover && !s.greedy) {
			return
		}
	}
	s.found, s.greedy, s.form, s.leftover = true, false, form, spare
	s.best = append(s.best[:0], s.chosen...)
}

// openL3s opens the best set and adds it to the score.
func (a *Allocator) openL3s(score *Score) {
	s := &a.s.l3
	for _, i := range s.best {
		s.open[s.list[i].rank] = true
	}
	score.L3s += s.base.l3s + int32(len(s.best))
	score.Doubled += s.form.Doubled
	score.Kind += s.form.Kind
	score.Partial += s.form.Partial
	score.Cores += s.form.Cores
	score.Broken += s.form.Broken
	score.Shared += s.form.Shared
	score.Leftover += s.leftover + s.base.raw - int32(s.want)
}
