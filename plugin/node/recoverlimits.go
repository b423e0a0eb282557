package node

import (
	"slices"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// container is one running container with kubelet's limit. If we lifted or capped it, the runtime may
// have only our value.
func (r *recovery) container(p *running, out policy.Container) policy.Container {
	r.read(out.CgroupPath) // the tree starts from the current mask
	stored := out.Asked.Quota.Milli()
	kernel, known := r.quota(p, &out)
	limit, capped := r.before(p.pod.UID, out.Name, stored, kernel)
	request := out.Resources.RequestMilli
	switch {
	case capped && stored != policy.NoLimit && tighter(limit, stored), // a cap never raises a limit
		capped && !p.isCap(stored, request) && (known && sameLimit(kernel, stored) || r.resizedSince(p, &out)):
		// It was resized without a daemon, or the cap was written after the resize.
		if r.setFollowing(p.pod.UID, out.Name, stored, request); known && !sameLimit(kernel, stored) {
			out.Resources.LimitMilli, out.Asked.OurQuota, out.StoredLimits = stored, true, []int64{}
		}
	case capped:
		out.Resources.LimitMilli, out.Asked.OurQuota = limit, true
		if sameLimit(limit, stored) {
			out.StoredLimits = []int64{} // it is in the cgroup only
		}
	case !r.limitKnown(p.pod.UID, out.ID) && p.isCap(stored, request):
		// The file does not have the cap, so the container's limit before it is not known. The limit of the
		// pod's own cgroup applies in any case.
		out.Resources.LimitMilli, out.Asked.OurQuota, out.FoundCap = r.podLimit(p), true, stored
	case stored == policy.NoLimit && p.owner(out.Name) && request > 0:
		// request = limit, so we lifted it
		out.Resources.LimitMilli, out.Asked.OurQuota, out.StoredLimits = request, true, []int64{stored}
	case known && p.owner(out.Name) && !sameLimit(kernel, stored):
		out.Asked.OurQuota, out.StoredLimits = true, []int64{} // we lifted it in the cgroup only
	case known && !sameLimit(kernel, stored) && r.undone(p.pod.UID, out.Name, kernel):
		out.Asked.OurQuota, out.StoredLimits = true, []int64{} // the end of a cap, written after a resize
	case known && r.unrecorded(out.ID) && tighter(kernel, stored):
		// A cap that had expired and was not undone yet.
		out.Asked.OurQuota, out.StoredLimits, out.FoundCap = true, []int64{}, kernel
	case known && r.unrecorded(out.ID) && tighter(stored, kernel): // a cap that the runtime still holds
		out.Resources.LimitMilli, out.Asked.OurQuota, out.StoredLimits = kernel, true, []int64{stored}
		out.FoundCap = stored
	}
	if out.Asked.OurQuota {
		out.Asked.Quota = policy.QuotaOf(out.Resources.LimitMilli)
	}
	return out
}

// limitKnown reports whether the policy knows a container's limit.
func (r *recovery) limitKnown(uid, id string) bool {
	_, guessed := r.guessed[id]
	return r.known(uid) && !guessed
}

// unrecorded reports whether no file shows a container's caps.
func (r *recovery) unrecorded(id string) bool {
	_, guessed := r.guessed[id]
	return r.lost && (r.guessed == nil || guessed)
}

// owner reports whether a container asks to own CPUs, alone or with the rest of its pod.
func (p *running) owner(container string) bool {
	named, _ := p.pod.Names(container)
	return p.pod.Exclusive() && (named || !p.mixed)
}

// podLimit is kubelet's limit of a pod: its cgroup has the current one, unless its quota is ours as
// that of best effort; the runtime has the one of its creation.
func (r *recovery) podLimit(p *running) int64 {
	if p.pod.QoS == policy.BestEffort {
		return policy.NoLimit
	}
	if r.reader != nil {
		e, err := r.reader.Effective(p.pod.CgroupParent)
		if err == nil && e.QuotaMilli > 0 && !weighsAsBatch(&p.pod, e.Weight) {
			return e.QuotaMilli
		}
	}
	if p.pod.Resources == nil {
		return policy.NoLimit
	}
	return p.pod.Resources.LimitMilli
}

// weighsAsBatch reports whether a pod weighs as best effort does that an earlier daemon grouped, or
// that was lent CPUs: it requested none, or weighs far less than that.
func weighsAsBatch(p *policy.Pod, weight uint64) bool {
	if policy.Class(p.Labels[policy.LabelClass]) != policy.BE || p.Resources == nil {
		return false
	}
	return p.Resources.RequestMilli == 0 || weight > 0 && 10*weight < cgroup.WeightOf(p.Resources.RequestMilli)
}

// isCap reports whether a limit cannot be kubelet's: kubelet sets no limit below a container's request,
// and none of a BestEffort pod.
func (p *running) isCap(limit, request int64) bool {
	return limit != policy.NoLimit && mayBeCapped(&p.pod) && (limit < request || p.pod.QoS == policy.BestEffort)
}

// quota is the kernel's limit of a container that may have been capped, or lifted.
func (r *recovery) quota(p *running, c *policy.Container) (milli int64, known bool) {
	if r.reader == nil || c.CgroupPath == "" || !mayBeOurs(&p.pod) || r.limited[c.ID] {
		return 0, false
	}
	e, err := r.reader.Effective(c.CgroupPath)
	return e.QuotaMilli, err == nil
}

// mayBeOurs reports whether an earlier daemon may have set the limits of the pod's containers.
func mayBeOurs(p *policy.Pod) bool { return mayBeCapped(p) || p.Exclusive() }

// mayBeCapped reports whether an earlier daemon may have capped the pod's containers.
func mayBeCapped(p *policy.Pod) bool {
	return p.QoS == policy.BestEffort || policy.Class(p.Labels[policy.LabelClass]) == policy.BE
}

// tighter reports whether limit a is below limit b. Systemd rounds quotas up to 10 ms a second: such a
// difference is no cap of ours.
func tighter(a, b int64) bool {
	const rounding = 10
	return a != policy.NoLimit && (b == policy.NoLimit || a+rounding < b)
}

func sameLimit(a, b int64) bool { return !tighter(a, b) && !tighter(b, a) }

// setFollowing records the limit that follows a container's cap.
func (r *recovery) setFollowing(uid, name string, limit, request int64) {
	for i := range r.caps {
		if c := &r.caps[i]; c.PodUID == uid && c.Container == name && c.PreviousQuotaMilli != nil {
			c.PreviousQuotaMilli, c.RequestMilli = &limit, request
		}
	}
}

// resizedSince reports whether a container has another request than when its cap was saved, and a limit
// that is not the cap: then the limit is kubelet's, even if its cgroup cannot be read.
func (r *recovery) resizedSince(p *running, out *policy.Container) bool {
	return slices.ContainsFunc(r.caps, func(c state.Cap) bool {
		return c.PodUID == p.pod.UID && c.Container == out.Name && c.RequestMilli > 0 &&
			c.RequestMilli != out.Resources.RequestMilli && !sameLimit(out.Asked.Quota.Milli(), c.CapMilli)
	})
}

// undone reports whether a limit is the one that follows a cap in the file.
func (r *recovery) undone(uid, name string, limit int64) bool {
	return slices.ContainsFunc(r.caps, func(c state.Cap) bool {
		return c.PodUID == uid && c.Container == name && c.PreviousQuotaMilli != nil &&
			sameLimit(*c.PreviousQuotaMilli, limit)
	})
}

// before is kubelet's limit of a container that is capped. An expired cap counts only if it is still
// found. The runtime may store an earlier cap.
func (r *recovery) before(uid, name string, stored, kernel int64) (int64, bool) {
	for _, c := range r.caps {
		if c.PodUID != uid || c.Container != name || c.PreviousQuotaMilli == nil {
			continue
		}
		was := *c.PreviousQuotaMilli
		capped := r.now.Before(c.Until) || sameLimit(stored, c.CapMilli) || sameLimit(kernel, c.CapMilli)
		if capped {
			return was, true
		}
	}
	return 0, false
}
