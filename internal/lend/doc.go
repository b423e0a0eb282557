// Package lend is the Kubernetes side of lending CPUs. A [Publisher] keeps the amount
// that batch pods may request in the Node's status. An [Evictor] evicts batch pods, and
// a [Queue] does so without blocking its caller.
//
// The Node has, for extended resources in thousandths of a CPU,
//
//	value = what bound pods request + the part of the offer that is not promised yet
//
// which is max(offer, requested) if there is one resource. The value is never less than
// what bound pods request: kubelet admits every pod again after its restart, and fails
// those that no longer fit, without regard to disruption budgets. It falls at once and
// rises late. If others change these fields, the Publisher repairs them.
//
//	p := lend.New(lend.Options{API: api, Node: name, Bound: client.Batch, Log: log})
//	go p.Run(ctx)
//	p.Offer(6500) // 6.5 CPUs
//
//	err := e.Evict(ctx, lend.Pod{UID: uid, Namespace: "jobs", Name: "sort-1"}, why)
//
// docs/lending-api.md says which component writes what, and what remains when the
// daemon is gone.
package lend
