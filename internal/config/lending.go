package config

import (
	"fmt"

	"github.com/quietcore/quietcore/reclaim"
)

func (r Reclaim) with(c reclaim.Config) Reclaim {
	r.From, r.Reserve, r.Risk, r.Horizon = c.From, c.Reserve, c.Risk, c.Horizon
	r.Idle, r.Raise, r.Correct = c.Idle, c.Raise, c.Correct
	return r
}

// Estimation is what the estimator is to do.
func (r *Reclaim) Estimation() reclaim.Config {
	return reclaim.Config{From: r.From, Reserve: r.Reserve, Risk: r.Risk, Horizon: r.Horizon, Idle: r.Idle,
		Raise: r.Raise, Correct: r.Correct}
}

// Former has a sentence on each key of earlier versions that is set, which the next version
// refuses.
func (r *Reclaim) Former() []string {
	d := reclaim.Default()
	var list []string
	for _, f := range []struct {
		set  bool
		text string
	}{
		{r.Predictor != "", "predictor has no effect any more: reclaim.risk and reclaim.horizon say how much is lent"},
		{!r.Idle.IsZero(), fmt.Sprintf("idle goes with the next version, in which a batch pod is idle if %v %% of "+
			"its samples of %s in %s are below %v %% of its request", d.Idle.Percentile, Duration(d.Idle.Sample),
			Duration(d.Idle.Window), d.Idle.Threshold)},
		{!r.Raise.IsZero(), fmt.Sprintf("raise goes with the next version, in which an offer rises by %v CPU or more "+
			"after %s", d.Raise.Step, Duration(d.Raise.Hold))},
		{!r.Correct.IsZero(), fmt.Sprintf("correct goes with the next version, in which promises exceed what exists "+
			"for %s before a pod is evicted, and one whose eviction was refused is left alone for %s",
			Duration(d.Correct.After), Duration(d.Correct.Retry))},
	} {
		if f.set {
			list = append(list, "reclaim."+f.text+"; remove the key")
		}
	}
	return list
}

func suppressOf(c reclaim.Suppress) Suppress {
	return Suppress{Mode: SwitchOff, Threshold: c.Threshold, Floor: c.Floor, Hold: c.Hold, Grow: c.Grow}
}

// Suppression is what the suppressor is to do.
func (s *Suppress) Suppression() reclaim.Suppress {
	return reclaim.Suppress{Threshold: s.Threshold, Floor: s.Floor, Hold: s.Hold, Grow: s.Grow}
}

// lending checks what the pure package knows how to.
func (v *checker) lending(c *Config) {
	for _, err := range []error{c.Reclaim.Estimation().Validate(), c.Suppress.Suppression().Validate()} {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			v.errs = append(v.errs, several.Unwrap()...)
		}
	}
}
