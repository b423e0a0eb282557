package main

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

// The best that a forecast could have done which knows no more of an interval than what kind it is:
// for each kind one margin over the present use, chosen when all was over. Kinds of which a trace has
// few intervals are learned by heart, so this is more than any forecast can do by the same kinds.

// moment is one interval of a host.
type moment struct {
	host       int
	use, rise  float64 // of the next interval, 0 where it falls
	step, hour float64 // the largest change of the last hour; of the day
}

// hindsightRisk is the share of intervals that may be violated.
const hindsightRisk = 0.0025

// hindsightTable is one row a kind.
func hindsightTable(sets []set) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| one margin for each |")
	for _, s := range sets {
		fmt.Fprintf(&b, " %s: margins | of the oracle's |", s.name)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", 2*len(sets)))
	kinds := []struct {
		name string
		of   func(all []moment) func(m moment) [3]int
	}{
		{"trace", func([]moment) func(moment) [3]int { return func(moment) [3]int { return [3]int{} } }},
		{"machine", func([]moment) func(moment) [3]int { return func(m moment) [3]int { return [3]int{m.host} } }},
		{"machine and eighth of use", func(all []moment) func(moment) [3]int {
			use := parted(all, 8, func(m moment) float64 { return m.use })
			return func(m moment) [3]int { return [3]int{m.host, use(m)} }
		}},
		{"eighth of use, and sixth of the largest step of the last hour", func(all []moment) func(moment) [3]int {
			use := parted(all, 8, func(m moment) float64 { return m.use })
			step := parted(all, 6, func(m moment) float64 { return m.step })
			return func(m moment) [3]int { return [3]int{use(m), step(m)} }
		}},
		{"machine and hour of the day", func([]moment) func(moment) [3]int {
			return func(m moment) [3]int { return [3]int{m.host, int(m.hour)} }
		}},
	}
	for _, kind := range kinds {
		fmt.Fprintf(&b, "| %s |", kind.name)
		for _, s := range sets {
			all, lent, oracle := momentsOf(s)
			cells := map[[3]int][]float64{}
			of := kind.of(all)
			for _, m := range all {
				k := of(m)
				cells[k] = append(cells[k], m.rise)
			}
			margins := leastMargins(cells, hindsightRisk*float64(len(all)))
			fmt.Fprintf(&b, " %d | %.3f |", len(cells), (lent-margins)/oracle)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// momentsOf are the intervals that forecasts are judged on, what would be lent without any margin, and
// what the oracle lends.
func momentsOf(s set) (all []moment, lent, oracle float64) {
	for i, h := range s.hosts {
		limit, total := h.limit(), h.total()
		next := future(total, hour)
		for t := warmup(len(total)); t < len(total)-hour; t++ {
			m := moment{host: i, use: total[t], rise: max(0, total[t+1]-total[t]), hour: float64(t % day / hour)}
			for j := t - hour + 1; j <= t; j++ {
				m.step = max(m.step, math.Abs(total[j]-total[j-1]))
			}
			all = append(all, m)
			lent += limit - min(total[t], limit)
			oracle += limit - min(next[t], limit)
		}
	}
	return all, lent, oracle
}

// parted sorts moments into so many parts of the same size.
func parted(all []moment, n int, of func(moment) float64) func(moment) int {
	values := make([]float64, len(all))
	for i, m := range all {
		values[i] = of(m)
	}
	slices.Sort(values)
	var ends []float64
	for i := 1; i < n; i++ {
		ends = append(ends, values[len(values)*i/n])
	}
	return func(m moment) int { return sort.Search(len(ends), func(i int) bool { return of(m) < ends[i] }) }
}

// leastMargins is the least sum of margins by which at most so many rises are larger than theirs: each
// cell's is the best at one price of a violation, the lowest at which all cells together keep to it.
func leastMargins(cells map[[3]int][]float64, most float64) float64 {
	for _, rises := range cells {
		slices.Sort(rises)
	}
	low, high, best := 0.0, 1e9, math.Inf(1)
	for range 60 {
		price := (low + high) / 2
		margins, violations := 0.0, 0
		for _, rises := range cells {
			sum, over := cheapest(rises, price)
			margins, violations = margins+sum, violations+over
		}
		if float64(violations) <= most {
			high, best = price, min(best, margins)
		} else {
			low = price
		}
	}
	return best
}

// cheapest is one cell's sum of margins and number of violations at a price.
func cheapest(rises []float64, price float64) (sum float64, over int) {
	n, least := len(rises), math.Inf(1)
	for i := -1; i < n; i++ {
		margin := 0.0
		if i >= 0 {
			margin = rises[i]
		}
		above := n - sort.Search(n, func(j int) bool { return rises[j] > margin })
		if cost := float64(n)*margin + price*float64(above); cost < least {
			least, sum, over = cost, float64(n)*margin, above
		}
	}
	return sum, over
}
