package detect

import "time"

// Ref is the detector's handle of a container, valid until Forget.
type Ref int32

// Sample is one window of one container.
type Sample struct {
	Ref   Ref
	At    time.Time // the window's end
	Usage float64   // CPU-seconds per second
	CPI   float64   // 0: not measured; Usage is still valid
	// Counted is the share of the container's CPU time that CPI was counted in; 0: all of it.
	// Below 1 the CPI is an estimate, and the deviation it is held against is wider.
	Counted float64
	// Misses are LLC misses a second; 0: not known.
	Misses float64
	// Threads of the container; 0: not known.
	Threads int32
	// Capped says that a cap was in force in a part of the window, so that the sample
	// is not typical of its job.
	Capped bool
}
