package loop

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// Outcome is the result of requesting an eviction.
type Outcome int

const (
	Going Outcome = iota // the pod is terminating or gone
	Stays                // the eviction was refused: the pod counts again, and others are next
	Later                // no request was made, or no answer came: retry after a while
	Ended                // the daemon is shutting down
)

// Answer is an Outcome with its details.
type Answer struct {
	Outcome Outcome
	After   time.Duration // of Later
	Before  bool          // of Going: the pod was terminating already
	// Observed, of Going: no request was made, the eviction was only reported.
	Observed bool
	Err      error // why not; nil if the Outcome is Going
}

// answered is an Answer about a pod.
type answered struct {
	pod policy.PodView
	why string
	Answer
}

// evict requests evictions one after the other, in their order, without waiting: if a
// rate limit allows only some, it must be the first. Until the answer arrives the
// estimator counts a pod as gone, so that no other is evicted in its place.
func (l *Loop) evict(ctx context.Context, evictions []reclaim.Eviction) {
	var requests []func()
	for _, eviction := range evictions {
		if l.o.Evict == nil { // suppression only
			l.o.Estimator.Refused(l.o.Clock.Now(), eviction.Pod)
			continue
		}
		at := slices.IndexFunc(l.pods, func(p policy.PodView) bool { return p.UID == eviction.Pod })
		if at < 0 {
			continue
		}
		pod := l.pods[at]
		requests = append(requests, func() {
			a := answered{pod: pod, why: eviction.Why, Answer: l.o.Evict(ctx, pod, eviction.Why)}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.answers = append(l.answers, a)
		})
	}
	if len(requests) > 0 {
		l.background.Go(func() {
			for _, request := range requests {
				request()
			}
		})
	}
}

// settle processes the answers to eviction requests.
func (l *Loop) settle(now time.Time, s *Status) {
	l.mu.Lock()
	answers := l.answers
	l.answers = nil
	l.mu.Unlock()
	for _, a := range answers {
		switch a.Outcome {
		case Going:
			if a.Before {
				continue
			}
			l.evicted++
			if a.Observed {
				l.o.Estimator.Observed(now, a.pod.UID)
			} else {
				s.Evictions++
			}
			one := Taken{At: now, Observed: a.Observed, Pod: a.pod.Namespace + "/" + a.pod.Name, What: "evicted",
				Why: a.why}
			s.Evicted = slices.Concat([]Taken{one}, s.Evicted[:min(len(s.Evicted), maxEvicted-1)])
		case Stays:
			s.Refusals++
			l.o.Estimator.Refused(now, a.pod.UID)
		case Later, Ended:
			l.o.Estimator.Postponed(now, a.pod.UID, a.After)
		}
		if a.Err != nil && a.Outcome != Ended {
			l.warnOnce(a.Err)
		}
	}
}

// recordNarrowed records that best effort has fewer CPUs than before.
func (l *Loop) recordNarrowed(s *Status, was, whole cpuset.Set) {
	now := s.Suppressed
	if now.IsEmpty() {
		now = whole
	}
	if was.IsEmpty() {
		was = whole
	}
	why := l.whyNarrowed(s)
	if now.Count() < was.Count() {
		s.Narrowed = Taken{At: s.At, What: fmt.Sprintf("%d of %d CPUs are left, were %d", now.Count(), whole.Count(),
			was.Count()), Why: why}
	}
	if now.Count() >= whole.Count() || s.Budget.CPUs > s.Budget.Floor {
		l.squeezed = time.Time{}
		return
	}
	if l.squeezed.IsZero() {
		l.squeezed = s.At
	}
	if s.At.Sub(l.squeezed) >= squeezedFor {
		l.notify(s.At, policy.Notice{Reason: "BestEffortSqueezed",
			Message: fmt.Sprintf("best effort has been at its floor of %d CPUs for %s: %s", now.Count(), squeezedFor,
				why)})
	}
}

// recordLimited records that best effort's quota was reduced.
func (l *Loop) recordLimited(s *Status, was int64) {
	if now := s.QuotaMilli; now > 0 && (was == 0 || now < was) {
		s.Narrowed = Taken{At: s.At, What: fmt.Sprintf(
			"%.2f CPUs are left as a quota, since every core has an owner that best effort keeps off",
			float64(now)/1000), Why: l.whyNarrowed(s)}
	}
}

func (l *Loop) whyNarrowed(s *Status) string {
	switch {
	case s.Budget.Blind:
		return "what the node uses cannot be read, so it counts as in use"
	case !s.Known:
		return "what the node uses could not be read this time"
	}
	shared := ""
	if s.Owned > 0 {
		shared = fmt.Sprintf(", %.2f of the %.0f without an owner,", s.OnShared, s.Capacity-float64(s.Owned))
	}
	return fmt.Sprintf(
		"production uses %.2f of %.0f CPUs%s and %.2f are used outside of pods; together with best effort it may be "+
			"%v %% of the node",
		s.Production, s.Capacity, shared, s.Outside, l.o.Suppression.Threshold)
}

// halt ends the growth of what is lent where lending does harm on this node.
func (l *Loop) halt(s *Status, span time.Duration) {
	if l.o.Estimator == nil {
		return
	}
	was := s.Halted
	s.Halted = l.brake.Step(span, l.evicted, !l.squeezed.IsZero())
	l.evicted = 0
	if s.Halted != "" && was == "" {
		l.notify(s.At, policy.Notice{Reason: "LendingHalted",
			Message: "no more CPUs are lent than batch pods were promised, until it was better for a day: " + s.Halted})
	}
}

// recordLowered records that less may be promised, and publishes an Event if promises
// exceed what exists.
func (l *Loop) recordLowered(s *Status, was Estimate, o *reclaim.Estimate) {
	if was.Estimated && o.Offer < was.Offer-0.0005 {
		s.Lowered = Taken{
			At: s.At, What: fmt.Sprintf("%.2f CPUs are offered, were %.2f", o.Offer, was.Offer),
			Why: remaining(s, o),
		}
	}
	if o.Overcommitted && !was.Overcommitted && o.Promised > 0 {
		l.notify(s.At, policy.Notice{Reason: "BatchOvercommitted",
			Message: fmt.Sprintf("batch pods need %.2f CPUs and %.2f exist for them: %s", o.Demand, o.Reclaimable,
				remaining(s, o))})
	}
}

// remaining describes what is left for batch pods.
func remaining(s *Status, o *reclaim.Estimate) string {
	apart := ""
	if s.Apart > 0 {
		apart = fmt.Sprintf("%d are apart from best effort, ", s.Apart)
	}
	return fmt.Sprintf("of %.0f CPUs %s%.2f are left to production, and idle pods do not use %.2f", s.Capacity, apart,
		o.Expected, o.Unutilised)
}

const (
	// squeezedFor is how long best effort must be at its floor before an Event is
	// published.
	squeezedFor = 30 * time.Second
	// notifyEvery bounds how often the same Event is published.
	notifyEvery = 10 * time.Minute
)

func (l *Loop) notify(now time.Time, n policy.Notice) {
	if last, before := l.notified[n.Reason]; before && now.Sub(last) < notifyEvery && !now.Before(last) {
		return
	}
	l.notified[n.Reason] = now
	l.o.Notify(n)
}

// Pod is a best-effort pod as the estimator sees it.
type Pod struct {
	policy.PodView
	Known bool // whether View is valid
	View  reclaim.View
}

// Pods lists the best-effort pods in order of creation. It waits for a look in
// progress.
func (l *Loop) Pods(ctx context.Context) ([]Pod, error) {
	var list []Pod
	done := make(chan struct{})
	request := func() {
		defer close(done)
		for i := range l.pods {
			if l.pods[i].Class != policy.BE {
				continue
			}
			one := Pod{PodView: l.pods[i]}
			if e := l.o.Estimator; e != nil {
				one.View, one.Known = e.View(one.UID)
			}
			list = append(list, one)
		}
	}
	select {
	case l.requests <- request:
	case <-ctx.Done():
		return nil, fmt.Errorf("lending: list pods: %w", ctx.Err())
	}
	<-done
	return list, nil
}
