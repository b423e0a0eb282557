package lend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reasons of the Events that the evictor writes.
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
	// Unanswered: the evictor did not evict it in time, and the mark was withdrawn.
	Unanswered = "unanswered"
	Failed     = "error"
)

const (
	// DefaultEvictEvery and DefaultEvictBurst leave time to notice a mistake before it
	// empties a node.
	DefaultEvictEvery = 10 * time.Second
	DefaultEvictBurst = 2
	// againAfter is the pause after a failed eviction of a pod.
	againAfter = 30 * time.Second
	// unansweredAfter is the pause of all pods after a mark that nobody answered.
	unansweredAfter = time.Minute
	// firstLook and mostLook are between looks at a marked pod.
	firstLook, mostLook = 250 * time.Millisecond, 8 * time.Second
	// withdrawTimeout is how long the end of the daemon waits for a mark to be withdrawn.
	withdrawTimeout = 3 * time.Second
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
	// API marks pods; nil: none can be evicted.
	API PodMarker
	// Reason is that of the marks.
	Reason string
	// Observe makes no requests and reports what would be requested.
	Observe bool
	// Every and Burst limit the rate of evictions; 0: the defaults.
	Every time.Duration
	Burst int
	Log   *slog.Logger
	// Report is called with the result of every call.
	Report func(result string)
	Now    func() time.Time

	pause func(context.Context, time.Duration) // what tests replace
}

// Evictor has pods of this node evicted, at a limited rate: it marks a pod, and the
// cluster's evictor evicts what is marked. Its caller chooses the pods, their order and
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
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.pause == nil {
		o.pause = pause
	}
	e := &Evictor{o: o, turn: make(chan struct{}, 1), pace: rate.NewLimiter(rate.Every(o.Every), o.Burst),
		requested: requested{byUID: map[string]attempt{}}}
	e.turn <- struct{}{}
	return e
}

// Evict has one pod evicted: it marks it with why, and waits until the pod is terminating
// or gone, the evictor says what keeps it, or the mark has stood for long enough and is
// withdrawn. nil: the pod is evicted, or in observe mode would have been marked. Otherwise
// the error is an *EvictError or that of ctx. Evict waits for another one in progress, but
// never for the rate limit: by then the caller may have changed its decision.
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
	if err := e.mark(ctx, pod, why); err != nil {
		return e.refused(pod, err)
	}
	failed := e.await(ctx, pod)
	if failed == nil {
		e.requested.put(pod.UID, attempt{done: true, at: now})
		e.o.Log.Info("a pod is evicted", "pod", pod.String(), "uid", pod.UID, "why", why)
	}
	return failed
}

// errEnded is the answer for a pod that needs no eviction any more.
var errEnded = errors.New("it has ended, or is terminating")

// mark asks for an eviction. A mark that stands already is of a daemon that was killed:
// what is asked for now is another one.
func (e *Evictor) mark(ctx context.Context, pod Pod, why string) error {
	s, err := e.look(ctx, pod)
	switch {
	case err != nil:
		return err
	case s.Gone, s.Ending, s.Over:
		return errEnded
	case s.Mark.On:
		if err := e.write(ctx, pod, false, ReasonWithdrawn, "the daemon was restarted"); err != nil {
			return err
		}
	}
	if err = e.write(ctx, pod, true, e.o.Reason, why); err != nil && unknown(err) {
		e.withdraw(ctx, pod, "it was not known whether it had arrived")
	}
	return err
}

// unknown says that a write may have arrived all the same.
func unknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || result(err) == resultTimeout
}

func (e *Evictor) look(ctx context.Context, pod Pod) (Marked, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.o.API.Look(ctx, pod)
}

func (e *Evictor) write(ctx context.Context, pod Pod, on bool, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.o.API.Mark(ctx, pod, Mark{On: on, Since: e.o.Now(), Reason: reason, Message: message})
}

// withdraw takes a mark back. Where that fails, it ends by its age. The daemon's end
// waits for it: after a restart the pod counts as running.
func (e *Evictor) withdraw(ctx context.Context, pod Pod, why string) {
	if ctx.Err() != nil {
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
		defer cancel()
	}
	if err := e.write(ctx, pod, false, ReasonWithdrawn, why); err != nil && result(err) != resultNotFound &&
		result(err) != resultConflict {
		e.o.Log.Warn("cannot withdraw the mark of a pod", "pod", pod.String(), "uid", pod.UID, "err", err,
			"ends", MarkMaxAge)
	}
}

// await waits for what becomes of a marked pod. What counts is the time waited, not the
// clock's, which may be set.
func (e *Evictor) await(ctx context.Context, pod Pod) *EvictError {
	wait := firstLook
	for waited := time.Duration(0); waited < MarkFor; waited, wait = waited+wait, min(2*wait, mostLook) {
		e.o.pause(ctx, wait)
		if ctx.Err() != nil {
			e.withdraw(ctx, pod, "the daemon ended")
			return &EvictError{Pod: pod, Result: TimedOut, Why: "the daemon ends", Err: ctx.Err()}
		}
		s, err := e.look(ctx, pod)
		switch {
		case err != nil: // the next look may succeed
		case s.Over:
			return e.refused(pod, errEnded)
		case s.Gone, s.Ending:
			return nil
		case !s.Mark.On:
			return e.failed(pod, Failed, againAfter, "its mark was taken away by another writer")
		case s.Mark.Reason == ReasonBudget:
			e.withdraw(ctx, pod, s.Mark.Message)
			return e.failed(pod, Blocked, againAfter, s.Mark.Message)
		}
	}
	e.withdraw(ctx, pod, "nobody evicted it within "+MarkFor.String())
	if s, err := e.look(ctx, pod); err == nil && (s.Gone || s.Ending) {
		return nil
	}
	e.busy = e.o.Now().Add(unansweredAfter)
	return e.failed(pod, Unanswered, unansweredAfter, "nobody evicted it within "+MarkFor.String()+
		": quietcore-evictor does not run, or its rate for this node is used up")
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
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
		return no(Limited, e.busy.Sub(now), "the API server or the evictor has to be given time")
	}
	if wait := tokenIn(e.pace, now); wait > 0 {
		return no(Limited, wait, "one eviction in %s, at most %d at once", e.o.Every, e.o.Burst)
	}
	return nil
}

// refused converts an error of marking.
func (e *Evictor) refused(pod Pod, err error) *EvictError {
	now := e.o.Now()
	if r := result(err); errors.Is(err, errEnded) || r == resultNotFound || r == resultConflict {
		e.requested.put(pod.UID, attempt{done: true, at: now})
		return &EvictError{Pod: pod, Result: Gone, Why: "it is gone", Err: err}
	}
	after := againAfter
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		after = min(time.Duration(seconds)*time.Second, refusedRetry)
	}
	name, why := Failed, err.Error()
	switch {
	case apierrors.IsTooManyRequests(err):
		name, e.busy = Limited, now.Add(after)
	case result(err) == resultTimeout:
		name, why = TimedOut, "the API server did not answer in time, and may have marked it: "+why
	case result(err) == resultForbidden:
		name = Forbidden
	}
	f := e.failed(pod, name, after, why)
	f.Err = err
	return f
}

// failed says why a pod was not evicted. It is left alone for a while.
func (e *Evictor) failed(pod Pod, result string, after time.Duration, why string) *EvictError {
	now := e.o.Now()
	e.requested.put(pod.UID, attempt{at: now, until: now.Add(after)})
	e.o.Log.Warn("cannot have a pod evicted", "pod", pod.String(), "uid", pod.UID, "result", result, "why", why,
		"again", after)
	return &EvictError{Pod: pod, Result: result, After: after, Why: why}
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
