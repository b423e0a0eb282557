package policy

import (
	"maps"

	"github.com/quietcore/quietcore/cpuallocator"
)

// hardware takes over the machine as it is now. CPUs that went offline stay
// granted: their owners get them back.
func (m *Machine) hardware(e Hardware) *Refusal {
	t := e.Topology
	if t == nil {
		var err error
		if t, err = m.topo.WithOnline(e.Online); err != nil {
			return refuse(InvalidRequest, "%v", err)
		}
	}
	was := m.topo.Online()
	m.topo, m.alloc = t, cpuallocator.New(t)
	moved := was.Minus(t.Online()).Or(t.Online().Minus(was))
	m.views.poolsChanged, m.news = true, true
	m.recompute()
	for _, p := range ordered(m.pods) {
		owns := union(p.entries)
		if p.grant != nil {
			owns = p.grant.all()
		}
		if !owns.Intersects(&moved) {
			continue
		}
		online := t.Online()
		before, after := was.And(owns), online.And(owns)
		switch {
		case after.IsEmpty() && !before.IsEmpty():
			m.notice(p, "CPUsOffline", "all CPUs of the pod (%s) are offline; it runs in the shared pool until one returns", owns)
		case before.IsEmpty() && !after.IsEmpty():
			m.notice(p, "CPUsOnline", "CPUs %s of the pod are online again; it runs on them", after)
		}
		m.explain(p)
		m.podChanged(p)
	}
	return nil
}

// nodeLabels takes over the Node's labels. They decide about pods to come;
// nothing that runs is moved.
func (m *Machine) nodeLabels(labels map[string]string) {
	m.cfg.NodeLabels = maps.Clone(labels)
	for _, l := range []struct {
		key    string
		values []string
	}{
		{LabelBind, []string{"None", "FullPCPUsOnly", "PCPUOnly", "SpreadByPCPUs"}},
		{LabelStrategy, []string{"MostAllocated", "LeastAllocated", "DistributeEvenly"}},
		{LabelAlignment, []string{"None", "BestEffort", "Restricted", "SingleNUMANode"}},
		{LabelAlignment2, []string{"None", "BestEffort", "Restricted", "SingleNUMANode"}},
	} {
		if v := labels[l.key]; v != "" && !contains(l.values, v) {
			m.notice(nil, "UnknownNodeLabel", "node label %s is %s and sets nothing; it must be one of %v", l.key, literal(v), l.values)
		}
	}
}

func contains(list []string, v string) bool {
	for _, s := range list {
		if s == v {
			return true
		}
	}
	return false
}

// reconfigure takes over a new configuration. Allocations stay as they are.
func (m *Machine) reconfigure(cfg Config) *Refusal {
	if err := m.checkConfig(&cfg); err != nil {
		return refuse(InvalidRequest, "%v", err)
	}
	labels := m.cfg.NodeLabels
	m.cfg = cfg
	if cfg.NodeLabels == nil {
		m.cfg.NodeLabels = labels
	}
	m.recompute()
	for _, p := range ordered(m.pods) {
		m.explain(p)
		m.podChanged(p)
	}
	return nil
}
