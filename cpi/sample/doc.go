// Package sample turns two readings of the counters into samples: how much CPU each
// container used between them, and its cycles per instruction (CPI).
//
//	edge of a window   from ────────── 10 s ────────── to
//	what is read       totals that only grow, of every container, at one moment
//	what comes out     usage = CPU time / length
//	                   CPI   = reference cycles / instructions, of the same interval
//
// An [Edge] is one reading. [Judge] compares two and returns a [Window] with a [Result]
// for each container. [Rules] bound what it accepts. A [History] keeps a container's
// last samples.
//
// A wrong number is worse than none. Where two readings cannot be compared, the sample
// is dropped with a [Reason]: for example, the container started or ended between them,
// a CPU went offline, or a counter went backwards. A fault of the cycles alone
// ([Sample.NoCPI]) leaves the usage, since a neighbour's usage is evidence even without
// its CPI.
//
// The package is pure: it reads neither clocks nor counters.
package sample
