package reclaim

import "time"

// Meter converts a growing counter of CPU time to use. The zero Meter has no reading.
type Meter struct {
	at    time.Time
	total time.Duration
}

// maxMeterGap bounds the time between the readings of a sample: a mean over hours says
// nothing about now.
const maxMeterGap = 15 * time.Minute

// Use takes a reading and returns the mean use since the previous one, in CPUs, and the
// time between. ok is false for the first reading, after a counter or clock that went
// back, and after a gap that is too long.
func (m *Meter) Use(at time.Time, total time.Duration) (use float64, span time.Duration, ok bool) {
	before := *m
	*m = Meter{at: at, total: total}
	span = at.Sub(before.at)
	if before.at.IsZero() || span <= 0 || span > maxMeterGap || total < before.total {
		return 0, 0, false
	}
	return float64(total-before.total) / float64(span), span, true
}

// Totals are counters of a group that may have been kept from using more CPU time.
type Totals struct {
	// Waiting is the time in which some runnable task of the group waited (PSI: the
	// total of "some" in cpu.pressure).
	Waiting time.Duration
	// Periods of the CFS quota in which the group ran, and in which it was throttled.
	Periods, Throttled uint64
}

// hiding is the share of time above which contention hides demand.
const hiding = 0.10

// Hid says that the group's use between two readings did not measure its demand. It
// waited for more than a tenth of the time, or was throttled in more than a tenth of
// its periods. Totals that went back belong to a new group, of which nothing is known.
func (t Totals) Hid(before Totals, between time.Duration) bool {
	if between <= 0 || t.Waiting < before.Waiting || t.Periods < before.Periods || t.Throttled < before.Throttled {
		return false
	}
	return t.Waited(before, between) || t.Stopped(before)
}

// Waited is the part of Hid due to contention.
func (t Totals) Waited(before Totals, between time.Duration) bool {
	return float64(t.Waiting-before.Waiting) > hiding*float64(between)
}

// Stopped is the part of Hid due to the group's own limit.
func (t Totals) Stopped(before Totals) bool {
	return t.Periods >= before.Periods && t.Throttled >= before.Throttled &&
		float64(t.Throttled-before.Throttled) > hiding*float64(t.Periods-before.Periods)
}
