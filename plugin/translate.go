package plugin

import (
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

const (
	// maxShares is where kubelet clips cpu.shares: 256 CPUs.
	maxShares = 262144
	// noShares is what kubelet writes for a request of nothing.
	noShares = 2
	// period is kubelet's default CFS period in microseconds.
	period = 100_000
	// maxName bounds the names and ids that are kept. Kubernetes' own end at 253
	// bytes; a direct client of the runtime may send megabytes.
	maxName = 512
)

// podOf turns the runtime's pod into the policy's. Labels and annotations that
// decide nothing are left behind, so memory does not grow with tenants' text.
func podOf(p *api.PodSandbox, jobLabel string) policy.Pod {
	linux := p.GetLinux()
	pod := policy.Pod{
		UID: clip(p.GetUid()), Sandbox: clip(p.GetId()),
		Namespace: clip(p.GetNamespace()), Name: clip(p.GetName()),
		Labels: policy.Relevant(p.GetLabels(), jobLabel), Annotations: policy.Relevant(p.GetAnnotations(), ""),
	}
	if pod.UID == "" {
		// A client that is not kubelet need not give one; pods must not share it.
		pod.UID = "sandbox-" + pod.Sandbox
	}
	if path, err := cgroup.PodPath(linux.GetCgroupParent()); err == nil {
		pod.CgroupParent = strings.Clone(path)
	}
	pod.QoS = qosOf(pod.CgroupParent, linux.GetPodResources().GetCpu())
	pod.Resources, pod.LimitHidden = podSums(linux.GetPodResources().GetCpu(), pod.QoS)
	return pod
}

func clip(s string) string {
	if len(s) > maxName {
		return strings.Clone(s[:maxName])
	}
	return s
}

// qosOf reads the class from where kubelet put the pod; only where that says
// nothing (other cgroup parents) do the resources have to.
func qosOf(path string, cpu *api.LinuxCPU) policy.QoS {
	switch cgroup.Classify(cgroup.Parent(path)) {
	case cgroup.Guaranteed:
		return policy.Guaranteed
	case cgroup.Burstable:
		return policy.Burstable
	case cgroup.BestEffort:
		return policy.BestEffort
	}
	request, limit := requestOf(cpu), limitOf(cpu)
	switch {
	case request == 0 && limit == policy.NoLimit:
		return policy.BestEffort
	case limit == request:
		return policy.Guaranteed
	}
	return policy.Burstable
}

// podSums are the pod's sums; nil where the runtime does not say. hidden means
// that the limit is not known: one container without a limit hides the others'.
func podSums(cpu *api.LinuxCPU, qos policy.QoS) (sums *policy.Resources, hidden bool) {
	if cpu == nil || cpu.GetShares() == nil && cpu.GetQuota() == nil {
		return nil, false
	}
	r := resourcesOf(cpu, qos)
	return &r, r.LimitMilli == policy.NoLimit
}

// resourcesOf inverts what kubelet wrote. A Guaranteed parent proves that request
// and limit are equal, which helps where one of them cannot be read: no quota
// with cpuCFSQuota off (or lifted by us), shares clipped at 256 CPUs.
func resourcesOf(cpu *api.LinuxCPU, qos policy.QoS) policy.Resources {
	r := policy.Resources{RequestMilli: requestOf(cpu), LimitMilli: limitOf(cpu)}
	clipped := cpu.GetShares().GetValue() >= maxShares
	switch {
	case clipped && r.LimitMilli > r.RequestMilli && qos == policy.Guaranteed:
		r.RequestMilli = r.LimitMilli
	case r.LimitMilli == policy.NoLimit && qos == policy.Guaranteed && r.RequestMilli > 0:
		r.LimitMilli = r.RequestMilli
	}
	return r
}

// requestOf inverts shares = floor(milli x 1024 / 1000). Rounding up is exact for
// every request; rounding to the nearest would turn 122m into 121m.
func requestOf(cpu *api.LinuxCPU) int64 {
	shares := cpu.GetShares().GetValue()
	if shares <= noShares {
		return 0
	}
	shares = min(shares, maxShares)
	return int64((shares*1000 + 1023) / 1024)
}

func limitOf(cpu *api.LinuxCPU) int64 {
	q := quotaIn(cpu)
	if q.Micros <= 0 {
		return policy.NoLimit
	}
	// Whole CPUs first, so that no quota overflows.
	whole, rest := q.Micros/q.Period, q.Micros%q.Period
	const most = 1 << 40
	return min(whole, most)*1000 + (rest*1000+q.Period/2)/q.Period
}

// quotaIn is the quota as the runtime has it; Micros is -1 for none.
func quotaIn(cpu *api.LinuxCPU) cgroup.Quota {
	q := cgroup.Quota{Micros: -1, Period: period}
	if p := cpu.GetPeriod().GetValue(); p > 0 && p <= 1_000_000 {
		q.Period = int64(p)
	}
	if v := cpu.GetQuota().GetValue(); v > 0 {
		q.Micros = v
	}
	return q
}

// containerOf turns the runtime's container into the policy's. Only of an owner is
// a missing limit inferred: there request and limit are equal. Elsewhere nobody
// limits the container, as where kubelet's static policy pins it.
func containerOf(c *api.Container, pod *policy.Pod, now time.Time) policy.Container {
	cpu := c.GetLinux().GetResources().GetCpu()
	out := policy.Container{
		ID: clip(c.GetId()), Sandbox: clip(c.GetPodSandboxId()), Name: clip(c.GetName()),
		Resources: resourcesOf(cpu, pod.QoS), Shares: int64(min(cpu.GetShares().GetValue(), maxShares)),
		CPUs: clip(cpu.GetCpus()), CreatedAt: timeOf(c.GetCreatedAt(), now),
	}
	if !exclusive(pod) {
		out.Resources.LimitMilli = limitOf(cpu)
	}
	if path, err := cgroup.ContainerPath(c.GetLinux().GetCgroupsPath()); err == nil {
		out.CgroupPath = strings.Clone(path)
	}
	return out
}

// timeOf reads a time of the runtime: nanoseconds from containerd and CRI-O,
// seconds where somebody else chose so, 0 while a container is being created.
func timeOf(t int64, now time.Time) time.Time {
	switch {
	case t <= 0:
		return now
	case t > 1e14:
		return time.Unix(0, t)
	}
	return time.Unix(t, 0)
}

// updateOf is what a request to change a container changes; known is what the
// container had. A field that is 0 or empty in the request stays as it is.
func updateOf(id string, r *api.LinuxResources, known facts) (policy.ContainerUpdate, facts) {
	cpu := r.GetCpu()
	u := policy.ContainerUpdate{ID: id, CPUs: clip(cpu.GetCpus())}
	next := known
	if shares := cpu.GetShares().GetValue(); shares > 0 {
		u.Shares = int64(min(shares, maxShares))
		next.shares = u.Shares
	}
	if quota := cpu.GetQuota().GetValue(); quota != 0 {
		next.quota = quotaIn(cpu)
	}
	if u.Shares > 0 || cpu.GetQuota().GetValue() != 0 {
		next.resources = resourcesOf(next.cpu(), known.qos)
		changed := next.resources
		u.Resources = &changed
	}
	if u.CPUs != "" {
		next.hasCPUs = true
	}
	return u, next
}
