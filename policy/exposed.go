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
	need, pool := m.needOf(p, "")
	if need.Own != nil {
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
		if _, its := m.needOf(other, ""); its != pool {
			return true // the slice's mask is as wide as both need
		}
	}
	return false
}

// slicePool is the pool whose mask the slice of a Kubernetes class carries.
func slicePool(qos QoS) PoolKind {
	if qos == BestEffort {
		return PoolBE
	}
	return PoolShared
}
