package page

import (
	"math"
	"time"
)

// CPUTime is how long a CPU was busy, and of how long, since it was switched on. Only differences matter. A Total of 0
// is not known.
type CPUTime struct{ Busy, Total float64 }

const (
	// loadEvery is how often the load is read while there are readers: every second look.
	loadEvery = 3 * lookEvery / 2
	// loadStale is from when on an old reading says nothing about now.
	loadStale = 10 * lookEvery
)

// loadPart is the load of each CPU, by its number, in percent of the time between the last two readings; -1: not known.
type loadPart struct {
	Busy []int `json:"busy"`
}

// loadMeter makes loads of what CPUs have done so far.
type loadMeter struct {
	at    time.Time
	times []CPUTime
}

// wants says whether a reading is due. One is after the clock was set back.
func (m *loadMeter) wants(now time.Time) bool {
	age := now.Sub(m.at)
	return age >= loadEvery || age < 0
}

// read takes a reading, and returns the load since the one before it. It is empty after the first.
func (m *loadMeter) read(now time.Time, times []CPUTime) loadPart {
	out := loadPart{Busy: []int{}}
	if age := now.Sub(m.at); age >= 0 && age < loadStale {
		for cpu, t := range times {
			busy := -1
			if cpu < len(m.times) {
				busy = percent(m.times[cpu], t)
			}
			out.Busy = append(out.Busy, busy)
		}
	}
	m.at, m.times = now, times
	return out
}

// percent is -1 where one of the two is not known. The kernel's sums of idle time go back now and then.
func percent(from, to CPUTime) int {
	passed := to.Total - from.Total
	if from.Total <= 0 || !(passed > 0) {
		return -1
	}
	return int(math.Round(100 * min(max((to.Busy-from.Busy)/passed, 0), 1)))
}
