// Package reclaim decides which idle CPUs may be lent to best-effort pods, and takes
// them back. It is pure: samples and the time are parameters; estimates and evictions
// are results.
//
// Production pods are those of the classes LSE, LSR and LS; batch pods are those of
// class BE.
//
//	supply  = capacity - reserve - what production is promised (from: slack)
//	          capacity - reserve - the peak that production is expected to use (from: usage)
//	idle    = a batch pod of whose samples P % in a window of length D are below
//	          a threshold, which is a share of its request
//	reclaimable = max(0, supply) + what idle pods requested and do not use
//
// Production never pays: what is unknown counts as in use. A pod without a full window
// is not idle, nor is a throttled pod. A production pod without history counts with its
// request. An offer falls at once and rises late.
//
// An [Estimator] estimates and chooses evictions in one step, so that no scheduler can
// fill the place of an evicted pod before the estimate accounts for it. A [Suppressor]
// works in seconds rather than minutes: its [Budget] says how many CPUs batch pods may
// use now. [Choose] says which CPUs those are, [Budget.Milli] the equivalent quota.
//
//	e, err := reclaim.New(reclaim.Default())
//	estimate, err := e.Step(now, reclaim.Report{Capacity: 16, Pods: pods, Span: time.Second})
package reclaim
