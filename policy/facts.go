package policy

// PodFacts is a pod as the API server has it: exact values where the runtime has only sums, and the
// workload that created it. It may arrive with the pod, later, or never.
type PodFacts struct {
	UID string `json:"uid"`
	// Resources are the pod's sums as kubelet counts them, but for CPUs of claims; LimitMilli is NoLimit
	// where a container has no limit.
	Resources Resources `json:"resources"`
	Counted   Counted   `json:"counted,omitempty"`
	// Owner names the job, such as Deployment/web; pods of one owner are tasks of it.
	Owner string `json:"owner,omitempty"`
	// Containers are given for a pod in which some containers are to own CPUs, in the order in
	// which they start; nil: unknown.
	Containers []ContainerFacts `json:"containers,omitempty"`
	// BatchMilli is the pod's request for lent CPUs, in thousandths of a CPU.
	BatchMilli int64 `json:"batchMilli,omitempty"`
}

// ContainerFacts is a container as the API server has it.
type ContainerFacts struct {
	Name      string    `json:"name"`
	Resources Resources `json:"resources"`
	// Init means that the container ends before the others start.
	Init bool `json:"init,omitempty"`
}

// applyFacts takes over the facts that arrive with a new pod.
func (p *pod) applyFacts(f *PodFacts) {
	if f == nil {
		return
	}
	r := f.Resources
	p.resources, p.hidden = &r, false
	p.owner, p.batch, p.known, p.specs = f.Owner, f.BatchMilli, true, f.Containers
}

// maxLabelValue is Kubernetes' limit.
const maxLabelValue = 63

// ownerOf is the workload that created a pod, or the job that its label names.
func (m *Machine) ownerOf(p *pod) string {
	if p.owner != "" || m.cfg.JobLabel == "" || len(p.labels[m.cfg.JobLabel]) > maxLabelValue {
		return p.owner
	}
	return p.labels[m.cfg.JobLabel]
}

// podFacts takes over the facts of a pod that is on the node already. It moves nothing: a resize
// takes effect when kubelet asks the runtime for it, not when the API server knows it.
func (m *Machine) podFacts(f PodFacts) {
	p := m.pods[f.UID]
	if p == nil {
		return
	}
	recounted := p.recount(&f)
	resized := p.outside() && (!p.known || *p.resources != f.Resources)
	if p.owner != f.Owner || p.batch != f.BatchMilli || !p.known || resized || recounted {
		promised := p.batch != f.BatchMilli || resized || recounted
		if resized {
			r := f.Resources
			p.resources, p.hidden = &r, false
		}
		p.owner, p.batch, p.known = f.Owner, f.BatchMilli, true
		m.news = true
		if recounted {
			m.explain(p) // it may wait for another number of CPUs
		}
		if promised {
			m.podChanged(p)
		}
		for _, c := range p.containers {
			m.views.touch(c)
		}
	}
	r := f.Resources
	switch {
	case p.holders != nil && p.in.named != nil:
		m.namedFacts(p, f)
	case p.undecided():
		// A refusal now could not be reported to kubelet; its first container can still be refused.
		if g, err := m.grantFor(&p.holder, r, &r); err == nil {
			m.give(&p.holder, g, &r)
		}
	case p.allocated() && p.hidden:
		p.hidden = false
		if r.LimitMilli != r.RequestMilli {
			m.notice(p, "LimitUnequal",
				"%s pods need a CPU request equal to the limit, this pod requests %s and is limited to %s; it keeps "+
					"its CPUs", p.in.class, milli(r.RequestMilli), milli(r.LimitMilli))
		}
	case !p.allocated() && (p.resources == nil || p.hidden):
		p.resources, p.hidden = &r, false
		m.explain(p)
		// No container runs yet, so it can still be bound to NUMA nodes.
		if len(p.all) == 0 && p.nodes == nil && p.degraded == "" && p.in.class == LS && m.placeShared(p, nil) == nil &&
			p.nodes != nil {
			m.bound[p.ref.UID] = p
			m.explain(p)
			m.podChanged(p)
		}
	}
}

// facts are the pod's facts for Checkpoint.
func (p *pod) facts() *PodFacts {
	if !p.known || p.resources == nil {
		return nil
	}
	return &PodFacts{UID: p.ref.UID, Resources: *p.resources, Counted: p.counted, Owner: p.owner,
		BatchMilli: p.batch, Containers: p.specs}
}
