package sampler

import (
	"cmp"
	"slices"

	"github.com/quietcore/quietcore/cpi"
)

// candidate is a container that could be counted.
type candidate struct {
	*cpi.Container
	use     float64 // CPUs that it used lately; 0: unknown
	counted bool    // it is now
}

// share is whose places are shared out: containers of a namespace that may be victims, and
// those that may not, so that neither crowd hides the other.
type share struct {
	namespace string
	victims   bool
}

// weight is a container's use. One that is counted keeps its place unless another uses twice
// as much: what is known of it begins anew when it comes back.
func (c *candidate) weight() float64 {
	if c.counted {
		return 2 * c.use
	}
	return c.use
}

// compare orders candidates of one share: who uses most comes first. Which came first to the
// node counts for nothing.
func (c *candidate) compare(o *candidate) int {
	counted := 0
	if c.counted != o.counted {
		counted = 1
		if c.counted {
			counted = -1
		}
	}
	return cmp.Or(cmp.Compare(o.weight(), c.weight()), counted, cmp.Compare(c.ID, o.ID))
}

// choose returns the n candidates to count. Half of the places are dealt out to namespaces,
// and in each to those that may be victims and those that may not, one a round; the others
// go to those that use most, whosever they are.
func choose(list []candidate, n int) []candidate {
	if len(list) <= n {
		return list
	}
	slices.SortFunc(list, func(a, b candidate) int { return a.compare(&b) })
	rounds := make([]int, len(list)) // in which round a candidate is dealt a place
	dealt := map[share]int{}
	for i := range list {
		of := share{list[i].Namespace, list[i].Class.LatencySensitive()}
		rounds[i] = dealt[of]
		dealt[of]++
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rounds[a], rounds[b]) })
	slices.Sort(order[n/2:]) // the rest by use alone, which is how the list is sorted
	chosen := make([]candidate, n)
	for i, at := range order[:n] {
		chosen[i] = list[at]
	}
	return chosen
}
