package policy

import (
	"encoding/json"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Reservation is an allocation of a kind that this version does not know: a newer daemon made it
// and was replaced by this one. Its CPUs stay with the pod until the pod is gone. No other pod gets
// them, not even best effort; they are never resized, and are saved again unchanged.
type Reservation struct {
	Kind    string            `json:"kind"`
	Entries []json.RawMessage `json:"entries"` // as the state file has them
}

// reserve leaves a new pod with what a newer daemon gave it. The meaning of everything else that
// the pod asks for may have changed in that version, so it is not read. CPUs that the machine does
// not have, or that are taken, cannot be kept.
func (m *Machine) reserve(p *pod, r *Recovered) {
	p.in = intent{class: LS, unmanaged: true, request: m.shared(&cpuallocator.Request{})}
	if p.ref.QoS == BestEffort && !p.production() {
		p.in.class = BE
	}
	cpus := r.owned()
	if r.Withheld != nil {
		cpus.AddSet(r.Withheld)
	}
	cpus = cpus.And(m.topo.Known().Or(m.topo.Offline())).Minus(m.owned.cpus).Minus(m.owned.withheld)
	for _, o := range m.pods {
		if o.kubelet {
			cpus = cpus.Minus(union(o.entries))
		}
	}
	p.grant = &grant{cpus: cpus, reservation: r.Reservation}
}

// reserved reports whether a pod owns CPUs by a reservation.
func (p *pod) reserved() bool { return p.grant != nil && p.grant.reservation != nil }

// allocated reports whether a pod owns CPUs that this machine granted.
func (p *pod) allocated() bool { return p.grant != nil && p.grant.reservation == nil }

// keptReservation is what a pod must find again after a restart.
func (p *pod) keptReservation() *Recovered {
	return &Recovered{From: fromState, CPUs: copyOf(p.grant.cpus), Several: p.several,
		Narrowed: p.narrowed, Reservation: p.grant.reservation}
}

func copyOf(s cpuset.Set) *cpuset.Set { return &s }
