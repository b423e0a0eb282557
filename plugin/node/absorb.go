package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// absorb brings the tree up to what a batch decided. It writes nothing.
func (e *writer) absorb(b batch) {
	if b.topo != nil {
		e.topo, e.rev = b.topo, b.rev
		e.tree.SetOnline(b.topo.Online())
	}
	if b.anew {
		b.decisions = slices.Concat(e.dropsBut(b.decisions), b.decisions, e.poolsBut(b.decisions))
	}
	for _, d := range b.decisions {
		switch d := d.(type) {
		case policy.SetPool:
			e.setPool(d)
			e.c.o.Log.Info("pool", "pool", string(d.ID), "cpus", d.CPUs.String(), "rev", e.rev)
		case policy.DropPool:
			e.tree.DropPool(string(d.ID))
		case policy.SetPod:
			e.setPod(d)
		case policy.SetContainer:
			e.setContainer(d, b.observed)
		case policy.DropContainer:
			e.tree.Remove(d.ID)
			drop(e.ctrs[d.ID])
			delete(e.ctrs, d.ID)
			delete(e.audit.strays, d.ID)
		case policy.DropPod:
			e.tree.Remove(d.UID)
			s := e.pods[d.UID]
			drop(s)
			delete(e.pods, d.UID)
			e.foreignTo(s, false)
		case policy.SetUnannounced:
			e.setUnannounced(d)
		case policy.DropUnannounced:
			e.dropUnannounced(d.UID)
		case policy.Notice:
			e.c.o.Log.Warn(d.Message, "reason", d.Reason, "pod", podName(d.Pod))
			e.c.o.Notify(d)
		}
	}
	if b.live {
		e.live = true
		e.findSlices()
		if e.reader != nil {
			e.tree.LookAbove(e.reader.CPUs) // before the first write
		}
	}
	for path, found := range b.observed {
		e.tree.Observe(path, found)
	}
	e.audit.verify = append(e.audit.verify, b.verify...)
	e.lookAgain(b.recheck)
	e.limits.soon = append(e.limits.soon, b.soon...)
	if b.audit {
		e.startAudit()
	}
}

// dropsBut drops every pod and container that decisions, the whole state of a new
// machine, do not name.
func (e *writer) dropsBut(decisions []policy.Decision) []policy.Decision {
	named := map[string]place{}
	note(named, decisions)
	var drops []policy.Decision
	for _, id := range slices.Sorted(maps.Keys(e.ctrs)) {
		if _, ok := named[id]; !ok {
			drops = append(drops, policy.DropContainer{ID: id})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(e.pods)) {
		if _, ok := named[uid]; !ok {
			drops = append(drops, policy.DropPod{UID: uid})
		}
	}
	return drops
}

// poolsBut drops every pool that is not in use after decisions, the whole state of a new
// machine.
func (e *writer) poolsBut(decisions []policy.Decision) []policy.Decision {
	used := map[policy.PoolID]bool{}
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPool:
			used[d.ID] = true
		case policy.DropPool:
			delete(used, d.ID)
		}
	}
	var drops []policy.Decision
	for _, name := range e.tree.Pools() {
		if id := policy.PoolID(name); !used[id] {
			drops = append(drops, policy.DropPool{ID: id})
		}
	}
	return drops
}

// lookAgain looks at the quotas of pods that are ours to set.
func (e *writer) lookAgain(uids []string) {
	for _, uid := range uids {
		if s := e.pods[uid]; s != nil && (s.limit.ours || s.idle.ours) {
			e.lookAtLimit(s)
		}
	}
}

// foundID is the tree's name of a pod that was never announced; it differs from that
// of the same pod once it is.
func foundID(uid string) string { return "unannounced/" + uid }

// setUnannounced masks a pod that was never announced, and what is in it: on cgroup
// v1 nothing inherits.
func (e *writer) setUnannounced(d policy.SetUnannounced) {
	id := foundID(d.Pod.UID)
	e.putSlice(d.Pod.CgroupPath)
	need := treeNeed(d.Need)
	ids := []string{id}
	err := e.tree.PutPod(cgroup.Pod{ID: id, Path: d.Pod.CgroupPath, Need: need})
	for _, path := range d.Pod.Containers {
		if err != nil {
			break
		}
		ids = append(ids, id+"/"+path)
		err = e.tree.PutContainer(cgroup.Container{ID: id + "/" + path, Pod: id, Path: path, Need: need})
	}
	if err != nil {
		e.c.o.Log.Error("a pod that was never announced cannot be masked", "cgroup", d.Pod.CgroupPath, "err", err)
	}
	for _, old := range e.found[d.Pod.UID] {
		if !slices.Contains(ids, old) {
			e.tree.Remove(old)
		}
	}
	e.found[d.Pod.UID] = ids
}

func (e *writer) dropUnannounced(uid string) {
	for _, id := range slices.Backward(e.found[uid]) {
		e.tree.Remove(id)
	}
	delete(e.found, uid)
}

func drop(s *subject) {
	if s != nil {
		s.dropped = true
	}
}

func podName(p policy.PodRef) string {
	if p.Name == "" {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

func (e *writer) setPool(d policy.SetPool) {
	if err := e.tree.SetPool(string(d.ID), d.CPUs); err != nil {
		e.c.o.Log.Error("pool refused by the cgroup tree", "pool", string(d.ID), "err", err)
	}
	if d.ID == policy.PoolBE.ID() {
		e.limitBE(d.QuotaMilli)
	}
}

func treeNeed(n policy.Need) cgroup.Need {
	if n.Own != nil {
		return cgroup.On(*n.Own)
	}
	return cgroup.InPool(string(n.Pool))
}

func memsOf(s *cpuset.Set) cpuset.Set {
	if s == nil {
		return cpuset.Set{}
	}
	return *s
}

func (e *writer) setPod(d policy.SetPod) {
	s := e.pods[d.Pod.UID]
	first := s == nil
	if first {
		s = &subject{}
		e.pods[d.Pod.UID] = s
	}
	if d.Rev < s.rev {
		return
	}
	s.rev, s.path, s.name = d.Rev, d.Pod.CgroupParent, podName(d.Pod)
	if s.path == "" {
		return
	}
	e.putSlice(s.path)
	e.foreignTo(s, d.Need.Own != nil || d.Need.Pool != policy.PoolBE.ID())
	if err := e.tree.PutPod(cgroup.Pod{ID: d.Pod.UID, Path: s.path, Need: treeNeed(d.Need),
		Mems: memsOf(d.Mems)}); err != nil {
		e.c.o.Log.Error("pod has no usable cgroup and only its containers' replies pin it", "pod", s.name, "err", err)
	}
	e.keepRoom(s, &d)
	s.asked = cgroup.Quota(d.Asked)
	s.weight = 0
	if d.WeightMilli > 0 {
		s.weight = cgroup.WeightOf(d.WeightMilli)
	}
	look := s.idle.want(d.Idle, first && d.Pod.QoS == policy.BestEffort)
	if s.limit.want(d.Quota, d.QuotaOurs) || look {
		e.lookAtLimit(s)
	}
}

// roomID is the tree's name of what a pod keeps for a container that owns CPUs.
func roomID(uid, container string) string { return uid + "/room/" + container }

// keepRoom keeps the CPUs of containers in the mask of their pod.
func (e *writer) keepRoom(s *subject, d *policy.SetPod) {
	for _, name := range s.rooms {
		if !slices.ContainsFunc(d.Owned, func(o policy.Owned) bool { return o.Container == name }) {
			e.tree.Remove(roomID(d.Pod.UID, name))
		}
	}
	s.rooms = nil
	for _, o := range d.Owned {
		if err := e.tree.PutRoom(roomID(d.Pod.UID, o.Container), d.Pod.UID, o.CPUs); err != nil {
			e.c.o.Log.Error("a pod does not keep the CPUs of its container", "pod", s.name, "container", o.Container,
				"err", err)
			continue
		}
		s.rooms = append(s.rooms, o.Container)
	}
}

// foreignTo notes whether a pod is one that its slice's limit must not touch.
func (e *writer) foreignTo(s *subject, is bool) {
	if s == nil {
		return
	}
	slice := e.limits.slices[cgroup.Parent(s.path)]
	if is = is && slice != nil; is == s.foreign {
		return
	}
	if s.foreign = is; slice != nil {
		e.limitSlice(slice)
	}
}

// setContainer follows what was decided of a container. found is what cgroups were found to hold
// where it comes of a takeover: there no reply of ours has made the runtime write a mask.
func (e *writer) setContainer(d policy.SetContainer, found observations) {
	s := e.ctrs[d.Container.ID]
	if s == nil {
		s = &subject{}
		e.ctrs[d.Container.ID] = s
	}
	if d.Rev < s.rev {
		return
	}
	s.rev, s.path, s.name = d.Rev, d.Container.CgroupPath, podName(d.Pod)+"/"+d.Container.Name
	if s.path != "" && e.pods[d.Pod.UID] != nil && e.pods[d.Pod.UID].path != "" {
		c := cgroup.Container{ID: d.Container.ID, Pod: d.Pod.UID, Path: s.path, Need: treeNeed(d.Need),
			Mems: memsOf(d.Mems)}
		unknown := s.logged == "" && found != nil && (d.Beside != nil || len(e.pods[d.Pod.UID].rooms) > 0)
		if s.logged == "" && !unknown {
			c.OwnCPUs = e.replied(&d)
		}
		if err := e.tree.PutContainer(c); err != nil {
			e.c.o.Log.Error("container has no usable cgroup and only its replies pin it", "container", s.name, "err",
				err)
		}
		if _, read := found[s.path]; unknown && !read {
			e.tree.Unread(s.path)
		}
	}
	s.asked, s.container = cgroup.Quota(d.Asked.Quota), true
	if d.Cap != nil && !e.c.saving.has(d.Cap) {
		e.capLater(d)
	} else if s.limit.found(d.Asked.OurQuota); s.limit.want(d.Quota, d.QuotaOurs) {
		e.lookAtLimit(s)
	}
	e.report(s, d)
}

// capLater leaves a container its limit until its cap is on disk: a daemon that finds cgroups
// blind after this one was killed undoes the caps of the file only.
func (e *writer) capLater(d policy.SetContainer) {
	e.c.saving.now(func() {
		e.c.hand.owe(nil)
		e.c.o.At(failpoint.CapSaved)
		// Of one that is not in the file now something else was decided, with a newer revision.
		if e.c.machine.Knows(d.Container.ID) && e.c.saving.has(d.Cap) {
			e.put(batch{decisions: []policy.Decision{d}})
		}
		e.c.hand.paid()
	})
}

// replied is the mask that our reply makes the runtime write; empty: none.
func (e *writer) replied(d *policy.SetContainer) cpuset.Set {
	switch {
	case d.Need.Own != nil:
		return *d.Need.Own
	case d.Beside != nil:
		return *d.Beside
	case d.Asked.CPUs:
		return e.topo.Online()
	}
	return cpuset.Set{}
}

// report logs one line where a container's place changed by a decision about it.
func (e *writer) report(s *subject, d policy.SetContainer) {
	now := "pool " + string(d.Need.Pool)
	if d.Need.Own != nil {
		now = d.Need.Own.String()
	}
	if d.Cap != nil {
		now += fmt.Sprintf(" capped at %dm until %s", d.Cap.Milli, d.Cap.Until.UTC().Format("15:04:05"))
	}
	if now == s.logged {
		return
	}
	e.c.o.Log.Info("container", "pod", podName(d.Pod), "container", d.Container.Name, "cpus", now, "was", s.logged,
		"why",
		d.Why, "rev", d.Rev)
	s.logged = now
}

// maxSlices bounds how many parents of pods are looked after; kubelet has two.
const maxSlices = 64

// putSlice declares the slice that a pod lies in, so that whoever starts there
// while nobody watches lands in its pool.
func (e *writer) putSlice(pod string) {
	path := cgroup.Parent(pod)
	if e.slices[path] || len(e.slices) >= maxSlices {
		return
	}
	var pool policy.PoolID
	switch cgroup.Classify(path) {
	case cgroup.Burstable:
		pool = policy.PoolShared.ID()
	case cgroup.BestEffort:
		pool = policy.PoolBE.ID()
	default:
		return
	}
	if cgroup.IsUnit(path) && !e.c.o.Tree.Records && !e.raw {
		e.raw = true
		e.c.o.Log.Warn(
			"the cgroups are systemd's and are written as files: systemd puts its own values back at every reload, "+
				"and the audit ours; set cgroup.driver to auto", "cgroup", path)
	}
	e.slices[path] = true
	if err := e.tree.PutSlice(cgroup.Slice{Path: path, Need: cgroup.InPool(string(pool))}); err != nil {
		e.c.o.Log.Error("slice refused by the cgroup tree", "cgroup", path, "err", err)
		return
	}
	if pool == policy.PoolBE.ID() {
		e.limits.slices[path] = &subject{path: path, name: path, limit: limit{ours: true},
			asked: cgroup.Quota(noQuota())}
		e.limitSlice(e.limits.slices[path])
	}
	if e.reader != nil {
		e.tree.Unread(path)
		e.readBackMask(path)
	}
}

// readBackMask settles what is uncertain about a cgroup's mask, if it can be read.
func (e *writer) readBackMask(path string) {
	switch found, err := e.reader.CPUs(path); {
	case errors.Is(err, cgroup.ErrGone):
		e.tree.Gone(path)
	case err == nil && e.slices[path]:
		e.tree.ReadBack(path, e.lasting(path, found), e.c.now)
	case err == nil:
		e.tree.ReadBack(path, found, e.c.now)
	}
}

// lasting is a slice's mask as far as it lasts: one that its manager does not have
// on record, say from a version that wrote files, ends with the next reload.
func (e *writer) lasting(path string, found cgroup.Effective) cgroup.Effective {
	if !e.c.o.Tree.Records {
		return found
	}
	if set, ok, err := e.out.recorded(path); err == nil && ok && set != found.OwnCPUs {
		found.OwnCPUs = cpuset.Set{}
	}
	return found
}

// KubeletSlices are the slices of kubelet, where they usually are.
func KubeletSlices() []string {
	return []string{
		"kubepods/burstable", "kubepods/besteffort",
		"kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-besteffort.slice",
	}
}

// findSlices looks for kubelet's slices where they usually are: they want their
// masks before the first pod is in them. One that cannot be read is left for the
// next audit, or for its first pod.
func (e *writer) findSlices() {
	if e.reader == nil {
		return
	}
	for _, path := range KubeletSlices() {
		if e.slices[path] {
			continue
		}
		if _, err := e.reader.CPUs(path); err == nil {
			e.putSlice(path + "/x")
		}
	}
}
