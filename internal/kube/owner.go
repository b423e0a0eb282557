package kube

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of the mirror pods that kubelet creates for static pods. The runtime
// knows a static pod by the hash of its configuration, the API server by another UID.
const (
	annConfigHash   = "kubernetes.io/config.hash"
	annConfigMirror = "kubernetes.io/config.mirror"
)

// staticUID is the runtime's UID of a static pod; empty for others. A tenant can set
// the annotations on any pod. So the pod must also look like a mirror pod in other
// respects, and a pod that really has such a UID takes precedence.
func staticUID(pod *corev1.Pod) string {
	hash := pod.Annotations[annConfigHash]
	c := metav1.GetControllerOf(pod)
	if hash == "" || len(hash) > maxUID || hash != pod.Annotations[annConfigMirror] || c == nil || c.Kind != "Node" ||
		c.Name != pod.Spec.NodeName {
		return ""
	}
	return hash
}

// maxUID exceeds any UID.
const maxUID = 64

// OwnerOf names the job that the pod is a task of: the same for all its tasks and for
// all releases, so that what was learned of it stays valid.
func OwnerOf(pod *corev1.Pod) string {
	c := metav1.GetControllerOf(pod)
	switch {
	case c == nil:
		return "Pod/" + pod.Name
	case c.Kind == "ReplicaSet":
		return replicaSetOwner(pod, c)
	case c.Kind == "Job":
		if name, ok := cronJobOf(c.Name, pod.CreationTimestamp.Time); ok {
			return "CronJob/" + name
		}
	case c.Kind == "Node": // a static pod is named after its node
		return "Pod/" + strings.TrimSuffix(pod.Name, "-"+strings.ToLower(c.Name))
	}
	return c.Kind + "/" + c.Name
}

// replicaSetOwner is the Deployment of a ReplicaSet, or Argo's Rollout: the
// ReplicaSet's name is theirs plus a hash of the template, which is also a label of its
// pods.
func replicaSetOwner(pod *corev1.Pod, c *metav1.OwnerReference) string {
	for _, by := range []struct{ label, kind string }{
		{"pod-template-hash", "Deployment"},
		{"rollouts-pod-template-hash", "Rollout"},
	} {
		if hash := pod.Labels[by.label]; hash != "" {
			if name, ok := strings.CutSuffix(c.Name, "-"+hash); ok && name != "" {
				return by.kind + "/" + name
			}
		}
	}
	return "ReplicaSet/" + c.Name
}

// cronJobOf is the CronJob of a Job. The Job's name is the CronJob's plus the scheduled
// minute since 1970. A Job that merely ends in a number differs: the minute must lie at
// the pod's creation, or up to days before.
func cronJobOf(job string, created time.Time) (name string, ok bool) {
	const early, late = time.Hour, 31 * 24 * time.Hour
	i := strings.LastIndexByte(job, '-')
	if i <= 0 {
		return "", false
	}
	digits := job[i+1:]
	minutes, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || strconv.FormatUint(minutes, 10) != digits {
		return "", false
	}
	due := time.Unix(int64(minutes)*60, 0)
	if due.After(created.Add(early)) || due.Before(created.Add(-late)) {
		return "", false
	}
	return job[:i], true
}
