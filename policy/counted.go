package policy

// Counted are CPUs of DRA claims that Kubernetes counts among those of a pod (KEP-5517), in thousandths: under "" those
// that are in the pod's sums, under a container's name those that are in its limit. Nil: it counts none.
type Counted map[string]int64

// with adds the pod's claims to sums without them, as the runtime reports sums.
func (c Counted) with(r Resources) Resources {
	n := c[""]
	r.RequestMilli += n
	if r.LimitMilli != NoLimit {
		r.LimitMilli += n
	}
	return r
}

// Without takes the pod's claims from sums that the runtime reports.
func (c Counted) Without(r Resources) Resources {
	n := c[""]
	r.RequestMilli = max(r.RequestMilli-n, 0)
	if r.LimitMilli != NoLimit {
		r.LimitMilli = max(r.LimitMilli-n, 0)
	}
	return r
}

// whole is what Kubernetes counts for a pod, its claims included.
func (p *pod) whole() Resources { return p.counted.with(*p.resources) }

// own is what a container asks for besides its claims. Its request never has them; its limit has them if it has one.
// Where only the sum for the pod is known, a limit that is above the request by just that has them.
func (p *pod) own(name string, r Resources) Resources {
	n := p.counted[name]
	if all := p.counted[""]; !p.known && r.LimitMilli-r.RequestMilli == all {
		n = all
	}
	if r.LimitMilli != NoLimit {
		r.LimitMilli = max(r.LimitMilli-n, 0)
	}
	return r
}

// countedIn says which claims are in the sums of a pod that the runtime reports, without the API server's word. A
// BestEffort pod requests nothing but claims. Others have those that our driver prepared for them if the driver has
// Kubernetes count them.
func (m *Machine) countedIn(in *Pod) Counted {
	if in.Resources == nil {
		return nil
	}
	n := int64(0)
	switch sum := in.Resources.RequestMilli; {
	case in.QoS == BestEffort:
		n = sum
	case m.cfg.ClaimsCounted:
		for _, c := range m.claims {
			n += c.milliFor(in.UID)
		}
		if n > sum {
			n = 0 // the pod was scheduled before they were counted
		}
	}
	if n <= 0 {
		return nil
	}
	return Counted{"": n}
}

// milliFor is what a claim asks for if it is reserved for a pod, in thousandths of a CPU.
func (c *ownClaim) milliFor(uid string) (n int64) {
	for _, pod := range c.asked.Pods {
		if pod != uid {
			continue
		}
		for i := range c.asked.Requests {
			n += int64(c.asked.Requests[i].CPUs) * 1000
		}
	}
	return n
}

// takeSums takes over the sums of a new pod.
func (m *Machine) takeSums(p *pod, in *Pod) {
	if in.Resources != nil {
		p.counted = m.countedIn(in)
		r := p.counted.Without(*in.Resources)
		p.resources = &r
	}
	f := in.Facts
	if f == nil {
		return
	}
	if p.counted = f.Counted; in.Resources != nil && in.Resources.RequestMilli == f.Resources.RequestMilli {
		p.counted = nil // kube-scheduler counts them, and this kubelet does not
	}
	p.applyFacts(f)
}

// recount takes over what the API server first says of claims, for a pod that is on the node already; false: it is no
// news. Claims are counted before a pod has a node, and the same to its end. What a pod owns is without claims in any
// case.
func (p *pod) recount(f *PodFacts) bool {
	was := p.counted[""]
	switch {
	case p.known:
		return false
	case was == f.Counted[""], p.resources == nil, p.allocated():
		p.counted = f.Counted
		return p.counted[""] != was
	}
	sums, next := p.whole(), f.Counted
	if sums.RequestMilli == f.Resources.RequestMilli {
		next = nil // this kubelet does not count them
	}
	r := next.Without(sums)
	p.resources, p.counted = &r, next
	return true
}

// unserved is what Kubernetes counts for claims of a pod that have no CPUs here: drivers for shared CPUs count so, and
// a claim may have lost its own. Then the pod's containers need the shared pool for it.
func (m *Machine) unserved(p *pod) int64 {
	n := p.counted[""]
	if n == 0 {
		return 0
	}
	seen := map[string]bool{}
	for _, devices := range p.claims {
		for _, d := range devices {
			if !seen[d] {
				seen[d] = true
				n -= 1000 * int64(m.countClaim(d))
			}
		}
	}
	return max(n, 0)
}

// countClaim is how many CPUs the claim with a CDI device has.
func (m *Machine) countClaim(device string) int {
	if h := m.claimants[device]; h != nil {
		if h.grant == nil {
			return 0
		}
		return h.grant.cpus.Count()
	}
	cpus := m.foreign[device].cpus
	return cpus.Count()
}
