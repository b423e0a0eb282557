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

// Correction is what one pod was found to own or to be bound to; Recovered is nil
// where nothing was found.
type Correction struct {
	UID       string     `json:"uid"`
	Recovered *Recovered `json:"recovered,omitempty"`
}

// ContainerCorrection is what kubelet was found to have asked for of one container. It
// counts where the quota is still the one that the Synchronized took it for.
type ContainerCorrection struct {
	ID         string `json:"id"`
	Was        Quota  `json:"was"`
	LimitMilli int64  `json:"limitMilli"`
	Asked      Asked  `json:"asked"`
	// StoredLimits is what the runtime may store of ours, as in Container.
	StoredLimits []int64 `json:"storedLimits,omitzero"`
}

func (Corrected) event() {}

// Busy refuses what can be done a moment later: kubelet tries again.
const Busy Code = "Busy"

// Unread counts the pods that ask to own CPUs and of which it is not known yet what
// they have. Until it is, they stay where they are and nobody is given CPUs of its own:
// an unread pod may run anywhere.
func (m *Machine) Unread() int { return len(m.unread) }

// UnreadUIDs lists them.
func (m *Machine) UnreadUIDs() []string { return slices.Sorted(maps.Keys(m.unread)) }

// IsUnread says that a pod is one of them.
func (m *Machine) IsUnread(uid string) bool { return m.unread[uid] != nil }

// refuseUnread refuses to give CPUs while somebody unread may hold them.
func (m *Machine) refuseUnread() *Refusal {
	n := m.unreadPods()
	if n == 0 {
		return nil
	}
	return refuse(Busy, "the cgroups of %s that ran before are still being read, and may hold these CPUs; "+
		"it is tried again", count(n, "pod"))
}

// correct enters what was read. Pods that were found to own something come before
// those that get new CPUs, which are placed in order of creation.
func (m *Machine) correct(e Corrected) {
	list := slices.Clone(e.Pods)
	slices.SortStableFunc(list, func(a, b Correction) int {
		if d := cmp.Compare(turn(a.Recovered), turn(b.Recovered)); d != 0 {
			return d
		}
		p, q := m.pods[a.UID], m.pods[b.UID]
		if p == nil || q == nil {
			return cmp.Compare(a.UID, b.UID)
		}
		return byAge(p, q)
	})
	for i := range list {
		// They are read, all of them, before the first is placed.
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
		m.takeBack() // for pods that came while it was not known what these have
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
	if m.pinned(c.pod) {
		m.podChanged(c.pod)
	} else {
		m.containerChanged(c)
	}
}

// judgeRunning looks at a pod that runs: what would be refused is degraded. One that asks
// for CPUs while others are unread waits until they are read, and stays where it is.
func (m *Machine) judgeRunning(v *verdict, in *Pod) {
	if m.judgePod(v, in, true) != nil {
		v.pod.unread, v.pod.waits = true, true
	}
}

// admitWaiting places the pods that waited, the oldest first, when nothing is unread any more.
func (m *Machine) admitWaiting() {
	if len(m.unread) == 0 || m.unreadPods() > 0 {
		return
	}
	for _, p := range slices.SortedFunc(maps.Values(m.unread), byAge) {
		m.enterRead(p, nil)
	}
}

// unreadPods counts those of m.unread that do not merely wait for the others.
func (m *Machine) unreadPods() int {
	n := 0
	for _, p := range m.unread {
		if !p.waits {
			n++
		}
	}
	return n
}

// enterRead enters an unread pod anew, now that it is known what it has.
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

// correctKnown follows the kernel where it says something else than the record. CPUs
// that others own stay theirs.
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
