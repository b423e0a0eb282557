package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// StepFunc is a step of a machine.
type StepFunc func(*policy.Machine, time.Time, policy.Event) ([]policy.Decision, error)

// anchor is what a machine is rebuilt from after a step that panicked and may have left it half
// changed: the last checkpoint with the events since then, and the last decision about every
// pod and container. No pod loses its CPUs by a rebuild: it restores everything that was
// decided, or it fails.
type anchor struct {
	recorder *policy.Recorder
	cfg      policy.Config
	topo     *topology.Topology
	decided  map[string]place
	claims   map[string][]cpuset.Set // the last decision about each claim of our own driver
	unread   []string                // pods, by UID, without a decision: what they own is not known yet
}

// place is the last decision about a pod, by its UID, or a container, by its ID.
type place struct {
	pod string      // the UID of a container's pod
	own *cpuset.Set // nil: it runs in a pool
	// named are the CPUs that containers of a pod own.
	named []policy.Owned
}

func newAnchor(m *policy.Machine, cfg policy.Config) anchor {
	return anchor{
		recorder: policy.NewRecorder(recordedEvents), cfg: cfg, topo: m.Topology(), decided: map[string]place{},
		claims: map[string][]cpuset.Set{},
	}
}

// update records what a successful step has changed.
func (a *anchor) update(m *policy.Machine, now time.Time, e policy.Event, decisions []policy.Decision) {
	a.topo = m.Topology()
	if e, ok := e.(policy.Reconfigured); ok {
		a.cfg = e.Config
		a.recorder.Rebase(m, now) // no record holds a configuration
	}
	note(a.decided, decisions)
	noteClaims(a.claims, decisions)
	a.unread = m.UnreadUIDs()
}

func note(decided map[string]place, decisions []policy.Decision) {
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPod:
			decided[d.Pod.UID] = place{own: d.Need.Own, named: d.Owned}
		case policy.SetContainer:
			decided[d.Container.ID] = place{pod: d.Pod.UID, own: d.Need.Own}
		case policy.DropContainer:
			delete(decided, d.ID)
		case policy.DropPod:
			delete(decided, d.UID)
		}
	}
}

// rebuilt is a machine with the decisions about everything in it.
type rebuilt struct {
	machine   *policy.Machine
	decisions []policy.Decision
	leftOut   []policy.Record // events that panicked again
}

// rebuild makes a machine with everything that was decided before the panic. broken is the machine
// that panicked: what the record cannot restore is taken from it.
func (a *anchor) rebuild(step StepFunc, now time.Time, broken *policy.Machine) (*rebuilt, error) {
	rev := broken.Rev()
	r, err := a.replay(step, a.recorder.Latest(), rev)
	if err != nil {
		return nil, err
	}
	left := r.leftOut
	// Replay a checkpoint of that machine, with everything that is missing in it: its decisions
	// are the whole state, without pods that have ended since the record began.
	fresh := policy.NewRecorder(1)
	fresh.Rebase(r.machine, now)
	records := fresh.Latest()
	for i := range records {
		if records[i].Hardware != nil {
			records[i].Hardware = &policy.Hardware{Online: a.topo.Online()}
		}
		if s := records[i].Synchronized; s != nil {
			was := checkpointOf(broken)
			a.putBack(s, &was)
			restoreResized(s, &was, left)
		}
	}
	if r, err = a.replay(step, records, rev); err != nil {
		return nil, err
	}
	r.leftOut = append(left, r.leftOut...)
	for _, d := range r.machine.UsedPools() { // the pools of a new machine are no step's decisions
		r.decisions = append(r.decisions, d)
	}
	for _, uid := range a.unread {
		if !r.machine.KnowsPod(uid) {
			return nil, fmt.Errorf("%w: pod %s, whose cgroup is not read yet, is missing", errLost, uid)
		}
	}
	return r, a.compare(r.decisions)
}

// replay feeds records to an empty machine. If one panics, replay starts again without it.
func (a *anchor) replay(step StepFunc, records []policy.Record, rev uint64) (*rebuilt, error) {
	var leftOut []policy.Record
	for {
		m, err := policy.New(a.topo, a.cfg)
		if err != nil {
			return nil, err
		}
		m.Continue(rev)
		r := &rebuilt{machine: m, leftOut: leftOut}
		bad := -1
		for i := range records {
			decisions, ok := tryStep(step, m, records[i])
			if !ok {
				bad = i
				break
			}
			r.decisions = append(r.decisions, decisions...)
		}
		if bad < 0 {
			return r, nil
		}
		leftOut = append(leftOut, records[bad])
		records = slices.Delete(records, bad, bad+1)
	}
}

// tryStep is a step that may panic; then ok is false. An error is ignored: the event was refused
// when it was recorded, too.
func tryStep(step StepFunc, m *policy.Machine, r policy.Record) (decisions []policy.Decision, ok bool) {
	defer func() {
		if recover() != nil {
			decisions, ok = nil, false
		}
	}()
	decisions, _ = step(m, r.At, r.Event())
	return decisions, true
}

// checkpointOf is the checkpoint of a broken machine; empty if that panics too.
func checkpointOf(broken *policy.Machine) (s policy.Synchronized) {
	defer func() {
		if recover() != nil {
			s = policy.Synchronized{}
		}
	}()
	return broken.Checkpoint()
}

// putBack adds to a checkpoint the pods and containers that have a decision and are missing in it:
// as the broken machine has them, on the CPUs of the decision.
func (a *anchor) putBack(s, broken *policy.Synchronized) {
	have, were := map[string]bool{}, map[string]*policy.Recovered{}
	for i := range broken.Pods {
		were[broken.Pods[i].UID] = broken.Pods[i].Recovered
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		have[p.UID] = true
		a.restoreOwn(p)
		a.restorePool(p, were[p.UID])
	}
	for _, p := range broken.Pods {
		_, decided := a.decided[p.UID]
		if !decided || have[p.UID] {
			continue
		}
		a.restoreOwn(&p)
		a.restorePool(&p, p.Recovered)
		s.Pods = append(s.Pods, p)
	}
	s.Caps = append(s.Caps, slices.DeleteFunc(slices.Clone(broken.Caps), func(lost policy.Cap) bool {
		return slices.ContainsFunc(s.Caps, func(c policy.Cap) bool {
			return c.PodUID == lost.PodUID && c.Container == lost.Container
		})
	})...)
	a.putBackClaims(s, broken)
	before := map[string]*policy.Container{}
	for i := range broken.Containers {
		before[broken.Containers[i].ID] = &broken.Containers[i]
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		have[c.ID] = true
		restoreStoredLimits(c, before[c.ID])
	}
	sandboxes := map[string]bool{}
	for _, p := range s.Pods {
		sandboxes[p.Sandbox] = true
	}
	for _, c := range broken.Containers {
		if _, decided := a.decided[c.ID]; decided && !have[c.ID] && sandboxes[c.Sandbox] {
			s.Containers = append(s.Containers, c)
		}
	}
}

// restoreOwn makes a pod recover the CPUs that were decided for it.
func (a *anchor) restoreOwn(p *policy.Pod) {
	was := a.decided[p.UID].own
	for _, o := range a.decided[p.UID].named {
		a.restoreNamed(p, o)
	}
	if was == nil || a.decided[p.UID].named != nil {
		return
	}
	r := policy.Recovered{From: "kernel"}
	if p.Recovered != nil {
		r = *p.Recovered
	}
	if r.CPUs == nil || !keeps(was, r.CPUs, a.topo.Online()) {
		r.CPUs, r.Withheld = was, nil
		r.Degraded, r.Demoted = "", false // it has received CPUs since
		p.Recovered = &r
	}
}

// restoreNamed does the same for a container of the pod.
func (a *anchor) restoreNamed(p *policy.Pod, was policy.Owned) {
	r := policy.Recovered{From: "kernel"}
	if p.Recovered != nil {
		r = *p.Recovered
	}
	is := policy.RecoveredContainer{Container: was.Container, Recovered: policy.Recovered{From: "kernel"}}
	at := slices.IndexFunc(r.Owners, func(o policy.RecoveredContainer) bool { return o.Container == was.Container })
	r.Owners = slices.Clone(r.Owners)
	if at >= 0 {
		is = r.Owners[at]
		r.Owners = slices.Delete(r.Owners, at, at+1)
	}
	if is.CPUs == nil || !keeps(&was.CPUs, is.CPUs, a.topo.Online()) {
		is.CPUs, is.Withheld = &was.CPUs, nil
		is.Degraded, is.Demoted = "", false // it has received CPUs since
	}
	r.Owners, r.Degraded, r.Demoted = append(r.Owners, is), "", false
	p.Recovered = &r
}

// restoreStoredLimits keeps what the runtime stores of our limits: the event behind a limit may be left
// out, but the runtime has its reply.
func restoreStoredLimits(c, was *policy.Container) {
	switch {
	case was == nil || !was.Asked.OurQuota:
	case !c.Asked.OurQuota:
		if slices.Contains(was.StoredLimits, c.Asked.Quota.Milli()) {
			c.Asked.Quota = was.Asked.Quota // the runtime's is one of ours
		}
		c.Asked.OurQuota, c.StoredLimits = true, was.StoredLimits
	case c.StoredLimits == nil || was.StoredLimits == nil:
		c.StoredLimits = nil // any
	default:
		c.StoredLimits = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.StoredLimits, was.StoredLimits))))
	}
}

// restoreResized keeps what kubelet asks for after resizes that are left out: they were answered, so kubelet does not
// repeat them, and of a container that is capped nobody else knows the limit.
func restoreResized(s, broken *policy.Synchronized, left []policy.Record) {
	for _, r := range left {
		if r.ContainerUpdate == nil {
			continue
		}
		is, was := containerAmong(s, r.ContainerUpdate.ID), containerAmong(broken, r.ContainerUpdate.ID)
		if is == nil || was == nil {
			continue
		}
		ours := is.Asked.OurQuota || was.Asked.OurQuota
		is.Resources, is.Shares, is.CPUs, is.Asked = was.Resources, was.Shares, was.CPUs, was.Asked
		is.Asked.OurQuota = ours
		pod, before := podAmong(s, is.Sandbox), podAmong(broken, was.Sandbox)
		if pod == nil || before == nil {
			continue
		}
		pod.Resources, pod.LimitHidden = before.Resources, before.LimitHidden
		of := func(c policy.Cap) bool { return c.PodUID == pod.UID && c.Container == is.Name }
		if at := slices.IndexFunc(broken.Caps, of); at >= 0 {
			s.Caps = append(slices.DeleteFunc(s.Caps, of), broken.Caps[at])
		}
	}
}

func containerAmong(s *policy.Synchronized, id string) *policy.Container {
	if at := slices.IndexFunc(s.Containers, func(c policy.Container) bool { return c.ID == id }); at >= 0 {
		return &s.Containers[at]
	}
	return nil
}

func podAmong(s *policy.Synchronized, sandbox string) *policy.Pod {
	if at := slices.IndexFunc(s.Pods, func(p policy.Pod) bool { return p.Sandbox == sandbox }); at >= 0 {
		return &s.Pods[at]
	}
	return nil
}

// restorePool keeps a pod that ran in a pool from owning CPUs because an event is left out: it
// waits for them. was is its state in the broken machine.
func (a *anchor) restorePool(p *policy.Pod, was *policy.Recovered) {
	at, decided := a.decided[p.UID]
	online := a.topo.Online()
	owns := func(r *policy.Recovered) bool { return r != nil && r.CPUs != nil && r.CPUs.Intersects(&online) }
	if !decided || at.own != nil || !owns(p.Recovered) {
		return
	}
	if p.Recovered = was; owns(was) {
		p.Recovered = &policy.Recovered{From: "kernel", Narrowed: was.Narrowed,
			Degraded: "its place was lost by an internal error"}
	}
}

var errLost = errors.New("the rebuilt machine differs from the one that panicked")

// compare requires every owner to have its CPUs, and no pod or container to be missing.
func (a *anchor) compare(decisions []policy.Decision) error {
	now, online := map[string]place{}, a.topo.Online()
	note(now, decisions)
	for _, id := range slices.Sorted(maps.Keys(a.decided)) {
		was := a.decided[id]
		is, there := now[id]
		switch {
		case !there:
			return fmt.Errorf("%w: %s is missing", errLost, id)
		case !keepsNamed(was.named, is.named, online):
			return fmt.Errorf("%w: containers of %s had %v and would have %v", errLost, id, was.named, is.named)
		case was.own == nil && is.own == nil || was.own != nil && is.own != nil && keeps(was.own, is.own, online):
		default:
			return fmt.Errorf("%w: %s had CPUs %s and would have %s", errLost, id, textOf(was.own), textOf(is.own))
		}
	}
	return a.compareClaims(decisions)
}

// keeps reports whether an owner has all of its CPUs that are online. It may have more: CPUs that
// have come back online.
func keeps(was, is *cpuset.Set, online cpuset.Set) bool {
	left := was.And(online)
	return left.SubsetOf(is)
}

// keepsNamed reports the same about the containers of a pod.
func keepsNamed(was, is []policy.Owned, online cpuset.Set) bool {
	return len(was) == len(is) && !slices.ContainsFunc(was, func(o policy.Owned) bool {
		return !slices.ContainsFunc(is, func(n policy.Owned) bool {
			return n.Container == o.Container && keeps(&o.CPUs, &n.CPUs, online)
		})
	})
}

func textOf(own *cpuset.Set) string {
	if own == nil {
		return "of a pool"
	}
	return own.String()
}
