package loop

import (
	"cmp"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// View converts the policy's containers to those of a window. It is not safe for
// concurrent use.
type View struct {
	model   string
	beFloor func(*policy.Snapshot) int
	narrows func(id string) bool // nil: none
	places  places
	rooms   map[cpuset.Set]*cpi.Rooms // by a victim's CPUs, while the pools are these
	pools   *policy.Pools
	topo    *topology.Topology
}

// NewView makes a view for a machine with this CPU model. beFloor is how many CPUs the BE
// pool keeps; nil: one core's.
func NewView(model string, beFloor func(*policy.Snapshot) int) *View {
	v := &View{model: model, beFloor: beFloor}
	if v.beFloor == nil {
		v.beFloor = func(s *policy.Snapshot) int { return s.Topology.ThreadsPerCore() }
	}
	return v
}

// Narrowing has the view say which containers can be held back from memory, by ID.
func (v *View) Narrowing(may func(id string) bool) *View {
	v.narrows = may
	return v
}

// Node converts a snapshot of the policy.
func (v *View) Node(s *policy.Snapshot) sampler.Node {
	n := sampler.Node{Containers: make([]*cpi.Container, 0, len(s.Containers)), Topology: s.Topology}
	for _, c := range s.Containers {
		n.Containers = append(n.Containers, v.container(s, c))
	}
	return n
}

func (v *View) container(s *policy.Snapshot, c *policy.ContainerView) *cpi.Container {
	at := v.places.of(s.Topology, s.CPUs(c))
	out := &cpi.Container{
		ID: c.ID, PodUID: c.PodUID, Namespace: c.Namespace, Pod: c.Pod, Name: c.Name, Job: jobOf(c),
		PodClass: string(c.Class), Class: classOf(c), Cgroup: c.Cgroup, Place: at.Place,
		Platform: v.model + at.kind, Capped: c.CapMilli > 0, MayIdle: c.MayIdle, Claims: c.Claims,
	}
	out.MayNarrow = c.MayCap && c.Cgroup != "" && v.narrows != nil && v.narrows(c.ID)
	switch {
	case !c.MayCap && c.Class == policy.BE:
		out.Capping = cpi.NeverCapped
	case c.MayCap && c.Class != policy.BE:
		out.Capping = cpi.CapAllowed
	}
	if c.OwnMilli > 0 {
		out.LimitMilli = c.OwnMilli
	}
	if out.Class.LatencySensitive() {
		out.MovablePool = movable(s, at.CPUs, v.beFloor(s))
		out.Place.Rooms = v.roomsOff(s, at.CPUs)
	}
	return out
}

// jobOf names a container's job: namespace, the pod's owner, and container name, since
// the containers of a pod are different programs. A pod without a known owner is a job
// of its own.
func jobOf(c *policy.ContainerView) string {
	return c.Namespace + "/" + cmp.Or(c.Owner, "Pod/"+c.Pod) + "/" + c.Name
}

// classOf converts a container's class to the detector's.
func classOf(c *policy.ContainerView) cpi.Class {
	if c.Pool == policy.PoolUnmanaged {
		return cpi.Other
	}
	switch c.Class {
	case policy.LSE:
		return cpi.LSE
	case policy.LSR:
		return cpi.LSR
	case policy.LS:
		return cpi.LS
	case policy.BE:
		if c.QoS == policy.BestEffort && c.BatchMilli == 0 {
			return cpi.BE
		}
		return cpi.Batch
	}
	return cpi.Other
}

// places caches where sets of CPUs lie; hundreds of containers share a set.
type places struct {
	topo  *topology.Topology
	known map[cpuset.Set]*place
}

type place struct {
	cpi.Place
	kind string // of the cores, where the machine has several kinds: " performance", " efficiency" or " mixed"
}

func (p *places) of(t *topology.Topology, cpus cpuset.Set) *place {
	if p.topo != t || len(p.known) > maxPlaces {
		p.topo, p.known = t, map[cpuset.Set]*place{}
	}
	at := p.known[cpus]
	if at != nil {
		return at
	}
	at = &place{kind: kindOf(t, cpus)}
	at.CPUs = &cpus
	for cpu := range cpus.All() {
		at.Cores.Add(t.CoreOf(cpu))
	}
	for i := range t.L3s() {
		if d := &t.L3s()[i]; d.CPUs.Intersects(&cpus) {
			at.L3s.Add(i)
		}
	}
	for i := range t.Nodes() {
		if n := &t.Nodes()[i]; n.CPUs.Intersects(&cpus) {
			at.Nodes.Add(i)
		}
	}
	p.known[cpus] = at
	return at
}

const maxPlaces = 1024

// kindOf names the kind of these cores, with a leading space, on a machine with two
// kinds; empty on any other.
func kindOf(t *topology.Topology, cpus cpuset.Set) string {
	var efficiency cpuset.Set
	for _, c := range t.CPUs() {
		if c.Kind == topology.Efficiency {
			efficiency.Add(c.ID)
		}
	}
	slow, fast := cpus.And(efficiency), cpus.Minus(efficiency)
	switch {
	case efficiency.IsEmpty():
		return ""
	case fast.IsEmpty():
		return " " + topology.Efficiency.String()
	case slow.IsEmpty():
		return " " + topology.Performance.String()
	}
	return " mixed"
}

// around returns every CPU that shares an L3 domain with one of cpus.
func around(t *topology.Topology, cpus *cpuset.Set) cpuset.Set {
	var all cpuset.Set
	for i := range t.L3s() {
		if d := &t.L3s()[i]; d.CPUs.Intersects(cpus) {
			all.AddSet(&d.CPUs)
		}
	}
	return all
}

// shared names the closest domain that two sets of CPUs have in common; empty if there
// is none or it is not known.
func shared(t *topology.Topology, a, b *cpuset.Set) string {
	if t == nil || a == nil || b == nil {
		return ""
	}
	if cores := t.Siblings(*a); cores.Intersects(b) {
		return "core"
	}
	if near := around(t, a); near.Intersects(b) {
		return "L3"
	}
	for i := range t.Nodes() {
		if n := &t.Nodes()[i]; n.CPUs.Intersects(a) && n.CPUs.Intersects(b) {
			return "NUMA"
		}
	}
	return ""
}

// movable says whether the BE pool can leave the victim's L3 domains: it overlaps them,
// and enough of it lies elsewhere.
func movable(s *policy.Snapshot, cpus *cpuset.Set, floor int) bool {
	near := around(s.Topology, cpus)
	return s.BE.Intersects(&near) && s.BE.Minus(near).Count() >= floor
}

// roomsOff lists where best effort may be moved for a victim: off its L3 domains, if the pool has several, and off its
// cores. What it does not share with the victim anyway is no room.
func (v *View) roomsOff(s *policy.Snapshot, cpus *cpuset.Set) *cpi.Rooms {
	if v.pools != s.Pools || v.topo != s.Topology {
		v.pools, v.topo, v.rooms = s.Pools, s.Topology, map[cpuset.Set]*cpi.Rooms{}
	}
	rooms, known := v.rooms[*cpus]
	if known {
		return rooms
	}
	for i, off := range [...]cpuset.Set{around(s.Topology, cpus), s.Topology.Siblings(*cpus)} {
		left := s.BE.And(s.Shared).Minus(off)
		if s.BE.Intersects(&off) && !left.IsEmpty() {
			if rooms == nil {
				rooms = &cpi.Rooms{}
			}
			rooms[i] = cpi.Room{Off: off, Left: left.Count()}
		}
	}
	v.rooms[*cpus] = rooms
	return rooms
}
