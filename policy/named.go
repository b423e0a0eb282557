package policy

import (
	"slices"
	"strings"
)

// maxContainerName is Kubernetes' limit, and maxNamed limits how many containers of a pod may own
// CPUs.
const (
	maxContainerName = 63
	maxNamed         = 64
)

// Names reports whether a container of the pod is to own CPUs, and whether any of its containers
// is.
func (p *Pod) Names(container string) (named, some bool) {
	text := p.Annotations[AnnContainers]
	if !p.Exclusive() || text == "" || len(text) > maxAnnotation {
		return false, false
	}
	for name := range strings.SplitSeq(text, ",") {
		named = named || strings.TrimSpace(name) == container
	}
	return named, true
}

// readNamed reads which containers of a pod are to own CPUs.
func (w *Wish) readNamed(text string) *Refusal {
	if text == "" {
		return nil
	}
	if len(text) > maxAnnotation {
		return refuse(InvalidAnnotation, "annotation %s is larger than the %d bytes allowed", AnnContainers,
			maxAnnotation)
	}
	if !w.Owns() {
		return refuse(InvalidAnnotation,
			"annotation %s names containers of a pod of class %s; only those of LSE and LSR pods own CPUs",
			AnnContainers, w.Class)
	}
	var names []string
	for _, name := range strings.Split(text, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "" || len(name) > maxContainerName || strings.ContainsFunc(name, notInName):
			return refuse(InvalidAnnotation,
				"annotation %s is %s; it must be names of containers with commas between them, such as main,worker",
				AnnContainers, literal(text))
		case slices.Contains(names, name):
			return refuse(InvalidAnnotation, "annotation %s names container %s twice", AnnContainers, name)
		}
		names = append(names, name)
	}
	if len(names) > maxNamed {
		return refuse(InvalidAnnotation, "annotation %s names %d containers; at most %d may own CPUs", AnnContainers,
			len(names), maxNamed)
	}
	w.named = names
	return nil
}

// nameOwners sets the containers that are to own CPUs. A scheduler's choice of CPUs cannot be
// combined with it, since it does not assign CPUs to containers.
func (m *Machine) nameOwners(w *Wish, in *intent) *Refusal {
	in.named = w.named
	if s := in.scheduled; in.named != nil && s != nil && !s.cpus.IsEmpty() {
		return refuse(InvalidRequest,
			"annotation %s gives CPUs %s to the pod as a whole, and annotation %s has containers own theirs; the "+
				"scheduler may name NUMA nodes only", AnnStatus, s.cpus, AnnContainers)
	}
	return nil
}

func notInName(r rune) bool {
	return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

// checkNamed compares the containers that are to own CPUs with the containers of the pod, if these
// are known.
func (p *pod) checkNamed() *Refusal {
	if p.specs == nil {
		return nil
	}
	for _, name := range p.in.named {
		at := slices.IndexFunc(p.specs, func(c ContainerFacts) bool { return c.Name == name })
		switch {
		case at < 0:
			return refuse(InvalidAnnotation, "annotation %s names container %s; the pod has %s", AnnContainers, name,
				strings.Join(p.containerNames(), ", "))
		case p.specs[at].Init:
			return refuse(InvalidRequest,
				"annotation %s names init container %s, which ends before the others start; name a container that "+
					"stays", AnnContainers, name)
		}
	}
	return nil
}

func (p *pod) containerNames() []string {
	names := make([]string, len(p.specs))
	for i := range p.specs {
		names[i] = literal(p.specs[i].Name)
	}
	return names
}

// placeNamed gives CPUs to those containers of a new pod that are to own some: the ones that they
// were found to own, or free ones, in the order in which the containers start. A container whose
// size is unknown is decided when it starts. It changes only the pod; if a container is refused it
// continues with the others.
func (m *Machine) placeNamed(p *pod, recovered *Recovered) *Refusal {
	if err := p.checkNamed(); err != nil {
		return err
	}
	view := m
	if recovered != nil {
		m.adoptAll(p, recovered)
	}
	m.nameHolders(p)
	var first *Refusal
	for _, h := range p.every() {
		if h.grant != nil {
			view = view.withGrant(h)
		}
	}
	for _, spec := range p.startOrder() {
		h := p.holders[spec.Name]
		if h == nil || h.grant != nil || h.degraded != "" {
			continue
		}
		h.asks = spec.Resources
		g, err := view.grantFor(h, h.asks, p.resources)
		if err != nil {
			h.degraded = err.Error()
			if first == nil {
				first = err
			}
			continue
		}
		h.grant = g
		view = view.withGrant(h)
	}
	return first
}

// startOrder lists the containers of a pod with known requests, in the order in which they start.
// For a running container its actual resources replace the API server's.
func (p *pod) startOrder() []ContainerFacts {
	list := slices.Clone(p.specs)
	for _, name := range sortedKeys(p.containers) {
		r := p.containers[name].resources.inferred(p.ref.QoS)
		at := slices.IndexFunc(list, func(c ContainerFacts) bool { return c.Name == name })
		if at < 0 {
			list = append(list, ContainerFacts{Name: name, Resources: r})
		} else {
			list[at].Resources = r
		}
	}
	return list
}

// nameHolders makes the holders of a pod whose containers own CPUs.
func (m *Machine) nameHolders(p *pod) {
	if p.holders == nil {
		p.holders = make(map[string]*holder, len(p.in.named))
	}
	for _, name := range p.in.named {
		if p.holders[name] == nil {
			p.holders[name] = &holder{pod: p, name: name}
		}
	}
}

// adoptAll takes over what a pod, or its containers, were found to own, and reports whether that is
// anything.
func (m *Machine) adoptAll(p *pod, r *Recovered) bool {
	if len(r.Owners) == 0 {
		return p.in.named == nil && m.adopt(&p.holder, r)
	}
	view, some := m, false
	for i := range r.Owners {
		o := &r.Owners[i]
		if p.holders[o.Container] != nil {
			continue
		}
		h := &holder{pod: p, name: o.Container, degraded: o.Degraded, demoted: o.Demoted, since: o.Since}
		if p.holders == nil {
			p.holders = map[string]*holder{}
		}
		p.holders[o.Container] = h
		h.asks = Resources{RequestMilli: int64(o.Request) * 1000, LimitMilli: int64(o.Request) * 1000}
		if h.degraded == "" && view.adopt(h, &o.Recovered) {
			view, some = view.withGrant(h), true
		}
	}
	return some
}

// noteDenied notes which containers of a new pod got no CPUs.
func (m *Machine) noteDenied(v *verdict) {
	for _, h := range v.pod.every() {
		if h.degraded != "" {
			code, message, _ := strings.Cut(h.degraded, ": ")
			v.note(code, "container %s: %s", literal(h.name), message)
		}
	}
}

// deny leaves a container that was to own CPUs in the shared pool (admission: degrade).
func (m *Machine) deny(h *holder, err *Refusal) {
	h.degraded = err.Error()
	m.explain(h.pod)
	m.notice(h.pod, string(err.Code), "container %s: %s", literal(h.name), err.Message)
	m.podChanged(h.pod)
}

// restOf is the part of a pod's request, given the sum of its requests, that stays with the shared
// pool once the holder except, one of its containers, has n CPUs.
func (m *Machine) restOf(p *pod, sum int64, except *holder, n int) int64 {
	for _, h := range p.holders {
		switch {
		case h == except:
			sum -= int64(n) * 1000
		case m.pins(h):
			sum -= int64(h.grant.request.CPUs) * 1000
		case m.trying && m.waiting[h.id()] != nil:
			sum -= int64(m.lacks(h)) * 1000
		}
	}
	return max(sum, 0)
}

// follow records the current request of a container that may own CPUs.
func (h *holder) follow(c *container) {
	h.asks = h.pod.own(c.ref.Name, c.resources).inferred(h.pod.ref.QoS)
}

// namedCPUs lists the online CPUs that containers of a pod own, by name.
func (m *Machine) namedCPUs(p *pod) []Owned {
	var list []Owned
	for _, name := range sortedKeys(p.holders) {
		if h := p.holders[name]; m.pins(h) {
			list = append(list, Owned{Container: name, CPUs: h.grant.cpus.And(m.topo.Online())})
		}
	}
	return list
}

// namedFacts takes over the API server's facts of a pod whose containers own CPUs. Containers that
// have not started are given CPUs if possible.
func (m *Machine) namedFacts(p *pod, f PodFacts) {
	if p.resources == nil || p.hidden {
		r := f.Resources
		p.resources, p.hidden = &r, false
	}
	if p.specs != nil {
		return
	}
	if p.specs = f.Containers; p.specs == nil {
		return
	}
	if err := p.checkNamed(); err != nil {
		m.notice(p, string(err.Code), "%s", err.Message)
	}
	for _, spec := range p.specs {
		h := p.holders[spec.Name]
		if h == nil || h.grant != nil || h.degraded != "" || spec.Init || p.containers[spec.Name] != nil {
			continue
		}
		// A refusal now could not be reported to kubelet; the container can be refused when it
		// starts.
		if g, err := m.grantFor(h, spec.Resources, p.resources); err == nil {
			m.give(h, g, p.resources)
		}
	}
}
