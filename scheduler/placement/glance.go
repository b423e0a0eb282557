package placement

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/policy"
)

// Glance is what a node means to a pod that asks for nothing: such a pod passes hundreds of nodes, and a state
// for each of them is one that the processor's cache does not hold. 0: nothing is known that matters to it.
type Glance uint64

const (
	odd Glance = 1 << iota
	confines
	payableAt = iota
)

// glance at a node on whose CPUs the requests of all pods may add up to so many.
func (s *site) glance(payable int, beyond bool) (g Glance) {
	if beyond || s.confines || s.narrow {
		g |= odd
	}
	if s.confines {
		g |= confines
	}
	return g | Glance(max(payable, 0))<<payableAt
}

// Payable is how many CPUs the requests of all pods here may add up to: not those that are
// reserved, isolated without an owner, kept idle for an owner or rounded up to. Where Odd says so, it is fewer
// than the node's sums say.
func (g Glance) Payable() int { return int(g >> payableAt) }

// Odd says that a pod that asks for nothing needs a look here, too.
func (g Glance) Odd() bool { return g&odd != 0 }

// Confines says that pods of the shared pool are bound to NUMA nodes, whether they ask or not.
func (g Glance) Confines() bool { return g&confines != 0 }

// Fits compares sums, for a pod that will share, with what pods request there already: CPUs
// that nobody's request pays for are not the node's to give, whatever its own sums say.
func (g Glance) Fits(w *Wish, requested int64) *policy.Refusal {
	if !g.Odd() || w.Pod.Resources == nil || w.Pod.Resources.RequestMilli == 0 || w.Says.Class == policy.BE {
		return nil
	}
	asked, payable := w.Pod.Resources.RequestMilli, int64(g.Payable())
	left := 1000*payable - requested
	if asked <= left {
		return nil
	}
	return &policy.Refusal{Code: cpuallocator.InsufficientCPUs, Message: fmt.Sprintf(
		"%dm are asked for and %dm are left of the %d CPUs that are not reserved, kept idle for another pod or "+
			"rounded up to", asked, max(left, 0), payable)}
}
