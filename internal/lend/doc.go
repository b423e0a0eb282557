// Package lend is the API server's side of lending CPUs: a Publisher keeps what
// batch pods may request in the Node's status, an Evictor asks for pods back.
//
// The Node says, of extended resources counted in thousandths of a CPU,
//
//	value = what bound pods request + what of the offer nobody was promised yet
//
// which is max(offer, requested) where there is one resource. It is never less than
// what bound pods request: kubelet admits every pod again after its restart, and
// fails those that no longer fit, past every disruption budget. It falls at once
// and rises late. Others write the Node too; what they change is put back.
//
//	p := lend.New(lend.Options{API: api, Node: name, Bound: client.Batch, Log: log})
//	go p.Run(ctx)
//	p.Offer(6500) // 6.5 CPUs
//
//	err := e.Evict(ctx, lend.Pod{UID: uid, Namespace: "jobs", Name: "sort-1"}, why)
//
// docs/lending-api.md says who writes what, and what becomes of it when the daemon
// is gone.
package lend
