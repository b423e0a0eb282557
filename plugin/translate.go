package plugin

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cdi"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// maxName bounds the names and ids that are kept. Kubernetes' own end at 253
// bytes; a direct client of the runtime may send megabytes.
const maxName = 512

// podOf turns the runtime's pod into the policy's. Labels and annotations that
// decide nothing are left behind, so memory does not grow with tenants' text.
func podOf(p *api.PodSandbox, jobLabel string) policy.Pod {
	linux := p.GetLinux()
	pod := policy.Pod{
		UID: uidOf(p), Sandbox: clip(p.GetId()),
		Namespace: clip(p.GetNamespace()), Name: clip(p.GetName()),
		Labels: policy.Relevant(p.GetLabels(), jobLabel), Annotations: policy.Relevant(p.GetAnnotations(), ""),
	}
	if path, err := cgroup.PodPath(linux.GetCgroupParent()); err == nil {
		pod.CgroupParent = strings.Clone(path)
	}
	cpu := linux.GetPodResources().GetCpu()
	pod.QoS = qosOf(pod.CgroupParent, cpu)
	pod.Resources, pod.LimitHidden = podSums(cpu, pod.QoS)
	if cpu != nil {
		pod.Asked = quotaIn(cpu)
	}
	return pod
}

// inventoryOf translates what the runtime lists at a Synchronize.
func inventoryOf(pods []*api.PodSandbox, containers []*api.Container, jobLabel string, now time.Time) node.Inventory {
	listed := node.Inventory{
		Pods: make([]policy.Pod, 0, len(pods)), Containers: make([]policy.Container, 0, len(containers)),
	}
	bySandbox := make(map[string]int, len(pods))
	for i, p := range pods {
		bySandbox[p.GetId()] = i
		listed.Pods = append(listed.Pods, podOf(p, jobLabel))
	}
	for _, c := range containers {
		i, ok := bySandbox[c.GetPodSandboxId()]
		if !ok {
			continue
		}
		ctr := containerOf(c, &listed.Pods[i], now)
		listed.Pods[i].Claim(ctr.Name, ctr.Claims) // a stopped one says what its successor will have
		if c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			listed.Containers = append(listed.Containers, ctr)
		}
	}
	return listed
}

func clip(s string) string {
	if len(s) > maxName {
		return strings.Clone(s[:maxName])
	}
	return s
}

// qosOf derives the class from the pod's cgroup; for cgroup parents that are not kubelet's, from its
// resources.
func qosOf(path string, cpu *api.LinuxCPU) policy.QoS {
	switch cgroup.Classify(cgroup.Parent(path)) {
	case cgroup.Guaranteed:
		return policy.Guaranteed
	case cgroup.Burstable:
		return policy.Burstable
	case cgroup.BestEffort:
		return policy.BestEffort
	}
	request, limit := policy.RequestOf(sharesIn(cpu)), quotaIn(cpu).Milli()
	switch {
	case request == 0 && limit == policy.NoLimit:
		return policy.BestEffort
	case limit == request:
		return policy.Guaranteed
	}
	return policy.Burstable
}

// podSums are the pod's sums; nil if the runtime does not report them. hidden means
// that the limit is not known: one container without a limit hides the others'.
func podSums(cpu *api.LinuxCPU, qos policy.QoS) (sums *policy.Resources, hidden bool) {
	if cpu == nil || cpu.GetShares() == nil && cpu.GetQuota() == nil {
		return nil, false
	}
	r := policy.ResourcesOf(sharesIn(cpu), quotaIn(cpu), qos)
	return &r, r.LimitMilli == policy.NoLimit
}

// quotaIn is the quota as the runtime has it; Micros is -1 for none.
func quotaIn(cpu *api.LinuxCPU) policy.Quota {
	return policy.Quota{}.With(cpu.GetQuota().GetValue(), periodIn(cpu))
}

func periodIn(cpu *api.LinuxCPU) int64 { return int64(min(cpu.GetPeriod().GetValue(), math.MaxInt64)) }

func sharesIn(cpu *api.LinuxCPU) int64 {
	return int64(min(cpu.GetShares().GetValue(), policy.MaxShares))
}

// storedCPUs is the cpuset as the runtime has it, empty where it is none: a list that was
// cut to a length would be another set.
func storedCPUs(cpu *api.LinuxCPU) string {
	if _, err := cpuset.Parse(cpu.GetCpus()); err != nil {
		return ""
	}
	return cpu.GetCpus()
}

// containerOf turns the runtime's container into the policy's.
func containerOf(c *api.Container, pod *policy.Pod, now time.Time) policy.Container {
	cpu := c.GetLinux().GetResources().GetCpu()
	out := policy.Container{
		ID: clip(c.GetId()), Sandbox: clip(c.GetPodSandboxId()), Name: clip(c.GetName()),
		Shares: sharesIn(cpu), CPUs: storedCPUs(cpu), CreatedAt: timeOf(c.GetCreatedAt(), now),
		Asked: policy.Asked{Quota: quotaIn(cpu), CPUs: cpu.GetCpus() != ""},
	}
	out.Resources = policy.ContainerResourcesOf(out.Shares, out.Asked.Quota, pod.QoS, pod.Labels)
	out.Claims = claimsOf(c)
	if path, err := cgroup.ContainerPath(c.GetLinux().GetCgroupsPath()); err == nil {
		out.CgroupPath = strings.Clone(path)
	}
	return out
}

// maxClaims bounds the claims of a container; Kubernetes' limit is 32 results a claim.
const maxClaims = 256

// claimsOf are the CDI devices for CPUs that kubelet asked for. They are kubelet's own word, unlike the container's
// environment. Older runtimes do not pass them on.
func claimsOf(c *api.Container) []string {
	var names []string
	for _, d := range c.GetCDIDevices() {
		if name := d.GetName(); cdi.IsCPU(name) && len(names) < maxClaims {
			names = append(names, strings.Clone(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// timeOf reads a time of the runtime: nanoseconds from containerd and CRI-O,
// seconds from other runtimes, 0 while a container is being created.
func timeOf(t int64, now time.Time) time.Time {
	switch {
	case t <= 0:
		return now
	case t > 1e14:
		return time.Unix(0, t)
	}
	return time.Unix(t, 0)
}

// updateOf is what a request to change a container changes. A field that is 0 or empty
// in the request stays as it is.
func updateOf(id string, r *api.LinuxResources) policy.ContainerUpdate {
	cpu := r.GetCpu()
	return policy.ContainerUpdate{ID: id, Shares: sharesIn(cpu), Quota: cpu.GetQuota().GetValue(),
		Period: periodIn(cpu),
		CPUs:   clip(cpu.GetCpus())}
}

// resizeOf is the resize of a pod that kubelet announces.
func resizeOf(sandbox string, cpu *api.LinuxCPU) policy.PodResized {
	return policy.PodResized{Sandbox: sandbox, Shares: sharesIn(cpu), Quota: cpu.GetQuota().GetValue(),
		Period: periodIn(cpu)}
}

// uidOf is the UID of a pod.
func uidOf(p *api.PodSandbox) string {
	if uid := clip(p.GetUid()); uid != "" {
		return uid
	}
	// A client that is not kubelet need not give one; pods must not share it.
	return "sandbox-" + clip(p.GetId())
}
