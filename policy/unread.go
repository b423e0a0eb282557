package policy

import (
	"cmp"
	"maps"
	"slices"
)

// Corrected is what was read of pods after a Synchronized that was answered without it.
type Corrected struct {
	Pods       []Correction          `json:"pods"`
	Containers []ContainerCorrection `json:"containers,omitempty"`
}

// Correction is what one pod was found to own or to be bound to; Recovered is nil if nothing was
// found.
type Correction struct {
	UID       string     `json:"uid"`
	Recovered *Recovered `json:"recovered,omitempty"`
}

// ContainerCorrection is what kubelet was found to have requested for one container. It applies
// only while the quota is still the one that the Synchronized assumed.
type ContainerCorrection struct {
	ID         string `json:"id"`
	Was        Quota  `json:"was"`
	LimitMilli int64  `json:"limitMilli"`
	Asked      Asked  `json:"asked"`
	// StoredLimits are the limits of ours that the runtime may store, as in Container.
	StoredLimits []int64 `json:"storedLimits,omitzero"`
	// FoundCap is the same as in Container.
	FoundCap int64 `json:"foundCap,omitempty"`
}

func (Corrected) event() {}

// Busy is the code of a refusal that is only temporary: kubelet tries again.
const Busy Code = "Busy"

// Unread counts the pods that ask to own CPUs and whose cgroups have not been read. Until then they
// stay where they are and no pod is granted CPUs: an unread pod may run on any CPU.
func (m *Machine) Unread() int { return len(m.unread) }

// UnreadUIDs lists the unread pods.
func (m *Machine) UnreadUIDs() []string {
	if len(m.unread) == 0 { // as in nearly every step
		return nil
	}
	return slices.Sorted(maps.Keys(m.unread))
}

// IsUnread reports whether a pod is unread.
func (m *Machine) IsUnread(uid string) bool { return m.unread[uid] != nil }

// refuseUnread refuses to grant CPUs while an unread pod may hold them.
func (m *Machine) refuseUnread() *Refusal {
	n := m.unreadPods()
	if n == 0 {
		return nil
	}
	return refuse(Busy, "the cgroups of %s that ran before are still being read, and may hold these CPUs; "+
		"kubelet tries again", count(n, "pod"))
}

// correct enters what was read. Pods that were found to own something come before pods that get new
// CPUs, which are placed in order of creation.
func (m *Machine) correct(e Corrected) {
	sorted := slices.SortedStableFunc(slices.Values(e.Pods), func(a, b Correction) int {
		if d := byTurn(a.Recovered, b.Recovered); d != 0 {
			return d
		}
		p, q := m.pods[a.UID], m.pods[b.UID]
		if p == nil || q == nil {
			return cmp.Compare(a.UID, b.UID)
		}
		return byAge(p, q)
	})
	for i := range sorted { // what they give up may be what an unread pod was found to own
		c := &sorted[i]
		if p := m.pods[c.UID]; p != nil && !p.unread && p.ownsMoreThan(c.Recovered) {
			m.correctKnown(p, c.Recovered)
		}
	}
	list := displacedLast(sorted, m.owned.cpus.Or(m.owned.withheld), func(c *Correction) (string, *Recovered) {
		if p := m.pods[c.UID]; p == nil || !p.unread {
			return c.UID, nil
		}
		return c.UID, c.Recovered
	})
	for i := range list {
		// All of them count as read before the first is placed.
		if p := m.pods[list[i].UID]; p != nil && p.unread {
			delete(m.unread, p.ref.UID)
		}
	}
	late := false
	for i := range list {
		c := &list[i]
		p := m.pods[c.UID]
		switch {
		case p == nil:
		case p.unread:
			late = late || c.Recovered == nil || c.Recovered.From != fromState
			m.enterRead(p, c.Recovered)
		case c.Recovered != nil:
			m.correctKnown(p, c.Recovered)
		}
	}
	m.bindFound()
	for i := range e.Containers {
		m.correctContainer(&e.Containers[i])
	}
	if late {
		m.takeBack() // for pods that were placed before these were read
	}
}

// correctContainer takes over a limit unless kubelet has changed it since.
func (m *Machine) correctContainer(in *ContainerCorrection) {
	c := m.containers[in.ID]
	if c == nil || c.asked.Quota != in.Was {
		return
	}
	c.resources.LimitMilli = in.LimitMilli
	c.asked.Quota = in.Asked.Quota
	if in.Asked.OurQuota && !c.asked.OurQuota {
		c.storedLimits, c.asked.OurQuota = in.StoredLimits, true
	}
	c.noteFound(in.FoundCap)
	if m.pinned(c.pod) {
		m.podChanged(c.pod)
	} else {
		m.containerChanged(c)
	}
}

// judgeRunning judges a running pod: it is degraded where a new pod would be refused. A pod that
// asks for CPUs while others are unread waits until they are read, and stays where it is.
func (m *Machine) judgeRunning(v *verdict, in *Pod) {
	if m.judgePod(v, in, true) != nil {
		v.pod.unread, v.pod.waits = true, true
	}
}

// admitWaiting places the pods that waited, the oldest first, once no pod is unread.
func (m *Machine) admitWaiting() {
	if len(m.unread) == 0 || m.unreadPods() > 0 {
		return
	}
	for _, p := range slices.SortedFunc(maps.Values(m.unread), byAge) {
		m.enterRead(p, nil)
	}
}

// unreadPods counts the pods in m.unread that do not merely wait for others.
func (m *Machine) unreadPods() int {
	n := 0
	for _, p := range m.unread {
		if !p.waits {
			n++
		}
	}
	return n
}

// enterRead enters an unread pod again, now that it is known what it has.
func (m *Machine) enterRead(old *pod, r *Recovered) {
	in := old.input(old.sandboxes[0])
	in.Unread, in.Recovered = false, r
	delete(m.pods, old.ref.UID)
	delete(m.unread, old.ref.UID)
	m.stopWaiting(old)
	for _, s := range old.sandboxes {
		delete(m.sandboxes, s)
	}
	order := m.order
	var v verdict
	m.judgeRunning(&v, &in)
	p := v.pod
	p.caps, p.ended = old.caps, old.ended
	p.narrowed = slices.Concat(p.narrowed, old.narrowed)
	m.enterPod(&v, &in)
	p.order, m.order = old.order, order
	p.several = p.several || old.several
	p.sandboxes = old.sandboxes
	for _, s := range old.sandboxes {
		m.sandboxes[s] = p
	}
	containers := old.inputs()
	slices.SortFunc(containers, func(a, b Container) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for i := range containers {
		delete(m.containers, containers[i].ID)
		v := verdict{pod: p, runs: true}
		_ = m.judgeContainer(&v, &containers[i], true)
		m.enterContainer(&v, &containers[i], true)
	}
}

// ownsMoreThan reports whether a pod has all CPUs that it was found to own, and others.
func (p *pod) ownsMoreThan(r *Recovered) bool {
	return p.grant != nil && r != nil && r.CPUs != nil && *r.CPUs != p.grant.cpus && r.CPUs.SubsetOf(&p.grant.cpus)
}

// correctKnown follows the kernel if it differs from the record. CPUs that other pods own stay
// theirs.
func (m *Machine) correctKnown(p *pod, r *Recovered) {
	switch {
	case p.reserved():
	case p.grant != nil && r.CPUs != nil && *r.CPUs != p.grant.cpus && !p.kubelet:
		more, free := r.CPUs.Minus(p.grant.all()), m.freeFor(&p.holder)
		if !more.SubsetOf(&free) {
			return
		}
		request := p.grant.request
		request.CPUs = cmp.Or(r.Request, r.CPUs.Count())
		whole := Resources{RequestMilli: int64(request.CPUs) * 1000, LimitMilli: int64(request.CPUs) * 1000}
		m.give(&p.holder, m.grantOf(&p.holder, *r.CPUs, request), &whole)
	case !p.owns() && p.in.class == LS && !p.in.unmanaged && m.bindRecovered(p, r):
		delete(m.bound, p.ref.UID)
		if p.nodes != nil {
			m.bound[p.ref.UID] = p
		}
		m.explain(p)
		m.podChanged(p)
	}
}
