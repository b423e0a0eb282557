// Package node is the daemon's core as one state machine: everything that is decided
// between an event and the effects that carry it out.
//
// Core.Step takes what happened (a request of the runtime, the result of an effect, a
// timer) and returns the effects to carry out and the requests that are answered. It does
// no I/O, starts no goroutine, takes no lock and reads no clock, so a run is the order of
// its inputs: internal/world plays that order from a seed, and the runner of package
// plugin plays it for a real node.
//
// Its parts:
//
//	core.go      Step: the queue's one consumer, and what every step ends with
//	machine.go   the policy's step, its panics, and the rebuild after one
//	writer.go    cgroup writes: masks shrink first, then others grow; which CPUs may still be in use
//	limit.go     CFS quotas, weights and cpu.idle
//	audit.go     cgroups read back, and what drifted
//	waiters.go   replies that are held back until CPUs are free
//	claims.go    replies about claims of our own DRA driver
//	takeover.go  Synchronize: the pods that ran before, read from the cgroups
//	presence.go  pods that ended or started without an event
//	saving.go    the state file
//
// A sequence of reads and writes is a routine: it is written like any function, and yields
// at each effect; see routine.go.
package node
