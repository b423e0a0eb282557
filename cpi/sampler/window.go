package sampler

import (
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/topology"
)

// Window is what came out of a window. Nothing writes to it any more.
type Window struct {
	sample.Window // empty where it failed, but for End and Boot
	// Failed is why nothing at all is known.
	Failed     error
	Topology   *topology.Topology // at its end
	Faults     counter.Faults     // so far
	Followed   int
	Unfollowed int // containers that run and are not counted
	// Unfollowable is why, for one of them.
	Unfollowable error
}
