package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// limits are the quotas that the writer has to read and write.
type limits struct {
	todo      []*subject
	unwritten []*subject // whose limit could not be written
	soon      []string   // pods, by UID, whose quota is read again at soonAt
	soonAt    time.Time
	// slices are kubelet's best-effort slices, by path. beQuota is their quota in milli-CPUs; nil:
	// kubelet manages it.
	slices  map[string]*subject
	beQuota *int64
	// unlimited is the pod that keeps a best-effort slice from being limited, once reported;
	// empty: none does.
	unlimited string
	noIdle    bool // the kernel has no cpu.idle: logged once ...
	refused   bool // ... and told the policy
}

func newLimits() limits { return limits{slices: map[string]*subject{}} }

// resizeDelay is how long after a container's resize kubelet has surely written the pod's quota,
// which no event announces.
const resizeDelay = 2 * time.Second

// limit is the CFS quota of one cgroup while we manage it: from the moment that we want another
// value than kubelet until kubelet's is restored.
type limit struct {
	ours   bool
	back   bool      // target is kubelet's value: once it is written, kubelet manages the quota again
	seen   bool      // target was in effect: if another value is found later, something else wrote it
	wrote  bool      // we have written it; whether before or after kubelet's last write is not known
	stored bool      // the runtime may store a limit of ours
	until  time.Time // a write that timed out may take effect until then
	target cgroup.Quota
}

// found records whether the runtime may store a limit of ours. If that is new, the limit may be an
// earlier daemon's, which is undone unless it is still wanted.
func (l *limit) found(stored bool) {
	l.ours = l.ours || stored && !l.stored
	l.stored = stored
}

// want takes over a decision: a quota of ours, or kubelet's. It reports whether the cgroup has to
// be read: kubelet writes a pod's quota at every resize, so even a repeated decision may need a
// write.
func (l *limit) want(q policy.Quota, ours bool) bool {
	next := cgroup.Quota(q)
	switch {
	case ours:
		l.seen = l.seen && l.target == next
		l.ours, l.back, l.target = true, false, next
		return true
	case !l.ours && (!l.wrote || l.target == next):
		return false
	case !q.Known():
		l.ours = false // kubelet's value is not known: its next write restores it
		return false
	}
	l.ours, l.back, l.seen, l.target = true, true, false, next
	return true
}

// noQuota is kubelet's quota of its slices. So a quota that a new daemon finds there was set by an
// earlier one, and is undone.
func noQuota() policy.Quota { return policy.QuotaOf(policy.NoLimit) }

// limitBE sets the quota of all best-effort pods together, in milli-CPUs; 0: none.
func (w *writer) limitBE(milli int64) {
	w.limits.beQuota = nil
	if milli > 0 {
		w.limits.beQuota = &milli
	}
	for _, path := range slices.Sorted(maps.Keys(w.limits.slices)) {
		w.limitSlice(w.limits.slices[path])
	}
}

// limitSlice sets the quota of a slice. A slice with a pod in it that is not best effort gets
// none: it would throttle that pod too.
func (w *writer) limitSlice(s *subject) {
	quota, ours := noQuota(), false
	if w.limits.beQuota != nil {
		if other := w.foreignIn(s.path); other != "" {
			w.reportUnlimited(s.path, other)
		} else {
			quota, ours = policy.QuotaOf(*w.limits.beQuota), true
			w.limits.unlimited = ""
		}
	}
	if s.limit.want(quota, ours) {
		w.lookAtLimit(s)
	}
}

// foreignIn is the first pod, by name, in a slice that is not best effort; empty: none.
func (w *writer) foreignIn(slice string) string {
	first := ""
	for _, s := range w.pods {
		if s.foreign && cgroup.Parent(s.path) == slice && (first == "" || s.name < first) {
			first = s.name
		}
	}
	return first
}

// reportUnlimited reports, once for each pod, that it keeps best effort from being limited.
func (w *writer) reportUnlimited(slice, pod string) {
	if w.limits.unlimited == pod {
		return
	}
	w.limits.unlimited = pod
	why := fmt.Sprintf(
		"best effort has no CPU of its own left and is to have %d thousandths of a CPU, but pod %s lies in %s and "+
			"is not of class BE: its quota would hold that pod back as well, so best effort is not limited; give "+
			"the pod a CPU request, or the class BE", *w.limits.beQuota, pod, slice)
	w.c.o.Log.Warn(why, "cgroup", slice, "pod", pod)
	w.c.o.Notify(policy.Notice{Reason: "BestEffortNotLimited", Message: why})
}

// limited are the containers, by ID, whose limit we manage, or wrote and gave back to kubelet.
func (w *writer) limited() map[string]bool {
	ids := map[string]bool{}
	for id, s := range w.ctrs {
		if s.limit.ours || s.limit.wrote {
			ids[id] = true
		}
	}
	return ids
}

// lookAtLimit queues a limit to be read, and written if it differs.
func (w *writer) lookAtLimit(s *subject) {
	if !s.pending {
		s.pending = true
		w.limits.todo = append(w.limits.todo, s)
	}
}

// clear empties the queue of limits.
func (l *limits) clear() {
	for _, s := range l.todo {
		s.pending = false
	}
	l.todo = nil
}

// writeLimits takes one limit from the queue and reports whether there was one.
func (w *writer) writeLimits() bool {
	if len(w.limits.todo) == 0 {
		return false
	}
	s := w.limits.todo[0]
	w.limits.todo = w.limits.todo[1:]
	s.pending = false
	w.writeLimit(s)
	return true
}

func (w *writer) writeLimit(s *subject) {
	if s.path == "" || s.dropped {
		return
	}
	now, err := w.reader.Effective(s.path)
	if errors.Is(err, cgroup.ErrGone) {
		return
	}
	if s.stale > 0 && err != nil {
		w.limitAgain(s)
		return
	}
	s.undoStale(now)
	v := s.limitDue(now, err)
	unread := err != nil && s.idle.ours // whether it is idle is not known: it is looked at again
	if err == nil {
		w.idleDue(s, now, &v)
	}
	switch {
	case v != (cgroup.Values{}):
	case unread:
		w.limitAgain(s)
		return
	default:
		w.limitDone(s)
		return
	}
	w.noteDrift(s, now, err)
	before := s.limit.until
	s.limit.wrote, s.limit.until = true, w.c.now.Add(cgroup.InFlightFor) // in case its result is lost
	err = w.out.do(Effect{Kind: Write, Path: s.path, Values: v, Before: failpoint.QuotaWriting,
		After: failpoint.QuotaWritten}).Err
	w.count(err)
	if s.limit.until = before; errors.Is(err, cgroup.ErrInFlight) {
		s.limit.until = w.c.now.Add(cgroup.InFlightFor)
	}
	switch {
	case err == nil && unread:
		w.limitAgain(s)
	case err == nil:
		w.limitDone(s)
	case errors.Is(err, cgroup.ErrNoIdle):
		w.withoutIdle(s, err)
	case !errors.Is(err, cgroup.ErrGone):
		w.limitAgain(s)
		w.c.o.Log.Error("a limit could not be written; it is tried again", "cgroup", s.path, "quota",
			s.limit.target.String(),
			"idle", s.idle.wanted, "err", err)
	}
}

// limitDue is the quota and weight to write: those that we manage and that differ from the
// cgroup's, or that could not be read.
func (s *subject) limitDue(now cgroup.Effective, err error) cgroup.Values {
	var v cgroup.Values
	if !s.limit.ours {
		return v
	}
	want := s.limit.target
	if err != nil || now.Weight != s.weight && !now.Idle {
		v.Weight = s.weight
	}
	if err != nil || now.QuotaMilli != want.Milli() || v.Weight > 0 {
		v.Quota = &want
	}
	return v
}

// mayBeStale reports whether a pod's weight has to be compared with the one that an earlier daemon
// may have left: once, when the decision says what kubelet gave the pod.
func (s *subject) mayBeStale(d *policy.SetPod) bool {
	if d.StaleMilli == 0 || s.compared || !d.Quota.Known() {
		return false
	}
	s.stale, s.compared = cgroup.WeightOf(d.StaleMilli), true
	return true
}

// undoStale gives a pod's weight and quota back to kubelet where the weight is the one that an
// earlier daemon gave it as best effort.
func (s *subject) undoStale(now cgroup.Effective) {
	if s.stale > 0 && now.Weight == s.stale && !s.limit.ours {
		s.limit.ours, s.limit.back = true, true
	}
	s.stale = 0
}

// limitAgain queues a limit for the next retry.
func (w *writer) limitAgain(s *subject) {
	w.retry.failed = true
	w.limits.unwritten = append(w.limits.unwritten, s)
}

// limitDone records that the cgroup has the wanted values. As long as an earlier write may still
// take effect, the limit is read again later.
func (w *writer) limitDone(s *subject) {
	if w.c.now.Before(s.limit.until) {
		w.limitAgain(s)
		return
	}
	if s.limit.ours {
		s.limit.ours, s.limit.seen = !s.limit.back, true
	}
	s.idle.ours, s.idle.seen = s.idle.wanted, s.idle.wanted && !w.limits.noIdle
}

// noteDrift reports values that were in effect and are not any more.
func (w *writer) noteDrift(s *subject, now cgroup.Effective, err error) {
	if err == nil && s.limit.ours && s.limit.seen && now.QuotaMilli != s.limit.target.Milli() {
		source := sourceOfQuota(s, now)
		w.c.o.Metrics.QuotaDrift(source)
		w.c.o.Log.Warn("quota drift", "subject", s.name, "cgroup", s.path, "want", s.limit.target.String(), "got",
			now.Quota.String(), "source", source)
	}
	if err == nil && s.idle.wanted && s.idle.seen && !now.Idle {
		w.c.o.Metrics.QuotaDrift("other")
		w.c.o.Log.Warn("cpu.idle drift", "subject", s.name, "cgroup", s.path, "weight", now.Weight)
	}
}

// sourceOfQuota is what overwrote our quota: kubelet writes a pod's at every resize, the runtime
// a container's at every update, and both write the value that kubelet asked for.
func sourceOfQuota(s *subject, now cgroup.Effective) string {
	switch {
	case now.QuotaMilli != s.asked.Milli():
		return "other"
	case s.container:
		return "runtime"
	}
	return "kubelet"
}
