package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuset"
)

// reserved shows best-effort pods of both of Kubernetes' QoS classes on the CPUs that all of them
// together are left: the reserved ones first, also where production leaves room for more.
func reserved(ctx context.Context, n *node) ([]figure, error) {
	const config = "{authority: {profile: open}, reserved: {cpus: '0-1'}, suppression: {mode: enforce, threshold: 100}}"
	if err := n.configured(ctx, config); err != nil {
		return nil, err
	}
	first := cpuset.Range(0, 1)
	batch, paid, web := bestEffort("batch"), bestEffort("paid"), shared("web", 100)
	paid.milli = 100 // Burstable
	b := &bothClasses{n: n}
	for _, w := range []workload{batch, paid, web} {
		if _, err := n.create(ctx, w); err != nil {
			return nil, err
		}
	}
	for _, w := range []workload{batch, paid} {
		dir, err := n.cgroupOf(ctx, w)
		if err != nil {
			return nil, err
		}
		b.files = append(b.files, dir+"/cpuset.cpus.effective")
	}
	wide := func(c cpuset.Set) bool { return first.SubsetOf(&c) && c.Count() > first.Count() }
	narrow := func(c cpuset.Set) bool { return c == first }
	busy := func(threads int, of ...workload) func() error {
		return func() error {
			for _, w := range of {
				if err := n.spin(ctx, w, threads); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, s := range []struct {
		what string
		do   func() error
		want func(cpuset.Set) bool
	}{
		{"best effort at first: more than the reserved CPUs", busy(0), wide},
		{"it rests: the reserved CPUs alone", busy(0), narrow},
		{"it is busy: more", busy(1, batch, paid), wide},
		{"production is busy too: the floor", busy(grid.CPUs(), web), narrow},
	} {
		if err := s.do(); err != nil {
			return b.figures, err
		}
		if err := b.until(ctx, s.what, s.want); err != nil {
			return b.figures, err
		}
	}
	return b.figures, nil
}

// bothClasses looks at the CPUs of one container of each QoS class.
type bothClasses struct {
	n       *node
	files   []string
	figures []figure
}

// until waits until both have the same CPUs, and such as are wanted.
func (b *bothClasses) until(ctx context.Context, what string, want func(cpuset.Set) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 150*time.Second)
	defer cancel()
	began := time.Now()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		all, err := b.n.picture(ctx)
		if err != nil {
			return err
		}
		now := all[b.files[0]]
		cpus, err := cpuset.Parse(now)
		if err != nil {
			return fmt.Errorf("%s is %q: %w", b.files[0], now, err)
		}
		if want(cpus) && all[b.files[1]] == now {
			b.figures = append(b.figures, figure{Name: what, Value: fmt.Sprintf("CPUs %s after %s", now,
				time.Since(began).Round(100*time.Millisecond))})
			fmt.Fprintf(b.n.stderr, "  %s: CPUs %s\n", what, now)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, status, err := b.n.HTTP(context.WithoutCancel(ctx), controlSocket, "GET", "/v1/status", nil)
			return fmt.Errorf("%s: best effort has CPUs %s, in the burstable slice %s: %w\n%s (%v)", what, now,
				all[b.files[1]], context.Cause(ctx), status, err)
		}
	}
}
