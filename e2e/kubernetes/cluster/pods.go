package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
)

// Pod is the part of a pod that the tests read.
type Pod struct {
	Metadata struct {
		Name, Namespace, UID string
		Labels, Annotations  map[string]string
		DeletionTimestamp    string
		Generation           int64
	}
	Spec   struct{ NodeName string }
	Status PodStatus
}

// PodStatus is what kubelet says of a pod.
type PodStatus struct {
	Phase, Reason, Message, QOSClass, PodIP string
	ObservedGeneration                      int64
	Conditions                              []struct{ Type, Status, Reason, Message string }
	ContainerStatuses                       []ContainerStatus
}

// ContainerStatus is what kubelet says of a container.
type ContainerStatus struct {
	Name, ContainerID string
	RestartCount      int
	State             struct {
		Running *struct{ StartedAt time.Time }
	}
}

// Key names a pod.
func (p *Pod) Key() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// Running says whether every container runs.
func (p *Pod) Running() bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running == nil {
			return false
		}
	}
	return p.Status.Phase == "Running" && len(p.Status.ContainerStatuses) > 0
}

// uid is what kubelet and the runtime call the pod; that of a static pod in the API
// is another.
func (p *Pod) uid() string {
	if hash := p.Metadata.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return p.Metadata.UID
}

// PodsPath is the collection of a namespace's pods.
func PodsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// PodObject is the pod as one posts it. It shares its node's network, which spares a
// plugin's processes under emulation, and has no token unless it asks for one.
func PodObject(k *kubelet.Pod) map[string]any {
	containers := map[bool][]any{}
	for _, c := range k.Containers {
		limits, requests := map[string]any{}, map[string]any{}
		set := func(to map[string]any, milli int64) {
			if milli > 0 {
				to["cpu"] = fmt.Sprintf("%dm", milli)
			}
		}
		set(requests, c.Request())
		set(limits, c.LimitMilli)
		if k.ClassOf() == kubelet.Guaranteed {
			requests["memory"], limits["memory"] = "32Mi", "32Mi"
		}
		o := map[string]any{
			"name": c.Name, "image": machine.Image, "imagePullPolicy": "Never",
			"resources": map[string]any{"requests": requests, "limits": limits},
		}
		if c.Kind == kubelet.Init {
			o["command"] = []string{"/bin/busybox", "true"}
		}
		if c.Kind == kubelet.Sidecar {
			o["restartPolicy"] = "Always"
		}
		first := c.Kind == kubelet.Init || c.Kind == kubelet.Sidecar
		containers[first] = append(containers[first], o)
	}
	spec := map[string]any{
		"containers": containers[false], "hostNetwork": true, "automountServiceAccountToken": false,
		"enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
	}
	if len(containers[true]) > 0 {
		spec["initContainers"] = containers[true]
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": k.Name, "namespace": k.Namespace, "labels": k.Labels,
			"annotations": k.Annotations},
		"spec": spec,
	}
}

// podLimit bounds what becomes of a pod; under emulation a start takes seconds, on a
// host with much else to do half a minute, and the runtime needs several tries to end
// what it was asked to.
const podLimit = 8 * time.Minute

// EnsureNamespace makes a namespace and waits for the account that its pods need.
func (p *Plane) EnsureNamespace(ctx context.Context, name string, labels map[string]string) error {
	err := p.Create(ctx, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name,
		"labels": labels}}, nil)
	if err != nil && !Refused(err, 409) {
		return err
	}
	return Until(ctx, podLimit, func(ctx context.Context) error {
		return p.Get(ctx, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil)
	})
}

// CreatePod posts the pod.
func (p *Plane) CreatePod(ctx context.Context, k *kubelet.Pod) error {
	return p.Create(ctx, PodsPath(k.Namespace), PodObject(k), nil)
}

// WaitRunning returns the pod when all of it runs.
func (p *Plane) WaitRunning(ctx context.Context, namespace, name string) (*Pod, error) {
	pod, err := p.WaitPod(ctx, namespace, name, (*Pod).Running)
	if err == nil {
		return pod, nil
	}
	// explains, if it can
	text, _ := p.Kubectl(context.WithoutCancel(ctx), "", "describe", "pod", "-n", namespace, name)
	return pod, fmt.Errorf("%w\n%s", err, text)
}

// WaitPod watches one pod until it is as wanted. An API server that has just started
// refuses watches for a while.
func (p *Plane) WaitPod(ctx context.Context, namespace, name string, wanted func(*Pod) bool) (*Pod, error) {
	var last Pod
	path := PodsPath(namespace) + "?watch=1&fieldSelector=" + url.QueryEscape("metadata.name="+name)
	err := Until(ctx, podLimit, func(ctx context.Context) error {
		return p.Watch(ctx, path, func(_ string, object json.RawMessage) (bool, error) {
			last = Pod{}
			if err := json.Unmarshal(object, &last); err != nil {
				return false, err
			}
			return wanted(&last), nil
		})
	})
	if err != nil {
		return &last, fmt.Errorf("pod %s/%s is %s: %w", namespace, name, last.Status.Phase, err)
	}
	return &last, nil
}

// Pods are those of a namespace, in the order of their names; the empty one is all.
func (p *Plane) Pods(ctx context.Context, namespace string) ([]*Pod, error) {
	var list struct{ Items []*Pod }
	path := "/api/v1/pods"
	if namespace != "" {
		path = PodsPath(namespace)
	}
	err := p.Get(ctx, path, &list)
	slices.SortFunc(list.Items, func(a, b *Pod) int { return strings.Compare(a.Key(), b.Key()) })
	return list.Items, err
}

// DeletePods returns when nothing of a namespace is left on the node.
func (p *Plane) DeletePods(ctx context.Context, namespace string) error {
	if err := p.Delete(ctx, PodsPath(namespace)); err != nil {
		return err
	}
	return Until(ctx, podLimit, func(ctx context.Context) error {
		pods, err := p.Pods(ctx, namespace)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are left in namespace %s, the first is %s", len(pods), namespace, pods[0].Key())
		}
		return err
	})
}

// DeletePod returns when the pod is gone.
func (p *Plane) DeletePod(ctx context.Context, namespace, name string) error {
	if err := p.Delete(ctx, PodsPath(namespace)+"/"+name); err != nil {
		return err
	}
	return Until(ctx, podLimit, func(ctx context.Context) error {
		err := p.Get(ctx, PodsPath(namespace)+"/"+name, nil)
		switch {
		case Refused(err, 404):
			return nil
		case err == nil:
			return fmt.Errorf("pod %s/%s is still there", namespace, name)
		}
		return err
	})
}

// Placement is where the kernel lets containers run: "namespace/pod/container" to a
// CPU list.
type Placement map[string]string

const cgroupRoot = "/sys/fs/cgroup"

// CPUs reads from the kernel where the containers of running pods are, in one round
// trip. A cgroup without a set of its own has its parent's.
func (n *Node) CPUs(ctx context.Context, pods ...*Pod) (Placement, error) {
	type at struct {
		name        string
		from, count int
	}
	var where []at
	var actions []wire.FileAction
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil {
				continue
			}
			dir := n.ContainerDir(p, &c)
			a := at{name: p.Key() + "/" + c.Name, from: len(actions)}
			actions = append(actions, wire.FileAction{Do: wire.FileRead, Path: dir + "/cgroup.procs"})
			for ; len(dir) >= len(cgroupRoot); dir = path.Dir(dir) {
				actions = append(actions, wire.FileAction{Do: wire.FileRead, Path: dir + "/cpuset.cpus.effective",
					Optional: true})
			}
			a.count = len(actions) - a.from
			where = append(where, a)
		}
	}
	files, err := n.Files(ctx, actions...)
	if err != nil {
		return nil, err
	}
	out := Placement{}
	for _, a := range where {
		for _, f := range files[a.from+1 : a.from+a.count] {
			if !f.Missing {
				out[a.name] = strings.TrimSpace(string(f.Data))
				break
			}
		}
	}
	return out, nil
}

// ContainerDir is the container's cgroup in the guest; the pod's is the one above.
func (n *Node) ContainerDir(p *Pod, c *ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return cgroupRoot + n.ContainerPath(&kubelet.Pod{UID: p.uid(), QoS: p.Status.QOSClass}, id)
}

// Of is the part that is about these pods.
func (p Placement) Of(pods ...*Pod) Placement {
	out := Placement{}
	for name, cpus := range p {
		if slices.ContainsFunc(pods, func(pod *Pod) bool { return strings.HasPrefix(name, pod.Key()+"/") }) {
			out[name] = cpus
		}
	}
	return out
}

// Moved says which of them are elsewhere now.
func (p Placement) Moved(now Placement) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if now[name] != p[name] {
			errs = append(errs, fmt.Errorf("%s was on CPUs %q and is on %q", name, p[name], now[name]))
		}
	}
	return errors.Join(errs...)
}
