package policy

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// claim is a holder that asks for CPUs.
type claim struct {
	*holder
	rest int64 // what its pod goes on requesting from the shared pool, in thousandths of a CPU
}

// claimOf is a claim for n CPUs; sums are its pod's resources once it is granted.
func (m *Machine) claimOf(h *holder, n int, sums *Resources) claim {
	c := claim{holder: h}
	if h.name != "" && sums != nil {
		c.rest = m.restOf(h.pod, sums.RequestMilli, h, n)
	}
	return c
}

// grantFor finds CPUs for an LSE or LSR pod, or for a container of one, with these resources; sums
// are the pod's. It changes nothing.
func (m *Machine) grantFor(h *holder, r Resources, sums *Resources) (*grant, *Refusal) {
	n, err := m.sizeOf(h, r)
	if err == nil {
		err = m.refuseUnread()
	}
	if err != nil {
		return nil, err
	}
	if h.pod.in.scheduled != nil && h.name == "" {
		return m.honour(h, n)
	}
	return m.allocate(m.claimOf(h, n, sums), n)
}

// sizeOf checks that the sums of a pod, or the resources of a container that is to own CPUs, have
// request = limit and a whole number of CPUs.
func (m *Machine) sizeOf(h *holder, r Resources) (int, *Refusal) {
	p := h.pod
	if r.RequestMilli <= 0 || r.RequestMilli%1000 != 0 {
		owners, this := h.subjects()
		return 0,
			refuse(InvalidRequest,
				"%s need a whole number of CPUs, %s requests %s; request a multiple of 1000m", owners, this,
				milli(r.RequestMilli))
	}
	if r.LimitMilli != r.RequestMilli && !(p.hidden && h.name == "" && r.LimitMilli == NoLimit) {
		owners, this := h.subjects()
		return 0,
			refuse(InvalidRequest,
				"%s need a CPU request equal to the limit, %s requests %s and is limited to %s; make "+
					"them equal", owners, this, milli(r.RequestMilli), milli(r.LimitMilli))
	}
	return int(min(r.RequestMilli/1000, cpuset.MaxCPUs+1)), nil
}

// subjects names such owners in general, and this one, in a refusal.
func (h *holder) subjects() (all, this string) {
	if h.name != "" {
		return "containers with CPUs of their own", fmt.Sprintf("container %s", literal(h.name))
	}
	return fmt.Sprintf("%s pods", h.pod.in.class), "this pod"
}

func milli(v int64) string {
	if v == NoLimit {
		return "nothing"
	}
	return fmt.Sprintf("%dm", v)
}

// free is what can be granted exclusively to pods now.
func (m *Machine) free() cpuset.Set {
	f := m.unowned()
	f.RemoveSet(&m.pools.Kept)
	return f
}

// unowned is what can be granted exclusively now, to pods or to claims.
func (m *Machine) unowned() cpuset.Set {
	if m.pools.Overlap {
		return cpuset.Set{} // every CPU of the shared pool is owned already
	}
	f := m.pools.Shared
	f.RemoveSet(&m.pools.Reserved)
	f.RemoveSet(&m.pools.System)
	f.RemoveSet(&m.hidden)
	return f
}

// freeFor is what can be granted to a holder: free CPUs of the shared pool, or free isolated CPUs
// if it asks for those. A holder that has CPUs grows by CPUs of the same kind.
func (m *Machine) freeFor(h *holder) cpuset.Set {
	switch {
	case h.pod.claim != nil:
		return m.unowned().And(h.asked().Within)
	case m.takesIsolated(h):
		return m.freeIsolated()
	}
	return m.free()
}

func (m *Machine) takesIsolated(h *holder) bool {
	return h.pod.in.isolated && (h.grant == nil || m.isIsolated(h.grant.cpus))
}

// isIsolated reports whether all of these CPUs, online or offline, are isolated by the kernel.
func (m *Machine) isIsolated(cpus cpuset.Set) bool {
	isolated := m.topo.Isolated()
	return cpus.SubsetOf(&isolated)
}

// freeIsolated are the CPUs that the kernel isolates, that are in no pool, and that no pod owns.
func (m *Machine) freeIsolated() cpuset.Set {
	if m.pools.Overlap {
		return cpuset.Set{} // the shared pool uses them
	}
	taken := m.pools.Exclusive.Or(m.pools.Withheld).Or(m.cfg.reserved()).Or(m.cfg.System.CPUs).Or(m.hidden)
	return m.topo.Isolated().And(m.topo.Online()).Minus(taken)
}

func (m *Machine) held(except *holder) []cpuallocator.Held {
	var held []cpuallocator.Held
	for _, o := range m.exclusive {
		if o != except && o.grant.request.Exclusive != cpuallocator.ExclusiveNone {
			held = append(held, cpuallocator.Held{CPUs: o.grant.all(), Exclusive: o.grant.request.Exclusive})
		}
	}
	return held
}

// allocate finds n CPUs for a holder, which keeps those that it owns already.
func (m *Machine) allocate(c claim, n int) (*grant, *Refusal) {
	if err := m.refuseUnread(); err != nil {
		return nil, err
	}
	r, old := *c.pod.in.request, c.grant
	r.CPUs = n
	var owned cpuset.Set
	if old != nil {
		r.SMT = old.request.SMT                                  // its CPUs were granted with that
		r.Keep, owned = old.cpus.And(m.topo.Online()), old.all() // other CPUs replace those that are offline
	}
	result, err := m.search(c, &r)
	if err != nil {
		return nil, m.detailRefusal(c.holder, err)
	}
	g := m.grantOf(c.holder, result.CPUs, r)
	if old != nil {
		g.withheld.RemoveSet(m.given(old))
		m.follows(g, old)
	}
	return g, m.mayOwn(c, g, owned)
}

// given are the siblings that a grant once withheld and that are in use elsewhere now.
func (m *Machine) given(g *grant) *cpuset.Set {
	var siblings cpuset.Set
	if g.request.SMT == cpuallocator.SMTIsolate {
		siblings = m.topo.Siblings(g.cpus).Minus(g.cpus).Minus(g.withheld)
	}
	return &siblings
}

// grantOf makes a grant of CPUs. Isolation withholds every sibling, including those that are
// offline now: they must not come back into a pool. Siblings that kubelet or another pod owns are
// not withheld.
func (m *Machine) grantOf(h *holder, cpus cpuset.Set, r cpuallocator.Request) *grant {
	r.Keep = cpuset.Set{}
	g := m.scratch
	if g == nil || h.name != "" {
		g = &grant{}
	}
	*g = grant{cpus: cpus, request: r}
	if r.SMT == cpuallocator.SMTIsolate {
		kubelet := m.kubeletCPUs()
		siblings := m.topo.Siblings(cpus).Minus(cpus).Minus(m.cfg.reserved()).Minus(kubelet)
		siblings = siblings.Minus(m.foreignCPUs(&kubelet))
		g.withheld = siblings.Minus(m.ownedByOthers(h, siblings))
	}
	return g
}

// detailRefusal adds to a refusal what the pod cannot see: the CPUs of kubelet and of claims, or how few isolated CPUs
// there are.
func (m *Machine) detailRefusal(h *holder, err *Refusal) *Refusal {
	if m.takesIsolated(h) {
		return refuse(err.Code, "%s (annotation %s: the kernel isolates CPUs %s, and of these %s are free)",
			err.Message, AnnIsolated, orNone(m.topo.Isolated()), orNone(m.freeIsolated()))
	}
	var parts []string
	switch {
	case !m.pools.Foreign.IsEmpty():
		parts = append(parts, fmt.Sprintf(
			"CPUs %s belong to kubelet's static policy or to claims of another DRA driver",
			m.pools.Kubelet.Or(m.pools.Foreign)))
	case !m.pools.Kubelet.IsEmpty():
		parts = append(parts, fmt.Sprintf("kubelet's static policy owns CPUs %s", m.pools.Kubelet))
	}
	if !m.pools.Kept.IsEmpty() && h.pod.claim == nil {
		parts = append(parts, fmt.Sprintf("CPUs %s are kept for claims", m.pools.Kept))
	}
	if parts == nil {
		return err
	}
	return refuse(err.Code, "%s (%s)", err.Message, strings.Join(parts, "; "))
}

// mayOwn checks the floor of the shared pool and the namespace's maximum before anything changes.
func (m *Machine) mayOwn(c claim, g *grant, owned cpuset.Set) *Refusal {
	all, namespace := g.all(), c.pod.ref.Namespace
	if err := m.keepsFloors(c, all.Minus(owned)); err != nil {
		return err
	}
	most, limited := m.cfg.Authority.MaxCPUs[namespace]
	if !limited {
		most, limited = m.cfg.Authority.MaxCPUs["*"]
	}
	if !limited {
		return nil
	}
	has := all.Count()
	for _, o := range m.exclusive {
		if o != c.holder && o.pod.ref.Namespace == namespace {
			owns := o.grant.all()
			has += owns.Count()
		}
	}
	if has > most {
		return refuse(Unauthorized,
			"namespace %s would own %d exclusive CPUs and may own %d (authority.exclusive.maxCPUs)",
			literal(namespace), has, most)
	}
	return nil
}

// adopt takes over what a holder was found to own. CPUs that another holder owns, that are reserved
// or that do not exist are not adopted.
func (m *Machine) adopt(h *holder, r *Recovered) bool {
	p, owned := h.pod, r.owned()
	all := owned
	if p.in.request.SMT == cpuallocator.SMTIsolate && r.Withheld != nil {
		all.AddSet(r.Withheld)
	}
	// The place of a CPU that was offline before the machine was read is unknown; its owner keeps
	// it all the same.
	known := m.topo.Known().Or(m.topo.Offline())
	if owned.IsEmpty() || !all.SubsetOf(&known) {
		return false
	}
	// A grant in our own record stays valid, even if the operator or kubelet has reserved the CPUs
	// since. A mask in the kernel might be that of a pool.
	if r.From != fromState && (all.Intersects(&m.pools.Reserved) || all.Intersects(&m.pools.System)) {
		return false
	}
	if all.Intersects(&m.owned.cpus) || all.Intersects(&m.owned.withheld) {
		return false
	}
	for _, o := range m.pods {
		// A booking of a pod that is not on the node may be stale; that of a running pod is not.
		if cpus := union(o.entries); o.kubelet && cpus.Intersects(&all) {
			return false
		}
	}
	request := *p.in.request
	if request.CPUs = r.Request; request.CPUs == 0 {
		request.CPUs = owned.Count()
	}
	if request.SMT == cpuallocator.SMTIsolate {
		placed := owned.And(m.topo.Known())
		if used, _ := m.coresOf(placed); used < placed.Count() {
			request.SMT = cpuallocator.SMTNone // isolation was configured later: what it has is not isolated
		}
	}
	h.grant = m.grantOf(h, owned, request)
	if request.SMT == cpuallocator.SMTIsolate {
		if r.From == fromState {
			h.grant.withheld = cpuset.Set{} // the record lists all that was withheld; reserved siblings were not
		}
		if r.Withheld != nil {
			h.grant.withheld.AddSet(r.Withheld) // siblings whose place is unknown
		}
	}
	h.grant.lost = r.LostNodes
	if n := r.ResizedTo; n > 0 && n < request.CPUs {
		if g, err := m.shrink(h, n); err == nil {
			h.grant = g
		}
	}
	all = all.And(h.grant.all())
	// Claims may have taken the whole pool since, or its CPUs went offline. A mask in the kernel might be the pool's
	// then. Whoever has the CPUs for sure gives up no more of them than if that had happened just now: see rescue.
	left := m.pools.Shared.Or(m.pools.Foreign).Minus(all)
	if r.From == fromKernel && left.IsEmpty() {
		h.grant = nil
		return false
	}
	// The runtime may still report the sums from before a resize; the kernel has the current ones.
	whole := int64(h.grant.request.CPUs) * 1000
	if h.name == "" {
		p.resources = &Resources{RequestMilli: whole, LimitMilli: whole}
	}
	p.in.reasons = r.Reasons
	return true
}

// judgeResize checks new sums of a pod. A pod that owns CPUs gets a superset or a subset of them.
// An impossible resize is refused, and the pod keeps what it has.
func (m *Machine) judgeResize(v *verdict, p *pod, r Resources) *Refusal {
	if p.undecided() {
		return nil // its first container will give the current size
	}
	v.pod, v.resources = p, &r
	if err := m.holdsBurst(p, r); err != nil {
		return err
	}
	if before := m.requestedFrom(p); before > 0 && r.RequestMilli > p.resources.RequestMilli && !m.cfg.Degrade {
		return m.keepsIsolation(p, before+r.RequestMilli-p.resources.RequestMilli)
	}
	if !p.allocated() || kubeletPins(p.labels, p.ref.QoS) {
		return nil
	}
	return m.judgeSize(v, &p.holder, r, &r)
}

// judgeSize checks the resources that a holder with a grant is to have from now on, together with
// its pod's sums.
func (m *Machine) judgeSize(v *verdict, h *holder, r Resources, sums *Resources) *Refusal {
	n, err := m.sizeOf(h, r)
	v.holder = h
	switch {
	case err != nil:
	case n > h.grant.request.CPUs:
		v.grant, err = m.allocate(m.claimOf(h, n, sums), n)
	case n < h.grant.request.CPUs:
		v.grant, err = m.shrink(h, n)
	}
	return err
}

// undecided reports whether a pod is to own CPUs but their number is still unknown.
func (p *pod) undecided() bool {
	return p.in.exclusive() && p.holders == nil && p.grant == nil && p.resources == nil && p.degraded == "" &&
		!p.kubelet
}

// resize sets a pod's new sums.
func (m *Machine) resize(v *verdict) {
	switch {
	case v.pod == nil: // unknown, undecided, or only half of a resize
	case v.grant == nil:
		v.pod.resources = v.resources
		m.explain(v.pod)
	default:
		m.give(v.holder, v.grant, v.resources)
	}
}

// give makes CPUs a holder's own, in place of those that it had; sums are its pod's.
func (m *Machine) give(h *holder, g *grant, sums *Resources) {
	p := h.pod
	m.release(h)
	h.grant, h.degraded, p.resources = g, "", sums
	m.own(h)
	m.recompute()
	m.explain(p)
	m.podChanged(p)
}

func (m *Machine) shrink(h *holder, n int) (*grant, *Refusal) {
	r := h.grant.request
	r.CPUs, r.Nodes = n, cpuset.Set{}
	ask := r
	if r.SMT == cpuallocator.SMTRoundUp && h.grant.cpus.Count() <= h.grant.request.CPUs {
		ask.SMT = cpuallocator.SMTNone // its surplus was taken back: there are no whole cores to keep
	}
	keep := h.grant.cpus
	if on := keep.And(m.topo.Online()); on.Count() >= n {
		keep = on
	}
	result, err := m.alloc.Shrink(keep, ask)
	if err != nil {
		return nil, err
	}
	g := m.grantOf(h, result.CPUs, r)
	if r.SMT == cpuallocator.SMTIsolate {
		g.withheld = g.withheld.And(h.grant.withheld)
	}
	return g, nil
}

// keepsQuota reports whether a pinned pod's quota is not lifted. A pod rounded up to whole cores
// may use all of them, but only as much CPU time as it requested. The quota of a reservation is
// known only to the version that made it.
func (p *pod) keepsQuota() bool { return p.in.request.SMT == cpuallocator.SMTRoundUp || p.reserved() }

// explain records in one sentence why a pod and its containers run where they do, and what they
// wait for.
func (m *Machine) explain(p *pod) {
	if p.claim != nil {
		return
	}
	for _, name := range sortedKeys(p.holders) {
		h := p.holders[name]
		m.noteWaiting(h)
		h.why = m.whyNamed(h)
	}
	if p.holders != nil {
		delete(m.waiting, p.ref.UID)
		p.why = fmt.Sprintf("%s: runs in the shared pool; of its pod, containers %s own CPUs", p.in.class,
			strings.Join(sortedKeys(p.holders), ", "))
		return
	}
	m.noteWaiting(&p.holder)
	switch {
	case p.reserved():
		p.why = fmt.Sprintf(
			"a newer version of Quietcore gave it CPUs %s by rules that this one does not know (%s); it"+
				" keeps them to itself until it ends", p.grant.cpus, literal(p.grant.reservation.Kind))
	case p.unread:
		p.why = fmt.Sprintf("%s: what it owns is still being read from its cgroup; it stays where it is", p.in.class)
	case p.grant != nil:
		p.why = m.whyExclusive(&p.holder)
	case p.kubelet:
		p.why = "kubelet's static policy pinned it, so it counts as LSR; no other pod runs on its CPUs"
	case p.degraded != "":
		p.why = "runs in the shared pool instead of what it asked for: " + p.degraded + m.waitsFor(&p.holder)
	case p.in.unmanaged:
		p.why = fmt.Sprintf("annotation %s is false: it is left alone inside the pool of its Kubernetes class",
			AnnManaged)
	case p.in.class == BE && m.poolAway(p).isPart():
		k := m.be.away[p.ref.UID]
		p.why = fmt.Sprintf("BE: moved off CPUs %s, around a container that it disturbs, to the others that no pod "+
			"owns", k.cpus)
	case p.in.class == BE && m.idles(p) && !m.alwaysIdles(p):
		p.why = "BE: may run on every CPU that no LSE pod owns, while no other task wants it: it disturbs a container"
	case p.in.class == BE:
		p.why = "BE: may run on every CPU that no LSE pod owns"
	case p.in.class == SYSTEM:
		p.why = m.whySystem(p)
	case len(p.claims) > 0 && p.ref.QoS == BestEffort && p.labels[LabelClass] == "":
		p.why = "LS: a container of it has CPUs by a DRA claim, which its Kubernetes class BestEffort leaves out; " +
			"others run in the shared pool"
	case p.nodes != nil:
		p.why = fmt.Sprintf("LS: bound to the shared pool of %s", nodesText(p.nodes))
	default:
		p.why = "LS: runs in the shared pool: all CPUs that no pod owns exclusively"
	}
}

func (m *Machine) whySystem(p *pod) string {
	switch m.poolOf(p) {
	case PoolSystem:
		return "SYSTEM: runs on the CPUs of system.cpus"
	case PoolReserved:
		return "SYSTEM: runs on the reserved CPUs; system.cpus names none that is free"
	}
	return "SYSTEM: runs in the shared pool; neither system.cpus nor reserved CPUs name one that is free"
}

// whyOf is why a container runs where it does.
func (m *Machine) whyOf(p *pod, name string) string {
	if h := p.holders[name]; h != nil {
		return h.why
	}
	if why := m.whyClaims(p, name); why != "" {
		return why
	}
	if _, pinned := p.entries[name]; p.kubelet && !pinned {
		return "runs in the shared pool; kubelet's static policy pinned other containers of its pod"
	}
	return p.why
}

// whyNamed is why a container that is to own CPUs runs where it does.
func (m *Machine) whyNamed(h *holder) string {
	switch {
	case h.grant != nil:
		return m.whyExclusive(h)
	case h.degraded != "":
		return "runs in the shared pool instead of on CPUs of its own: " + h.degraded + m.waitsFor(h)
	}
	return fmt.Sprintf("%s: is given CPUs of its own when it starts", h.pod.in.class)
}

func (m *Machine) whyExclusive(h *holder) string {
	g, p := h.grant, h.pod
	online := g.cpus.And(m.topo.Online())
	if online.IsEmpty() {
		return fmt.Sprintf("%s: all of its CPUs (%s) are offline; it runs in the shared pool%s", p.in.class, g.cpus,
			m.waitsFor(h))
	}
	var b strings.Builder
	neighbours := "shared with BE only"
	if p.refusesBE() || m.isIsolated(g.cpus) {
		neighbours = "alone"
	}
	fmt.Fprintf(&b, "%s: owns %s of its own, %s", p.in.class, count(g.cpus.Count(), "CPU"), neighbours)
	nodes := m.topo.NodesOf(g.cpus)
	fmt.Fprintf(&b, ", on %s", nodesText(&nodes))
	if m.isIsolated(g.cpus) {
		b.WriteString(", of those that the kernel isolates")
	}
	b.WriteString(m.whyShape(g))
	if p.in.reasons != "" {
		b.WriteString("; " + p.in.reasons)
	}
	if off := g.cpus.Minus(online); !off.IsEmpty() {
		fmt.Fprintf(&b, "; %s offline", off)
	}
	return b.String() + m.waitsFor(h)
}

// whyShape describes how a grant lies on cores, and why.
func (m *Machine) whyShape(g *grant) string {
	var b strings.Builder
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
	return b.String()
}

// shape describes how a grant lies on cores.
func (m *Machine) shape(g *grant) string {
	used, whole := m.coresOf(g.cpus)
	return fmt.Sprintf("%s lies on %s, %d of them whole", bindName(g.request.Bind), count(used, "core"), whole)
}

// coresOf counts the cores that some CPUs lie on, and how many of them are complete.
func (m *Machine) coresOf(cpus cpuset.Set) (used, whole int) {
	on := map[int]int{}
	for cpu := range cpus.All() {
		if core := m.topo.CoreOf(cpu); core >= 0 { // else it is offline, and its place is unknown
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

func orNone(cpus cpuset.Set) string {
	if cpus.IsEmpty() {
		return "none"
	}
	return cpus.String()
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
