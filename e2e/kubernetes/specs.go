package main

import (
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/internal/script"
)

// owner is a pod of a class that owns CPUs, or Guaranteed without a class.
func owner(name, class string, cpus int64) *kubelet.Pod {
	p := &kubelet.Pod{Name: name, Containers: []kubelet.Container{{Name: "main", RequestMilli: 1000 * cpus,
		LimitMilli: 1000 * cpus}}}
	if class != "" {
		p.Labels = map[string]string{"koordinator.sh/qosClass": class}
	}
	return p
}

// burstable requests little, so that many fit.
func burstable(name string) *kubelet.Pod {
	return &kubelet.Pod{Name: name, Containers: []kubelet.Container{{Name: "main", RequestMilli: 100,
		LimitMilli: 1000}}}
}

func bestEffort(name string) *kubelet.Pod {
	return &kubelet.Pod{Name: name, Containers: []kubelet.Container{{Name: "main"}}}
}

// everyKind is a small crowd: owners, shared pods and best-effort ones.
func everyKind() []*kubelet.Pod {
	return []*kubelet.Pod{burstable("web"), bestEffort("batch"), owner("lse", "LSE", 2), owner("lsr", "LSR", 2),
		owner("plain", "", 1)}
}

// podOf is the pod that a script creates.
func podOf(c *script.Create) *kubelet.Pod {
	p := &kubelet.Pod{Name: c.Pod, Namespace: c.Namespace, Labels: c.Labels, Annotations: c.Annotations,
		QoS: string(c.KubernetesQoS)}
	for _, k := range c.Containers {
		p.Containers = append(p.Containers, kubelet.Container{Name: k.Name, RequestMilli: k.RequestMilli,
			LimitMilli: k.LimitMilli, Kind: string(k.Kind)})
	}
	return p
}
