package main

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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
	asked := &cost{requests: map[string]int{}, answers: map[string]float64{}}
	for round := range 2 {
		half := b.options.pods/2 + round*(b.options.pods%2)
		more, err := b.countedStarts(ctx, half, asked)
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
		perPod(asked.answers, len(with)),
		perEvent(asked.requests, 2*len(with)),
	}, nil
}

// cost is what the daemon did meanwhile.
type cost struct {
	requests map[string]int     // of the API server, by verb and resource
	answers  map[string]float64 // seconds in which the runtime waited for it, by event
}

// countedStarts adds what the daemon did meanwhile.
func (b *bench) countedStarts(ctx context.Context, count int, more *cost) ([]start, error) {
	since, err := b.auditEnd()
	if err != nil {
		return nil, err
	}
	before, err := b.answers(ctx)
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
	after, err := b.answers(ctx)
	if err != nil {
		return nil, err
	}
	for event, sum := range after {
		more.answers[event] += sum - before[event]
	}
	requests, err := asked(b.AuditLog(), daemonUser, since)
	for what, n := range requests {
		more.requests[what] += n
	}
	return starts, err
}

// metricsURL is where the daemon serves its metrics by default.
const metricsURL = "http://127.0.0.1:9464/metrics"

// answers are the seconds in which the runtime waited for the daemon, by event.
func (b *bench) answers(ctx context.Context) (map[string]float64, error) {
	out, err := b.node.Exec(ctx, "busybox", "wget", "-q", "-O", "-", metricsURL)
	if err != nil {
		return nil, err
	}
	return parseAnswers(out.Stdout)
}

var answerLine = regexp.MustCompile(`(?m)^quietcore_nri_request_duration_seconds_sum\{event="(\w+)"\} (\S+)$`)

func parseAnswers(metrics string) (map[string]float64, error) {
	sums := map[string]float64{}
	for _, m := range answerLine.FindAllStringSubmatch(metrics, -1) {
		sum, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m[0], err)
		}
		sums[m[1]] = sum
	}
	return sums, nil
}

func perPod(answers map[string]float64, pods int) figure {
	var parts []string
	for _, event := range slices.Sorted(maps.Keys(answers)) {
		if mean := answers[event] / float64(pods); mean >= 0.0005 {
			parts = append(parts, fmt.Sprintf("%s %.0f ms", event, 1000*mean))
		}
	}
	return figure{Name: "the runtime waits for the daemon, mean a pod", Value: strings.Join(parts, ", ")}
}

// perEvent: a pod that comes is one event and a pod that goes another.
func perEvent(requests map[string]int, events int) figure {
	sum := 0
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(requests)) {
		sum += requests[what]
		parts = append(parts, fmt.Sprintf("%d x %s", requests[what], what))
	}
	return figure{Name: "API requests of the daemon a pod event",
		Value: fmt.Sprintf("%.2f (%d in %d: %s)", float64(sum)/float64(events), sum, events, strings.Join(parts, ", "))}
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
	return figure{Name: name + ", median", Value: fmt.Sprintf("%s with, %s without, ratio %.2f", seconds(a),
		seconds(b), a.Seconds()/b.Seconds())}
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
		return 0, fmt.Errorf("containerd has %d sandboxes and %d containers of pod %s, want one each",
			len(sandboxes.Items), len(containers.Containers), p.Key())
	}
	status, err := b.node.CRI().ContainerStatus(ctx,
		&cri.ContainerStatusRequest{ContainerId: containers.Containers[0].Id})
	if err != nil {
		return 0, err
	}
	return time.Duration(status.Status.StartedAt - sandboxes.Items[0].CreatedAt), nil
}
