package policy

import "github.com/quietcore/quietcore/cpuset"

// HasOwners reports whether some pod owns CPUs.
func (m *Machine) HasOwners() bool { return len(m.exclusive) > 0 }

// Beyond returns the CPUs of owners among may on which a pod has no place: a container of
// it that starts while its cgroup may have them starts on CPUs of others. Of the owners
// in fresh, by UID, no container has started yet: they wait until all others have left. A
// pod that is not managed runs where it likes.
func (m *Machine) Beyond(uid string, may cpuset.Set, fresh map[string]bool) cpuset.Set {
	p := m.pods[uid]
	if p == nil || p.in.unmanaged {
		return cpuset.Set{}
	}
	place, own := m.ownOf(p, "")
	if !own {
		place = m.pools.of(m.poolOf(p))
	}
	rest := may.And(m.pools.Exclusive).Minus(place)
	if rest.IsEmpty() || len(fresh) == 0 {
		return rest
	}
	var theirs cpuset.Set
	for id, owner := range m.exclusive {
		if !fresh[id] {
			theirs.AddSet(&owner.grant.cpus)
		}
	}
	return rest.And(theirs.Or(m.pools.Kubelet))
}

// Knows reports whether a container is in the machine, KnowsPod whether a pod is.
func (m *Machine) Knows(container string) bool { return m.containers[container] != nil }
func (m *Machine) KnowsPod(uid string) bool    { return m.pods[uid] != nil }
