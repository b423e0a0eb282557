package lend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quietcore/quietcore/policy"
)

// Reasons of Events.
const (
	ReasonEvicted = "BatchEvicted"
	ReasonBlocked = "BatchEvictionBlocked"
)

// Results of an eviction, as Report names them.
const (
	Evicted   = "evicted"
	Observed  = "observed"  // it was only reported
	Blocked   = "blocked"   // by a disruption budget
	Limited   = "limited"   // by our own rate or the server's; no request was made
	Gone      = "gone"      // the pod had ended
	Repeated  = "repeated"  // it was requested before
	Forbidden = "forbidden" // by RBAC or admission
	Absent    = "absent"    // there is no API server
	TimedOut  = "timeout"   // it is unknown whether the server accepted it
	Failed    = "error"
)

const (
	// DefaultEvictEvery and DefaultEvictBurst leave time to notice a mistake before it
	// empties a node.
	DefaultEvictEvery = 10 * time.Second
	DefaultEvictBurst = 2
	// againAfter is the pause after a failed eviction of a pod.
	againAfter = 30 * time.Second
	// maxAsked bounds the remembered requests; the oldest is forgotten.
	maxAsked = 4096
)

// EvictError says why a pod was not evicted. Result tells what to do: after Blocked,
// Limited and Failed, retry after After.
type EvictError struct {
	Pod    Pod
	Result string
	After  time.Duration
	Why    string
	Err    error // of the API server; nil if no request was made
}

func (e *EvictError) Error() string {
	text := fmt.Sprintf("pod %s (UID %s) is not evicted: %s", e.Pod, e.Pod.UID, e.Why)
	if e.After > 0 {
		text += fmt.Sprintf("; again in %s", e.After.Round(time.Second))
	}
	return text
}

func (e *EvictError) Unwrap() error { return e.Err }

// EvictorOptions configure an Evictor.
type EvictorOptions struct {
	// API evicts pods; nil: none can be evicted.
	API PodEvicter
	// Observe makes no requests and reports what would be requested.
	Observe bool
	// Every and Burst limit the rate of evictions; 0: the defaults.
	Every time.Duration
	Burst int
	Log   *slog.Logger
	// Report is called with the result of every call. Notify publishes an Event on the
	// pod.
	Report func(result string)
	Notify func(policy.Notice)
	Now    func() time.Time
}

// Evictor evicts pods at a limited rate. Its caller chooses the pods, their order and
// the reasons. It is safe for concurrent use.
type Evictor struct {
	o EvictorOptions

	turn chan struct{} // a lock that can be waited for with a context; holds one element when free

	// The holder of turn owns the fields below.
	pace      *rate.Limiter
	busy      time.Time // no requests before, as the server demanded
	requested requested
}

// NewEvictor makes an evictor.
func NewEvictor(o EvictorOptions) *Evictor {
	if o.Every <= 0 {
		o.Every = DefaultEvictEvery
	}
	if o.Burst <= 0 {
		o.Burst = DefaultEvictBurst
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.Notify == nil {
		o.Notify = func(policy.Notice) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Evictor{o: o, turn: make(chan struct{}, 1), pace: rate.NewLimiter(rate.Every(o.Every), o.Burst),
		requested: requested{byUID: map[string]attempt{}}}
	e.turn <- struct{}{}
	return e
}

// Evict requests the eviction of one pod; its Event says "evicted" and why. nil: the
// API server accepted it, or in observe mode would have been asked. Otherwise the error
// is an *EvictError or that of ctx. Evict waits for a request in progress, but never
// for the rate limit: by then the caller may have changed its decision.
func (e *Evictor) Evict(ctx context.Context, pod Pod, why string) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.turn:
	}
	defer func() { e.turn <- struct{}{} }()
	failed := e.evict(ctx, pod, why)
	if err := ctx.Err(); err != nil && failed != nil {
		return err
	}
	if failed == nil {
		result := Evicted
		if e.o.Observe {
			result = Observed
		}
		e.o.Report(result)
		return nil
	}
	e.o.Report(failed.Result)
	return failed
}

func (e *Evictor) evict(ctx context.Context, pod Pod, why string) *EvictError {
	now := e.o.Now()
	if refused := e.admit(now, pod); refused != nil {
		return refused
	}
	e.pace.AllowN(now, 1)
	if e.o.Observe {
		e.requested.put(pod.UID, attempt{done: true, at: now})
		e.o.Log.Info("would evict a pod", "pod", pod.String(), "uid", pod.UID, "why", why)
		return nil
	}
	// Record it first: neither a panic nor a lost answer may cause a second request.
	e.requested.put(pod.UID, attempt{at: now, until: now.Add(againAfter)})
	reqCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	err := e.o.API.Evict(reqCtx, pod)
	cancel()
	if err == nil {
		e.requested.put(pod.UID, attempt{done: true, at: now})
		e.o.Log.Info("evicted a pod", "pod", pod.String(), "uid", pod.UID, "why", why)
		e.notify(pod, ReasonEvicted, "evicted "+why)
		return nil
	}
	if ctx.Err() != nil {
		return &EvictError{Pod: pod, Result: TimedOut, Why: "the daemon ends", Err: err}
	}
	return e.refused(pod, err)
}

// admit says why no request is made for a pod.
func (e *Evictor) admit(now time.Time, pod Pod) *EvictError {
	no := func(result string, after time.Duration, format string, args ...any) *EvictError {
		return &EvictError{Pod: pod, Result: result, After: after, Why: fmt.Sprintf(format, args...)}
	}
	if pod.UID == "" || pod.Namespace == "" || pod.Name == "" {
		// Without the UID a new pod of the same name could be evicted.
		return no(Failed, 0, "namespace, name and UID have to be known")
	}
	if a, before := e.requested.byUID[pod.UID]; before {
		switch {
		case a.done:
			return no(Repeated, 0, "its eviction was requested %s ago", now.Sub(a.at).Round(time.Second))
		case now.Before(a.until):
			return no(Limited, a.until.Sub(now), "it could not be evicted %s ago", now.Sub(a.at).Round(time.Second))
		}
	}
	if e.o.API == nil && !e.o.Observe {
		return no(Absent, 0, "there is no API server; it is only suppressed")
	}
	if now.Before(e.busy) {
		return no(Limited, e.busy.Sub(now), "the API server limits requests")
	}
	if wait := tokenIn(e.pace, now); wait > 0 {
		return no(Limited, wait, "one eviction in %s, at most %d at once", e.o.Every, e.o.Burst)
	}
	return nil
}

// refused converts the API server's error.
func (e *Evictor) refused(pod Pod, err error) *EvictError {
	now := e.o.Now()
	f := &EvictError{Pod: pod, Err: err, After: againAfter, Result: Failed, Why: err.Error()}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		f.After = min(time.Duration(seconds)*time.Second, refusedRetry)
	}
	budget, blocked := budgetIn(err)
	switch result(err) {
	case resultNotFound, resultConflict: // no pod with that UID exists
		f.Result, f.After, f.Why = Gone, 0, "it is gone"
		e.requested.put(pod.UID, attempt{done: true, at: now})
		return f
	case resultTimeout:
		f.Result, f.Why = TimedOut, "the API server did not answer in time, and may have accepted it: "+
			err.Error()
	case resultForbidden:
		f.Result = Forbidden
	}
	switch {
	case blocked:
		f.Result, f.Why = Blocked, budget
		e.notify(pod, ReasonBlocked, "it is wanted away, but not evicted: "+budget)
	case apierrors.IsTooManyRequests(err):
		f.Result, e.busy = Limited, now.Add(f.After)
	}
	e.requested.put(pod.UID, attempt{at: now, until: now.Add(f.After)})
	e.o.Log.Warn("cannot evict a batch pod", "pod", pod.String(), "uid", pod.UID, "result", f.Result, "why", f.Why,
		"again", f.After)
	return f
}

func (e *Evictor) notify(pod Pod, reason, text string) {
	e.o.Notify(policy.Notice{Pod: policy.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name},
		Reason: reason, Message: text})
}

// budgetIn says which disruption budget forbids an eviction. The API server answers 429
// with a cause, and 403 or 500 for budgets that are invalid, or two for one pod.
func budgetIn(err error) (why string, blocked bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	s := status.Status()
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				return c.Message, true
			}
		}
		if strings.HasPrefix(s.Details.Kind, "poddisruptionbudget") && s.Reason == metav1.StatusReasonForbidden {
			return s.Message, true
		}
	}
	return s.Message, strings.Contains(s.Message, "more than one PodDisruptionBudget")
}

// attempt is the last request for a pod.
type attempt struct {
	done  bool // the pod is terminating or gone
	at    time.Time
	until time.Time // no further request before
}

// requested remembers the requests by pod.
type requested struct{ byUID map[string]attempt }

func (a *requested) put(uid string, t attempt) {
	if _, there := a.byUID[uid]; !there && len(a.byUID) >= maxAsked {
		oldest, at := "", time.Time{}
		for uid, t := range a.byUID {
			if oldest == "" || t.at.Before(at) {
				oldest, at = uid, t.at
			}
		}
		delete(a.byUID, oldest)
	}
	a.byUID[uid] = t
}
