package policy

import (
	"time"

	"github.com/quietcore/quietcore/topology"
)

// verdict is what judge found out about an event and commit carries out. Until commit
// nothing of the machine has changed, so a refusal has nothing to undo.
type verdict struct {
	pod *pod // the subject; nil: none that is known
	// enters says that the pod is new and not in the machine yet.
	enters bool
	// view is the machine that the pod was judged on, nil for the machine itself: what
	// kubelet booked for a pod that we place does not count there.
	view      *Machine
	notices   []Notice
	resources *Resources // new sums of the pod
	asked     Quota      // what kubelet wrote for the pod; not known: as before
	resize    resize     // what the container becomes
	grant     *grant     // what the holder owns from now on; nil: as before
	holder    *holder    // the pod, or a container of it
	runs      bool       // the container runs already, and was not told of
	degraded  *Refusal   // why it loses its place

	topo *topology.Topology
	cfg  *Config
	cap  Cap
}

// Step takes one event and returns what has to be enforced because of it. The
// order is: pools that shrink, the subject, what else changed, pools that grow.
// On an error the machine is unchanged; the error is a *Refusal.
func (m *Machine) Step(now time.Time, e Event) ([]Decision, error) {
	m.out, m.news = nil, false
	var v verdict
	if err := m.judge(now, e, &v); err != nil {
		return nil, err
	}
	m.now = now
	p, before := m.subject(e, &v), int64(0)
	if p != nil && !v.enters {
		before = m.requestedFrom(p)
	}
	m.commit(now, e, &v)
	m.admitWaiting()
	if p != nil && m.requestedFrom(p) > before {
		m.takeBack()
	}
	m.reportLabels()
	m.heal(e, &v)
	m.compact(e)
	m.replied(e)
	m.expireCaps(now)
	m.expireKeptOff(now)
	m.dropPools()
	if len(m.out) > 0 || m.news {
		m.rev++
		m.stamp()
	}
	return m.out, nil
}

// judge finds out what an event means, or refuses it. It changes nothing but the verdict;
// events that it does not name are never refused.
func (m *Machine) judge(now time.Time, e Event, v *verdict) error {
	var err *Refusal
	switch e := e.(type) {
	case PodRun:
		err = m.judgePod(v, &e.Pod, m.cfg.Degrade)
	case PodResized:
		err = m.judgePodResize(v, e)
	case ContainerCreate:
		if err = m.judgePod(v, &e.Pod, m.cfg.Degrade); err == nil && (v.pod.unread || v.pod.owns()) {
			err = m.refuseUnread() // its CPUs are not cleared of others while nothing is written
		}
		if err == nil {
			err = m.judgeContainer(v, &e.Container, m.cfg.Degrade)
		}
	case ContainerUpdate:
		err = m.judgeUpdate(v, e)
	case KubeletConfigured:
		err = m.judgeKubelet(v, e.Kubelet)
	case Hardware:
		err = m.judgeHardware(v, e)
	case Reconfigured:
		err = m.judgeConfig(v, e.Config)
	case CapVerdict:
		err = m.judgeCap(v, now, e)
	case BEKeptOff:
		err = m.judgeKeepOff(now, e)
	case PodRemoved, PodVanished, PodFacts, ContainerStopped, Synchronized, Corrected, Unannounced, NodeLabels,
		KubeletState,
		CapReleased, BESuppressed, Tick:
	default:
		err = refuse(InvalidRequest, "policy: unknown event %T", e)
	}
	if err != nil {
		return err
	}
	return nil
}

// commit changes the machine as judge found. It cannot refuse.
func (m *Machine) commit(now time.Time, e Event, v *verdict) {
	switch e := e.(type) {
	case PodRun:
		m.enterPod(v, &e.Pod)
	case PodResized:
		m.podResized(v, e.Sandbox)
	case PodRemoved:
		m.podRemoved(e.Sandbox)
	case PodVanished:
		if p := m.pods[e.UID]; p != nil {
			m.dropPod(p)
		}
	case PodFacts:
		m.podFacts(e)
	case ContainerCreate:
		m.enterPod(v, &e.Pod)
		m.enterContainer(v, &e.Container, false)
	case ContainerUpdate:
		m.containerUpdate(v, e)
	case ContainerStopped:
		m.containerStopped(e.ID)
	case Synchronized:
		m.synchronize(now, e)
	case Corrected:
		m.correct(e)
	case Unannounced:
		m.unannounced(e)
	case NodeLabels:
		m.nodeLabels(e.Labels)
	case KubeletState:
		m.kubeletState(e)
	case KubeletConfigured:
		m.fromKubelet = &v.cfg.Kubelet
		m.configure(*v.cfg)
	case Hardware:
		m.hardware(v.topo)
	case Reconfigured:
		m.configure(*v.cfg)
	case CapVerdict:
		m.setCap(v.pod, v.cap)
		m.named(v.pod, v.cap.Container)
	case CapReleased:
		m.releaseCap(e.ID)
	case BESuppressed:
		m.suppress(e)
	case BEKeptOff:
		m.keepOff(now, e)
	}
}

// subject is the pod whose request an event may raise; nil where it raises none.
func (m *Machine) subject(e Event, v *verdict) *pod {
	switch e := e.(type) {
	case PodRun, ContainerCreate:
		return v.pod
	case PodFacts:
		return m.pods[e.UID]
	case PodResized:
		return m.sandboxes[e.Sandbox]
	case ContainerUpdate:
		if c := m.containers[e.ID]; c != nil {
			return c.pod
		}
	}
	return nil
}

// on is the machine that the verdict is found on.
func (v *verdict) on(m *Machine) *Machine {
	if v.view != nil {
		return v.view
	}
	return m
}

// note leaves a notice about the pod to commit.
func (v *verdict) note(reason, format string, args ...any) {
	v.notices = append(v.notices, noticeOf(v.pod, reason, format, args...))
}

func (m *Machine) publishNotices(v *verdict) {
	for _, n := range v.notices {
		m.decide(n)
	}
}
