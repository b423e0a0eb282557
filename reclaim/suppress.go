package reclaim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Suppress is the key `suppression` of the configuration file, without its mode.
type Suppress struct {
	// Threshold is how much of the node production and batch pods may use together, in
	// percent.
	Threshold float64 `json:"threshold"`
	// Floor is the number of CPUs that batch pods always keep; 0: one core.
	Floor float64 `json:"floor"`
	// Hold is how long there must be room before the budget grows, and between two
	// steps. Grow bounds a step, in percent of the capacity.
	Hold Duration `json:"hold"`
	Grow float64  `json:"grow"`
}

// DefaultSuppress leaves a third of the node free for bursts of production.
func DefaultSuppress() Suppress {
	return Suppress{Threshold: 65, Hold: Duration(5 * time.Second), Grow: 10}
}

// Validate returns an error for every value out of range.
func (c Suppress) Validate() error {
	var errs []error
	if !(c.Threshold >= 0 && c.Threshold <= 100) {
		errs = append(errs, fmt.Errorf("suppression.threshold: is %v, must be 0 to 100 percent", c.Threshold))
	}
	if !amount(c.Floor) {
		errs = append(errs, fmt.Errorf("suppression.floor: is %v CPUs, must be 0 or more", c.Floor))
	}
	if !(c.Grow > 0 && c.Grow <= 100) {
		errs = append(errs, fmt.Errorf("suppression.grow: is %v, must be above 0 and at most 100 percent", c.Grow))
	}
	if c.Hold < 0 {
		errs = append(errs, fmt.Errorf("suppression.hold: is %v, must be 0 or more", time.Duration(c.Hold)))
	}
	return errors.Join(errs...)
}

// Load is a node's use during a span, in CPUs.
type Load struct {
	Capacity float64
	Pool     float64 // CPUs of the best-effort pool: the most that a budget can be
	Core     float64 // CPUs of one core
	Reserve  float64 // for what runs outside of pods
	// Production is the measured use of LSE, LSR and LS pods, Outside that of
	// everything but pods. Known is false if they could not be read.
	Production float64
	Outside    float64
	Known      bool
	// Own is the number of CPUs that owners keep from batch pods, OnShared what
	// production uses of the others: an owner's idle CPUs leave no room for batch pods.
	Own      float64
	OnShared float64
	Span     time.Duration
}

// Budget is how many CPUs batch pods may use together now.
type Budget struct {
	CPUs   float64
	Target float64 // what the load alone would allow
	Floor  float64 // what batch pods keep
	// Blind says that nothing has been measured for so long that the budget is the
	// floor.
	Blind bool
}

// Suppressor follows the load: its budget shrinks at once and grows slowly. The zero
// Suppressor starts at the floor. It is not safe for concurrent use.
//
//	target = capacity * threshold - production - max(outside, reserve), of the whole
//	         node and of what owners do not keep, whichever is less
//	budget = target within the floor and the pool
type Suppressor struct {
	supply supply
	blind  time.Duration
}

// maxBlind is how long a budget stays valid without a measurement.
const maxBlind = 30 * time.Second

// Step returns the budget under a measured load.
func (s *Suppressor) Step(c Suppress, l Load) Budget {
	core := max(l.Core, 1)
	floor := c.Floor
	if floor <= 0 {
		floor = core
	}
	floor = min(floor, max(l.Pool, 0))
	s.supply.known = true
	if !l.Known || !amount(l.Production) || !amount(l.OnShared) || !amount(l.Outside) {
		if s.blind += max(l.Span, 0); s.blind > maxBlind {
			s.supply = supply{known: true}
		}
		s.supply.rising = false
		s.supply.published = min(s.supply.published, l.Pool)
		return Budget{CPUs: max(floor, s.supply.published), Target: s.supply.published, Floor: floor,
			Blind: s.blind > maxBlind}
	}
	s.blind = 0
	target := min(l.Capacity*c.Threshold/100-l.Production, (l.Capacity-l.Own)*c.Threshold/100-l.OnShared) - max(
		l.Outside, l.Reserve)
	allowed := max(floor, min(target, l.Pool))
	s.supply.published = max(s.supply.published, floor)
	step := core // smaller changes are noise
	if allowed >= l.Pool {
		step = 0 // the last CPUs may be less than a core
	}
	cpus := s.supply.step(allowed, max(l.Span, 0), rise{step: step, most: max(core, l.Capacity*c.Grow/100),
		capOffer: time.Duration(c.Hold)})
	return Budget{CPUs: cpus, Target: target, Floor: floor}
}

// leastQuota is the kernel's smallest quota, in thousandths of a CPU: 1 ms in a period
// of 100 ms.
const leastQuota = 10

// Milli is the budget as a quota, in thousandths of a CPU.
func (b Budget) Milli() int64 { return max(leastQuota, int64(b.CPUs*1000+tiny)) }

// Masks say which CPUs batch pods may use, and which of them others use too.
type Masks struct {
	Pool     cpuset.Set // the best-effort pool without suppression
	Reserved cpuset.Set // used first: production never owns them
	// Pinned are CPUs of LSR pods, used last: an owner cannot leave them, while the
	// shared pool can.
	Pinned cpuset.Set
	// Apart are CPUs whose whole cores, siblings included, batch pods may not use:
	// those of LSE pods, those withheld for an owner, and kubelet's exclusive ones.
	Apart cpuset.Set
}

// Choose returns the CPUs for batch pods with a budget of cpus: whole cores, at least
// one, reserved ones first, spread evenly over NUMA nodes. A smaller number gives a
// subset of a larger one's answer, so that a changing budget moves as few tasks as
// possible. The set is empty if every core is apart; a quota must suffice then.
func Choose(t *topology.Topology, m Masks, cpus int) cpuset.Set {
	var chosen cpuset.Set
	if m.Pool.IsEmpty() {
		return chosen
	}
	queues := m.queues(t)
	perNode := make([]int, len(t.Nodes()))
	count := 0
	for rank := range queues {
		for {
			node, core := queues[rank].next(perNode)
			if node < 0 {
				break
			}
			n := 0
			for _, cpu := range t.Cores()[core].CPUs {
				if m.Pool.Has(cpu) {
					n++
				}
			}
			if count > 0 && count+n > cpus {
				return chosen
			}
			for _, cpu := range t.Cores()[core].CPUs {
				if m.Pool.Has(cpu) {
					chosen.Add(cpu)
				}
			}
			count += n
			perNode[node] += n
		}
	}
	return chosen
}

// First returns the CPUs that Choose gives before all others: the cores with reserved
// CPUs.
func First(t *topology.Topology, m Masks) cpuset.Set {
	var first cpuset.Set
	for _, cores := range m.queues(t)[0] {
		for _, core := range cores {
			for _, cpu := range t.Cores()[core].CPUs {
				if m.Pool.Has(cpu) {
					first.Add(cpu)
				}
			}
		}
	}
	return first
}

// Retreat keeps batch pods on the reserved CPUs, which production never owns, while they
// need no others. The zero Retreat leaves them all that they may use.
type Retreat struct {
	fits time.Duration
	on   bool
}

// Demand is what batch pods use, and what others leave of the CPUs that they would have
// alone.
type Demand struct {
	Batch float64 // CPUs
	Room  float64 // CPUs
	Waits bool    // some batch pod waited for a CPU, for longer than an idle machine explains
	Known bool    // all of this was measured
	Span  time.Duration
}

const (
	// retreatAfter is how long batch pods have to use little: whoever is driven out by
	// a burst has all CPUs for a minute.
	retreatAfter = time.Minute
	// retreatBelow and retreatUpTo are shares of the room. Batch pods retreat to CPUs of
	// which they need less than half, and leave them before they use all.
	retreatBelow = 0.5
	retreatUpTo  = 0.9
)

// Step says whether batch pods have the reserved CPUs alone. It gives them the others in
// the step that sees them wait or use most of the room, and whenever that is not known.
func (r *Retreat) Step(d Demand) bool {
	switch {
	case !d.Known || d.Waits || !amount(d.Batch) || !(d.Batch < retreatUpTo*d.Room):
		*r = Retreat{}
	case r.on:
	case d.Batch >= retreatBelow*d.Room:
		r.fits = 0
	default:
		r.fits += max(d.Span, 0)
		r.on = r.fits >= retreatAfter
	}
	return r.on
}

// queue holds core indexes, ascending, by index of the NUMA node.
type queue [][]int

// next returns the next core of the node that has given the fewest CPUs; node is -1
// when none is left.
func (q queue) next(perNode []int) (node, core int) {
	node = -1
	for i := range q {
		if len(q[i]) > 0 && (node < 0 || perNode[i] < perNode[node]) {
			node = i
		}
	}
	if node >= 0 {
		core, q[node] = q[node][0], q[node][1:]
	}
	return node, core
}

// queues groups the cores that batch pods may use: reserved, free, pinned.
func (m Masks) queues(t *topology.Topology) [3]queue {
	var queues [3]queue
	for i := range queues {
		queues[i] = make(queue, len(t.Nodes()))
	}
	for i := range t.Cores() {
		c := &t.Cores()[i]
		some := func(s *cpuset.Set) bool { return slices.ContainsFunc(c.CPUs, s.Has) }
		if !some(&m.Pool) || some(&m.Apart) {
			continue
		}
		rank := 1
		switch {
		case some(&m.Pinned):
			rank = 2
		case some(&m.Reserved):
			rank = 0
		}
		queues[rank][c.Node] = append(queues[rank][c.Node], i)
	}
	return queues
}
