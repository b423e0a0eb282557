package cpuallocator

// Cores of more than two threads (POWER, some ARM) have no closed form: which
// cores are taken is a small knapsack over their numbers of threads, solved
// exactly by a table of cores x CPUs as long as it has at most maxTable
// entries, and greedily beyond that.
const maxTable = 1 << 14

// price is what a core adds to a form: its fields but the kind, packed so that
// comparing prices compares the fields in order. Completing a core takes a
// partial or a broken one away, so fields may be negative.
type price int64

const (
	priceBind        price = 1 << 48
	priceBesideOwner price = 1 << 32
	priceBeside      price = 1 << 16
	priceBroken      price = 1

	priceNone = price(1) << 62
)

func (p price) addTo(f *form) {
	for _, field := range [...]*int32{&f.broken, &f.beside, &f.besideOwner} {
		low := int16(p)
		*field += int32(low)
		p = (p - price(low)) >> 16
	}
	f.bind += int32(p)
}

func (p price) plus(o price) price {
	if p >= priceNone/2 || o >= priceNone/2 {
		return priceNone
	}
	return p + o
}

// priceOf is the price of k threads of a core.
func (a *Allocator) priceOf(core int, k int16) price {
	s, had, on := &a.s, a.s.had[core], a.m.cores[core].on
	var p price
	switch {
	case s.state[core].besideOwner():
		p = price(k) * priceBesideOwner
	case s.state[core].foreign():
		p = price(k) * priceBeside
	case had == 0 && k < on:
		p = priceBroken
	case had > 0 && s.keep[core] == 0 && had+k == on:
		p = -priceBroken
	}
	switch {
	case a.q.spread && had > 0:
		p += price(k) * priceBind
	case a.q.spread:
		p += price(k-1) * priceBind
	case had > 0 && had+k == on:
		p -= priceBind
	case had == 0 && k < on:
		p += priceBind
	}
	return p
}

// formOfThreads is formOf where cores have more than two threads.
func (a *Allocator) formOfThreads(want int) (best form, efficiency int, ok bool) {
	s, p := &a.s.l3, &a.s.pick
	for _, i := range s.chosen {
		s.open[s.list[i].rank] = true
	}
	a.openGroups()
	least := want
	if a.m.kinds > 1 {
		least = 0
		a.listPool(1)
		a.priceAll(want, p.prices[1])
	}
	a.listPool(0)
	a.priceAll(want, p.prices[0])
	for _, i := range s.chosen {
		s.open[s.list[i].rank] = false
	}
	for performance := want; performance >= least; performance-- {
		cost, some := p.prices[0][performance], want-performance
		if some > 0 {
			cost = cost.plus(p.prices[1][some])
		}
		if cost >= priceNone/2 {
			continue
		}
		f := s.base.form
		cost.addTo(&f)
		if a.m.kinds > 1 {
			f.kind = s.base.kindOf(want, some)
		}
		if !ok || f.compare(&best) < 0 {
			best, efficiency, ok = f, some, true
		}
	}
	return best, efficiency, ok
}

// priceAll prices every number of threads up to n of the listed cores; on a machine of one kind
// only n.
func (a *Allocator) priceAll(n int, prices []price) {
	if a.m.kinds == 1 {
		prices[n] = a.solvePool(n)
		return
	}
	if a.solvePool(n); a.tabled(n) {
		copy(prices, a.s.pick.table[:n+1])
		return
	}
	for k := range n + 1 {
		prices[k] = a.solveGreedily(k)
	}
}

// tabled reports whether n threads of the listed cores are few enough for a table.
func (a *Allocator) tabled(n int) bool { return (len(a.s.pick.pool)+1)*(n+1) <= maxTable }

// solvePool prices the best n threads of the listed cores and stores in pick.choice how many of
// each core they are.
func (a *Allocator) solvePool(n int) price {
	p := &a.s.pick
	if !a.tabled(n) {
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

// solveGreedily completes own cores, takes whole ones from the largest down, then a part of a whole
// one, then parts of cores that are in use. A spread request takes one thread after the other,
// always of a core with the fewest.
func (a *Allocator) solveGreedily(n int) price {
	p := &a.s.pick
	clear(p.choice[:len(p.pool)])
	if a.q.spread {
		n = a.spreadGreedily(n)
	} else {
		n = a.fillGreedily(n)
	}
	if n > 0 {
		return priceNone
	}
	cost := price(0)
	for i, c := range p.pool {
		if p.choice[i] > 0 {
			cost += a.priceOf(int(c), p.choice[i])
		}
	}
	return cost
}

// fillGreedily returns how many CPUs it could not find.
func (a *Allocator) fillGreedily(n int) int {
	s, p := &a.s, &a.s.pick
	for pass := range 5 {
		for f := int16(a.m.threads); f > 0; f-- {
			for i, c := range p.pool {
				if n == 0 || p.choice[i] != 0 || s.usable[c] != f {
					continue
				}
				sort, k := int(s.sort[c]), min(f, int16(min(n, a.m.threads)))
				whole := sort == sortWhole || sort == sortLone
				switch {
				case pass == 0 && sort == sortOwn && !s.state[c].foreign() && k == f,
					pass == 1 && whole && k == f,
					a.q.mode != wholeCores && (pass == 2 && (whole || sort == sortOwn) ||
						pass == 3 && sort == sortBeside || pass == 4):
					p.choice[i] = k
					n -= int(k)
				}
			}
		}
	}
	return n
}

// spreadGreedily returns how many CPUs it could not find.
func (a *Allocator) spreadGreedily(n int) int {
	s, p := &a.s, &a.s.pick
	for has := int16(0); int(has) < a.m.threads; has++ {
		for _, sort := range [...]int{sortLone, sortWhole, sortSettled, sortOwn, sortBeside, sortOwner} {
			for i, c := range p.pool {
				if n > 0 && int(s.sort[c]) == sort && p.choice[i] < s.usable[c] && s.had[c]+p.choice[i] <= has {
					p.choice[i]++
					n--
				}
			}
		}
	}
	return n
}
