package loop

import (
	"cmp"
	"time"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Subject is a container as people know it.
type Subject struct {
	ID        string
	PodUID    string
	Namespace string
	Pod       string
	Container string
	Job       string
	Class     policy.Class
	CPUs      *cpuset.Set // nobody writes to it
}

// JobOf names the work that a container does: its namespace, who made its pod, and
// its own name, since the containers of a pod are different programs. A pod that
// nobody is known to have made is a job of its own.
func JobOf(c *policy.ContainerView) string {
	return c.Namespace + "/" + cmp.Or(c.Owner, "Pod/"+c.Pod) + "/" + c.Name
}

// classOf is a container's class in the detector's words.
func classOf(c *policy.ContainerView) detect.Class {
	if c.Pool == policy.PoolUnmanaged {
		return detect.Other
	}
	switch c.Class {
	case policy.LSE:
		return detect.LSE
	case policy.LSR:
		return detect.LSR
	case policy.LS:
		return detect.LS
	case policy.BE:
		if c.QoS == policy.BestEffort && c.BatchMilli == 0 {
			return detect.BE
		}
		return detect.Batch
	}
	return detect.Other
}

// places finds where sets of CPUs are; hundreds of containers share one.
type places struct {
	topo  *topology.Topology
	known map[cpuset.Set]*place
}

type place struct {
	detect.Place
	cpus cpuset.Set
}

func (p *places) of(t *topology.Topology, cpus cpuset.Set) *place {
	if p.topo != t || len(p.known) > maxPlaces {
		p.topo, p.known = t, map[cpuset.Set]*place{}
	}
	at := p.known[cpus]
	if at != nil {
		return at
	}
	at = &place{cpus: cpus}
	for cpu := range cpus.All() {
		at.Cores.Add(t.CoreOf(cpu))
	}
	for i := range t.L3s() {
		if d := &t.L3s()[i]; d.CPUs.Intersects(&cpus) {
			at.L3.Add(i)
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

// around is every CPU that shares an L3 domain with some of cpus.
func around(t *topology.Topology, cpus cpuset.Set) cpuset.Set {
	var all cpuset.Set
	for i := range t.L3s() {
		if d := &t.L3s()[i]; d.CPUs.Intersects(&cpus) {
			all.AddSet(&d.CPUs)
		}
	}
	return all
}

// shared is the closest that two sets of CPUs have in common; empty where that is
// nothing, or not known.
func (p *places) shared(a, b *cpuset.Set) string {
	if p.topo == nil || a == nil || b == nil {
		return ""
	}
	if cores := p.topo.Siblings(*a); cores.Intersects(b) {
		return "core"
	}
	if near := around(p.topo, *a); near.Intersects(b) {
		return "L3"
	}
	for i := range p.topo.Nodes() {
		if n := &p.topo.Nodes()[i]; n.CPUs.Intersects(a) && n.CPUs.Intersects(b) {
			return "NUMA"
		}
	}
	return ""
}

// movable says that best effort can leave the L3 domains of a victim: it is in
// them, and enough of its pool is elsewhere.
func movable(s *policy.Snapshot, cpus cpuset.Set, floor int) bool {
	near := around(s.Topology, cpus)
	return s.BE.Intersects(&near) && s.BE.Minus(near).Count() >= floor
}

// view is a container in the detector's words.
func (l *Loop) view(s *policy.Snapshot, c *policy.ContainerView, platform string) (detect.Container, Subject) {
	at := l.places.of(s.Topology, s.CPUs(c))
	class := classOf(c)
	d := detect.Container{
		ID: c.ID, Job: JobOf(c), Platform: platform, Class: class, Place: at.Place,
		Exempt: !c.MayCap && c.Class == policy.BE, OptIn: c.MayCap && c.Class != policy.BE,
		Capped: c.CapMilli > 0,
	}
	if c.QuotaMilli > 0 && c.CapMilli == 0 {
		d.LimitMilli = c.QuotaMilli
	}
	if class == detect.LSE || class == detect.LSR || class == detect.LS {
		d.MovablePool = movable(s, at.cpus, l.o.BEFloor(s))
	}
	return d, Subject{
		ID: c.ID, PodUID: c.PodUID, Namespace: c.Namespace, Pod: c.Pod, Container: c.Name, Job: d.Job, Class: c.Class,
		CPUs: &at.cpus,
	}
}

// platformOf is what a CPI may be compared with: the same CPU model, kind of core and
// kind of cycles. It is the same whether or not this window has a CPI of it.
func platformOf(model string, w *sampler.Window, o *sampler.Observed) string {
	if o.CoreKind != "" {
		model += " " + o.CoreKind
	}
	if !w.Reference {
		model += " (core cycles)"
	}
	return model
}

// sampleOf is one window of a container, false where there is none.
func sampleOf(o *sampler.Observed, ref detect.Ref, at time.Time) (detect.Sample, bool) {
	if o.Dropped != sample.None {
		return detect.Sample{}, false
	}
	s := detect.Sample{Ref: ref, At: at, Usage: o.Usage, Threads: o.Threads}
	if o.NoCPI == sample.None {
		s.CPI = o.CPI
	}
	if o.HasMPKI && o.Length > 0 {
		s.Misses = float64(o.Delta.Events[counter.LLCMisses]) / o.Length.Seconds()
	}
	return s, true
}
