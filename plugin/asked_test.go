package plugin

import (
	"testing"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// compareBook compares what the book has of what kubelet asked for with what the policy
// has. Both see the same requests. The policy may know more: of pods that came with
// their first container, of resizes that were missed, and of what the runtime lists
// after a reconnection. A sandbox that runs twice, the second time without a limit as
// some tests have it, changes nothing for the policy.
func compareBook(t testing.TB, p *Plugin) {
	t.Helper()
	var held policy.Synchronized
	if err := p.loop.ask(short(t), func(m *policy.Machine) { held = m.Checkpoint() }); err != nil {
		return // it has ended, or is frozen
	}
	qos := map[string]policy.Pod{}
	for i := range held.Pods {
		pod := &held.Pods[i]
		qos[pod.Sandbox] = *pod
		followed := len(p.o.Saved.Places()) > 0 || // the state file knows the last resize
			pod.Resources != nil && pod.Asked.Milli() == pod.Resources.LimitMilli
		if booked, ok := p.book.pod(pod.UID); ok && booked.Micros > 0 && cgroup.Quota(pod.Asked) != booked &&
			!followed {
			t.Errorf("pod %s: kubelet asked for %+v, the book has %+v", pod.Name, pod.Asked, booked)
		}
	}
	for i := range held.Containers {
		c := &held.Containers[i]
		booked, ok := p.book.container(c.ID)
		if !ok {
			t.Errorf("container %s is not in the book", c.ID)
			continue
		}
		if cgroup.Quota(c.Asked.Quota) != booked.quota || booked.hasCPUs && !c.Asked.CPUs ||
			booked.ourQuota && !c.Asked.OurQuota || c.Shares != booked.shares ||
			c.Resources.RequestMilli != booked.resources.RequestMilli ||
			c.Asked.Quota.Micros > 0 && c.Resources.LimitMilli != booked.resources.LimitMilli {
			t.Errorf("container %s of %s: kubelet asked for %+v, %+v, shares %d; the book has %+v", c.ID,
				qos[c.Sandbox].Name, c.Asked, c.Resources, c.Shares, booked)
		}
	}
}
