package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

// What the batch pods of the faults request: the first ten at once fill most of what is lent, ten
// more fit when those are known to be idle, and all together need more than there is if they are not.
const (
	coldPods  = 10
	coldMilli = 500
	// quietFor is how long nobody may be evicted after a fault: three times as long as promises have
	// to exceed what exists before somebody is.
	quietFor = 2 * time.Minute
	// lendingFile is the checkpoint of what pods used.
	lendingFile = "/var/lib/quietcore/lending.json"
)

// faults: ten idle pods start at once, promises are filled with what they do not use, and then what
// is known of them is lost, or asked for by other windows. Nobody is evicted.
func faults(ctx context.Context, b *bench) ([]figure, error) {
	l := &lent{bench: b, batch: map[string]*cluster.Pod{}}
	err := l.shopAndLending(ctx)
	for _, part := range []func(context.Context) error{l.coldStart, l.fill, l.checkpointLost, l.otherWindows} {
		if err == nil {
			err = part(ctx)
		}
	}
	return l.out, errors.Join(err, l.finish(context.WithoutCancel(ctx)))
}

// shopAndLending has production on the node, and its idle CPUs lent.
func (l *lent) shopAndLending(ctx context.Context) error {
	if err := l.mayLend(ctx); err != nil {
		return err
	}
	var err error
	if l.shop, err = l.start(ctx, &kubelet.Pod{Name: "shop", Containers: []kubelet.Container{{Name: "main",
		RequestMilli: shopMilli}}}); err != nil {
		return err
	}
	if err := l.configure(ctx, lendingConfig); err != nil {
		return err
	}
	return l.untilPublished(ctx, boundMilli)
}

// coldStart creates ten pods at once, every second of them Burstable.
func (l *lent) coldStart(ctx context.Context) error {
	began := time.Now()
	names, err := l.create(ctx, 0)
	if err != nil {
		return err
	}
	if err := l.untilRunning(ctx, names); err != nil {
		return err
	}
	l.note("ten idle pods started at once", "all run after %s", seconds(time.Since(began)))
	one := l.batch[names[1]]
	if qos := one.Status.QOSClass; qos != kubelet.Burstable {
		return fmt.Errorf("pod %s is %s, want %s", names[1], qos, kubelet.Burstable)
	}
	return l.untilLimited(ctx, one, "50000 100000")
}

// untilLimited waits for a pod's quota.
func (l *lent) untilLimited(ctx context.Context, p *cluster.Pod, want string) error {
	return cluster.Until(ctx, daemonLimit, func(ctx context.Context) error {
		max, _, err := l.limitsOf(ctx, p)
		if err == nil && max != want {
			err = fmt.Errorf("pod %s has cpu.max %q, want %q for what it was lent", p.Key(), max, want)
		}
		return err
	})
}

// create creates the batch pods from a number on, without waiting for any.
func (l *lent) create(ctx context.Context, from int) ([]string, error) {
	var names []string
	for i := from; i < from+coldPods; i++ {
		name := fmt.Sprintf("idle-%02d", i)
		o := batchPod(name, coldMilli)
		if i%2 == 1 {
			withMemory(o)
		}
		if err := l.Create(ctx, cluster.PodsPath(namespace), o, nil); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// untilRunning waits for pods to run. One that reached a kubelet which knew the Node of before is made
// again, as its controller does.
func (l *lent) untilRunning(ctx context.Context, names []string) error {
	for _, name := range names {
		pod, err := l.WaitPod(ctx, namespace, name, func(p *cluster.Pod) bool {
			return p.Running() || p.Status.Phase == "Failed"
		})
		if err == nil && !pod.Running() {
			if pod.Status.Reason != "OutOf"+batchCPU {
				return fmt.Errorf("pod %s has failed: %s: %s", name, pod.Status.Reason, pod.Status.Message)
			}
			if err := l.DeletePod(ctx, namespace, name); err != nil {
				return err
			}
			pod, err = l.startBatch(ctx, name, coldMilli)
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, l.node.LogTail(ctx, machine.Daemon, 3000))
		}
		l.batch[name] = pod
	}
	return nil
}

// fill promises what the idle pods do not use.
func (l *lent) fill(ctx context.Context) error {
	began := time.Now()
	if err := l.untilIdle(ctx, coldPods); err != nil {
		return err
	}
	l.note("ten pods known to be idle", "after %s", seconds(time.Since(began)))
	if err := l.untilPublished(ctx, 2*coldPods*coldMilli); err != nil {
		return err
	}
	names, err := l.create(ctx, coldPods)
	if err == nil {
		err = l.untilRunning(ctx, names)
	}
	if err != nil {
		return err
	}
	if err := l.untilIdle(ctx, 2*coldPods); err != nil {
		return err
	}
	l.note("promised", "%d of %s to %d pods; production leaves %d", 2*coldPods*coldMilli, batchCPU, 2*coldPods,
		1000*grid.CPUs()-shopMilli)
	return l.everybodyStays(ctx)
}

func (l *lent) everybodyStays(ctx context.Context) error {
	return l.stay(ctx, slices.Sorted(maps.Keys(l.batch))...)
}

// checkpointLost: the daemon is killed while promises are full, and what it had learned is gone.
func (l *lent) checkpointLost(ctx context.Context) error {
	if err := l.killDaemon(ctx); err != nil {
		return err
	}
	if _, err := l.node.Exec(ctx, "busybox", "rm", lendingFile); err != nil {
		return err
	}
	if err := l.again(ctx); err != nil {
		return err
	}
	return l.unknownEvictsNobody(ctx, "checkpoint lost while promises were full")
}

// otherWindows: the same with a configuration of other windows and samples.
func (l *lent) otherWindows(ctx context.Context) error {
	next := maps.Clone(lendingConfig)
	reclaim := maps.Clone(next["reclaim"].(map[string]any))
	reclaim["idle"] = map[string]any{"window": "6m", "sample": "15s"}
	next["reclaim"] = reclaim
	if err := l.configure(ctx, next); err != nil {
		return err
	}
	return l.unknownEvictsNobody(ctx, "windows and samples changed while promises were full")
}

// unknownEvictsNobody: nobody is known to be idle, the Node goes on saying what was promised, and
// nobody goes.
func (l *lent) unknownEvictsNobody(ctx context.Context, what string) error {
	status, err := l.settle(ctx)
	if err != nil {
		return err
	}
	if status.Lending == nil {
		return errors.New("the daemon's status says nothing of lending")
	}
	if e := status.Lending.Estimate; e != nil && e.Idle == 2*coldPods {
		return fmt.Errorf("%s, and all are known to be idle at once: this shows nothing", what)
	}
	if err := pass(quietFor)(ctx); err != nil {
		return err
	}
	if err := l.untilSays(ctx, 2*coldPods*coldMilli); err != nil {
		return err
	}
	if status, err = l.settle(ctx); err != nil {
		return err
	}
	e := status.Lending.Estimate
	l.note(what, "nobody was evicted in %s; the Node says what %d pods request, %d of them are known to be idle, "+
		"%.2f CPUs are needed", quietFor, 2*coldPods, e.Idle, e.Demand)
	return l.everybodyStays(ctx)
}
