package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// correct chooses which pods to evict when promises have exceeded what exists for long
// enough. Who was chosen before and is still there counts as gone already: nobody
// is evicted twice, and nobody in addition for being slow to end.
func (e *Estimator) correct(now time.Time, r Report, o *Estimate) {
	demand, exists := o.Demand, o.Exists
	for _, s := range e.seen {
		if s.batch && s.evicting {
			demand -= s.use
			exists -= s.request - s.use
		}
	}
	if demand <= exists+tiny {
		e.over = 0
		return
	}
	if e.over += r.Span; e.over < time.Duration(e.cfg.Correct.After) {
		return
	}
	for _, s := range e.victims(now) {
		if demand <= exists+tiny {
			break
		}
		// An idle pod leaves with what it lent. Where that is more than what it
		// used, its end would help nobody.
		if s.use <= s.request-s.use {
			continue
		}
		o.Evict = append(o.Evict, Eviction{Pod: s.id, Idle: s.idle, Why: e.why(s, o, demand, exists)})
		s.evicting, s.observed = true, false
		demand -= s.use
		exists -= s.request - s.use
	}
	if len(o.Evict) > 0 {
		e.over = 0
		e.hold(o)
	}
}

// victims are the batch pods that may be evicted: those that are not idle first,
// since an idle pod comes back elsewhere as one that is not known to be; in both
// groups the youngest first, since it loses least.
func (e *Estimator) victims(now time.Time) []*podState {
	var list []*podState
	for _, s := range e.seen {
		if s.batch && !s.evicting && !now.Before(s.spared) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *podState) int {
		if a.idle != b.idle {
			if a.idle {
				return 1
			}
			return -1
		}
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(b.request, a.request), strings.Compare(a.id, b.id))
	})
	return list
}

// hold keeps the place of those who go from being filled before the next sample.
func (e *Estimator) hold(o *Estimate) {
	e.ceiling = 0
	for _, s := range e.seen {
		if s.batch && !s.evicting {
			e.ceiling += s.request
		}
	}
	o.Offer = min(o.Offer, e.ceiling)
}

func (e *Estimator) why(s *podState, o *Estimate, demand, exists float64) string {
	kind := "the youngest pod that is not idle"
	if s.idle {
		kind = "the youngest idle pod; no other one is left"
	}
	return fmt.Sprintf(
		"batch pods need %.2f CPUs and %.2f exist for them (%.2f that production leaves, %.2f that idle pods do not "+
			"use) for %v: %s",
		demand, exists, max(0, o.Supply), o.Unutilised, e.over.Round(time.Second), kind)
}

// Refused says that a pod could not be evicted, for a disruption budget or because
// the API server did not answer: it counts as running again and is left alone for
// a while.
func (e *Estimator) Refused(now time.Time, id string) {
	e.Postponed(now, id, time.Duration(e.cfg.Correct.Retry))
}

// Observed says that a pod was chosen, and that nobody will ask for it: it counts as
// gone until a restart, after which somebody may.
func (e *Estimator) Observed(id string) {
	if s := e.pods[id]; s != nil {
		s.observed = s.evicting
	}
}

// Postponed says that a pod was not asked for, or that nobody knows whether the
// request arrived: it counts as running again and may be chosen again after a while.
func (e *Estimator) Postponed(now time.Time, id string, after time.Duration) {
	if s := e.pods[id]; s != nil && s.evicting {
		s.evicting = false
		s.spared = now.Add(after)
	}
}
