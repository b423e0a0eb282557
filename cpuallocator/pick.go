package cpuallocator

import (
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// picker is the scratch space of the choice of cores.
type picker struct {
	pool   []int16 // cores that CPUs may come from, ascending
	open   []bool  // by group: its cores may be in the pool
	used   []bool  // by group: its cores were in a pool of the request
	choice []int16
	table  []price
	prices [2][]price // by kind, of every number of CPUs
	tally  []sorts
}

func newPicker(m *machine) picker {
	p := picker{pool: make([]int16, 0, len(m.cores)), open: make([]bool, len(m.groups)),
		used: make([]bool, len(m.groups)), choice: make([]int16, len(m.cores)), tally: make([]sorts, m.kinds)}
	if m.threads > 2 {
		p.table = make([]price, maxTable)
		for k := range p.prices {
			p.prices[k] = make([]price, m.online+1)
		}
	}
	return p
}

// materialize turns the best place into CPUs to take from each core.
func (a *Allocator) materialize() {
	s := &a.s.nodes
	last := slices.Equal(s.in, s.best.in) && slices.Equal(s.socket, s.best.socket)
	copy(s.in, s.best.in)
	copy(s.socket, s.best.socket)
	copy(s.share, s.best.share)
	if a.short() && !(last && s.settled.done) {
		a.settleClean()
	}
	clear(a.s.l3.open)
	clear(a.s.pick.used)
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

// pickCores takes n CPUs on the current nodes (or on one), from the chosen L3s.
func (a *Allocator) pickCores(node, n int) {
	s := &a.s
	copy(s.l3.open, s.nodes.best.l3)
	s.l3.node = node
	s.l3.base = s.base
	s.l3.chosen = s.l3.chosen[:0]
	a.openGroups()
	efficiency := 0
	if a.m.kinds > 1 {
		if node >= 0 {
			s.l3.base = baseSum{}
			for _, g := range a.m.nodes[node].groups {
				s.l3.base.add(&s.group[g].base)
			}
		}
		_, efficiency, _ = a.formOf(s.pick.tally, n)
	}
	a.pickKind(n-efficiency, 0)
	a.pickKind(efficiency, 1)
}

// openGroups finds the groups of cores on the current nodes (or on one) and in the open L3s, and
// adds up what they offer.
func (a *Allocator) openGroups() {
	s, kinds, node := &a.s, a.m.kinds, a.s.l3.node
	clear(s.pick.tally)
	for id := range a.m.groups {
		g := &a.m.groups[id]
		s.pick.open[id] = s.nodes.in[g.node] && s.nodes.socket[g.socket] && s.l3.open[g.l3] &&
			(node < 0 || int(g.node) == node)
		if s.pick.open[id] {
			s.pick.used[id] = true
			for k := range kinds {
				s.pick.tally[k].add(&s.tally[id*kinds+k])
			}
		}
	}
}

// listPool lists the cores of a kind in the open groups that offer CPUs.
func (a *Allocator) listPool(kind int) {
	s := &a.s
	pool, n := s.pick.pool[:cap(s.pick.pool)], 0
	for k := range a.m.runs {
		run := &a.m.runs[k]
		if !s.pick.open[run.group] || int(run.kind) != kind {
			continue
		}
		for i := run.first; i < run.end; i++ {
			pool[n] = int16(i) // overwritten unless it counts
			if s.usable[i] > 0 && !(a.q.cleanOnly && s.state[i].bad()) {
				n++
			}
		}
	}
	s.pick.pool = pool[:n]
}

// pickKind takes n CPUs of one kind of core.
func (a *Allocator) pickKind(n, kind int) {
	if n == 0 {
		return
	}
	a.listPool(kind)
	switch {
	case a.q.mode == isolated || a.q.spread && a.m.threads <= 2:
		a.pickSpread(n)
	case a.m.threads <= 2:
		var p pairPlan
		a.planPairs(&a.s.pick.tally[kind], n, &p)
		a.pickPairs(&p)
	default:
		a.solvePool(n)
		for i, c := range a.s.pick.pool {
			a.s.take[c] += a.s.pick.choice[i]
		}
	}
}

// pickPairs carries out a plan on the lowest cores of each sort. If only one thread of a whole core
// is needed, it is the core whose other thread is the highest.
func (a *Allocator) pickPairs(p *pairPlan) {
	s := &a.s
	var left sorts
	left[sortOwn], left[sortWhole], left[sortLone] = p.own, p.whole+p.broken, p.lone
	left[sortBeside], left[sortOwner] = p.beside, p.owner
	highest, broken := int16(-1), int16(-1)
	for _, c := range s.pick.pool {
		sort := int(s.sort[c])
		if left[sort] == 0 {
			continue
		}
		left[sort]--
		s.take[c]++
		if sort == sortWhole {
			s.take[c]++
			if last := a.m.cores[c].cpus[1]; p.broken > 0 && last > highest {
				highest, broken = last, c
			}
		}
	}
	if broken >= 0 {
		s.take[broken]--
	}
}

// pickSpread takes one thread of each core, first of cores of which no CPU is taken, and then
// second threads, which complete cores of which no CPU was taken.
func (a *Allocator) pickSpread(n int) {
	s := &a.s
	for _, sort := range [...]int{sortLone, sortWhole, sortBeside, sortOwner} {
		for _, c := range s.pick.pool {
			if int(s.sort[c]) != sort {
				continue
			}
			if n == 0 {
				return
			}
			s.take[c]++
			n--
		}
	}
	for _, own := range [...]bool{false, true} {
		if n == 0 {
			return
		}
		// The next CPUs in ascending order, so that the lowest are taken whatever their cores.
		s.turn = cpuset.Set{}
		for _, c := range s.pick.pool {
			if s.roomOf(int(c)) > 0 && (int(s.sort[c]) == sortOwn) == own {
				s.turn.Add(a.nextOf(int(c)))
			}
		}
		for cpu := s.turn.Next(0); n > 0 && cpu >= 0; cpu = s.turn.Next(cpu + 1) {
			s.take[a.m.coreOf[cpu]]++
			n--
		}
	}
}

// nextOf is the CPU that the result would take next from a core.
func (a *Allocator) nextOf(core int) int {
	skip := a.s.take[core]
	for _, cpu := range a.m.cores[core].cpus {
		if a.s.avail.bit(cpu) > 0 {
			if skip == 0 {
				return int(cpu)
			}
			skip--
		}
	}
	return -1
}

// roomOf is how many more CPUs of a core the result could have.
func (s *scratch) roomOf(core int) int16 {
	settled := s.had[core] - s.keep[core] // part of take
	return s.usable[core] - (s.take[core] - settled)
}

// result names the CPUs: the lowest free ones of each core.
func (a *Allocator) result(r *Request) Result {
	s := &a.s
	out := Result{CPUs: r.Keep}
	anywhere := a.hasAny()
	for k := range a.m.runs {
		run := &a.m.runs[k]
		if !anywhere && !s.pick.used[run.group] {
			continue
		}
		for i := run.first; i < run.end; i++ {
			if s.take[i]+s.keep[i] > 0 {
				a.name(&out, i)
			}
		}
	}
	return out
}

// name adds the CPUs of a core to a result.
func (a *Allocator) name(out *Result, core int) {
	cpus, left := a.m.cores[core].cpus, a.s.take[core]
	for _, cpu := range cpus {
		if left > 0 && a.s.avail.bit(cpu) > 0 {
			out.CPUs.Add(int(cpu))
			left--
		}
	}
	if a.q.mode == isolated {
		withhold(out, cpus)
	}
}

// withhold adds the siblings of an isolated CPU to the withheld ones.
func withhold(out *Result, siblings []int16) {
	for _, cpu := range siblings {
		if !out.CPUs.Has(int(cpu)) {
			out.Withheld.Add(int(cpu))
		}
	}
}
