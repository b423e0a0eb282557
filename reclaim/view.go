package reclaim

import (
	"fmt"
	"time"
)

// View is what an estimator knows of one pod, for people.
type View struct {
	Batch    bool
	Idle     bool
	Busy     bool // known not to be idle; neither: not known yet, and it lends nothing
	Evicting bool // chosen, but still running
	Request  float64
	Use      float64 // what a batch pod counts with: its request, or its percentile while idle
	// Samples counts those in the window, Below those below the threshold.
	Samples, Below int
	// Unseen counts the samples that a restart hid; they count as not below.
	Unseen  int
	Covered bool // the window is full
	// Conversion says what it cost that the configuration was changed; empty: nothing.
	Conversion string
	rule       Idle
}

// View returns what is known of a pod; false if it is in no report.
func (e *Estimator) View(id string) (View, bool) {
	s := e.pods[id]
	if s == nil || s.round != e.round {
		return View{}, false
	}
	v := View{Batch: s.batch, Idle: s.idle, Busy: s.busy, Evicting: s.evicting, Request: s.request, Use: s.use,
		rule: e.cfg.Idle}
	if e.now()-e.resumed < e.span.length {
		v.Conversion = e.conversion
	}
	if !s.batch {
		return v, true
	}
	threshold := e.cfg.Idle.Threshold / 100 * s.request
	h := s.w.hole(e.unseen)
	v.Samples, v.Below, v.Unseen = s.w.count()+h.missing, max(s.w.below(threshold)-h.doubtful, 0), h.missing+h.doubtful
	v.Covered = s.w.full(e.now(), len(e.observed), e.span)
	return v, true
}

// Why explains in one sentence how the pod counts.
func (v View) Why() string {
	if v.Conversion != "" {
		v, cost := v, v.Conversion
		v.Conversion = ""
		return v.Why() + "; " + cost
	}
	if !v.Batch {
		return fmt.Sprintf("a production pod; its %.2f CPUs are left to it", v.Request)
	}
	verdict := "not known to be idle"
	switch {
	case v.Idle:
		verdict = "idle"
	case v.Busy:
		verdict = "not idle"
	}
	sentence := fmt.Sprintf(
		"%s: %d of %d samples of the last %v are below %.2f CPUs, %v %% of its request; it takes %v %%", verdict,
		v.Below, v.Samples, time.Duration(v.rule.Window), v.rule.Threshold/100*v.Request, v.rule.Threshold,
		v.rule.Percentile)
	switch {
	case v.Evicting:
		sentence += "; it is being evicted"
	case !v.Covered:
		sentence += " of a window that is full, which this one is not yet"
	case v.Idle:
		sentence += fmt.Sprintf("; it counts with %.2f CPUs and lends %.2f", v.Use, v.Request-v.Use)
	}
	if v.Unseen > 0 {
		sentence += fmt.Sprintf("; of the samples %d were not seen in full because of a restart, and count as above",
			v.Unseen)
	}
	return sentence
}
