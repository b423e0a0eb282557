// Package sampler opens the windows in which CPU performance is counted: 10 s of
// every minute by default, the same for every container, with nothing counted and
// nothing spent in between. What comes out of a window are the samples of package
// sample, with the names of whose they are.
//
// One goroutine, Run, owns the counters. It follows the node's containers by
// looking at both edges of each window, so that nobody who creates a container
// waits for it or is called by it.
package sampler
