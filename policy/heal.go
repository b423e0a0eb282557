package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// healing is who waits for CPUs of its own, and what is known of those that are free.
type healing struct {
	now     time.Time       // of the step
	waiting map[string]*pod // by UID: every pod that waits has since set
	again   bool            // something may have changed since all of them were tried in vain
	wasFree cpuset.Set      // at the last step, where cfg.HealAfter counts
	freed   []Freed         // less than that ago
	moved   time.Time       // when an owner was last moved to a better place
	// trying: the others that wait hold up nobody, so what they request does not count.
	trying bool
	// hidden are CPUs that do not count as free while a pod is tried.
	hidden cpuset.Set
}

// Freed are CPUs that are free and were not before that time.
type Freed struct {
	CPUs  cpuset.Set `json:"cpus"`
	Since time.Time  `json:"since"`
}

// lacks is how many CPUs a pod waits for: those that it asked for and was refused, or that
// hardware took; 0: it does not wait.
func (m *Machine) lacks(p *pod) int {
	if !m.heals(p) {
		return 0
	}
	if p.grant != nil {
		online := m.topo.Online()
		return max(p.grant.request.CPUs-p.grant.cpus.CountAnd(&online), 0)
	}
	if p.degraded == "" || p.resources == nil {
		return 0
	}
	return int(min(max(p.resources.RequestMilli+999, 0)/1000, cpuset.MaxCPUs))
}

// heals says that a pod asks to own CPUs, and that it is not to stay without them.
func (m *Machine) heals(p *pod) bool {
	if m.cfg.NoHeal || p.annots[AnnHeal] == healOff || p.annots[AnnManaged] == "false" || p.unread || p.kubelet ||
		p.reserved() {
		return false
	}
	in := Pod{Labels: p.labels}
	return in.Exclusive() || kubeletPins(p.labels, p.ref.QoS) && (p.grant != nil || len(m.entriesOf(p.ref.UID)) > 0)
}

// noteWaiting keeps account of whether a pod waits.
func (m *Machine) noteWaiting(p *pod) {
	if m.lacks(p) == 0 {
		if m.waiting[p.ref.UID] != nil {
			m.views.ownersStale = true
		}
		delete(m.waiting, p.ref.UID)
		p.since = time.Time{}
		return
	}
	if p.since.IsZero() {
		p.since = m.now
	}
	if m.waiting[p.ref.UID] != p {
		m.again = true
	}
	m.waiting[p.ref.UID] = p
	m.views.ownersStale = true
}

// Waiting is a pod that waits for CPUs of its own.
type Waiting struct {
	PodUID    string    `json:"podUID"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	CPUs      int       `json:"cpus"` // for how many
	Since     time.Time `json:"since"`
}

// waitingViews lists the pods that wait, the oldest first: the order in which they are tried.
func (m *Machine) waitingViews() []Waiting {
	var list []Waiting
	for _, p := range ordered(m.waiting) {
		list = append(list, Waiting{PodUID: p.ref.UID, Namespace: p.ref.Namespace, Pod: p.ref.Name,
			CPUs: m.lacks(p), Since: p.since.UTC()})
	}
	return list
}

// waitsFor says in words what a pod waits for; empty: nothing.
func (m *Machine) waitsFor(p *pod) string {
	n := m.lacks(p)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; waiting for %s since %s", count(n, "CPU"), p.since.UTC().Format(time.RFC3339))
}

// heal ends a step: of the pods that wait, the oldest for which there are CPUs gets them.
// One that does not fit holds up nobody. All else is where it was.
func (m *Machine) heal(e Event, v *verdict) {
	m.noteFree()
	if len(m.waiting) == 0 {
		m.again = false
		return
	}
	switch e.(type) {
	case PodRun, PodRemoved, PodVanished, PodFacts, ContainerCreate, ContainerUpdate, ContainerStopped, KubeletState,
		Hardware, Tick:
	default:
		// A restart, labels and configurations move nobody, and a PodResized is half of a resize.
		m.again = true
		return
	}
	if !m.again && len(m.out) == 0 && !m.news || m.unreadPods() > 0 {
		return
	}
	m.again, m.trying = false, true
	defer func() { m.trying = false }()
	for _, p := range ordered(m.waiting) {
		if v.enters && p == v.pod {
			m.again = true // it was judged in this step
			continue
		}
		healed := false
		if p.grant != nil {
			healed = m.refill(p)
		} else {
			healed = m.rejudge(p)
		}
		if healed {
			m.again = true // for the others, with the next step
			return
		}
	}
}

// refill gives an owner CPUs for those that hardware took, as many as there are. It keeps
// those that it has, and of the others those for which there is nothing in their place.
func (m *Machine) refill(p *pod) bool {
	was := p.grant
	has := was.cpus.And(m.topo.Online())
	lost, free := was.cpus.Minus(has), m.free()
	want := was.request.CPUs
	for n := min(want, has.Count()+free.Count()); n > has.Count(); n-- {
		g, err := m.allocate(p, n, was)
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
		next := m.grantOf(p, kept, r)
		next.withheld.RemoveSet(m.given(was))
		m.follows(next, was)
		m.give(p, next, p.resources)
		more := kept.Minus(was.cpus)
		m.notice(p, "CPUsHealed", "%s/%s owns CPUs %s in place of those that it lost; it has %s", p.ref.Namespace,
			p.ref.Name, more, kept.And(m.topo.Online()))
		return true
	}
	return false
}

// rejudge judges a pod without the CPUs that it asked for as if it came now. Where it is
// refused again it stays as it is, but for the reason.
func (m *Machine) rejudge(p *pod) bool {
	was := p.place
	if !p.demoted {
		for _, f := range m.freed {
			m.hidden.AddSet(&f.CPUs)
		}
	}
	v := verdict{pod: p}
	err := m.placeAnew(&v)
	m.hidden = cpuset.Set{}
	if err != nil {
		p.place = was
		if p.degraded != err.Error() {
			p.degraded = err.Error()
			m.retell(p)
		}
		return false
	}
	delete(m.bound, p.ref.UID)
	if p.kubelet {
		delete(m.overruled, p.ref.UID)
	}
	waited := m.now.Sub(was.since)
	if p.grant != nil {
		m.own(p)
	}
	m.recompute()
	m.explain(p)
	m.publishNotices(&v)
	own, _ := m.ownOf(p, "")
	m.notice(p, "CPUsHealed", "%s/%s owns CPUs %s now, after %s in the shared pool", p.ref.Namespace, p.ref.Name, own,
		waited.Round(time.Second))
	m.podChanged(p)
	return true
}

// placeAnew finds a place for a pod that runs in the shared pool. It changes the pod only.
func (m *Machine) placeAnew(v *verdict) *Refusal {
	p := v.pod
	in := p.input("")
	p.place = place{pool: p.pool, several: p.several}
	intent, err := m.intentOf(&in)
	p.in = intent
	if err == nil {
		err = m.takeKubelets(v, nil)
	}
	if err == nil && p.kubelet {
		err = m.keepsFloors(p, union(p.entries))
	}
	if err == nil && p.grant == nil && !p.kubelet {
		err = m.place(p, nil)
	}
	for _, name := range sortedKeys(p.containers) {
		if err == nil {
			err = p.unequal(name, p.containers[name].resources)
		}
	}
	if err == nil && p.grant == nil && !p.kubelet {
		err = refuse(InvalidRequest, "how many CPUs it asks for is not known")
	}
	return err
}

// retell explains a pod anew that stays where it is.
func (m *Machine) retell(p *pod) {
	m.explain(p)
	for _, id := range sortedKeys(p.all) {
		m.views.touch(p.all[id])
	}
	m.news = true
}

// noteFree keeps account of which CPUs have been free for less than HealAfter.
func (m *Machine) noteFree() {
	if m.cfg.HealAfter <= 0 {
		m.freed, m.wasFree = nil, cpuset.Set{}
		return
	}
	free, list := m.free(), m.freed
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

// giveUp takes whole cores from an owner until the shared pool has so many CPUs of them. One
// that has none left runs in the shared pool itself. It gets others as soon as there are some.
func (m *Machine) giveUp(p *pod, need int) {
	g := *p.grant
	var given cpuset.Set
	for _, core := range m.coresToGive(&g) {
		if usable := given.And(m.shareable()); usable.Count() >= need {
			break
		}
		given.AddSet(&core)
	}
	g.cpus.RemoveSet(&given)
	g.withheld.RemoveSet(&given)
	if online := m.topo.Online(); !g.cpus.Intersects(&online) {
		m.degrade(p, "the shared pool had no CPU left and takes this pod's")
		return
	}
	m.follows(&g, p.grant)
	m.release(p)
	p.grant = &g
	m.own(p)
	m.explain(p)
	m.notice(p, "CPUsTaken", "CPUs %s of %s/%s go to the shared pool, which had none left; it keeps %s", given,
		p.ref.Namespace, p.ref.Name, g.cpus)
	m.podChanged(p)
}

// coresToGive are the cores of a grant in the order in which it gives them up: those that are
// all its own before others, then those of the NUMA node on which it has least, the last first.
func (m *Machine) coresToGive(g *grant) []cpuset.Set {
	all, online := g.all(), m.topo.Online()
	type part struct {
		cpus   cpuset.Set // of the grant on this core
		shared int        // CPUs on it that are on and not the owner's
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

// shareable are the CPUs that the shared pool could have if nobody owned any.
func (m *Machine) shareable() cpuset.Set {
	base := m.topo.Online().Minus(m.topo.Isolated())
	if m.cfg.reservedStrict() {
		base = base.Minus(m.cfg.reserved())
	}
	if m.cfg.System.Exclusive {
		base = base.Minus(m.cfg.System.CPUs)
	}
	return base
}
