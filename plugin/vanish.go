package plugin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// endings are pods that lost their sandbox or a container and may be ending. Kubelet
// removes a sandbox up to a minute after its pod has ended, and after a restart of
// the runtime the end of an older pod is not announced at all: its CPUs should not
// wait until then.
type endings struct {
	mu    sync.Mutex
	pods  map[string]int  // by UID, how many looks are left
	named map[string]bool // by UID, pods that the runtime named since the last look
	wake  chan struct{}
	blind atomic.Pointer[string]
	scan  chan struct{} // a Synchronize has been: a round is due
}

const (
	// lookEvery is how long after such a loss a pod is looked at, and
	// looks how often: then the rounds go on alone.
	lookEvery = 2 * time.Second
	looks     = 15
)

func newEndings() *endings {
	return &endings{pods: map[string]int{}, named: map[string]bool{}, wake: make(chan struct{}, 1),
		scan: make(chan struct{}, 1)}
}

func (e *endings) add(uid string) {
	e.mu.Lock()
	e.pods[uid] = looks
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// synchronized asks for a round.
func (e *endings) synchronized() {
	select {
	case e.scan <- struct{}{}:
	default:
	}
}

// announced forgets a pod whose end was announced, as it usually is.
func (e *endings) announced(uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pods, uid)
}

// name notes that the runtime named a pod as one that runs.
func (e *endings) name(uid string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.named[uid] = true
}

// takeNamed returns the pods that were named since the last call.
func (e *endings) takeNamed() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	named := e.named
	e.named = map[string]bool{}
	return named
}

// ending returns the pods that may be ending, by UID.
func (e *endings) ending() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := make(map[string]bool, len(e.pods))
	for uid := range e.pods {
		now[uid] = true
	}
	return now
}

// look returns the pods that have to be looked at now.
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

// collect looks for pods and containers whose end was not announced: after a
// restart of the runtime the events of older pods never come.
func (p *Plugin) collect(ctx context.Context) {
	ticks := p.o.Clock.Vanish
	if ticks == nil {
		t := time.NewTicker(auditEvery)
		defer t.Stop()
		ticks = t.C
	}
	var soon <-chan time.Time
	var seen presence
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			p.collectOnce(ctx, &seen, nil)
		case <-p.ending.scan:
			p.collectOnce(ctx, &seen, nil)
		case <-p.ending.wake:
			if soon == nil {
				soon = p.o.Clock.After(lookEvery)
			}
		case <-soon:
			soon = nil
			if now := p.ending.look(); len(now) > 0 {
				p.collectOnce(ctx, &seen, now)
				soon = p.o.Clock.After(lookEvery)
			}
		}
	}
}

// collectOnce ends what was missing often enough; only limits it to some pods.
func (p *Plugin) collectOnce(ctx context.Context, seen *presence, only map[string]bool) {
	if p.o.Reader == nil || !p.once.Load() {
		return
	}
	var all policy.Synchronized
	if err := p.loop.ask(ctx, func(m *policy.Machine) { all = m.Checkpoint() }); err != nil {
		return
	}
	members := membersOf(&all, p.ending.ending())
	sight := p.sight(members, only == nil)
	was, named := seen.blind, p.ending.takeNamed()
	ended := seen.look(members, sight, only, named)
	p.ending.blind.Store(&seen.blind)
	switch {
	case seen.blind != "" && was == "":
		p.o.Log.Error("the cgroups that are seen are not believed; no pod ends by them", "why", seen.blind)
	case seen.blind == "" && was != "":
		p.o.Log.Info("the cgroups are seen again")
	}
	for _, m := range ended {
		p.end(ctx, &m, only != nil)
	}
	if only == nil {
		p.findUnannounced(ctx, seen, members, sight, named)
	}
}

// findUnannounced looks for pods that no event named, and gives the policy the list
// where it is another than before.
func (p *Plugin) findUnannounced(ctx context.Context, seen *presence, members []member, sight sighting,
	named map[string]bool) {
	list := suspects(members, sight, named)
	for _, s := range list {
		names, err := p.o.Reader.Children(s.CgroupPath)
		sight[s.CgroupPath] = children{names, err}
	}
	if seen.blind != "" {
		return // what was found before stays
	}
	found := seen.unannounced(list, sight)
	view := p.Snapshot()
	same := slices.EqualFunc(view.Unannounced, found, func(a, b policy.FoundPod) bool {
		return a.CgroupPath == b.CgroupPath && slices.Equal(a.Containers, b.Containers)
	})
	if same {
		return
	}
	if err := p.Submit(ctx, policy.Unannounced{Pods: found}); err != nil {
		p.o.Log.Error("pods that were never announced are not entered; they are looked for again", "err", err)
	}
}

// membersOf lists the pods, each once, and the containers.
func membersOf(all *policy.Synchronized, ending map[string]bool) []member {
	members := make([]member, 0, len(all.Pods)+len(all.Containers))
	podOf := make(map[string]string, len(all.Pods)) // UID by sandbox
	listed := make(map[string]bool, len(all.Pods))
	for i := range all.Pods {
		pod := &all.Pods[i]
		podOf[pod.Sandbox] = pod.UID
		if listed[pod.UID] {
			continue
		}
		listed[pod.UID] = true
		members = append(members, member{
			id: pod.UID, uid: pod.UID, name: pod.Namespace + "/" + pod.Name, path: cleanOf(pod.CgroupParent),
			owner: pod.Recovered != nil && pod.Recovered.CPUs != nil, ending: ending[pod.UID],
		})
	}
	for i := range all.Containers {
		c := &all.Containers[i]
		members = append(members, member{id: c.ID, uid: podOf[c.Sandbox], name: c.Name, path: cleanOf(c.CgroupPath),
			container: true})
	}
	return members
}

// sight lists the cgroups in which pods are, and those of pods that seem to lack a
// container: most have all of theirs, and a read of one file shows that.
func (p *Plugin) sight(members []member, containers bool) sighting {
	seen := sighting{}
	list := func(path string) {
		if _, done := seen[path]; !done {
			names, err := p.o.Reader.Children(path)
			seen[path] = children{names, err}
		}
	}
	for _, path := range toList(members) {
		list(path)
	}
	if containers {
		for _, path := range kubeletSlices(members) {
			list(path)
		}
	}
	for i := range members {
		m := &members[i]
		if !containers || !m.container || m.path == "" {
			continue
		}
		if _, err := p.o.Reader.CPUs(m.path); errors.Is(err, cgroup.ErrGone) {
			list(parentOf(m.path))
		}
	}
	return seen
}

// end enters an end that was found. Kubelet removes a pod's cgroup at its end and
// leaves the sandbox for later: of a pod that was ending that is usual.
func (p *Plugin) end(ctx context.Context, m *member, usual bool) {
	p.at.at(failpoint.VanishFound)
	var event policy.Event = policy.PodVanished{UID: m.id}
	what := "pod"
	if m.container {
		event, what = policy.ContainerStopped{ID: m.id}, "container"
	}
	say := p.o.Log.Warn
	if usual {
		say = p.o.Log.Info
	}
	say("its cgroup is gone; what it held is released", what, m.name)
	if err := p.Submit(ctx, event); err != nil {
		p.o.Log.Error("an end that was found is not entered; it is looked for again", what, m.name, "err", err)
	}
}

// Unseen says what of the cgroups is not seen: that they are not believed, or not read
// yet; empty: all is well.
func (p *Plugin) Unseen() string { return cmp.Or(p.Blind(), p.Unread()) }

// Blind says why the cgroups that are seen are not believed; empty: they are.
func (p *Plugin) Blind() string {
	if why := p.ending.blind.Load(); why != nil {
		return *why
	}
	return ""
}
