package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// misses counts how often in a row the cgroup of a pod or container was not
// there, by UID or ID.
type misses map[string]int

// enoughMisses is how often: what is being created has no cgroup for a moment.
const enoughMisses = 2

// collect looks for pods and containers whose end nobody announced: after a
// restart of the runtime the events of older pods never come.
func (p *Plugin) collect(ctx context.Context) {
	ticks := p.o.Clock.Vanish
	if ticks == nil {
		t := time.NewTicker(auditEvery)
		defer t.Stop()
		ticks = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			p.collectOnce(ctx)
		}
	}
}

func (p *Plugin) collectOnce(ctx context.Context) {
	if p.o.Reader == nil || !p.once.Load() {
		return
	}
	var all policy.Synchronized
	if err := p.loop.ask(ctx, func(m *policy.Machine) { all = m.Checkpoint() }); err != nil {
		return
	}
	seen := misses{}
	gonePods := map[string]bool{}
	for _, pod := range all.Pods {
		if p.missing(seen, pod.UID, pod.CgroupParent) && !gonePods[pod.UID] {
			gonePods[pod.UID] = true
			p.end(ctx, policy.PodVanished{UID: pod.UID}, "pod", pod.Namespace+"/"+pod.Name)
		}
	}
	for _, c := range all.Containers {
		if p.missing(seen, c.ID, c.CgroupPath) {
			p.end(ctx, policy.ContainerStopped{ID: c.ID}, "container", c.Name)
		}
	}
	p.gone = seen
}

// missing reports whether a cgroup was absent often enough in a row. A path that
// is not known says nothing.
func (p *Plugin) missing(seen misses, id, path string) bool {
	if path == "" {
		return false
	}
	if _, err := p.o.Reader.CPUs(path); !errors.Is(err, cgroup.ErrGone) {
		return false
	}
	seen[id] = p.gone[id] + 1
	return seen[id] >= enoughMisses
}

func (p *Plugin) end(ctx context.Context, e policy.Event, what, name string) {
	p.o.Log.Warn("its cgroup is gone although nobody said so; what it held is released", what, name)
	p.at.at(VanishFound)
	if err := p.Submit(ctx, e); err != nil {
		p.o.Log.Error("the vanished could not be collected", what, name, "err", err)
	}
}
