// Package cpuallocator picks CPUs for one owner out of the free CPUs of a
// machine. It is arithmetic: the same arguments give the same CPUs, whatever was
// asked before.
//
// A request meets hard rules or is refused with a code and the numbers:
//
//   - there are as many free CPUs (InsufficientCPUs);
//   - whole cores where they are demanded (align, roundup, a required
//     FullPCPUs), and one thread of each of n wholly free cores for isolate
//     (SMTAlignmentError). A core is whole by the threads that are online, so an
//     offline sibling spoils nothing, and cores of one and of two threads make
//     up a number together;
//   - a required SpreadByPCPUs lies on as many cores as it has CPUs, or on all
//     cores of the machine if they are fewer (InsufficientCPUs);
//   - no more NUMA nodes than the alignment allows (TopologyAffinityError);
//   - an exclusive policy, if it is required (ExclusivityError).
//
// Of all selections that do, the one with the least Score is taken; the fields
// of Score, in order, are the preferences:
//
//  1. exclusive policies: a PCPULevel request takes as few CPUs as possible on
//     cores of PCPULevel owners; a NUMANodeLevel request avoids nodes of
//     NUMANodeLevel owners, and where it cannot, cores of either;
//  2. fewest NUMA nodes, the nearest, on the fewest sockets. DistributeEvenly:
//     the fewest that share equally, if any do;
//  3. the strategy: MostAllocated the nodes with the fewest free CPUs,
//     LeastAllocated those with the most, DistributeEvenly the larger shares to
//     the emptier nodes;
//  4. fewest L3 domains;
//  5. FullPCPUs: one kind of core, performance before efficiency; the fewest
//     cores taken in part, then the fewest cores; the odd rest on a core that is
//     half used. SpreadByPCPUs: most distinct cores, then one kind, then idle
//     cores;
//  6. the L3s that fit best, with the fewest free CPUs left over;
//  7. the lowest numbers, of nodes, L3s, cores and CPUs.
//
// So for two cores of a machine with cores 0-1 (half used), 2-3, 4-5 and 6-7:
//
//	a := cpuallocator.New(t)
//	r, err := a.Allocate(free, nil, cpuallocator.Request{CPUs: 4}) // 2-5
//
// The search is exact up to ten NUMA nodes as far as nodes go, and exact in full
// on machines of some dozens of cores; on larger ones it looks at a bounded
// number of sets of L3s (l3.go, nodes.go, grow.go and threads.go state their
// bounds). It never takes more nodes than needed, nor more L3s than those nodes
// need: what a bound can cost is the nearest or best fitting among equally few.
//
// The way of a request: hard.go (rules), sum.go (counts), nodes.go or grow.go
// and even.go (nodes), l3.go (L3s), form.go and threads.go (cores), pick.go
// (CPUs).
package cpuallocator
