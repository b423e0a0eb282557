package cpuallocator

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// check refuses requests that no machine could satisfy.
func (a *Allocator) check(r *Request) *Error {
	switch {
	case r.CPUs <= 0 || r.CPUs > cpuset.MaxCPUs:
		return refuse(InvalidRequest, "%d CPUs are asked for; a request is 1 to %d", r.CPUs, cpuset.MaxCPUs)
	case r.Bind > SpreadByPCPUs || r.SMT > SMTRoundUp || r.Exclusive > NUMANodeLevel ||
		r.Strategy > DistributeEvenly || r.Alignment > AlignSingleNode:
		return refuse(InvalidRequest, "bind %d, SMT %d, exclusive %d, strategy %d or alignment %d is no policy",
			r.Bind, r.SMT, r.Exclusive, r.Strategy, r.Alignment)
	case r.Bind == SpreadByPCPUs && r.BindRequired && (r.SMT == SMTAlign || r.SMT == SMTRoundUp):
		return refuse(InvalidRequest,
			"%d CPUs are asked for in whole cores and, by a required SpreadByPCPUs, on as many cores; drop one of "+
				"the two", r.CPUs)
	}
	return a.checkKeep(r)
}

func (a *Allocator) checkKeep(r *Request) *Error {
	if r.Keep.Next(0) < 0 {
		return nil
	}
	kept, known := r.Keep.Count(), 0
	if kept > r.CPUs {
		return refuse(InvalidRequest, "%d CPUs are to be kept and %d are asked for; shrinking is another request",
			kept, r.CPUs)
	}
	for i := range a.m.cores {
		c := &a.m.cores[i]
		here := 0
		for _, cpu := range c.cpus {
			if r.Keep.Has(int(cpu)) {
				here++
			}
		}
		known += here
		if here > 1 && r.SMT == SMTIsolate {
			return refuse(InvalidRequest,
				"CPUs %s are to be kept and two of them share the core of CPU %d; isolated CPUs do not share cores",
				r.Keep, c.cpus[0])
		}
		if id := a.m.nodes[c.node].id; here > 0 && !r.Nodes.IsEmpty() && !r.Nodes.Has(id) {
			return refuse(InvalidRequest,
				"CPUs %s are to be kept and lie on NUMA node %d, the request is for nodes %s", r.Keep, id, r.Nodes)
		}
	}
	if known != kept {
		return refuse(InvalidRequest, "CPUs %s are to be kept and %d of them are offline or unknown", r.Keep,
			kept-known)
	}
	return nil
}

// solve solves the request for a size of n.
func (a *Allocator) solve(r *Request, n int) *Error {
	a.q.asked = n
	a.q.spread = r.Bind == SpreadByPCPUs
	a.q.cleanOnly = false
	a.q.mode = a.baseMode(r)
	if a.q.mode == wholeCores {
		a.q.spread = false
	}
	if err := a.checkAvailable(r, n); err != nil {
		return err
	}
	if err := a.shape(r, n); err != nil {
		return err
	}
	if err := a.checkShape(r, n); err != nil {
		return err
	}
	a.sum()
	a.q.limit = a.limitOf(r, n)
	if err := a.search(r); err != nil {
		return err
	}
	a.materialize()
	return nil
}

// baseMode is which threads of a core the request's policies allow.
func (a *Allocator) baseMode(r *Request) mode {
	switch {
	case r.SMT == SMTIsolate:
		return isolated
	case r.SMT == SMTAlign || r.SMT == SMTRoundUp || r.BindRequired && r.Bind == FullPCPUs:
		return wholeCores
	}
	return anyThreads
}

// checkAvailable refuses requests for more CPUs than are free.
func (a *Allocator) checkAvailable(r *Request, n int) *Error {
	free, allowed := 0, 0
	for i := range a.s.node {
		f := int(a.s.node[i].raw + a.s.node[i].kept)
		free += f
		if a.s.nodeOK[i] {
			allowed += f
		}
	}
	switch {
	case n > a.m.online:
		return refuse(InsufficientCPUs, "%d CPUs are asked for and the machine has %d online", n, a.m.online)
	case a.q.mode == wholeCores && !a.coverable(n):
		return refuse(SMTAlignmentError,
			"%d CPUs are asked for in whole cores, which is no multiple of the %d threads of a core", n, a.m.threads)
	case n > free:
		return refuse(InsufficientCPUs, "%d CPUs are asked for and %d of %d are free", n, free, a.m.online)
	case n > allowed:
		return refuse(TopologyAffinityError, "%d CPUs are asked for on NUMA nodes %s and %d are free there", n,
			r.Nodes, allowed)
	}
	return nil
}

// coverable reports whether whole cores of the machine can make up exactly n CPUs.
func (a *Allocator) coverable(n int) bool {
	if a.m.uniform {
		return n%a.m.threads == 0
	}
	sizes := a.s.l3.sizes
	clear(sizes)
	for i := range a.m.cores {
		sizes[a.m.cores[i].on]++
	}
	return reachable(sizes, n, a.s.l3.reach)
}

// shape computes which threads the mode may take of each core, and settles CPUs for which the mode
// leaves no choice.
func (a *Allocator) shape(r *Request, n int) *Error {
	s, m := &a.s, a.m
	a.q.want, a.q.settledBad = n-a.q.kept, 0
	s.nodes.settled = settlement{}
	copy(s.usable, s.raw)
	copy(s.had, s.keep)
	clear(s.take)
	cores := len(m.cores)
	if a.q.named {
		cores = a.onlyNamedNodes()
	}
	if a.q.mode == anyThreads {
		if a.q.spread && r.BindRequired {
			return a.shapeSpread(n, cores)
		}
		return nil
	}
	for i := range m.cores {
		c := &m.cores[i]
		switch {
		case a.q.mode == isolated:
			if s.keep[i] > 0 || s.raw[i] < c.on {
				s.usable[i] = 0
			}
			s.usable[i] = min(s.usable[i], 1)
		case a.q.mode == wholeCores && s.keep[i] > 0:
			if s.state[i].foreign() {
				return refuse(SMTAlignmentError,
					"CPU %d is to be kept and others of its core are taken; whole cores are demanded",
					m.firstKept(r, i))
			}
			a.settle(i, s.raw[i])
		case a.q.mode == wholeCores && s.raw[i] < c.on:
			s.usable[i] = 0
		}
	}
	if a.q.want < 0 {
		return refuse(SMTAlignmentError,
			"%d CPUs are asked for and the cores of those to be kept have %d; whole cores are demanded", n, n-a.q.want)
	}
	return nil
}

// onlyNamedNodes restricts the search to the cores of the nodes that the request names, and counts
// them.
func (a *Allocator) onlyNamedNodes() (cores int) {
	for i := range a.m.cores {
		if a.s.nodeOK[a.m.cores[i].node] {
			cores++
		} else {
			a.s.usable[i] = 0
		}
	}
	return cores
}

// settle puts the first k usable CPUs of a core into the result.
func (a *Allocator) settle(core int, k int16) {
	s := &a.s
	s.take[core] += k
	s.had[core] += k
	s.usable[core] -= k
	a.q.want -= int(k)
	if s.state[core].bad() {
		a.q.settledBad += int32(k)
	}
}

// shapeSpread demands min(n, cores) distinct cores: up to that number one
// thread of each, beyond it at least one thread of every core.
func (a *Allocator) shapeSpread(n, cores int) *Error {
	s, m := &a.s, a.m
	distinct := 0
	for i := range m.cores {
		if s.nodeOK[m.cores[i].node] && s.had[i]+s.usable[i] > 0 {
			distinct++
		}
	}
	if need := min(n, cores); distinct < need {
		return refuse(InsufficientCPUs,
			"%d CPUs are asked for, spread over %d cores, and %d of %d cores have a free CPU", n, need, distinct, cores)
	}
	if n <= cores {
		a.q.mode = oneThread
	}
	for i := range m.cores {
		switch {
		case n > cores && s.had[i] == 0 && s.usable[i] > 0:
			if a.q.want == 0 {
				return refuse(InsufficientCPUs,
					"%d CPUs are asked for, spread over %d cores, and those to be kept share cores", n, cores)
			}
			a.settle(i, 1)
		case n <= cores && s.had[i] > 1:
			return refuse(InsufficientCPUs,
				"%d CPUs are asked for, spread over as many cores, and two of those to be kept share the core of "+
					"CPU %d", n, m.cores[i].cpus[0])
		case n <= cores && s.had[i] == 1:
			s.usable[i] = 0
		case n <= cores:
			s.usable[i] = min(s.usable[i], 1)
		}
	}
	return nil
}

// checkShape refuses requests if there are too few cores of the kind that their mode needs.
func (a *Allocator) checkShape(r *Request, n int) *Error {
	if a.q.mode == anyThreads && !r.BindRequired {
		return nil // every free CPU may be taken, and there are enough
	}
	usable, cores := 0, 0
	for _, f := range a.s.usable {
		usable += int(f)
		if f > 0 {
			cores++
		}
	}
	switch a.q.mode {
	case isolated:
		if usable < a.q.want {
			return refuse(SMTAlignmentError,
				"%d CPUs are asked for, each alone on a core, and %d of %d cores are wholly free", n, cores+n-a.q.want,
				len(a.m.cores))
		}
	case wholeCores:
		if usable < a.q.want || !a.wholeFree() {
			return refuse(SMTAlignmentError,
				"%d CPUs are asked for in whole cores of %d threads and %d of %d cores are wholly free", n,
				a.m.threads, cores, len(a.m.cores))
		}
	default:
		if usable < a.q.want {
			return refuse(InsufficientCPUs, "%d CPUs are asked for and %d are free as demanded", n, usable+n-a.q.want)
		}
	}
	return nil
}

// wholeFree reports whether wholly free cores can make up exactly what is wanted.
func (a *Allocator) wholeFree() bool {
	if a.m.uniform {
		return a.q.want%a.m.threads == 0
	}
	sizes := a.s.l3.sizes
	clear(sizes)
	for i := range a.m.cores {
		sizes[a.s.usable[i]]++
	}
	return reachable(sizes, a.q.want, a.s.l3.reach)
}

// reachable reports whether some of the given cores, sizes[k] of k threads each,
// have exactly n threads together.
func reachable(sizes []int32, n int, reach []bool) bool {
	rest := n
	for k := len(sizes) - 1; k > 0; k-- {
		rest -= k * min(int(sizes[k]), rest/k)
	}
	if rest == 0 || len(sizes) <= 3 {
		return rest == 0
	}
	reach = reach[:n+1]
	clear(reach)
	reach[0] = true
	for k := 1; k < len(sizes); k++ {
		for count := min(int(sizes[k]), n/k); count > 0; count-- {
			for sum := n; sum >= k; sum-- {
				reach[sum] = reach[sum] || reach[sum-k]
			}
		}
	}
	return reach[n]
}

// limitOf is the extent that the alignment allows the request.
func (a *Allocator) limitOf(r *Request, n int) limit {
	switch {
	case r.Alignment == AlignSingleNode:
		return limit{nodes: 1}
	case r.Alignment == AlignRestricted && r.BySocket:
		return limit(a.extentIfEmpty(r, n))
	case r.Alignment == AlignRestricted:
		return limit{nodes: a.extentIfEmpty(r, n).nodes}
	}
	return limit{nodes: int16(len(a.m.nodes))}
}

func (m *machine) firstKept(r *Request, core int) int {
	for _, cpu := range m.cores[core].cpus {
		if r.Keep.Has(int(cpu)) {
			return int(cpu)
		}
	}
	return -1
}

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
