package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// cage is the cgroup in which the daemon is given little.
const cage = cgroupRoot + "/starved"

// starved takes from the daemon what it needs to work: descriptors, CPU, and then its memory, for which the kernel
// kills it. Meanwhile an owner comes. It starts on CPUs of its own or the runtime hears why not, nobody else
// moves, and once the daemon has enough again everything is as if it always had.
func starved(ctx context.Context, n *node) ([]figure, error) {
	b, err := newBase(ctx, n)
	if err != nil {
		return nil, err
	}
	defer b.Exec(context.WithoutCancel(ctx), "rmdir", cage)
	var figures []figure
	for _, lack := range []struct {
		name string
		play func(context.Context) (string, error)
	}{
		{"no file descriptor is left", b.withoutDescriptors},
		{"50m CPU", b.withoutCPU},
		{"less memory than it uses", b.withoutMemory},
	} {
		began := time.Now()
		seen, err := lack.play(ctx)
		if err == nil {
			err = b.sameSoon(ctx)
		}
		if err != nil {
			return figures, fmt.Errorf("%s: %w\nthe daemon's log:\n%s", lack.name, err,
				b.LogTail(ctx, machine.Daemon, 3000))
		}
		figures = append(figures, figure{Name: lack.name, Value: fmt.Sprintf("%s; then nothing has moved, %.0f s", seen,
			time.Since(began).Seconds())})
	}
	return figures, nil
}

func (b *base) withoutDescriptors(ctx context.Context) (string, error) {
	pid, err := b.pid(ctx)
	if err != nil {
		return "", err
	}
	was, err := b.Exec(ctx, samplerPath, "starve", pid)
	if err != nil {
		return "", err
	}
	return b.meanwhile(ctx, func() error {
		_, err := b.Exec(ctx, samplerPath, "feed", pid, strings.TrimSpace(was.Stdout))
		return err
	})
}

func (b *base) withoutCPU(ctx context.Context) (string, error) {
	if err := b.confine(ctx, "cpu.max", "5000 100000"); err != nil {
		return "", err
	}
	return b.meanwhile(ctx, func() error { return b.WriteFile(ctx, cage+"/cpu.max", "max 100000") })
}

// meanwhile starts an owner while the daemon lacks something, checks that nobody else has moved, gives the daemon what
// it lacked and removes the owner.
func (b *base) meanwhile(ctx context.Context, relieve func() error) (string, error) {
	w := owner(sweep.LSR, 2, "late")
	var created error
	if err := b.without(func() error { _, created = b.create(ctx, w); return nil }); err != nil {
		return "", err
	}
	if err := errors.Join(b.unmoved(ctx), relieve()); err != nil {
		return "", err
	}
	if created != nil {
		return "the owner was refused: " + reason(created), nil
	}
	if err := b.settledWith(ctx, w); err != nil {
		return "", err
	}
	_, err := b.remove(ctx, w.Name)
	return "the owner got its CPUs", err
}

// withoutMemory leaves the daemon a few pages on top of those that it has. The kernel kills it in the middle of an
// owner's start.
func (b *base) withoutMemory(ctx context.Context) (string, error) {
	if err := b.confine(ctx, "memory.max", "65536"); err != nil {
		return "", err
	}
	return b.meanwhile(ctx, func() error {
		if err := b.dead(ctx, "a page that it may not have"); err != nil {
			return err
		}
		events, err := b.ReadFile(ctx, cage+"/memory.events")
		if err == nil && !strings.Contains(events, "\noom_kill 1\n") {
			err = fmt.Errorf("the kernel did not kill the daemon for its memory: %s", strings.Fields(events))
		}
		return errors.Join(err, b.StartDaemon(ctx))
	})
}

// confine moves the daemon into the cage, with this limit.
func (b *base) confine(ctx context.Context, file, limit string) error {
	pid, err := b.pid(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.WriteFile(ctx, cgroupRoot+"/cgroup.subtree_control", "+cpu +memory"),
		b.mkdir(ctx, cage), b.WriteFile(ctx, cage+"/"+file, limit), b.WriteFile(ctx, cage+"/cgroup.procs", pid))
}

func (b *base) mkdir(ctx context.Context, dir string) error {
	_, err := b.Exec(ctx, "mkdir", "-p", dir)
	return err
}

// pid of the daemon.
func (b *base) pid(ctx context.Context) (string, error) {
	out, err := b.Exec(ctx, "pidof", "quietcore")
	return strings.TrimSpace(out.Stdout), err
}

// settledWith waits until an owner that was created has CPUs of its own.
func (b *base) settledWith(ctx context.Context, w workload) error {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	for {
		line, err := b.player.Observe(ctx)
		if err == nil {
			if err = owns(line, w); err == nil {
				return disjoint(line)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it was created and is no owner after %v: %w", collectLimit, err)
		}
		time.Sleep(time.Second)
	}
}

// reason is what the daemon answered, of what the runtime makes of it.
func reason(err error) string {
	const before = "desc = "
	text := err.Error()
	if at := strings.LastIndex(text, before); at >= 0 {
		return text[at+len(before):]
	}
	return text
}
