package main

import (
	"context"
	"sync"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/page"
)

// servePage shows the node to browsers until ctx ends. It is worth less than pods
// that start in their places: where it cannot be served, that is said, and all
// else goes on.
func (d *daemon) servePage(ctx context.Context) {
	cfg := d.cfg.Load()
	if cfg.Page.Listen == "" {
		return
	}
	o := page.Options{Look: d.look, History: d.cpi.history, Node: cfg.NodeName(), Version: version, Log: d.log}
	if d.incidents != nil {
		o.Incidents = d.incidents
	}
	p, err := page.New(o)
	if err != nil {
		d.log.Error("the page is not served", "err", err)
		return
	}
	l, err := page.Listen(cfg.Page.Listen)
	if err != nil {
		d.log.Error("the page is not served", "listen", cfg.Page.Listen, "err", err)
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { p.Run(ctx) })
	if err := page.Serve(ctx, l, p.Handler()); err != nil {
		d.log.Error("the page is served no longer", "err", err)
	}
}

// look is what the page shows, and the same that the control socket tells.
func (d *daemon) look() page.Look {
	return page.Look{
		Snapshot: d.plugin.Snapshot(), Connected: d.plugin.Connected(), Synchronised: d.plugin.Synchronised(),
		Observe: d.observes(), Unpinned: d.plugin.Unpinned(), Performance: d.cpi.report(),
		Lending: d.lending.measured(),
	}
}

// observes says that nothing is written. A reload does not change it: mode takes effect
// at a start.
func (d *daemon) observes() bool { return d.lending.cfg.Mode == config.Observe }

// measured is what production and best effort use; nil where nobody looks.
func (l *lending) measured() *page.Lending {
	if l == nil || l.loop == nil {
		return nil
	}
	s := l.loop.Status()
	return &page.Lending{Known: s.Known, Production: s.Production, Batch: s.Batch, Offered: s.Estimated, Offer: s.Offer}
}

// history is the kept samples of a container, oldest first.
func (p *performance) history(id string) []sample.Sample {
	c := p.counts.Load()
	if c == nil {
		return nil
	}
	return c.sampler.History(id, nil)
}
