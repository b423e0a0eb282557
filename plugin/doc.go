// Package plugin is the NRI plugin: the connection to the runtime, its requests as events,
// and answers in the runtime's words. What is decided is decided in package node below it.
//
//	connect.go    registration with the runtime, repeated after each loss
//	stacks.go     the stacks that handlers run on
//	nri.go        the handlers, with a deadline of half the runtime's
//	translate.go  the runtime's messages become policy events; tenant text is dropped
//	runner.go     steps the node.Core in one goroutine and performs its effects
//	reply.go      a decision becomes a reply
//	restore.go    undoes everything that a daemon changed
//	watch.go      follows kubelet's CPU manager and the CPUs of the machine
//
// Three invariants:
//
//   - No handler waits for a disk, a network or a lock. It may wait only until a container
//     can start without sharing a CPU that has an owner. That wait ends with the deadline:
//     the container is then refused, never started on CPUs of others.
//   - The runtime's unsolicited UpdateContainers is never called: it can lock up
//     the runtime. What concerns other containers goes through their cgroups.
//   - Nothing is written before the first Synchronize: until then it is not known
//     what runs, and a pool computed for an empty node is too wide.
package plugin
