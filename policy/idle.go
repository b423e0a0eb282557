package policy

import "time"

// judgeIdled checks a request to let one pod run only on CPUs that are otherwise idle.
func (m *Machine) judgeIdled(e *Idled) *Refusal {
	p := m.pods[e.Pod]
	switch {
	case e.For < 0:
		return refuse(InvalidRequest, "let pod %s run on idle CPUs for %s: a time of at least 0 is needed",
			literal(e.Pod), e.For)
	case e.For == 0:
		return nil
	case p == nil:
		return refuse(InvalidRequest, "let pod %s run on idle CPUs: it does not run", literal(e.Pod))
	case !m.mayIdle(p):
		return refuse(InvalidRequest, "let pod %s/%s run on idle CPUs: the kernel cannot do that here, it does so "+
			"already, is exempt, or is not of class BE with QoS class BestEffort",
			literal(p.ref.Namespace), literal(p.ref.Name))
	}
	return nil
}

// mayIdle reports whether to run on otherwise idle CPUs alone would change anything for a pod, and can be done. A pod
// that Kubernetes may resize is left out, since the kernel refuses a weight on an idle cgroup.
func (m *Machine) mayIdle(p *pod) bool {
	return !m.be.noIdle && p.cappable() && p.in.class == BE && p.ref.QoS == BestEffort && !m.alwaysIdles(p)
}

// idle lets a pod run only on otherwise idle CPUs for a time, or ends that.
func (m *Machine) idle(now time.Time, e Idled) {
	if e.For == 0 {
		m.wake(e.Pod)
		return
	}
	if m.be.idled == nil {
		m.be.idled = map[string]time.Time{}
	}
	_, was := m.be.idled[e.Pod]
	if m.be.idled[e.Pod] = now.Add(e.For); !was {
		m.reconsider(m.pods[e.Pod])
	}
}

// wake ends that a pod runs only on otherwise idle CPUs.
func (m *Machine) wake(uid string) {
	if _, is := m.be.idled[uid]; !is {
		return
	}
	delete(m.be.idled, uid)
	if p := m.pods[uid]; p != nil {
		m.reconsider(p)
	}
}

// reconsider decides a pod anew.
func (m *Machine) reconsider(p *pod) {
	m.explain(p)
	m.podChanged(p)
}

// refuseIdle ends all of it for good: the kernel or systemd cannot do it.
func (m *Machine) refuseIdle() {
	m.be.noIdle = true
	for _, uid := range sortedKeys(m.be.idled) {
		m.wake(uid)
	}
	for _, id := range sortedKeys(m.containers) {
		m.views.touch(m.containers[id]) // none may idle any more
	}
}

// expireIdled ends what was asked for until now.
func (m *Machine) expireIdled(now time.Time) {
	for _, uid := range sortedKeys(m.be.idled) {
		if !now.Before(m.be.idled[uid]) {
			m.wake(uid)
		}
	}
}
