package main

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
)

// record is what was measured.
type record struct {
	begun  int // the window in which the antagonist began; 0: it has not
	with   int // windows with a CPI of the victim ...
	lacked int // ... and those without
	now    moment
	share  mean // of the victim's time in which its CPI was counted
	caps   []capping
	alone  mean // the victim's CPI while the antagonist stood still,
	hurt   mean // ran freely,
	helped mean // and was capped
}

// moment is one window.
type moment struct {
	window    int
	cpi       float64 // the victim's; 0: none
	used      float64 // by the antagonist, in CPUs
	why       string  // why there is no CPI
	capped    bool
	innocents float64
}

// capping is one cap and its outcome.
type capping struct {
	target, why, result string
	window              int
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum += v; m.n++ }

func (m *mean) String() string {
	if m.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f (%d windows)", m.sum/float64(m.n), m.n)
}

// busy is the least usage, in CPUs, of an antagonist that runs.
const busy = 0.25

func (s *record) window(n int, w *sampler.Window) {
	s.now = moment{window: n, capped: s.inForce()}
	for i := range w.Containers {
		c := &w.Containers[i]
		switch {
		case c.Dropped != sample.None:
			if c.ID == victim {
				s.now.why = c.Dropped.Sentence()
			}
		case c.ID == victim && c.NoCPI == sample.None:
			s.now.cpi = c.CPI
			s.share.add(c.Counted)
		case c.ID == victim:
			s.now.why = c.NoCPI.Sentence()
		case c.ID == antagonist:
			s.now.used = c.Usage
		case c.ID == innocent:
			s.now.innocents = c.Usage
		}
	}
	if s.now.cpi == 0 {
		s.lacked++
		return
	}
	s.with++
	switch {
	case s.now.capped:
		s.helped.add(s.now.cpi)
	case s.now.used >= busy:
		s.hurt.add(s.now.cpi)
	default:
		s.alone.add(s.now.cpi)
	}
}

// mostLearning is how many times as many windows learning may take, beside other users of the PMU.
const mostLearning = 4

// since is how many windows ago the antagonist began: when the victim's CPI was known in enough of
// them. Negative: it has not.
func (s *record) since(windows, learn int) int {
	if s.begun == 0 && (s.with >= learn || windows >= mostLearning*learn) {
		s.begun = windows
	}
	if s.begun == 0 {
		return -1
	}
	return windows - s.begun
}

func (s *record) line() string {
	m := &s.now
	state := "rests"
	switch {
	case m.capped:
		state = "capped"
	case m.used >= busy:
		state = "runs"
	}
	cpi := fmt.Sprintf("CPI %6.3f", m.cpi)
	if m.cpi == 0 {
		cpi = "no CPI: " + m.why
	}
	return fmt.Sprintf("%4d  victim %s  antagonist %5.2f CPUs, %s  innocent %4.2f CPUs", m.window, cpi, m.used, state,
		m.innocents)
}

func (s *record) capped(target, why string) {
	s.caps = append(s.caps, capping{target: target, why: why, window: s.now.window})
}

func (s *record) ended(target, result string) {
	for i := range s.caps {
		if c := &s.caps[i]; c.target == target && c.result == "" {
			c.result = result
		}
	}
}

// inForce says that the antagonist is capped.
func (s *record) inForce() bool {
	for i := range s.caps {
		if c := &s.caps[i]; c.target == antagonist && c.result == "" {
			return true
		}
	}
	return false
}

// over says that a cap of the antagonist has ended.
func (s *record) over() bool {
	for i := range s.caps {
		if c := &s.caps[i]; c.target == antagonist && c.result != "" {
			return true
		}
	}
	return false
}

// found says that the antagonist alone was capped, and that it helped.
func (s *record) found() bool {
	helped := false
	for i := range s.caps {
		c := &s.caps[i]
		if c.target != antagonist {
			return false
		}
		helped = helped || c.result == "success" || c.result == "partial"
	}
	return helped
}

func (s *record) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nvictim's CPI while the antagonist rested: %s\n", &s.alone)
	fmt.Fprintf(&b, "                          ran freely: %s\n", &s.hurt)
	fmt.Fprintf(&b, "                          was capped: %s\n", &s.helped)
	fmt.Fprintf(&b, "windows with a CPI: %d of %d; of the victim's time in them counted: %s\n", s.with, s.with+s.lacked,
		&s.share)
	for _, c := range s.caps {
		fmt.Fprintf(&b, "window %d: %s was capped, outcome %q: %s\n", c.window, c.target, c.result, c.why)
	}
	switch {
	case s.found():
		fmt.Fprintf(&b, "the antagonist was found, %d windows after it began\n", s.caps[0].window-s.begun)
	case len(s.caps) == 0 && s.hurt.n > 0 && s.alone.n > 0 &&
		s.hurt.sum/float64(s.hurt.n) < 1.2*s.alone.sum/float64(s.alone.n):
		b.WriteString("no cap: the antagonist hardly hurt; more -threads may\n")
	default:
		b.WriteString("the antagonist was not found, or capping it did not help\n")
	}
	return b.String()
}
