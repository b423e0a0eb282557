// Package experiment finds the antagonist of a slow container by intervention: a
// suspect is throttled in windows that coins choose, and the victim's CPI says whether
// the coins mattered. A probe, a cap and a release are one mechanism and differ in the
// coin's probability alone.
//
// A [Detector] is a state machine without clock, lock, I/O or randomness.
// [Detector.Observe] takes the samples of a window and returns [Event]s.
// [Detector.Trials] then says which coins are to be thrown for the next window, each
// with its probability; the caller throws them, records them, and tells
// [Detector.Throw], whose events throttle and release. A window whose coin was not told
// counts for nothing.
// While a test is under way, [Detector.ShortWindows] asks for short windows that follow one
// another: one in each interval is Observe's as ever, [Detector.Between] takes the others, and
// each has coins of its own.
//
//	sample -> line.go     normal: the line of ln CPI over the load that the job's own history gives
//	       -> victim.go   the residual, outliers, anomalies; a release moves the line
//	       -> prior.go    which suspect to ask first
//	       -> evalue.go   what a window says for or against it
//	       -> pair.go     a test's life: probe, verdict, terms, undo
//	       -> budget.go   what tests may cost: starts and minutes of harm
//
// The guarantee needs no model of the machine. As long as the victim's CPI does not
// depend on the coin, a test of T = 200 ends in a verdict with probability 1/200 at
// most, whatever else the CPI depends on, and however often one looks (Ville, 1939).
// Tests begin at most twice an hour for each accuser, hence at most ten false verdicts
// in a thousand hours. docs/detection.md says it in words.
package experiment
