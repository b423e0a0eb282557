package daemon

import (
	"context"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/resctrl"
)

// undoBandwidth gives back what an earlier daemon held back from memory, unless this one is to write nothing at all.
func (d *daemon) undoBandwidth(cfg *config.Config) {
	said := d.cfg.modes.now()
	if cfg.CPI.Resctrl == "" || cfg.Mode == config.Observe && !said.undoes(d.cfg.file.Load().Mode) {
		return
	}
	if err := resctrl.Clear(resctrl.Dir(cfg.CPI.Resctrl)); err != nil {
		d.log.Warn("what an earlier daemon held back from memory stays so", "err", err)
	}
}

// openHolder opens what holds containers back from memory, where that is wanted.
func (p *counting) openHolder() {
	if p.cfg.Resctrl == "" || !p.acts() || p.cfg.Experiment() == nil {
		return
	}
	h := resctrl.Open(resctrl.Options{Folder: resctrl.Dir(p.cfg.Resctrl), Threads: resctrl.ThreadsIn(p.counted, p.o.v1),
		Log: p.o.log})
	p.holder.Store(h)
	if why := h.Why(); why != "" {
		p.o.log.Warn("memory bandwidth is not limited; other steps are", "why", why)
	}
}

// holdBack keeps the deadlines of what is held back, until ctx ends. Nothing is held any more then.
func (p *counting) holdBack(ctx context.Context) {
	if h := p.holder.Load(); h != nil {
		h.Run(ctx)
	}
}

// narrows says whether a container can be held back from memory, by ID.
func (p *counting) narrows(id string) bool {
	h := p.holder.Load()
	return h != nil && h.Offers(id)
}

// whyWide is why memory bandwidth is not limited although it should be; empty: it is.
func (p *counting) whyWide() string {
	if h := p.holder.Load(); h != nil && h.Why() != "" {
		return "memory bandwidth is not limited: " + h.Why()
	}
	return ""
}
