package plugin

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// refusals keeps the log readable: kubelet retries a refused pod forever, with a new sandbox each
// time. The same pod and code is one line a minute.
type refusals struct {
	log    *slog.Logger
	notify func(policy.Notice)

	mu   sync.Mutex
	last map[refusalKey]*refusalCount
	// retried are the refused pods that kubelet keeps retrying, by UID.
	retried map[string]retriedPod
}

type retriedPod struct {
	policy.RefusedPod
	asked time.Time // when it was last asked for
}

type refusalKey struct {
	uid  string
	code policy.Code
}

type refusalCount struct {
	reported time.Time
	since    int // repeats since then
}

const (
	refusalEvery = time.Minute
	maxRefusals  = 1024
	// refusalStays is how long after the last attempt a pod is listed: kubelet retries within five
	// minutes, so a pod without an attempt for this long is gone.
	refusalStays = 12 * time.Minute
	maxRetried   = 64
)

func newRefusals(o *Options) *refusals {
	return &refusals{log: o.Log, notify: o.Notify, last: map[refusalKey]*refusalCount{},
		retried: map[string]retriedPod{}}
}

// admitted records the reply to a pod that was to run, and reports whether the list of refused pods
// has changed.
func (r *refusals) admitted(now time.Time, pod *policy.Pod, err error) (changed bool) {
	var refusal *policy.Refusal
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.retried[pod.UID]
	if err == nil {
		delete(r.retried, pod.UID)
		return known
	}
	if !errors.As(err, &refusal) || refusal.Code == policy.Busy {
		return false
	}
	if !known && len(r.retried) >= maxRetried && !r.makeRoom(pod.Namespace) {
		return false
	}
	next := retriedPod{asked: now, RefusedPod: policy.RefusedPod{UID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name,
		Code: refusal.Code, Message: refusal.Message, Since: now.UTC().Truncate(time.Second)}}
	if known {
		next.Since = before.Since
	}
	r.retried[pod.UID] = next
	return !known || before.RefusedPod != next.RefusedPod
}

// makeRoom forgets a refused pod for one of this namespace: the one that was not asked for the longest time, of the
// namespace that has most. Where this has as many already it says false.
func (r *refusals) makeRoom(namespace string) bool {
	has, most := map[string]int{}, namespace
	for _, p := range r.retried {
		has[p.Namespace]++
	}
	for other, n := range has {
		if n > has[most] || n == has[most] && most != namespace && other < most {
			most = other
		}
	}
	if most == namespace {
		return false
	}
	oldest := ""
	for uid, p := range r.retried {
		if p.Namespace != most {
			continue
		}
		if o := r.retried[oldest]; oldest == "" || p.asked.Before(o.asked) || p.asked.Equal(o.asked) && uid < oldest {
			oldest = uid
		}
	}
	delete(r.retried, oldest)
	return true
}

// list are the refused pods, the oldest one first.
func (r *refusals) list(now time.Time) []policy.RefusedPod {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []policy.RefusedPod
	for uid, t := range r.retried {
		if now.Sub(t.asked) > refusalStays {
			delete(r.retried, uid)
			continue
		}
		all = append(all, t.RefusedPod)
	}
	slices.SortFunc(all, func(a, b policy.RefusedPod) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.UID, b.UID))
	})
	return all
}

func (r *refusals) note(now time.Time, pod policy.Pod, err error) {
	key := refusalKey{uid: pod.UID}
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		key.code = refusal.Code
	}
	r.mu.Lock()
	seen := r.last[key]
	if seen != nil && now.Sub(seen.reported) < refusalEvery {
		seen.since++
		r.mu.Unlock()
		return
	}
	repeats := 0
	if seen != nil {
		repeats = seen.since
	}
	if len(r.last) >= maxRefusals {
		r.forgetOld(now)
	}
	r.last[key] = &refusalCount{reported: now}
	r.mu.Unlock()
	r.log.Warn("refused", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "err", err, "repeats", repeats)
	if refusal != nil {
		r.notify(policy.Notice{Reason: string(refusal.Code), Message: refusal.Message,
			Pod: policy.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: pod.QoS,
				CgroupParent: pod.CgroupParent}})
	}
}

// forgetOld makes room. If all entries are recent it drops all: that costs some log lines and no
// memory.
func (r *refusals) forgetOld(now time.Time) {
	for k, c := range r.last {
		if now.Sub(c.reported) >= refusalEvery {
			delete(r.last, k)
		}
	}
	if len(r.last) >= maxRefusals {
		clear(r.last)
	}
}
