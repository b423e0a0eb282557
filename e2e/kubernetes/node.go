package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

const (
	bindPolicy     = "node.koordinator.sh/cpu-bind-policy"
	topologyPolicy = "node.koordinator.sh/numa-topology-policy"
)

// refusalLimit bounds how long kubectl may not show a refusal: kubelet has to try,
// and its Event to arrive.
const refusalLimit = 5 * time.Minute

// describeRefusal waits until kubectl describe shows the words, and returns the line.
func (b *bench) describeRefusal(ctx context.Context, namespace, pod string, words ...string) (string, error) {
	var line string
	err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		text, err := b.Kubectl(ctx, "", "describe", "pod", "-n", namespace, pod)
		if err != nil {
			return err
		}
		for l := range strings.Lines(text) {
			if containsAll(l, words) {
				line = strings.Join(strings.Fields(l), " ")
				return nil
			}
		}
		return fmt.Errorf("kubectl describe pod %s says nothing of %q:\n%s", pod, words, text)
	})
	return line, err
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// refused: a refused pod has an Event that says why, with the numbers, where users look; and no other pod
// notices.
func refused(ctx context.Context, b *bench) ([]figure, error) {
	pods, err := b.startAll(ctx, burstable("web"), owner("lsr", "LSR", 2))
	if err != nil {
		return nil, err
	}
	before, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	half := owner("half", "LSR", 2)
	half.Containers[0].RequestMilli, half.Containers[0].LimitMilli = 1500, 1500
	unknown := burstable("unknown")
	unknown.Labels = map[string]string{"koordinator.sh/qosClass": "GOLD"}
	odd := owner("odd", "LSR", 1)
	odd.Annotations = map[string]string{"quietcore.dev/smt": "align"}
	var shown []figure
	for _, c := range []struct {
		pod   *kubelet.Pod
		words []string
	}{
		{half, []string{"FailedCreatePodSandBox", "InvalidRequest", "1500"}},
		{unknown, []string{"FailedCreatePodSandBox", "InvalidQoS", "GOLD"}},
		{odd, []string{"FailedCreatePodSandBox", "SMTAlignmentError"}},
	} {
		c.pod.Namespace = namespace
		if err := b.CreatePod(ctx, c.pod); err != nil {
			return shown, err
		}
		line, err := b.describeRefusal(ctx, namespace, c.pod.Name, c.words...)
		if err != nil {
			return shown, err
		}
		shown = append(shown, figure{Name: "describe pod " + c.pod.Name, Value: line})
	}
	now, err := b.place(ctx, pods...)
	if err != nil {
		return shown, err
	}
	return shown, before.Moved(now)
}

// labels: a label of the Node counts for pods to come, and moves none that is there.
func labels(ctx context.Context, b *bench) ([]figure, error) {
	odd := owner("odd", "LSR", 1)
	pods, err := b.startAll(ctx, odd, owner("even", "LSR", 2))
	if err != nil {
		return nil, err
	}
	before, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.setLabels(ctx, map[string]string{bindPolicy: "FullPCPUsOnly"}); err != nil {
		return nil, err
	}
	var line string
	var tries int
	var took time.Duration
	looks, err := b.hold(ctx, before, pods, func(ctx context.Context) error {
		tries, line, err = b.untilRefused(ctx, owner("again", "LSR", 1), "SMTAlignmentError")
		took = time.Since(began)
		return err
	})
	if err != nil {
		return nil, err
	}
	full, err := b.start(ctx, owner("whole", "LSR", 2))
	if err != nil {
		return nil, err
	}
	now, err := b.place(ctx, append(pods, full)...)
	if err != nil {
		return nil, err
	}
	figures := []figure{{Name: "describe pod again", Value: line},
		{Name: "label set to refusal seen, at most", Value: seconds(took)},
		{Name: "pods created until then", Value: tries}, {Name: "looks at pods of before, none moved", Value: looks}}
	if cpus := now[full.Key()+"/main"]; !wholeCore(cpus) {
		return figures, fmt.Errorf("whole runs on CPUs %s, which are no whole core", cpus)
	}
	return figures, before.Moved(now)
}

// untilRefused creates the pod until the daemon knows why it must not run: a pod
// that was faster is one of before. It is gone at the end.
func (b *bench) untilRefused(ctx context.Context, k *kubelet.Pod, code string) (tries int, line string, err error) {
	k.Namespace = namespace
	err = cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		tries++
		if err := b.CreatePod(ctx, k); err != nil {
			return err
		}
		running, err := b.outcome(ctx, k.Name)
		if err == nil && running {
			err = fmt.Errorf("pod %s runs although %s is due", k.Name, code)
		}
		if err == nil {
			line, err = b.describeRefusal(ctx, namespace, k.Name, "FailedCreatePodSandBox", code)
		}
		return errors.Join(err, b.DeletePod(ctx, namespace, k.Name))
	})
	return tries, line, err
}

// outcome waits until the pod runs or was refused once.
func (b *bench) outcome(ctx context.Context, name string) (running bool, err error) {
	err = cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		var p cluster.Pod
		if err := b.Get(ctx, cluster.PodsPath(namespace)+"/"+name, &p); err != nil {
			return err
		}
		if running = p.Running(); running {
			return nil
		}
		events, err := b.eventsOf(ctx, &p)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Reason == "FailedCreatePodSandBox" {
				return nil
			}
		}
		return fmt.Errorf("pod %s is %s and was not refused", p.Key(), p.Status.Phase)
	})
	return running, err
}

// wholeCore: siblings are neighbours in the guests.
func wholeCore(list string) bool {
	s, err := cpuset.Parse(list)
	if err != nil || s.Count() != 2 {
		return false
	}
	for cpu := 0; cpu < grid.CPUs(); cpu += 2 {
		if s.Has(cpu) && s.Has(cpu+1) {
			return true
		}
	}
	return false
}

// afterwards is how long pods are watched after something came back: several of
// kubelet's reconciliations.
const afterwards = 35 * time.Second

// restart: kubelet's restart, in which it updates every container once, moves no pod,
// nor does the daemon's.
func restart(ctx context.Context, b *bench) ([]figure, error) {
	pods, err := b.startAll(ctx, everyKind()...)
	if err != nil {
		return nil, err
	}
	before, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var back time.Duration
	looks, err := b.hold(ctx, before, pods, func(ctx context.Context) error {
		if err := b.node.StopKubelet(ctx); err != nil {
			return err
		}
		if err := b.node.StartKubelet(ctx); err != nil {
			return err
		}
		if err := b.node.WaitReady(ctx); err != nil {
			return err
		}
		back = time.Since(began)
		if err := pass(afterwards)(ctx); err != nil {
			return err
		}
		if err := b.killDaemon(ctx); err != nil {
			return err
		}
		return b.startDaemon(ctx)
	})
	if err != nil {
		return nil, err
	}
	if err := b.sameContainers(ctx, pods); err != nil {
		return nil, err
	}
	return []figure{{Name: "containers watched", Value: len(before)}, {Name: "looks, no pod moved", Value: looks},
		{Name: "kubelet back after", Value: seconds(back)}}, nil
}

// sameContainers fails if one of them was replaced, which would be another way to move.
func (b *bench) sameContainers(ctx context.Context, pods []*cluster.Pod) error {
	var errs []error
	for _, p := range pods {
		var now cluster.Pod
		if err := b.Get(ctx, cluster.PodsPath(p.Metadata.Namespace)+"/"+p.Metadata.Name, &now); err != nil {
			errs = append(errs, err)
			continue
		}
		ids := map[string]string{}
		for _, c := range now.Status.ContainerStatuses {
			ids[c.Name] = c.ContainerID
		}
		for _, c := range p.Status.ContainerStatuses {
			if ids[c.Name] != c.ContainerID {
				errs = append(errs, fmt.Errorf("container %s of pod %s was %s and is %s", c.Name, p.Key(),
					c.ContainerID, ids[c.Name]))
			}
		}
	}
	return errors.Join(errs...)
}
