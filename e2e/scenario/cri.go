package scenario

import (
	"fmt"
	"maps"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
)

const uidLabel = "io.kubernetes.pod.uid"

func podLabels(p *kubelet.Pod) map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name":      p.Name,
		"io.kubernetes.pod.namespace": p.Namespace,
		uidLabel:                      p.UID,
	}
}

// sandboxConfig has the path of the pod's cgroup, with either driver, and host
// networking, so that the node needs no network plugin.
func sandboxConfig(p *kubelet.Pod, parent string) *cri.PodSandboxConfig {
	labels := podLabels(p)
	maps.Copy(labels, p.Labels)
	annotations := map[string]string{"kubernetes.io/config.source": "api"}
	maps.Copy(annotations, p.Annotations)
	return &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: p.UID},
		Labels:      labels,
		Annotations: annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE,
					Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD},
			},
			Overhead:  &cri.LinuxContainerResources{},
			Resources: resources(p.SandboxCPU()),
		},
	}
}

func resources(c kubelet.CPU) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{CpuShares: c.Shares, CpuQuota: c.Quota, CpuPeriod: c.Period}
}

func containerConfig(p *kubelet.Pod, c *kubelet.Container, attempt uint32, cpu kubelet.CPU,
	cpus string) *cri.ContainerConfig {
	labels := podLabels(p)
	labels["io.kubernetes.container.name"] = c.Name
	r := resources(cpu)
	r.CpusetCpus = cpus
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name, Attempt: attempt},
		Image:    &cri.ImageSpec{Image: machine.Image, UserSpecifiedImage: machine.Image},
		Labels:   labels,
		Annotations: map[string]string{
			"io.kubernetes.container.restartCount":           fmt.Sprint(attempt),
			"io.kubernetes.pod.terminationGracePeriod":       "30",
			"io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
		},
		Linux: &cri.LinuxContainerConfig{
			Resources: r,
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE,
					Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD},
			},
		},
	}
	if c.Kind == kubelet.Init {
		config.Command = []string{"/bin/busybox", "true"}
	}
	return config
}
