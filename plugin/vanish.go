package plugin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// misses counts how often in a row the cgroup of a pod or container was not
// there, by UID or ID.
type misses map[string]int

// enoughMisses is how often: what is being created has no cgroup for a moment.
const enoughMisses = 2

// endings are pods that lost their sandbox or a container and may be ending. Kubelet
// removes a sandbox up to a minute after its pod has ended, and after a restart of
// the runtime the end of an older pod is not announced at all: nobody should wait
// for its CPUs until then.
type endings struct {
	mu   sync.Mutex
	pods map[string]int // by UID, how often to look yet
	wake chan struct{}
}

const (
	// lookEvery is how long after such a loss a pod is looked at, and
	// looks how often: then the rounds go on alone.
	lookEvery = 2 * time.Second
	looks     = 15
)

func newEndings() *endings { return &endings{pods: map[string]int{}, wake: make(chan struct{}, 1)} }

func (e *endings) add(uid string) {
	e.mu.Lock()
	e.pods[uid] = looks
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// told forgets a pod whose end was announced, as it usually is.
func (e *endings) told(uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pods, uid)
}

// look returns who has to be looked at now.
func (e *endings) look() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := make(map[string]bool, len(e.pods))
	for uid := range e.pods {
		now[uid] = true
		if e.pods[uid]--; e.pods[uid] <= 0 {
			delete(e.pods, uid)
		}
	}
	return now
}

// collect looks for pods and containers whose end nobody announced: after a
// restart of the runtime the events of older pods never come.
func (p *Plugin) collect(ctx context.Context) {
	ticks := p.o.Clock.Vanish
	if ticks == nil {
		t := time.NewTicker(auditEvery)
		defer t.Stop()
		ticks = t.C
	}
	var soon <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			p.gone = p.collectOnce(ctx, p.gone, nil)
		case <-p.ending.wake:
			if soon == nil {
				soon = p.o.Clock.After(lookEvery)
			}
		case <-soon:
			soon = nil
			if now := p.ending.look(); len(now) > 0 {
				p.goneSoon = p.collectOnce(ctx, p.goneSoon, now)
				soon = p.o.Clock.After(lookEvery)
			}
		}
	}
}

// collectOnce ends who was missing often enough; only limits it to some pods. It
// returns who is missing, for the next time.
func (p *Plugin) collectOnce(ctx context.Context, before misses, only map[string]bool) misses {
	if p.o.Reader == nil || !p.once.Load() {
		return before
	}
	var all policy.Synchronized
	if err := p.loop.ask(ctx, func(m *policy.Machine) { all = m.Checkpoint() }); err != nil {
		return before
	}
	seen := misses{}
	gonePods := map[string]bool{}
	for _, pod := range all.Pods {
		if only != nil && !only[pod.UID] {
			continue
		}
		if p.missing(before, seen, pod.UID, pod.CgroupParent) && !gonePods[pod.UID] {
			gonePods[pod.UID] = true
			// Kubelet removes a pod's cgroup at its end and leaves the sandbox for later:
			// of one that was stopping that is no accident.
			say := p.o.Log.Warn
			if only != nil {
				say = p.o.Log.Info
			}
			say("its cgroup is gone; what it held is released", "pod", pod.Namespace+"/"+pod.Name)
			p.end(ctx, policy.PodVanished{UID: pod.UID}, "pod", pod.Namespace+"/"+pod.Name)
		}
	}
	if only != nil {
		return seen
	}
	for _, c := range all.Containers {
		if p.missing(before, seen, c.ID, c.CgroupPath) {
			p.o.Log.Warn("its cgroup is gone although nobody said so", "container", c.Name)
			p.end(ctx, policy.ContainerStopped{ID: c.ID}, "container", c.Name)
		}
	}
	return seen
}

// missing reports whether a cgroup was absent often enough in a row. A path that
// is not known says nothing.
func (p *Plugin) missing(before, seen misses, id, path string) bool {
	if path == "" {
		return false
	}
	if _, err := p.o.Reader.CPUs(path); !errors.Is(err, cgroup.ErrGone) {
		return false
	}
	seen[id] = before[id] + 1
	return seen[id] >= enoughMisses
}

func (p *Plugin) end(ctx context.Context, e policy.Event, what, name string) {
	p.at.at(VanishFound)
	if err := p.Submit(ctx, e); err != nil {
		p.o.Log.Error("the vanished could not be collected", what, name, "err", err)
	}
}
