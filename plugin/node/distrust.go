package node

import (
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// distrust drops masks that cannot be an exclusive allocation: a mask does not show why a cgroup
// has it. A pod that was degraded has the shared pool's, and a pod that was moving to its CPUs
// an intermediate one. CPUs in the masks of several pods, or in the pool of the burstable slice,
// are not exclusive unless something confirms them; confirmed masks are distrusted only where two
// of them overlap. The state file is more reliable, so this is for pods that it does not name.
func (r *recovery) distrust(found []*running) {
	var all, confirmed overlap
	r.forgetWidest(found)
	before := r.sharedPool(found)
	pool := before.pool
	sure := map[string]bool{}
	for _, p := range found { // a pod may have several sandboxes
		sure[p.pod.UID] = sure[p.pod.UID] || r.confirmed(p, pool)
		if _, named := r.saved[p.pod.UID]; !named && p.pod.Exclusive() && !p.mixed && r.confirmed(p, cpuset.Set{}) {
			p.later = p.kernel
		}
	}
	counted := map[string]bool{}
	for _, p := range found {
		if p.pod.Exclusive() && !counted[p.pod.UID] {
			counted[p.pod.UID] = true
			all.add(p.kernel)
			if sure[p.pod.UID] {
				confirmed.add(p.kernel)
			}
			// A pod that the file does not name came after it, and so did its mask, and what it was told.
			if _, named := r.saved[p.pod.UID]; !named {
				has := p.kernel
				if has.IsEmpty() && !p.mixed {
					has = r.storedBy(p)
				}
				r.newer.AddSet(&has)
			}
		}
	}
	recorded := r.claimed
	for uid := range sure { // CPUs of pods that have ended have no owner
		saved := r.saved[uid].CPUs
		recorded.AddSet(&saved)
	}
	r.owners = all.once.Or(recorded)
	if r.poolBefore = before; pool.IsEmpty() {
		r.pool = r.topo.Online().Minus(all.once)
	}
	for _, p := range found {
		_, saved := r.saved[p.pod.UID]
		switch {
		case saved, sure[p.pod.UID] && !p.kernel.Intersects(&confirmed.twice):
		case p.kernel.Intersects(&all.twice), p.kernel.Intersects(&pool):
			p.kernel, p.claims = p.shrunk(all.twice.Or(recorded).Or(pool)), nil
		}
	}
}

// doubt is how much speaks for a pod's mask being the pool's. CPUs of an owner are taken from the burstable slice
// before it starts, so if the slice has some of the mask, that is a sign. It is a weak one if best effort in the slice
// may use the pod's CPUs. If the pod itself is burstable, the slice says nothing: then nothing speaks for an owner.
// Worst is a mask of another number of CPUs than the pod requests.
func (r *recovery) doubt(p *running) (doubt int) {
	if p.kernel.Intersects(&r.slice) {
		if doubt = 4; r.batch && p.pod.Labels[policy.LabelClass] == string(policy.LSR) {
			doubt = 1
		}
	}
	if p.pod.QoS == policy.Burstable {
		doubt += 2
	}
	if !p.requests(&p.kernel) {
		doubt += 8
	}
	return doubt
}

// forgetWidest drops unconfirmed masks of burstable owners that include their whole slice. The slice
// of an owner includes the pool, which is never empty: such a mask keeps the owner in the pool
// until its slice is widened.
func (r *recovery) forgetWidest(found []*running) {
	for _, p := range found {
		if p.pod.QoS != policy.Burstable || !p.pod.Exclusive() || r.reader == nil || r.confirmed(p, cpuset.Set{}) {
			continue
		}
		slice, err := r.reader.CPUs(cgroup.Parent(p.pod.CgroupParent))
		if err == nil && !slice.OwnCPUs.IsEmpty() && slice.OwnCPUs.SubsetOf(&p.kernel) {
			p.kernel = cpuset.Set{}
		}
	}
}

// overlap is the CPUs in at least one and in at least two of several sets.
type overlap struct{ once, twice cpuset.Set }

func (o *overlap) add(s cpuset.Set) {
	both := o.once.And(s)
	o.twice.AddSet(&both)
	o.once.AddSet(&s)
}

// sharedPool is the pool by the masks of the burstable slices and of the pods in them, and the same including best
// effort, by the slices' masks alone; empty: no slice has a mask.
func (r *recovery) sharedPool(found []*running) (before poolBefore) {
	if r.reader == nil {
		return before
	}
	pool, slice := &before.pool, &before.slice
	var members cpuset.Set
	seen := map[string]bool{}
	for _, p := range found {
		path := burstableOf(&p.pod)
		if path == "" || seen[path] {
			continue
		}
		seen[path] = true
		above, err := r.reader.CPUs(path)
		online := r.topo.Online() // a mask with all of it is none
		if err == nil && !online.SubsetOf(&above.OwnCPUs) {
			slice.AddSet(&above.OwnCPUs)
		}
		// Owners and best-effort pods inside widen the slice by their CPUs, or by any CPUs if they have
		// no mask; pods in the pool then have its mask.
		var best cpuset.Set
		for _, other := range found {
			switch {
			case cgroup.Parent(other.pod.CgroupParent) != path:
			case other.pod.Exclusive():
				slice.RemoveSet(&other.kernel)
			case other.pod.Labels[policy.LabelClass] == string(policy.BE):
				before.batch = true
				if best.AddSet(&other.kernel); other.kernel.IsEmpty() {
					best.AddSet(&above.OwnCPUs)
				}
			case !online.SubsetOf(&other.kernel):
				members.AddSet(&other.kernel)
			}
		}
		left := slice.Minus(best)
		pool.AddSet(&left)
	}
	pool.AddSet(&members)
	return before
}

// burstableOf is the burstable slice beside or above a pod; empty: it is not known.
func burstableOf(p *policy.Pod) string {
	above := cgroup.Parent(p.CgroupParent)
	if top := cgroup.Top(above); top != "" {
		slice, _ := cgroup.QoSSlices(top)
		return slice
	}
	if p.QoS == policy.Burstable {
		return above
	}
	return ""
}
