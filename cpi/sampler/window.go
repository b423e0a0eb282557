package sampler

import (
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/topology"
)

// Window is the result of a window. It is immutable.
type Window struct {
	sample.Window // only End and Boot if the window failed
	// Failed is why the window has no data.
	Failed     error
	Topology   *topology.Topology // at its end
	Faults     counter.Faults     // since the counter was opened
	Step       Step               // how much was counted
	Testing    bool               // the pair of a test was counted alone, by Budget.Test
	Between    bool               // it lies between the windows of two intervals, for a test
	Calls      uint64             // that interrupted the CPU with most of them
	Followed   int
	Unfollowed int // containers that run but are not counted
	// FollowErr is the reason for one of the unfollowed containers.
	FollowErr error
}
