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

// newCores is how many of the cores are new to the result.
func (t *sorts) newCores() int {
	return int(t[sortLone] + t[sortWhole] + t[sortBeside] + t[sortOwner])
}

// besideOwner reports whether a PCPULevel owner has a CPU of the core.
func (s *scratch) besideOwner(core int) bool { return s.beside[core] && s.foreign[core] }

func (a *Allocator) sortOf(core int) int {
	s := &a.s
	switch {
	case s.had[core] > 0 && s.keep[core] == 0 && !s.foreign[core]:
		return sortSettled
	case s.had[core] > 0:
		return sortOwn
	case s.besideOwner(core):
		return sortOwner
	case s.foreign[core]:
		return sortBeside
	}
	return int(a.m.cores[core].sort)
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
	n := len(m.cores)
	usable, had, sorted := s.usable[:n], s.had[:n], s.sort[:n]
	foreign, beside, bad := s.foreign[:n], s.beside[:n], s.bad[:n]
	for i := range m.cores {
		c := &m.cores[i]
		g := &s.group[c.group]
		sort := c.sort
		if foreign[i] {
			sort = sortBeside
		}
		if foreign[i] && beside[i] {
			sort = sortOwner
		}
		if had[i] > 0 {
			a.sumHad(i, g)
			s.node[c.node].had += int32(had[i])
			if usable[i] == 0 {
				continue
			}
			sort = uint8(a.sortOf(i))
		}
		f := int32(usable[i])
		clean := f
		if bad[i] {
			clean = 0
		}
		g.usable += f
		g.clean += clean
		sorted[i] = sort
		s.tally[c.tally][sort] += min(f, 1)
		if m.threads > 2 && f > 0 {
			g.cores += a.coreKey(i, int(sort))
		}
	}
	a.sumGroups()
}

// onlyClean removes the cores of owners to be avoided from the sums.
func (a *Allocator) onlyClean() {
	s, m := &a.s, a.m
	for i, bad := range s.bad {
		f := s.usable[i]
		if !bad || f == 0 {
			continue
		}
		c := &m.cores[i]
		g, sort := &s.group[c.group], int(s.sort[i])
		g.usable -= int32(f)
		s.tally[c.tally][sort]--
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

// sumHad adds the cost of a core of which the result has CPUs anyway.
func (a *Allocator) sumHad(core int, g *groupSum) {
	s, c := &a.s, &a.m.cores[core]
	had := int32(s.had[core])
	g.had = true
	b := &g.base
	b.had += had
	if c.kind != 0 {
		b.efficiency += had
	}
	switch {
	case s.besideOwner(core):
		b.form.besideOwner += had
	case s.foreign[core]:
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
