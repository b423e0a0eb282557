package cpuallocator

import (
	"math/bits"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Allocator answers requests for one machine. It has scratch space, so that a request does not
// allocate memory, and therefore serves one goroutine. It has no state between requests: a result
// depends on the arguments alone.
type Allocator struct {
	m     *machine
	q     question
	s     scratch
	empty emptyLimits
}

// mode is which threads of a core a request may take.
type mode uint8

const (
	anyThreads mode = iota
	wholeCores      // all online threads of a wholly free core, or none
	oneThread       // at most one thread a core
	isolated        // one thread of a wholly free core, the others withheld
)

// question is a request in the form in which the search uses it.
type question struct {
	mode      mode
	spread    bool
	exclusive ExclusivePolicy
	strategy  NUMAStrategy
	asked     int // CPUs of the request, Keep included
	kept      int // CPUs of Keep
	want      int // CPUs still to be found, without Keep and settled CPUs
	limit     limit
	cleanOnly bool
	named     bool // the request names the nodes

	settledBad int32 // settled CPUs on cores of owners to be avoided
}

// scratch is overwritten by every request.
type scratch struct {
	avail cpuWords // free CPUs without Keep
	perCore
	perNode
	group []groupSum
	tally []sorts // by group and kind
	base  baseSum // of all cores
	l3raw []int32

	nodes  nodeSearch
	l3     l3Search
	pick   picker
	saved  []int16    // usable, had and take while a place is tried
	before []int16    // raw and keep while the request is solved for an empty machine
	turn   cpuset.Set // CPUs next in turn of a spread request
}

// perCore is by core rank.
type perCore struct {
	raw   []int16 // free CPUs of the core, without Keep
	keep  []int16 // CPUs of Keep
	state []coreState

	sort   []uint8 // the cost class of the core's CPUs, if it has usable ones
	usable []int16 // CPUs of the core that the search may take
	had    []int16 // CPUs of the core that the result has anyway
	take   []int16 // free CPUs of the core that go into the result
}

func newPerCore(cores int) perCore {
	return perCore{
		raw: make([]int16, cores), keep: make([]int16, cores), state: make([]coreState, cores),
		sort: make([]uint8, cores), usable: make([]int16, cores), had: make([]int16, cores), take: make([]int16, cores),
	}
}

// coreState is what is known of a core before the search.
type coreState uint8

const (
	stateForeign coreState = 1 << iota // another owner has a CPU of the core
	statePCPU                          // a PCPULevel owner has a CPU of the core
	stateLone                          // it has one thread
	stateBad                           // the core belongs to an owner to be avoided
)

// foreign reports whether another owner has a CPU of the core, besideOwner whether a PCPULevel owner has.
func (c coreState) foreign() bool     { return c&stateForeign != 0 }
func (c coreState) besideOwner() bool { return c&(stateForeign|statePCPU) == stateForeign|statePCPU }
func (c coreState) bad() bool         { return c&stateBad != 0 }

// withForeign is the state with stateForeign set or not.
func (c coreState) withForeign(foreign bool) coreState {
	if c &^= stateForeign; foreign {
		c |= stateForeign
	}
	return c
}

// perNode is by node rank.
type perNode struct {
	nodeOK   []bool
	violated []bool // node of an owner to be avoided
	node     []nodeSum
	sorts    []sorts // by node and kind
}

// nodeSum holds the search's sums for a node.
type nodeSum struct {
	usable, clean, raw, had int32
	kept                    int32 // CPUs of Keep
	within                  int32 // usable, on the sockets of the current set of nodes
	key                     uint64
}

// groupSum holds the search's sums for a group of cores.
type groupSum struct {
	usable int32
	clean  int32
	had    bool
	base   baseSum
	cores  uint64 // distinguishes cores of more than two threads
	key    uint64
}

// New prepares an allocator for t. After CPU hotplug the caller makes a new one.
func New(t *topology.Topology) *Allocator { return newAllocator(newMachine(t)) }

// Clone makes another allocator for the same machine, for another goroutine. They share everything
// that never changes, which is most of it.
func (a *Allocator) Clone() *Allocator { return newAllocator(a.m) }

func newAllocator(m *machine) *Allocator {
	a := &Allocator{m: m, empty: newEmptyLimits(m)}
	cores, nodes := len(m.cores), len(m.nodes)
	a.s = scratch{
		perCore: newPerCore(cores),
		perNode: perNode{nodeOK: make([]bool, nodes), violated: make([]bool, nodes), node: make([]nodeSum, nodes),
			sorts: make([]sorts, nodes*m.kinds)},
		group:  make([]groupSum, len(m.groups)),
		tally:  make([]sorts, len(m.groups)*m.kinds),
		l3raw:  make([]int32, len(m.l3s)),
		saved:  make([]int16, 3*cores),
		before: make([]int16, 2*cores),
	}
	a.s.nodes = newNodeSearch(m)
	a.s.l3 = newL3Search(m)
	a.s.pick = newPicker(m)
	return a
}

// Allocate finds r.CPUs out of free (and r.Keep), the best by Score. held are the CPUs of other
// owners with exclusive policies. Unknown and offline CPUs in free do not count.
func (a *Allocator) Allocate(free cpuset.Set, held []Held, r Request) (Result, *Error) {
	if err := a.check(&r); err != nil {
		return Result{}, err
	}
	a.read(&free, &r)
	a.mark(held, r.Exclusive)
	return a.solveRequest(&r)
}

// Shrink finds the r.CPUs of have that its owner should keep, by the same order. r.Keep and
// exclusive policies are ignored: no new CPU is taken.
func (a *Allocator) Shrink(have cpuset.Set, r Request) (Result, *Error) {
	r.Keep, r.Exclusive, r.ExclusiveRequired = cpuset.Set{}, ExclusiveNone, false
	if err := a.check(&r); err != nil {
		return Result{}, err
	}
	a.read(&have, &r)
	if r.SMT == SMTIsolate {
		// The withheld siblings belong to the owner, too.
		for i := range a.m.cores {
			if a.s.raw[i] > 0 {
				a.s.raw[i], a.s.state[i] = a.m.cores[i].on, a.s.state[i].withForeign(false)
			}
		}
	}
	a.mark(nil, ExclusiveNone)
	return a.solveRequest(&r)
}

// solveRequest tries the sizes that satisfy the request, the smallest first. Only SMTRoundUp has
// more than one.
func (a *Allocator) solveRequest(r *Request) (Result, *Error) {
	first, last := r.CPUs, r.CPUs
	if r.SMT == SMTRoundUp {
		last = min(r.CPUs+a.m.threads-1, cpuset.MaxCPUs)
	}
	var refusal *Error
	for n := first; n <= last; n++ {
		if r.SMT == SMTRoundUp && a.m.uniform && n%a.m.threads != 0 && n < last {
			continue
		}
		err := a.solve(r, n)
		if err == nil {
			return a.result(r), nil
		}
		if refusal == nil || err.Code == TopologyAffinityError || err.Code == ExclusivityError {
			refusal = err
		}
	}
	return Result{}, refusal
}

// read counts the free CPUs and those of Keep, core by core.
func (a *Allocator) read(free *cpuset.Set, r *Request) {
	s, m := &a.s, a.m
	a.q.kept = 0
	for w := range m.words {
		kept := r.Keep.Word(w)
		s.avail[w] = free.Word(w) &^ kept
		a.q.kept += bits.OnesCount64(kept)
	}
	clear(s.l3raw)
	clear(s.keep)
	a.q.named = r.Nodes.Next(0) >= 0
	for i := range s.node {
		s.node[i].raw, s.node[i].kept = 0, 0
		s.nodeOK[i] = !a.q.named || r.Nodes.Has(m.nodes[i].id)
	}
	many := m.threads > 2
	for k := range m.runs {
		run := &m.runs[k]
		places := m.places[run.first:run.end]
		raws, states := s.raw[run.first:][:len(places)], s.state[run.first:][:len(places)]
		sum := int32(0)
		for i := range places {
			p := &places[i]
			raw := s.avail.bit(p.first) + s.avail.bit(p.last)&p.second
			if many {
				raw = s.avail.count(m.cores[run.first+i].cpus)
			}
			raws[i] = raw
			states[i] = p.state | coreState(uint16(raw-p.on)>>15) // stateForeign if raw < p.on, without a branch
			sum += int32(raw)
		}
		s.node[run.node].raw += sum
		s.l3raw[run.l3] += sum
	}
	if a.q.kept > 0 {
		a.readKept(&r.Keep)
	}
	a.q.exclusive, a.q.strategy = r.Exclusive, r.Strategy
}

// readKept counts the CPUs of Keep, core by core.
func (a *Allocator) readKept(kept *cpuset.Set) {
	s, m := &a.s, a.m
	var words cpuWords
	for w := range m.words {
		words[w] = kept.Word(w)
	}
	for i := range m.cores {
		c := &m.cores[i]
		keep := words.count(c.cpus)
		s.keep[i], s.state[i] = keep, s.state[i].withForeign(s.raw[i]+keep < c.on)
		s.node[c.node].kept += int32(keep)
	}
}

// cpuWords are the CPUs of a set that the machine may have, where every request looks each of them up.
type cpuWords [cpuset.Words]uint64

// bit is 1 if the CPU is in the set; the mask avoids a bounds check.
func (w *cpuWords) bit(cpu int16) int16 {
	return int16(w[int(cpu)>>6&(cpuset.Words-1)] >> (cpu & 63) & 1)
}

// count is how many of some CPUs are in the set.
func (w *cpuWords) count(cpus []int16) (n int16) {
	for _, cpu := range cpus {
		n += w.bit(cpu)
	}
	return n
}

// mark finds the cores of PCPULevel owners, and the cores and nodes that the request's exclusive
// policy avoids. A NUMANodeLevel request without a node for itself falls back to PCPULevel, and
// then avoids the cores of both kinds of owners.
func (a *Allocator) mark(held []Held, policy ExclusivePolicy) {
	s, m := &a.s, a.m
	clear(s.violated)
	for i := range held {
		h := &held[i]
		owner := h.Exclusive == PCPULevel
		bad := policy == NUMANodeLevel && h.Exclusive != ExclusiveNone || policy == PCPULevel && owner
		if !owner && !bad {
			continue
		}
		violated := bad && h.Exclusive == NUMANodeLevel
		var state coreState
		if owner {
			state |= statePCPU
		}
		if bad {
			state |= stateBad
		}
		for w := range m.words {
			for word := h.CPUs.Word(w); word != 0; word &= word - 1 {
				c := m.coreOf[w<<6+bits.TrailingZeros64(word)]
				if c < 0 {
					continue
				}
				s.state[c] |= state
				if violated {
					s.violated[m.cores[c].node] = true
				}
			}
		}
	}
}
