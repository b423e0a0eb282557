package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/quietcore/quietcore/e2e/machine"
)

const (
	// asleep is how long a cap is to last, and how long the machine then sleeps. A clock that stops meanwhile would
	// keep the cap for nearly as long once more.
	asleep = 100 * time.Second
	// soon after waking: the daemon looks every second, and the host may be busy.
	soon = 20 * time.Second
	nap  = 2 * time.Second
	// naps are tried until one is within a window.
	naps = 8
)

// sleep suspends the machine to memory. A window that was open counts for nothing, and the next ones count again. A cap
// stays through a nap, and ends at once after a sleep that was longer than what was left of it.
func sleep(ctx context.Context, n *node) ([]figure, error) {
	const config = `{authority: {profile: open}, cpi: {mode: enforce, interval: 4s, window: 2s, ` +
		`budget: {node: 0, cpu: 0}, standIns: {cycles: on-cpu-nanoseconds, instructions: page-faults}}}`
	if err := n.configured(ctx, config); err != nil {
		return nil, err
	}
	b, err := n.settledBase(ctx)
	if err != nil {
		return nil, err
	}
	figures, err := b.napsInWindows(ctx)
	if err == nil {
		var more []figure
		more, err = b.sleepThroughACap(ctx)
		figures = append(figures, more...)
	}
	if err != nil {
		err = fmt.Errorf("%w\nthe daemon's log:\n%s", err, b.LogTail(ctx, machine.Daemon, 3000))
	}
	return figures, err
}

// napsInWindows puts the machine to sleep for moments until a window was open.
func (b *base) napsInWindows(ctx context.Context) ([]figure, error) {
	before, err := b.windowsUntil(ctx, func(w endedWindows) bool { return w.ok >= 2 })
	if err != nil {
		return nil, err
	}
	for i := range naps {
		if err := b.Sleep(ctx, nap); err != nil {
			return nil, err
		}
		// The window of the nap ends, and two more.
		after, err := b.windowsUntil(ctx, func(w endedWindows) bool { return w.all() >= before.all()+3 })
		switch {
		case err != nil:
			return nil, err
		case after.dropped == before.dropped:
			before = after // it was in the pause between two
		case after.ok == before.ok:
			return nil, fmt.Errorf("no window is whole after a nap: %+v, then %+v", before, after)
		default:
			return []figure{{Name: "naps until one was in a window", Value: i + 1},
				{Name: "windows dropped, whole ones since", Value: fmt.Sprint(after.dropped-before.dropped, ", ",
					after.ok-before.ok)}}, b.same(ctx)
		}
	}
	return nil, fmt.Errorf("no window was dropped in %d naps", naps)
}

// endedWindows are how many have ended, whole or not.
type endedWindows struct{ ok, dropped int }

func (w endedWindows) all() int { return w.ok + w.dropped }

var windowLine = regexp.MustCompile(`(?m)^quietcore_cpi_windows_total\{result="(ok|dropped)"\} (\d+)$`)

// windowsUntil waits until enough windows have ended.
func (b *base) windowsUntil(ctx context.Context, enough func(endedWindows) bool) (endedWindows, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var w endedWindows
	for {
		text, err := b.metrics(ctx)
		if err != nil {
			return w, fmt.Errorf("windows ended: %+v: %w", w, err)
		}
		for _, m := range windowLine.FindAllStringSubmatch(text, -1) {
			count, _ := strconv.Atoi(m[2]) // digits
			if m[1] == "ok" {
				w.ok = count
			} else {
				w.dropped = count
			}
		}
		if enough(w) {
			return w, nil
		}
	}
}

// sleepThroughACap naps, which leaves a cap in force, and sleeps for as long as it was to last.
func (b *base) sleepThroughACap(ctx context.Context) ([]figure, error) {
	batch := bestEffort("batch")
	whole, err := b.limitOf(ctx, batch)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	limit, err := b.capped(ctx, batch, whole)
	if err != nil {
		return nil, err
	}
	if err := b.Sleep(ctx, nap); err != nil {
		return nil, err
	}
	if err := b.windowsPass(ctx); err != nil {
		return nil, err
	}
	switch now, err := b.limitOf(ctx, batch); {
	case err != nil:
		return nil, err
	case now != limit:
		return nil, fmt.Errorf("a cap for %v is gone after a nap, %v after it began: cpu.max is %q, was %q", asleep,
			round(time.Since(began)), now, limit)
	}
	if err := b.Sleep(ctx, asleep); err != nil {
		return nil, err
	}
	ended, err := b.limitBack(ctx, batch, whole)
	if err != nil {
		return nil, fmt.Errorf("a cap for %v, %v after it began: %w", asleep, round(time.Since(began)), err)
	}
	return []figure{{Name: "asleep for as long as a cap was to last", Value: asleep},
		{Name: "it ended after waking within", Value: ended}}, b.same(ctx)
}

// windowsPass waits until two windows have ended, and so the daemon has had time to act.
func (b *base) windowsPass(ctx context.Context) error {
	before, err := b.windowsUntil(ctx, func(endedWindows) bool { return true })
	if err == nil {
		_, err = b.windowsUntil(ctx, func(w endedWindows) bool { return w.all() >= before.all()+2 })
	}
	return err
}

// capped caps a pod, and returns its limit in the kernel, which was whole.
func (b *base) capped(ctx context.Context, w workload, whole string) (string, error) {
	_, err := b.player.Do(ctx, fmt.Sprintf("cap: {pod: %s, container: main, cpu: 0.1, seconds: %g}", w.Name,
		asleep.Seconds()))
	if err != nil {
		return "", err
	}
	limit, err := b.limitOf(ctx, w)
	if err == nil && limit == whole {
		err = fmt.Errorf("the cap of %s is not in force: cpu.max is %q", w.Name, limit)
	}
	return limit, err
}

// limitBack waits until a pod's limit is whole, and says how long that took.
func (b *base) limitBack(ctx context.Context, w workload, whole string) (time.Duration, error) {
	for from := time.Now(); ; {
		now, err := b.limitOf(ctx, w)
		if err != nil {
			return 0, err
		}
		passed := round(time.Since(from))
		if now == whole {
			return passed, nil
		}
		if passed > soon {
			return 0, fmt.Errorf("%v later cpu.max of %s is %q, not %q", passed, w.Name, now, whole)
		}
	}
}

// limitOf is the limit of the pod's container in the kernel.
func (b *base) limitOf(ctx context.Context, w workload) (string, error) {
	dir, err := b.cgroupOf(ctx, w)
	if err != nil {
		return "", err
	}
	return b.ReadFile(ctx, cgroupRoot+"/"+dir+"/cpu.max")
}
