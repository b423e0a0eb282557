package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// newRuntime stops containerd 1.7 under running pods and starts 2.x on what it has left, as an upgrade of a node does.
// The daemon goes on: nobody moves, a pod of the old runtime ends and gives its CPUs back, and a new one is placed.
func newRuntime(ctx context.Context, n *node) ([]figure, error) {
	b, err := newBase(ctx, n)
	if err != nil {
		return nil, err
	}
	was, err := b.runtimeVersion(ctx)
	if err != nil {
		return nil, err
	}
	old := owner(sweep.LSR, 2, "old")
	if _, err := b.create(ctx, old); err != nil {
		return nil, err
	}
	with := &base{node: n}
	if with.line, err = n.player.Observe(ctx); err == nil {
		with.picture, err = n.picture(ctx)
	}
	if err != nil {
		return nil, err
	}
	daemon, err := b.pid(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.ChangeRuntime(ctx, machine.Containerd); err != nil {
		return nil, err
	}
	is, err := b.runtimeVersion(ctx)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(was, "v1.7.") || !strings.HasPrefix(is, "v2.") {
		return nil, fmt.Errorf("the runtime is %s and was %s: this is no upgrade from 1.7 to 2.x", is, was)
	}
	if err := with.sameSoon(ctx); err != nil {
		return nil, fmt.Errorf("with containerd %s: %w", is, err)
	}
	figures := []figure{{Name: "containerd", Value: was + ", then " + is},
		{Name: "pods that went on, none moved", Value: len(with.line.Containers)},
		{Name: "until everything is as before", Value: round(time.Since(began))}}
	return figures, b.livesOn(ctx, old, daemon)
}

// livesOn starts and ends pods under the new runtime.
func (b *base) livesOn(ctx context.Context, old workload, daemon string) error {
	young := owner(sweep.LSR, 2, "young")
	line, err := b.create(ctx, young)
	if err == nil {
		err = owns(line, young)
	}
	if err == nil {
		err = disjoint(line)
	}
	if err != nil {
		return fmt.Errorf("a pod of the new runtime: %w", err)
	}
	for _, w := range []workload{old, young} {
		if _, err := b.remove(ctx, w.Name); err != nil {
			return err
		}
	}
	if err := b.sameSoon(ctx); err != nil {
		return fmt.Errorf("both have ended: %w", err)
	}
	now, err := b.pid(ctx)
	if err == nil && now != daemon {
		err = fmt.Errorf("the daemon is process %s, was %s", now, daemon)
	}
	return err
}

// runtimeVersion is what the runtime says of itself.
func (b *base) runtimeVersion(ctx context.Context) (string, error) {
	v, err := b.CRI().Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", err
	}
	return "v" + strings.TrimPrefix(v.RuntimeVersion, "v"), nil
}
