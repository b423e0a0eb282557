package daemon

import (
	"context"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
)

// makeCounting makes what counts and detects; last is the one before, which has ended; nil: the daemon starts.
func (d *daemon) makeCounting(cfg *config.Config, cgroups *tree, notices notifier, p *proven,
	last *counting) *counting {
	o := countingOptions{
		config: cfg, floor: d.bestEffortFloor, tree: cgroups.open(), v1: cgroups.v1(), node: d.node, metrics: d.metrics,
		log: d.log, notify: notices.notify, evictions: newEvictions(cfg, d.api, d.log), proven: p,
		beside: d.incidents.day.take,
	}
	if cfg.CPI.Mode != config.CPIOff {
		o.incidents = d.incidents.Store
	}
	d.incidents.lookFrom(cfg)
	if last != nil {
		o.kept = last.kept.Load()
	}
	next := newCounting(o)
	if last != nil && last.acts() && !next.acts() {
		d.end("what was throttled stays so until its deadline", policy.Released{})
	}
	return next
}

// makeLending makes what lends CPUs and takes them back; last is as above.
func (d *daemon) makeLending(cfg *config.Config, cgroups *tree, notices notifier, last *lending) *lending {
	o := lendingOptions{config: cfg, node: d.node, v1: cgroups.v1(), api: d.api, metrics: d.metrics, log: d.log,
		notify: notices.notify}
	if last == nil {
		return newLending(o) // it is built once there is a plugin
	}
	o.kept = last.kept.Load()
	next := newLending(o)
	if last.narrows() && !next.narrows() {
		d.end("best effort stays as narrow as it is", policy.BESuppressed{})
	}
	next.build()
	return next
}

// end ends what a part had decided that is not there any more. What it decided last may have come after the mode
// changed.
func (d *daemon) end(otherwise string, e policy.Event) {
	if err := d.node.Submit(context.Background(), e); err != nil {
		d.log.Error(otherwise, "err", err)
	}
}
