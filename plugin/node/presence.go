package node

import (
	"errors"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// presence looks for pods and containers that ended without an event, and for pods that were never
// announced: after its restart the runtime sends no events of older pods.
//
// Kubelet removes a sandbox up to a minute after its pod has ended. CPUs of a pod that lost its
// sandbox or a container should be free earlier, so such a pod is looked at every two seconds
// for a while, in addition to the rounds over all pods.
type presence struct {
	c        *Core
	absences absences
	stops    map[string]int  // by UID, the number of looks left at a pod that may be terminating
	named    map[string]bool // by UID, pods that the runtime has named since the last look
	roundDue bool
	lookAt   time.Time // of the next look at the pods in stops; zero: none
	running  bool
	rounds   uint64 // completed
}

const (
	// lookEvery is the interval of looks at a pod that lost its sandbox or a container; after
	// looks of them only the rounds go on.
	lookEvery = 2 * time.Second
	looks     = 15
)

func newPresence(c *Core) presence {
	return presence{c: c, stops: map[string]int{}, named: map[string]bool{}}
}

// stopping adds a pod that may be terminating.
func (p *presence) stopping(uid string) {
	p.stops[uid] = looks
	if p.lookAt.IsZero() {
		p.lookAt = p.c.now.Add(lookEvery)
	}
}

// noteRequest records what a request says about its pod: it runs, or it has ended.
func (p *presence) noteRequest(r *Request) {
	switch r.Event.(type) {
	case policy.PodRun, policy.ContainerCreate, policy.ContainerUpdate:
		p.named[r.Pod] = true
	case policy.PodRemoved:
		delete(p.stops, r.Pod)
	}
}

func (p *presence) next() time.Time {
	if p.running {
		return time.Time{}
	}
	return p.lookAt
}

// proceed starts what is due: a round, or a look at the pods that may be terminating.
func (p *presence) proceed() {
	if !p.c.o.Tree.Reads || !p.c.takeover.once {
		p.roundDue = false
		return
	}
	switch {
	case p.running:
	case p.roundDue:
		p.roundDue = false
		p.begin(nil)
	case !p.lookAt.IsZero() && !p.c.now.Before(p.lookAt):
		p.lookAt = time.Time{}
		if only := p.nextLook(); len(only) > 0 {
			p.lookAt = p.c.now.Add(lookEvery)
			p.begin(only)
		}
	}
}

// nextLook returns the pods of the next look.
func (p *presence) nextLook() map[string]bool {
	only := make(map[string]bool, len(p.stops))
	for uid := range p.stops {
		only[uid] = true
		if p.stops[uid]--; p.stops[uid] <= 0 {
			delete(p.stops, uid)
		}
	}
	return only
}

func (p *presence) begin(only map[string]bool) {
	p.running = true
	p.c.run("presence", func(do do) { p.look(outside{do}, only) }, func(any) {
		p.running = false
		if only == nil {
			p.rounds++
		}
	})
}

// look ends the pods and containers that were missing often enough; only limits it to some pods.
func (p *presence) look(out outside, only map[string]bool) {
	all := p.c.machine.Checkpoint()
	ending := make(map[string]bool, len(p.stops))
	for uid := range p.stops {
		ending[uid] = true
	}
	members := membersOf(&all, ending)
	seen := p.list(out, members, only == nil)
	was, named := p.absences.blind, p.named
	p.named = map[string]bool{}
	ended := p.absences.look(members, seen, only, named)
	switch blind := p.absences.blind; {
	case blind != "" && was == "":
		p.c.o.Log.Error("listings of cgroups are not trusted; no pod is released because of them", "why", blind)
	case blind == "" && was != "":
		p.c.o.Log.Info("listings of cgroups are trusted again")
	}
	for i := range ended {
		p.end(&ended[i], only != nil)
	}
	if only == nil {
		p.findUnannounced(out, members, seen, named)
	}
}

// findUnannounced looks for pods that no event has named, and gives the policy their list if it has
// changed.
func (p *presence) findUnannounced(out outside, members []member, seen listings, named map[string]bool) {
	list := unknownPods(members, seen, named)
	for _, s := range list {
		names, err := out.Children(s.CgroupPath)
		seen[s.CgroupPath] = children{names, err}
	}
	if p.absences.blind != "" {
		return // the last list stays
	}
	// The runtime may have named one of them during this look.
	list = slices.DeleteFunc(list, func(s policy.FoundPod) bool { return p.named[s.UID] })
	found := p.absences.unannounced(list, seen)
	if slices.EqualFunc(p.c.machine.Snapshot().Unannounced, found, func(a, b policy.FoundPod) bool {
		return a.CgroupPath == b.CgroupPath && slices.Equal(a.Containers, b.Containers)
	}) {
		return
	}
	if err := p.c.take(policy.Unannounced{Pods: found}, nil).err; err != nil {
		p.c.o.Log.Error("unannounced pods are not taken over; the next round tries again", "pods", len(found), "err",
			err)
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
			owner: owns(pod.Recovered), ending: ending[pod.UID],
		})
	}
	for i := range all.Containers {
		c := &all.Containers[i]
		members = append(members, member{id: c.ID, uid: podOf[c.Sandbox], name: c.Name, path: cleanOf(c.CgroupPath),
			container: true})
	}
	return members
}

// owns reports whether a pod, or a container of it, owns CPUs.
func owns(r *policy.Recovered) bool {
	return r != nil && (r.CPUs != nil || slices.ContainsFunc(r.Owners, func(o policy.RecoveredContainer) bool {
		return o.CPUs != nil
	}))
}

// list lists the parents of pods, and the pods that seem to lack a container: most have all of
// theirs, which the read of one file for each container shows.
func (p *presence) list(out outside, members []member, containers bool) listings {
	seen := listings{}
	list := func(path string) {
		if _, done := seen[path]; !done {
			names, err := out.Children(path)
			seen[path] = children{names, err}
		}
	}
	for _, path := range toList(members) {
		list(path)
	}
	if !containers {
		return seen
	}
	for _, path := range kubeletSlices(members) {
		list(path)
	}
	for i := range members {
		m := &members[i]
		if !m.container || m.path == "" {
			continue
		}
		if _, err := out.CPUs(m.path); errors.Is(err, cgroup.ErrGone) {
			list(parentOf(m.path))
		}
	}
	return seen
}

// end tells the policy of an end that was found. usual: the pod was known to be terminating. Kubelet
// removes its cgroup then, and its sandbox later.
func (p *presence) end(m *member, usual bool) {
	p.c.o.At(failpoint.VanishFound)
	var event policy.Event = policy.PodVanished{UID: m.id}
	what := "pod"
	if m.container {
		event, what = policy.ContainerStopped{ID: m.id}, "container"
	}
	report := p.c.o.Log.Warn
	if usual {
		report = p.c.o.Log.Info
	}
	report("its cgroup is gone; its CPUs are released", what, m.name)
	if err := p.c.take(event, nil).err; err != nil {
		p.c.o.Log.Error("its end is not taken over; the next round tries again", what, m.name, "err", err)
	}
}
