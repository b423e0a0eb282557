package cpuallocator

import "cmp"

// Score rates a selection of CPUs: field by field in this order, smaller is better. The search
// compares candidates with it, and so does the naive reference of the tests, which computes every
// field from the CPUs.
//
// Fields count what the selection does, Keep included. Ties are broken by the
// lowest numbers: of NUMA nodes, then L3s, then cores, then CPUs, each ordered
// by its lowest online CPU.
type Score struct {
	// Units of other owners that the request's exclusive policy should avoid and the selection uses
	// anyway.
	ViolatedNodes int32 // NUMANodeLevel: nodes of other NUMANodeLevel owners
	// New CPUs on cores of PCPULevel owners; NUMANodeLevel: on cores of either
	// kind of owner, and only if ViolatedNodes > 0.
	ViolatedCPUs int32

	Uneven   int32 // DistributeEvenly: 1 if the shares of the nodes are not equal
	Beyond   int32 // with Request.BySocket: 1 on more sockets than an empty machine would need
	Nodes    int32 // NUMA nodes used
	Distance int32 // sum over the ordered pairs of nodes used
	Sockets  int32 // sockets used

	// The bind policy. SpreadByPCPUs: CPUs beyond the first of their core;
	// FullPCPUs: cores of which a part is taken.
	Bind int32
	Kind int32 // 0 performance cores, 1 efficiency cores, 2+n both with n CPUs on efficiency cores
	L3s  int32 // L3 domains used

	BesideOwner int32 // CPUs on cores of PCPULevel owners, whatever the request's own policy
	Beside      int32 // CPUs on cores of which another owner has a CPU

	// MostAllocated: free CPUs on the nodes used; LeastAllocated, and DistributeEvenly with unequal
	// shares: the same, negative; equal shares: the imbalance that they leave.
	Strategy int32

	Broken   int32 // wholly free cores of which only a part is taken
	Leftover int32 // free CPUs that are left in the L3s used
}

// Compare orders scores, the better one first.
func (s *Score) Compare(o *Score) int {
	if c := s.compareNodes(o); c != 0 {
		return c
	}
	if c := s.compareDomains(o); c != 0 {
		return c
	}
	switch {
	case s.BesideOwner != o.BesideOwner:
		return cmp.Compare(s.BesideOwner, o.BesideOwner)
	case s.Beside != o.Beside:
		return cmp.Compare(s.Beside, o.Beside)
	case s.Strategy != o.Strategy:
		return cmp.Compare(s.Strategy, o.Strategy)
	case s.Broken != o.Broken:
		return cmp.Compare(s.Broken, o.Broken)
	}
	return cmp.Compare(s.Leftover, o.Leftover)
}

// compareNodes compares the fields that the choice of NUMA nodes determines.
func (s *Score) compareNodes(o *Score) int {
	switch {
	case s.ViolatedNodes != o.ViolatedNodes:
		return cmp.Compare(s.ViolatedNodes, o.ViolatedNodes)
	case s.ViolatedCPUs != o.ViolatedCPUs:
		return cmp.Compare(s.ViolatedCPUs, o.ViolatedCPUs)
	case s.Uneven != o.Uneven:
		return cmp.Compare(s.Uneven, o.Uneven)
	case s.Beyond != o.Beyond:
		return cmp.Compare(s.Beyond, o.Beyond)
	case s.Nodes != o.Nodes:
		return cmp.Compare(s.Nodes, o.Nodes)
	case s.Distance != o.Distance:
		return cmp.Compare(s.Distance, o.Distance)
	}
	return cmp.Compare(s.Sockets, o.Sockets)
}

// compareDomains compares bind policy, kind of core and L3s.
func (s *Score) compareDomains(o *Score) int {
	switch {
	case s.Bind != o.Bind:
		return cmp.Compare(s.Bind, o.Bind)
	case s.Kind != o.Kind:
		return cmp.Compare(s.Kind, o.Kind)
	}
	return cmp.Compare(s.L3s, o.L3s)
}

// form is how CPUs lie on the cores of some L3s: the fields of Score that the cores determine, in
// its order.
type form struct {
	bind, kind, besideOwner, beside, broken int32
}

func (f *form) compare(o *form) int {
	if c := f.compareBind(o); c != 0 {
		return c
	}
	switch {
	case f.besideOwner != o.besideOwner:
		return cmp.Compare(f.besideOwner, o.besideOwner)
	case f.beside != o.beside:
		return cmp.Compare(f.beside, o.beside)
	}
	return cmp.Compare(f.broken, o.broken)
}

// compareBind compares the fields before the number of L3s.
func (f *form) compareBind(o *form) int {
	if f.bind != o.bind {
		return cmp.Compare(f.bind, o.bind)
	}
	return cmp.Compare(f.kind, o.kind)
}

func (f *form) add(o *form) {
	f.bind += o.bind
	f.besideOwner += o.besideOwner
	f.beside += o.beside
	f.broken += o.broken
}

func (f *form) addTo(s *Score) {
	s.Bind += f.bind
	s.Kind += f.kind
	s.BesideOwner += f.besideOwner
	s.Beside += f.beside
	s.Broken += f.broken
}
