package kube

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/quietcore/quietcore/policy"
)

// PodOf is a pod of the API server as the policy is asked about it, before it is on a node:
// with the sums that the node will be told.
func PodOf(pod *corev1.Pod) policy.Pod {
	facts := infoOf(pod.DeepCopy()).facts
	uid := string(pod.UID)
	return policy.Pod{
		UID: uid, Sandbox: uid, Namespace: pod.Namespace, Name: pod.Name,
		Labels: policy.Relevant(pod.Labels, ""), Annotations: policy.Relevant(pod.Annotations, ""),
		QoS: policy.QoS(pod.Status.QOSClass), Resources: &facts.Resources, Facts: &facts,
		CreatedAt: pod.CreationTimestamp.Time,
	}
}
