package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

// start is what one pod's start took.
type start struct {
	API     time.Duration // from the request to the status that says running
	Runtime time.Duration // from the sandbox's creation to the container's start, by containerd
}

// figures: what a pod's start costs with the daemon and without it. The two take turns
// so that neither has the quieter host.
func figures(ctx context.Context, b *bench) ([]figure, error) {
	var with, without []start
	requests := map[string]int{}
	for round := range 2 {
		half := b.options.pods/2 + round*(b.options.pods%2)
		more, err := b.countedStarts(ctx, half, requests)
		if err != nil {
			return nil, err
		}
		with = append(with, more...)
		if err := b.killDaemon(ctx); err != nil {
			return nil, err
		}
		if more, err = b.startTimes(ctx, "without", half); err != nil {
			return nil, err
		}
		without = append(without, more...)
		if err := b.startDaemon(ctx); err != nil {
			return nil, err
		}
	}
	api := func(s start) time.Duration { return s.API }
	runtime := func(s start) time.Duration { return s.Runtime }
	return []figure{
		{Name: "pods with and without the daemon", Value: fmt.Sprintf("%d and %d", len(with), len(without))},
		compare("API create to running", with, without, api),
		compare("sandbox created to container started", with, without, runtime),
		perEvent(requests, 2*len(with)),
	}, nil
}

// countedStarts adds what the daemon asked the API server for meanwhile.
func (b *bench) countedStarts(ctx context.Context, count int, requests map[string]int) ([]start, error) {
	since, err := b.auditEnd()
	if err != nil {
		return nil, err
	}
	starts, err := b.startTimes(ctx, "with", count)
	if err != nil {
		return nil, err
	}
	if _, err := b.settle(ctx); err != nil {
		return nil, err
	}
	more, err := asked(b.AuditLog(), daemonUser, since)
	for what, n := range more {
		requests[what] += n
	}
	return starts, err
}

// perEvent: a pod that comes is one event and a pod that goes another.
func perEvent(requests map[string]int, events int) figure {
	sum := 0
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(requests)) {
		sum += requests[what]
		parts = append(parts, fmt.Sprintf("%d x %s", requests[what], what))
	}
	return figure{Name: "API requests of the daemon a pod event", Value: fmt.Sprintf("%.2f (%d in %d: %s)", float64(sum)/float64(events), sum, events, strings.Join(parts, ", "))}
}

func compare(name string, with, without []start, of func(start) time.Duration) figure {
	times := func(all []start) []time.Duration {
		var out []time.Duration
		for _, s := range all {
			out = append(out, of(s))
		}
		return out
	}
	a, b := median(times(with)), median(times(without))
	return figure{Name: name + ", median", Value: fmt.Sprintf("%s with, %s without, ratio %.2f", seconds(a), seconds(b), a.Seconds()/b.Seconds())}
}

// startTimes starts pods one after the other, each alone on the node.
func (b *bench) startTimes(ctx context.Context, name string, count int) ([]start, error) {
	var out []start
	for i := range count {
		k := owner(fmt.Sprintf("%s-%d", name, i), "LSR", 2)
		began := time.Now()
		p, err := b.start(ctx, k)
		if err != nil {
			return nil, err
		}
		s := start{API: time.Since(began)}
		if s.Runtime, err = b.runtimeTime(ctx, p); err != nil {
			return nil, err
		}
		out = append(out, s)
		if err := b.DeletePod(ctx, namespace, k.Name); err != nil {
			return nil, err
		}
		// Else what kubelet tidies up once a minute is in the next one's way.
		if err := b.node.Forget(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runtimeTime is taken on the guest's clock at both ends.
func (b *bench) runtimeTime(ctx context.Context, p *cluster.Pod) (time.Duration, error) {
	sandboxes, err := b.node.CRI().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": p.Metadata.UID}}})
	if err != nil {
		return 0, err
	}
	containers, err := b.node.CRI().ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": p.Metadata.UID}}})
	if err != nil {
		return 0, err
	}
	if len(sandboxes.Items) != 1 || len(containers.Containers) != 1 {
		return 0, fmt.Errorf("containerd has %d sandboxes and %d containers of pod %s, want one each", len(sandboxes.Items), len(containers.Containers), p.Key())
	}
	status, err := b.node.CRI().ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containers.Containers[0].Id})
	if err != nil {
		return 0, err
	}
	return time.Duration(status.Status.StartedAt - sandboxes.Items[0].CreatedAt), nil
}
