// Package reclaim decides which idle CPUs may be lent to best-effort pods, and
// takes them back. It is pure: samples and the time come in as values, estimates
// and evictions go out as values.
//
// Production pods are those of the classes LSE, LSR and LS; batch pods are BE.
//
//	supply  = capacity - reserve - what production is promised (from: slack)
//	          capacity - reserve - the peak that production is expected to use (from: usage)
//	idle    = a batch pod of whose samples P % in a window of length D are below
//	          a threshold, which is a share of its request
//	reclaimable = max(0, supply) + what idle pods requested and do not use
//
// Production never pays: what is not known counts as in use. A window that is
// not full is not idle, a pod that was throttled is not idle, a production pod
// without history counts with its request, an offer falls at once and rises late.
//
// The Estimator makes estimate and eviction in one step, so that no scheduler can
// fill the place of an evicted pod before the estimate knows of it. The Suppressor
// works in seconds where the Estimator works in minutes: it says how many CPUs
// batch pods may run on right now, Choose says which, and Milli as how much quota.
//
//	e, err := reclaim.New(reclaim.Default())
//	estimate, err := e.Step(now, reclaim.Report{Capacity: 16, Pods: pods, Span: time.Second})
package reclaim
