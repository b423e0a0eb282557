// Package counter counts what every container does to the CPUs: cycles,
// instructions, reference cycles, last-level cache misses and nanoseconds on
// the CPU, with one perf event a CPU and kind and an eBPF program that charges
// the cgroup which leaves a CPU.
//
// A [Counter] is opened once, told which cgroups to follow, and enabled for the
// windows in which it shall count; in between it costs nothing. [Counter.Read]
// makes every CPU hand over what it has, running tasks included, and adds it to
// totals that only grow: users subtract. A task is charged to the deepest
// followed cgroup above it, everything else to Other, so that
//
//	sum(Groups) + Other == Machine
//
// holds exactly, in every field and every reading. Idle CPUs are part of Other:
// Machine.OnCPU is CPUs x enabled time.
//
// A wrong number is never added. An interval in which an event could not be
// read, was not running, or moved further than any CPU can is charged as time
// only: it is missing from [Counts.Counted], and named in [Faults].
package counter
