package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// healing is the state of the holders that wait for CPUs, and of the CPUs that are free.
type healing struct {
	now     time.Time          // of the step
	waiting map[string]*holder // by ID; since is set on each of them
	again   bool               // something may have changed since all of them were last tried
	wasFree cpuset.Set         // free CPUs after the last step, if cfg.HealAfter is set
	freed   []Freed            // CPUs that became free less than HealAfter ago
	moved   time.Time          // when an owner was last moved to a better place
	// trying: a waiting holder must not block another one, so the requests of all of them do not
	// count.
	trying bool
	// hidden are CPUs that do not count as free while a holder is tried.
	hidden cpuset.Set
}

// Freed are CPUs that are free and were in use before Since.
type Freed struct {
	CPUs  cpuset.Set `json:"cpus"`
	Since time.Time  `json:"since"`
}

// lacks is the number of CPUs that a holder waits for: those that it was refused, or that went
// offline; 0: it does not wait.
func (m *Machine) lacks(h *holder) int {
	if !m.heals(h.pod) {
		return 0
	}
	if h.grant != nil {
		online := m.topo.Online()
		return max(h.grant.request.CPUs-h.grant.cpus.CountAnd(&online), 0)
	}
	asks := h.pod.resources
	if h.name != "" {
		asks = &h.asks
	}
	if h.degraded == "" || asks == nil {
		return 0
	}
	return int(min(max(asks.RequestMilli+999, 0)/1000, cpuset.MaxCPUs))
}

// heals reports whether a pod asks to own CPUs and is to get them later if it has none.
func (m *Machine) heals(p *pod) bool {
	if m.cfg.NoHeal || p.annots[AnnHeal] == healOff || p.annots[AnnManaged] == "false" || p.unread || p.kubelet ||
		p.reserved() {
		return false
	}
	in := Pod{Labels: p.labels}
	return in.Exclusive() || kubeletPins(p.labels, p.ref.QoS) && (p.owns() || len(m.entriesOf(p.ref.UID)) > 0)
}

// noteWaiting records whether a holder waits.
func (m *Machine) noteWaiting(h *holder) {
	id := h.id()
	if m.lacks(h) == 0 {
		if m.waiting[id] != nil {
			m.views.ownersStale = true
		}
		delete(m.waiting, id)
		h.since = time.Time{}
		return
	}
	if h.since.IsZero() {
		h.since = m.now
	}
	if m.waiting[id] != h {
		m.again = true
	}
	m.waiting[id] = h
	m.views.ownersStale = true
}

// stopWaiting drops a pod and its containers from the waiting holders.
func (m *Machine) stopWaiting(p *pod) {
	delete(m.waiting, p.ref.UID)
	for _, h := range p.holders {
		delete(m.waiting, h.id())
	}
}

// Waiting is a pod, or a container of one, that waits for CPUs of its own.
type Waiting struct {
	PodUID    string    `json:"podUID"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container,omitempty"` // empty: the pod as a whole
	CPUs      int       `json:"cpus"`                // how many it waits for
	Since     time.Time `json:"since"`
}

// waitingViews lists the waiting holders, the oldest first, which is the order in which they are
// tried.
func (m *Machine) waitingViews() []Waiting {
	var list []Waiting
	for _, h := range orderedHolders(m.waiting) {
		p := h.pod.ref
		list = append(list, Waiting{PodUID: p.UID, Namespace: p.Namespace, Pod: p.Name, Container: h.name,
			CPUs: m.lacks(h), Since: h.since.UTC()})
	}
	return list
}

// waitsFor describes what a holder waits for; empty: nothing.
func (m *Machine) waitsFor(h *holder) string {
	n := m.lacks(h)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; waiting for %s since %s", count(n, "CPU"), h.since.UTC().Format(time.RFC3339))
}

// heal ends a step: the oldest waiting holder for which there are CPUs gets them. A holder that
// does not fit does not block the others. Nothing else moves.
func (m *Machine) heal(e Event, v *verdict) {
	m.noteFree()
	if len(m.waiting) == 0 {
		m.again = false
		return
	}
	switch e.(type) {
	case PodRun, PodRemoved, PodVanished, PodFacts, ContainerCreate, ContainerUpdate, ContainerStopped, KubeletState,
		ClaimUnprepared, Hardware, Tick:
	default:
		// A restart, labels and configurations move no pod, and a PodResized is half of a resize.
		m.again = true
		return
	}
	if !m.again && len(m.out) == 0 && !m.news || m.unreadPods() > 0 {
		return
	}
	m.again, m.trying = false, true
	defer func() { m.trying = false }()
	for _, h := range orderedHolders(m.waiting) {
		if h.pod == v.pod && v.enters || h == v.holder {
			m.again = true // it was judged in this step
			continue
		}
		healed := false
		switch {
		case h.grant != nil:
			healed = m.refill(h)
		case h.name != "":
			healed = m.grantAgain(h)
		default:
			healed = m.rejudge(h.pod)
		}
		if healed {
			m.again = true // the others follow in the next step
			return
		}
	}
}

// refill replaces CPUs of an owner that went offline, as many as there are free CPUs. The owner
// keeps its online CPUs, and those offline ones for which there is no replacement.
func (m *Machine) refill(h *holder) bool {
	p, was := h.pod, h.grant
	has := was.cpus.And(m.topo.Online())
	lost, free := was.cpus.Minus(has), m.freeFor(h)
	want := was.request.CPUs
	for n := min(want, has.Count()+free.Count()); n > has.Count(); n-- {
		g, err := m.allocate(m.claimOf(h, n, p.resources), n)
		if err != nil || g.cpus.Count() <= has.Count() {
			continue
		}
		kept, missing := g.cpus, want-g.cpus.Count()
		for cpu := range lost.All() {
			if missing > 0 {
				kept.Add(cpu)
				missing--
			}
		}
		r := g.request
		r.CPUs = want
		next := m.grantOf(h, kept, r)
		next.withheld.RemoveSet(m.given(was))
		m.follows(next, was)
		m.give(h, next, p.resources)
		more := kept.Minus(was.cpus)
		m.notice(p, "CPUsHealed", "%s owns CPUs %s in place of those that it lost; it has %s", h, more,
			kept.And(m.topo.Online()))
		return true
	}
	return false
}

// hideFreed reserves recently freed CPUs for holders that owned CPUs before.
func (m *Machine) hideFreed(h *holder) {
	if h.demoted {
		return
	}
	for _, f := range m.freed {
		m.hidden.AddSet(&f.CPUs)
	}
}

// grantAgain tries to give CPUs to a container that runs in the shared pool instead. If it is
// refused again, only the reason changes.
func (m *Machine) grantAgain(h *holder) bool {
	p := h.pod
	m.hideFreed(h)
	g, err := m.grantFor(h, h.asks, p.resources)
	m.hidden = cpuset.Set{}
	if err != nil {
		if h.degraded != err.Error() {
			h.degraded = err.Error()
			m.refreshWhy(p)
		}
		return false
	}
	waited := m.now.Sub(h.since)
	m.give(h, g, p.resources)
	m.notice(p, "CPUsHealed", "%s owns CPUs %s now, after %s in the shared pool", h, g.cpus, waited.Round(time.Second))
	return true
}

// rejudge judges a pod that did not get its CPUs as if it arrived now. If it is refused again, only
// the reason changes.
func (m *Machine) rejudge(p *pod) bool {
	was := p.place
	m.hideFreed(&p.holder)
	v := verdict{pod: p}
	err := m.placeAnew(&v)
	m.hidden = cpuset.Set{}
	if err != nil {
		p.place = was
		if p.degraded != err.Error() {
			p.degraded = err.Error()
			m.refreshWhy(p)
		}
		return false
	}
	delete(m.bound, p.ref.UID)
	if p.kubelet {
		delete(m.overruled, p.ref.UID)
	}
	waited := m.now.Sub(was.since)
	m.ownAll(p)
	m.recompute()
	m.explain(p)
	m.keepCaps(p)
	m.publishNotices(&v)
	own := m.ownedIn(p)
	m.notice(p, "CPUsHealed", "%s/%s owns CPUs %s now, after %s in the shared pool", p.ref.Namespace, p.ref.Name, own,
		waited.Round(time.Second))
	m.podChanged(p)
	return true
}

// placeAnew finds a place for a pod that runs in the shared pool. It changes only the pod.
func (m *Machine) placeAnew(v *verdict) *Refusal {
	p := v.pod
	in := p.input("")
	p.place = place{pool: p.pool, several: p.several, holder: holder{pod: p}}
	intent, err := m.intentOf(&in)
	p.in = intent
	if err == nil {
		err = m.takeKubelets(v, nil)
	}
	if err == nil && p.kubelet {
		all := union(p.entries)
		err = m.keepsFloors(claimBooked(&p.holder, all), all)
	}
	if err == nil && !p.owns() && !p.kubelet {
		if err = m.place(p, nil); p.holders != nil && p.owns() {
			err = nil // the others keep waiting
		}
	}
	for _, name := range sortedKeys(p.containers) {
		if err == nil {
			err = p.checkEqual(name, p.containers[name].resources)
		}
	}
	if err == nil && p.holders == nil && p.grant == nil && !p.kubelet {
		err = refuse(InvalidRequest, "how many CPUs it asks for is not known")
	}
	return err
}

// refreshWhy updates the explanation of a pod that stays where it is.
func (m *Machine) refreshWhy(p *pod) {
	m.explain(p)
	for _, id := range sortedKeys(p.all) {
		m.views.touch(p.all[id])
	}
	m.news = true
}

// noteFree records which CPUs have been free for less than HealAfter.
func (m *Machine) noteFree() {
	if m.cfg.HealAfter <= 0 {
		m.freed, m.wasFree = nil, cpuset.Set{}
		return
	}
	free, list := m.free().Or(m.freeIsolated()), m.freed
	if fresh := free.Minus(m.wasFree); !fresh.IsEmpty() {
		list = append(slices.Clip(list), Freed{CPUs: fresh, Since: m.now})
	}
	m.freed, m.wasFree = []Freed{}, free
	for _, f := range list {
		switch f.CPUs = f.CPUs.And(free); {
		case f.CPUs.IsEmpty():
		case m.now.Sub(f.Since) >= m.cfg.HealAfter:
			m.again = true
		default:
			m.freed = append(m.freed, f)
		}
	}
}

// yieldCores takes whole cores from an owner until need CPUs can go to the shared pool. An owner that has
// no CPU left runs in the shared pool itself. It gets other CPUs as soon as some are free.
func (m *Machine) yieldCores(h *holder, need int) {
	p, g := h.pod, *h.grant
	var given cpuset.Set
	for _, core := range m.coresToYield(&g) {
		if usable := given.And(m.shareable()); usable.Count() >= need {
			break
		}
		given.AddSet(&core)
	}
	g.cpus.RemoveSet(&given)
	g.withheld.RemoveSet(&given)
	if online := m.topo.Online(); !g.cpus.Intersects(&online) {
		m.degrade(h, "the shared pool had no CPU left and takes this pod's")
		return
	}
	m.follows(&g, h.grant)
	m.release(h)
	h.grant = &g
	m.own(h)
	m.explain(p)
	m.notice(p, "CPUsTaken", "CPUs %s of %s go to the shared pool, which had none left; it keeps %s", given, h, g.cpus)
	m.podChanged(p)
}

// coresToYield lists the cores of a grant in the order in which the owner gives them up: first cores
// that it owns entirely, then those on the NUMA node where it has the fewest CPUs, the last core
// first.
func (m *Machine) coresToYield(g *grant) []cpuset.Set {
	all, online := g.all(), m.topo.Online()
	type part struct {
		cpus   cpuset.Set // of the grant on this core
		shared int        // online CPUs on it that are not the owner's
		beside int        // CPUs of the owner on the core's NUMA node
	}
	var parts []part
	for i := range m.topo.Cores() {
		core := cpuset.Of(m.topo.Cores()[i].CPUs...)
		on := core.And(online)
		theirs := core.And(all)
		if theirs.IsEmpty() {
			continue
		}
		nodes := m.topo.NodesOf(core)
		here := cpusOn(m.topo, &nodes)
		parts = append(parts, part{theirs, on.Count() - on.CountAnd(&all), here.CountAnd(&all)})
	}
	slices.Reverse(parts)
	slices.SortStableFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(min(a.shared, 1), min(b.shared, 1)), cmp.Compare(a.beside, b.beside))
	})
	cores := make([]cpuset.Set, len(parts))
	for i := range parts {
		cores[i] = parts[i].cpus
	}
	return cores
}

// shareable are the CPUs that the shared pool would have if no pod owned any.
func (m *Machine) shareable() cpuset.Set {
	base, isolated := m.topo.Online(), m.topo.Isolated()
	base.RemoveSet(&isolated)
	if m.cfg.reservedStrict() {
		reserved := m.cfg.reserved()
		base.RemoveSet(&reserved)
	}
	if m.cfg.System.Exclusive {
		base.RemoveSet(&m.cfg.System.CPUs)
	}
	return base
}
