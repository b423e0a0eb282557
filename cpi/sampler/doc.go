// Package sampler opens the windows in which CPU performance is counted: by default 10
// s of every minute, at a random moment of it, the same for all containers. Between
// windows nothing is counted and nothing costs anything.
//
// A [Sampler] reads a [Counter] at both edges of a window, has package sample judge the
// readings, and passes the resulting [Window] to its subscribers. It keeps a short
// history of each container.
//
// One goroutine, Run, owns the counter. It asks for the node's containers at both edges
// of each window, so that creating a container never waits for the sampler.
package sampler
