package policy

import "time"

// PodView is a pod for readers outside of policy.
type PodView struct {
	UID, Namespace, Name string
	Class                Class
	Managed              bool   // false: it is unmanaged
	Cgroup               string // as the runtime reports it; empty while unknown
	RequestMilli         int64  // the pod's sum; 0 while unknown
	BatchMilli           int64  // request for lent CPUs
	QuotaMilli           int64  // of class BE: its quota but for a part of what limits all of it; NoLimit: none
	CreatedAt            time.Time
	Containers           int // number of running containers
}

// Pods lists the pods in order of creation.
func (m *Machine) Pods() []PodView {
	pods := make([]PodView, 0, len(m.pods))
	for _, p := range ordered(m.pods) {
		v := PodView{
			UID: p.ref.UID, Namespace: p.ref.Namespace, Name: p.ref.Name, Class: p.in.class, Managed: !p.in.unmanaged,
			Cgroup: p.ref.CgroupParent, BatchMilli: p.batch, CreatedAt: p.createdAt, Containers: len(p.containers),
			QuotaMilli: p.ownQuota(),
		}
		if p.resources != nil {
			v.RequestMilli = p.resources.RequestMilli
		}
		pods = append(pods, v)
	}
	return pods
}
