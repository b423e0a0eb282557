package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quietcore/quietcore/policy"
)

// TestPodOf: a pod that is not on a node yet asks for what the node will be told, init
// containers by their maximum and sidecars added, and is left as it is.
func TestPodOf(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	cpus := func(n string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "n", Name: "p",
			Labels:      map[string]string{policy.LabelClass: "LSR", "app": "web"},
			Annotations: map[string]string{policy.AnnSMT: "isolate", "other": "text"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Resources: cpus("2")},
				{Name: "side", Resources: cpus("1"), RestartPolicy: &always}},
			Containers: []corev1.Container{{Name: "main", Resources: cpus("4")}},
		},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed},
	}
	p := PodOf(pod)
	if want := (policy.Resources{RequestMilli: 5000, LimitMilli: 5000}); *p.Resources != want {
		t.Errorf("it asks for %+v, want %+v", *p.Resources, want)
	}
	if p.UID != "u" || p.QoS != policy.Guaranteed || len(p.Labels) != 1 || len(p.Annotations) != 1 {
		t.Errorf("it is %+v", p)
	}
	if pod.Spec.Containers[0].Resources.Requests != nil {
		t.Error("the pod was changed")
	}
}
