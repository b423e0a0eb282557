package main

import (
	"context"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/lend"
)

// maxUnwelcome bounds how many evictions wait: the detector wishes a container away
// once an hour at most, so more than a few mean that the API server does not answer.
const maxUnwelcome = 16

// unwelcome asks for the eviction of antagonists that were capped again and again,
// beside the detector, who waits for nobody.
type unwelcome struct {
	evictor *lend.Evictor
	wanted  chan *loop.Finding
	d       *daemon
}

// evictor is nil where nobody is evicted for what his CPI does to others.
func (p *performance) evictor(cfg *config.CPI) *unwelcome {
	if cfg.EvictAfter == 0 || cfg.Mode != config.CPIEnforce || p.d.lending.server == nil {
		return nil
	}
	return &unwelcome{d: p.d, wanted: make(chan *loop.Finding, maxUnwelcome),
		evictor: lend.NewEvictor(lend.EvictorOptions{
			API: p.d.lending.server, Log: p.d.log, Report: p.d.evictionAsked, Notify: p.d.tell,
		})}
}

// want takes the detector's wishes out of what it finds. It never waits.
func (u *unwelcome) want(f *loop.Finding) {
	if u == nil || f.Kind != detect.CommandEvent || f.Command != detect.DoEvict {
		return
	}
	select {
	case u.wanted <- f:
	default:
		u.d.log.Warn("an antagonist is not evicted: too many others wait for the API server", "pod", f.Target.Namespace+
			"/"+f.Target.Pod, "waiting", maxUnwelcome)
	}
}

func (u *unwelcome) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-u.wanted:
			pod := lend.Pod{UID: f.Target.PodUID, Namespace: f.Target.Namespace, Name: f.Target.Pod}
			if err := u.evictor.Evict(ctx, pod, "to run on another node: "+f.Why); err != nil && ctx.Err() == nil {
				u.d.log.Warn("an antagonist is not evicted; it is capped when it disturbs again", "err", err)
			}
		}
	}
}
