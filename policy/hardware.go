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
			m.notice(p, "CPUsOffline",
				"all CPUs of the pod (%s) are offline; it runs in the shared pool until one returns", owns)
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
}

// tellLabels says which labels of the Node have values that nobody knows, each
// value once.
func (m *Machine) tellLabels() {
	for _, l := range [...]struct {
		key    string
		values string
	}{
		{LabelBind, "None, FullPCPUsOnly, PCPUOnly or SpreadByPCPUs"},
		{LabelStrategy, "MostAllocated, LeastAllocated or DistributeEvenly"},
		{LabelAlignment, "None, BestEffort, Restricted or SingleNUMANode"},
		{LabelAlignment2, "None, BestEffort, Restricted or SingleNUMANode"},
	} {
		v, ok := m.cfg.NodeLabels[l.key]
		if !ok || knownLabel(l.key, v) || m.toldLabels[l.key] == v {
			continue
		}
		if m.toldLabels == nil {
			m.toldLabels = map[string]string{}
		}
		m.toldLabels[l.key] = v
		m.notice(nil, "UnknownNodeLabel", "node label %s is %s and sets nothing; it must be %s", l.key, literal(v),
			l.values)
	}
}

func knownLabel(key, v string) bool {
	if v == "" {
		return true
	}
	switch key {
	case LabelBind:
		return v == "None" || v == "FullPCPUsOnly" || v == "PCPUOnly" || v == "SpreadByPCPUs"
	case LabelStrategy:
		return v == "MostAllocated" || v == "LeastAllocated" || v == "DistributeEvenly"
	}
	_, ok := alignmentNamed(v)
	return ok
}

// kubeletConfigured takes over kubelet's own configuration.
func (m *Machine) kubeletConfigured(k Kubelet) *Refusal {
	k.Options = maps.Clone(k.Options)
	next := m.cfg
	next.Kubelet = k
	if err := m.checkConfig(&next); err != nil {
		return refuse(InvalidRequest, "kubelet's configuration: %v", err)
	}
	m.fromKubelet = &k
	m.configure(next)
	return nil
}

// reconfigure takes over a new configuration. Allocations stay as they are.
func (m *Machine) reconfigure(cfg Config) *Refusal {
	if cfg.NodeLabels == nil {
		cfg.NodeLabels = m.cfg.NodeLabels
	}
	if m.fromKubelet != nil {
		cfg.Kubelet = *m.fromKubelet
	}
	if err := m.checkConfig(&cfg); err != nil {
		return refuse(InvalidRequest, "%v", err)
	}
	m.configure(cfg)
	return nil
}

func (m *Machine) configure(cfg Config) {
	m.cfg = cfg
	m.recompute()
	for _, p := range ordered(m.pods) {
		m.explain(p)
		m.podChanged(p)
	}
}
