package policy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// synchronize replaces the machine's pods and containers by those that run. Known pods keep what
// they have: the runtime's view of them is older than ours. New pods take over what they were found
// to own; then the others are allocated in order of creation, and those that do not fit stay
// shared.
func (m *Machine) synchronize(now time.Time, e Synchronized) {
	m.forgetAbsent(e.Pods, e.Containers)
	pods := m.inTurn(e.Pods)
	for _, p := range pods {
		// Running pods take precedence over kubelet's bookings: until the owners have their CPUs
		// again, a booking of a pod on this node takes none away.
		if m.pods[p.UID] == nil {
			m.overrule(p.UID)
		}
	}
	m.recoverClaims(e.Claims)
	late := false
	for i := range pods {
		var v verdict
		m.judgeRunning(&v, &pods[i])
		late = late || v.enters && m.countedLate(v.pod, pods[i].Recovered)
		m.enterPod(&v, &pods[i])
	}
	for _, c := range e.Caps {
		switch p := m.pods[c.PodUID]; {
		case p == nil:
		case now.Before(c.Until):
			m.setCap(p, c)
		default:
			p.noteEnded(c)
		}
	}
	containers := slices.SortedStableFunc(slices.Values(e.Containers), func(a, b Container) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	newest := m.newest(containers)
	for i := range containers {
		c := &containers[i]
		if p := m.sandboxes[c.Sandbox]; p != nil {
			v := verdict{pod: p, runs: true}
			if newest[named{p, c.Name}] == c {
				_ = m.judgeContainer(&v, c, true)
			}
			m.enterContainer(&v, c, true)
		}
	}
	m.bindFound()
	if late {
		m.takeBack()
	}
	if !e.Moved.IsZero() {
		m.moved = e.Moved
	}
	if e.Freed != nil {
		m.freed, m.wasFree = e.Freed, m.free().Or(m.freeIsolated())
	}
}

// named is a container of a pod, across restarts.
type named struct {
	pod  *pod
	name string
}

// newest are the last runs in a list that is sorted by age. Earlier runs no longer show anything
// about the pod.
func (m *Machine) newest(containers []Container) map[named]*Container {
	last := make(map[named]*Container, len(containers))
	for i := range containers {
		c := &containers[i]
		last[named{m.sandboxes[c.Sandbox], c.Name}] = c
	}
	return last
}

// countedLate reports whether a pod found running requests CPUs of the shared pool that were not
// counted when the owners before it got theirs.
func (m *Machine) countedLate(p *pod, r *Recovered) bool {
	return p.in.class != SYSTEM && !p.kubelet && (r == nil || r.From != fromState) && m.requestedFrom(p) > 0
}

// inTurn orders pods for their placement.
func (m *Machine) inTurn(pods []Pod) []Pod {
	sorted := slices.SortedStableFunc(slices.Values(pods), func(a, b Pod) int {
		return cmp.Or(byTurn(a.Recovered, b.Recovered), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.UID, b.UID))
	})
	return displacedLast(sorted, m.owned.cpus.Or(m.owned.withheld), func(p *Pod) (string, *Recovered) {
		if m.pods[p.UID] != nil {
			return p.UID, nil // it keeps what it has
		}
		return p.UID, p.Recovered
	})
}

// byTurn compares pods for their placement: first come those whose CPUs cannot be chosen again, then those
// that owned something, then the others. A mask in the kernel may be a pool's, so a pod known only by
// its mask comes after those that were recorded or stored, and of these a doubtful mask after others, and a larger
// one after a smaller one: if they would leave no pool, the last is most likely to be the pool's.
func byTurn(a, b *Recovered) int {
	if d := cmp.Compare(turn(a), turn(b)); d != 0 || turn(a) != turnKernel {
		return d
	}
	p, q := a.owned(), b.owned()
	return cmp.Or(cmp.Compare(a.Doubt, b.Doubt), cmp.Compare(p.Count(), q.Count()))
}

const (
	turnReserved = iota
	turnRecorded
	turnKernel
	turnNew
)

func turn(r *Recovered) int {
	switch {
	case r == nil:
		return turnNew
	case r.Reservation != nil:
		return turnReserved
	case r.From == fromKernel:
		return turnKernel
	}
	return turnRecorded
}

// displacedLast moves pods that were found to own CPUs of an earlier pod, or taken ones, behind the others
// that were found to own some: they are placed anew, and must not be given what those have.
func displacedLast[T any](sorted []T, taken cpuset.Set, found func(*T) (uid string, r *Recovered)) []T {
	keep, displaced := make([]T, 0, len(sorted)), []T(nil)
	at, counted := 0, map[string]bool{} // a pod may have several sandboxes
	for i := range sorted {
		uid, r := found(&sorted[i])
		all := r.all()
		if !counted[uid] && all.Intersects(&taken) {
			displaced = append(displaced, sorted[i])
			continue
		}
		counted[uid] = true
		taken.AddSet(&all)
		if keep = append(keep, sorted[i]); r != nil {
			at = len(keep)
		}
	}
	return slices.Insert(keep, at, displaced...)
}

func (m *Machine) forgetAbsent(pods []Pod, containers []Container) {
	sandboxes := make(map[string]bool, len(pods))
	for _, p := range pods {
		sandboxes[p.Sandbox] = true
	}
	for _, p := range ordered(m.pods) {
		for _, s := range slices.Clone(p.sandboxes) {
			if !sandboxes[s] {
				m.podRemoved(s)
			}
		}
	}
	running := make(map[string]bool, len(containers))
	for _, c := range containers {
		running[c.ID] = true
	}
	for _, id := range sortedKeys(m.containers) {
		if !running[id] {
			m.dropContainer(id)
		}
	}
}

// Checkpoint returns the event that gives an empty machine with the same configuration the same
// allocations.
func (m *Machine) Checkpoint() Synchronized {
	s := m.Kept()
	for _, p := range ordered(m.pods) {
		s.Containers = append(s.Containers, p.inputs()...)
	}
	return s
}

// Kept is a checkpoint without its containers, which the runtime lists again: all that a state file keeps.
func (m *Machine) Kept() Synchronized {
	s := Synchronized{Pods: slices.Grow([]Pod(nil), len(m.pods))}
	for _, p := range ordered(m.pods) {
		for _, sandbox := range p.sandboxes {
			s.Pods = append(s.Pods, p.input(sandbox))
		}
	}
	s.Caps, s.Freed = append(m.Caps(), m.endedCaps()...), slices.Clone(m.freed)
	s.Moved, s.Claims = m.moved, m.recoverableClaims()
	return s
}

// input is the pod in the form of an event with one of its sandboxes; inputs are its containers.
func (p *pod) input(sandbox string) Pod {
	in := Pod{
		UID: p.ref.UID, Sandbox: sandbox, Namespace: p.ref.Namespace, Name: p.ref.Name, QoS: p.ref.QoS,
		Labels: p.labels, Annotations: p.annots, Resources: p.resources, LimitHidden: p.hidden,
		CgroupParent: p.ref.CgroupParent, CreatedAt: p.createdAt, DeviceNodes: p.devices, Unread: p.unread && !p.waits,
		Asked: p.asked, Claims: maps.Clone(p.claims),
	}
	if len(p.counted) > 0 && p.resources != nil {
		r := p.whole()
		in.Resources = &r
	}
	if !p.asked.Known() {
		in.Asked.Period = notKnown
	}
	in.Recovered, in.Facts = p.recoverable(), p.facts()
	return in
}

func (p *pod) inputs() []Container {
	list := make([]Container, 0, len(p.all))
	for _, id := range sortedKeys(p.all) {
		c := p.all[id]
		list = append(list, Container{
			ID: id, Sandbox: c.sandbox, Name: c.ref.Name, Resources: c.resources, Shares: c.shares,
			CgroupPath: c.ref.CgroupPath, CreatedAt: c.createdAt, Asked: c.asked, StoredLimits: c.storedLimits,
		})
	}
	return list
}

// fromState is the source of an allocation that we recorded ourselves.
const fromState = "state file"

// fromKernel is the source of an allocation that is known only by a cgroup's mask.
const fromKernel = "kernel"

// recoverable is what a pod must find again after a restart.
func (p *pod) recoverable() *Recovered {
	if p.unread {
		return nil
	}
	if p.reserved() {
		return p.keptReservation()
	}
	r := Recovered{From: fromState, Degraded: p.degraded, Several: p.several, Demoted: p.demoted, Since: p.since,
		Narrowed: p.narrowed}
	r.owning(p.grant, p.in.reasons)
	for _, h := range p.heldByName() {
		o := RecoveredContainer{Container: h.name, Recovered: Recovered{From: fromState, Degraded: h.degraded,
			Demoted: h.demoted, Since: h.since}}
		o.Request = int(min((h.asks.RequestMilli+999)/1000, cpuset.MaxCPUs))
		o.owning(h.grant, p.in.reasons)
		r.Owners = append(r.Owners, o)
	}
	if p.in.class == LS || p.in.unmanaged {
		node := AnyNode
		if p.nodes != nil && p.nodes.Count() == 1 {
			node = p.nodes.First()
		} else {
			r.BoundNodes = p.nodes
		}
		r.BoundNode = &node
	}
	if r.CPUs == nil && r.BoundNode == nil && r.Degraded == "" && !r.Several && r.Since.IsZero() && r.Owners == nil &&
		p.holders == nil && len(p.narrowed) == 0 {
		return nil // else it is recorded even without CPUs: it was counted when others got theirs
	}
	return &r
}

// owning records what a grant consists of; nil: there is none.
func (r *Recovered) owning(g *grant, reasons string) {
	if g == nil {
		return
	}
	r.CPUs, r.Withheld, r.Request, r.Reasons = &g.cpus, nonEmpty(&g.withheld), g.request.CPUs, reasons
	r.LostNodes = g.lost
}

// heldByName lists the containers of a pod that own CPUs, or were refused them.
func (p *pod) heldByName() []*holder {
	var list []*holder
	for _, name := range sortedKeys(p.holders) {
		if h := p.holders[name]; h.grant != nil || h.degraded != "" {
			list = append(list, h)
		}
	}
	return list
}

func nonEmpty(s *cpuset.Set) *cpuset.Set {
	if s.IsEmpty() {
		return nil
	}
	return s
}
