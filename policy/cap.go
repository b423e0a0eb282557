package policy

import (
	"slices"
	"time"
)

// judgeCap computes the cap for a container until a deadline. A later verdict never loosens a
// tighter cap in force; it may extend its deadline.
func (m *Machine) judgeCap(v *verdict, now time.Time, e CapVerdict) *Refusal {
	c := m.containers[e.ID]
	if c == nil {
		return refuse(InvalidRequest, "cap: container %s does not run", literal(e.ID))
	}
	p := c.pod
	if !m.mayCap(p) && !p.in.exempt {
		return refuse(InvalidRequest,
			"cap: container %s is of class %s; only BE containers may be capped, and those of pods that allow it by "+
				"annotation %s: allow", literal(c.ref.Name), p.in.class, AnnCap)
	}
	if p.in.exempt {
		return refuse(Unauthorized, "cap: pod %s/%s is exempt by annotation %s, which its namespace may use",
			literal(p.ref.Namespace), literal(p.ref.Name), AnnCap)
	}
	if e.Milli <= 0 || e.For <= 0 {
		return refuse(InvalidRequest, "cap: %dm for %s: both must be above 0", e.Milli, e.For)
	}
	limit := c.resources.LimitMilli
	next := Cap{PodUID: p.ref.UID, Container: c.ref.Name, Milli: max(e.Milli, c.leastCap()), Until: now.Add(e.For),
		Limit: &limit, Request: c.resources.RequestMilli}
	if old, ok := p.caps[c.ref.Name]; ok {
		next.Milli = min(next.Milli, old.Milli)
		if old.Until.After(next.Until) {
			next.Until = old.Until
		}
	}
	v.pod, v.cap = p, next
	return nil
}

// mayCap reports whether a pod may be capped to protect other pods. The request of a pod with a CPU claim leaves the
// claim out, so it is not what protects the pod.
func (m *Machine) mayCap(p *pod) bool {
	return p.cappable() || m.cfg.ProtectRequest && !p.in.unmanaged && !p.in.exempt && len(p.claims) == 0
}

// leastCap is the lower bound of any cap on a container: its request, if the pod is neither best
// effort nor allows caps.
func (c *container) leastCap() int64 {
	if c.pod.cappable() {
		return 0
	}
	return c.resources.RequestMilli
}

// cappable reports whether a pod may be capped below its request to protect other pods.
func (p *pod) cappable() bool {
	return !p.in.unmanaged && !p.in.exempt && (p.in.class == BE || p.in.capped)
}

// releaseCap ends a cap before its deadline. A cap that does not exist was ended already.
func (m *Machine) releaseCap(id string) {
	c := m.containers[id]
	if c == nil {
		return
	}
	if _, ok := c.pod.caps[c.ref.Name]; ok {
		m.endCap(c.pod, c.ref.Name)
	}
}

// endLimits ends every cap, and whatever keeps best effort off CPUs of its pool, or on otherwise idle ones.
func (m *Machine) endLimits() {
	for _, p := range ordered(m.pods) {
		for _, name := range sortedKeys(p.caps) {
			m.endCap(p, name)
		}
	}
	m.suppress(BESuppressed{})
	for _, uid := range sortedKeys(m.be.away) {
		m.letBack(uid)
	}
	for _, uid := range sortedKeys(m.be.idled) {
		m.wake(uid)
	}
	if len(m.be.keptOff) > 0 {
		m.be.keptOff = nil
		m.recompute()
	}
}

// endCap ends a cap. The cap is remembered until no cgroup or runtime store can still have it.
func (m *Machine) endCap(p *pod, name string) {
	c := p.caps[name]
	delete(p.caps, name)
	m.caps--
	p.noteEnded(c)
	m.named(p, name)
}

func (p *pod) noteEnded(c Cap) {
	if c.Limit == nil {
		return
	}
	if p.ended == nil {
		p.ended = map[string]Cap{}
	}
	c.Until = time.Time{} // it stays ended, even if the clock is set back
	p.ended[c.Container] = c
}

// noteFound records a cap that no record has: until it is undone, a daemon that starts has to know of it.
func (c *container) noteFound(milli int64) {
	p, name := c.pod, c.ref.Name
	_, capped := p.caps[name]
	if _, ended := p.ended[name]; milli == 0 || capped || ended {
		return
	}
	limit := c.resources.LimitMilli
	p.noteEnded(Cap{PodUID: p.ref.UID, Container: name, Milli: milli, Limit: &limit, Request: c.resources.RequestMilli})
}

// follow updates a container's caps to the limit and request that kubelet last set.
func (c *container) follow() {
	limit := c.resources.LimitMilli
	for _, caps := range []map[string]Cap{c.pod.caps, c.pod.ended} {
		if cap, ok := caps[c.ref.Name]; ok {
			cap.Limit, cap.Request = &limit, c.resources.RequestMilli
			cap.Milli = max(cap.Milli, c.leastCap())
			caps[c.ref.Name] = cap
		}
	}
}

// keepCaps drops the caps that a pod may no longer have, since its class may have changed.
func (m *Machine) keepCaps(p *pod) {
	for _, name := range sortedKeys(p.caps) {
		if !m.mayCap(p) {
			m.endCap(p, name)
		} else if c := p.containers[name]; c != nil {
			c.follow()
		}
	}
}

// named decides anew all containers of one name: an old one may still run next to its successor.
func (m *Machine) named(p *pod, name string) {
	for _, id := range sortedKeys(p.all) {
		if c := p.all[id]; c.ref.Name == name {
			m.containerChanged(c)
		}
	}
}

func (m *Machine) setCap(p *pod, c Cap) {
	if p.caps == nil {
		p.caps = map[string]Cap{}
	}
	if _, ok := p.caps[c.Container]; !ok {
		m.caps++
	}
	p.caps[c.Container] = c
	delete(p.ended, c.Container)
}

// sleptThrough lets the deadlines of what the detector asked for come nearer by the time that the machine slept.
func (m *Machine) sleptThrough(now time.Time, slept time.Duration) {
	nearer := func(until time.Time) time.Time { return now.Add(until.Sub(now) - slept) }
	for _, p := range m.pods {
		for name, c := range p.caps {
			c.Until = nearer(c.Until)
			p.caps[name] = c
			m.news = true
		}
	}
	for victim, k := range m.be.keptOff {
		k.until = nearer(k.until)
		m.be.keptOff[victim] = k
	}
	for pod, a := range m.be.away {
		a.until = nearer(a.until)
		m.be.away[pod] = a
	}
}

// expireCaps ends every cap whose deadline has passed.
func (m *Machine) expireCaps(now time.Time) {
	if m.caps == 0 {
		return
	}
	for _, p := range ordered(m.pods) {
		for _, name := range sortedKeys(p.caps) {
			if now.Before(p.caps[name].Until) {
				continue
			}
			m.endCap(p, name)
		}
	}
}

// Caps lists the caps in force.
func (m *Machine) Caps() []Cap { return m.listCaps(func(p *pod) map[string]Cap { return p.caps }) }

// endedCaps lists ended caps that a cgroup or the runtime's store may still have.
func (m *Machine) endedCaps() []Cap {
	return m.listCaps(func(p *pod) map[string]Cap { return p.ended })
}

func (m *Machine) listCaps(of func(*pod) map[string]Cap) []Cap {
	var capped []*pod
	for _, p := range m.pods {
		if len(of(p)) > 0 {
			capped = append(capped, p)
		}
	}
	slices.SortFunc(capped, byAge)
	var caps []Cap
	for _, p := range capped {
		for _, name := range sortedKeys(of(p)) {
			caps = append(caps, of(p)[name])
		}
	}
	return slices.Clip(caps)
}
