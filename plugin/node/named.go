package node

import (
	"cmp"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// claim finds the CPUs of a pod's containers that own some: as many as they request, by what the runtime
// stores or by the masks of their cgroups, or any number on which both agree and which is not all that the pod
// may use: then they were resized. A container in the pool has a mask too, but with those of the pool, as its pod.
func (r *recovery) claim(p *running) {
	pod := p.kernel
	p.kernel = cpuset.Set{}
	newest := newestOf(p.containers)
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		c := newest[name]
		if named, _ := p.pod.Names(name); !named {
			continue
		}
		kernel, from := r.read(c.CgroupPath), "runtime"
		own, err := cpuset.Parse(c.CPUs)
		if err != nil || own.IsEmpty() || !kernel.IsEmpty() && !r.same(own, kernel) {
			own, from = kernel, "kernel"
		}
		// A container in the pool has kubelet's limit, but of one that was demoted the runtime stores ours.
		lifted := c.Asked.Quota.Milli() == policy.NoLimit && !r.saved[p.pod.UID].Demoted
		resized := from == "runtime" && !kernel.IsEmpty() && own.SubsetOf(&pod) && own != pod // since
		if own.IsEmpty() || milli(&own) != c.Resources.RequestMilli && !resized || own.Intersects(&p.kernel) {
			continue
		}
		p.kernel.AddSet(&own)
		if from == "runtime" && (lifted || !kernel.IsEmpty()) {
			p.agreed.AddSet(&own)
		}
		p.claims = append(p.claims, policy.RecoveredContainer{Container: name,
			Recovered: policy.Recovered{CPUs: &own, From: from}})
	}
}

// corrected is the place in the state file of a pod whose containers own CPUs, without what contradicts it: the
// file is behind if the disk failed. A container owns what the runtime stores and its mask has if that is as many
// CPUs as it requests and the file has another number; and its mask alone if it grew and nobody else has what was
// added: a resize tells the runtime nothing if its save is late. A container is placed anew if pods that came after
// the file have some of its CPUs and the pod's mask has none of these.
func (r *recovery) corrected(p *running, saved state.Pod) *policy.Recovered {
	found := saved.Recovered()
	newest, mask := newestOf(p.containers), r.read(p.pod.CgroupParent)
	var owners []policy.RecoveredContainer
	for _, o := range found.Owners {
		at := slices.IndexFunc(p.claims, func(c policy.RecoveredContainer) bool { return c.Container == o.Container })
		if at >= 0 {
			has, recorded := p.claims[at].CPUs, ownedBy(&o.Recovered)
			added := has.Minus(recorded)
			behind := has.Count() != cmp.Or(o.Request, recorded.Count()) &&
				newest[o.Container].Resources.RequestMilli == milli(has)
			grew := !recorded.IsEmpty() && recorded.SubsetOf(has) && !added.Intersects(&saved.CPUs) &&
				!r.othersHave(p, &added)
			if behind && (has.SubsetOf(&p.agreed) || grew) {
				o.Recovered = p.claims[at].Recovered
			}
		}
		if theirs := r.newer.And(ownedBy(&o.Recovered)); theirs.IsEmpty() || theirs.Intersects(&mask) {
			owners = append(owners, o)
		}
	}
	if found.Owners = owners; owners == nil {
		return nil
	}
	return found
}

// othersHave reports whether anything shows some of these CPUs as those of others: the file, another owner's mask, or
// the slice of the shared pool.
func (r *recovery) othersHave(p *running, cpus *cpuset.Set) bool {
	return cpus.Intersects(&r.claimed) || cpus.Intersects(&r.slice) ||
		slices.ContainsFunc(r.found, func(other *running) bool {
			theirs := r.saved[other.pod.UID].CPUs
			return other.pod.UID != p.pod.UID && (theirs.Intersects(cpus) ||
				other.pod.Exclusive() && other.kernel.Intersects(cpus))
		})
}

// newestOf are the last runs of containers, by name.
func newestOf(containers []policy.Container) map[string]policy.Container {
	newest := map[string]policy.Container{}
	for _, c := range containers {
		if old, ok := newest[c.Name]; !ok || !old.CreatedAt.After(c.CreatedAt) {
			newest[c.Name] = c
		}
	}
	return newest
}
