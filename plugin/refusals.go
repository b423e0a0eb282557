package plugin

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// refusals keeps the log readable: kubelet tries a refused pod again for ever,
// with a new sandbox each time. The same pod and code is one line a minute.
type refusals struct {
	log    *slog.Logger
	notify func(policy.Notice)

	mu   sync.Mutex
	last map[refusalKey]*refusalCount
}

type refusalKey struct {
	uid  string
	code policy.Code
}

type refusalCount struct {
	said  time.Time
	since int // repeats since then
}

const (
	refusalEvery = time.Minute
	maxRefusals  = 1024
)

func newRefusals(o *Options) *refusals {
	return &refusals{log: o.Log, notify: o.Notify, last: map[refusalKey]*refusalCount{}}
}

func (r *refusals) note(now time.Time, pod policy.Pod, err error) {
	key := refusalKey{uid: pod.UID}
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		key.code = refusal.Code
	}
	r.mu.Lock()
	seen := r.last[key]
	if seen != nil && now.Sub(seen.said) < refusalEvery {
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
	r.last[key] = &refusalCount{said: now}
	r.mu.Unlock()
	r.log.Warn("refused", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "err", err, "repeats", repeats)
	if refusal != nil {
		r.notify(policy.Notice{Reason: string(refusal.Code), Message: refusal.Message,
			Pod: policy.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: pod.QoS,
				CgroupParent: pod.CgroupParent}})
	}
}

// forgetOld makes room; if everything is recent everything is forgotten, which
// costs some log lines and no memory.
func (r *refusals) forgetOld(now time.Time) {
	for k, c := range r.last {
		if now.Sub(c.said) >= refusalEvery {
			delete(r.last, k)
		}
	}
	if len(r.last) >= maxRefusals {
		clear(r.last)
	}
}
