package config

import "github.com/quietcore/quietcore/reclaim"

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
