// Package cpuallocator picks CPUs for one owner out of the free CPUs of a machine. It is a pure
// function: the same arguments give the same CPUs, whatever was requested before.
//
// A request meets hard rules or is refused with a code and the numbers:
//
//   - there are as many free CPUs (InsufficientCPUs);
//   - whole cores where they are demanded (align, roundup, a required
//     FullPCPUs), and one thread of each of n wholly free cores for isolate
//     (SMTAlignmentError). Only online threads count towards a whole core, so an offline
//     sibling does no harm, and cores of one and of two threads can be combined to make
//     up a number;
//   - a required SpreadByPCPUs lies on as many cores as it has CPUs, or on all
//     cores of the machine if they are fewer (InsufficientCPUs);
//   - no more NUMA nodes than the alignment allows (TopologyAffinityError);
//   - an exclusive policy, if it is required (ExclusivityError).
//
// Of all selections that meet them, the one with the lowest Score is taken; the fields of Score, in
// order, are the preferences:
//
//  1. exclusive policies: a PCPULevel request takes as few CPUs as possible on
//     cores of PCPULevel owners; a NUMANodeLevel request avoids nodes of
//     NUMANodeLevel owners, and where it cannot, cores of either;
//  2. DistributeEvenly: shares that are equal, to a CPU, and where whole cores are
//     demanded to a core;
//  3. with align-by-socket no more sockets than an empty machine would need; fewest
//     NUMA nodes, the nearest, on the fewest sockets;
//  4. the bind policy. FullPCPUs: the fewest cores of which a part is taken;
//     SpreadByPCPUs: the fewest CPUs beyond the first of their core;
//  5. one kind of core, performance before efficiency;
//  6. fewest L3 domains;
//  7. neighbours: the fewest CPUs on cores of PCPULevel owners, whatever the
//     request's own policy, then on cores of any other owner;
//  8. the strategy: MostAllocated the nodes with the fewest free CPUs,
//     LeastAllocated those with the most, DistributeEvenly the larger shares to
//     the emptier nodes;
//  9. fragmentation: the fewest wholly free cores of which a part is taken, and
//     the fewest free CPUs left over in the L3s;
//  10. the lowest numbers, of nodes, L3s, cores and CPUs.
//
// So for two cores of a machine with cores 0-1 (half used), 2-3, 4-5 and 6-7:
//
//	a := cpuallocator.New(t)
//	r, err := a.Allocate(free, nil, cpuallocator.Request{CPUs: 4}) // 2-5
//
// Up to ten NUMA nodes the search is exact from the first field to the number of L3s, and fully
// exact on machines of some dozens of cores; on larger ones it visits a bounded number of sets of
// L3s (l3.go, grow.go and threads.go state their bounds). A bound can cost a better neighbour or a
// better fit among equally few L3s. Less exact are:
//
//   - machines of more than ten nodes: a set is grown, and perhaps not the nearest;
//   - large machines with cores of unequal size, or of more than two threads: the
//     fewest L3s may not be found;
//   - requests that do not fit without cores of owners that they should avoid, on
//     large machines: few sets of nodes are visited (ties.go);
//   - equal shares on nodes that have an L3 in common, or cores of two kinds: each
//     node is decided by itself.
//
// The path of a request: hard.go (rules), sum.go (counts), nodes.go or grow.go and even.go (nodes),
// l3.go (L3s), form.go and threads.go (cores), pick.go (CPUs).
package cpuallocator
