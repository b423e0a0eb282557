package policy

import (
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// Trial computes what a node would decide about a new pod, without the node: it is the machine of
// all nodes with the same hardware and rules, and loads the holdings of any of them. It serves one
// goroutine.
//
//	t, err := policy.NewTrial(hardware, rules)
//	a, refusal := t.Applicant(&pod)
//	refusal = t.Judge(a, policy.Standing{Ledger: ledger, SharedMilli: requested}, &offer)
type Trial struct {
	m      *Machine
	slots  []*slot // the first `used` of them are in the machine
	used   int
	plain  [3]*slot // owners that need not be distinguished, by exclusive policy
	shared *pod     // stands for all pods in the shared pool
	pod    pod      // the applicant
	booked map[string]cpuset.Set
	one    [1]*holder
	alone  bool // the rules need each owner by itself
}

// slot is a pod of a ledger with the values that its pointers refer to, or the holder of another
// container of the previous pod.
type slot struct {
	pod
	named     map[string]*holder
	own       grant
	on        cpuset.Set
	requested Resources
}

// NewTrial makes a trial of nodes with this hardware and these rules.
func NewTrial(t *topology.Topology, rules Config) (*Trial, error) {
	m, err := New(t, rules)
	if err != nil {
		return nil, err
	}
	return newTrial(m), nil
}

// Clone makes another trial, for another goroutine.
func (t *Trial) Clone() *Trial {
	m := *t.m
	m.alloc = m.alloc.Clone()
	m.pods, m.exclusive, m.bound = map[string]*pod{}, map[string]*holder{}, map[string]*pod{}
	m.requests = nil
	return newTrial(&m)
}

func newTrial(m *Machine) *Trial {
	t := &Trial{m: m, plain: [3]*slot{newSlot(), newSlot(), newSlot()}, shared: &newSlot().pod,
		booked: map[string]cpuset.Set{}}
	t.shared.in.class, t.shared.resources = LS, &Resources{}
	for policy, p := range t.plain {
		p.ref.UID = "plain" + string('0'+rune(policy)) // Kubernetes has no UID this short
	}
	m.scratch, m.promised = &grant{}, &cpuset.Set{}
	t.alone = len(m.cfg.Authority.MaxCPUs) > 0 || m.cfg.Allocation.SMTRequired
	m.kubelet = KubeletState{PolicyName: "static", Entries: map[string]map[string]cpuset.Set{"": t.booked}}
	return t
}

func newSlot() *slot {
	s := &slot{named: map[string]*holder{}}
	s.in.request = &cpuallocator.Request{}
	s.holder.pod = &s.pod
	return s
}

// Applicant is a pod that asks for a place, read by the rules of a group of nodes.
type Applicant struct {
	pod pod
	// rivals means that the answer depends on the NUMA nodes of each pod.
	rivals bool
}

// Owns reports whether the pod asks for CPUs of its own.
func (a *Applicant) Owns() bool { return a.pod.in.exclusive() }

// TakesIsolated reports whether its CPUs must be ones that the kernel isolates.
func (a *Applicant) TakesIsolated() bool { return a.pod.in.isolated }

// CPUs is the number of whole CPUs that it asks for; 0 for a pod that owns none.
func (a *Applicant) CPUs() int {
	if !a.Owns() || a.pod.resources == nil {
		return 0
	}
	if a.pod.in.named != nil {
		var sum int64
		for _, spec := range a.pod.specs {
			if slices.Contains(a.pod.in.named, spec.Name) {
				sum += spec.Resources.RequestMilli / 1000
			}
		}
		return int(min(max(sum, 0), cpuset.MaxCPUs+1))
	}
	return int(min(max(a.pod.resources.RequestMilli, 0)/1000, cpuset.MaxCPUs+1))
}

// Binds reports whether it will be bound to the shared pool of some NUMA nodes.
func (a *Applicant) Binds() bool { return a.pod.in.burst || a.pod.in.bindNode }

// Applicant reads a pod's wish by the rules. A tenant's own resource-status does not count: that
// annotation is the result of a trial.
func (t *Trial) Applicant(in *Pod) (*Applicant, *Refusal) {
	asked := *in
	asked.Annotations = make(map[string]string, len(in.Annotations))
	for k, v := range in.Annotations {
		if k != AnnStatus {
			asked.Annotations[k] = v
		}
	}
	a := &Applicant{pod: *t.m.newPod(&asked)}
	var err *Refusal
	if a.pod.in, err = t.m.intentOf(&asked); err != nil {
		return nil, err
	}
	a.rivals = a.pod.in.numaExclusive != numaShared
	return a, nil
}

// Standing is the current state of a node.
type Standing struct {
	Ledger *Ledger
	// More are holdings of pods that the ledger does not list yet.
	More []Holding
	// Without are the UIDs of pods that count as gone.
	Without []string
	// SharedMilli replaces the ledger's.
	SharedMilli int64
	// Sums are those of Ledger and More, if the applicant and Without hold nothing in them; nil:
	// they are added up each time.
	Sums *Sums
}

// Sums are the totals of holdings by exclusive policy, which is all that most pods are judged by.
type Sums struct {
	owned [3]struct{ cpus, withheld cpuset.Packed } // by exclusive policy
	// kubelet are the CPUs that its static policy pinned.
	kubelet cpuset.Packed
	each    bool // the totals are not enough: holdings have to be visited one by one
}

// SumsOf adds up holdings.
func SumsOf(lists ...[]Holding) (sums Sums) {
	var cpus, withheld [3]cpuset.Set
	var kubelet cpuset.Set
	for _, list := range lists {
		for i := range list {
			switch h := &list[i]; {
			case !h.Owns() || h.NUMAExclusive != numaShared:
				return Sums{each: true}
			case h.Kind == KindKubelet:
				kubelet.AddPacked(h.CPUs)
			default:
				cpus[h.Exclusive].AddPacked(h.CPUs)
				withheld[h.Exclusive].AddPacked(h.Withheld)
			}
		}
	}
	for i := range sums.owned {
		sums.owned[i].cpus, sums.owned[i].withheld = cpus[i].Pack(), withheld[i].Pack()
	}
	sums.kubelet = kubelet.Pack()
	return sums
}

// Offer is the place that a node would give.
type Offer struct {
	CPUs, Withheld cpuset.Set
	// Containers are the containers of the pod that own CPUs; CPUs and Withheld are the totals.
	Containers []Owned
	Nodes      cpuset.Set // NUMA node IDs that a pod of the shared pool is bound to
}

// Judge finds a pod's place on a node by the same rules as that node. A node that degrades pods
// (admission.mode) accepts what is refused here, without CPUs of its own or into a shared pool that
// is too small for it.
func (t *Trial) Judge(a *Applicant, s Standing, o *Offer) *Refusal {
	if s.Ledger.Unread && a.Owns() {
		return refuse(Busy, "the node is still reading which CPUs its running pods own; try again later")
	}
	t.load(a, &s)
	t.pod = a.pod
	p, m := &t.pod, t.m
	p.holder.pod = p
	err := m.place(p, nil)
	if err == nil {
		err = m.keepsIsolation(p, m.requestedFrom(p))
	}
	if err == nil {
		err = t.keepsPromises(&s)
	}
	if err != nil {
		return err
	}
	*o = Offer{}
	t.one[0] = &p.holder
	holders := t.one[:]
	if p.holders != nil {
		holders = p.every()
	}
	for _, h := range holders {
		if h.grant == nil {
			continue
		}
		o.CPUs.AddSet(&h.grant.cpus)
		o.Withheld.AddSet(&h.grant.withheld)
		if h.name != "" {
			o.Containers = append(o.Containers, Owned{Container: h.name, CPUs: h.grant.cpus})
		}
	}
	if p.nodes != nil {
		o.Nodes = *p.nodes
	}
	return nil
}

// keepsPromises refuses to bind the applicant if a pod that was scheduled but has not arrived would
// then be refused, should the applicant arrive first. The node does not know of such pods, and
// binds by limits, which do not add up.
func (t *Trial) keepsPromises(s *Standing) *Refusal {
	p, m := &t.pod, t.m
	if p.nodes == nil {
		return nil
	}
	for i := range s.More {
		h := &s.More[i]
		cpus := h.CPUs.Set().Or(h.Withheld.Set())
		for _, f := range append(m.floors(claim{})[1:], m.floorOn(p.nodes, p)) {
			if f.milli += m.requestedFrom(p); p.nodes.SubsetOf(f.nodes) && cpus.Intersects(&f.cpus) &&
				f.room(&m.pools.Shared, &m.pools.Reserved) < 0 {
				return refuse(cpuallocator.InsufficientCPUs,
					"%s has %s and with this pod %s; a pod that has not started yet was given %s there", f.name(),
					count(m.pools.Shared.CountAnd(&f.cpus), "CPU"), m.needs(&f), count(cpus.CountAnd(&f.cpus), "CPU"))
			}
		}
	}
	return nil
}

// Accept returns the holding of a pod that a scheduler gave CPUs before, as its annotation says.
// The CPUs withheld for it and its exclusive policy follow from its wish.
func (t *Trial) Accept(a *Applicant, s Standing, o Offer) Holding {
	t.load(a, &s)
	t.pod = a.pod
	t.pod.holder.pod = &t.pod
	if !o.CPUs.IsEmpty() {
		o.Withheld = t.m.grantOf(&t.pod.holder, o.CPUs, *a.pod.in.request).withheld
	}
	return a.Holding(&o)
}

// Holding is what the pod holds once it has the offer.
func (a *Applicant) Holding(o *Offer) Holding {
	h := a.pod.heldBy()
	h.CPUs, h.Withheld, h.Nodes = o.CPUs.Pack(), o.Withheld.Pack(), o.Nodes.Pack()
	if h.Owns() {
		h.Requested, h.Exclusive, h.SMT = int32(a.CPUs()), a.pod.in.request.Exclusive, a.pod.in.request.SMT
	} else if a.pod.resources != nil {
		h.Milli = a.pod.resources.RequestMilli
	}
	return h
}

// load enters the holdings into the machine.
func (t *Trial) load(a *Applicant, s *Standing) {
	m := t.m
	clear(m.pods)
	clear(m.exclusive)
	clear(m.bound)
	clear(t.booked)
	m.owned = owned{}
	t.used = 0
	booked, milli := s.Ledger.Booked.Set(), s.SharedMilli
	if sums := s.Sums; sums != nil && !sums.each && !a.rivals && !t.alone {
		for i, p := range t.plain {
			p.own.cpus, p.own.withheld = sums.owned[i].cpus.Set(), sums.owned[i].withheld.Set()
		}
		booked.AddPacked(sums.kubelet)
	} else {
		milli -= t.takeOver(a, s, &booked)
	}
	for policy, p := range t.plain {
		if all := p.own.all(); !all.IsEmpty() {
			p.grant, p.own.request.Exclusive = &p.own, cpuallocator.ExclusivePolicy(policy)
			m.own(&p.pod.holder)
		}
	}
	t.shared.resources.RequestMilli = max(milli, 0)
	m.pods["shared"] = t.shared
	if !booked.IsEmpty() {
		t.booked[""] = booked
	}
	*m.promised = s.Ledger.Kept.Set()
	m.derive()
	if s.Ledger.Overlap {
		m.pools.Shared, m.pools.Overlap = m.overlapping(), true
	}
}

// takeOver enters the holdings pod by pod, and returns what the bound pods request. CPUs that
// kubelet pinned are added to booked.
func (t *Trial) takeOver(a *Applicant, s *Standing, booked *cpuset.Set) (bound int64) {
	for _, p := range t.plain {
		p.own.cpus, p.own.withheld = cpuset.Set{}, cpuset.Set{}
	}
	each := a.rivals || someExclusive(s.Ledger.Holdings) || someExclusive(s.More)
	for _, list := range [][]Holding{s.Ledger.Holdings, s.More} {
		for i := range list {
			h := &list[i]
			switch {
			case h.UID == a.pod.ref.UID || slices.Contains(s.Without, h.UID):
			case !h.Owns():
				bound += h.Milli
				t.enter(h)
			case !each && h.Kind == KindKubelet:
				booked.AddPacked(h.CPUs)
			case each || t.alone:
				t.enter(h)
			default:
				g := &t.plain[h.Exclusive].own
				g.cpus.AddPacked(h.CPUs)
				g.withheld.AddPacked(h.Withheld)
			}
		}
	}
	return bound
}

func someExclusive(list []Holding) bool {
	for i := range list {
		if list[i].NUMAExclusive != numaShared {
			return true
		}
	}
	return false
}

// enter makes a pod of a holding.
func (t *Trial) enter(h *Holding) {
	if t.used == len(t.slots) {
		t.slots = append(t.slots, newSlot())
	}
	s := t.slots[t.used]
	t.used++
	p, m := &s.pod, t.m
	p.ref.UID, p.ref.Namespace, p.holder.name = h.UID, h.Namespace, h.Container
	p.in.class, p.in.numaExclusive = h.Class, h.NUMAExclusive
	p.grant, p.nodes, p.resources, p.kubelet, p.entries = nil, nil, nil, false, nil
	p.holder.pod, p.holders = p, nil
	if h.Container != "" {
		s.isNamed(m.pods[h.UID])
	}
	if h.Kind != KindClaim { // it is no pod: it bars no NUMA node
		m.pods[h.UID] = p.holder.pod
	}
	switch {
	case h.Kind == KindKubelet:
		p.kubelet, p.entries = true, map[string]cpuset.Set{"": h.CPUs.Set()}
		t.booked[h.UID] = h.CPUs.Set()
	case h.Owns():
		s.own.cpus, s.own.withheld = h.CPUs.Set(), h.Withheld.Set()
		r := &s.own.request
		r.CPUs, r.Exclusive, r.SMT = int(h.Requested), h.Exclusive, h.SMT
		p.grant = &s.own
		m.own(&p.holder)
	default:
		s.on, s.requested = h.Nodes.Set(), Resources{RequestMilli: h.Milli, LimitMilli: NoLimit}
		p.nodes, p.resources = &s.on, &s.requested
		m.bound[h.UID] = p
	}
}

// isNamed turns the holder of a slot into that of a container: of the pod p, in which other
// containers own CPUs, or of its own if p is nil.
func (s *slot) isNamed(p *pod) {
	if p == nil {
		p = &s.pod
		clear(s.named)
		p.holders = s.named
	}
	p.holders[s.holder.name], s.holder.pod = &s.holder, p
}
