package node

import (
	"github.com/quietcore/quietcore/internal/cgroup"
)

// idleness is cpu.idle of one pod as far as it is ours: from the moment that the pod
// is to run only where nobody else wants to until that is undone. Neither kubelet nor a
// runtime makes a pod's cgroup idle, so one that is was made so by an earlier daemon.
type idleness struct {
	wanted bool
	ours   bool
	seen   bool // it was there: from now on its end is somebody's doing
}

// want takes over a decision. It reports whether the cgroup has to be looked at; of a
// pod that is seen for the first time an earlier daemon's is undone.
func (i *idleness) want(on, first bool) bool {
	i.wanted = on
	i.ours = i.ours || on || first
	return i.ours
}

// leastWeight is what kubelet gives every best-effort pod. The kernel forgets it while
// the cgroup is idle.
const leastWeight = 1

// idleDue adds to v what brings cpu.idle to what is wanted. An idle cgroup takes no
// weight, so it is the last to be set and the first to be undone.
func (w *writer) idleDue(s *subject, now cgroup.Effective, v *cgroup.Values) {
	switch {
	case !s.idle.ours || s.idle.wanted == now.Idle:
	case !now.HasIdle:
		w.withoutIdle(s, cgroup.ErrNoIdle)
	case s.idle.wanted && w.limits.noIdle:
	default:
		on := s.idle.wanted
		v.Idle, v.Weight = &on, 0
		if !on {
			v.Weight = max(s.weight, leastWeight)
		}
	}
}

// withoutIdle goes on without it: suppression by CPUs does the work.
func (w *writer) withoutIdle(s *subject, err error) {
	if s.idle.wanted && !w.limits.noIdle {
		w.limits.noIdle = true
		w.c.o.Log.Info("best effort is not made idle; its CPUs and its weight hold it back", "cgroup", s.path, "why",
			err)
	}
}
