package policy

import "github.com/quietcore/quietcore/cpuset"

// HasOwners reports whether any pod owns CPUs.
func (m *Machine) HasOwners() bool { return len(m.exclusive) > 0 }

// ForbiddenCPUs returns the CPUs in may that are owned and that the pod must not run on: if its cgroup may
// use them, a container that starts now would start on another pod's CPUs. Owners in fresh, by UID,
// do not count: none of their containers has started yet, and they wait until all other pods have
// left. An unmanaged pod may run anywhere. masked means that the container runs in the pool while
// other containers of its pod own CPUs, and it must not run on those.
func (m *Machine) ForbiddenCPUs(uid string, masked bool, may cpuset.Set, fresh map[string]bool) cpuset.Set {
	p := m.pods[uid]
	if p == nil || p.in.unmanaged || !may.Intersects(&m.pools.Exclusive) { // as nearly always
		return cpuset.Set{}
	}
	place, own := m.ownOf(p, "")
	if !own {
		place = m.pools.of(m.poolOf(p))
		if !masked {
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
	return rest.And(theirs.Or(m.pools.Kubelet).Or(m.pools.Foreign))
}

// ownedIn returns the CPUs that containers of a pod own.
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
	own = own.Or(m.claimedCPUs(p))
	return own.And(m.topo.Online())
}

// Mixed reports whether containers of a pod own CPUs of their own: the pod's cgroup then has the
// CPUs of all of them, and those of the pool if other containers of the pod share it.
func (m *Machine) Mixed(uid string) bool {
	p := m.pods[uid]
	return p != nil && (p.kubelet || p.holders != nil || len(p.claims) > 0)
}

// Knows reports whether a container is in the machine, KnowsPod whether a pod is.
func (m *Machine) Knows(container string) bool { return m.containers[container] != nil }
func (m *Machine) KnowsPod(uid string) bool    { return m.pods[uid] != nil }
