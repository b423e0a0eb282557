package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// correct chooses pods to evict when what batch pods are known to need has exceeded what
// exists for long enough. What is unknown evicts no pod: a pod of which too little was seen
// needs what it was seen to use, and supply leaves to production what production is known to
// need. A pod that was chosen earlier and still runs counts as gone: no pod is evicted twice,
// and none is evicted because another terminates slowly. Of one that was chosen before a restart
// it is not known whether the request was made: it counts as gone for as long as a refused one
// is left alone.
func (e *Estimator) correct(now time.Time, span time.Duration, supply float64) {
	o := &e.out
	demand, exists := 0.0, max(0, supply)
	for _, s := range e.seen {
		if s.evicting && !s.retryAfter.IsZero() && !now.Before(s.retryAfter) {
			s.evicting = false
		}
		judged := s.observed && now.Before(s.retryAfter) // and is not told of again so soon
		if s.batch && !s.evicting && !judged {
			demand += s.needs
			exists += s.lends
		}
	}
	if demand <= exists+tiny {
		e.overcommittedFor = 0
		return
	}
	if e.overcommittedFor += span; e.overcommittedFor < time.Duration(e.cfg.Correct.After) {
		return
	}
	for _, s := range e.victims(now) {
		if demand <= exists+tiny {
			break
		}
		o.Evict = append(o.Evict, Eviction{Pod: s.id, Idle: s.idle, Why: e.why(s, supply, demand, exists)})
		s.evicting, s.observed, s.retryAfter = true, false, time.Time{}
		demand -= s.needs
		exists -= s.lends
	}
	if len(o.Evict) > 0 {
		e.overcommittedFor = 0
		e.capOffer(o)
	}
}

// victims orders the batch pods that may be evicted. What an idle pod lends ends with it: if that
// exceeds what it uses, evicting it would not help. Nor would it help to evict a pod that was not
// seen to use anything. Pods that are known not to be idle come first, since an evicted idle pod
// restarts elsewhere without a history. Then come those of which too little was seen, busier ones
// first. Within each group the youngest comes first, since it loses least.
func (e *Estimator) victims(now time.Time) []*podState {
	var list []*podState
	for _, s := range e.seen {
		if s.batch && !s.evicting && !now.Before(s.retryAfter) && s.needs > s.lends {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *podState) int {
		return cmp.Or(cmp.Compare(e.quiet(a), e.quiet(b)), b.created.Compare(a.created),
			cmp.Compare(b.request, a.request), strings.Compare(a.id, b.id))
	})
	return list
}

// quiet is 0 for a pod that is known not to be idle, 2 for an idle one, and between them the
// share of its samples that are below the threshold.
func (e *Estimator) quiet(s *podState) float64 {
	switch {
	case s.busy:
		return 0
	case s.idle:
		return 2
	}
	return float64(s.w.below(e.cfg.Idle.Threshold/100*s.request)) / float64(s.w.count())
}

// capOffer keeps the places of evicted pods from being filled before the next sample.
func (e *Estimator) capOffer(o *Estimate) {
	e.ceiling = 0
	for _, s := range e.seen {
		if s.batch && !s.evicting {
			e.ceiling += s.request
		}
	}
	o.Offer = min(o.Offer, e.ceiling)
}

func (e *Estimator) why(s *podState, supply, demand, exists float64) string {
	kind := "the youngest pod that is not idle"
	switch {
	case s.idle:
		kind = "the youngest idle pod; no other one is left"
	case !s.busy:
		kind = "the busiest pod that is not yet known to be idle or not"
	}
	return fmt.Sprintf(
		"batch pods need %.2f CPUs and %.2f exist for them (%.2f that production leaves, %.2f that idle pods do not "+
			"use) for %v: %s",
		demand, exists, max(0, supply), e.out.Unutilised, e.overcommittedFor.Round(time.Second), kind)
}

// Refused says that a pod's eviction failed, because of a disruption budget or because
// the API server did not answer. The pod counts as running again and is not chosen
// again for a while.
func (e *Estimator) Refused(now time.Time, id string) {
	e.Postponed(now, id, time.Duration(e.cfg.Correct.Retry))
}

// Observed says that a pod was chosen but its eviction will not be requested. The pod counts as
// running, and is judged again after a while.
func (e *Estimator) Observed(now time.Time, id string) {
	if s := e.pods[id]; s != nil && s.evicting {
		s.observed = true
		e.Refused(now, id)
	}
}

// Postponed says that an eviction was not requested, or that it is unknown whether the
// request arrived. The pod counts as running again and may be chosen again after a
// while.
func (e *Estimator) Postponed(now time.Time, id string, after time.Duration) {
	if s := e.pods[id]; s != nil && s.evicting {
		s.evicting = false
		s.retryAfter = now.Add(after)
	}
}
