package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/wire"
)

// unlimited is the content of cpu.max without a quota.
const unlimited = "max 100000"

// size is what the kernel has of a pod with one container.
type size struct{ cpus, podMax, max, memory string }

// resize: pods change size in place, as users do it through the API. An owner's CPUs
// grow and shrink around those that stay; what cannot be is refused where users look,
// and changes nothing.
func resize(ctx context.Context, b *bench) ([]figure, error) {
	pods, err := b.startAll(ctx, owner("lsr", "LSR", 2), burstable("web"), bestEffort("batch"))
	if err != nil {
		return nil, err
	}
	lsr, web := pods[0], pods[1]
	first, err := b.size(ctx, lsr)
	if err != nil {
		return nil, err
	}
	if first.podMax != unlimited || first.max != unlimited {
		return nil, fmt.Errorf("lsr has quotas %q and %q, want none", first.podMax, first.max)
	}
	var figures []figure
	show := func(name string, s size, took time.Duration) {
		figures = append(figures, figure{Name: name,
			Value: fmt.Sprintf("CPUs %s, cpu.max %q, the pod's %q, all done after %s", s.cpus, s.max, s.podMax,
				seconds(took))})
	}
	show("lsr at first", first, 0)

	grown, took, err := b.resizeTo(ctx, lsr, cpuOf("4", "4"), func(s size) error { return around(s, first, 4) })
	if err != nil {
		return figures, fmt.Errorf("lsr from 2 to 4 CPUs: %w", err)
	}
	show("lsr from 2 to 4 CPUs", grown, took)
	if err := b.apartNow(ctx, lsr, web); err != nil {
		return figures, err
	}
	shrunk, took, err := b.resizeTo(ctx, lsr, cpuOf("2", "2"), func(s size) error { return around(grown, s, 4) })
	if err != nil {
		return figures, fmt.Errorf("lsr from 4 to 2 CPUs: %w", err)
	}
	show("lsr from 4 to 2 CPUs", shrunk, took)
	more, took, err := b.resizeTo(ctx, lsr, memoryOf("48Mi"), func(s size) error {
		if s.memory != "50331648" || s.cpus != shrunk.cpus {
			return fmt.Errorf("memory.max is %s on CPUs %s, want 50331648 and %s", s.memory, s.cpus, shrunk.cpus)
		}
		return nil
	})
	if err != nil {
		return figures, fmt.Errorf("lsr from 32 to 48 MiB of memory: %w", err)
	}
	show("lsr from 32 to 48 MiB of memory", more, took)

	shared, err := b.size(ctx, web)
	if err != nil {
		return figures, err
	}
	wide, took, err := b.resizeTo(ctx, web, cpuOf("500m", "2"), func(s size) error {
		if want := (size{cpus: shared.cpus, podMax: "200000 100000", max: "200000 100000",
			memory: shared.memory}); s != want {
			return fmt.Errorf("the kernel has %+v, want %+v", s, want)
		}
		return nil
	})
	if err != nil {
		return figures, fmt.Errorf("web from a limit of 1 CPU to one of 2: %w", err)
	}
	show("web from a limit of 1 CPU to one of 2", wide, took)
	line, err := b.refusedResize(ctx, lsr, shrunk)
	figures = append(figures, figure{Name: "describe pod lsr, which wants 7 of 8 CPUs", Value: line})
	return figures, errors.Join(err, b.sameContainers(ctx, pods))
}

// refusedResize asks for more than the shared pool's floor leaves, which kubelet would
// grant, reads why it is not done, and reverts the request.
func (b *bench) refusedResize(ctx context.Context, p *cluster.Pod, before size) (string, error) {
	if err := b.patchSize(ctx, p, cpuOf("7", "7")); err != nil {
		return "", err
	}
	line, err := b.describeRefusal(ctx, namespace, p.Metadata.Name, "ResizeError", "InsufficientCPUs")
	if err != nil {
		return line, err
	}
	err = cluster.Until(ctx, resizeLimit, func(ctx context.Context) error { // kubelet writes the Event first
		if err := b.resizeDone(ctx, p); err == nil || !strings.Contains(err.Error(), "PodResizeInProgress: Error") ||
			!strings.Contains(err.Error(), "InsufficientCPUs") {
			return fmt.Errorf("the pod's condition does not say why the resize is refused: %v", err)
		}
		return nil
	})
	if err != nil {
		return line, err
	}
	_, _, err = b.resizeTo(ctx, p, cpuOf("2", "2"), func(s size) error {
		if s.cpus != before.cpus || s.podMax != unlimited || s.max != unlimited {
			return fmt.Errorf("the kernel has %+v, want CPUs %s without a quota", s, before.cpus)
		}
		return nil
	})
	return line, err
}

// resources of a container as a patch.
type resources map[string]map[string]string

func cpuOf(request, limit string) resources {
	return resources{"requests": {"cpu": request}, "limits": {"cpu": limit}}
}

func memoryOf(quantity string) resources {
	return resources{"requests": {"memory": quantity}, "limits": {"memory": quantity}}
}

func (b *bench) patchSize(ctx context.Context, p *cluster.Pod, r resources) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main",
		"resources": r}}}})
	if err != nil {
		return err
	}
	_, err = b.Kubectl(ctx, "", "patch", "pod", "-n", p.Metadata.Namespace, p.Metadata.Name, "--subresource=resize",
		"--patch", string(patch))
	return err
}

// resizeTo returns when kubelet has nothing left to do about the pod's size and the
// kernel has what is wanted.
func (b *bench) resizeTo(ctx context.Context, p *cluster.Pod, r resources,
	wanted func(size) error) (size, time.Duration, error) {
	began := time.Now()
	if err := b.patchSize(ctx, p, r); err != nil {
		return size{}, 0, err
	}
	var last size
	err := cluster.Until(ctx, resizeLimit, func(ctx context.Context) error {
		if _, err := b.settle(ctx); err != nil {
			return err
		}
		var err error
		if last, err = b.size(ctx, p); err != nil {
			return err
		}
		if err := wanted(last); err != nil {
			return err
		}
		return b.resizeDone(ctx, p)
	})
	return last, time.Since(began), err
}

// resizeLimit is more than a few of kubelet's minutes between two looks at a pod.
const resizeLimit = 6 * time.Minute

// resizeDone says what kubelet has not done yet.
func (b *bench) resizeDone(ctx context.Context, p *cluster.Pod) error {
	var now cluster.Pod
	if err := b.Get(ctx, cluster.PodsPath(p.Metadata.Namespace)+"/"+p.Metadata.Name, &now); err != nil {
		return err
	}
	for _, c := range now.Status.Conditions {
		if strings.HasPrefix(c.Type, "PodResize") && c.Status == "True" {
			return fmt.Errorf("pod %s has the condition %s: %s: %s", p.Key(), c.Type, c.Reason, c.Message)
		}
	}
	if now.Status.ObservedGeneration < now.Metadata.Generation {
		return fmt.Errorf("kubelet has seen generation %d of pod %s, which has %d", now.Status.ObservedGeneration,
			p.Key(), now.Metadata.Generation)
	}
	return nil
}

// size reads a pod with one container.
func (b *bench) size(ctx context.Context, p *cluster.Pod) (size, error) {
	place, err := b.place(ctx, p)
	if err != nil {
		return size{}, err
	}
	dir := b.node.ContainerDir(p, &p.Status.ContainerStatuses[0])
	var actions []wire.FileAction
	for _, file := range []string{path.Dir(dir) + "/cpu.max", dir + "/cpu.max", dir + "/memory.max"} {
		actions = append(actions, wire.FileAction{Do: wire.FileRead, Path: file})
	}
	files, err := b.node.Files(ctx, actions...)
	if err != nil {
		return size{}, err
	}
	text := func(i int) string { return strings.TrimSpace(string(files[i].Data)) }
	return size{cpus: place[p.Key()+"/main"], podMax: text(0), max: text(1), memory: text(2)}, nil
}

// around fails unless the outer one has so many CPUs, among them all of the inner one's,
// and neither has a quota.
func around(outer, inner size, count int) error {
	out, err := cpuset.Parse(outer.cpus)
	if err != nil {
		return err
	}
	in, err := cpuset.Parse(inner.cpus)
	if err != nil {
		return err
	}
	switch missing := in.Minus(out); {
	case out.Count() != count || in.Count() != count/2 || !missing.IsEmpty():
		return fmt.Errorf("CPUs %s and %s: want %d, and half of them among these", outer.cpus, inner.cpus, count)
	case slices.ContainsFunc([]string{outer.podMax, outer.max, inner.podMax, inner.max}, func(s string) bool {
		return s != unlimited
	}):
		return fmt.Errorf("%+v and %+v: want no quota", outer, inner)
	}
	return nil
}

func (b *bench) apartNow(ctx context.Context, one, other *cluster.Pod) error {
	now, err := b.place(ctx, one, other)
	if err != nil {
		return err
	}
	return apart(now, [2]*cluster.Pod{one, other})
}
