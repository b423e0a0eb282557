package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

// absent: while there is no API server, pods keep their CPUs, and one that kubelet
// finds in its folder is placed; a daemon that starts meanwhile does as well.
func absent(ctx context.Context, b *bench) ([]figure, error) {
	pods, err := b.startAll(ctx, everyKind()...)
	if err != nil {
		return nil, err
	}
	before, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.StopServer(); err != nil {
		return nil, err
	}
	var found cluster.Placement
	looks, err := b.hold(ctx, before, pods, func(ctx context.Context) error {
		found, err = b.withoutServer(ctx)
		return err
	})
	gone := time.Since(began)
	// In any case: what follows needs it.
	if err := errors.Join(err, b.StartServer(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	figures := []figure{{Name: "API server gone for", Value: seconds(gone)}, {Name: "looks, nobody moved", Value: looks}}
	for name, cpus := range found {
		figures = append(figures, figure{Name: "CPUs of " + name, Value: cpus})
	}
	if err := b.node.WaitReady(ctx); err != nil {
		return figures, err
	}
	mirror, err := b.WaitRunning(ctx, namespace, "static-lsr-"+cluster.NodeName)
	if err != nil {
		return figures, err
	}
	after, err := b.place(ctx, append(pods, mirror)...)
	if err != nil {
		return figures, err
	}
	for name, cpus := range found {
		if after[mirror.Key()+"/main"] != cpus {
			return figures, fmt.Errorf("%s ran on CPUs %q without the API server and on %q with it", name, cpus, after[mirror.Key()+"/main"])
		}
	}
	if err := before.Moved(after); err != nil {
		return figures, err
	}
	return figures, b.removeManifest(ctx, "static-lsr")
}

// withoutServer restarts the daemon and lets kubelet start an owner from its folder.
func (b *bench) withoutServer(ctx context.Context) (cluster.Placement, error) {
	if err := b.killDaemon(ctx); err != nil {
		return nil, err
	}
	if err := b.startDaemon(ctx); err != nil {
		return nil, err
	}
	if err := b.writeManifest(ctx, owner("static-lsr", "LSR", 2)); err != nil {
		return nil, err
	}
	var pod *cluster.Pod
	err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) (err error) {
		pod, err = b.fromRuntime(ctx, "static-lsr-"+cluster.NodeName)
		return err
	})
	if err != nil {
		return nil, err
	}
	found, err := b.place(ctx, pod)
	if err != nil {
		return nil, err
	}
	if cpus := found[pod.Key()+"/main"]; !wholeCore(cpus) {
		return found, fmt.Errorf("the static pod runs on CPUs %q, which are no whole core", cpus)
	}
	return found, nil
}

// fromRuntime is a Guaranteed pod as containerd knows it, where no API server can tell.
func (b *bench) fromRuntime(ctx context.Context, name string) (*cluster.Pod, error) {
	running, err := b.runningOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(running) != 1 {
		return nil, fmt.Errorf("containerd runs %d containers of pod %s, want 1; image %s", len(running), name, machine.Image)
	}
	c := running[0]
	p := &cluster.Pod{}
	p.Metadata.Name, p.Metadata.Namespace, p.Metadata.UID = name, namespace, c.Labels["io.kubernetes.pod.uid"]
	p.Status.QOSClass = "Guaranteed"
	status := cluster.ContainerStatus{Name: c.Metadata.Name, ContainerID: "containerd://" + c.Id}
	status.State.Running = &struct{ StartedAt time.Time }{}
	p.Status.ContainerStatuses = []cluster.ContainerStatus{status}
	return p, nil
}

func (b *bench) runningOf(ctx context.Context, name string) ([]*cri.Container, error) {
	list, err := b.node.CRI().ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.name": name},
	}})
	return list.GetContainers(), err
}
