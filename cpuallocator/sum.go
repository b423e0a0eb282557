package cpuallocator

// A tally counts the cores of a group (or of several) by what they offer: for
// each kind of core and each number f of usable CPUs one word of four counts.
// So whole groups are added a few words at a time.
const (
	laneIdle  = 0  // nobody has a CPU of the core
	laneHalf  = 16 // somebody else has
	laneOwn   = 32 // the result has one already, nobody else
	laneMixed = 48 // the result has one already, and somebody else
	laneMask  = 0xffff
)

func (m *machine) tallyWords() int { return m.kinds * m.threads }

// lane of a core, by who has CPUs of it.
func (s *scratch) lane(core int) int {
	switch {
	case s.had[core] > 0 && s.foreign[core]:
		return laneMixed
	case s.had[core] > 0:
		return laneOwn
	case s.foreign[core]:
		return laneHalf
	}
	return laneIdle
}

// sum adds up groups and nodes.
func (a *Allocator) sum() {
	s, m := &a.s, a.m
	clear(s.tally)
	clear(s.group)
	for i := range s.node {
		s.node[i] = nodeSum{raw: s.node[i].raw, kept: s.node[i].kept}
	}
	a.q.cleanOnly = false
	words := m.tallyWords()
	for i := range m.cores {
		c := &m.cores[i]
		if s.had[i] > 0 {
			a.sumHad(i, &s.group[c.group])
			s.node[c.node].had += int32(s.had[i])
		}
		f := s.usable[i]
		if f == 0 {
			continue
		}
		n := &s.node[c.node]
		s.group[c.group].usable += int32(f)
		n.usable += int32(f)
		n.within = n.usable
		if !s.bad[i] {
			n.clean += int32(f)
		}
		s.tally[int(c.group)*words+int(c.kind)*m.threads+int(f)-1] += 1 << s.lane(i)
	}
	a.groupKeys()
}

// onlyClean takes the cores of owners to be avoided out of the sums.
func (a *Allocator) onlyClean() {
	s, m := &a.s, a.m
	words := m.tallyWords()
	for i, bad := range s.bad {
		f := s.usable[i]
		if !bad || f == 0 {
			continue
		}
		c := &m.cores[i]
		n := &s.node[c.node]
		s.group[c.group].usable -= int32(f)
		n.usable -= int32(f)
		n.within = n.usable
		s.tally[int(c.group)*words+int(c.kind)*m.threads+int(f)-1] -= 1 << s.lane(i)
	}
	a.q.cleanOnly = true
	a.groupKeys()
}

func (a *Allocator) groupKeys() {
	for i := range a.s.group {
		a.s.group[i].key = a.groupKey(i)
	}
}

// sumHad adds what a core counts for that the result has CPUs of anyway.
func (a *Allocator) sumHad(core int, g *groupSum) {
	s, c := &a.s, &a.m.cores[core]
	g.had = true
	b := &g.base
	if s.bad[core] {
		b.ViolatedCPUs += int32(s.had[core])
	}
	if c.kind != 0 {
		b.Kind += int32(s.had[core])
	}
	if s.foreign[core] {
		b.Shared++
	}
	if a.q.spread {
		b.Doubled += int32(s.had[core]) - 1
		return
	}
	b.Cores++
	if s.had[core] < c.on && a.q.mode != isolated {
		b.Partial++
	}
}

// groupKey is equal for groups that the search may take for one another. (If
// two unequal groups ever met in a key, the search would pass over one of
// them; the result would be valid and still a function of the request.)
func (a *Allocator) groupKey(g int) uint64 {
	s, words := &a.s, a.m.tallyWords()
	key := uint64(s.l3raw[a.m.groups[g].l3]) + 1
	for _, w := range s.tally[g*words : (g+1)*words] {
		key = mix(key, w)
	}
	if s.group[g].had {
		key = mix(key, uint64(g)+1)
	}
	return key
}

func mix(key, w uint64) uint64 {
	key = (key ^ w) * 0x9e3779b97f4a7c15
	return key ^ key>>29
}
