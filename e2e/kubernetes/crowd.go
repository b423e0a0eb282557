package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// memoryBudget is the daemon's on a node with a thousand containers.
const memoryBudget = 64 << 20

// crowd: on a node full of shared pods, all of them have left an owner's CPUs before it
// starts, and the daemon stays small. A watcher in the guest reads this from the
// kernel, not from the daemon's log.
func crowd(ctx context.Context, b *bench) ([]figure, error) {
	if err := b.deploy(ctx, firstTag, nil, nil); err != nil {
		return nil, err
	}
	alone, err := b.daemonMemory(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	pods, err := b.startTogether(ctx, b.options.crowd)
	if err != nil {
		return nil, err
	}
	figures := []figure{{Name: "shared pods, all running after",
		Value: fmt.Sprintf("%d, %s", len(pods), seconds(time.Since(began)))}}
	if err := b.watch(ctx, pods); err != nil {
		return figures, err
	}
	var left, room []time.Duration
	for i := range b.options.pods {
		took, slack, err := b.entry(ctx, owner(fmt.Sprintf("owner-%d", i), "LSR", 2), len(pods))
		if err != nil {
			return figures, err
		}
		left, room = append(left, took), append(room, slack)
	}
	figures = append(figures,
		figure{Name: "owners that came", Value: len(left)},
		figure{Name: "admitted to last shared container off its CPUs",
			Value: fmt.Sprintf("median %s, at most %s", seconds(median(left)), seconds(longest(left)))},
		figure{Name: "from there to the owner's start", Value: fmt.Sprintf("median %s, at least %s",
			seconds(median(room)), seconds(shortest(room)))})
	if err := b.node.Signal(ctx, watcherName, int(syscall.SIGTERM)); err != nil {
		return figures, err
	}
	full, err := b.daemonMemory(ctx)
	if err != nil {
		return figures, err
	}
	figures = append(figures, figure{Name: "daemon's memory alone", Value: alone},
		figure{Name: fmt.Sprintf("daemon's memory with %d pods", len(pods)), Value: full})
	if full.resident > memoryBudget { // at its start it has pages of its program, too, which are unmapped later
		return figures, fmt.Errorf("the daemon's resident memory was %s, the budget is %d MiB", full, memoryBudget>>20)
	}
	return figures, nil
}

func longest(times []time.Duration) (most time.Duration) {
	for _, t := range times {
		most = max(most, t)
	}
	return most
}

func shortest(times []time.Duration) time.Duration {
	least := time.Duration(1<<63 - 1)
	for _, t := range times {
		least = min(least, t)
	}
	return least
}

// startTogether creates pods at once and returns them when all run.
func (b *bench) startTogether(ctx context.Context, count int) ([]*cluster.Pod, error) {
	var specs []*kubelet.Pod
	for i := range count {
		k := burstable(fmt.Sprintf("crowd-%d", i))
		k.Namespace = namespace
		if err := b.CreatePod(ctx, k); err != nil {
			return nil, err
		}
		specs = append(specs, k)
	}
	var out []*cluster.Pod
	for _, k := range specs {
		p, err := b.WaitRunning(ctx, k.Namespace, k.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// usage is what a process takes in bytes.
type usage struct{ resident, peak int64 }

func (u usage) String() string {
	return fmt.Sprintf("%.1f MiB resident, %.1f MiB at most", float64(u.resident)/(1<<20), float64(u.peak)/(1<<20))
}

// daemonProcess is the ID of the process in the chart's pod.
func (b *bench) daemonProcess(ctx context.Context) (string, error) {
	p, err := b.daemonPod(ctx)
	if err != nil {
		return "", err
	}
	procs, err := b.node.ReadFile(ctx, b.node.ContainerDir(p, &p.Status.ContainerStatuses[0])+"/cgroup.procs")
	if err != nil {
		return "", err
	}
	pid := strings.Fields(procs)
	if len(pid) != 1 {
		return "", fmt.Errorf("the daemon's container has the processes %q, want one", pid)
	}
	return pid[0], nil
}

// masked fails where the daemon's pod shows the volumes of other pods.
func (b *bench) masked(ctx context.Context) error {
	pid, err := b.daemonProcess(ctx)
	if err != nil {
		return err
	}
	const folder = "/var/lib/kubelet/pods"
	for root, empty := range map[string]bool{"": false, "/proc/" + pid + "/root": true} {
		out, err := b.node.Exec(ctx, "busybox", "ls", root+folder)
		if err != nil {
			return err
		}
		if (strings.TrimSpace(out.Stdout) == "") != empty {
			return fmt.Errorf("%s%s has %q, and is to be empty in the daemon's pod alone", root, folder, out.Stdout)
		}
	}
	return nil
}

// daemonMemory is that of the process in the chart's pod.
func (b *bench) daemonMemory(ctx context.Context) (usage, error) {
	pid, err := b.daemonProcess(ctx)
	if err != nil {
		return usage{}, err
	}
	text, err := b.node.ReadFile(ctx, "/proc/"+pid+"/status")
	if err != nil {
		return usage{}, err
	}
	return parseUsage(text)
}

// parseUsage reads VmRSS and VmHWM, in kB, of a process' status.
func parseUsage(text string) (usage, error) {
	kilobytes := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] == "kB" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return usage{}, err
			}
			kilobytes[strings.TrimSuffix(f[0], ":")] = n
		}
	}
	u := usage{resident: kilobytes["VmRSS"] << 10, peak: kilobytes["VmHWM"] << 10}
	if u.resident == 0 || u.peak == 0 {
		return u, fmt.Errorf("a process' status without VmRSS or VmHWM:\n%s", text)
	}
	return u, nil
}

const (
	watcherName = "watcher"
	samplerPath = "/usr/bin/sampler"
)

// watch records the kernel's changes of the pods' CPUs from now on.
func (b *bench) watch(ctx context.Context, pods []*cluster.Pod) error {
	argv := []string{samplerPath, "watch"}
	for _, p := range pods {
		argv = append(argv, b.node.ContainerDir(p, &p.Status.ContainerStatuses[0]))
	}
	if err := b.node.Start(ctx, watcherName, argv...); err != nil {
		return err
	}
	return cluster.Until(ctx, daemonLimit, func(ctx context.Context) error {
		changes, err := b.changes(ctx)
		if err == nil && len(changes) < len(pods) {
			err = fmt.Errorf("the watcher has seen %d cgroups of %d", len(changes), len(pods))
		}
		return err
	})
}

func (b *bench) changes(ctx context.Context) ([]sweep.Change, error) {
	text, err := b.node.ReadFile(ctx, machine.LogFile(watcherName))
	if err != nil {
		return nil, err
	}
	return parseChanges(text)
}

func parseChanges(text string) ([]sweep.Change, error) {
	var out []sweep.Change
	in := bufio.NewScanner(strings.NewReader(text))
	for in.Scan() {
		var c sweep.Change
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			return out, fmt.Errorf("the watcher says %q: %w", in.Text(), err)
		}
		out = append(out, c)
	}
	return out, in.Err()
}

// freeSince returns the moment from which on none of so many cgroups had one of the
// CPUs, as far as the changes go up to the end.
func freeSince(changes []sweep.Change, cgroups int, cpus cpuset.Set, end int64) (int64, error) {
	last := map[int]sweep.Change{}
	var since int64
	for _, c := range changes {
		if c.At > end {
			break
		}
		old, known := last[c.Dir]
		if known && old.CPUs.Intersects(&cpus) && !c.CPUs.Intersects(&cpus) {
			since = c.At
		}
		last[c.Dir] = c
	}
	if len(last) < cgroups {
		return 0, fmt.Errorf("the watcher has seen %d cgroups of %d", len(last), cgroups)
	}
	for dir, c := range last {
		if c.CPUs.Intersects(&cpus) {
			return 0, fmt.Errorf("shared container %d is on CPUs %s at the start of the owner of %s", dir, c.CPUs, cpus)
		}
	}
	if since == 0 {
		return 0, errors.New("no pod had to leave: this shows nothing")
	}
	return since, nil
}

// entry starts an owner and ends it, and returns how long after its admission the last
// of the others had left its CPUs, and how much later it started.
func (b *bench) entry(ctx context.Context, k *kubelet.Pod, others int) (left, room time.Duration, err error) {
	p, err := b.start(ctx, k)
	if err != nil {
		return 0, 0, err
	}
	place, err := b.place(ctx, p)
	if err != nil {
		return 0, 0, err
	}
	cpus, err := cpuset.Parse(place[p.Key()+"/main"])
	if err != nil {
		return 0, 0, err
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	status, err := b.node.CRI().ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return 0, 0, err
	}
	admitted, err := b.admitted(ctx, p)
	if err != nil {
		return 0, 0, err
	}
	changes, err := b.changes(ctx)
	if err != nil {
		return 0, 0, err
	}
	since, err := freeSince(changes, others, cpus, status.Status.StartedAt)
	if err != nil {
		return 0, 0, fmt.Errorf("pod %s: %w", p.Key(), err)
	}
	if err := b.DeletePod(ctx, p.Metadata.Namespace, p.Metadata.Name); err != nil {
		return 0, 0, err
	}
	return time.Duration(since - admitted), time.Duration(status.Status.StartedAt - since), b.node.Forget(ctx)
}

// admitted is when the daemon decided about the pod's sandbox, by its own record.
func (b *bench) admitted(ctx context.Context, p *cluster.Pod) (int64, error) {
	code, body, err := b.node.HTTP(ctx, daemonSocket, "GET", "/v1/record", nil)
	if err != nil {
		return 0, err
	}
	var record struct {
		Steps []struct {
			Event struct {
				At     time.Time
				PodRun *struct{ Pod struct{ UID string } }
			}
		}
	}
	if err := json.Unmarshal(body, &record); err != nil || code != 200 {
		return 0, fmt.Errorf("the daemon's record: code %d: %w", code, err)
	}
	for _, s := range record.Steps {
		if s.Event.PodRun != nil && s.Event.PodRun.Pod.UID == p.Metadata.UID {
			return s.Event.At.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("the daemon's record of %d steps has no admission of pod %s", len(record.Steps), p.Key())
}
