// Package world is a simulated node for tests of the daemon's shell: kernel,
// container runtime, kubelet, disk, clock and what goes wrong with each of them.
//
// The shell under test does no I/O of its own. Whatever it wants from outside is an
// Op, which waits until the world chooses it and decides how it ends; whatever
// happens to the shell is a Request. One choice is made at a time, by a seed, and
// after each of them the promises of the design are checked. So a seed decides every
// order of things, and a run of the same seed is the same run.
//
//	report := world.Play(world.Config{Seed: 7, Faults: world.AllFaults, Steps: 300}, newShell)
//	if report.Violation != nil {
//		t.Error(report)                       // what was broken, and the choices that led there
//		short := world.Shorten(report, play)      // the same violation with fewer choices
//	}
//
// How a shell is driven is its own harness's business: one of goroutines runs under
// testing/synctest and blocks in its ops, a state machine returns them.
package world
