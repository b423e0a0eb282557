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
	Observed  = "observed"  // it would have been asked for
	Blocked   = "blocked"   // by a disruption budget
	Limited   = "limited"   // by our own rate or the server's; not asked for
	Gone      = "gone"      // the pod ended before
	Repeated  = "repeated"  // it was asked for before
	Forbidden = "forbidden" // by RBAC or admission
	Absent    = "absent"    // there is no API server to ask
	TimedOut  = "timeout"   // nobody knows whether it was taken
	Failed    = "error"
)

const (
	// DefaultEvictEvery and DefaultEvictBurst: a mistake of ours must be seen before it
	// has emptied a node.
	DefaultEvictEvery = 10 * time.Second
	DefaultEvictBurst = 2
	// againAfter is how long a pod is left alone that could not be evicted.
	againAfter = 30 * time.Second
	// maxAsked bounds the memory of who was asked for; the oldest is forgotten.
	maxAsked = 4096
)

// EvictError says why a pod was not evicted. What Result is says what to do: after
// Blocked, Limited and Failed another attempt makes sense after After.
type EvictError struct {
	Pod    Pod
	Result string
	After  time.Duration
	Why    string
	Err    error // of the API server; nil where it was not asked
}

func (e *EvictError) Error() string {
	text := fmt.Sprintf("pod %s (UID %s) is not evicted: %s", e.Pod, e.Pod.UID, e.Why)
	if e.After > 0 {
		text += fmt.Sprintf("; again in %s", e.After.Round(time.Second))
	}
	return text
}

func (e *EvictError) Unwrap() error { return e.Err }

// EvictorOptions are what an Evictor is made of.
type EvictorOptions struct {
	// API is who is asked; nil: nobody can be.
	API PodEvicter
	// Observe sends no request and reports what would have been asked.
	Observe bool
	// Every and Burst bound how often pods are evicted; 0: the defaults.
	Every time.Duration
	Burst int
	Log   *slog.Logger
	// Report is called with the result of every call, Notify with what users should know: as an
	// Event on the pod it is kube.Client's.
	Report func(result string)
	Notify func(policy.Notice)
	Now    func() time.Time
}

// Evictor asks for pods back, in the order and for the reasons of its caller, who
// alone knows them. Its method may be called from any goroutine.
type Evictor struct {
	o EvictorOptions

	turn chan struct{} // has one element while nobody evicts

	// What follows belongs to whoever took turn.
	pace  *rate.Limiter
	busy  time.Time // until when the server wants to be left alone
	asked asked
}

// NewEvictor makes an evictor that has asked for nobody.
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
		asked: asked{byUID: map[string]attempt{}}}
	e.turn <- struct{}{}
	return e
}

// Evict asks for the eviction of one pod; why goes into its Event, after the word
// evicted. Nil: the API
// server took it (or would have been asked). Else the error is an *EvictError or
// ctx's. It waits for a request that is under way, but never for its turn in the
// rate: that is for the caller, who may have changed his mind by then.
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
		e.asked.put(pod.UID, attempt{done: true, at: now})
		e.o.Log.Info("a pod would be evicted", "pod", pod.String(), "uid", pod.UID, "why", why)
		return nil
	}
	// Written down first: a panic or a lost answer must not make it twice.
	e.asked.put(pod.UID, attempt{at: now, until: now.Add(againAfter)})
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	err := e.o.API.Evict(asking, pod)
	cancel()
	if err == nil {
		e.asked.put(pod.UID, attempt{done: true, at: now})
		e.o.Log.Info("a pod is evicted", "pod", pod.String(), "uid", pod.UID, "why", why)
		e.notify(pod, ReasonEvicted, "evicted "+why)
		return nil
	}
	if ctx.Err() != nil {
		return &EvictError{Pod: pod, Result: TimedOut, Why: "the daemon ends", Err: err}
	}
	return e.refused(pod, err)
}

// admit says why the API server is not asked for a pod.
func (e *Evictor) admit(now time.Time, pod Pod) *EvictError {
	no := func(result string, after time.Duration, format string, args ...any) *EvictError {
		return &EvictError{Pod: pod, Result: result, After: after, Why: fmt.Sprintf(format, args...)}
	}
	if pod.UID == "" || pod.Namespace == "" || pod.Name == "" {
		// Without the UID a new pod of the same name could be hit.
		return no(Failed, 0, "namespace, name and UID have to be known")
	}
	if a, before := e.asked.byUID[pod.UID]; before {
		switch {
		case a.done:
			return no(Repeated, 0, "its eviction was asked for %s ago", now.Sub(a.at).Round(time.Second))
		case now.Before(a.until):
			return no(Limited, a.until.Sub(now), "it could not be evicted %s ago", now.Sub(a.at).Round(time.Second))
		}
	}
	if e.o.API == nil && !e.o.Observe {
		return no(Absent, 0, "there is no API server to ask; it is only suppressed")
	}
	if now.Before(e.busy) {
		return no(Limited, e.busy.Sub(now), "the API server wants fewer requests")
	}
	if wait := tokenIn(e.pace, now); wait > 0 {
		return no(Limited, wait, "one eviction in %s, at most %d at once", e.o.Every, e.o.Burst)
	}
	return nil
}

// refused makes of the API server's answer what the caller can act on.
func (e *Evictor) refused(pod Pod, err error) *EvictError {
	now := e.o.Now()
	f := &EvictError{Pod: pod, Err: err, After: againAfter, Result: Failed, Why: err.Error()}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		f.After = min(time.Duration(seconds)*time.Second, refusedRetry)
	}
	budget, blocked := budgetIn(err)
	switch result(err) {
	case resultNotFound, resultConflict: // the one whose UID we know is not there
		f.Result, f.After, f.Why = Gone, 0, "it is gone"
		e.asked.put(pod.UID, attempt{done: true, at: now})
		return f
	case resultTimeout:
		f.Result, f.Why = TimedOut, "the API server did not answer in time, so nobody knows whether it took it: "+
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
	e.asked.put(pod.UID, attempt{at: now, until: now.Add(f.After)})
	e.o.Log.Warn("a batch pod is not evicted", "pod", pod.String(), "uid", pod.UID, "result", f.Result, "why", f.Why,
		"again", f.After)
	return f
}

func (e *Evictor) notify(pod Pod, reason, text string) {
	e.o.Notify(policy.Notice{Pod: policy.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name},
		Reason: reason, Message: text})
}

// budgetIn says which disruption budget forbids an eviction. The API server answers
// 429 with a cause; 403 and 500 for budgets that are broken, or two for one pod.
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

// attempt is how asking for one pod went.
type attempt struct {
	done  bool // the pod goes or is gone, never ask again
	at    time.Time
	until time.Time // do not ask again before
}

// asked remembers which pods were asked for.
type asked struct{ byUID map[string]attempt }

func (a *asked) put(uid string, t attempt) {
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
