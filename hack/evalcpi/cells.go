package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/quietcore/quietcore/hack/evalcpi/world"
)

// cell is many machines of one kind with one detector.
type cell struct {
	kind     world.Kind
	detector string
	trials   int
	sum      result
}

// measure plays the machines of a cell. Machine i is the same for every detector.
func measure(kind world.Kind, d detector, trials int, seed uint64) (*cell, error) {
	results, errs := make([]result, trials), make([]error, trials)
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				results[i], errs[i] = play(kind, d, seed+uint64(i))
			}
		})
	}
	for i := range trials {
		next <- i
	}
	close(next)
	wg.Wait()
	c := &cell{kind: kind, detector: d.name, trials: trials}
	for i := range results {
		if errs[i] != nil {
			return nil, fmt.Errorf("%s with %s, seed %d: %w", kind, d.name, seed+uint64(i), errs[i])
		}
		c.sum.add(&results[i])
	}
	return c, nil
}

func (r *result) add(o *result) {
	r.guilty, r.found = r.guilty+o.guilty, r.found+o.found
	r.after = append(r.after, o.after...)
	r.right, r.wrong = r.right+o.right, r.wrong+o.wrong
	r.hours += o.hours
	r.is, r.wouldBe = r.is+o.is, r.wouldBe+o.wouldBe
	r.probed, r.bitten, r.capped = r.probed+o.probed, r.bitten+o.bitten, r.capped+o.capped
	r.anomalies += o.anomalies
}

func (r *result) recall() float64    { return float64(r.found) / float64(max(r.guilty, 1)) }
func (r *result) precision() float64 { return float64(r.right) / float64(max(r.right+r.wrong, 1)) }
func (r *result) relief() float64    { return 1 - r.is/max(r.wouldBe, 1e-9) }
func (r *result) per1000() float64   { return 1000 * float64(r.wrong) / r.hours }

// median time to the first true cap; those that were never capped count as later than
// all.
func (r *result) median() (time.Duration, bool) {
	slices.Sort(r.after)
	at := (r.guilty - 1) / 2
	if r.guilty == 0 || at >= len(r.after) {
		return 0, false
	}
	return r.after[at], true
}

// interval is Wilson's, of 95 %, for a share.
func interval(k, n int) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.96
	p, m := float64(k)/float64(n), float64(n)
	mid := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(mid-half, 0), min(mid+half, 1)
}

// poisson is a 95 % interval for a count, by Byar's approximation.
func poisson(k int) (low, high float64) {
	n := float64(k)
	if k > 0 {
		low = n * math.Pow(1-1/(9*n)-1.96/(3*math.Sqrt(n)), 3)
	}
	n++
	return max(low, 0), n * math.Pow(1-1/(9*n)+1.96/(3*math.Sqrt(n)), 3)
}

// line of progress.
func (c *cell) line() string {
	r := &c.sum
	after := "-"
	if d, ok := r.median(); ok {
		after = fmt.Sprintf("%.0f", d.Minutes())
	}
	return fmt.Sprintf("%-12s %-9s recall %.2f prec %.2f false %5.1f after %4s relief %5.2f probe %5.2f (%4.2f) "+
		"capped %5.2f anomalies %5.1f", c.kind, c.detector, r.recall(), r.precision(), r.per1000(), after, r.relief(),
		r.probed/r.hours, r.bitten/r.hours, r.capped/r.hours, float64(r.anomalies)/r.hours)
}
