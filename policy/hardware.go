package policy

import (
	"maps"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/topology"
)

// judgeHardware determines the new topology of the machine.
func (m *Machine) judgeHardware(v *verdict, e Hardware) *Refusal {
	if v.topo = e.Topology; v.topo != nil {
		return nil
	}
	t, err := m.topo.WithOnline(e.Online)
	if err != nil {
		return refuse(InvalidRequest, "%v", err)
	}
	v.topo = t
	return nil
}

// hardware applies a new topology. CPUs that went offline stay granted: their owners get them back.
func (m *Machine) hardware(t *topology.Topology) {
	was := m.topo.Online()
	m.topo, m.alloc = t, cpuallocator.New(t)
	moved := was.Minus(t.Online()).Or(t.Online().Minus(was))
	m.views.poolsChanged, m.news = true, true
	m.recompute()
	for _, uid := range sortedKeys(m.claims) {
		if c := m.claims[uid]; c.touches(&moved) {
			m.claimChanged(c)
		}
	}
	for _, p := range ordered(m.pods) {
		owns := union(p.entries)
		if p.owns() {
			owns = p.granted()
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
}

// nodeLabels applies new labels of the Node. They affect only future pods; no running pod is moved.
func (m *Machine) nodeLabels(labels map[string]string) {
	m.cfg.NodeLabels = maps.Clone(labels)
	m.views.rules = nil
}

// reportLabels reports Node labels with unknown values, each value once.
func (m *Machine) reportLabels() {
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
		if m.cfg.arm() && v == "SpreadByPCPUs" {
			ok, l.values = l.key == LabelBind, "None, FullPCPUsOnly or PCPUOnly on arm64"
		} else if knownLabel(l.key, v) {
			continue
		}
		if !ok || m.reported[l.key] == v {
			continue
		}
		if m.reported == nil {
			m.reported = map[string]string{}
		}
		m.reported[l.key] = v
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

// judgeKubelet checks kubelet's own configuration.
func (m *Machine) judgeKubelet(v *verdict, k Kubelet) *Refusal {
	k.Options = maps.Clone(k.Options)
	next := m.cfg
	next.Kubelet = k
	if err := m.checkConfig(&next); err != nil {
		return refuse(InvalidRequest, "kubelet's configuration: %v", err)
	}
	v.cfg = &next
	return nil
}

// judgeConfig checks a new configuration.
func (m *Machine) judgeConfig(v *verdict, cfg Config) *Refusal {
	if cfg.NodeLabels == nil {
		cfg.NodeLabels = m.cfg.NodeLabels
	}
	if m.fromKubelet != nil {
		cfg.Kubelet = *m.fromKubelet
	}
	if err := m.checkConfig(&cfg); err != nil {
		return refuse(InvalidRequest, "%v", err)
	}
	v.cfg = &cfg
	return nil
}

// configure applies a configuration. Allocations stay as they are.
func (m *Machine) configure(cfg Config) {
	m.cfg = cfg
	m.views.rules = nil
	m.recompute()
	for _, p := range ordered(m.pods) {
		m.explain(p)
		m.podChanged(p)
	}
	m.decideAllFound()
}
