// Package world is a simulated machine on which the truth is known: a victim, its
// neighbours, and what the guilty ones do to the victim. It knows nothing of any
// detector. The loop is closed: [Machine.Throttle] really slows a container, and with
// it what it does to the victim.
//
// A machine lives in steps of ten seconds. Demand, noise and phases are drawn before
// it starts, so that two detectors on the same seed meet the same machine, whatever
// they throttle.
package world
