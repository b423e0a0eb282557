package detect

import (
	"errors"
	"fmt"
	"time"
)

// Mode selects the rules.
type Mode uint8

const (
	// Contrast judges in log space, by usage band, and demands contrast, not only
	// coincidence.
	Contrast Mode = iota
	// Classic is the paper: mean + 2σ, its score, its 0.35.
	Classic
)

func (m Mode) String() string {
	if m == Classic {
		return "classic"
	}
	return "contrast"
}

// Config holds every threshold. DefaultConfig uses the paper's value where it has one.
type Config struct {
	Mode   Mode
	Period time.Duration // between samples of a container

	MinUsage       float64       // CPU-seconds per second; below it a CPI is ignored
	Sigmas         float64       // Classic: an outlier is above mean + Sigmas·σ
	RobustSigmas   float64       // Contrast: the same in log space, from quantiles
	Outliers       int           // this many outliers ...
	OutlierWindow  time.Duration // ... within this are an anomaly
	Window         time.Duration // of the paper's correlation
	History        time.Duration // of the contrast and correlation of Contrast mode
	MinPairs       int           // fewer aligned samples: no verdict
	MinScore       float64
	MinConfidence  float64       // Contrast: least probability that this suspect, not another or none, is to blame
	AnalysisPause  time.Duration // between analyses
	MinTasks       int           // a spec needs this many tasks ...
	MinTaskSamples int           // ... with this many samples each
	AgeWeight      float64       // of yesterday's samples
	RespecEvery    time.Duration
	// GivenSpecs disables learning: only specs of SetSpec judge.
	GivenSpecs bool

	// Enforce says that commands are executed. Without it verdicts are only reported,
	// and nothing is verified.
	Enforce       bool
	CapBatchMilli int64 // for BE-class containers that request CPU
	CapBEMilli    int64 // for those that do not
	CapFor        time.Duration
	MoveFor       time.Duration // how long a move that helped lasts
	// EvictAfter requests an eviction instead of the (n+1)th cap in a day; 0: never.
	EvictAfter int
	// MaxContainers and MaxJobs bound memory; the least recently seen job is dropped
	// first.
	MaxContainers int
	MaxJobs       int
}

// DefaultConfig is the paper's table 2 where the paper has a value.
func DefaultConfig() Config {
	return Config{
		Period:         time.Minute,
		MinUsage:       0.25,
		Sigmas:         2,
		RobustSigmas:   2.25,
		Outliers:       3,
		OutlierWindow:  5 * time.Minute,
		Window:         10 * time.Minute,
		History:        time.Hour,
		MinPairs:       6,
		MinScore:       0.35,
		MinConfidence:  0.97,
		AnalysisPause:  time.Second,
		MinTasks:       5,
		MinTaskSamples: 100,
		AgeWeight:      0.9,
		RespecEvery:    time.Hour,
		CapBatchMilli:  100,
		CapBEMilli:     10,
		CapFor:         5 * time.Minute,
		MoveFor:        30 * time.Minute,
		MaxContainers:  4096,
		MaxJobs:        4096,
	}
}

// maxRing bounds a container's window.
const maxRing = 4096

// RangeError says that a value of a Config is out of range. Value, Low and High are all
// float64 or all time.Duration.
type RangeError struct {
	Field            string // of Config
	name             string
	Value, Low, High any
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("%s is %v; it must lie between %v and %v", e.name, e.Value, e.Low, e.High)
}

// Validate returns an error for every value out of range.
func (c Config) Validate() error {
	var errs []error
	number := func(field, name string, v, low, high float64) {
		if !(v >= low && v <= high) {
			errs = append(errs, &RangeError{field, name, v, low, high})
		}
	}
	span := func(field, name string, v, low, high time.Duration) {
		if v < low || v > high {
			errs = append(errs, &RangeError{field, name, v, low, high})
		}
	}
	span("Period", "the sampling period", c.Period, 10*time.Millisecond, time.Hour)
	number("MinUsage", "the minimum usage", c.MinUsage, 0, 1000)
	number("Sigmas", "sigmas", c.Sigmas, 0.5, 20)
	number("RobustSigmas", "robust sigmas", c.RobustSigmas, 0.5, 20)
	number("Outliers", "outliers", float64(c.Outliers), 1, 100)
	span("OutlierWindow", "the outlier window", c.OutlierWindow, c.Period, 24*time.Hour)
	span("Window", "the correlation window", c.Window, c.Period, 24*time.Hour)
	span("History", "the history", c.History, c.Window, 24*time.Hour)
	number("MinPairs", "the least number of pairs", float64(c.MinPairs), 1, 1000)
	number("MinScore", "the least score", c.MinScore, 0, 1)
	number("MinConfidence", "the least confidence", c.MinConfidence, 0, 1)
	span("AnalysisPause", "the pause between analyses", c.AnalysisPause, 0, time.Hour)
	number("MinTasks", "the least number of tasks", float64(c.MinTasks), 1, 1e6)
	number("MinTaskSamples", "the least number of samples a task", float64(c.MinTaskSamples), 1, 1e6)
	number("AgeWeight", "the age weight", c.AgeWeight, 0, 1)
	span("RespecEvery", "the time between specs", c.RespecEvery, c.Period, 7*24*time.Hour)
	number("CapBatchMilli", "the cap of batch containers", float64(c.CapBatchMilli), 1, 1e6)
	number("CapBEMilli", "the cap of best-effort containers", float64(c.CapBEMilli), 1, 1e6)
	span("CapFor", "the cap's time", c.CapFor, c.Period, 24*time.Hour)
	span("MoveFor", "the pool move's time", c.MoveFor, c.CapFor, 24*time.Hour)
	number("EvictAfter", "caps before eviction", float64(c.EvictAfter), 0, 1e6)
	number("MaxContainers", "containers", float64(c.MaxContainers), 1, 1<<20)
	number("MaxJobs", "jobs", float64(c.MaxJobs), 1, 1<<20)
	if len(errs) == 0 && c.ringSize() > maxRing {
		errs = append(errs,
			fmt.Errorf("a correlation window of %v holds %d samples at one every %v; at most %d are kept", c.Window,
				c.ringSize(), c.Period, maxRing))
	}
	return errors.Join(errs...)
}

// ringSize is how many samples a container keeps: all of the paper's window, and as
// much of the history as historySamples allows.
func (c Config) ringSize() int {
	need := int(c.Window/c.Period) + 4
	return max(need, min(historySamples, int(c.History/c.Period)+4))
}

const historySamples = 64
