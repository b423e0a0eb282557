package policy

import (
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// kubeletPins reports whether kubelet's static policy may own CPUs for this pod: only for an
// unlabelled Guaranteed one. For every other pod our values win.
func kubeletPins(labels map[string]string, qos QoS) bool {
	return qos == Guaranteed && labels[LabelClass] == ""
}

// kubeletCPUs are the CPUs in kubelet's entries, without those of pods that run elsewhere by our
// decision.
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

// overrule makes CPUs that kubelet booked for a pod available to us.
func (m *Machine) overrule(uid string) {
	if m.overruled[uid] || len(m.entriesOf(uid)) == 0 {
		return
	}
	m.overruled[uid] = true
	m.derive()
}

// withoutBookings returns a copy of the machine to judge on, in which kubelet's bookings for a pod do
// not count; nil if it has none. The copy shares everything that judge only reads.
func (m *Machine) withoutBookings(uid string) *Machine {
	if m.overruled[uid] || len(m.entriesOf(uid)) == 0 {
		return nil
	}
	view := *m
	view.overruled = maps.Clone(m.overruled)
	view.overruled[uid] = true
	view.derive()
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

// takeKubelets gives a pod the CPUs to which kubelet pinned it. If some of these are owned here
// already, each pinned container becomes an owner, and those whose CPUs are taken get as many free
// ones instead. It changes only the pod.
func (m *Machine) takeKubelets(v *verdict, recovered *Recovered) *Refusal {
	p := v.pod
	entries := m.entriesOf(p.ref.UID)
	if len(entries) == 0 || !kubeletPins(p.labels, p.ref.QoS) {
		return nil
	}
	p.in.class, p.nodes = LSR, nil
	p.in.request = &cpuallocator.Request{Strategy: m.cfg.Allocation.Strategy} // kubelet knows no policy of ours
	if r := recovered; r != nil && m.adoptAll(p, r) {
		return nil // moved by us before the restart
	}
	wants := union(entries)
	taken := m.ownedByOthers(&p.holder, wants)
	if taken.IsEmpty() {
		p.kubelet, p.entries = true, entries
		return nil
	}
	if err := m.pin(v, entries); err != nil {
		p.in.class, p.holders = LS, nil
		return refuse(KubeletOwned,
			"kubelet's static policy pinned the pod to CPUs %s, of which %s are owned by other pods here, and %s",
			wants, taken, err.Message)
	}
	return nil
}

// pin makes owners of the containers that kubelet pinned and that are not owners yet: of kubelet's
// CPUs, or of other CPUs if those are taken.
func (m *Machine) pin(v *verdict, entries map[string]cpuset.Set) *Refusal {
	p, view := v.pod, m
	if p.holders == nil {
		p.holders = make(map[string]*holder, len(entries))
	}
	var collided []*holder
	for _, name := range sortedKeys(entries) {
		if p.holders[name] != nil {
			continue
		}
		h, wants := &holder{pod: p, name: name}, entries[name]
		p.holders[name] = h
		if taken := view.ownedByOthers(h, wants); !taken.IsEmpty() {
			collided = append(collided, h)
			continue
		}
		r := *p.in.request
		r.CPUs = wants.Count()
		h.grant = &grant{cpus: wants, request: r}
		view = view.withGrant(h)
	}
	for _, h := range collided {
		wants := entries[h.name]
		taken := view.ownedByOthers(h, wants)
		g, err := view.replace(h, wants, union(entries))
		if err != nil {
			delete(p.holders, h.name)
			return err
		}
		h.grant = g
		view = view.withGrant(h)
		v.note("KubeletPinMoved",
			"kubelet's static policy pinned container %s to CPUs %s, of which %s are owned by other pods; it runs "+
				"on %s instead", literal(h.name), wants, taken, g.cpus)
	}
	return nil
}

func (m *Machine) ownedByOthers(h *holder, cpus cpuset.Set) cpuset.Set {
	var taken cpuset.Set
	for _, o := range m.exclusive {
		if o != h {
			taken.AddSet(&o.grant.cpus)
			taken.AddSet(&o.grant.withheld)
		}
	}
	return taken.And(cpus)
}

// replace finds free CPUs for a container whose CPUs, chosen by kubelet, are taken. All CPUs that
// kubelet gave to its pod count as free unless another pod owns them.
func (m *Machine) replace(h *holder, wants, all cpuset.Set) (*grant, *Refusal) {
	online := m.topo.Online()
	others := m.ownedByOthers(h, online)
	ours := all.And(online).Minus(others).Minus(m.pools.Withheld).Minus(m.pools.Foreign)
	free := m.free().Or(ours).Minus(m.cfg.reserved()).Minus(m.cfg.System.CPUs).Minus(m.bookedForOthers(h.pod))
	r := *h.pod.in.request
	r.CPUs = wants.Count()
	c := claimBooked(h, all)
	result, err := m.alloc.Allocate(free, m.held(h), r)
	if err != nil {
		return nil, err
	}
	if m.breaksFloors(c, &result, &cpuset.Set{}) {
		if second, err := m.alloc.Allocate(m.spare(c, free), m.held(h), r); err == nil {
			result = second
		}
	}
	g := &grant{cpus: result.CPUs, withheld: result.Withheld, request: r}
	return g, m.mayOwn(c, g, cpuset.Set{}) // while the pod waited, kubelet's CPUs were in the shared pool
}

// claimBooked is a claim for CPUs that replace those that kubelet gave to containers of a pod.
func claimBooked(h *holder, all cpuset.Set) claim {
	c := claim{holder: h}
	if sums := h.pod.resources; sums != nil {
		c.rest = max(sums.RequestMilli-1000*int64(all.Count()), 0)
	}
	return c
}

// bookedForOthers are the CPUs in kubelet's state of pods that may still use them: of all except
// the pods that run elsewhere by our decision.
func (m *Machine) bookedForOthers(p *pod) cpuset.Set {
	var booked cpuset.Set
	for uid, entries := range m.kubelet.Entries {
		o := m.pods[uid]
		if uid == p.ref.UID || o != nil && (o.owns() || !kubeletPins(o.labels, o.ref.QoS)) {
			continue
		}
		booked = booked.Or(union(entries))
	}
	return booked
}

// kubeletNeed is where a container that kubelet pinned has to run; the pod itself (name "") only if
// all of its containers are pinned.
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

// kubeletState applies kubelet's newest state. Running pods keep running: if a collision cannot be
// resolved, the pod runs in the shared pool.
func (m *Machine) kubeletState(e KubeletState) {
	was := m.kubelet
	m.kubelet = e
	var changed []*pod
	for _, p := range ordered(m.pods) {
		if !kubeletPins(p.labels, p.ref.QoS) || p.reserved() {
			continue
		}
		after := m.entriesOf(p.ref.UID)
		if m.pinMore(p, after) {
			changed = append(changed, p)
			continue
		}
		if !m.kubeletChanged(p, was.Entries[p.ref.UID], after) {
			if p.degraded != "" {
				m.refreshWhy(p) // kubelet's state decides whether it waits
			}
			continue
		}
		m.releaseAll(p)
		m.stopWaiting(p)
		p.kubelet, p.entries, p.in.class, p.degraded, p.holders = false, nil, LS, "", nil
		m.derive()
		v := verdict{pod: p}
		if err := m.takeKubelets(&v, nil); err != nil {
			m.fallBack(&v, err)
		}
		if !p.kubelet && !p.owns() && p.degraded == "" {
			p.degraded = m.denied(p)
		}
		m.publishNotices(&v)
		if p.nodes == nil {
			delete(m.bound, p.ref.UID)
		}
		if p.kubelet {
			delete(m.overruled, p.ref.UID)
		}
		if p.owns() {
			m.ownAll(p)
			m.derive()
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

// pinMore follows when kubelet has pinned more containers of a pod that runs elsewhere by our
// decision: kubelet pins them one by one. CPUs that other pods have stay theirs.
func (m *Machine) pinMore(p *pod, entries map[string]cpuset.Set) bool {
	if p.holders == nil || !p.owns() || len(entries) == 0 {
		return false
	}
	before := len(p.holders)
	v := verdict{pod: p}
	if err := m.pin(&v, entries); err != nil {
		v.note(string(err.Code), "kubelet's static policy pinned more containers of the pod, and %s", err.Message)
	}
	m.publishNotices(&v)
	m.ownAll(p)
	m.derive()
	return len(p.holders) > before
}

// adoptPin takes over a pin that arrives with a container, before kubelet's state file has been
// read again. Under the static policy every container of a Guaranteed pod that requests whole CPUs
// is pinned, to as many as it requests.
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

// kubeletChanged reports whether a pod's entries require a new decision. A pod that was moved, or
// could not be, stays as it is while its entries are unchanged.
func (m *Machine) kubeletChanged(p *pod, was, is map[string]cpuset.Set) bool {
	switch {
	case p.kubelet:
		return !maps.Equal(p.entries, is)
	case p.owns():
		return len(is) == 0
	case len(is) == 0:
		return false
	}
	return p.degraded == "" || !maps.Equal(was, is)
}

// sortedKeys makes decisions independent of the order of a map. Each container's creation asks for a few,
// most of them of empty maps, for which slices.Sorted allocates five times.
func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
