package policy

import "github.com/quietcore/quietcore/cpuset"

// HasOwners reports whether some pod owns CPUs.
func (m *Machine) HasOwners() bool { return len(m.exclusive) > 0 }

// Beyond returns the CPUs of owners among may on which a pod has no place: a container of
// it that starts while its cgroup may have them starts on CPUs of others. Of the owners
// in fresh, by UID, no container has started yet: they wait until all others have left. A
// pod that is not managed runs where it likes. A container beside others of its pod that own
// CPUs has no place on those.
func (m *Machine) Beyond(uid string, beside bool, may cpuset.Set, fresh map[string]bool) cpuset.Set {
	p := m.pods[uid]
	if p == nil || p.in.unmanaged {
		return cpuset.Set{}
	}
	place, own := m.ownOf(p, "")
	if !own {
		place = m.pools.of(m.poolOf(p))
		if !beside {
			place = place.Or(m.ownedIn(p))
		}
	}
	rest := may.And(m.pools.Exclusive).Minus(place)
	if rest.IsEmpty() || len(fresh) == 0 {
		return rest
	}
	var theirs cpuset.Set
	for _, owner := range m.exclusive {
		if !fresh[owner.pod.ref.UID] {
			theirs.AddSet(&owner.grant.cpus)
		}
	}
	return rest.And(theirs.Or(m.pools.Kubelet))
}

// ownedIn are the CPUs of those containers of a pod that have some of their own.
func (m *Machine) ownedIn(p *pod) cpuset.Set {
	var own cpuset.Set
	for _, h := range p.every() {
		if h.grant != nil {
			own.AddSet(&h.grant.cpus)
		}
	}
	if p.kubelet {
		own = own.Or(union(p.entries))
	}
	return own.And(m.topo.Online())
}

// Mixed reports whether containers of a pod own CPUs of their own: the pod's cgroup has those of
// all of them, and the pool's where others of its containers share that.
func (m *Machine) Mixed(uid string) bool {
	p := m.pods[uid]
	return p != nil && (p.kubelet || p.holders != nil)
}

// Knows reports whether a container is in the machine, KnowsPod whether a pod is.
func (m *Machine) Knows(container string) bool { return m.containers[container] != nil }
func (m *Machine) KnowsPod(uid string) bool    { return m.pods[uid] != nil }
