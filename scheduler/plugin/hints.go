package plugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister are what may give a pod a place that the plugin found none for. Nodes' ledgers are followed
// apart, since the framework would keep them all; pods with room by a new one are activated.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: p.asksAnew},
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown},
			QueueingHintFn: p.givesBack},
		{Event: fwk.ClusterEvent{Resource: fwk.Node,
			ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAllocatable}, QueueingHintFn: p.mayTake},
	}, nil
}

// hint is for objects that an event does not have as it should: trying costs little.
func hint(queue, known bool) (fwk.QueueingHint, error) {
	if queue || !known {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// asksAnew says that the waiting pod itself asks for something else than before.
func (p *Plugin) asksAnew(_ klog.Logger, _ *v1.Pod, before, now any) (fwk.QueueingHint, error) {
	was, ok := before.(*v1.Pod)
	is, known := now.(*v1.Pod)
	return hint(ok && known && !wishOf(was).Alike(wishOf(is)), ok && known)
}

// givesBack says that a pod that ended, or was resized, requests less of its node. What it owned is told by the
// node's ledger, later.
func (p *Plugin) givesBack(_ klog.Logger, _ *v1.Pod, before, now any) (fwk.QueueingHint, error) {
	was, ok := before.(*v1.Pod)
	is, _ := now.(*v1.Pod)
	return hint(requested(was) > requested(is), ok)
}

func requested(pod *v1.Pod) int64 {
	if pod == nil {
		return 0
	}
	all := resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
	return all.Cpu().MilliValue()
}

// mayTake says that a node that came or changed can be asked: of one whose ledger is to come a pod that asks for
// CPUs hears with the ledger.
func (p *Plugin) mayTake(_ klog.Logger, pod *v1.Pod, _, now any) (fwk.QueueingHint, error) {
	n, ok := now.(*v1.Node)
	return hint(ok && (p.args.AbsentNodes == AbsentIgnore || p.cluster.Node(n.Name).Known() || wishOf(pod).Plain()), ok)
}
