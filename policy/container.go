package policy

import "slices"

// judgeContainer checks what the pod's sums could not show. With degrade, a violation moves the pod
// to the shared pool instead of refusing it.
func (m *Machine) judgeContainer(v *verdict, in *Container, degrade bool) *Refusal {
	err := m.recheck(v, in)
	if err != nil && degrade {
		v.degraded, err = err, nil
	}
	return err
}

func (m *Machine) recheck(v *verdict, in *Container) *Refusal {
	p := v.pod
	if p.unread || !p.in.exclusive() || kubeletPins(p.labels, p.ref.QoS) {
		return nil
	}
	if p.holders != nil {
		return m.recheckNamed(v, in)
	}
	if p.degraded != "" {
		return nil
	}
	own := p.own(in.Name, in.Resources)
	if p.resources == nil {
		g, err := v.on(m).grantFor(&p.holder, own, nil)
		if err != nil {
			return err
		}
		sums := own
		v.holder, v.resources, v.grant = &p.holder, &sums, g
		return nil
	}
	return p.checkEqual(in.Name, own)
}

// recheckNamed checks a container of a pod whose containers own CPUs. Its first start gives its
// size, if that was unknown; a later start may have another size.
func (m *Machine) recheckNamed(v *verdict, in *Container) *Refusal {
	p := v.pod
	h := p.holders[in.Name]
	if h == nil || v.runs && (h.grant != nil || h.degraded != "") {
		return nil
	}
	r := p.own(in.Name, in.Resources).inferred(p.ref.QoS)
	sums := &Resources{RequestMilli: r.RequestMilli}
	if p.resources != nil {
		*sums = *p.resources
	}
	view := v.on(m)
	if v.resources = p.resources; h.grant != nil {
		return view.judgeSize(v, h, r, sums)
	}
	g, err := view.grantFor(h, r, sums)
	if v.holder = h; err == nil {
		v.grant = g
	}
	return err
}

// checkEqual refuses a container whose request differs from its limit, which the pod's sums can hide.
func (p *pod) checkEqual(name string, r Resources) *Refusal {
	if !p.hidden || r.RequestMilli <= 0 || r.LimitMilli == r.RequestMilli {
		return nil
	}
	return refuse(InvalidRequest,
		"%s pods need a CPU request equal to the limit, container %s requests %s and is limited to %s; make "+
			"them equal", p.in.class, literal(name), milli(r.RequestMilli), milli(r.LimitMilli))
}

// enterContainer adds a container to its pod, which is in the machine already. synchronized means
// that the runtime lists it as running.
func (m *Machine) enterContainer(v *verdict, in *Container, synchronized bool) {
	p := v.pod
	m.adoptPin(p, in)
	switch {
	case v.degraded != nil && v.holder != nil && v.holder.grant != nil: // it keeps what it has
	case v.degraded != nil && v.holder != nil:
		if v.holder.degraded != v.degraded.Error() { // else it was reported at admission
			m.deny(v.holder, v.degraded)
		}
	case v.degraded != nil:
		m.degrade(&p.holder, v.degraded.Error())
		m.recompute()
	case v.grant != nil:
		m.give(v.holder, v.grant, v.resources)
	}
	c := m.containers[in.ID]
	if c == nil {
		c = &container{pod: p}
		m.containers[in.ID], p.all[in.ID] = c, c
		if !synchronized {
			delete(p.ended, in.Name) // it is created without a cap, and with kubelet's memory nodes
			p.narrowed = slices.DeleteFunc(slices.Clone(p.narrowed), func(name string) bool { return name == in.Name })
		}
	}
	c.ref = ContainerRef{ID: in.ID, Name: in.Name, CgroupPath: in.CgroupPath}
	c.sandbox, c.createdAt, c.stopped = in.Sandbox, in.CreatedAt, false
	c.take(in, synchronized)
	c.noteFound(in.FoundCap)
	c.follow()
	if newer := p.containers[in.Name]; newer == nil || newer == c || !newer.createdAt.After(c.createdAt) {
		p.containers[in.Name] = c
	}
	if h := p.holders[in.Name]; h != nil {
		h.follow(p.containers[in.Name])
		m.explain(p)
	}
	if p.containers[in.Name] == c {
		m.takeClaims(p, in.Name, in.Claims)
		m.nameClaims(in.Claims)
	}
	if !p.several && len(p.containers) > 1 {
		p.several = true
		if p.owns() {
			m.podChanged(p)
			return
		}
	}
	m.containerChanged(c)
}

// judgeUpdate checks a resize.
func (m *Machine) judgeUpdate(v *verdict, e ContainerUpdate) *Refusal {
	c := m.containers[e.ID]
	if c == nil {
		return nil
	}
	if v.resize = c.after(&e); !v.resize.changed {
		return nil
	}
	sums := m.sumAfter(c, v.resize.resources, e.Pod)
	if h := c.pod.holders[c.ref.Name]; h != nil && h.grant != nil && !kubeletPins(c.pod.labels, c.pod.ref.QoS) {
		v.pod, v.resources = c.pod, &sums
		return m.judgeSize(v, h, c.pod.own(c.ref.Name, v.resize.resources).inferred(c.pod.ref.QoS), &sums)
	}
	return m.judgeResize(v, c.pod, sums)
}

// containerUpdate answers a resize or a cpuset from kubelet. The decision in the reply is the whole
// desired state, so our values win.
func (m *Machine) containerUpdate(v *verdict, e ContainerUpdate) {
	c := m.containers[e.ID]
	if c == nil {
		return
	}
	if v.resize.changed {
		m.resize(v)
	}
	c.resources, c.shares, c.asked = v.resize.resources, v.resize.shares, v.resize.asked
	c.follow()
	if h := c.pod.holders[c.ref.Name]; h != nil && c.pod.containers[c.ref.Name] == c {
		h.follow(c)
		m.explain(c.pod)
	}
	if m.pinned(c.pod) {
		m.podChanged(c.pod) // kubelet writes the pod's quota at a resize
	} else {
		m.containerChanged(c)
	}
}

// sumAfter returns the pod's sums after a container changes. A runtime that announces the resize of
// the pod itself has announced it before the container's: then the containers add up to those sums.
func (m *Machine) sumAfter(c *container, now Resources, pod *Resources) Resources {
	if pod != nil {
		return *pod
	}
	p := c.pod
	before := p.own(c.ref.Name, c.resources)
	if now = p.own(c.ref.Name, now); p.resources == nil {
		return now
	}
	var live Resources
	for name, o := range p.containers {
		r := p.own(name, o.resources)
		if o == c {
			r = now
		}
		live.RequestMilli += r.RequestMilli
		if live.LimitMilli == NoLimit || r.LimitMilli == NoLimit {
			live.LimitMilli = NoLimit
		} else {
			live.LimitMilli += r.LimitMilli
		}
	}
	sum := *p.resources
	if live.RequestMilli == sum.RequestMilli {
		// Kubelet goes on with the container although the pod's own resize was refused for its
		// limit.
		refused := sum.LimitMilli != NoLimit && now.LimitMilli != before.LimitMilli &&
			(live.LimitMilli == NoLimit || live.LimitMilli > sum.LimitMilli)
		if !refused {
			return sum
		}
	} else {
		sum.RequestMilli += now.RequestMilli - before.RequestMilli
	}
	// The sums may already be the announced ones after the resize. They are never less than this
	// container's.
	sum.RequestMilli = max(sum.RequestMilli, now.RequestMilli)
	switch {
	case now.LimitMilli == NoLimit:
		sum.LimitMilli = NoLimit
	case sum.LimitMilli != NoLimit && before.LimitMilli != NoLimit:
		sum.LimitMilli = max(sum.LimitMilli+now.LimitMilli-before.LimitMilli, now.LimitMilli)
	}
	return sum
}

func (m *Machine) containerStopped(id string) {
	if m.containers[id] != nil {
		m.dropContainer(id)
	}
}

// dropContainer removes a container. What its pod owns stays with the pod.
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

// newest is the most recently created container of one name.
func (p *pod) newest(name string) *container {
	var found *container
	for _, id := range sortedKeys(p.all) {
		if c := p.all[id]; c.ref.Name == name && (found == nil || c.createdAt.After(found.createdAt)) {
			found = c
		}
	}
	return found
}

// containerChanged decides the desired state of one container.
func (m *Machine) containerChanged(c *container) {
	p := c.pod
	if p.unread {
		m.views.touch(c)
		return
	}
	need, _ := m.needOf(p, c.ref.Name)
	d := SetContainer{Pod: p.ref, Container: c.ref, Need: need, Mems: m.memsOf(p, c.ref.Name, need),
		Why: m.whyOf(p, c.ref.Name)}
	d.Foreign = p.followsClaims() && p.byOthers()
	if need.Own == nil && (p.holders != nil || p.kubelet || p.followsClaims()) {
		pool := m.PoolCPUs(need.Pool)
		d.StartMask = &pool
	}
	p.noteMems(c.ref.Name, d.Mems)
	if m.cfg.Memory == MemoryPreferred {
		d.PreferNodes = m.nearNodes(p, c.ref.Name, need)
	}
	if limit, ok := p.caps[c.ref.Name]; ok {
		d.Cap = &limit
	}
	d.Asked = c.asked
	d.Quota, d.QuotaOurs = m.quotaDue(c)
	m.views.touch(c)
	m.decide(d)
}

// quotaDue is the quota that a container should have, and whether that differs from what kubelet
// requested.
func (m *Machine) quotaDue(c *container) (q Quota, ours bool) {
	milli := m.quotaOf(c)
	if limit, ok := c.pod.caps[c.ref.Name]; ok && (milli == NoLimit || limit.Milli < milli) {
		milli = limit.Milli
	}
	if milli == c.resources.LimitMilli {
		return c.asked.Quota, false
	}
	return QuotaOf(milli), true
}

// quotaOf is the container's own limit, or none if it is alone on CPUs that it owns: throttling
// would only leave them idle.
func (m *Machine) quotaOf(c *container) int64 {
	p := c.pod
	h := p.named(c.ref.Name)
	if h != nil && m.pins(h) && !p.keepsQuota() && (h.name != "" || !p.several || m.cfg.LiftContainers) {
		return NoLimit
	}
	return c.resources.LimitMilli
}
