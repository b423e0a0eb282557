package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/internal/script"
)

// hotadd gives the running machine CPUs that it never had. Nobody moves, the shared pool has each once it is online,
// its pods run on it once kubelet lets them, an owner that found no room before finds it, and a new daemon sees the
// same.
func hotadd(ctx context.Context, n *node) ([]figure, error) {
	b, err := newBase(ctx, n)
	if err != nil {
		return nil, err
	}
	daemon, err := b.pid(ctx)
	if err != nil {
		return nil, err
	}
	// More than the machine has beside the owner that is kept, and less than it will have.
	large := owner(sweep.LSR, n.Present()-kept.Size, "large")
	if _, err := b.create(ctx, large); err == nil {
		return nil, fmt.Errorf("an owner of %d CPUs was placed on %d CPUs, of which %d are owned", large.Size,
			n.Present(), kept.Size)
	}
	if err := b.sameSoon(ctx); err != nil {
		return nil, fmt.Errorf("after the refusal: %w", err)
	}
	var slowest time.Duration
	had := n.Present()
	for n.Present() < grid.CPUs() {
		took, err := b.plug(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w\nthe daemon's log:\n%s", err, b.LogTail(ctx, machine.Daemon, 3000))
		}
		slowest = max(slowest, took)
	}
	line, err := b.create(ctx, large)
	if err == nil {
		err = errors.Join(owns(line, large), disjoint(line), b.unmoved(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("the owner that found no room before: %w", err)
	}
	now, err := b.pid(ctx)
	if err == nil && now != daemon {
		err = fmt.Errorf("the daemon is process %s, was %s", now, daemon)
	}
	if err != nil {
		return nil, err
	}
	if err := b.sameForASuccessor(ctx, line); err != nil {
		return nil, err
	}
	return []figure{
		{Name: "CPUs", Value: fmt.Sprintf("%d, then %d", had, n.Present())},
		{Name: "online until it is the shared pool's, at most", Value: round(slowest)},
		{Name: "an owner that found no room before", Value: fmt.Sprintf("has %d CPUs", large.Size)},
	}, nil
}

// plug adds a CPU and takes it online. It returns how long the daemon took to give it to the shared pool.
func (b *base) plug(ctx context.Context) (time.Duration, error) {
	cpu, err := b.Plug(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.same(ctx); err != nil {
		return 0, fmt.Errorf("CPU %d is in the machine, and offline: %w", cpu, err)
	}
	if err := b.Online(ctx, cpu); err != nil {
		return 0, err
	}
	began := time.Now()
	for { // kubelet, which does not know it, keeps all pods off it
		line, err := b.player.Observe(ctx)
		if err == nil {
			err = grown("the shared pool", b.line.Pools.Shared, line.Pools.Shared, cpu)
		}
		if err == nil {
			if moved := script.Changed(b.line.Containers, line.Containers); len(moved) > 0 {
				return 0, fmt.Errorf("CPU %d is online, and %v moved", cpu, moved)
			}
			break
		}
		if time.Since(began) > repairPatience {
			return 0, fmt.Errorf("CPU %d is online since %v: %w", cpu, repairPatience, err)
		}
	}
	took := time.Since(began)
	if err := b.player.RestartKubelet(ctx); err != nil {
		return 0, err
	}
	for began = time.Now(); ; {
		line, err := b.player.Observe(ctx)
		if err == nil {
			err = onlyGrown(b.line, line, cpu)
		}
		if err == nil {
			b.line = line
			b.picture, err = b.node.picture(ctx)
			return took, err
		}
		if time.Since(began) > repairPatience {
			return 0, fmt.Errorf("kubelet gives the pods CPU %d since %v: %w", cpu, repairPatience, err)
		}
	}
}

// onlyGrown requires that those who shared CPUs have one more, in the kernel, and that nothing else has changed.
func onlyGrown(before, now *script.Line, cpu int) error {
	if len(now.Containers) != len(before.Containers) {
		return fmt.Errorf("there are %d containers, want %d", len(now.Containers), len(before.Containers))
	}
	err := grown("the shared pool", before.Pools.Shared, now.Pools.Shared, cpu)
	if now.Pools.Exclusive != before.Pools.Exclusive {
		err = errors.Join(err, fmt.Errorf("CPUs %s are owned, want %s", now.Pools.Exclusive, before.Pools.Exclusive))
	}
	for i, c := range now.Containers {
		was := before.Containers[i]
		switch {
		case c.Pod != was.Pod || c.Pool != was.Pool:
			err = errors.Join(err, fmt.Errorf("pod %s is in pool %s, want pod %s in pool %s", c.Pod, c.Pool, was.Pod,
				was.Pool))
		case c.Pod != kept.Name:
			err = errors.Join(err, grown("pod "+c.Pod, was.CPUs, c.CPUs, cpu))
		case c.CPUs != was.CPUs:
			err = errors.Join(err, fmt.Errorf("pod %s is on CPUs %s, want %s", c.Pod, c.CPUs, was.CPUs))
		}
	}
	return err
}

// grown requires that a set is what it was, and a CPU more.
func grown(what, was, is string, cpu int) error {
	want, err := cpuset.Parse(was)
	if err != nil {
		return err
	}
	if want = want.Or(cpuset.Of(cpu)); want.String() != is {
		return fmt.Errorf("%s is on CPUs %s, want %s", what, is, want)
	}
	return nil
}

// sameForASuccessor kills the daemon and compares what the next one makes of the node.
func (b *base) sameForASuccessor(ctx context.Context, want *script.Line) error {
	if err := b.restart(ctx); err != nil {
		return err
	}
	line, err := b.player.Observe(ctx)
	if err != nil {
		return err
	}
	var differs []string
	for i, c := range line.Containers {
		if i >= len(want.Containers) || c.CPUs != want.Containers[i].CPUs || c.Pod != want.Containers[i].Pod {
			differs = append(differs, c.Pod+" is on CPUs "+c.CPUs)
		}
	}
	if len(differs) > 0 || line.Pools != want.Pools {
		return fmt.Errorf("a new daemon sees another machine: %s; pools %+v, want %+v", strings.Join(differs, ", "),
			line.Pools, want.Pools)
	}
	return nil
}
