// Package plugin is the shell around the policy: it speaks NRI with the
// runtime, feeds what happens to the one decider and enforces what it decides.
//
// The path of a request, one file a station:
//
//	nri.go        a handler with a deadline of half the runtime's
//	translate.go  the runtime's words become a policy event; tenant text stays outside
//	loop.go       the goroutine that owns the policy.Machine takes it
//	reply.go      the decision about the subject becomes the answer
//	enforce.go    the decisions about everybody else become cgroup writes
//
// Three invariants:
//
//   - No handler waits for a disk, a network or a lock that somebody holds who
//     waits for one. The only thing it may wait for is that CPUs are free before
//     their owner starts, and that wait ends with its deadline: the owner is
//     then refused, never started beside others.
//   - The runtime's unsolicited UpdateContainers is never called: it can lock up
//     the runtime. What concerns others goes through their cgroups.
//   - Nothing is written before the first Synchronize: until then nobody knows
//     who runs, and a pool computed for an empty node is too wide.
package plugin
