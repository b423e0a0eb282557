package cpuallocator

// sorts counts cores that offer CPUs, by the cost of taking them. So whole groups of cores are
// added as a few numbers.
type sorts [numSorts]int32

const (
	sortLone    = iota // no CPU of the core is taken, and it has one
	sortWhole          // no CPU of the core is taken, and it has several
	sortBeside         // a CPU of the core is taken
	sortOwner          // a PCPULevel owner has
	sortOwn            // the result has a CPU of the core that it keeps
	sortSettled        // the result has a new CPU of a core that was wholly free
	numSorts
)

func (t *sorts) add(o *sorts) {
	t[0] += o[0]
	t[1] += o[1]
	t[2] += o[2]
	t[3] += o[3]
	t[4] += o[4]
	t[5] += o[5]
}

// packedSorts are sorts of at most maxRun cores in one word.
type packedSorts uint64

const sortBits = 10 // of a word of numSorts

func (p packedSorts) addTo(t *sorts) {
	for i := range t {
		t[i] += int32(p >> (i * sortBits) & (1<<sortBits - 1))
	}
}

// newCores is how many of the cores are new to the result.
func (t *sorts) newCores() int {
	return int(t[sortLone] + t[sortWhole] + t[sortBeside] + t[sortOwner])
}

// sortOfState is the sort of a core of which the result has no CPU anyway, by its state without stateBad.
var sortOfState = [8]uint8{
	0:                                    sortWhole,
	statePCPU:                            sortWhole,
	stateForeign:                         sortBeside,
	stateForeign | statePCPU:             sortOwner,
	stateLone:                            sortLone,
	stateLone | statePCPU:                sortLone,
	stateLone | stateForeign:             sortBeside,
	stateLone | stateForeign | statePCPU: sortOwner,
}

// sortOfHad is the sort of a core of which the result has a CPU anyway.
func (s *scratch) sortOfHad(core int) uint8 {
	if s.keep[core] == 0 && !s.state[core].foreign() {
		return sortSettled
	}
	return sortOwn
}

// baseSum is the cost of the CPUs that the result has anyway.
type baseSum struct {
	form            form // its kind is not set: that depends on the other CPUs, too
	had, efficiency int32
}

func (b *baseSum) add(o *baseSum) {
	b.form.add(&o.form)
	b.had += o.had
	b.efficiency += o.efficiency
}

// sum adds up groups and nodes. It has no branch that depends on which CPUs are free: on a machine
// in use such branches cannot be predicted.
func (a *Allocator) sum() {
	s, m := &a.s, a.m
	clear(s.tally)
	clear(s.group)
	for i := range s.node {
		s.node[i].had = 0
	}
	a.q.cleanOnly, s.nodes.settled.stale = false, false
	for i := range m.runs {
		a.sumRun(&m.runs[i])
	}
	if a.hasAny() {
		a.sumHad()
	}
	if m.threads > 2 {
		a.sumCoreKeys()
	}
	a.sumGroups()
}

// hasAny reports whether the result has CPUs anyway: kept or settled ones.
func (a *Allocator) hasAny() bool { return a.q.want < a.q.asked }

// sumRun adds up the cores of a run, as if the result had no CPU of them.
func (a *Allocator) sumRun(r *run) {
	s, g := &a.s, &a.s.group[r.group]
	usable := s.usable[r.first:r.end]
	states, sorted := s.state[r.first:][:len(usable)], s.sort[r.first:][:len(usable)]
	var room, bad int32
	var counts packedSorts
	for i, f := range usable {
		state, sort := states[i], sortOfState[states[i]&7]
		sorted[i] = sort
		room += int32(f)
		bad += int32(f) & -int32(state/stateBad)
		counts += packedSorts(min(f, 1)) << (sort * sortBits & 63)
	}
	g.usable += room
	g.clean += room - bad
	counts.addTo(&s.tally[r.tally])
}

// sumHad corrects the sums for the cores of which the result has CPUs anyway.
func (a *Allocator) sumHad() {
	s := &a.s
	for i, had := range s.had {
		if had == 0 {
			continue
		}
		c := &a.m.cores[i]
		a.sumHadCore(i, &s.group[c.group])
		s.node[c.node].had += int32(had)
		sort := s.sortOfHad(i)
		if s.usable[i] > 0 {
			t := &s.tally[a.m.tallyOf(c)]
			t[s.sort[i]]--
			t[sort]++
		}
		s.sort[i] = sort
	}
}

// sumCoreKeys adds up the keys of the cores of each group.
func (a *Allocator) sumCoreKeys() {
	for i, f := range a.s.usable {
		if f > 0 {
			a.s.group[a.m.cores[i].group].cores += a.coreKey(i, int(a.s.sort[i]))
		}
	}
}

// onlyClean removes the cores of owners to be avoided from the sums.
func (a *Allocator) onlyClean() {
	s, m := &a.s, a.m
	for i, f := range s.usable {
		if !s.state[i].bad() || f == 0 {
			continue
		}
		c := &m.cores[i]
		g, sort := &s.group[c.group], int(s.sort[i])
		g.usable -= int32(f)
		s.tally[m.tallyOf(c)][sort]--
		if m.threads > 2 {
			g.cores -= a.coreKey(i, sort)
		}
	}
	a.q.cleanOnly = true
	a.sumGroups()
}

// sumGroups adds up the groups of each node, and the CPUs that the result has anyway.
func (a *Allocator) sumGroups() {
	s, kinds := &a.s, a.m.kinds
	s.base = baseSum{}
	clear(s.sorts)
	for i := range s.node {
		n := &s.node[i]
		n.usable, n.clean = 0, 0
		for _, id := range a.m.nodes[i].groups {
			g := &s.group[id]
			n.usable += g.usable
			n.clean += g.clean
			if g.had {
				s.base.add(&g.base)
			}
			for k := range kinds {
				s.sorts[i*kinds+k].add(&s.tally[int(id)*kinds+k])
			}
		}
		n.within = n.usable
	}
}

// sumHadCore adds the cost of a core of which the result has CPUs anyway.
func (a *Allocator) sumHadCore(core int, g *groupSum) {
	s, c := &a.s, &a.m.cores[core]
	had := int32(s.had[core])
	g.had = true
	b := &g.base
	b.had += had
	if c.kind != 0 {
		b.efficiency += had
	}
	switch {
	case s.state[core].besideOwner():
		b.form.besideOwner += had
	case s.state[core].foreign():
		b.form.beside += had
	case s.keep[core] == 0 && s.had[core] < c.on && a.q.mode != isolated:
		b.form.broken++
	}
	switch {
	case a.q.spread:
		b.form.bind += had - 1
	case s.had[core] < c.on && a.q.mode != isolated:
		b.form.bind++
	}
}

// groupKey is equal for groups that are interchangeable in the search. (If two unequal groups ever
// had the same key, the search would skip one of them; the result would still be valid and a
// function of the request.)
func (a *Allocator) groupKey(id int16) uint64 {
	s, kinds, g := &a.s, a.m.kinds, int(id)
	key := mix(s.group[g].cores, uint64(s.l3raw[a.m.groups[g].l3])+1)
	for k := range kinds {
		t := &s.tally[g*kinds+k]
		key = mix(key, uint64(t[sortLone])|uint64(t[sortWhole])<<20|uint64(t[sortBeside])<<40)
		key = mix(key, uint64(t[sortOwner])|uint64(t[sortOwn])<<20|uint64(t[sortSettled])<<40)
	}
	if s.group[g].had {
		key = mix(key, uint64(g)+1)
	}
	return key
}

// coreKey distinguishes cores with more than two threads: the number of threads that can be taken
// counts as well.
func (a *Allocator) coreKey(core, sort int) uint64 {
	s, c := &a.s, &a.m.cores[core]
	return mix(uint64(c.kind)+1, uint64(s.raw[core])<<32|uint64(s.usable[core])<<16|uint64(c.on)<<8|uint64(sort))
}

func mix(key, w uint64) uint64 {
	key = (key ^ w) * 0x9e3779b97f4a7c15
	return key ^ key>>29
}
