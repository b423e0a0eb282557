package policy

import (
	"time"

	"github.com/quietcore/quietcore/topology"
)

// verdict is the result of judge, which commit applies. Nothing in the machine changes before
// commit, so a refusal has nothing to undo.
type verdict struct {
	pod *pod // the subject; nil: no known pod
	// enters means that the pod is new and not in the machine yet.
	enters bool
	// view is the machine on which the pod was judged, nil for the machine itself. In a view,
	// kubelet's bookings for a pod that we place do not count.
	view      *Machine
	notices   []Notice
	resources *Resources // new sums of the pod
	asked     Quota      // the quota that kubelet wrote for the pod; unknown: unchanged
	resize    resize     // the container's state after the update
	grant     *grant     // what the holder owns from now on; nil: unchanged
	holder    *holder    // the pod, or a container of it
	runs      bool       // the container was found running, and was not announced
	degraded  *Refusal   // why it loses its place

	topo *topology.Topology
	cfg  *Config
	cap  Cap

	claim preparing
}

// Step processes one event and returns what has to be enforced because of it, in this order: pools
// that shrink, the subject, other changes, pools that grow. On an error the machine is unchanged;
// the error is a *Refusal.
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
	if t, tick := e.(Tick); tick && t.Slept > 0 {
		m.sleptThrough(now, t.Slept)
	}
	m.expireCaps(now)
	m.expireKeptOff(now)
	m.expireIdled(now)
	m.dropPools()
	if len(m.out) > 0 || m.news {
		m.rev++
		m.stamp()
	}
	return m.out, nil
}

// judge evaluates an event, or refuses it. It changes only the verdict. Events without a case here
// are never refused.
func (m *Machine) judge(now time.Time, e Event, v *verdict) error {
	var err *Refusal
	switch e := e.(type) {
	case PodRun:
		err = m.judgePod(v, &e.Pod, m.cfg.Degrade)
	case PodResized:
		err = m.judgePodResize(v, e)
	case ContainerCreate:
		if err = m.judgePod(v, &e.Pod, m.cfg.Degrade); err == nil && (v.pod.unread || v.pod.owns()) {
			err = m.refuseUnread() // nothing is written meanwhile: others would stay on its CPUs
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
	case Idled:
		err = m.judgeIdled(&e)
	case ClaimPrepared:
		err = m.judgeClaim(v, &e)
	case ClaimUnprepared:
		err = m.judgeUnprepare(&e)
	case PodRemoved, PodVanished, PodFacts, ContainerStopped, Synchronized, Corrected, Unannounced, NodeLabels,
		KubeletState, ForeignClaims, CapReleased, BESuppressed, IdleRefused, Released, Tick:
	default:
		err = refuse(InvalidRequest, "policy: unknown event %T", e)
	}
	if err != nil {
		return err
	}
	return nil
}

// commit applies the verdict. It cannot refuse.
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
	case ForeignClaims:
		m.foreignClaims(e)
	case ClaimPrepared:
		m.prepareClaim(v, e)
	case ClaimUnprepared:
		m.unprepareClaim(e.UID)
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
	case Idled:
		m.idle(now, e)
	case IdleRefused:
		m.refuseIdle()
	case Released:
		m.endLimits()
	}
}

// subject is the pod whose request an event may raise; nil if there is none.
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

// on is the machine on which the verdict is reached.
func (v *verdict) on(m *Machine) *Machine {
	if v.view != nil {
		return v.view
	}
	return m
}

// note adds a notice about the pod, which commit publishes.
func (v *verdict) note(reason, format string, args ...any) {
	v.notices = append(v.notices, noticeOf(v.pod, reason, format, args...))
}

func (m *Machine) publishNotices(v *verdict) {
	for _, n := range v.notices {
		m.decide(n)
	}
}
