package policy

import (
	"cmp"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// judgePod finds the pod of a sandbox, known or new. With degrade, a new pod that violates a rule
// runs in the shared pool instead of being refused.
func (m *Machine) judgePod(v *verdict, in *Pod, degrade bool) *Refusal {
	if v.pod = m.sandboxes[in.Sandbox]; v.pod != nil && v.pod.ref.UID == in.UID {
		return nil
	}
	if v.pod = m.pods[in.UID]; v.pod != nil {
		return nil
	}
	in = m.withReserved(in)
	p := m.newPod(in)
	v.pod, v.enters = p, true
	if r := in.Recovered; r != nil && r.Reservation != nil {
		m.reserve(p, r)
		p.several = r.Several
		return nil
	}
	if !kubeletPins(in.Labels, in.QoS) {
		v.view = m.withoutBookings(in.UID)
	}
	view := v.on(m)
	intent, err := m.intentOf(in)
	p.in = intent
	if in.Unread {
		p.unread = true
		return nil
	}
	if err != nil && view.stays(p, in.Recovered) {
		err = nil
	}
	if err == nil && !p.owns() && !(in.Recovered != nil && in.Recovered.Degraded != "") {
		err = view.takeKubelets(v, in.Recovered)
	}
	if err == nil && !p.kubelet && !p.owns() {
		err = view.place(p, in.Recovered)
	}
	if err == nil && in.Recovered == nil && !degrade {
		err = view.keepsIsolation(p, view.requestedFrom(p))
	}
	if r := in.Recovered; r != nil {
		p.several, p.since = r.Several, r.Since
	}
	if err == nil {
		return nil
	}
	if !degrade || err.Code == Busy {
		return err
	}
	if p.holders != nil { // containers that fit have what they ask for
		m.noteDenied(v)
		return nil
	}
	m.fallBack(v, err)
	if view.takeKubelets(v, in.Recovered) == nil && (p.kubelet || p.owns()) {
		p.degraded = "" // whatever the pod asks for, kubelet pinned it
	}
	return nil
}

// enterPod adds a sandbox to the machine, and its pod if that is new.
func (m *Machine) enterPod(v *verdict, in *Pod) {
	p := v.pod
	if v.enters {
		m.order = p.order
		if v.view != nil {
			m.overruled[in.UID] = true
		}
		m.publishNotices(v)
		m.addPod(p, in.Sandbox)
		return
	}
	if m.sandboxes[in.Sandbox] == p {
		return
	}
	p.sandboxes = append(p.sandboxes, in.Sandbox)
	m.sandboxes[in.Sandbox] = p
	if q := in.askedFor(); q.Known() {
		p.asked = q
	}
	if in.CgroupParent != "" && in.CgroupParent != p.ref.CgroupParent {
		p.ref.CgroupParent = in.CgroupParent
		m.podChanged(p)
	}
}

// stays reports whether a pod found running keeps its place although it would be refused if it
// arrived now: no running pod is moved.
func (m *Machine) stays(p *pod, r *Recovered) bool {
	switch {
	case r == nil:
		return false
	case r.Degraded != "":
		return true
	case p.in.exclusive():
		return m.adoptAll(p, r)
	}
	return r.BoundNode != nil
}

// newPod makes a pod that is not in the machine yet.
func (m *Machine) newPod(in *Pod) *pod {
	p := &pod{
		ref:    PodRef{UID: in.UID, Namespace: in.Namespace, Name: in.Name, QoS: in.QoS, CgroupParent: in.CgroupParent},
		labels: in.Labels, annots: in.Annotations, devices: in.DeviceNodes,
		age:   age{createdAt: in.CreatedAt, order: m.residents.order + 1},
		size:  size{hidden: in.LimitHidden, asked: in.askedFor()},
		parts: parts{containers: map[string]*container{}, all: map[string]*container{}},
	}
	m.takeSums(p, in)
	if in.Recovered != nil {
		p.narrowed = slices.Clone(in.Recovered.Narrowed)
	}
	for name, devices := range in.Claims {
		p.claimDevices(name, devices)
	}
	p.holder.pod = p
	return p
}

// fallBack implements admission: degrade. A pod with an unknown class gets the one that corresponds
// to its Kubernetes QoS class.
func (m *Machine) fallBack(v *verdict, err *Refusal) {
	m.share(v.pod, err.Error())
	v.pod.demoted = false
	v.note(string(err.Code), "%s", err.Message)
}

// share moves a pod to the pool of its class, whatever it asked for, and drops the powers that its
// namespace does not have.
func (m *Machine) share(p *pod, why string) {
	p.in.class = m.sharedClass(p)
	p.in.unmanaged = p.in.unmanaged && m.cfg.Allows(p.ref.Namespace, PowerUnmanaged)
	if !m.cfg.Allows(p.ref.Namespace, PowerNUMAExclusive) {
		p.in.numaExclusive = numaShared
	}
	p.in.burst, p.in.bindNode, p.in.scheduled = false, false, nil
	if !p.in.request.Nodes.IsEmpty() {
		r := *p.in.request
		r.Nodes = cpuset.Set{}
		p.in.request = &r
	}
	p.degraded = why
}

// sharedClass is the class of a pod that gets nothing that it asked for.
func (m *Machine) sharedClass(p *pod) Class {
	unknown := p.in.class == "" || p.in.class == SYSTEM
	switch {
	case p.ref.QoS == BestEffort && (unknown || !m.cfg.Allows(p.ref.Namespace, PowerWithoutRequest)):
		if p.production() {
			return LS
		}
		return BE
	case unknown:
		return LS
	}
	return p.in.class
}

func (m *Machine) addPod(p *pod, sandbox string) {
	m.pods[p.ref.UID] = p
	m.sandboxes[sandbox] = p
	if p.unread {
		m.unread[p.ref.UID] = p
	}
	p.sandboxes = []string{sandbox}
	m.ownAll(p)
	if p.nodes != nil {
		m.bound[p.ref.UID] = p
	}
	if p.kubelet {
		delete(m.overruled, p.ref.UID)
	}
	if p.in.ignored {
		m.notice(p, "ResourceStatusIgnored",
			"annotation %s is ignored: the configuration's authority.resourceStatus does not trust it", AnnStatus)
	}
	for _, unused := range p.in.unused {
		m.notice(p, "AnnotationIgnored", "%s", unused)
	}
	if p.in.notExempt {
		m.notice(p, "CapExemptionIgnored",
			"annotation %s is ignored: the configuration's authority.capExemption.namespaces does not list "+
				"namespace %s", AnnCap, literal(p.ref.Namespace))
	}
	if p.owns() || p.kubelet || m.overruled[p.ref.UID] {
		m.recompute()
	}
	m.explain(p)
	m.podChanged(p)
	m.forgetFound(p.ref.UID) // only now, so that its cgroup always has an owner in the tree
}

// place gives a new pod what its class requires. It changes only the pod.
func (m *Machine) place(p *pod, recovered *Recovered) *Refusal {
	switch {
	case recovered != nil && recovered.Degraded != "":
		m.share(p, recovered.Degraded)
		p.demoted = recovered.Demoted
	case p.in.exclusive() && p.in.named != nil:
		return m.placeNamed(p, recovered)
	case p.in.exclusive() && p.resources == nil && recovered == nil:
		return nil // decided when its first container gives its size
	case p.in.exclusive():
		return m.placeExclusive(p, recovered)
	case p.in.class == LS && !p.in.unmanaged:
		return m.placeShared(p, recovered)
	}
	return nil
}

// placeExclusive gives a new LSE or LSR pod its CPUs: those that it was found to own, or free ones.
func (m *Machine) placeExclusive(p *pod, recovered *Recovered) *Refusal {
	if recovered != nil && m.adopt(&p.holder, recovered) || p.resources == nil {
		return nil
	}
	g, err := m.grantFor(&p.holder, *p.resources, p.resources)
	if err == nil {
		p.grant = g
	}
	return err
}

func (m *Machine) podRemoved(sandbox string) {
	p := m.sandboxes[sandbox]
	if p == nil {
		return
	}
	delete(m.sandboxes, sandbox)
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(s string) bool { return s == sandbox })
	if len(p.sandboxes) == 0 {
		m.dropPod(p)
		return
	}
	for _, id := range sortedKeys(p.all) {
		if p.all[id].sandbox == sandbox {
			m.dropContainer(id)
		}
	}
}

// dropPod ends a pod's allocation: its CPUs return to the pools.
func (m *Machine) dropPod(p *pod) {
	for _, id := range sortedKeys(p.all) {
		m.dropContainer(id)
	}
	for _, s := range p.sandboxes {
		delete(m.sandboxes, s)
	}
	delete(m.pods, p.ref.UID)
	owner := p.owns()
	m.releaseAll(p)
	m.leavePool(p)
	delete(m.bound, p.ref.UID)
	delete(m.be.away, p.ref.UID)
	delete(m.be.idled, p.ref.UID)
	delete(m.unread, p.ref.UID)
	m.stopWaiting(p)
	delete(m.overruled, p.ref.UID)
	m.caps -= len(p.caps)
	m.views.podsStale = true
	m.decide(DropPod{UID: p.ref.UID})
	forgot := len(p.claims) > 0 && m.forgetClaims()
	if owner || forgot || len(m.entriesOf(p.ref.UID)) > 0 {
		m.recompute()
	}
}

// judgePodResize follows kubelet's announcement of a resize. Kubelet announces request and limit
// one after the other, each with the value of the other that it reads from the pod's cgroup. Half
// of a resize decides nothing about owned CPUs: the other half or the containers' updates follow.
func (m *Machine) judgePodResize(v *verdict, e PodResized) *Refusal {
	p := m.sandboxes[e.Sandbox]
	if p == nil {
		return nil
	}
	if p.outside() && p.known {
		// Kubelet repeats what it reads from the pod's cgroup, where weight and quota may be ours.
		// The API server says what it has granted.
		v.asked = p.asked
		return nil
	}
	r, asked := p.after(&e)
	v.asked = asked
	if p.allocated() {
		// a limit may have been derived from the request
		r = Resources{RequestMilli: fromWeight(r.RequestMilli), LimitMilli: fromWeight(r.LimitMilli)}
		if r.LimitMilli != r.RequestMilli && !(p.hidden && r.LimitMilli == NoLimit) {
			return nil
		}
	}
	return m.judgeResize(v, p, r)
}

// podResized applies the announced values.
func (m *Machine) podResized(v *verdict, sandbox string) {
	if p := m.sandboxes[sandbox]; p != nil {
		p.asked = v.asked
	}
	m.resize(v)
}

// weightStep is how many milli-CPUs of a request a step of cgroup weight stands for, rounded up:
// 262142.0 / 9999 * 1000 / 1024 = 25.6.
const weightStep = 26

// fromWeight restores the whole number of CPUs of a request that was written as a cgroup weight:
// 9,999 steps for 262,142 shares, rounded down.
func fromWeight(milli int64) int64 {
	if rest := milli % 1000; milli > 0 && rest > 1000-weightStep {
		return milli + 1000 - rest
	}
	return milli
}

// podChanged decides the desired state of a pod and of its containers again.
func (m *Machine) podChanged(p *pod) {
	if p.claim != nil {
		m.claimChanged(p.claim)
		return
	}
	if p.unread {
		return
	}
	m.views.podsStale = true
	need, _ := m.needOf(p, "")
	m.enterPool(p, need.Pool)
	d := SetPod{Pod: p.ref, Need: need, Owned: m.namedCPUs(p), Mems: m.memsOf(p, "", need), Asked: p.asked,
		Idle: m.idles(p), Why: p.why}
	d.WeightMilli, d.StaleMilli = m.weighs(p)
	d.Quota, d.QuotaOurs = m.podQuota(p)
	p.noteMems("", d.Mems)
	m.decide(d)
	for _, id := range sortedKeys(p.all) {
		m.containerChanged(p.all[id])
	}
}

// pinned reports whether a pod, or a container of it, runs on CPUs that we granted.
func (m *Machine) pinned(p *pod) bool {
	if p.holders == nil {
		return m.pins(&p.holder)
	}
	return slices.ContainsFunc(p.every(), m.pins)
}

// pins reports whether a holder has online CPUs.
func (m *Machine) pins(h *holder) bool {
	online := m.topo.Online()
	return h.grant != nil && h.grant.cpus.Intersects(&online)
}

// lent is the request for lent CPUs of a pod of class BE that requests no others. Kubelet does not
// know of lent CPUs, and gives the pod's cgroup the minimum weight and no quota.
func (p *pod) lent() int64 {
	none := p.ref.QoS == BestEffort || p.resources != nil && p.resources.RequestMilli == 0
	if p.in.class != BE || p.in.unmanaged || !none {
		return 0
	}
	return max(p.batch, 0)
}

// groupWeight is how many lent CPUs, or CPUs of best effort outside of its slice, weigh as much as one
// that was requested of Kubernetes. In the burstable slice they meet production, which batch pods of
// many CPUs must not outweigh. And kubelet 1.36 reports a pod's weight as its request, which
// schedulers count (status.resources, KEP-5419): lent CPUs may count as few others.
const groupWeight = 40

// weighs is the request that a pod's weight stands for; 0: kubelet manages the weight. stale is the
// one that an earlier daemon may have left instead; 0: none.
func (m *Machine) weighs(p *pod) (milli, stale int64) {
	lent := p.lent()
	if lent > 0 && p.ref.QoS == BestEffort {
		return max(lent/groupWeight, 1), 0
	}
	if !p.outside() || !p.known || p.resources == nil {
		return 0, 0
	}
	grouped := max(max(lent, p.resources.RequestMilli)/groupWeight, 1)
	if lent > 0 || m.cfg.BEGrouped {
		return grouped, 0
	}
	return max(p.whole().RequestMilli, 1), grouped
}

// idles reports whether a pod runs only when the CPU is otherwise idle (cpu.idle). Idle cgroups all
// have the same weight, so a pod with a weight for lent CPUs is not idle. Nor is a pod that
// Kubernetes may resize, since the kernel refuses a weight on an idle cgroup.
func (m *Machine) idles(p *pod) bool {
	if _, is := m.be.idled[p.ref.UID]; is && m.mayIdle(p) {
		return true
	}
	return m.alwaysIdles(p)
}

// alwaysIdles is the same where nobody suffers from the pod.
func (m *Machine) alwaysIdles(p *pod) bool {
	return m.cfg.BEIdle && p.in.class == BE && !p.in.unmanaged && p.ref.QoS == BestEffort && p.batch <= 0
}

// podQuota is no quota if we lift that of the pod's cgroup, the lent CPUs if there are any, and
// otherwise kubelet's; never more than the pod's part of what limits best effort.
func (m *Machine) podQuota(p *pod) (q Quota, ours bool) {
	own := p.ownQuota()
	if part := m.be.partOf(p); part > 0 && (own == NoLimit || part < own) {
		return QuotaOf(part), true
	}
	switch lent := p.lent(); {
	case lent > 0:
		return QuotaOf(lent), true
	case p.outside() && p.known && p.resources != nil:
		// What the runtime said may be older. A weight of ours comes with a quota.
		return p.asked.following(p.whole().LimitMilli), m.cfg.BEGrouped
	case !m.pinned(p) || p.keepsQuota():
		return p.asked, false
	}
	return QuotaOf(NoLimit), true
}

// ownQuota is the quota of a best-effort pod alone, in thousandths of a CPU: what it was lent, else
// its limit.
func (p *pod) ownQuota() int64 {
	if lent := p.lent(); lent > 0 || p.resources == nil {
		return cmp.Or(lent, NoLimit)
	}
	return cmp.Or(p.whole().LimitMilli, NoLimit)
}

// memsOf restricts memory to the NUMA nodes of a pod's CPUs, if configured. A node without memory
// of its own would kill the pod at its first page, so then nothing is restricted. If memory was
// restricted before, it is set to all nodes instead: neither the kernel nor the runtime forgets a
// mask. A mask that we never set may be that of kubelet's memory manager. The mask of a reservation
// is left as the version that made it has written it.
func (m *Machine) memsOf(p *pod, name string, n Need) *cpuset.Set {
	if p.reserved() {
		return nil
	}
	if m.cfg.Memory == MemoryStrict {
		if near := m.nearNodes(p, name, n); near != nil {
			return near
		}
	}
	if !slices.Contains(p.narrowed, name) {
		return nil
	}
	all := m.topo.MemoryNodes()
	return nonEmpty(&all)
}

// noteMems records that the memory nodes of a container, or of the pod's cgroup, were set by us.
func (p *pod) noteMems(name string, mems *cpuset.Set) {
	if mems != nil && !slices.Contains(p.narrowed, name) {
		p.narrowed = append(slices.Clip(p.narrowed), name)
	}
}

func (m *Machine) nearNodes(p *pod, name string, n Need) *cpuset.Set {
	var nodes cpuset.Set
	h := p.named(name)
	switch {
	case n.Own != nil && h != nil && h.grant != nil:
		// An offline CPU does not remove its node: the kernel would migrate the pages.
		nodes = m.nodesOf(h.grant)
	case n.Own != nil:
		own := *n.Own
		for _, entry := range p.entries {
			if entry.Intersects(n.Own) {
				own.AddSet(&entry)
			}
		}
		nodes = m.topo.NodesOf(own)
	case n.Pool.isPart() && n.Pool.Kind() == PoolShared:
		nodes = *p.nodes
	default:
		return nil
	}
	nodes = nodes.And(m.topo.MemoryNodes())
	if nodes.IsEmpty() {
		return nil
	}
	return &nodes
}
