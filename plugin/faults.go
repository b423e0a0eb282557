//go:build quietcore_faults

package plugin

import (
	"time"
)

// SetLate has owners start at once, and the others leave that much later.
func (o *Options) SetLate(d time.Duration) { o.late = d }
