package plugin

import (
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
)

// passing is called at each point passed; nil in production.
type passing func(failpoint.Point)

func (f passing) at(p failpoint.Point) {
	if f != nil {
		f(p)
	}
}

func pointsOf(phase cgroup.Phase) (writing, written failpoint.Point) {
	if phase == cgroup.Shrink {
		return failpoint.ShrinkWriting, failpoint.ShrinkWritten
	}
	return failpoint.GrowWriting, failpoint.GrowWritten
}
