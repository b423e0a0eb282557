package policy

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// Compact defines which owners may be moved to a better place.
type Compact string

const (
	CompactOff    Compact = ""
	CompactIdle   Compact = "idle"   // owners without a running container
	CompactAlways Compact = "always" // all owners
)

// ReasonMoved is the reason of the notice about a move.
const ReasonMoved = "CPUsMoved"

// CompactEvery is the minimum time between two moves.
const CompactEvery = time.Minute

// compact moves one owner, the oldest for which there is a better place, if the last move was long
// enough ago. Only a Tick moves an owner, so that no other event waits for it.
func (m *Machine) compact(e Event) {
	mode := m.cfg.Allocation.Compact
	_, tick := e.(Tick)
	if !tick || mode == CompactOff || len(m.exclusive) == 0 || m.again || len(m.out) > 0 ||
		m.unreadPods() > 0 || m.now.Sub(m.moved) < CompactEvery {
		return
	}
	for _, h := range orderedHolders(m.exclusive) {
		p := h.pod
		if mode == CompactIdle && h.runs() {
			continue
		}
		g, why := m.betterPlace(h)
		if g == nil {
			continue
		}
		was := h.grant.cpus
		m.moved = m.now
		m.give(h, g, p.resources)
		m.notice(p, ReasonMoved, "%s moves from CPUs %s to %s: %s", h, was, g.cpus, why)
		return
	}
}

// betterPlace finds CPUs on which an owner uses fewer NUMA nodes, fewer sockets or more whole
// cores, and says why they are better; nil: there are none. It changes nothing.
func (m *Machine) betterPlace(h *holder) (*grant, string) {
	p, was := h.pod, h.grant
	online := m.topo.Online()
	if p.claim != nil || p.reserved() || p.kubelet || p.in.scheduled != nil || was.lost != nil || m.pools.Overlap ||
		!was.cpus.SubsetOf(&online) || m.given(was).Intersects(&online) {
		return nil, ""
	}
	all := was.all()
	r := *p.in.request
	r.CPUs = was.request.CPUs
	free := m.freeFor(h).Or(all).Minus(m.cfg.reserved())
	found, err := m.searchIn(free, h, r)
	if err != nil || found.CPUs.Count() != was.cpus.Count() {
		return nil, ""
	}
	why := m.better(was.cpus, found.CPUs)
	if why == "" {
		return nil, ""
	}
	g := m.grantOf(h, found.CPUs, r)
	if m.mayOwn(m.claimOf(h, r.CPUs, p.resources), g, all) != nil {
		return nil, ""
	}
	return g, why
}

// better says why one set of CPUs is better than another; empty: it is not.
func (m *Machine) better(before, after cpuset.Set) string {
	type measure struct {
		before, after int
		thing         string
	}
	nodes := func(s cpuset.Set) int { n := m.topo.NodesOf(s); return n.Count() }
	_, wholeBefore := m.coresOf(before)
	_, wholeAfter := m.coresOf(after)
	for _, x := range []measure{
		{nodes(before), nodes(after), "NUMA node"}, {m.socketsOf(before), m.socketsOf(after), "socket"},
		{-wholeBefore, -wholeAfter, "whole core"},
	} {
		if x.after > x.before {
			return ""
		}
		if x.after < x.before {
			return fmt.Sprintf("%s instead of %d", count(max(x.after, -x.after), x.thing), max(x.before, -x.before))
		}
	}
	return ""
}

// socketsOf counts the sockets of some CPUs.
func (m *Machine) socketsOf(cpus cpuset.Set) int {
	sockets := map[int]bool{}
	for cpu := range cpus.All() {
		if c, ok := m.topo.CPU(cpu); ok {
			sockets[c.Socket] = true
		}
	}
	return len(sockets)
}

// runs reports whether a container runs on a holder's CPUs.
func (h *holder) runs() bool {
	if h.name != "" {
		return h.pod.containers[h.name] != nil
	}
	return len(h.pod.all) > 0
}
