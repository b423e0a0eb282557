package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	kjson "sigs.k8s.io/json"

	"github.com/quietcore/quietcore/policy"
)

// Lent CPUs, as an extended resource counted in thousandths of a CPU.
const (
	batchResource           = "quietcore.dev/batch-cpu"
	koordinatorBatch        = "kubernetes.io/batch-cpu"
	annExtendedResources    = "node.koordinator.sh/extended-resource-spec"
	maxExtendedResourceSpec = 4 << 10 // bytes; a tenant writes it
)

// maxMilli bounds what a tenant can request: a thousand million CPUs.
const maxMilli = 1 << 40

// infoOf extracts what is kept of a pod. It may change the pod.
func infoOf(pod *corev1.Pod) podInfo {
	settle(pod)
	counted := countedOf(pod)
	lent := batchOf(pod)
	return podInfo{
		facts: policy.PodFacts{
			UID:        string(pod.UID),
			Resources:  resourcesOf(pod, counted),
			Counted:    counted,
			Owner:      OwnerOf(pod),
			Containers: containersOf(pod),
			BatchMilli: lent,
		},
		alias: staticUID(pod),
		over:  pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		batch: requestOf(pod, lent),
	}
}

// resourcesOf sums the pod's CPU requests and limits as kubelet passes them to the
// runtime with the sandbox: init containers by their maximum, sidecars added, pod-level
// values where set, without a RuntimeClass's overhead. (The pod's cgroup includes the
// overhead; a pod that requests four CPUs still requests four.) CPUs of claims are left
// out: pod-level values include them, other sums have them added.
func resourcesOf(pod *corev1.Pod, counted policy.Counted) policy.Resources {
	o := resourcehelper.PodResourcesOptions{ExcludeOverhead: true, UseDRANodeAllocatableResourceClaimStatus: true}
	request := resourcehelper.PodRequests(pod, o)
	limit := resourcehelper.PodLimits(pod, o)
	r := policy.Resources{RequestMilli: milli(request.Cpu()), LimitMilli: milli(limit.Cpu())}
	if !limited(pod) {
		r.LimitMilli = policy.NoLimit
	}
	return counted.Without(r)
}

// countedOf are the CPUs of claims that Kubernetes counts among the pod's (KEP-5517): kube-scheduler notes them before
// the pod has a node. What a driver notes as its overhead is requested like any other CPU.
func countedOf(pod *corev1.Pod) policy.Counted {
	var counted policy.Counted
	for i := range pod.Status.NodeAllocatableResourceClaimStatuses {
		s := &pod.Status.NodeAllocatableResourceClaimStatuses[i]
		for _, mapped := range s.Mapping {
			if mapped.Name != corev1.ResourceCPU || mapped.Quantity == nil || mapped.Quantity.Sign() <= 0 {
				continue
			}
			if counted == nil {
				counted = policy.Counted{}
			}
			for _, name := range append([]string{""}, s.Containers[:min(len(s.Containers), maxContainers)]...) {
				counted[name] = min(counted[name]+milli(mapped.Quantity), maxMilli)
			}
		}
	}
	return counted
}

// limited says whether the pod as a whole has a limit.
func limited(pod *corev1.Pod) bool {
	if r := pod.Spec.Resources; r != nil && !r.Limits.Cpu().IsZero() {
		return true
	}
	all := len(pod.Spec.Containers) > 0
	eachContainer(pod, func(c *corev1.Container) { all = all && !c.Resources.Limits.Cpu().IsZero() })
	return all
}

func eachContainer(pod *corev1.Pod, do func(*corev1.Container)) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			do(&list[i])
		}
	}
}

// maxContainers bounds how many containers of a pod are kept.
const maxContainers = 128

// containersOf lists the containers of a pod some of which are to own CPUs, in the order in
// which kubelet starts them; nil for all other pods.
func containersOf(pod *corev1.Pod) []policy.ContainerFacts {
	if pod.Annotations[policy.AnnContainers] == "" ||
		len(pod.Spec.InitContainers)+len(pod.Spec.Containers) > maxContainers {
		return nil
	}
	var list []policy.ContainerFacts
	init := len(pod.Spec.InitContainers)
	eachContainer(pod, func(c *corev1.Container) {
		f := policy.ContainerFacts{Name: c.Name}
		f.Resources = policy.Resources{RequestMilli: milli(c.Resources.Requests.Cpu()), LimitMilli: policy.NoLimit}
		if limit := c.Resources.Limits.Cpu(); !limit.IsZero() {
			f.Resources.LimitMilli = milli(limit)
		}
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		f.Init = len(list) < init && !sidecar
		list = append(list, f)
	})
	return list
}

// milli is a quantity in thousandths, bounded so that sums do not overflow.
func milli(q *resource.Quantity) int64 { return bounded(q, resource.Milli) }

func bounded(q *resource.Quantity, scale resource.Scale) int64 {
	most := resource.NewScaledQuantity(maxMilli, scale)
	switch {
	case q.Sign() <= 0:
		return 0
	case q.Cmp(*most) >= 0:
		return maxMilli
	}
	return q.ScaledValue(scale)
}

// settle replaces the spec's values by those that kubelet has granted, and a missing
// request by the limit, as the API server does.
func settle(pod *corev1.Pod) {
	unsettled := resizeUnsettled(pod)
	statuses := map[string]*corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			statuses[list[i].Name] = &list[i]
		}
	}
	guaranteed := pod.Status.QOSClass == corev1.PodQOSGuaranteed
	eachContainer(pod, func(c *corev1.Container) {
		if s := statuses[c.Name]; s != nil && unsettled {
			c.Resources = granted(c.Resources, s, guaranteed)
		}
		defaultRequests(&c.Resources)
	})
	if r := pod.Spec.Resources; r != nil {
		if unsettled {
			settlePod(pod)
		}
		if !aggregateRequests(pod) {
			defaultRequests(r)
		}
	}
}

// resizeUnsettled says that the spec may request more than kubelet has granted: kubelet
// has not seen it yet, or has deferred the resize.
func resizeUnsettled(pod *corev1.Pod) bool {
	if seen := pod.Status.ObservedGeneration; seen != 0 && seen < pod.Generation {
		return true
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// granted returns a container's CPU values by its status: the requests that kubelet has
// allocated, else the running ones, and the running limits. In a Guaranteed pod the
// limit is the request, even if its quota was lifted.
func granted(spec corev1.ResourceRequirements, s *corev1.ContainerStatus, guaranteed bool) corev1.ResourceRequirements {
	r := *spec.DeepCopy()
	runs := s.Resources
	if cpu, ok := s.AllocatedResources[corev1.ResourceCPU]; ok {
		setCPU(&r.Requests, cpu)
	} else if runs != nil {
		if cpu, ok := runs.Requests[corev1.ResourceCPU]; ok {
			setCPU(&r.Requests, cpu)
		}
	}
	switch request, ok := r.Requests[corev1.ResourceCPU]; {
	case guaranteed && ok:
		setCPU(&r.Limits, request)
	case runs != nil:
		if cpu, ok := runs.Limits[corev1.ResourceCPU]; ok {
			setCPU(&r.Limits, cpu)
		} else {
			delete(r.Limits, corev1.ResourceCPU)
		}
	}
	return r
}

func setCPU(list *corev1.ResourceList, cpu resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[corev1.ResourceCPU] = cpu
}

// settlePod does the same for pod-level resources. What kubelet reports as allocated to
// the pod includes a RuntimeClass's overhead.
func settlePod(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if _, ok := r.Requests[corev1.ResourceCPU]; ok {
		if cpu, ok := pod.Status.AllocatedResources[corev1.ResourceCPU]; ok {
			cpu.Sub(*pod.Spec.Overhead.Cpu())
			setCPU(&r.Requests, cpu)
		}
	}
	if _, ok := r.Limits[corev1.ResourceCPU]; !ok {
		return
	}
	if request, ok := r.Requests[corev1.ResourceCPU]; ok && pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		setCPU(&r.Limits, request)
	} else if runs := pod.Status.Resources; runs != nil {
		if cpu, ok := runs.Limits[corev1.ResourceCPU]; ok {
			setCPU(&r.Limits, cpu)
		}
	}
}

func defaultRequests(r *corev1.ResourceRequirements) {
	if _, ok := r.Requests[corev1.ResourceCPU]; ok {
		return
	}
	if cpu, ok := r.Limits[corev1.ResourceCPU]; ok {
		setCPU(&r.Requests, cpu)
	}
}

// aggregateRequests says that some container requests CPUs: a missing pod-level request
// is then their sum, not the pod-level limit.
func aggregateRequests(pod *corev1.Pod) bool {
	any := false
	eachContainer(pod, func(c *corev1.Container) {
		_, ok := c.Resources.Requests[corev1.ResourceCPU]
		any = any || ok
	})
	return any
}

// batchOf is the pod's request of lent CPUs: by our resource, else by Koordinator's,
// else by the copy that Koordinator's webhook puts into an annotation.
func batchOf(pod *corev1.Pod) int64 {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
	for _, name := range []corev1.ResourceName{batchResource, koordinatorBatch} {
		if q, ok := requests[name]; ok && q.Sign() > 0 {
			return bounded(&q, 0)
		}
	}
	text, ok := pod.Annotations[annExtendedResources]
	if !ok {
		return 0
	}
	sums := parseExtendedResources(text)
	var total int64
	for i := range pod.Spec.Containers {
		total = min(total+sums[pod.Spec.Containers[i].Name], maxMilli)
	}
	return total
}

// parseExtendedResources parses Koordinator's annotation: container -> milli-CPUs. An
// invalid one requests nothing.
func parseExtendedResources(text string) map[string]int64 {
	if len(text) > maxExtendedResourceSpec {
		return nil
	}
	var spec struct {
		Containers map[string]struct {
			Requests map[corev1.ResourceName]resource.Quantity `json:"requests"`
			Limits   map[corev1.ResourceName]resource.Quantity `json:"limits"`
		} `json:"containers"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &spec); err != nil {
		return nil
	}
	sums := make(map[string]int64, len(spec.Containers))
	for name, c := range spec.Containers {
		for _, r := range []corev1.ResourceName{batchResource, koordinatorBatch} {
			q, ok := c.Requests[r]
			if !ok {
				q, ok = c.Limits[r]
			}
			if ok {
				sums[name] = bounded(&q, 0)
				break
			}
		}
	}
	return sums
}
