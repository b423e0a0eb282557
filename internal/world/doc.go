// Package world is a simulated node for tests of the daemon's shell: kernel,
// container runtime, kubelet, disk, clock and what goes wrong with each of them.
//
// The shell under test does no I/O of its own. Each I/O operation is an Op, which waits
// until the world chooses it and decides how it ends; every input of the shell is a
// Request. The seed makes one choice at a time, and after each the properties of the
// design are checked. So a seed decides the order of all events, and runs of the same
// seed are identical.
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
