package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
)

const batchCPU = "quietcore.dev/batch-cpu"

// lendingConfig is the daemon's, with windows of minutes in place of a day. After a
// refusal the same pod's eviction is retried, and no other pod's: the time for which
// promises have to exceed what exists is longer than that for which a refused pod is
// left alone.
var lendingConfig = map[string]any{
	"reclaim": map[string]any{
		"mode": "enforce", "evict": true,
		"idle":    map[string]any{"window": "4m", "sample": "10s"},
		"raise":   map[string]any{"hold": "5s"},
		"correct": map[string]any{"after": "40s", "retry": "1s"},
	},
	"suppression": map[string]any{"mode": "enforce", "threshold": suppressAt, "hold": "2s", "grow": 25},
}

// suppressAt leaves room for the daemon, kubelet and containerd, which an emulated
// machine keeps busier than a real one.
const suppressAt = 90

// What pods request: the batch pods fit until production requests more.
const (
	shopMilli   = 2000
	moreMilli   = 3500 // leaves too little for two busy pods
	mostMilli   = 1900 // leaves too little for one
	busyMilli   = 2000
	idleMilli   = 500
	boundMilli  = 2*busyMilli + 2*idleMilli
	shopThreads = 4
	// mostCPUs is what best effort may have at most next to these threads.
	mostCPUs = 3
)

// Limits of what is waited for.
const (
	lentLimit   = 5 * time.Minute
	idleLimit   = 8 * time.Minute
	evictLimit  = 5 * time.Minute
	shrinkLimit = 20 * time.Second
	growLimit   = 3 * time.Minute
	// shrinkTarget is how soon best effort has to have given way.
	shrinkTarget = 2 * time.Second
	highFor      = 8 * time.Second
	workFor      = 20 * time.Second
	steps        = 3
)

// lent is the proof at work.
type lent struct {
	*bench
	rec   *recorder
	shop  *cluster.Pod
	batch map[string]*cluster.Pod
	loads int
	spins []string // names of the processes of bursts
	out   []figure
}

func (l *lent) note(name string, format string, args ...any) {
	l.out = append(l.out, figure{Name: name, Value: fmt.Sprintf(format, args...)})
	l.say("lending: %s: %s", name, fmt.Sprintf(format, args...))
}

// lending: idle CPUs are promised to batch pods through the Node and the scheduler, and
// given back: in seconds when production wants to use them, by evictions in the right
// order when it was promised them, and past no disruption budget; a kubelet and a
// daemon that are restarted in the middle harm no pod.
func lending(ctx context.Context, b *bench) ([]figure, error) {
	l := &lent{bench: b, batch: map[string]*cluster.Pod{}}
	err := l.prepare(ctx)
	for _, part := range []func(context.Context) error{l.timeline, l.slowdown, l.shrunkWhileKubeletRestarts, l.order} {
		if err == nil {
			err = part(ctx)
		}
	}
	return l.out, errors.Join(err, l.finish(context.WithoutCancel(ctx)))
}

// prepare lends: a production pod, the Node's resource, and batch pods on it. The
// youngest is an idle pod, so that an order by age alone would show.
func (l *lent) prepare(ctx context.Context) error {
	if err := l.mayLend(ctx); err != nil {
		return err
	}
	shop := &kubelet.Pod{Name: "shop", Containers: []kubelet.Container{{Name: "main", RequestMilli: shopMilli}}}
	pods, err := l.startAll(ctx, shop)
	if err != nil {
		return err
	}
	l.shop = pods[0]
	if err := l.configure(ctx, lendingConfig); err != nil {
		return err
	}
	began := time.Now()
	if err := l.untilPublished(ctx, boundMilli); err != nil {
		return err
	}
	l.note("daemon started to "+batchCPU+" in the Node", "%s", seconds(time.Since(began)))
	for _, p := range []struct {
		name  string
		milli int64
	}{{"busy-old", busyMilli}, {"idle-old", idleMilli}, {"busy-young", busyMilli}, {"idle-young", idleMilli}} {
		if l.batch[p.name], err = l.startBatch(ctx, p.name, p.milli); err != nil {
			return err
		}
		if qos := l.batch[p.name].Status.QOSClass; qos != kubelet.BestEffort {
			return fmt.Errorf("pod %s is %s, want %s", p.name, qos, kubelet.BestEffort)
		}
	}
	l.rec = l.record(ctx)
	return l.limits(ctx)
}

// startBatch creates a batch pod, and again where kubelet did not know yet what
// the scheduler knew, as the pod's controller does.
func (l *lent) startBatch(ctx context.Context, name string, milli int64) (*cluster.Pod, error) {
	const tries = 5
	for try := 1; ; try++ {
		if err := l.Create(ctx, cluster.PodsPath(namespace), batchPod(name, milli), nil); err != nil {
			return nil, err
		}
		pod, err := l.WaitPod(ctx, namespace, name, func(p *cluster.Pod) bool {
			return p.Running() || p.Status.Phase == "Failed"
		})
		switch {
		case err != nil:
			return l.WaitRunning(ctx, namespace, name) // its error says why
		case pod.Running():
			return pod, nil
		case pod.Status.Reason != "OutOf"+batchCPU || try == tries:
			return nil, fmt.Errorf("pod %s has failed: %s: %s", pod.Key(), pod.Status.Reason, pod.Status.Message)
		}
		l.note("rejected by a kubelet that knew the Node of before", "%s: %s", name, pod.Status.Message)
		if err := l.DeletePod(ctx, namespace, name); err != nil {
			return nil, err
		}
	}
}

// batchPod requests lent CPUs, and nothing that Kubernetes knows.
func batchPod(name string, milli int64) map[string]any {
	o := cluster.PodObject(&kubelet.Pod{Name: name, Namespace: namespace, Labels: map[string]string{"app": "batch"},
		Containers: []kubelet.Container{{Name: "main"}}})
	main := o["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	amount := map[string]any{batchCPU: fmt.Sprint(milli)}
	main["resources"] = map[string]any{"requests": amount, "limits": amount}
	return o
}

// withMemory makes a batch pod Burstable for Kubernetes; for Quietcore it stays best effort.
func withMemory(o map[string]any) {
	o["metadata"].(map[string]any)["labels"] = map[string]any{"app": "batch", "koordinator.sh/qosClass": "BE"}
	main := o["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	main["resources"].(map[string]any)["requests"] = map[string]any{"memory": "32Mi",
		batchCPU: main["resources"].(map[string]any)["limits"].(map[string]any)[batchCPU]}
}

// mayLend gives the daemon the rights that lending wants, and runs what evicts.
func (l *lent) mayLend(ctx context.Context) error {
	if err := l.startEvictor(ctx); err != nil {
		return err
	}
	return l.grantLending(ctx)
}

// grantLending gives the daemon the rights that lending wants.
func (b *bench) grantLending(ctx context.Context) error {
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	name := daemonUser + "-lending"
	meta := map[string]any{"name": name}
	err := b.Create(ctx, rbac+"clusterroles", map[string]any{"metadata": meta, "rules": []any{
		map[string]any{"apiGroups": []string{""}, "resources": []string{"nodes/status"}, "verbs": []string{"patch"}},
		map[string]any{"apiGroups": []string{""}, "resources": []string{"pods/status"}, "verbs": []string{"patch"}},
	}}, nil)
	if err != nil && !cluster.Refused(err, 409) {
		return err
	}
	err = b.Create(ctx, rbac+"clusterrolebindings", map[string]any{
		"metadata": meta,
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": daemonUser}},
	}, nil)
	if cluster.Refused(err, 409) {
		return nil
	}
	return err
}

// configure starts the daemon anew with more in its configuration.
func (l *lent) configure(ctx context.Context, more map[string]any) error {
	text, err := l.node.ReadFile(ctx, daemonConfig)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	for key, value := range more {
		config[key] = value
	}
	next, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := l.node.WriteFile(ctx, daemonConfig, string(next)); err != nil {
		return err
	}
	if err := l.node.Signal(ctx, machine.Daemon, int(syscall.SIGTERM)); err != nil {
		return err
	}
	return l.again(ctx)
}

// again starts the daemon as it is configured.
func (l *lent) again(ctx context.Context) error {
	if err := l.node.Start(ctx, machine.Daemon, daemonBinary, "run", "--config", daemonConfig); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	if err := l.node.WaitSocket(wait, daemonSocket); err != nil {
		return fmt.Errorf("%w\n%s", err, l.node.LogTail(ctx, machine.Daemon, 3000))
	}
	return nil
}

// published is what the Node says; -1: nothing.
func (l *lent) published(ctx context.Context) (int64, error) {
	var node struct {
		Status struct{ Allocatable map[string]string }
	}
	if err := l.Get(ctx, "/api/v1/nodes/"+cluster.NodeName, &node); err != nil {
		return 0, err
	}
	return milliOf(node.Status.Allocatable)
}

func (l *lent) untilPublished(ctx context.Context, least int64) error {
	return cluster.Until(ctx, lentLimit, func(ctx context.Context) error {
		now, err := l.published(ctx)
		if err == nil && now < least {
			err = fmt.Errorf("the Node has %d of %s, want %d\n%s", now, batchCPU, least,
				l.node.LogTail(ctx, machine.Daemon, 1500))
		}
		return err
	})
}

// limits: a pod that requests lent CPUs gets weight and quota from it.
func (l *lent) limits(ctx context.Context) error {
	var max, weight string
	err := cluster.Until(ctx, daemonLimit, func(ctx context.Context) (err error) {
		if max, weight, err = l.limitsOf(ctx, l.batch["busy-old"]); err != nil {
			return err
		}
		if max != "200000 100000" || weight == "1" {
			return fmt.Errorf(
				"pod busy-old has cpu.max %q and cpu.weight %q, want a quota of 2 CPUs and more than the least weight",
				max, weight)
		}
		return nil
	})
	l.note("pod with 2000 of "+batchCPU, "cpu.max %q, cpu.weight %s", max, weight)
	return err
}

// limitsOf reads what the pod's cgroup has.
func (l *lent) limitsOf(ctx context.Context, p *cluster.Pod) (max, weight string, err error) {
	dir := path.Dir(l.dir(p))
	files, err := l.node.Files(ctx, wire.FileAction{Do: wire.FileRead, Path: dir + "/cpu.max"},
		wire.FileAction{Do: wire.FileRead, Path: dir + "/cpu.weight"})
	if err != nil {
		return "", "", err
	}
	return strings.TrimSpace(string(files[0].Data)), strings.TrimSpace(string(files[1].Data)), nil
}

func (l *lent) dir(p *cluster.Pod) string {
	return l.node.ContainerDir(p, &p.Status.ContainerStatuses[0])
}

// load starts a program in the pod's cgroup and returns what ends it.
func (l *lent) load(ctx context.Context, p *cluster.Pod,
	kind, how string) (end func(context.Context) error, err error) {
	l.loads++
	name := fmt.Sprintf("load-%d", l.loads)
	if err := l.node.Start(ctx, name, samplerPath, kind, strings.TrimPrefix(l.dir(p), "/sys/fs/cgroup"),
		how); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return l.node.Signal(ctx, name, int(syscall.SIGTERM)) }, nil
}

// busy has both busy pods use CPUs with so many processes each. These never sleep: a
// runtime whose threads wake a hundred times a second waits for a CPU a tenth of its
// time on emulated ones, which looks like batch pods that are held down.
func (l *lent) busy(ctx context.Context, processes int) (end func(context.Context) error, err error) {
	from := len(l.spins)
	for _, pod := range []string{"busy-old", "busy-young"} {
		if err := l.burst(ctx, l.batch[pod], processes); err != nil {
			return nil, err
		}
	}
	names := slices.Clone(l.spins[from:])
	return func(ctx context.Context) error { return l.quiet(ctx, names) }, nil
}

// burst has a pod use CPUs with so many processes, until unload.
func (l *lent) burst(ctx context.Context, p *cluster.Pod, processes int) error {
	for range processes {
		l.loads++
		name := fmt.Sprintf("load-%d", l.loads)
		spin := fmt.Sprintf("echo $$ > %s/cgroup.procs && while :; do :; done", l.dir(p))
		if err := l.node.Start(ctx, name, "busybox", "sh", "-c", spin); err != nil {
			return err
		}
		l.spins = append(l.spins, name)
	}
	return nil
}

func (l *lent) quiet(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, l.node.Signal(ctx, name, int(syscall.SIGTERM)))
	}
	return errors.Join(errs...)
}

// unload ends every burst, and has the daemon as it was.
func (l *lent) unload(ctx context.Context) error {
	return errors.Join(l.quiet(ctx, l.spins), l.node.Signal(ctx, machine.Daemon, int(syscall.SIGTERM)),
		l.startDaemon(ctx))
}

// timeline: production's load steps up and down; in the second step the daemon is
// killed while production is at its peak.
func (l *lent) timeline(ctx context.Context) error {
	quiet, err := l.busy(ctx, 2)
	if err != nil {
		return err
	}
	var times []time.Duration
	for i := range steps {
		took, err := l.step(ctx, i == 1)
		if err != nil {
			return fmt.Errorf("step %d of production: %w", i+1, errors.Join(err, quiet(ctx)))
		}
		times = append(times, took)
		l.note(fmt.Sprintf("step %d of production to best effort at %d CPUs or fewer", i+1, mostCPUs), "%s",
			seconds(took))
	}
	if m := median(times); m > shrinkTarget {
		err = fmt.Errorf("the median of %d steps is %s, the target is %s", steps, seconds(m), shrinkTarget)
	}
	return errors.Join(err, quiet(ctx))
}

// step is one of production's load, and how long after its first use best effort had
// given way.
func (l *lent) step(ctx context.Context, kill bool) (time.Duration, error) {
	wide, err := l.rec.until(ctx, growLimit, fmt.Sprintf("best effort has more than %d CPUs", mostCPUs),
		func(p point) bool {
			return p.Pool > mostCPUs
		})
	if err != nil {
		return 0, err
	}
	end, err := l.load(ctx, l.shop, "spin", fmt.Sprintf("%d 1h", shopThreads))
	if err != nil {
		return 0, err
	}
	_, err = l.rec.until(ctx, shrinkLimit, "best effort has given way", func(p point) bool {
		return p.At > wide.At && p.Shop > 1 && p.Pool <= mostCPUs
	})
	var took time.Duration
	var from float64
	if err == nil {
		took, from, err = gaveWay(l.rec.all(), wide.At, mostCPUs)
	}
	if err == nil && kill {
		err = l.killed(ctx)
	}
	if err == nil {
		err = pass(highFor)(ctx)
	}
	high := l.rec.all()
	if err == nil {
		err = neverAbove(high, from, mostCPUs)
	}
	return took, errors.Join(err, end(ctx))
}

// killed kills the daemon and starts it anew.
func (l *lent) killed(ctx context.Context) error {
	if err := l.killDaemon(ctx); err != nil {
		return err
	}
	if err := pass(3 * time.Second)(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := l.again(ctx); err != nil {
		return err
	}
	_, err := l.settle(ctx)
	l.note("daemon killed at production's peak", "back after %s; best effort had no more CPUs meanwhile",
		seconds(time.Since(began)))
	return err
}

// work is what a fixed amount of work cost production.
type work struct{ used, waited, span float64 }

// slowdown: production does a fixed amount of work a second, alone and with batch
// pods. What it costs more with them is the sum of what the kernel's scheduler does to
// it (it waits for a CPU) and of what the emulation does: the guest's busy CPUs share
// the host's.
func (l *lent) slowdown(ctx context.Context) error {
	end, err := l.load(ctx, l.shop, "fault", "0.5")
	if err != nil {
		return err
	}
	alone, err := l.work(ctx)
	if err != nil {
		return errors.Join(err, end(ctx))
	}
	quiet, err := l.busy(ctx, 2)
	if err != nil {
		return errors.Join(err, end(ctx))
	}
	busy, err := l.work(ctx)
	if err = errors.Join(err, quiet(ctx), end(ctx)); err != nil {
		return err
	}
	l.note("production's fixed work alone", "%.3f CPUs, waited for a CPU %.2f %% of the time", alone.used/alone.span,
		100*alone.waited/alone.span)
	l.note("production's fixed work with batch pods", "%.3f CPUs, waited for a CPU %.2f %% of the time",
		busy.used/busy.span, 100*busy.waited/busy.span)
	cost, wait := busy.used/busy.span/(alone.used/alone.span)-1, busy.waited/busy.span-alone.waited/alone.span
	l.note("production's slowdown with batch pods",
		"%.1f %% more CPU time for the same work (of this the host's own part is not known), %.2f %% of the time "+
			"more waiting for a CPU; target 5 %%", 100*cost, 100*wait)
	if alone.used < 1 || busy.used < 1 {
		return fmt.Errorf("production used %.2f s and %.2f s: this shows nothing", alone.used, busy.used)
	}
	if wait > 0.05 {
		return fmt.Errorf("production waits %.1f %% of the time more with batch pods, the target is 5 %%", 100*wait)
	}
	return nil
}

// work measures what production's load takes once it is under way.
func (l *lent) work(ctx context.Context) (work, error) {
	if err := pass(5 * time.Second)(ctx); err != nil {
		return work{}, err
	}
	first, err := l.counters(ctx)
	if err != nil {
		return work{}, err
	}
	if err := pass(workFor)(ctx); err != nil {
		return work{}, err
	}
	last, err := l.counters(ctx)
	return work{last.used - first.used, last.waited - first.waited, last.span - first.span}, err
}

func (l *lent) counters(ctx context.Context) (work, error) {
	dir := l.dir(l.shop)
	files, err := l.node.Files(ctx, wire.FileAction{Do: wire.FileRead, Path: "/proc/uptime"},
		wire.FileAction{Do: wire.FileRead, Path: dir + "/cpu.stat"},
		wire.FileAction{Do: wire.FileRead, Path: dir + "/cpu.pressure"})
	if err != nil {
		return work{}, err
	}
	return workOf(string(files[0].Data), string(files[1].Data), string(files[2].Data))
}

// shrunkWhileKubeletRestarts: production is promised what batch pods were lent. The
// Node goes on saying what these request, whatever is left, so that a kubelet that is
// restarted admits them again; and a disruption budget keeps them from being evicted.
func (l *lent) shrunkWhileKubeletRestarts(ctx context.Context) error {
	if _, err := l.busy(ctx, 1); err != nil { // until their end
		return err
	}
	began := time.Now()
	if err := l.untilIdle(ctx, 2); err != nil {
		return err
	}
	l.note("windows full and two of four batch pods idle", "after %s", seconds(time.Since(began)))
	if err := l.Create(ctx, budgets, map[string]any{
		"metadata": map[string]any{"name": "batch"},
		"spec": map[string]any{"minAvailable": len(l.batch),
			"selector": map[string]any{"matchLabels": map[string]any{"app": "batch"}}},
	}, nil); err != nil {
		return err
	}
	from := l.rec.last().At
	if _, err := l.start(ctx, &kubelet.Pod{Name: "more", Containers: []kubelet.Container{{Name: "main",
		RequestMilli: moreMilli}}}); err != nil {
		return err
	}
	blocked, err := l.untilEvent(ctx, l.batch["busy-young"], "BatchEvictionBlocked")
	if err != nil {
		return err
	}
	l.note("Event of a disruption budget", "%s", blocked)
	if err := l.untilSays(ctx, boundMilli); err != nil {
		return err
	}
	if err := l.node.StopKubelet(ctx); err != nil {
		return err
	}
	if err := l.node.StartKubelet(ctx); err != nil {
		return err
	}
	if err := l.node.WaitReady(ctx); err != nil {
		return err
	}
	if err := pass(afterwards)(ctx); err != nil {
		return err
	}
	least, seen := leastNode(l.rec.all(), from)
	l.note("kubelet restarted while supply had shrunk", "the Node said %d at least of %d requested, in %d looks",
		least, int64(boundMilli), seen)
	if least < boundMilli || seen < 10 {
		return fmt.Errorf("the Node said %d of %s in %d looks, batch pods request %d", least, batchCPU, seen,
			int64(boundMilli))
	}
	pods := []*cluster.Pod{l.shop}
	for _, p := range l.batch {
		pods = append(pods, p)
	}
	return l.sameContainers(ctx, pods)
}

const budgets = "/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets"

// untilSays waits for the Node to say exactly this.
func (l *lent) untilSays(ctx context.Context, milli int64) error {
	return cluster.Until(ctx, lentLimit, func(ctx context.Context) error {
		now, err := l.published(ctx)
		if err == nil && now != milli {
			err = fmt.Errorf("the Node says %d of %s, want %d, what bound pods request", now, batchCPU, milli)
		}
		return err
	})
}

// untilIdle waits for so many batch pods to be idle, by the daemon's own word.
func (l *lent) untilIdle(ctx context.Context, want int) error {
	return cluster.Until(ctx, idleLimit, func(ctx context.Context) error {
		status, err := l.settle(ctx)
		if err != nil {
			return err
		}
		if status.Lending == nil || status.Lending.Estimate == nil {
			return errors.New("the daemon's status says nothing of lending")
		}
		if got := status.Lending.Estimate.Idle; got != want {
			return fmt.Errorf("%d batch pods are idle, want %d: %+v", got, want, status.Lending.Pods)
		}
		for _, p := range status.Lending.Pods {
			if p.Idle != strings.HasPrefix(p.Pod, "idle") {
				return fmt.Errorf("pod %s: idle %t: %s", p.Pod, p.Idle, p.Why)
			}
		}
		return nil
	})
}

func (l *lent) untilEvent(ctx context.Context, p *cluster.Pod, reason string) (string, error) {
	var text string
	err := cluster.Until(ctx, evictLimit, func(ctx context.Context) error {
		events, err := l.eventsOf(ctx, p)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Reason == reason {
				text = e.Message
				return nil
			}
		}
		return fmt.Errorf("pod %s has no Event %s among %+v", p.Key(), reason, events)
	})
	return text, err
}

// order: once the budget is gone the youngest busy pod has to go, although an idle one
// is younger; when production is promised still more, the other busy one; never an idle
// one, which takes nothing that another could have.
func (l *lent) order(ctx context.Context) error {
	if err := l.Delete(ctx, budgets+"/batch"); err != nil {
		return err
	}
	began := time.Now()
	if err := l.gone(ctx, "busy-young"); err != nil {
		return err
	}
	l.note("first evicted", "busy-young, %s after its budget was gone", seconds(time.Since(began)))
	if err := l.stay(ctx, "busy-old", "idle-old", "idle-young"); err != nil {
		return err
	}
	if _, err := l.start(ctx, &kubelet.Pod{Name: "most", Containers: []kubelet.Container{{Name: "main",
		RequestMilli: mostMilli}}}); err != nil {
		return err
	}
	if err := l.gone(ctx, "busy-old"); err != nil {
		return err
	}
	l.note("evicted next", "busy-old")
	if err := pass(time.Minute)(ctx); err != nil { // longer than promises may exceed what exists
		return err
	}
	return l.stay(ctx, "idle-old", "idle-young")
}

// gone waits for a pod to be evicted, and for no other to be.
func (l *lent) gone(ctx context.Context, name string) error {
	err := cluster.Until(ctx, evictLimit, func(ctx context.Context) error {
		err := l.Get(ctx, cluster.PodsPath(namespace)+"/"+name, nil)
		if cluster.Refused(err, 404) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("pod %s is still there", name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, l.node.LogTail(ctx, machine.Daemon, 3000))
	}
	why, err := l.untilEvent(ctx, l.batch[name], "BatchEvicted")
	if err == nil {
		l.note("Event of pod "+name, "%s", why)
	}
	return err
}

// stay fails where one of the pods ends.
func (l *lent) stay(ctx context.Context, names ...string) error {
	for _, name := range names {
		var p cluster.Pod
		if err := l.Get(ctx, cluster.PodsPath(namespace)+"/"+name, &p); err != nil {
			return fmt.Errorf("pod %s should have stayed: %w", name, err)
		}
		if p.Metadata.DeletionTimestamp != "" || !p.Running() {
			return fmt.Errorf("pod %s should have stayed and is %s, deleted at %q", name, p.Status.Phase,
				p.Metadata.DeletionTimestamp)
		}
	}
	return nil
}

// finish writes what was seen, and takes the node back to a daemon that lends nothing:
// it takes the resource away.
func (l *lent) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lentLimit+daemonLimit)
	defer cancel()
	var errs []error
	if l.rec != nil {
		l.rec.stop()
		files, err := l.rec.write(l.options.Cache)
		errs = append(errs, err)
		l.note("timeline", "%s", strings.Join(files, ", "))
	}
	errs = append(errs, l.Delete(ctx, budgets+"/batch"))
	// Its pods end first: the resource stays while they request it by Koordinator's name,
	// and a daemon must not be asked to lend and not to at once.
	errs = append(errs, l.DeletePods(ctx, namespace), l.node.Signal(ctx, machine.Daemon, int(syscall.SIGTERM)),
		l.startDaemon(ctx))
	errs = append(errs, l.untilSays(ctx, -1))
	return errors.Join(errs...)
}
