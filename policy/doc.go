// Package policy decides which pod of a node owns which CPUs.
//
// A [Machine] holds the state of one node. It is a state machine without a clock,
// locks or I/O, so that the daemon, the simulator and the tests run the same code: the
// caller passes each [Event] to [Machine.Step] together with the time, and gets back
// the [Decision]s that have to be enforced. A decision is the whole desired state of one
// pool, pod or container, so applying it twice is harmless. [Machine.Snapshot] returns
// the present state for readers, [Machine.Checkpoint] the event that restores it in a
// new machine.
//
// Step judges an event before it changes anything. If it returns an error, which is a
// [*Refusal] with a code and a sentence for people, the machine is unchanged.
//
// These invariants hold after every step:
//
//   - No CPU is owned exclusively by two pods.
//   - A CPU that is owned exclusively, or kept idle for its owner, is in no pool that must
//     not have it.
//   - The shared pool and the best-effort pool are never empty.
//   - A decision refers only to pools that were set and not dropped since. A part of a pool has
//     the pool's CPUs on its NUMA nodes, and at least one pod is in it.
//
// The classes and pools are those of Koordinator's proposal "Fine-grained CPU
// orchestration". docs/semantics.md leads to every rule, and to scripts that show it.
package policy
