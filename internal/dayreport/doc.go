// Package dayreport says what a day was like on a node, and what enforcing would have changed: who shared cores with
// whom, who was disturbed for how long, which CPUs were idle, and what that would have cost whom.
//
// A [Day] keeps facts in buckets of an hour, bounded in number and size. [Of] is a pure function: facts and incidents
// become a [Report].
//
//	d := dayreport.NewDay()
//	d.Look(look)                                    // every minute
//	d.Share(at, minute, enforced, pairs)            // with every window of counting
//	r := dayreport.Of(d.Facts(), dayreport.Asked{Since: since, Until: now, Incidents: list})
package dayreport
