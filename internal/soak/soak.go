// Package soak judges whether a daemon holds more and more of something while pods come and go: what it holds is
// measured each time its node is empty, and may not grow with the pods that have been.
//
// Example: a daemon that forgets to close one file every twenty pods holds 10 descriptors after 20 pods and 60 after
// 1,020. The slope is 0.05 a pod, and 50 more than at first are an error where 2 are allowed.
//
// For tests alone.
package soak

import (
	"fmt"
	"slices"
)

// Least is how many rests tell a slope.
const Least = 24

// Series is what a daemon held of something at each rest.
type Series struct {
	What string
	More float64 // by which it may grow over all rests: what is bounded comes and goes
	held []float64
}

// Add is what it holds at the next rest.
func (s *Series) Add(n float64) { s.held = append(s.held, n) }

// String is what it held last.
func (s *Series) String() string {
	if len(s.held) == 0 {
		return "nothing known of " + s.What
	}
	return fmt.Sprintf("%.0f %s", s.held[len(s.held)-1], s.What)
}

// Trend is how a series went.
type Trend struct {
	First float64 // what was held when the caches were full
	Last  float64
	Slope float64 // by pod
	Rise  float64 // by the slope, over all pods
	Seen  float64 // the least slope that would have been an error
}

func (t *Trend) String() string {
	return fmt.Sprintf("%.0f at first, %.0f in the end, slope %.3g a pod; more than %.3g is an error", t.First, t.Last,
		t.Slope, t.Seen)
}

// Judge is an error if the series grows, or if nobody could tell. pods is how many had been at each rest.
func (s *Series) Judge(pods []float64) (*Trend, error) {
	if len(pods) != len(s.held) || len(pods) < Least {
		return nil, fmt.Errorf("%d measurements of %s at %d rests: want %d of both at least to tell a slope",
			len(s.held), s.What, len(pods), Least)
	}
	from := len(pods) / 5
	t := &Trend{First: s.held[from], Last: s.held[len(s.held)-1], Slope: slope(pods[from:], s.held[from:])}
	all := pods[len(pods)-1] - pods[0]
	if !(all > 0) {
		return nil, fmt.Errorf("%d rests without a pod between the first and the last", len(pods))
	}
	t.Rise, t.Seen = t.Slope*all, s.More/all
	if t.Rise > s.More {
		return t, fmt.Errorf("%s grow by %.0f in all, %.0f at first; %.0f more are allowed", s.What, t.Rise, t.First,
			s.More)
	}
	return t, nil
}

// slope is the median of the slopes between any two of at most 200 points (Theil, Sen): single measurements that are
// far off do not count. The caller leaves out the first fifth, in which caches fill.
func slope(x, y []float64) float64 {
	step := max(len(x)/200, 1)
	var all []float64
	for i := 0; i < len(x); i += step {
		for j := i + step; j < len(x); j += step {
			if x[j] > x[i] {
				all = append(all, (y[j]-y[i])/(x[j]-x[i]))
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
