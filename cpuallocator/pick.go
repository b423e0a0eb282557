package cpuallocator

import "github.com/quietcore/quietcore/cpuset"

// picker is the scratch space of the choice of cores.
type picker struct {
	pool   []int16 // cores that CPUs may come from, ascending
	choice []int16
	table  []price
	tally  []uint64
}

func newPicker(m *machine) picker {
	p := picker{pool: make([]int16, 0, len(m.cores)), choice: make([]int16, len(m.cores)),
		tally: make([]uint64, m.tallyWords())}
	if m.threads > 2 {
		p.table = make([]price, maxTable)
	}
	return p
}

// materialize turns the best place into CPUs to take of each core.
func (a *Allocator) materialize() {
	s := &a.s.nodes
	copy(s.in, s.best.in)
	copy(s.socket, s.best.socket)
	copy(s.share, s.best.share)
	if a.short() {
		a.settleClean()
	}
	clear(a.s.l3.open)
	if !s.best.even {
		a.pickCores(-1, a.q.want)
		return
	}
	for i := range s.in {
		if s.in[i] {
			a.pickCores(i, int(s.share[i]-a.s.node[i].had))
		}
	}
}

// pickCores takes n CPUs on the nodes in hand (or on one), from the L3s chosen.
func (a *Allocator) pickCores(node, n int) {
	s := &a.s
	copy(s.l3.open, s.nodes.best.l3)
	s.l3.node = node
	s.l3.base = baseSum{}
	s.l3.chosen = s.l3.chosen[:0]
	a.listPool(node, -1)
	clear(s.pick.tally)
	for _, c := range s.pick.pool {
		k := &a.m.cores[c]
		s.pick.tally[int(k.kind)*a.m.threads+int(s.usable[c])-1] += 1 << s.lane(int(c))
	}
	performance, efficiency := n, 0
	if a.m.kinds > 1 {
		a.sumBase(node)
		performance, efficiency, _ = a.splitKinds(s.pick.tally, n)
	}
	t := a.m.threads
	a.pickKind(node, performance, 0, s.pick.tally[:t])
	if efficiency > 0 {
		a.pickKind(node, efficiency, 1, s.pick.tally[t:])
	}
}

// sumBase counts what the result has anyway of each kind.
func (a *Allocator) sumBase(node int) {
	for i := range a.m.cores {
		c := &a.m.cores[i]
		if a.s.nodes.in[c.node] && (node < 0 || node == int(c.node)) {
			a.s.l3.base.had += int32(a.s.had[i])
			if c.kind != 0 {
				a.s.l3.base.kind += int32(a.s.had[i])
			}
		}
	}
}

// listPool lists the cores of the nodes in hand and the open L3s that offer
// CPUs, of one kind or, with -1, of all.
func (a *Allocator) listPool(node, kind int) {
	s := &a.s
	s.pick.pool = s.pick.pool[:0]
	if node >= 0 {
		for _, i := range a.m.nodes[node].cores {
			a.addToPool(i, kind)
		}
		return
	}
	for i := range a.m.cores {
		a.addToPool(int16(i), kind)
	}
}

func (a *Allocator) addToPool(i int16, kind int) {
	s, c := &a.s, &a.m.cores[i]
	if s.usable[i] == 0 || !s.nodes.in[c.node] || !s.nodes.socket[c.socket] || !s.l3.open[c.l3] ||
		kind >= 0 && int(c.kind) != kind || a.q.cleanOnly && s.bad[i] {
		return
	}
	s.pick.pool = append(s.pick.pool, i)
}

// pickKind takes n CPUs of one kind of core.
func (a *Allocator) pickKind(node, n int, kind uint8, tally []uint64) {
	if n == 0 {
		return
	}
	if a.m.kinds > 1 {
		a.listPool(node, int(kind))
	}
	switch {
	case a.q.spread:
		a.pickSpread(n)
	case a.m.threads <= 2:
		var p pairPlan
		a.planPairs(tally, n, &p)
		a.pickPairs(&p)
	default:
		a.solvePool(n)
		for i, c := range a.s.pick.pool {
			a.s.take[c] += a.s.pick.choice[i]
		}
	}
}

// pickPairs carries out a plan on the lowest cores of each sort. The whole core
// of which only one thread is needed is the one that so leaves the highest CPU.
func (a *Allocator) pickPairs(p *pairPlan) {
	s := &a.s
	left := *p
	highest, broken := int16(-1), int16(-1)
	for _, c := range s.pick.pool {
		switch lane := s.lane(int(c)); {
		case lane == laneOwn && left.own > 0:
			left.own--
			s.take[c]++
		case lane == laneHalf && left.half > 0:
			left.half--
			s.take[c]++
		case lane == laneIdle && s.usable[c] == 1 && left.single > 0:
			left.single--
			s.take[c]++
		case lane == laneIdle && s.usable[c] == 2 && left.pair+left.broken > 0:
			left.pair--
			s.take[c] += 2
			if last := a.m.cores[c].cpus[1]; p.broken > 0 && last > highest {
				highest, broken = last, c
			}
		}
	}
	if broken >= 0 {
		s.take[broken]--
	}
}

// pickSpread takes one thread of each idle core, then of each core in use, then
// seconds, thirds and so on, always of cores that have the fewest.
func (a *Allocator) pickSpread(n int) {
	s := &a.s
	for _, lane := range [...]int{laneIdle, laneHalf} {
		for _, c := range s.pick.pool {
			if n > 0 && s.lane(int(c)) == lane {
				s.take[c]++
				n--
			}
		}
	}
	for level := int16(1); n > 0 && int(level) <= a.m.threads; level++ {
		// The CPUs next in turn, so that the lowest are taken whatever cores they are of.
		s.turn = cpuset.Set{}
		for _, c := range s.pick.pool {
			if got := s.pickedOf(int(c)); got.has == level && got.room > 0 {
				s.turn.Add(a.nextOf(int(c)))
			}
		}
		for cpu := s.turn.Next(0); n > 0 && cpu >= 0; cpu = s.turn.Next(cpu + 1) {
			s.take[a.m.coreOf[cpu]]++
			n--
		}
	}
}

// nextOf is the CPU that one more of a core would be.
func (a *Allocator) nextOf(core int) int {
	skip := a.s.take[core]
	for _, cpu := range a.m.cores[core].cpus {
		if a.s.avail.Has(int(cpu)) {
			if skip == 0 {
				return int(cpu)
			}
			skip--
		}
	}
	return -1
}

type coreShare struct{ has, room int16 }

// pickedOf says how many CPUs of a core the result has by now and how many more
// it could have.
func (s *scratch) pickedOf(core int) coreShare {
	settled := s.had[core] - s.keep[core] // part of take
	fresh := s.take[core] - settled
	return coreShare{has: s.had[core] + fresh, room: s.usable[core] - fresh}
}

// result names the CPUs: the lowest free ones of each core.
func (a *Allocator) result(r *Request) Result {
	s := &a.s
	out := Result{CPUs: r.Keep}
	for i := range a.m.cores {
		c := &a.m.cores[i]
		left := s.take[i]
		if left+s.keep[i] == 0 {
			continue
		}
		for _, cpu := range c.cpus {
			if left > 0 && s.avail.Has(int(cpu)) {
				out.CPUs.Add(int(cpu))
				left--
			}
		}
		if a.q.mode == isolated && s.take[i]+s.keep[i] > 0 {
			withhold(&out, c.cpus)
		}
	}
	return out
}

// withhold keeps the siblings of an isolated CPU from everybody.
func withhold(out *Result, siblings []int16) {
	for _, cpu := range siblings {
		if !out.CPUs.Has(int(cpu)) {
			out.Withheld.Add(int(cpu))
		}
	}
}
