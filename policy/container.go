package policy

// containerCreate admits one container. Its pod may be unknown: the runtime need
// not have announced the sandbox.
func (m *Machine) containerCreate(e ContainerCreate) *Refusal {
	unknown := m.sandboxes[e.Pod.Sandbox] == nil && m.pods[e.Pod.UID] == nil
	p, err := m.admit(e.Pod, m.cfg.Degrade)
	if err != nil {
		return err
	}
	m.hearKubelet(p, e.Container)
	err = m.enter(p, e.Container, m.cfg.Degrade)
	if err != nil && unknown {
		m.dropPod(p)
	}
	return err
}

// enter puts a container into its pod.
func (m *Machine) enter(p *pod, in Container, degrade bool) *Refusal {
	if err := m.recheck(p, in); err != nil {
		if !degrade {
			return err
		}
		m.degrade(p, err.Error())
		m.recompute()
	}
	c := m.containers[in.ID]
	if c == nil {
		c = &container{pod: p}
		m.containers[in.ID], p.all[in.ID] = c, c
	}
	c.ref = ContainerRef{ID: in.ID, Name: in.Name, CgroupPath: in.CgroupPath}
	c.sandbox, c.resources, c.shares, c.createdAt = in.Sandbox, in.Resources, in.Shares, in.CreatedAt
	c.stopped = false
	if newer := p.containers[in.Name]; newer == nil || newer == c || !newer.createdAt.After(c.createdAt) {
		p.containers[in.Name] = c
	}
	if !p.several && len(p.containers) > 1 {
		p.several = true
		if p.grant != nil {
			m.podChanged(p)
			return nil
		}
	}
	m.containerChanged(c)
	return nil
}

// recheck looks at what the pod's sums could not tell.
func (m *Machine) recheck(p *pod, in Container) *Refusal {
	if !p.in.exclusive() || p.degraded != "" || kubeletPins(p.labels, p.ref.QoS) {
		return nil
	}
	if p.resources == nil {
		r := in.Resources
		p.resources = &r
		if err := m.placeExclusive(p, nil); err != nil {
			p.resources = nil
			return err
		}
		m.own(p)
		m.recompute()
		m.explain(p)
		m.podChanged(p)
		return nil
	}
	if r := in.Resources; p.hidden && r.RequestMilli > 0 && r.LimitMilli != r.RequestMilli {
		return refuse(InvalidRequest,
			"%s pods need a CPU request equal to the limit, container %s requests %s and is limited to %s; make "+
				"them equal", p.in.class, literal(in.Name), milli(r.RequestMilli), milli(r.LimitMilli))
	}
	return nil
}

// containerUpdate answers a resize or kubelet's cpuset: the decision that comes
// with it is the whole desired state, so that ours wins.
func (m *Machine) containerUpdate(e ContainerUpdate) *Refusal {
	c := m.containers[e.ID]
	if c == nil {
		return nil
	}
	p := c.pod
	if e.Resources != nil {
		if err := m.resize(p, m.sumAfter(c, e)); err != nil {
			return err
		}
		c.resources = *e.Resources
		if e.Shares > 0 {
			c.shares = e.Shares
		}
	}
	if m.pinned(p) {
		m.podChanged(p) // kubelet writes the pod's quota at a resize
	} else {
		m.containerChanged(c)
	}
	return nil
}

// sumAfter is what the pod's sums become when a container changes. A runtime
// that announces the pod's own resize has said it already: then the containers
// add up to what it said.
func (m *Machine) sumAfter(c *container, e ContainerUpdate) Resources {
	if e.Pod != nil {
		return *e.Pod
	}
	p := c.pod
	if p.resources == nil {
		return *e.Resources
	}
	var live int64
	for _, o := range p.containers {
		if o == c {
			live += e.Resources.RequestMilli
		} else {
			live += o.resources.RequestMilli
		}
	}
	if live == p.resources.RequestMilli {
		return *p.resources
	}
	sum := *p.resources
	sum.RequestMilli += e.Resources.RequestMilli - c.resources.RequestMilli
	switch {
	case e.Resources.LimitMilli == NoLimit:
		sum.LimitMilli = NoLimit
	case sum.LimitMilli != NoLimit && c.resources.LimitMilli != NoLimit:
		sum.LimitMilli += e.Resources.LimitMilli - c.resources.LimitMilli
	}
	return sum
}

func (m *Machine) containerStopped(id string) {
	if m.containers[id] != nil {
		m.dropContainer(id)
	}
}

// dropContainer forgets a container. What its pod owns stays with the pod.
func (m *Machine) dropContainer(id string) {
	c := m.containers[id]
	delete(m.containers, id)
	delete(c.pod.all, id)
	c.stopped = true
	if c.pod.containers[c.ref.Name] == c {
		delete(c.pod.containers, c.ref.Name)
		if older := c.pod.newest(c.ref.Name); older != nil {
			c.pod.containers[c.ref.Name] = older
		}
	}
	m.views.touch(c)
	m.decide(DropContainer{ID: id})
}

// newest is the container that counts among those of one name.
func (p *pod) newest(name string) *container {
	var found *container
	for _, id := range sortedKeys(p.all) {
		if c := p.all[id]; c.ref.Name == name && (found == nil || c.createdAt.After(found.createdAt)) {
			found = c
		}
	}
	return found
}

// containerChanged decides the state of one container.
func (m *Machine) containerChanged(c *container) {
	p := c.pod
	need, _ := m.needOf(p, c.ref.Name)
	d := SetContainer{Pod: p.ref, Container: c.ref, Need: need, Mems: m.memsOf(need), Why: p.why}
	if m.cfg.Memory == MemoryPreferred {
		d.PreferNodes = m.nearNodes(need)
	}
	d.QuotaMilli = m.quotaOf(c)
	if limit, ok := p.caps[c.ref.Name]; ok {
		d.Cap = &limit
		if d.QuotaMilli == NoLimit || limit.Milli < d.QuotaMilli {
			d.QuotaMilli = limit.Milli
		}
	}
	d.QuotaOurs = d.QuotaMilli != c.resources.LimitMilli
	m.views.touch(c)
	m.decide(d)
}

// quotaOf is the container's own limit, lifted where it is alone on CPUs that it
// owns: throttling there would only idle them.
func (m *Machine) quotaOf(c *container) int64 {
	p := c.pod
	if m.pinned(p) && !p.keepsQuota() && (!p.several || m.cfg.LiftContainers) {
		return NoLimit
	}
	return c.resources.LimitMilli
}
