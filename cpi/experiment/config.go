package experiment

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config holds what may be chosen. The constants of the model stand where they are used.
type Config struct {
	Period time.Duration // of a window
	// Window is the length of a window while a test runs: Period, or a half to a sixth of it.
	Window time.Duration
	// Threshold of a verdict on the e-value: a test of an innocent reaches it with
	// probability 1/Threshold at most.
	Threshold float64
	// Budget is how many minutes an hour the innocents may be throttled for one accuser, in
	// windows in which that takes something away. 0: nobody is tested, and so nobody capped.
	Budget float64
	Starts float64 // new tests an hour and accuser
	Tests  int     // of one victim at a time
	// Enforce says that throttles are executed. Without it nobody is tested.
	Enforce bool
	// NeedWitness charges a verdict to the budget of tests, and lets it evict nobody, until a job of
	// another namespace than the accuser's confirms it, unless the suspect is of that one, too.
	NeedWitness bool
	// GivenSpecs says that the specs of SetSpec alone say what is normal.
	GivenSpecs bool

	CapBatchMilli int64 // for BE-class containers that request CPU
	CapBEMilli    int64 // for those that do not
	// EvictAfter so many caps of a job in a day its eviction is asked for, once an hour; 0:
	// never.
	EvictAfter int

	// Bounds of memory: what was not seen for longest makes room.
	MaxContainers, MaxJobs, MaxPairs int
}

// DefaultConfig is what docs/evidence/detector.md gives figures for.
func DefaultConfig() Config {
	return Config{Period: time.Minute, Window: 10 * time.Second, Threshold: 200, Budget: 5, Starts: 2, Tests: 1,
		Enforce: true, CapBatchMilli: 100, CapBEMilli: 10, MaxContainers: 4096, MaxJobs: 4096, MaxPairs: 4096}
}

// Validate returns an error for every value out of range.
func (c Config) Validate() error {
	var errs []error
	number := func(name string, v, low, high float64) {
		if !(v >= low && v <= high) {
			errs = append(errs, fmt.Errorf("%s is %v; it must lie between %v and %v", name, v, low, high))
		}
	}
	if c.Period < 10*time.Millisecond || c.Period > time.Hour {
		errs = append(errs, fmt.Errorf("the sampling period is %v; it must lie between 10ms and 1h", c.Period))
	}
	if n := c.span(); n < 1 || n > MostWindows {
		errs = append(errs, fmt.Errorf("the window of a test is %v; it must lie between %v, a %d. of the sampling "+
			"period, and that period, %v", c.Window, c.Period/MostWindows, MostWindows, c.Period))
	}
	number("the threshold of a verdict", c.Threshold, 20, 1e6)
	number("the budget of probes", c.Budget, 0, 60)
	number("new tests an hour", c.Starts, 0, 60)
	number("tests at a time", float64(c.Tests), 1, 16)
	number("the cap of batch containers", float64(c.CapBatchMilli), 1, 1e6)
	number("the cap of best-effort containers", float64(c.CapBEMilli), 1, 1e6)
	number("caps before an eviction", float64(c.EvictAfter), 0, 1e6)
	number("containers", float64(c.MaxContainers), 1, 1<<20)
	number("jobs", float64(c.MaxJobs), 1, 1<<20)
	number("pairs", float64(c.MaxPairs), 1, 1<<20)
	return errors.Join(errs...)
}

// MostWindows of a test are in a period.
const MostWindows = 6

// span is how many windows of a test are in a period.
func (c *Config) span() int {
	if c.Window <= 0 {
		return 0
	}
	return int(math.Round(float64(c.Period) / float64(c.Window)))
}
