package policy

import (
	"slices"
	"time"
)

// judgeCap finds the cap that quiets a BE container until a deadline. A tighter cap in
// force is never loosened by a later verdict; its deadline may move out.
func (m *Machine) judgeCap(v *verdict, now time.Time, e CapVerdict) *Refusal {
	c := m.containers[e.ID]
	if c == nil {
		return refuse(InvalidRequest, "cap: no container %s runs", literal(e.ID))
	}
	p := c.pod
	if !p.cappable() && !p.in.exempt {
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
	next := Cap{PodUID: p.ref.UID, Container: c.ref.Name, Milli: e.Milli, Until: now.Add(e.For)}
	if old, ok := p.caps[c.ref.Name]; ok {
		next.Milli = min(next.Milli, old.Milli)
		if old.Until.After(next.Until) {
			next.Until = old.Until
		}
	}
	v.pod, v.cap = p, next
	return nil
}

// cappable says that a pod may be quieted for others' sake.
func (p *pod) cappable() bool {
	return !p.in.unmanaged && !p.in.exempt && (p.in.class == BE || p.in.capped)
}

// releaseCap ends a cap before its time. One that is not there was undone already.
func (m *Machine) releaseCap(id string) {
	c := m.containers[id]
	if c == nil {
		return
	}
	if _, ok := c.pod.caps[c.ref.Name]; !ok {
		return
	}
	delete(c.pod.caps, c.ref.Name)
	m.caps--
	m.named(c.pod, c.ref.Name)
}

// named decides anew every container of one name: an old one may still run
// beside its successor.
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
}

// expireCaps undoes every cap whose deadline has come.
func (m *Machine) expireCaps(now time.Time) {
	if m.caps == 0 {
		return
	}
	for _, p := range ordered(m.pods) {
		for _, name := range sortedKeys(p.caps) {
			if now.Before(p.caps[name].Until) {
				continue
			}
			delete(p.caps, name)
			m.caps--
			m.named(p, name)
		}
	}
}

// Caps lists the caps in force, for the state file.
func (m *Machine) Caps() []Cap {
	var caps []Cap
	for _, p := range ordered(m.pods) {
		for _, name := range sortedKeys(p.caps) {
			caps = append(caps, p.caps[name])
		}
	}
	return slices.Clip(caps)
}
