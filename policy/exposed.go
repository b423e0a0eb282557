package policy

// HasOwners reports whether some pod owns CPUs.
func (m *Machine) HasOwners() bool { return len(m.exclusive) > 0 }

// Exposed reports whether a pod that owns nothing would run on CPUs of owners
// without a mask of its own: there are owners, and what the pod needs is not what
// its slice's mask leaves to everybody in it. Pods of the class Guaranteed lie in no
// slice. A container of such a pod must not start before the pod has its mask.
func (m *Machine) Exposed(uid string) bool {
	p := m.pods[uid]
	if p == nil || len(m.exclusive) == 0 || p.in.unmanaged {
		return false
	}
	pool := m.kindOf(p)
	if pool == PoolExclusive {
		return false
	}
	if p.ref.QoS == Guaranteed {
		return true
	}
	if pool != slicePool(p.ref.QoS) {
		return true
	}
	for _, other := range m.pods {
		if other.ref.QoS != p.ref.QoS || other == p {
			continue
		}
		if m.kindOf(other) != pool {
			return true // the slice's mask is as wide as both need
		}
	}
	return false
}

// kindOf is where a pod runs; PoolExclusive: on CPUs of its own.
func (m *Machine) kindOf(p *pod) PoolKind {
	if _, own := m.ownOf(p, ""); own {
		return PoolExclusive
	}
	if p.in.unmanaged {
		return PoolUnmanaged
	}
	return m.poolOf(p)
}

// slicePool is the pool whose mask the slice of a Kubernetes class carries.
func slicePool(qos QoS) PoolKind {
	if qos == BestEffort {
		return PoolBE
	}
	return PoolShared
}
