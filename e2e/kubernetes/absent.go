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

// absent: without an API server, owners keep their CPUs. A daemon that starts meanwhile
// gives CPUs to a static pod that kubelet finds in its directory. Only the shared pool
// shrinks.
func absent(ctx context.Context, b *bench) ([]figure, error) {
	pods, err := b.startAll(ctx, everyKind()...)
	if err != nil {
		return nil, err
	}
	before, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	web, batch, lse, lsr := pods[0], pods[1], pods[2], pods[3]
	staying := []*cluster.Pod{batch, lse, lsr}
	kept := before.Of(staying...)
	began := time.Now()
	if err := b.StopServer(); err != nil {
		return nil, err
	}
	var found string
	looks, err := b.hold(ctx, kept, staying, func(ctx context.Context) error {
		found, err = b.withoutServer(ctx)
		return err
	})
	gone := time.Since(began)
	// In any case: what follows needs it.
	if err := errors.Join(err, b.StartServer(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	figures := []figure{{Name: "API server gone for", Value: seconds(gone)},
		{Name: "looks, no pod moved", Value: looks}, {Name: "CPUs of a pod that started meanwhile", Value: found}}
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
	if now := after[mirror.Key()+"/main"]; now != found {
		return figures, fmt.Errorf("%s ran on CPUs %q without the API server and on %q with it", mirror.Key(), found,
			now)
	}
	if err := apart(after, [2]*cluster.Pod{mirror, web}, [2]*cluster.Pod{mirror, lse},
		[2]*cluster.Pod{mirror, lsr}); err != nil {
		return figures, err
	}
	if err := kept.Moved(after); err != nil {
		return figures, err
	}
	return figures, b.removeManifest(ctx, "static-lsr")
}

// withoutServer restarts the daemon, lets kubelet start a static owner, and returns its
// CPUs.
func (b *bench) withoutServer(ctx context.Context) (string, error) {
	if err := b.killDaemon(ctx); err != nil {
		return "", err
	}
	if err := b.startDaemon(ctx); err != nil {
		return "", err
	}
	if err := b.writeManifest(ctx, owner("static-lsr", "LSR", 2)); err != nil {
		return "", err
	}
	var pod *cluster.Pod
	err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) (err error) {
		pod, err = b.fromRuntime(ctx, "static-lsr-"+cluster.NodeName)
		return err
	})
	if err != nil {
		return "", err
	}
	found, err := b.place(ctx, pod)
	if err != nil {
		return "", err
	}
	cpus := found[pod.Key()+"/main"]
	if !wholeCore(cpus) {
		return cpus, fmt.Errorf("the static pod runs on CPUs %q, which are no whole core", cpus)
	}
	return cpus, nil
}

// fromRuntime is a Guaranteed pod as containerd knows it, where no API server can say.
func (b *bench) fromRuntime(ctx context.Context, name string) (*cluster.Pod, error) {
	running, err := b.runningOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(running) != 1 {
		return nil, fmt.Errorf("containerd runs %d containers of pod %s, want 1; image %s", len(running), name,
			machine.Image)
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
