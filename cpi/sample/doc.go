// Package sample turns two readings of the counters into samples: how much CPU
// each container used between them, and how many cycles an instruction
// took it.
//
//	edge of a window   from ────────── 10 s ────────── to
//	what is read       totals that only grow, of every container, at one moment
//	what comes out     usage = CPU time / length
//	                   CPI   = reference cycles / instructions, of the same interval
//
// A wrong number is worse than none, so a sample is dropped, with a Reason that
// is counted, wherever the two readings cannot be compared: the container began
// or ended between them, the clock stood still, a CPU came or went, a counter
// went backwards, was shared by others or tells what no CPU can do. What spoils
// the cycles alone (Result.NoCPI) leaves the usage, which others need: a
// neighbour's usage is evidence, whatever its CPI.
//
// The package is pure: it reads no clock and no counter.
package sample
