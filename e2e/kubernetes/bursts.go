package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

// bursts: production uses many CPUs for 5 s, 30 s and ten minutes beside busy batch pods, and once
// with a daemon that has 50 thousandths of a CPU. Best effort gives way, and nobody is evicted.
func bursts(ctx context.Context, b *bench) ([]figure, error) {
	l := &lent{bench: b, batch: map[string]*cluster.Pod{}}
	err := l.prepareBursts(ctx)
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return l.burstOf(ctx, "production's burst of 5 s", 5*time.Second) },
		func(ctx context.Context) error { return l.burstOf(ctx, "production's burst of 30 s", 30*time.Second) },
		l.starved,
		func(ctx context.Context) error { return l.burstOf(ctx, "production's burst of 10 min", 10*time.Minute) },
	} {
		if err == nil {
			err = part(ctx)
		}
	}
	return l.out, errors.Join(err, l.quiet(context.WithoutCancel(ctx), l.spins), l.finish(context.WithoutCancel(ctx)))
}

func (l *lent) prepareBursts(ctx context.Context) error {
	if err := l.shopAndLending(ctx); err != nil {
		return err
	}
	for _, name := range []string{"busy-old", "busy-young"} {
		pod, err := l.startBatch(ctx, name, busyMilli)
		if err != nil {
			return err
		}
		l.batch[name] = pod
		if err := l.burst(ctx, pod, 2); err != nil {
			return err
		}
	}
	l.rec = l.record(ctx)
	return nil
}

// burstOf is one burst: when best effort had given way, and what production waited from then on.
func (l *lent) burstOf(ctx context.Context, name string, span time.Duration) error {
	wide, err := l.rec.until(ctx, growLimit, fmt.Sprintf("best effort has more than %d CPUs", mostCPUs),
		func(p point) bool { return p.Pool > mostCPUs })
	if err != nil {
		return err
	}
	end, err := l.load(ctx, l.shop, "spin", fmt.Sprintf("%d 1h", shopThreads))
	if err != nil {
		return err
	}
	began := time.Now()
	err = l.givesWay(ctx, name, wide.At, func(ctx context.Context) error {
		return pass(span - time.Since(began))(ctx)
	})
	return errors.Join(err, end(ctx), l.everybodyStays(ctx))
}

// givesWay waits for best effort to give way, and then for a span in which it must stay narrow.
func (l *lent) givesWay(ctx context.Context, name string, from float64, span func(context.Context) error) error {
	_, err := l.rec.until(ctx, starvedLimit, "best effort has given way", func(p point) bool {
		return p.At > from && p.Shop > 1 && p.Pool <= mostCPUs
	})
	if err != nil {
		return err
	}
	first, err := l.counters(ctx)
	if err != nil {
		return err
	}
	took, at, err := gaveWay(l.rec.all(), from, mostCPUs)
	if err != nil {
		return err
	}
	if err := span(ctx); err != nil {
		return err
	}
	last, err := l.counters(ctx)
	if err != nil {
		return err
	}
	waited := "it was over by then"
	if s := last.span - first.span; s > 1 {
		waited = fmt.Sprintf("then production waited for a CPU %.2f %% of %.0f s", 100*(last.waited-first.waited)/s, s)
	}
	l.note(name, "best effort at %d CPUs or fewer after %s; %s", mostCPUs, seconds(took), waited)
	for _, p := range l.rec.all() {
		if p.At >= at && p.At < last.span && p.Shop >= begins && p.Pool > mostCPUs {
			return fmt.Errorf("best effort had %d CPUs again at %.1f s while production was busy", p.Pool, p.At)
		}
	}
	return nil
}

// starvedLimit bounds how long a daemon with hardly any CPU may take to answer a burst.
const starvedLimit = 3 * time.Minute

// starved: the daemon has 50 thousandths of a CPU, which on emulated CPUs do a small part of the work
// that they would do elsewhere.
func (l *lent) starved(ctx context.Context) error {
	const dir = "/sys/fs/cgroup/starved"
	pid := path.Base(daemonBinary)
	script := fmt.Sprintf("busybox mkdir -p %s && echo '5000 100000' > %s/cpu.max && for p in $(busybox pidof %s); do "+
		"echo $p > %s/cgroup.procs; done && busybox cat %s/cgroup.procs", dir, dir, pid, dir, dir)
	res, err := l.node.Exec(ctx, "busybox", "sh", "-c", script)
	if err != nil || res.Stdout == "" {
		return fmt.Errorf("starve the daemon: %q: %w", res.Stderr, err)
	}
	err = l.burstOf(ctx, "the same of 30 s with a daemon of 50m", 30*time.Second)
	fed, errFed := l.node.Exec(ctx, "busybox", "sh", "-c", "echo max > "+dir+"/cpu.max && busybox cat "+dir+"/cpu.stat")
	if err = errors.Join(err, errFed); err != nil {
		return err
	}
	var periods, stopped int
	for line := range strings.Lines(fed.Stdout) {
		_, _ = fmt.Sscanf(line, "nr_periods %d", &periods)
		_, _ = fmt.Sscanf(line, "nr_throttled %d", &stopped)
	}
	l.note("the starved daemon", "stopped by its quota in %d of %d periods in which it ran", stopped, periods)
	if periods == 0 || stopped < periods/2 {
		return fmt.Errorf("the daemon was stopped in %d of %d periods only: this shows nothing", stopped, periods)
	}
	return nil
}
