package reclaim

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// From says what the supply is measured against.
type From string

// UnmarshalText accepts the known values only.
func (f *From) UnmarshalText(text []byte) error {
	switch v := From(text); v {
	case FromSlack, FromUsage:
		*f = v
		return nil
	}
	return fmt.Errorf("is %.60q, must be %s or %s", text, FromSlack, FromUsage)
}

const (
	FromSlack From = "slack" // production's requests
	FromUsage From = "usage" // the peak that production is expected to use
)

// Config is the key `reclaim` of the configuration file, without what needs a node:
// mode and eviction.
type Config struct {
	From    From    `json:"from"`
	Reserve float64 `json:"reserve"` // CPUs that are never lent
	// Risk is the share of time, in percent, in which production may use more than was
	// foreseen within the next Horizon; see Forecast.
	Risk    float64  `json:"risk"`
	Horizon Duration `json:"horizon"`
	// What follows is no operator's to set: Default has it. Tests and evaluations have others.
	Idle    Idle    `json:"idle"`
	Raise   Raise   `json:"raise"`
	Correct Correct `json:"correct"`
}

// Idle is the rule: a batch pod is idle if Percentile % of its samples over Window are
// below Threshold % of its request. An idle pod counts with the UsePercentile of its
// use.
type Idle struct {
	Percentile    float64  `json:"percentile"`
	Window        Duration `json:"window"`
	Threshold     float64  `json:"threshold"`
	UsePercentile float64  `json:"usePercentile"`
	// Sample is the length over which use is averaged to one sample.
	Sample Duration `json:"sample"`
}

// Raise delays a rising offer: it rises by at least Step CPUs, after Hold.
type Raise struct {
	Step float64  `json:"step"`
	Hold Duration `json:"hold"`
}

// Correct says how long promises must exceed what exists before a pod is evicted, and
// after how long a refused eviction may be retried.
type Correct struct {
	After Duration `json:"after"`
	Retry Duration `json:"retry"`
}

// IsZero says that nothing was set: all is as Default has it. So it is with Raise and Correct.
func (i Idle) IsZero() bool { return i == Default().Idle }

func (r Raise) IsZero() bool { return r == Default().Raise }

func (c Correct) IsZero() bool { return c == Default().Correct }

// Default is the best configuration on recorded data (docs/evidence/lending.md).
func Default() Config {
	return Config{
		From: FromSlack,
		Idle: Idle{Percentile: 95, Window: Duration(24 * time.Hour), Threshold: 10, UsePercentile: 99,
			Sample: Duration(5 * time.Minute)},
		Risk: 1, Horizon: Duration(15 * time.Minute),
		Raise:   Raise{Step: 1, Hold: Duration(time.Minute)},
		Correct: Correct{After: Duration(30 * time.Second), Retry: Duration(5 * time.Minute)},
	}
}

// maxCells bounds a window's memory.
const maxCells = 1 << 16

// Validate returns an error for every value out of range.
func (c Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("reclaim.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.From != FromSlack && c.From != FromUsage {
		fail("from", "is %q, must be %q or %q", c.From, FromSlack, FromUsage)
	}
	if !amount(c.Reserve) {
		fail("reserve", "is %v CPUs, must be 0 or more", c.Reserve)
	}
	percent := func(key string, v, lowest float64) {
		if !(v >= lowest && v <= 100) {
			fail(key, "is %v, must be %v to 100 percent", v, lowest)
		}
	}
	percent("idle.percentile", c.Idle.Percentile, 50)
	percent("idle.threshold", c.Idle.Threshold, 0)
	percent("idle.usePercentile", c.Idle.UsePercentile, 50)
	window, sample := time.Duration(c.Idle.Window), time.Duration(c.Idle.Sample)
	if sample < time.Millisecond {
		fail("idle.sample", "is %v, must be 1ms or more", sample)
	} else if cells := window / sample; cells < 2 || cells > maxCells {
		fail("idle.window", "is %v, must be 2 to %d times idle.sample, which is %v", window, maxCells, sample)
	}
	if !(c.Risk >= 0.01 && c.Risk <= 50) {
		fail("risk", "is %v, must be 0.01 to 50 percent", c.Risk)
	}
	if h := time.Duration(c.Horizon); h < time.Minute || h > 24*time.Hour {
		fail("horizon", "is %v, must be 1m to 24h", h)
	}
	if !amount(c.Raise.Step) {
		fail("raise.step", "is %v CPUs, must be 0 or more", c.Raise.Step)
	}
	for _, v := range []struct {
		key string
		d   Duration
	}{{"raise.hold", c.Raise.Hold}, {"correct.after", c.Correct.After}, {"correct.retry", c.Correct.Retry}} {
		if v.d < 0 {
			fail(v.key, "is %v, must be 0 or more", time.Duration(v.d))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) newForecast() *Forecast {
	return NewForecast(c.Risk/100, time.Duration(c.Horizon), DefaultTuning())
}

// amount says that v is a plausible number of CPUs.
func amount(v float64) bool { return v >= 0 && v <= math.MaxInt32 }

// Duration is a time.Duration that is written as 90s or 24h.
type Duration time.Duration

// MarshalText writes 24h where time.Duration writes 24h0m0s.
func (d Duration) MarshalText() ([]byte, error) {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return []byte(text), nil
}

func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("is %.60q, must be a duration such as 90s, 5m or 24h", text)
	}
	*d = Duration(v)
	return nil
}
