// Package policy decides who owns which CPUs. It is the only decider: the
// daemon, the simulator and the tests feed the same Machine.
//
// A Machine is a state machine without a clock, a lock or I/O. An Event says
// what happened, Step answers with Decisions, each the whole desired state of
// one pool, pod or container. Step first judges, which only reads, and then
// commits, which cannot fail: if it returns an error the machine is as it was
// before. Two invariants hold after every step:
//
//   - No CPU is owned exclusively by two pods, and none that is owned
//     exclusively or withheld is in a pool that must not have it.
//   - The shared pool and the BE pool are never empty.
//
// The classes and pools are those of Koordinator's proposal "Fine-grained CPU
// orchestration"; docs/semantics.md lists every rule with a script that shows it.
package policy
