package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Ledger lists what pods hold on a node: everything besides the hardware and the rules that decides
// about a new pod's request. It is immutable.
type Ledger struct {
	Rules *Config // rules in force, with kubelet's configuration and the Node's labels
	// Holdings are owners of CPUs and pods bound to NUMA nodes, sorted by UID.
	Holdings []Holding
	// Booked are CPUs that kubelet gave to pods that are not known here yet, and those of other DRA drivers' claims.
	Booked cpuset.Packed
	// Kept are free CPUs that only claims may take.
	Kept cpuset.Packed
	// SharedMilli is what pods request from the shared pool, including those bound to a part.
	SharedMilli int64
	Waiting     int  // CPUs that pods here wait for, without isolated ones
	Unread      bool // some holdings are still unknown: no CPUs are granted
	Overlap     bool // no CPUs are left to grant
}

// Holding is what one pod or one of its containers holds.
type Holding struct {
	UID           string
	Namespace     string
	Pod           string
	Container     string // empty: the pod as a whole
	Class         Class
	CPUs          cpuset.Packed // its own
	Withheld      cpuset.Packed // siblings kept idle for it
	Requested     int32         // requested CPUs; fewer than CPUs if rounded up
	Exclusive     cpuallocator.ExclusivePolicy
	SMT           cpuallocator.SMT
	NUMAExclusive NUMAExclusive
	Nodes         cpuset.Packed // NUMA node IDs whose shared pool it is bound to
	Milli         int64         // the request of such a pod
	// Kind is empty for a pod's grant of this policy, KindClaim for a claim's, KindKubelet for CPUs of kubelet's
	// static policy, or the kind of a reservation.
	Kind string
}

// KindKubelet is the kind of CPUs that kubelet's static policy pinned.
const KindKubelet = "kubelet"

// Owns reports whether the pod has CPUs of its own.
func (h *Holding) Owns() bool { return h.CPUs != "" || h.Withheld != "" }

// Surplus is the number of CPUs beyond the request, without siblings kept idle.
func (h *Holding) Surplus() int { return max(h.CPUs.Count()-int(h.Requested), 0) }

// publish makes the current ledger. It shares unchanged parts with the previous one.
func (m *Machine) publish(before *Ledger, floors []floor) *Ledger {
	v := &m.views
	if v.rules == nil {
		rules := m.cfg
		v.rules = &rules
	}
	if v.ownersStale || len(m.bound) > 0 || v.boundSeen {
		v.boundSeen = len(m.bound) > 0
		if list := m.holdings(); !slices.Equal(list, v.holdings) {
			v.holdings = list
		}
		booked := m.booked()
		v.booked = booked.Pack()
	}
	l := Ledger{Rules: v.rules, Holdings: v.holdings, Booked: v.booked, Kept: m.pools.Kept.Pack(),
		SharedMilli: floors[0].milli, Unread: m.unreadPods() > 0, Overlap: m.pools.Overlap}
	for _, h := range m.waiting {
		if !m.takesIsolated(h) { // other pods cannot take what it waits for
			l.Waiting += m.lacks(h)
		}
	}
	if before != nil && before.SameHoldings(&l) && before.SharedMilli == l.SharedMilli {
		return before
	}
	return &l
}

// SameHoldings reports whether two ledgers of one machine differ at most in SharedMilli.
func (l *Ledger) SameHoldings(o *Ledger) bool {
	return l.Rules == o.Rules && l.Booked == o.Booked && l.Kept == o.Kept &&
		l.Waiting == o.Waiting && l.Unread == o.Unread && l.Overlap == o.Overlap && slices.Equal(l.Holdings, o.Holdings)
}

// booked are kubelet's CPUs that no pod here holds, and claimed ones, whether they are online or not: isolation
// withholds neither.
func (m *Machine) booked() cpuset.Set {
	cpus := m.pools.Kubelet
	claimed := m.foreignCPUs(&cpus)
	cpus.AddSet(&claimed)
	for uid := range m.kubelet.Entries {
		if p := m.pods[uid]; p != nil && p.kubelet {
			entries := union(p.entries)
			cpus.RemoveSet(&entries)
		}
	}
	return cpus
}

func (m *Machine) holdings() []Holding {
	list := make([]Holding, 0, len(m.exclusive)+len(m.bound)+len(m.kubelet.Entries))
	for _, h := range m.exclusive {
		list = append(list, h.holding())
	}
	for _, p := range m.bound {
		h := p.heldBy()
		h.Nodes = p.nodes.Pack()
		if p.resources != nil {
			h.Milli = p.resources.RequestMilli
		}
		list = append(list, h)
	}
	for uid := range m.kubelet.Entries {
		if p := m.pods[uid]; p != nil && p.kubelet && !p.owns() {
			h, cpus := p.heldBy(), union(p.entries)
			h.CPUs, h.Kind, h.Requested = cpus.Pack(), KindKubelet, int32(cpus.Count())
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b Holding) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Container, b.Container))
	})
	return list
}

func (p *pod) heldBy() Holding {
	return Holding{UID: p.ref.UID, Namespace: p.ref.Namespace, Pod: p.ref.Name, Class: p.in.class,
		NUMAExclusive: p.in.numaExclusive}
}

// holding is what an owner holds.
func (o *holder) holding() Holding {
	h, g := o.pod.heldBy(), o.grant
	h.Container = o.name
	h.CPUs, h.Withheld = g.cpus.Pack(), g.withheld.Pack()
	if o.pod.claim != nil {
		h.Kind = KindClaim
	}
	if g.reservation != nil {
		h.Kind, h.Requested = g.reservation.Kind, int32(g.cpus.Count())
		return h
	}
	h.Requested, h.Exclusive, h.SMT = int32(g.request.CPUs), g.request.Exclusive, g.request.SMT
	return h
}
