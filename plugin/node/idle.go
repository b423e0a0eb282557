package node

import (
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// idleness is the cpu.idle of one pod while we manage it: from the moment that the pod is to run
// only on otherwise idle CPUs until that is undone. Neither kubelet nor a runtime sets cpu.idle
// of a pod's cgroup, so a value that is found was set by an earlier daemon.
type idleness struct {
	wanted bool
	ours   bool
	seen   bool // it was in effect: if it is gone later, something else has removed it
}

// want takes over a decision and reports whether the cgroup has to be read. Of a pod that is seen
// for the first time, the cpu.idle of an earlier daemon is undone.
func (i *idleness) want(on, first bool) bool {
	i.wanted = on
	i.ours = i.ours || on || first
	return i.ours
}

// leastWeight is kubelet's weight of every best-effort pod. The kernel drops it while the cgroup
// is idle.
const leastWeight = 1

// idleDue adds to v what brings cpu.idle to the wanted value. An idle cgroup accepts no weight, so
// idle is set last and undone first.
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

// refuseIdle tells the policy, once, that there is no cpu.idle here.
func (c *Core) refuseIdle() {
	if l := &c.writer.limits; l.noIdle && !l.refused {
		l.refused = true
		c.take(policy.IdleRefused{}, nil)
	}
}

// withoutIdle continues without cpu.idle: suppression by CPUs suffices.
func (w *writer) withoutIdle(s *subject, err error) {
	if s.idle.wanted && !w.limits.noIdle {
		w.limits.noIdle = true
		w.c.o.Log.Info("best effort is not made idle; its CPUs and its weight hold it back", "cgroup", s.path, "why",
			err)
	}
}
