package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

const (
	schedulerProof   = "scheduler-chart"
	schedulerImage   = "quietcore.dev/e2e/" + ours
	schedulerArchive = "scheduler"
	// schedulerName is of the chart's Deployment, of its lease and of its service account.
	schedulerName = release + "-scheduler"
	schedulerUser = "system:serviceaccount:" + release + ":" + schedulerName
)

// schedulerChart: the scheduler that the chart installs, from the image of a release and with no more
// rights than the chart gives it, chooses a leader and binds a pod that asks for CPUs by one write; when
// the leader is gone, the other goes on.
func schedulerChart(ctx context.Context, b *bench) (figures []figure, err error) {
	note := func(name, format string, args ...any) {
		figures = append(figures, figure{Name: name, Value: fmt.Sprintf(format, args...)})
		b.say("  %s: "+format, append([]any{name}, args...)...)
	}
	began := time.Now()
	leader, err := b.deployScheduler(ctx)
	if err != nil {
		return figures, err
	}
	note("helm install to the first leader", "%s, %s of two pods", seconds(time.Since(began)), leader)
	// The first may come before the scheduler knows the node's ledger, and wait for that; the second does not.
	if _, err := b.placedByChart(ctx, owner("first", "LSR", 2)); err != nil {
		return figures, err
	}
	why, err := b.pendingByChart(ctx)
	if err != nil {
		return figures, err
	}
	note("5 CPUs of one NUMA node of 4", "Pending: %s", why)
	since, err := b.auditEnd()
	if err != nil {
		return figures, err
	}
	cpus, err := b.placedByChart(ctx, owner("second", "LSR", 2))
	if err != nil {
		return figures, err
	}
	writes, err := b.writesTo("second", since)
	if err != nil {
		return figures, err
	}
	note("resource-status, which is the container's cpuset", "%s, by %s", cpus, strings.Join(writes, ", "))
	if len(writes) != 1 {
		return figures, fmt.Errorf("the scheduler wrote %d times for a pod, want the Binding only: %v", len(writes),
			writes)
	}
	if err := b.DeletePod(ctx, namespace, "first"); err != nil {
		return figures, err
	}
	began = time.Now()
	next, err := b.loseLeader(ctx, leader)
	if err != nil {
		return figures, err
	}
	note("another leads after the loss of the first", "%s, %s", seconds(time.Since(began)), next)
	if cpus, err = b.placedByChart(ctx, owner("third", "LSR", 2)); err != nil {
		return figures, err
	}
	note("resource-status of a pod that the other bound", "%s", cpus)
	denied, err := b.denied()
	note("requests of the scheduler that its rights do not cover", "%d", len(denied))
	if err == nil && len(denied) > 0 {
		err = fmt.Errorf("the chart gives the scheduler no right to %v", denied)
	}
	return figures, err
}

// deployScheduler installs the chart as docs/scheduling.md says, and returns the pod that leads.
func (b *bench) deployScheduler(ctx context.Context) (string, error) {
	if err := b.node.ImportArchive(ctx, archiveFile(schedulerArchive)); err != nil {
		return "", err
	}
	err := b.deploy(ctx, firstTag, map[string]any{"authority": map[string]any{"resourceStatus": "trust"}},
		map[string]any{"scheduler": map[string]any{"enabled": true,
			"image": map[string]any{"repository": schedulerImage, "tag": firstTag}}})
	if err != nil {
		return "", err
	}
	if err := b.schedulerReady(ctx); err != nil {
		return "", err
	}
	return b.leader(ctx, "")
}

// schedulerReady waits until both of its pods are.
func (b *bench) schedulerReady(ctx context.Context) error {
	_, err := b.Kubectl(ctx, "", "rollout", "status", "-n", release, "deployment/"+schedulerName,
		fmt.Sprintf("--timeout=%s", 8*time.Minute))
	if err != nil {
		why, _ := b.Kubectl(context.WithoutCancel(ctx), "", "describe", "pods", "-n", release) // explains, if it can
		return fmt.Errorf("the chart's scheduler: %w\n%s\n%s", err, why, b.chartLog(context.WithoutCancel(ctx)))
	}
	return nil
}

// leader waits until a pod that is there and is not the one of before holds the lease, and returns its name.
func (b *bench) leader(ctx context.Context, before string) (name string, err error) {
	err = cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		var lease struct {
			Spec struct{ HolderIdentity string }
		}
		path := "/apis/coordination.k8s.io/v1/namespaces/" + release + "/leases/" + schedulerName
		if err := b.Get(ctx, path, &lease); err != nil {
			return err
		}
		pods, err := b.Pods(ctx, release)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Metadata.Name != before && strings.HasPrefix(lease.Spec.HolderIdentity, p.Metadata.Name+"_") {
				name = p.Metadata.Name
				return nil
			}
		}
		return fmt.Errorf("the lease %s is held by %q, want one of the %d pods but %q", schedulerName,
			lease.Spec.HolderIdentity, len(pods), before)
	})
	return name, err
}

// loseLeader deletes the pod that leads, and returns the one that leads then, when both are ready.
func (b *bench) loseLeader(ctx context.Context, leader string) (string, error) {
	if err := b.DeletePod(ctx, release, leader); err != nil {
		return "", err
	}
	next, err := b.leader(ctx, leader)
	return next, errors.Join(err, b.schedulerReady(ctx))
}

// placedByChart creates a pod for the chart's scheduler, and returns the CPUs that it was told and runs on.
func (b *bench) placedByChart(ctx context.Context, k *kubelet.Pod) (string, error) {
	if err := b.create(ctx, k, ours, ""); err != nil {
		return "", err
	}
	pod, err := b.WaitRunning(ctx, namespace, k.Name)
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, b.chartLog(context.WithoutCancel(ctx)))
	}
	place, err := b.place(ctx, pod)
	if err != nil {
		return "", err
	}
	cpus := place[pod.Key()+"/main"]
	return cpus, toldOf(pod, cpus)
}

// pendingByChart creates a pod that fits nowhere, and returns why its scheduler does not bind it.
func (b *bench) pendingByChart(ctx context.Context) (string, error) {
	large := with(owner("large", "LSR", 5), numaKey, `{"numaTopologyPolicy":"SingleNUMANode"}`, smtKey, "none")
	if err := b.create(ctx, large, ours, ""); err != nil {
		return "", err
	}
	node, why, err := b.placed(ctx, large.Name)
	if err == nil && (node != "" || !strings.Contains(why, "5 CPUs are asked for on one NUMA node")) {
		err = fmt.Errorf("5 CPUs of one NUMA node are on %q: %s", node, why)
	}
	return why, errors.Join(err, b.DeletePod(ctx, namespace, large.Name))
}

// writesTo is what the scheduler wrote of a pod, Events apart, which name it in their content only.
func (b *bench) writesTo(pod string, since int64) ([]string, error) {
	list, err := requestsOf(b.AuditLog(), schedulerUser, since)
	var writes []string
	for i := range list {
		r := &list[i]
		of := &r.ObjectRef
		if r.writes() && of.Resource == "pods" && of.Namespace == namespace && of.Name == pod {
			writes = append(writes, r.String())
		}
	}
	return writes, err
}

// denied is what the scheduler asked for and has no right to. An empty log would show nothing.
func (b *bench) denied() ([]string, error) {
	list, err := requestsOf(b.AuditLog(), schedulerUser, 0)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("the API server's log has no request of %s", schedulerUser)
	}
	var denied []string
	for i := range list {
		if list[i].ResponseStatus.Code == 403 {
			denied = append(denied, list[i].String())
		}
	}
	return denied, err
}
