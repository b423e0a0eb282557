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
//	machine.go   the policy's step, its panics, and what is rebuilt after one
//	writer.go    cgroup writes: who leaves first, who comes then, who may still be where
//	limit.go     CFS quotas, weights and cpu.idle
//	audit.go     cgroups read back, and what drifted
//	waiters.go   answers that are held back until CPUs are free
//	takeover.go  Synchronize: who ran before, read from the cgroups
//	presence.go  pods whose end, or whose beginning, nobody announced
//	saving.go    the state file
//
// Where one thing after another has to be read or written, the code is a routine: it
// reads like any function, and gives control back at each effect; see routine.go.
package node
