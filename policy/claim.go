package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// ClaimPrepared asks for the exclusive CPUs of a claim of our own DRA driver, before any container has it. A claim that
// has its CPUs keeps them; then the event says only for which pods it is reserved by now.
type ClaimPrepared struct {
	UID       string         `json:"uid"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Pods      []string       `json:"pods"`     // UIDs of the pods that the claim is reserved for
	Requests  []ClaimRequest `json:"requests"` // one for each allocation result
}

// ClaimRequest is what a claim asks of one device. Policies that are nil are the node's.
type ClaimRequest struct {
	Device string     `json:"device"` // its name in our ResourceSlice
	Within cpuset.Set `json:"within"` // the CPUs of the device
	CPUs   int        `json:"cpus"`
	// Containers are the names of the containers that get these CPUs; none: those that have the claim.
	Containers   []string                      `json:"containers,omitempty"`
	SMT          *cpuallocator.SMT             `json:"smt,omitempty"`
	Bind         *cpuallocator.BindPolicy      `json:"bind,omitempty"`
	BindRequired bool                          `json:"bindRequired,omitempty"`
	Exclusive    *cpuallocator.ExclusivePolicy `json:"exclusive,omitempty"`
}

// ClaimUnprepared takes back the CPUs of a claim of our own driver.
type ClaimUnprepared struct {
	UID string `json:"uid"`
	// IfUnused leaves a claim alone that a pod on the node has: nobody asked for its end, it was found to be forgotten.
	IfUnused bool `json:"ifUnused,omitempty"`
}

func (ClaimPrepared) event()   {}
func (ClaimUnprepared) event() {}

// ClaimGiven is what a claim of our own driver has: the CPUs of each request, in their order, offline ones included.
// DropClaim means that it has none any more.
type ClaimGiven struct {
	UID  string
	CPUs []cpuset.Set
}
type DropClaim struct{ UID string }

func (ClaimGiven) decision() {}
func (DropClaim) decision()  {}

// KindClaim is the kind of a holding of a claim of our own driver. Its UID, namespace and name are the claim's.
const KindClaim = "claim"

// ClaimKind is the kind of the CDI devices of our own driver.
const ClaimKind = "quietcore.dev/cpu"

// ClaimDevice is the qualified name of the CDI device by which a container has a request of a claim of our own driver.
func ClaimDevice(uid string, request int) string {
	return ClaimKind + "=" + uid + "-" + strconv.Itoa(request)
}

// isOwnDevice reports whether a CDI device is one of our own driver.
func isOwnDevice(device string) bool { return strings.HasPrefix(device, ClaimKind+"=") }

const (
	maxClaimRequests = 32 // Kubernetes' limit of allocation results
	maxClaimPods     = 256
)

// ownClaim is a claim of our own driver. Each of its requests has a pod of its own that is in no other list: what the
// machine knows of owners then holds for it too. The holder's name is the number of the request.
type ownClaim struct {
	asked ClaimPrepared
	parts []*pod
	// named means that the runtime has named a container that has it: those that it names without it do not have it,
	// also where that container has ended.
	named bool
}

// preparing is a claim with what its requests get; nil: such a request has CPUs.
type preparing struct {
	*ownClaim
	given []*grant
}

// devices are the CDI devices of the claim.
func (c *ownClaim) devices() []string {
	devices := make([]string, len(c.parts))
	for i := range c.parts {
		devices[i] = ClaimDevice(c.asked.UID, i)
	}
	return devices
}

// now is what the claim has.
func (c *ownClaim) now() ClaimGiven {
	d := ClaimGiven{UID: c.asked.UID, CPUs: make([]cpuset.Set, len(c.parts))}
	for i, p := range c.parts {
		if p.grant != nil {
			d.CPUs[i] = p.grant.cpus
		}
	}
	return d
}

// newPart makes the pod of a request.
func (m *Machine) newPart(c *ownClaim, i int) (*pod, *Refusal) {
	p := &pod{ref: PodRef{UID: c.asked.UID, Namespace: c.asked.Namespace, Name: c.asked.Name}, claim: c}
	p.order = m.order + 1
	p.holder = holder{pod: p, name: strconv.Itoa(i)}
	r := &c.asked.Requests[i]
	w := Wish{Class: LSE, bind: r.Bind, bindRequired: r.BindRequired, exclusive: r.Exclusive, smt: r.SMT}
	p.in = intent{class: LSE, request: &cpuallocator.Request{}}
	err := m.authoriseClaim(c, r)
	for _, part := range []func() *Refusal{
		func() *Refusal { return m.bindOf(&w, &p.in) },
		func() *Refusal { return m.exclusiveOf(&w, &p.in) },
		func() *Refusal { m.strategyOf(&p.in); m.smtOf(&w, &p.in); return nil },
	} {
		if refusal := part(); err == nil {
			err = refusal
		}
	}
	return p, err
}

// authoriseClaim refuses a claim whose namespace may not own CPUs, or not more than it asks for.
func (m *Machine) authoriseClaim(c *ownClaim, r *ClaimRequest) *Refusal {
	powers := []Power{PowerExclusive}
	if configured := m.cfg.Allocation.SMT; m.topo.ThreadsPerCore() > 1 && r.SMT != nil && *r.SMT != configured &&
		(*r.SMT == cpuallocator.SMTIsolate || *r.SMT == cpuallocator.SMTRoundUp) {
		powers = append(powers, PowerWholeCores)
	}
	for _, w := range powers {
		if !m.cfg.Allows(c.asked.Namespace, w) {
			return m.unauthorised(c.asked.Namespace, w)
		}
	}
	return nil
}

// judgeClaim finds CPUs for the requests of a claim that have none. All of them are met, or none is.
func (m *Machine) judgeClaim(v *verdict, e *ClaimPrepared) *Refusal {
	if err := e.check(); err != nil {
		return err
	}
	c, view := m.claims[e.UID], m
	if c != nil {
		if err := c.sameRequests(e); err != nil {
			return err
		}
	} else {
		c = &ownClaim{asked: *e}
		for i := range e.Requests {
			p, err := m.newPart(c, i)
			if err != nil {
				return e.refused(i, err)
			}
			c.parts = append(c.parts, p)
		}
	}
	v.claim = preparing{c, make([]*grant, len(c.parts))}
	for i, p := range c.parts {
		if p.grant != nil {
			continue
		}
		g, err := view.allocate(claim{holder: &p.holder}, e.Requests[i].CPUs)
		if err == nil {
			err = view.keepsShare(g)
		}
		if err != nil {
			return e.refused(i, err)
		}
		v.claim.given[i] = g
		view = view.withClaim(&p.holder, g)
	}
	return nil
}

// withClaim returns a copy of the machine to judge on, in which a request of a claim has CPUs.
func (m *Machine) withClaim(h *holder, g *grant) *Machine {
	with := *h
	with.grant = g
	return m.withGrant(&with)
}

// refused is the refusal of one request of a claim.
func (e *ClaimPrepared) refused(i int, err *Refusal) *Refusal {
	return refuse(err.Code, "claim %s/%s, device %s: %s", e.Namespace, e.Name, literal(e.Requests[i].Device),
		err.Message)
}

// check refuses what no claim can ask for.
func (e *ClaimPrepared) check() *Refusal {
	if e.UID == "" || len(e.Requests) == 0 || len(e.Requests) > maxClaimRequests || len(e.Pods) > maxClaimPods {
		return refuse(InvalidRequest, "claim %s with %d requests for %d pods: it needs a UID, 1 to %d requests and at "+
			"most %d pods", literal(e.UID), len(e.Requests), len(e.Pods), maxClaimRequests, maxClaimPods)
	}
	for i := range e.Requests {
		if r := &e.Requests[i]; r.CPUs < 1 || r.Within.IsEmpty() {
			return refuse(InvalidRequest, "claim %s/%s asks for %d CPUs of device %s, which has CPUs %s",
				e.Namespace, e.Name, r.CPUs, literal(r.Device), orNone(r.Within))
		}
	}
	return nil
}

// sameRequests refuses a claim that was given CPUs for other requests: its containers may run on them.
func (c *ownClaim) sameRequests(e *ClaimPrepared) *Refusal {
	if slices.EqualFunc(c.asked.Requests, e.Requests, func(a, b ClaimRequest) bool {
		return a.Device == b.Device && a.CPUs == b.CPUs
	}) {
		return nil
	}
	return refuse(InvalidRequest, "claim %s/%s asks for other devices than those of which it was given CPUs; its old "+
		"CPUs have to be given back first", e.Namespace, e.Name)
}

// prepareClaim enters a claim, whose CPUs leave the pools before it is confirmed.
func (m *Machine) prepareClaim(v *verdict, e ClaimPrepared) {
	c := v.claim.ownClaim
	for i, g := range v.claim.given {
		if p := c.parts[i]; g != nil {
			p.createdAt, p.grant, p.degraded = m.now, g, ""
		}
	}
	c.asked.Pods = slices.Compact(slices.Sorted(slices.Values(e.Pods)))
	m.enterClaim(c)
	m.decide(c.now())
	m.reserveFor(c)
}

// enterClaim enters a claim with the CPUs that its requests have.
func (m *Machine) enterClaim(c *ownClaim) {
	m.claims[c.asked.UID] = c
	for _, p := range m.pods {
		c.named = c.named || p.names(c)
	}
	changed := false
	for i, p := range c.parts {
		m.claimants[ClaimDevice(c.asked.UID, i)] = &p.holder
		m.order = max(m.order, p.order)
		if p.grant != nil && m.exclusive[p.id()] == nil {
			m.own(&p.holder)
			changed = true
		}
	}
	m.news, m.views.ownersStale = true, true
	if changed {
		m.recompute()
		m.claimMoved(c) // pods may have had it before it had these CPUs
	}
}

// keepsShare refuses a claim more than claims may have of a device.
func (m *Machine) keepsShare(g *grant) *Refusal {
	all := g.all()
	for i := range m.cfg.ClaimShares {
		s := &m.cfg.ClaimShares[i]
		if n := all.CountAnd(&s.Within); n > 0 && n > m.owed(s) {
			return refuse(cpuallocator.InsufficientCPUs, "%s would be taken, and of the %d that claims may have of it "+
				"(dra.share) %d are left", count(n, "CPU"), s.CPUs, m.owed(s))
		}
	}
	return nil
}

// owed is how many CPUs of a share claims do not have.
func (m *Machine) owed(s *ClaimShare) int {
	n := s.CPUs
	for _, h := range m.exclusive {
		if h.pod.claim != nil {
			n -= h.grant.cpus.CountAnd(&s.Within) + h.grant.withheld.CountAnd(&s.Within)
		}
	}
	return max(n, 0)
}

// keptForClaims are CPUs that are free, as many of each share as claims do not have of it.
func (m *Machine) keptForClaims() (kept cpuset.Set) {
	free := m.pools.Shared.Minus(m.pools.Reserved).Minus(m.pools.System)
	for i := range m.cfg.ClaimShares {
		s := &m.cfg.ClaimShares[i]
		here := free.And(s.Within)
		some := m.lastCores(&here, m.owed(s))
		kept.AddSet(&some)
	}
	return kept
}

// lastCores returns n of some CPUs, or all if there are fewer: whole cores before parts of cores, and the last ones
// first, so that what is chosen stays chosen when others of them are taken.
func (m *Machine) lastCores(cpus *cpuset.Set, n int) (chosen cpuset.Set) {
	cores := m.topo.Cores()
	for i := len(cores) - 1; i >= 0 && n > 0; i-- {
		core := cores[i].CPUs
		if len(core) <= n && !slices.ContainsFunc(core, func(cpu int) bool { return !cpus.Has(cpu) }) {
			for _, cpu := range core {
				chosen.Add(cpu)
			}
			n -= len(core)
		}
	}
	rest := cpus.Minus(chosen)
	skip := rest.Count() - n
	for cpu := range rest.All() {
		if skip--; skip < 0 {
			chosen.Add(cpu)
		}
	}
	return chosen
}

// reserveFor tells the pods on the node that they have a claim.
func (m *Machine) reserveFor(c *ownClaim) {
	for _, uid := range c.asked.Pods {
		if p := m.pods[uid]; p != nil {
			m.takeClaims(p, "", m.reservedFor(p.ref.UID, p.claims[""]))
		}
	}
}

// reservedFor are the devices of the claims that are reserved for a pod, with those that it had before.
func (m *Machine) reservedFor(uid string, before []string) []string {
	devices := slices.Clone(before)
	for _, id := range sortedKeys(m.claims) {
		if c := m.claims[id]; slices.Contains(c.asked.Pods, uid) {
			devices = append(devices, c.devices()...)
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// withReserved is a pod that arrives, with the claims that are reserved for it.
func (m *Machine) withReserved(in *Pod) *Pod {
	devices := m.reservedFor(in.UID, in.Claims[""])
	if len(devices) == 0 {
		return in
	}
	with := *in
	with.Claims = map[string][]string{"": devices}
	for name, some := range in.Claims {
		if name != "" {
			with.Claims[name] = some
		}
	}
	return &with
}

// judgeUnprepare refuses to take the CPUs of a claim from pods that may run on them.
func (m *Machine) judgeUnprepare(e *ClaimUnprepared) *Refusal {
	c := m.claims[e.UID]
	if c == nil || !e.IfUnused {
		return nil
	}
	if err := m.refuseUnread(); err != nil {
		return err
	}
	devices := c.devices()
	for _, p := range ordered(m.pods) {
		if slices.Contains(c.asked.Pods, p.ref.UID) || p.has(devices) {
			return refuse(Busy, "claim %s/%s is that of pod %s/%s, which is on the node", c.asked.Namespace,
				c.asked.Name, p.ref.Namespace, p.ref.Name)
		}
	}
	// Of a pod that was not announced it is not known what it has.
	for _, uid := range sortedKeys(m.found) {
		if slices.Contains(c.asked.Pods, uid) {
			return refuse(Busy, "claim %s/%s is that of pod %s, which is on the node and was never announced",
				c.asked.Namespace, c.asked.Name, literal(uid))
		}
	}
	return nil
}

// unprepareClaim gives the CPUs of a claim back.
func (m *Machine) unprepareClaim(uid string) {
	c := m.claims[uid]
	if c == nil {
		return
	}
	delete(m.claims, uid)
	for i, p := range c.parts {
		delete(m.claimants, ClaimDevice(uid, i))
		m.release(&p.holder)
	}
	m.news, m.views.ownersStale = true, true
	m.claimMoved(c) // before the pools take its CPUs
	m.recompute()
	m.decide(DropClaim{UID: uid})
}

// claimChanged decides a claim and its pods again, whose CPUs have changed.
func (m *Machine) claimChanged(c *ownClaim) {
	m.news, m.views.ownersStale = true, true
	m.decide(c.now())
	m.claimMoved(c)
}

// touches reports whether the claim has some of these CPUs.
func (c *ownClaim) touches(cpus *cpuset.Set) bool {
	return slices.ContainsFunc(c.parts, func(p *pod) bool { return p.grant != nil && p.grant.cpus.Intersects(cpus) })
}

func (m *Machine) claimMoved(c *ownClaim) {
	devices := c.devices()
	var having []*pod
	for _, p := range m.pods {
		if len(p.claims) > 0 && p.has(devices) {
			having = append(having, p)
		}
	}
	slices.SortFunc(having, byAge)
	for _, p := range having {
		m.explain(p)
		m.podChanged(p)
	}
}

// has reports whether a pod, or a container of it, has one of these devices.
func (p *pod) has(devices []string) bool {
	for _, of := range p.claims {
		if slices.ContainsFunc(of, func(d string) bool { return slices.Contains(devices, d) }) {
			return true
		}
	}
	return false
}

// ofClaim lists the holders of the claims of our own driver that a container of a pod has. A runtime may not name the
// CDI devices of containers: as long as no container of the pod is known to have a claim, all of them have it.
func (m *Machine) ofClaim(p *pod, name string) []*holder {
	if len(m.claimants) == 0 || len(p.claims) == 0 {
		return nil
	}
	var list []*holder
	devices := slices.Concat(p.claims[""], p.claims[name])
	slices.Sort(devices)
	for _, device := range slices.Compact(devices) {
		h := m.claimants[device]
		if h == nil {
			continue
		}
		containers := h.asked().Containers
		switch {
		case len(containers) > 0:
			if !slices.Contains(containers, name) {
				continue
			}
		case !slices.Contains(p.claims[name], device) && p.names(h.pod.claim):
			continue
		}
		list = append(list, h)
	}
	return list
}

// nameClaims records that the runtime says which containers have some claims.
func (m *Machine) nameClaims(devices []string) {
	for _, device := range devices {
		if h := m.claimants[device]; h != nil && !h.pod.claim.named {
			h.pod.claim.named = true
			m.claimChanged(h.pod.claim)
		}
	}
}

// names reports whether some container of a pod, or another one before it, is known to have a claim.
func (p *pod) names(c *ownClaim) bool {
	if c.named {
		return true
	}
	devices := c.devices()
	for name, of := range p.claims {
		if name != "" && slices.ContainsFunc(of, func(d string) bool { return slices.Contains(devices, d) }) {
			return true
		}
	}
	return false
}

// asked is the request of a claim whose CPUs a holder has.
func (h *holder) asked() *ClaimRequest {
	i, _ := strconv.Atoi(h.name)
	return &h.pod.claim.asked.Requests[i]
}

// claimText names the claims of a container, and their CPUs.
func claimText(list []*holder) string {
	var parts []string
	for _, h := range list {
		if h.grant != nil {
			parts = append(parts, fmt.Sprintf("claim %s/%s gave it CPUs %s of device %s", h.pod.ref.Namespace,
				h.pod.ref.Name, h.grant.cpus, literal(h.asked().Device)))
		}
	}
	return strings.Join(parts, ", ")
}

// claimNames are the claims of CPUs that a container has, with commas between: those of our own driver by namespace and
// name, others by their CDI devices. They need not decide where it runs.
func (m *Machine) claimNames(p *pod, name string) string {
	if len(p.claims) == 0 {
		return ""
	}
	var names []string
	for _, h := range m.ofClaim(p, name) {
		names = append(names, h.pod.ref.Namespace+"/"+h.pod.ref.Name)
	}
	for _, device := range p.claims[name] {
		if !isOwnDevice(device) {
			names = append(names, device)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// RecoveredClaim is a claim of our own driver that survived a restart of the daemon.
type RecoveredClaim struct {
	ClaimPrepared
	Since time.Time   `json:"since"`
	Given []Recovered `json:"given"` // for each request
	// Named means that the runtime has named a container that has the claim.
	Named bool `json:"named,omitempty"`
}

// recoverableClaims are what the claims must find again after a restart.
func (m *Machine) recoverableClaims() []RecoveredClaim {
	var list []RecoveredClaim
	for _, uid := range sortedKeys(m.claims) {
		c := m.claims[uid]
		r := RecoveredClaim{ClaimPrepared: c.asked, Since: c.parts[0].createdAt, Named: c.named}
		for _, p := range c.parts {
			given := Recovered{From: fromState, Degraded: p.degraded}
			given.owning(p.grant, p.in.reasons)
			r.Given = append(r.Given, given)
		}
		list = append(list, r)
	}
	return list
}

// recoverClaims enters claims that are not known yet, the oldest first. CPUs that others own here, or that do not
// exist, are not taken over.
func (m *Machine) recoverClaims(list []RecoveredClaim) {
	for _, r := range slices.SortedStableFunc(slices.Values(list), func(a, b RecoveredClaim) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	}) {
		if m.claims[r.UID] != nil || r.check() != nil || len(r.Given) != len(r.Requests) {
			continue
		}
		c, view := &ownClaim{asked: r.ClaimPrepared, named: r.Named}, m
		for i := range r.Requests {
			p, _ := m.newPart(c, i) // what it may own was decided before
			p.createdAt, p.degraded = r.Since, r.Given[i].Degraded
			c.parts = append(c.parts, p)
			switch given := &r.Given[i]; {
			case view.adopt(&p.holder, given):
				p.degraded = ""
				view = view.withGrant(&p.holder)
			case p.degraded == "":
				p.degraded = fmt.Sprintf("CPUs %s, which it had, are others' now", given.owned())
				m.notice(p, "AllocationLost", "%s has no CPUs any more: %s", &p.holder, p.degraded)
			}
		}
		m.enterClaim(c)
		m.decide(c.now())
		m.reserveFor(c)
	}
}

// ClaimView is a claim of our own DRA driver.
type ClaimView struct {
	UID       string      `json:"uid"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Pods      []string    `json:"pods"` // UIDs of the pods that it is reserved for
	Requests  []ClaimPart `json:"requests"`
}

// ClaimPart is what a claim has of one device.
type ClaimPart struct {
	Device   string     `json:"device"`
	Asked    int        `json:"asked"` // CPUs
	CPUs     cpuset.Set `json:"cpus"`  // the online ones
	Withheld cpuset.Set `json:"withheld"`
	// Lost is why it has no CPUs; empty: it has some.
	Lost string `json:"lost,omitempty"`
}

func (m *Machine) claimViews() []ClaimView {
	list := make([]ClaimView, 0, len(m.claims))
	for _, uid := range sortedKeys(m.claims) {
		c := m.claims[uid]
		v := ClaimView{UID: uid, Namespace: c.asked.Namespace, Name: c.asked.Name, Pods: c.asked.Pods}
		for i, p := range c.parts {
			part := ClaimPart{Device: c.asked.Requests[i].Device, Asked: c.asked.Requests[i].CPUs, Lost: p.degraded}
			if p.grant != nil {
				part.CPUs, part.Withheld = p.grant.cpus.And(m.topo.Online()), p.grant.withheld
			}
			v.Requests = append(v.Requests, part)
		}
		list = append(list, v)
	}
	return list
}
