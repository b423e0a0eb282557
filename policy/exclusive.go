package policy

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// grantFor finds CPUs of its own for an LSE or LSR pod with these sums. It changes
// nothing.
func (m *Machine) grantFor(p *pod, r Resources) (*grant, *Refusal) {
	n, err := m.sizeOf(p, r)
	if err == nil {
		err = m.refuseUnread()
	}
	if err != nil {
		return nil, err
	}
	if p.in.scheduled != nil {
		return m.honour(p, n)
	}
	return m.allocate(p, n, nil)
}

// sizeOf checks request = limit and whole CPUs on a pod's sums.
func (m *Machine) sizeOf(p *pod, r Resources) (int, *Refusal) {
	if r.RequestMilli <= 0 || r.RequestMilli%1000 != 0 {
		return 0,
			refuse(InvalidRequest,
				"%s pods need a whole number of CPUs, this pod requests %s; request a multiple of 1000m", p.in.class,
				milli(r.RequestMilli))
	}
	if r.LimitMilli != r.RequestMilli && !(p.hidden && r.LimitMilli == NoLimit) {
		return 0,
			refuse(InvalidRequest,
				"%s pods need a CPU request equal to the limit, this pod requests %s and is limited to %s; make "+
					"them equal", p.in.class, milli(r.RequestMilli), milli(r.LimitMilli))
	}
	return int(min(r.RequestMilli/1000, cpuset.MaxCPUs+1)), nil
}

func milli(v int64) string {
	if v == NoLimit {
		return "nothing"
	}
	return fmt.Sprintf("%dm", v)
}

// free is what may be given exclusively now.
func (m *Machine) free() cpuset.Set {
	if m.pools.Overlap {
		return cpuset.Set{} // the shared pool has only CPUs that are others' already
	}
	f := m.pools.Shared
	f.RemoveSet(&m.pools.Reserved)
	f.RemoveSet(&m.pools.System)
	f.RemoveSet(&m.hidden)
	return f
}

func (m *Machine) held(except *pod) []cpuallocator.Held {
	var held []cpuallocator.Held
	for _, o := range m.exclusive {
		if o != except && o.grant.request.Exclusive != cpuallocator.ExclusiveNone {
			held = append(held, cpuallocator.Held{CPUs: o.grant.all(), Exclusive: o.grant.request.Exclusive})
		}
	}
	return held
}

// allocate finds n CPUs for a pod; old is what it owns already and keeps.
func (m *Machine) allocate(p *pod, n int, old *grant) (*grant, *Refusal) {
	if err := m.refuseUnread(); err != nil {
		return nil, err
	}
	r := *p.in.request
	r.CPUs = n
	var owned cpuset.Set
	if old != nil {
		r.Keep, owned = old.cpus.And(m.topo.Online()), old.all() // others take the place of those that are off
	}
	result, err := m.search(p, r)
	if err != nil {
		return nil, m.blame(err)
	}
	g := m.grantOf(p, result.CPUs, r)
	if old != nil {
		g.withheld.RemoveSet(m.given(old))
		m.follows(g, old)
	}
	return g, m.mayOwn(p, g, owned)
}

// given are the siblings that a grant once withheld and others have by now.
func (m *Machine) given(g *grant) *cpuset.Set {
	var siblings cpuset.Set
	if g.request.SMT == cpuallocator.SMTIsolate {
		siblings = m.topo.Siblings(g.cpus).Minus(g.cpus).Minus(g.withheld)
	}
	return &siblings
}

// grantOf makes the grant of CPUs. Isolation withholds every sibling, those that
// are offline now too: they must not come back into a pool.
func (m *Machine) grantOf(p *pod, cpus cpuset.Set, r cpuallocator.Request) *grant {
	r.Keep = cpuset.Set{}
	g := &grant{cpus: cpus, request: r}
	if r.SMT == cpuallocator.SMTIsolate {
		siblings := m.topo.Siblings(cpus).Minus(cpus).Minus(m.cfg.reserved())
		g.withheld = siblings.Minus(m.ownedByOthers(p, siblings))
	}
	return g
}

// blame names the owner that a refused pod cannot see.
func (m *Machine) blame(err *Refusal) *Refusal {
	if m.pools.Kubelet.IsEmpty() {
		return err
	}
	return refuse(err.Code, "%s (kubelet's static policy owns CPUs %s)", err.Message, m.pools.Kubelet)
}

// mayOwn checks the floor of the shared pool and the namespace's maximum before
// anything changes.
func (m *Machine) mayOwn(p *pod, g *grant, owned cpuset.Set) *Refusal {
	all := g.all()
	if err := m.keepsFloors(p, all.Minus(owned)); err != nil {
		return err
	}
	most, limited := m.cfg.Authority.MaxCPUs[p.ref.Namespace]
	if !limited {
		most, limited = m.cfg.Authority.MaxCPUs["*"]
	}
	if !limited {
		return nil
	}
	has := all.Count()
	for _, o := range m.exclusive {
		if o != p && o.ref.Namespace == p.ref.Namespace {
			owns := o.grant.all()
			has += owns.Count()
		}
	}
	if has > most {
		return refuse(Unauthorized,
			"namespace %s would own %d exclusive CPUs and may own %d (authority.exclusive.maxCPUs)",
			literal(p.ref.Namespace), has, most)
	}
	return nil
}

// adopt takes over what a pod was found to own. CPUs that another pod owns,
// that are reserved or that do not exist are not adopted.
func (m *Machine) adopt(p *pod, r *Recovered) bool {
	owned := r.owned()
	all := owned
	if p.in.request.SMT == cpuallocator.SMTIsolate && r.Withheld != nil {
		all.AddSet(r.Withheld)
	}
	// The place of a CPU that was off before the machine was read is unknown; its owner does
	// not lose it by that.
	known := m.topo.Known().Or(m.topo.Offline())
	if owned.IsEmpty() || !all.SubsetOf(&known) {
		return false
	}
	// What our own record says was given stays given, though the operator or kubelet
	// may have reserved it since; a mask in the kernel might be a pool's.
	if r.From != fromState && (all.Intersects(&m.pools.Reserved) || all.Intersects(&m.pools.System)) {
		return false
	}
	if all.Intersects(&m.owned.cpus) || all.Intersects(&m.owned.withheld) {
		return false
	}
	for _, o := range m.pods {
		// A booking of a pod that is not here may be stale; what runs is not.
		if cpus := union(o.entries); o.kubelet && cpus.Intersects(&all) {
			return false
		}
	}
	left := m.pools.Shared.Minus(all)
	if left.IsEmpty() {
		return false
	}
	request := *p.in.request
	if request.CPUs = r.Request; request.CPUs == 0 {
		request.CPUs = owned.Count()
	}
	// The runtime may still report the sums from before a resize; the kernel does not.
	whole := int64(request.CPUs) * 1000
	p.resources = &Resources{RequestMilli: whole, LimitMilli: whole}
	p.grant = m.grantOf(p, owned, request)
	if request.SMT == cpuallocator.SMTIsolate {
		if r.From == fromState {
			p.grant.withheld = cpuset.Set{} // it says all that was withheld, which reserved siblings were not
		}
		if r.Withheld != nil {
			p.grant.withheld.AddSet(r.Withheld) // the siblings of an unknown place
		}
	}
	p.grant.lost = r.LostNodes
	p.in.reasons = r.Reasons
	return true
}

// judgeResize looks at new sums of a pod. One that owns CPUs gets a superset or a subset
// of them; an impossible resize is refused, and the pod keeps what it has.
func (m *Machine) judgeResize(v *verdict, p *pod, r Resources) *Refusal {
	if p.undecided() {
		return nil // its first container says how large it is by now
	}
	v.pod, v.resources = p, &r
	if before := m.requestedFrom(p); before > 0 && r.RequestMilli > p.resources.RequestMilli && !m.cfg.Degrade {
		return m.keepsIsolation(p, before+r.RequestMilli-p.resources.RequestMilli)
	}
	if !p.allocated() || kubeletPins(p.labels, p.ref.QoS) {
		return nil
	}
	n, err := m.sizeOf(p, r)
	switch {
	case err != nil:
	case n > p.grant.request.CPUs:
		v.grant, err = m.allocate(p, n, p.grant)
	case n < p.grant.request.CPUs:
		v.grant, err = m.shrink(p, n)
	}
	return err
}

// undecided says that a pod is to own CPUs and that it is not known yet how many.
func (p *pod) undecided() bool {
	return p.in.exclusive() && p.grant == nil && p.resources == nil && p.degraded == "" && !p.kubelet
}

// resize gives a pod its new sums.
func (m *Machine) resize(v *verdict) {
	switch {
	case v.pod == nil: // unknown, undecided, or only half of a resize
	case v.grant == nil:
		v.pod.resources = v.resources
		m.explain(v.pod)
	default:
		m.give(v.pod, v.grant, v.resources)
	}
}

// give makes CPUs a pod's own, in place of what it owned.
func (m *Machine) give(p *pod, g *grant, r *Resources) {
	m.release(p)
	p.grant, p.resources = g, r
	m.own(p)
	m.recompute()
	m.explain(p)
	m.podChanged(p)
}

func (m *Machine) shrink(p *pod, n int) (*grant, *Refusal) {
	r := p.grant.request
	r.CPUs, r.Nodes = n, cpuset.Set{}
	ask := r
	if r.SMT == cpuallocator.SMTRoundUp && p.grant.cpus.Count() <= p.grant.request.CPUs {
		ask.SMT = cpuallocator.SMTNone // its surplus was taken back: there are no whole cores to keep
	}
	keep := p.grant.cpus
	if on := keep.And(m.topo.Online()); on.Count() >= n {
		keep = on
	}
	result, err := m.alloc.Shrink(keep, ask)
	if err != nil {
		return nil, err
	}
	g := m.grantOf(p, result.CPUs, r)
	if r.SMT == cpuallocator.SMTIsolate {
		g.withheld = g.withheld.And(p.grant.withheld)
	}
	return g, nil
}

// keepsQuota says that a pinned pod's quota is not lifted: rounded up to whole
// cores it may use all of them, but only as much as it asked for.
// What a reservation's quota should be, only the version that made it knows.
func (p *pod) keepsQuota() bool { return p.in.request.SMT == cpuallocator.SMTRoundUp || p.reserved() }

// explain writes down in one sentence why a pod runs where it does, and what it waits for.
func (m *Machine) explain(p *pod) {
	m.noteWaiting(p)
	switch {
	case p.reserved():
		p.why = fmt.Sprintf(
			"a newer version of Quietcore gave it CPUs %s by rules that this one does not know (%s); it"+
				" keeps them to itself until it ends", p.grant.cpus, literal(p.grant.reservation.Kind))
	case p.unread:
		p.why = fmt.Sprintf("%s: what it owns is still being read from its cgroup; it stays where it is", p.in.class)
	case p.grant != nil:
		p.why = m.whyExclusive(p)
	case p.kubelet:
		p.why = "kubelet's static policy pinned it, so it counts as LSR; nobody else runs on its CPUs"
	case p.degraded != "":
		p.why = "runs in the shared pool instead of what it asked for: " + p.degraded + m.waitsFor(p)
	case p.in.unmanaged:
		p.why = fmt.Sprintf("annotation %s is false: it is left alone inside the pool of its Kubernetes class",
			AnnManaged)
	case p.in.class == BE:
		p.why = "BE: may run on every CPU that no LSE pod owns"
	case p.in.class == SYSTEM:
		p.why = "SYSTEM: runs on the CPUs configured for that class"
	case p.nodes != nil:
		p.why = fmt.Sprintf("LS: bound to the shared pool of %s", nodesText(p.nodes))
	default:
		p.why = "LS: runs in the shared pool, which is every CPU that nobody owns exclusively"
	}
}

func (m *Machine) whyExclusive(p *pod) string {
	g := p.grant
	online := g.cpus.And(m.topo.Online())
	if online.IsEmpty() {
		return fmt.Sprintf("%s: all of its CPUs (%s) are offline; it runs in the shared pool%s", p.in.class, g.cpus,
			m.waitsFor(p))
	}
	var b strings.Builder
	neighbours := "alone"
	if p.in.class == LSR {
		neighbours = "beside BE only"
	}
	fmt.Fprintf(&b, "%s: owns %s of its own, %s", p.in.class, count(g.cpus.Count(), "CPU"), neighbours)
	nodes := m.topo.NodesOf(g.cpus)
	fmt.Fprintf(&b, ", on %s", nodesText(&nodes))
	switch g.request.SMT {
	case cpuallocator.SMTIsolate:
		b.WriteString("; one on each core")
		if !g.withheld.IsEmpty() {
			fmt.Fprintf(&b, ", siblings %s kept idle", g.withheld)
		}
		if back := m.given(g).Minus(m.cfg.reserved()); !back.IsEmpty() {
			fmt.Fprintf(&b, ", siblings %s not", back)
		}
	case cpuallocator.SMTRoundUp:
		fmt.Fprintf(&b, "; rounded up to whole cores for a request of %d", g.request.CPUs)
		if g.cpus.Count() <= g.request.CPUs && !m.wholeCores(g.cpus) {
			b.WriteString(", and the surplus taken back")
		}
	case cpuallocator.SMTAlign:
		b.WriteString("; whole cores demanded")
	default:
		fmt.Fprintf(&b, "; %s", m.shape(g))
	}
	if p.in.reasons != "" {
		b.WriteString("; " + p.in.reasons)
	}
	if off := g.cpus.Minus(online); !off.IsEmpty() {
		fmt.Fprintf(&b, "; %s offline", off)
	}
	return b.String() + m.waitsFor(p)
}

// shape describes how a grant lies on cores.
func (m *Machine) shape(g *grant) string {
	used, whole := m.coresOf(g.cpus)
	return fmt.Sprintf("%s lies on %s, %d of them whole", bindName(g.request.Bind), count(used, "core"), whole)
}

// coresOf counts the cores that some CPUs lie on, and those of which they are all.
func (m *Machine) coresOf(cpus cpuset.Set) (used, whole int) {
	on := map[int]int{}
	for cpu := range cpus.All() {
		if core := m.topo.CoreOf(cpu); core >= 0 { // else it is off, and its place is unknown
			on[core]++
		}
	}
	for core, n := range on {
		if n == len(m.topo.Cores()[core].CPUs) {
			whole++
		}
	}
	return len(on), whole
}

func (m *Machine) wholeCores(cpus cpuset.Set) bool {
	used, whole := m.coresOf(cpus)
	return used == whole
}

func nodesText(nodes *cpuset.Set) string {
	if nodes.Count() == 1 {
		return "NUMA node " + nodes.String()
	}
	return "NUMA nodes " + nodes.String()
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
