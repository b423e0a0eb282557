package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

const (
	// refuseAnnotation is what the refuser of the sampler's program looks at.
	refuseAnnotation = "test.quietcore.dev/refuse"
	// retries is how often a pod that does not fit is tried.
	retries = 20
)

// disorder tests what a runtime and its other plugins may do out of order.
func disorder(ctx context.Context, n *node) ([]figure, error) {
	b, err := newBase(ctx, n)
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"refused by a later plugin", b.refusedLater},
		{fmt.Sprintf("refused and retried %d times", retries), b.retried},
		{"a second daemon", b.second},
		{"stopped past the runtime's timeout", b.stalled},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return figures, fmt.Errorf("%s: %w", step.name, err)
		}
		figures = append(figures, figure{Name: step.name, Value: fmt.Sprintf("nothing leaked, %.0f s",
			time.Since(began).Seconds())})
	}
	return figures, nil
}

// refusedLater lets a later plugin refuse a container that we have placed.
func (b *base) refusedLater(ctx context.Context) error {
	if err := b.Start(ctx, refuserName, samplerPath, "refuse"); err != nil {
		return err
	}
	defer func() { _ = b.Clean(context.WithoutCancel(ctx)) }()
	if err := b.until(ctx, "the second plugin is registered", func() (bool, error) {
		return strings.Contains(b.LogTail(ctx, refuserName, 10000), "Started plugin"), nil
	}); err != nil {
		return err
	}
	_, err := b.create(ctx, owner(sweep.LSR, 2, "unwanted").annotated(refuseAnnotation, "main"))
	if err == nil || !strings.Contains(err.Error(), "is refused for a test") {
		return fmt.Errorf("the other plugin refused nothing: %w", err)
	}
	return b.same(ctx)
}

// until waits for a condition.
func (b *base) until(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		done, err := ok()
		if done || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it is still not so that %s: %w", what, ctx.Err())
		}
	}
}

// retried plays kubelet with a pod that never fits.
func (b *base) retried(ctx context.Context) error {
	for range retries {
		line, err := b.create(ctx, owner(sweep.LSE, 64, "huge"))
		if line == nil || line.Error == nil {
			return fmt.Errorf("a pod that does not fit was not refused: %w", err)
		}
	}
	return b.same(ctx)
}

// second starts a daemon next to the one that runs.
func (b *base) second(ctx context.Context) error {
	r, err := b.Exec(ctx, "/usr/bin/quietcore", "run", "--config", "/etc/quietcore/config.yaml")
	if err == nil || r.Code != 1 {
		return fmt.Errorf("the second daemon ended with code %d: %w", r.Code, err)
	}
	if !strings.Contains(r.Stderr, "in use by another quietcore, pid ") {
		return fmt.Errorf("the second daemon does not say who the first is: %s", r.Stderr)
	}
	return b.same(ctx)
}

// signalAll sends a signal to every process of that name. It uses nothing but the
// shell, which every guest has.
func (n *node) signalAll(ctx context.Context, signal, name string) error {
	_, err := n.Exec(ctx, "sh", "-c", fmt.Sprintf(
		`for p in /proc/[0-9]*; do c=; read c 2>/dev/null < $p/comm; [ "$c" = %s ] && kill -%s ${p#/proc/}; done; :`,
		name, signal))
	return err
}

// stalled stops the daemon for longer than the runtime waits.
func (b *base) stalled(ctx context.Context) error {
	w := owner(sweep.LSR, 2, "stalled")
	if err := b.signalAll(ctx, "STOP", "quietcore"); err != nil {
		return err
	}
	err := b.without(func() error {
		_, err := b.create(ctx, w)
		return err
	})
	err = errors.Join(err, b.signalAll(ctx, "CONT", "quietcore"))
	if err != nil {
		return err
	}
	var last error
	err = b.until(ctx, "the daemon has taken the pod over", func() (bool, error) {
		line, err := b.player.Observe(ctx)
		if err != nil {
			return false, err
		}
		last = errors.Join(disjoint(line), owns(line, w))
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	if _, err := b.remove(ctx, w.Name); err != nil {
		return err
	}
	return b.same(ctx)
}
