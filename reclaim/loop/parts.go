package loop

import (
	"cmp"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// Group says whether pods of class BE outside of kubelet's best-effort slice, which request CPUs or
// memory, have a part in its quota.
type Group int

const (
	Ungrouped     Group = iota
	GroupObserved       // the parts are computed and shown
	Grouped
)

// parts are the last division of a quota of best effort.
type parts struct {
	total int64
	ids   []string // of pods outside of the slice, by UID, ascending
	milli map[string]int64
	slice int64
}

// divide divides a quota over kubelet's best-effort slice and the pods of class BE outside of it.
// What it returns is never modified. A division stands until the quota or the pods change, or one
// of them is held by its part.
func (l *Loop) divide(pods []policy.PodView, quota int64) parts {
	if l.o.Group == Ungrouped || quota == 0 {
		return parts{}
	}
	slice := reclaim.Member{ID: bestEffort, Held: l.group.stopped}
	var members []reclaim.Member
	for i := range pods {
		p := &pods[i]
		if p.Class != policy.BE || !p.Managed {
			continue
		}
		one := reclaim.Member{ID: p.UID, Weight: requestOf(p), Most: max(p.QuotaMilli, 0)}
		if m := l.meters[p.UID]; m != nil {
			one.Use, one.Held = m.last, m.stopped
		}
		if !outside(p) {
			slice.Weight += one.Weight
			slice.Use += one.Use
			continue
		}
		members = append(members, one)
	}
	slices.SortFunc(members, func(a, b reclaim.Member) int { return cmp.Compare(a.ID, b.ID) })
	ids := make([]string, len(members))
	held := slice.Held
	for i := range members {
		ids[i] = members[i].ID
		held = held || members[i].Held
	}
	if was := &l.parts; !held && was.total == quota && slices.Equal(was.ids, ids) {
		return *was
	}
	milli := reclaim.Divide(quota, append(members, slice))
	next := parts{total: quota, ids: ids, milli: make(map[string]int64, len(ids)), slice: milli[len(ids)]}
	for i, id := range ids {
		next.milli[id] = milli[i]
	}
	return next
}

// outside says whether a pod of class BE lies outside of kubelet's best-effort slice.
func outside(p *policy.PodView) bool {
	return p.Cgroup != "" && cgroup.Classify(cgroup.Parent(p.Cgroup)) != cgroup.BestEffort
}

// suppressed is what the policy is asked for.
func (l *Loop) suppressed(s *Status) policy.BESuppressed {
	e := policy.BESuppressed{CPUs: s.Suppressed, QuotaMilli: s.QuotaMilli}
	if l.o.Group == Grouped {
		e.Grouped, e.PodMilli = s.QuotaMilli > 0, l.parts.milli
	}
	return e
}

// sameSuppression says whether two events ask for the same.
func sameSuppression(a, b policy.BESuppressed) bool {
	return a.CPUs == b.CPUs && a.QuotaMilli == b.QuotaMilli && a.Grouped == b.Grouped &&
		maps.Equal(a.PodMilli, b.PodMilli)
}
