package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/wire"
)

// group lets batch pods of both of Kubernetes' QoS classes burst where only a quota can hold them,
// since an LSE pod has a CPU of every core: each for itself they use more than the budget, as one
// group they do not.
func group(ctx context.Context, b *bench) ([]figure, error) {
	l := &lent{bench: b, batch: map[string]*cluster.Pod{}}
	err := l.oneGroup(ctx)
	return l.out, errors.Join(err, l.unload(context.WithoutCancel(ctx)))
}

// batchLabels make a pod best effort for Quietcore, whatever it is for Kubernetes.
var batchLabels = map[string]string{"koordinator.sh/qosClass": "BE"}

func (l *lent) oneGroup(ctx context.Context) error {
	if err := l.configure(ctx, groupConfig("off")); err != nil {
		return err
	}
	for i := range grid.CPUs() / grid.ThreadsPerCore {
		if _, err := l.start(ctx, owner(fmt.Sprint("owner", i), "LSE", 1)); err != nil {
			return err
		}
	}
	web, batch, paid := burstable("web"), bestEffort("batch"), burstable("paid")
	web.Containers[0].LimitMilli, paid.Containers[0].LimitMilli = 0, 0
	batch.Labels, paid.Labels = batchLabels, batchLabels
	pods, err := l.startAll(ctx, web, batch, paid)
	if err != nil {
		return err
	}
	if qos := pods[2].Status.QOSClass; qos != kubelet.Burstable {
		return fmt.Errorf("pod paid is %s, want %s", qos, kubelet.Burstable)
	}
	for _, pod := range pods {
		if err := l.burst(ctx, pod, grid.CPUs()/2); err != nil {
			return err
		}
	}
	apart, err := l.together(ctx, "a burst of both QoS classes, each for itself", pods[1:])
	if err != nil {
		return err
	}
	if apart.sum() <= apart.quota*(1+slack) {
		return fmt.Errorf("without a group they use no more than the budget: this shows nothing: %+v", apart)
	}
	if err := l.configure(ctx, groupConfig("enforce")); err != nil {
		return err
	}
	one, err := l.together(ctx, "the same as one group", pods[1:])
	switch {
	case err != nil:
		return err
	case one.sum() > one.quota*(1+slack):
		return fmt.Errorf("one group uses more than its budget: %+v", one)
	case min(one.used[0], one.used[1]) < one.quota/5:
		return fmt.Errorf("of two that burst each should have some of the budget: %+v", one)
	}
	return l.ungrouped(ctx, pods[2])
}

func groupConfig(mode string) map[string]any {
	return map[string]any{
		"authority":   map[string]any{"profile": "open"},
		"allocation":  map[string]any{"bindPolicy": "SpreadByPCPUs"},
		"suppression": map[string]any{"mode": "enforce", "threshold": 100, "floor": 1},
		"kubernetes":  map[string]any{"kubeconfig": daemonClient, "batchSlice": mode},
	}
}

// ungrouped: a daemon without the option gives the pod back what kubelet had given it.
func (l *lent) ungrouped(ctx context.Context, p *cluster.Pod) error {
	if err := l.configure(ctx, groupConfig("off")); err != nil {
		return err
	}
	var now string
	err := cluster.Until(ctx, daemonLimit, func(ctx context.Context) error {
		max, weight, err := l.limitsOf(ctx, p)
		now = fmt.Sprintf("cpu.max %q, cpu.weight %s", max, weight)
		if err == nil && (max != unlimited || weight != "4") {
			err = fmt.Errorf("a Burstable pod with a request of 100m has %s, want no quota and a weight of 4", now)
		}
		return err
	})
	l.note("the Burstable one after a daemon without a group", "%s", now)
	return err
}

// used is what pods used together, in CPUs, under a quota of best effort that stayed the same.
type used struct {
	quota, span float64
	used        []float64
}

func (u *used) sum() float64 {
	sum := 0.0
	for _, cpus := range u.used {
		sum += cpus
	}
	return sum
}

const (
	// slack is by how much use may exceed a quota: what was left of a period before, and the slices
	// of 5 ms that the kernel hands out to each CPU.
	slack = 0.1
	// usedFor is how long use is measured.
	usedFor = 15 * time.Second
	// togetherLimit bounds how long the quota may go on changing.
	togetherLimit = 5 * time.Minute
)

// together measures what pods use while the quota of best effort stays the same.
func (l *lent) together(ctx context.Context, name string, pods []*cluster.Pod) (used, error) {
	ctx, cancel := context.WithTimeout(ctx, togetherLimit)
	defer cancel()
	for {
		before, first, err := l.quotaAndUse(ctx, pods)
		if err != nil {
			return used{}, err
		}
		if err := pass(usedFor)(ctx); err != nil {
			return used{}, fmt.Errorf("no quota of best effort held for %s, the last was %g CPUs: %w", usedFor, before,
				err)
		}
		after, last, err := l.quotaAndUse(ctx, pods)
		if err != nil {
			return used{}, err
		}
		if before == 0 || before != after {
			continue
		}
		u := used{quota: before, span: last[0] - first[0]}
		for i := range pods {
			u.used = append(u.used, (last[i+1]-first[i+1])/u.span)
		}
		l.note(name, "%.2f and %.2f CPUs in %.0f s, of a budget of %.2f", u.used[0], u.used[1], u.span, u.quota)
		return u, nil
	}
}

// quotaAndUse are the quota of best effort, and the guest's time with the CPU time of each pod, in
// seconds.
func (l *lent) quotaAndUse(ctx context.Context, pods []*cluster.Pod) (quota float64, at []float64, err error) {
	status, err := l.settle(ctx)
	if err != nil {
		return 0, nil, err
	}
	if status.Lending == nil {
		return 0, nil, errors.New("the daemon's status says nothing of suppression")
	}
	asked := []wire.FileAction{{Do: wire.FileRead, Path: "/proc/uptime"}}
	for _, p := range pods {
		asked = append(asked, wire.FileAction{Do: wire.FileRead, Path: l.dir(p) + "/cpu.stat"})
	}
	files, err := l.node.Files(ctx, asked...)
	if err != nil {
		return 0, nil, err
	}
	up, _, _ := strings.Cut(string(files[0].Data), " ")
	now, err := strconv.ParseFloat(up, 64)
	if err != nil {
		return 0, nil, err
	}
	at = append(at, now)
	for i := range pods {
		var micros float64
		if _, err := fmt.Sscanf(string(files[i+1].Data), "usage_usec %f", &micros); err != nil {
			return 0, nil, fmt.Errorf("cpu.stat of pod %s: %w: %.80q", pods[i].Key(), err, files[i+1].Data)
		}
		at = append(at, micros/1e6)
	}
	return status.Lending.Quota, at, nil
}
