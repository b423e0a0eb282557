package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// The points at which the daemon is killed while an owner comes, and while one
// goes. Package plugin's tests try all that there are.
var (
	comingPoints = []failpoint.Point{failpoint.RunReply, failpoint.ShrinkWritten, failpoint.CreateVacated,
		failpoint.QuotaWritten,
		failpoint.CreateReply}
	goingPoints = []failpoint.Point{failpoint.GrowWriting, failpoint.RemoveReply}
)

// base is a node with a pod of every kind, to which every test returns.
type base struct {
	*node
	line    *script.Line
	picture map[string]string
}

var kept = owner(sweep.LSE, 2, "kept")

func newBase(ctx context.Context, n *node) (*base, error) {
	if err := n.fresh(ctx); err != nil {
		return nil, err
	}
	return n.settledBase(ctx)
}

// settledBase is one on a node that was made anew.
func (n *node) settledBase(ctx context.Context) (*base, error) {
	for _, w := range []workload{kept, shared("web", 100), bestEffort("batch")} {
		if _, err := n.create(ctx, w); err != nil {
			return nil, err
		}
	}
	b := &base{node: n}
	var err error
	if b.line, err = n.player.Observe(ctx); err == nil {
		b.picture, err = n.picture(ctx)
	}
	return b, err
}

// same says how the node differs from what it was at the beginning.
func (b *base) same(ctx context.Context) error {
	line, err := b.player.Observe(ctx)
	if err != nil {
		return err
	}
	now, err := b.node.picture(ctx)
	if err != nil {
		return err
	}
	switch moved := script.Changed(b.line.Containers, line.Containers); {
	case len(moved) > 0:
		return fmt.Errorf("%v changed", moved)
	case len(line.Containers) != len(b.line.Containers):
		return fmt.Errorf("there are %d containers, want %d", len(line.Containers), len(b.line.Containers))
	case line.Pools != b.line.Pools:
		return fmt.Errorf("the pools are %+v, want %+v", line.Pools, b.line.Pools)
	case !maps.Equal(now, b.picture):
		return errors.New(difference(now, b.picture))
	}
	return nil
}

// unmoved says whether all pods run on the same CPUs as before, read from the kernel
// alone. Masks above them may have changed on purpose.
func (b *base) unmoved(ctx context.Context) error {
	dir, err := b.cgroupOf(ctx, kept)
	if err != nil {
		return err
	}
	now, err := b.node.picture(ctx)
	if err != nil {
		return err
	}
	file := dir + "/cpuset.cpus.effective"
	if now[file] != b.picture[file] {
		return fmt.Errorf("the owner is on %s, was on %s", now[file], b.picture[file])
	}
	return nil
}

// disjoint checks a line for owners that share CPUs.
func disjoint(line *script.Line) error {
	for _, o := range line.Containers {
		if o.Pool != policy.PoolExclusive {
			continue
		}
		own, err := cpuset.Parse(o.CPUs)
		if err != nil {
			return err
		}
		for _, c := range line.Containers {
			cpus, err := cpuset.Parse(c.CPUs)
			if err != nil {
				return err
			}
			mayShare := c.Pod == o.Pod || c.Class == policy.BE && o.Class == policy.LSR
			if both := own.And(cpus); !mayShare && !both.IsEmpty() {
				return fmt.Errorf("%s and %s are both on CPUs %s", o.Pod, c.Pod, both)
			}
		}
	}
	return nil
}

// without runs do while the daemon does not answer.
func (n *node) without(do func() error) error {
	n.Daemon = false
	defer func() { n.Daemon = true }()
	return do()
}

// dead waits until the daemon has ended. Who is next follows it.
func (n *node) dead(ctx context.Context, why failpoint.Point) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		running, _, err := n.Running(ctx, machine.Daemon)
		if err != nil {
			return fmt.Errorf("the daemon never came to %s: %w", why, err)
		}
		if !running {
			if n.next != "" {
				n.Binary, n.next = n.next, n.Binary
			}
			return nil
		}
	}
}

// crash kills the daemon at moments in the middle of its work, and the runtime with and
// without its containers. Pods start and end while no daemon runs.
func crash(ctx context.Context, n *node) ([]figure, error) {
	b, err := newBase(ctx, n)
	if err != nil {
		return nil, err
	}
	for _, p := range comingPoints {
		if err := b.coming(ctx, p); err != nil {
			return nil, fmt.Errorf("killed at %s: %w", p, err)
		}
	}
	for _, p := range goingPoints {
		if err := b.going(ctx, p); err != nil {
			return nil, fmt.Errorf("killed at %s: %w", p, err)
		}
	}
	figures := []figure{{Name: "points at which the daemon was killed", Value: len(comingPoints) + len(goingPoints)}}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"the runtime was killed", b.runtimeKilled},
		{"the runtime was killed and a container with it", b.runtimeAndContainerKilled},
		{"pods came and went without a daemon", b.down},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return figures, fmt.Errorf("%s: %w", step.name, err)
		}
		figures = append(figures, figure{Name: step.name, Value: fmt.Sprintf("nothing moved, %.0f s",
			time.Since(began).Seconds())})
	}
	return figures, nil
}

// coming kills the daemon while an owner is created.
func (b *base) coming(ctx context.Context, p failpoint.Point) error {
	if err := b.restart(ctx, "--fail-at", string(p)); err != nil {
		return err
	}
	w := owner(sweep.LSR, 3, "half")
	var created error
	// The runtime may refuse the pod or start it unpinned; both are its right.
	err := b.without(func() error {
		_, created = b.create(ctx, w)
		return nil
	})
	if err = errors.Join(err, b.dead(ctx, p)); err != nil {
		return err
	}
	if _, err := b.CRI().Status(ctx, &cri.StatusRequest{}); err != nil {
		return fmt.Errorf("the runtime: %w", err)
	}
	if err := b.unmoved(ctx); err != nil {
		return err
	}
	line, err := b.again(ctx)
	if err != nil {
		return err
	}
	if created == nil {
		if err := owns(line, w); err != nil {
			return err
		}
		if _, err := b.remove(ctx, w.Name); err != nil {
			return err
		}
	}
	return b.same(ctx)
}

// owns requires that a workload has CPUs of its own.
func owns(line *script.Line, w workload) error {
	for _, c := range line.Containers {
		if c.Pod != w.Name {
			continue
		}
		cpus, err := cpuset.Parse(c.CPUs)
		if err == nil && (c.Pool != policy.PoolExclusive || cpus.Count() != w.Size) {
			err = fmt.Errorf("pod %s is on CPUs %s of pool %s, want %d of its own", w.Name, c.CPUs, c.Pool, w.Size)
		}
		return err
	}
	return fmt.Errorf("pod %s is not there", w.Name)
}

// going kills the daemon while an owner is removed.
func (b *base) going(ctx context.Context, p failpoint.Point) error {
	if err := b.restart(ctx); err != nil {
		return err
	}
	w := owner(sweep.LSR, 3, "half")
	if _, err := b.create(ctx, w); err != nil {
		return err
	}
	if err := b.restart(ctx, "--fail-at", string(p)); err != nil {
		return err
	}
	err := b.without(func() error {
		_, err := b.remove(ctx, w.Name)
		return err
	})
	if err = errors.Join(err, b.dead(ctx, p)); err != nil {
		return err
	}
	if err := b.unmoved(ctx); err != nil {
		return err
	}
	if err := b.StartDaemon(ctx); err != nil {
		return err
	}
	return b.same(ctx)
}

func (b *base) restartRuntime(ctx context.Context, meanwhile func() error) error {
	if err := b.KillRuntime(ctx); err != nil {
		return err
	}
	if err := meanwhile(); err != nil {
		return err
	}
	return b.StartRuntime(ctx)
}

func (b *base) runtimeKilled(ctx context.Context) error {
	if err := b.restartRuntime(ctx, func() error { return b.unmoved2(ctx) }); err != nil {
		return err
	}
	return b.same(ctx)
}

// unmoved2 is unmoved without asking the runtime, which is not there.
func (b *base) unmoved2(ctx context.Context) error {
	now, err := b.node.picture(ctx)
	if err == nil && !maps.Equal(now, b.picture) {
		err = errors.New(difference(now, b.picture))
	}
	return err
}

func (b *base) runtimeAndContainerKilled(ctx context.Context) error {
	w := owner(sweep.LSR, 2, "victim")
	if _, err := b.create(ctx, w); err != nil {
		return err
	}
	dir, err := b.cgroupOf(ctx, w)
	if err != nil {
		return err
	}
	err = b.restartRuntime(ctx, func() error {
		procs, err := b.ReadFile(ctx, cgroupRoot+"/"+dir+"/cgroup.procs")
		if err == nil {
			_, err = b.Exec(ctx, "sh", "-c", "kill -9 "+strings.Join(strings.Fields(procs), " "))
		}
		return err
	})
	if err != nil {
		return err
	}
	if _, err := b.remove(ctx, w.Name); err != nil {
		return err
	}
	return b.sameSoon(ctx)
}

// collectLimit is for pods whose end is not announced: after its restart containerd
// reports no older pod. The daemon looks for them every 30 s and releases them the
// second time.
const collectLimit = 2 * time.Minute

// sameSoon is same once the daemon has noticed what has ended.
func (b *base) sameSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	var differs error
	for {
		err := b.same(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			differs = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", collectLimit, errors.Join(differs, ctx.Err()))
		case <-tick.C:
		}
	}
}

// down lets pods start and end while no daemon runs. Pods in a slice land in its pool;
// nothing remains of ended pods when a daemon starts.
func (b *base) down(ctx context.Context) error {
	gone, late, lateBE := owner(sweep.LSR, 2, "gone"), shared("late", 100), bestEffort("latebe")
	if _, err := b.create(ctx, gone); err != nil {
		return err
	}
	if err := b.KillDaemon(ctx); err != nil {
		return err
	}
	err := b.without(func() error {
		_, err := b.remove(ctx, gone.Name)
		if err != nil {
			return err
		}
		if _, err = b.create(ctx, late); err != nil {
			return err
		}
		line, err := b.create(ctx, lateBE)
		if err != nil {
			return err
		}
		owners, err := cpuset.Parse(b.line.Pools.Exclusive)
		if err != nil {
			return err
		}
		for _, c := range line.Containers {
			cpus, err := cpuset.Parse(c.CPUs)
			if err != nil {
				return err
			}
			if c.Pod != kept.Name && cpus.Intersects(&owners) {
				return fmt.Errorf("without a daemon pod %s is on CPUs %s, of which %s are owned", c.Pod, c.CPUs, owners)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := b.again(ctx); err != nil {
		return err
	}
	for _, w := range []workload{late, lateBE} {
		if _, err := b.remove(ctx, w.Name); err != nil {
			return err
		}
	}
	return b.same(ctx)
}

// again starts the daemon after a crash. Owners may only be seen on CPUs of their own.
func (b *base) again(ctx context.Context) (*script.Line, error) {
	if err := b.StartDaemon(ctx); err != nil {
		return nil, err
	}
	line, err := b.player.Observe(ctx)
	if err != nil {
		return nil, err
	}
	return line, disjoint(line)
}
