package detect

import "time"

// Ref is the detector's short name of a container, valid until Forget.
type Ref int32

// Sample is one window of one container.
type Sample struct {
	Ref   Ref
	At    time.Time // the window's end
	Usage float64   // CPU-seconds per second
	CPI   float64   // 0: none was measured; Usage counts all the same
	// Misses are LLC misses a second; 0: not known.
	Misses float64
	// Threads of the container; 0: not known.
	Threads int32
	// Capped says that a cap held it in a part of the window: what it did then is not
	// what is normal for its job.
	Capped bool
}
