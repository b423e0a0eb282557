package policy

import (
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// kubeletPins says whether kubelet's static policy may own CPUs for this pod:
// only an unlabelled Guaranteed one. For every other pod our values win.
func kubeletPins(labels map[string]string, qos QoS) bool {
	return qos == Guaranteed && labels[LabelClass] == ""
}

// kubeletCPUs are the CPUs of kubelet's entries, less those of pods that run
// elsewhere by our decision.
func (m *Machine) kubeletCPUs() cpuset.Set {
	var s cpuset.Set
	if m.kubelet.PolicyName != "static" {
		return s
	}
	for uid, entries := range m.kubelet.Entries {
		if p := m.pods[uid]; m.overruled[uid] || p != nil && !p.kubelet {
			continue
		}
		for _, cpus := range entries {
			s.AddSet(&cpus)
		}
	}
	return s
}

// overrule makes what kubelet booked for a pod ours to use.
func (m *Machine) overrule(uid string) {
	if m.overruled[uid] || len(m.entriesOf(uid)) == 0 {
		return
	}
	m.overruled[uid] = true
	m.pools = m.derive()
}

// overruling is a copy of the machine to judge on, where kubelet's bookings for a pod do
// not count; nil where it has none that do. It shares all that judge only reads.
func (m *Machine) overruling(uid string) *Machine {
	if m.overruled[uid] || len(m.entriesOf(uid)) == 0 {
		return nil
	}
	view := *m
	view.overruled = maps.Clone(m.overruled)
	view.overruled[uid] = true
	view.pools = view.derive()
	return &view
}

func (m *Machine) entriesOf(uid string) map[string]cpuset.Set {
	if m.kubelet.PolicyName != "static" {
		return nil
	}
	return m.kubelet.Entries[uid]
}

func union(entries map[string]cpuset.Set) cpuset.Set {
	var s cpuset.Set
	for _, cpus := range entries {
		s.AddSet(&cpus)
	}
	return s
}

// takeKubelets gives a pod that kubelet pinned its CPUs. Where they are ours
// already it gets as many free ones from us. It changes the pod only.
func (m *Machine) takeKubelets(v *verdict, recovered *Recovered) *Refusal {
	p := v.pod
	entries := m.entriesOf(p.ref.UID)
	if len(entries) == 0 || !kubeletPins(p.labels, p.ref.QoS) {
		return nil
	}
	p.in.class, p.nodes = LSR, nil
	p.in.request = &cpuallocator.Request{Strategy: m.cfg.Allocation.Strategy} // kubelet knows no policy of ours
	if r := recovered; r != nil && m.adopt(p, r) {
		return nil // moved by us before the restart
	}
	wants := union(entries)
	taken := m.ownedByOthers(p, wants)
	if taken.IsEmpty() {
		p.kubelet, p.entries = true, entries
		return nil
	}
	g, err := m.replace(p, wants)
	if err != nil {
		p.in.class = LS
		return refuse(KubeletOwned,
			"kubelet's static policy pinned the pod to CPUs %s, of which %s are owned by other pods here, and %s",
			wants, taken, err.Message)
	}
	p.grant = g
	v.note("KubeletPinMoved",
		"kubelet's static policy pinned the pod to CPUs %s, of which %s are owned by other pods here; it runs on %s "+
			"instead", wants, taken, g.cpus)
	return nil
}

func (m *Machine) ownedByOthers(p *pod, cpus cpuset.Set) cpuset.Set {
	var taken cpuset.Set
	for _, o := range m.exclusive {
		if o != p {
			taken.AddSet(&o.grant.cpus)
			taken.AddSet(&o.grant.withheld)
		}
	}
	return taken.And(cpus)
}

// replace finds free CPUs for a pod whose own, chosen by kubelet, are taken.
// Those of its CPUs that no other pod has count as free.
func (m *Machine) replace(p *pod, wants cpuset.Set) (*grant, *Refusal) {
	online := m.topo.Online()
	others := m.ownedByOthers(p, online)
	ours := wants.And(online).Minus(others).Minus(m.pools.Withheld)
	free := m.free().Or(ours).Minus(m.cfg.reserved()).Minus(m.cfg.System.CPUs).Minus(m.bookedForOthers(p))
	r := *p.in.request
	r.CPUs = wants.Count()
	result, err := m.alloc.Allocate(free, m.held(p), r)
	if err != nil {
		return nil, err
	}
	g := &grant{cpus: result.CPUs, withheld: result.Withheld, request: r}
	return g, m.mayOwn(p, g, ours)
}

// bookedForOthers are the CPUs that kubelet's state gives to pods that may still
// take them: all but those that run elsewhere by our decision.
func (m *Machine) bookedForOthers(p *pod) cpuset.Set {
	var booked cpuset.Set
	for uid, entries := range m.kubelet.Entries {
		o := m.pods[uid]
		if uid == p.ref.UID || o != nil && (o.grant != nil || !kubeletPins(o.labels, o.ref.QoS)) {
			continue
		}
		booked = booked.Or(union(entries))
	}
	return booked
}

// kubeletNeed is where a container that kubelet pinned has to run; the pod
// itself (name "") only where all of its containers are pinned.
func (m *Machine) kubeletNeed(p *pod, name string) (cpuset.Set, bool) {
	online := m.topo.Online()
	if name != "" {
		own, ok := p.entries[name]
		own = own.And(online)
		return own, ok && !own.IsEmpty()
	}
	for c := range p.containers {
		if _, ok := p.entries[c]; !ok {
			return cpuset.Set{}, false
		}
	}
	own := union(p.entries).And(online)
	return own, !own.IsEmpty()
}

// kubeletState takes over kubelet's newest state. Pods that run keep running: a
// collision that cannot be resolved leaves the pod in the shared pool.
func (m *Machine) kubeletState(e KubeletState) {
	was := m.kubelet
	m.kubelet = e
	var changed []*pod
	for _, p := range ordered(m.pods) {
		if !kubeletPins(p.labels, p.ref.QoS) || p.reserved() {
			continue
		}
		after := m.entriesOf(p.ref.UID)
		if !m.kubeletChanged(p, was.Entries[p.ref.UID], after) {
			if p.degraded != "" {
				m.retell(p) // whether it waits is as kubelet says
			}
			continue
		}
		m.release(p)
		p.kubelet, p.entries, p.in.class, p.degraded = false, nil, LS, ""
		m.pools = m.derive()
		v := verdict{pod: p}
		if err := m.takeKubelets(&v, nil); err != nil {
			m.fallBack(&v, err)
		}
		if !p.kubelet && p.grant == nil && p.degraded == "" {
			p.degraded = m.denied(p)
		}
		m.publishNotices(&v)
		if p.nodes == nil {
			delete(m.bound, p.ref.UID)
		}
		if p.kubelet {
			delete(m.overruled, p.ref.UID)
		}
		if p.grant != nil {
			m.own(p)
			m.pools = m.derive()
		}
		changed = append(changed, p)
	}
	m.recompute()
	for _, p := range changed {
		m.explain(p)
		m.podChanged(p)
	}
	m.decideAllFound()
}

// adoptPin takes over a pin that comes with the container before kubelet's state
// file has been read again. Under the static policy every container of whole CPUs of
// a Guaranteed pod is pinned, to as many as it requests.
func (m *Machine) adoptPin(p *pod, c *Container) {
	if m.kubelet.PolicyName != "static" || c.CPUs == "" || p.grant != nil || p.degraded != "" ||
		!kubeletPins(p.labels, p.ref.QoS) {
		return
	}
	if _, known := m.kubelet.Entries[p.ref.UID][c.Name]; known {
		return
	}
	cpus, err := cpuset.Parse(c.CPUs)
	known := m.topo.Known()
	if err != nil || cpus.IsEmpty() || int64(cpus.Count())*1000 != c.Resources.RequestMilli || !cpus.SubsetOf(&known) {
		return
	}
	next := m.kubelet
	next.Entries = maps.Clone(next.Entries)
	if next.Entries == nil {
		next.Entries = map[string]map[string]cpuset.Set{}
	}
	of := maps.Clone(next.Entries[p.ref.UID])
	if of == nil {
		of = map[string]cpuset.Set{}
	}
	of[c.Name] = cpus
	next.Entries[p.ref.UID] = of
	m.kubeletState(next)
}

// kubeletChanged says whether a pod's entries call for another decision. One that
// was moved, or could not be, stays as it is while kubelet says the same.
func (m *Machine) kubeletChanged(p *pod, was, is map[string]cpuset.Set) bool {
	switch {
	case p.kubelet:
		return !maps.Equal(p.entries, is)
	case p.grant != nil:
		return len(is) == 0
	case len(is) == 0:
		return false
	}
	return p.degraded == "" || !maps.Equal(was, is)
}

// sortedKeys keeps decisions from depending on the order of a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
