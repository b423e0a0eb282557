package cpuallocator

// Cores of more than two threads (POWER, some ARM) have no closed form: which
// cores are taken is a small knapsack over their numbers of threads, solved
// exactly by a table of cores x CPUs as long as it has at most maxTable
// entries, and greedily beyond that.
const maxTable = 1 << 14

// price is what a core adds to the fields of Score from Partial to Shared,
// packed so that comparing prices compares the fields in order. Completing an
// own core takes a partial one away, so it may be negative.
type price int64

const (
	pricePartial price = 1 << 48
	priceCore    price = 1 << 32
	priceBroken  price = 1 << 16
	priceShared  price = 1

	priceNone = price(1) << 62
)

func (p price) addTo(f *Score) {
	partial := (p + 1<<47) >> 48
	p -= partial << 48
	f.Partial += int32(partial)
	f.Cores += int32(p >> 32 & 0xffff)
	f.Broken += int32(p >> 16 & 0xffff)
	f.Shared += int32(p & 0xffff)
}

// priceOf is the price of k threads of a core.
func (a *Allocator) priceOf(core int, k int16) price {
	s, on := &a.s, a.m.cores[core].on
	switch {
	case a.q.mode == isolated:
		return priceCore
	case s.had[core] > 0 && s.had[core]+k == on:
		return -pricePartial
	case s.had[core] > 0:
		return 0
	case k == on:
		return priceCore
	case s.foreign[core]:
		return pricePartial + priceCore + priceShared
	}
	return pricePartial + priceCore + priceBroken
}

// addBound adds a price that no choice of n CPUs can be below.
func (a *Allocator) addBound(f *Score, tally []uint64, n int) {
	for _, w := range tally {
		_, _, own, _ := lanes(w)
		f.Partial -= int32(own)
	}
}

// addThreads adds the price of the best n threads of the open L3s and those in
// hand.
func (a *Allocator) addThreads(f *Score, n int, kind uint8) bool {
	s := &a.s.l3
	p := &a.s.pick
	for _, i := range s.chosen {
		s.open[s.list[i].rank] = true
	}
	a.listPool(s.node, int(kind))
	for _, i := range s.chosen {
		s.open[s.list[i].rank] = false
	}
	cost := a.solvePool(n)
	if cost >= priceNone/2 {
		return false
	}
	_ = p
	cost.addTo(f)
	return true
}

// solvePool prices the best n threads of the listed cores and leaves in
// pick.choice how many of each core that takes.
func (a *Allocator) solvePool(n int) price {
	p := &a.s.pick
	if (len(p.pool)+1)*(n+1) > maxTable {
		return a.solveGreedily(n)
	}
	width := n + 1
	table := p.table[:(len(p.pool)+1)*width]
	last := table[len(p.pool)*width:]
	for j := range last {
		last[j] = priceNone
	}
	last[0] = 0
	for i := len(p.pool) - 1; i >= 0; i-- {
		core := int(p.pool[i])
		row, next := table[i*width:(i+1)*width], table[(i+1)*width:(i+2)*width]
		for j := range row {
			row[j] = a.bestRow(core, next, j)
		}
	}
	rest := n
	for i, c := range p.pool {
		p.choice[i] = a.firstChoice(int(c), table[i*width+rest], table[(i+1)*width:(i+2)*width], rest)
		rest -= int(p.choice[i])
	}
	return table[n]
}

func (a *Allocator) bestRow(core int, next []price, j int) price {
	best := next[j]
	for k := a.fewestOf(core); k <= a.s.usable[core] && int(k) <= j; k++ {
		if next[j-int(k)] < priceNone/2 {
			best = min(best, next[j-int(k)]+a.priceOf(core, k))
		}
	}
	return best
}

// firstChoice is the most threads of the core that still reach the price, so
// that low numbers are used before high ones.
func (a *Allocator) firstChoice(core int, cost price, next []price, j int) int16 {
	if cost >= priceNone/2 {
		return 0
	}
	for k := min(a.s.usable[core], int16(j)); k >= a.fewestOf(core); k-- {
		if next[j-int(k)] < priceNone/2 && next[j-int(k)]+a.priceOf(core, k) == cost {
			return k
		}
	}
	return 0
}

func (a *Allocator) fewestOf(core int) int16 {
	if a.q.mode == wholeCores {
		return a.s.usable[core]
	}
	return 1
}

// solveGreedily completes own cores, takes whole ones from the largest down,
// then parts of cores that are in use, then a part of a whole one.
func (a *Allocator) solveGreedily(n int) price {
	s, p := &a.s, &a.s.pick
	clear(p.choice[:len(p.pool)])
	cost := price(0)
	take := func(i int, k int16) {
		cost += a.priceOf(int(p.pool[i]), k)
		p.choice[i] = k
		n -= int(k)
	}
	for pass := range 5 {
		for f := int16(a.m.threads); f > 0; f-- {
			for i, c := range p.pool {
				if n == 0 || p.choice[i] != 0 || s.usable[c] != f {
					continue
				}
				lane, k := s.lane(int(c)), min(f, int16(min(n, a.m.threads)))
				switch {
				case pass == 0 && lane == laneOwn && k == f,
					pass == 1 && lane == laneIdle && k == f && (a.q.mode != wholeCores || a.m.uniform || n-int(f) >= 0),
					pass == 2 && lane == laneMixed && a.q.mode != wholeCores,
					pass == 3 && lane == laneHalf && a.q.mode != wholeCores,
					pass == 4 && a.q.mode != wholeCores:
					take(i, k)
				}
			}
		}
	}
	if n > 0 {
		return priceNone
	}
	return cost
}
