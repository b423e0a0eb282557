// Package counter counts what every container does to the CPUs: cycles, instructions,
// reference cycles, last-level cache misses and time on the CPU. It opens one perf
// event per CPU and kind. An eBPF program charges the cgroup that leaves a CPU.
//
// [Open] makes a [Counter]. [Counter.Follow] selects the cgroups, Enable and Disable
// bound the windows; in between counting costs nothing. [Counter.Read] makes every CPU
// hand over its counts, including those of running tasks, and adds them to totals that
// only grow: users subtract. A task is charged to the deepest followed cgroup above it,
// everything else to Other, so that
//
//	sum(Groups) + Other == Machine
//
// holds exactly, in every field and every [Reading]. Idle CPUs are part of Other:
// Machine.OnCPU is CPUs x enabled time.
//
// A wrong number is never added. If an event could not be read, was not running, or
// moved further than a CPU can, the interval is charged as time only. It is then
// missing from [Counts.Counted] and counted in [Faults].
package counter
