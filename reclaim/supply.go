package reclaim

import "time"

// supply is a number of CPUs that falls at once and rises late: by at least a step, at
// most to the minimum during the hold, and by at most a maximum.
type supply struct {
	known     bool
	published float64
	rising    bool
	low       float64 // the least since it began to rise
	held      time.Duration
}

// rise bounds how a supply rises.
type rise struct {
	step, most float64
	capOffer   time.Duration
}

// step takes what exists now, measured over the time covered.
func (s *supply) step(exists float64, covered time.Duration, c rise) float64 {
	switch {
	case exists <= s.published:
		s.published, s.known, s.rising = exists, true, false
		return s.published
	case s.known && exists-s.published < c.step-tiny:
		s.rising = false
		return s.published
	}
	if !s.rising {
		s.rising, s.low, s.held = true, exists, 0
	}
	s.low = min(s.low, exists)
	if s.held += covered; covered > 0 && s.held >= c.capOffer {
		s.published, s.known, s.rising = min(s.low, s.published+c.most), true, false
	}
	return s.published
}
