package cpuallocator

import "cmp"

// Score is how good a selection of CPUs is: field by field in this order,
// smaller is better. The search compares candidates with it, and so does the
// naive reference of the tests, which counts every field anew from the CPUs.
//
// Fields count what the selection does, Keep included. Ties are broken by the
// lowest numbers: of NUMA nodes, then L3s, then cores, then CPUs, each ordered
// by its lowest online CPU.
type Score struct {
	// Hold-offs: units of other owners that the request's exclusive policy
	// names and the selection uses all the same.
	ViolatedNodes int32 // NUMANodeLevel: nodes of other NUMANodeLevel owners
	// CPUs on cores of PCPULevel owners; NUMANodeLevel: on such an owner's cores too, and only if ViolatedNodes > 0
	ViolatedCPUs int32

	Uneven   int32 // DistributeEvenly: 1 where the shares of the nodes are not equal
	Nodes    int32 // NUMA nodes used
	Distance int32 // sum over the ordered pairs of nodes used
	Sockets  int32 // sockets used

	Split int32 // DistributeEvenly over whole cores: 1 where the shares are equal in CPUs only
	// MostAllocated: free CPUs on the nodes used; LeastAllocated: the same, negative; even shares: what
	// they leave unbalanced
	Strategy int32

	L3s int32 // L3 domains used

	Doubled int32 // SpreadByPCPUs: CPUs beyond the first of their core
	Kind    int32 // 0 performance cores, 1 efficiency cores, 2+n both with n CPUs on efficiency cores
	Partial int32 // FullPCPUs: cores of which a part is taken
	Cores   int32 // FullPCPUs: cores used
	Broken  int32 // FullPCPUs: wholly free cores of which only a part is taken
	Shared  int32 // cores used of which somebody else has a CPU

	Leftover int32 // free CPUs that stay behind in the L3s used
}

// Compare orders scores, the better one first.
func (s *Score) Compare(o *Score) int {
	if c := s.compareNodes(o); c != 0 {
		return c
	}
	return s.compareCores(o)
}

// compareNodes compares what the choice of NUMA nodes settles.
func (s *Score) compareNodes(o *Score) int {
	return cmp.Or(
		cmp.Compare(s.ViolatedNodes, o.ViolatedNodes),
		cmp.Compare(s.ViolatedCPUs, o.ViolatedCPUs),
		cmp.Compare(s.Uneven, o.Uneven),
		cmp.Compare(s.Nodes, o.Nodes),
		cmp.Compare(s.Distance, o.Distance),
		cmp.Compare(s.Sockets, o.Sockets),
		cmp.Compare(s.Split, o.Split),
		cmp.Compare(s.Strategy, o.Strategy),
	)
}

// compareCores compares what the choice of L3s and cores settles.
func (s *Score) compareCores(o *Score) int {
	if s.L3s != o.L3s {
		return cmp.Compare(s.L3s, o.L3s)
	}
	if c := s.compareForm(o); c != 0 {
		return c
	}
	return cmp.Compare(s.Leftover, o.Leftover)
}

// compareForm compares how the selection lies on its cores.
func (s *Score) compareForm(o *Score) int {
	switch {
	case s.Doubled != o.Doubled:
		return cmp.Compare(s.Doubled, o.Doubled)
	case s.Kind != o.Kind:
		return cmp.Compare(s.Kind, o.Kind)
	case s.Partial != o.Partial:
		return cmp.Compare(s.Partial, o.Partial)
	case s.Cores != o.Cores:
		return cmp.Compare(s.Cores, o.Cores)
	case s.Broken != o.Broken:
		return cmp.Compare(s.Broken, o.Broken)
	}
	return cmp.Compare(s.Shared, o.Shared)
}
