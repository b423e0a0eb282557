package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// absorb applies the decisions of a batch to the tree. It writes nothing, and reads nothing before the
// tree has the whole batch: waiting replies look at the tree while the routine waits for a read.
func (w *writer) absorb(b batch) {
	if b.topo != nil {
		w.topo, w.rev = b.topo, b.rev
		w.tree.SetOnline(b.topo.Online())
	}
	if b.full {
		b.decisions = slices.Concat(w.dropsBut(b.decisions), b.decisions, w.poolsBut(b.decisions))
	}
	for _, d := range b.decisions {
		switch d := d.(type) {
		case policy.SetPool:
			w.setPool(d)
			w.c.o.Log.Info("pool", "pool", string(d.ID), "cpus", d.CPUs.String(), "rev", w.rev)
		case policy.DropPool:
			w.tree.DropPool(string(d.ID))
		case policy.SetPod:
			w.setPod(d, b.observed)
		case policy.SetContainer:
			w.setContainer(d, b.observed)
		case policy.DropContainer:
			w.tree.Remove(d.ID)
			w.forgetContainer(d.ID)
			delete(w.audit.drifted, d.ID)
		case policy.DropPod:
			w.tree.Remove(d.UID)
			s := w.pods[d.UID]
			drop(s)
			delete(w.pods, d.UID)
			w.setForeign(s, false)
		case policy.SetUnannounced:
			w.setUnannounced(d)
		case policy.DropUnannounced:
			w.dropUnannounced(d.UID)
		case policy.Notice:
			w.c.o.Log.Warn(d.Message, "reason", d.Reason, "pod", podName(d.Pod))
			w.c.o.Notify(d)
		}
	}
	for path, found := range b.observed {
		w.tree.Observe(path, *cmp.Or(found, &cgroup.Effective{}))
	}
	for _, m := range b.created {
		w.tree.Made(m.id, m.cpus)
	}
	for _, id := range b.verify {
		delete(w.unproven, id)
	}
	switch {
	case b.lost:
		w.loseReplies()
	case b.listed:
		w.listed()
	}
	w.audit.verify = append(w.audit.verify, b.verify...)
	w.lookAgain(b.recheck)
	w.limits.soon = append(w.limits.soon, b.soon...)
	if b.audit {
		w.startAudit()
	}
	if b.resume {
		w.resume()
	}
	if b.live {
		w.live = true
		w.findSlices()
		if w.reader != nil {
			w.tree.LookAbove(w.reader.CPUs) // before the first write
		}
		if w.resuming {
			w.resuming = false
			w.startAudit()
		}
	}
}

// dropsBut drops every pod and container that is not in decisions, the whole state of a new
// machine.
func (w *writer) dropsBut(decisions []policy.Decision) []policy.Decision {
	named := map[string]place{}
	note(named, decisions)
	var drops []policy.Decision
	for _, id := range slices.Sorted(maps.Keys(w.ctrs)) {
		if _, ok := named[id]; !ok {
			drops = append(drops, policy.DropContainer{ID: id})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		if _, ok := named[uid]; !ok {
			drops = append(drops, policy.DropPod{UID: uid})
		}
	}
	return drops
}

// poolsBut drops every pool that is not in use after decisions, the whole state of a new
// machine.
func (w *writer) poolsBut(decisions []policy.Decision) []policy.Decision {
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
	for _, name := range w.tree.Pools() {
		if id := policy.PoolID(name); !used[id] {
			drops = append(drops, policy.DropPool{ID: id})
		}
	}
	return drops
}

// lookAgain queues the pods' quotas that we manage.
func (w *writer) lookAgain(uids []string) {
	for _, uid := range uids {
		if s := w.pods[uid]; s != nil && (s.limit.ours || s.idle.ours) {
			w.lookAtLimit(s)
		}
	}
}

// foundID is the tree's ID of an unannounced pod. It differs from the pod's UID, which is its ID
// once it is announced.
func foundID(uid string) string { return "unannounced/" + uid }

// setUnannounced masks an unannounced pod and its child cgroups: on cgroup v1 masks are not
// inherited.
func (w *writer) setUnannounced(d policy.SetUnannounced) {
	id := foundID(d.Pod.UID)
	w.putSlice(d.Pod.CgroupPath)
	need := treeNeed(d.Need)
	ids := []string{id}
	err := w.tree.PutPod(cgroup.Pod{ID: id, Path: d.Pod.CgroupPath, Need: need})
	for _, path := range d.Pod.Containers {
		if err != nil {
			break
		}
		ids = append(ids, id+"/"+path)
		err = w.tree.PutContainer(cgroup.Container{ID: id + "/" + path, Pod: id, Path: path, Need: need})
	}
	if err != nil {
		w.c.o.Log.Error("a pod that was never announced cannot be masked", "cgroup", d.Pod.CgroupPath, "err", err)
	}
	for _, old := range w.found[d.Pod.UID] {
		if !slices.Contains(ids, old) {
			w.tree.Remove(old)
		}
	}
	w.found[d.Pod.UID] = ids
}

func (w *writer) dropUnannounced(uid string) {
	for _, id := range slices.Backward(w.found[uid]) {
		w.tree.Remove(id)
	}
	delete(w.found, uid)
}

func (w *writer) forgetContainer(id string) {
	if s := w.ctrs[id]; s != nil {
		drop(s)
		delete(w.unanswered, cleanOf(s.path))
		delete(w.unproven, id)
		delete(w.ctrs, id)
	}
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

func (w *writer) setPool(d policy.SetPool) {
	if err := w.tree.SetPool(string(d.ID), d.CPUs); err != nil {
		w.c.o.Log.Error("pool refused by the cgroup tree", "pool", string(d.ID), "err", err)
	}
	if d.ID == policy.PoolBE.ID() {
		w.limitBE(d.QuotaMilli)
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

// setPod applies a decision about a pod. A cgroup that was not read may have any mask.
func (w *writer) setPod(d policy.SetPod, found observations) {
	s := w.pods[d.Pod.UID]
	first := s == nil
	if first {
		s = &subject{}
		w.pods[d.Pod.UID] = s
	}
	if d.Rev < s.rev {
		return
	}
	s.rev, s.path, s.name = d.Rev, d.Pod.CgroupParent, podName(d.Pod)
	if s.path == "" {
		return
	}
	w.putSlice(s.path)
	w.setForeign(s, d.Need.Own != nil || d.Need.Pool.Kind() != policy.PoolBE)
	if err := w.tree.PutPod(cgroup.Pod{ID: d.Pod.UID, Path: s.path, Need: w.needNow(s.path, !first, d.Need, d),
		Mems: memsOf(d.Mems)}); err != nil {
		w.c.o.Log.Error("pod has no usable cgroup and only its containers' replies pin it", "pod", s.name, "err", err)
	}
	w.keepRoom(s, &d)
	if first && found.missed(s.path) && w.reader != nil {
		w.tree.Unread(s.path)
	}
	s.asked = cgroup.Quota(d.Asked)
	s.weight = 0
	if d.WeightMilli > 0 {
		s.weight = cgroup.WeightOf(d.WeightMilli)
	}
	look := s.idle.want(d.Idle, first && d.Pod.QoS == policy.BestEffort)
	look = s.mayBeStale(&d) || look
	if s.limit.want(d.Quota, d.QuotaOurs) || look {
		w.lookAtLimit(s)
	}
	if s.stale > 0 && !s.limit.ours {
		s.limit.target = cgroup.Quota(d.Quota) // to give back
	}
}

// roomID is the tree's ID of the CPUs that a pod's mask keeps for a container that owns them.
func roomID(uid, container string) string { return uid + "/room/" + container }

// keepRoom keeps the CPUs of containers that own some in the mask of their pod.
func (w *writer) keepRoom(s *subject, d *policy.SetPod) {
	for _, name := range s.rooms {
		if !slices.ContainsFunc(d.Owned, func(o policy.Owned) bool { return o.Container == name }) {
			w.tree.Remove(roomID(d.Pod.UID, name))
		}
	}
	s.rooms = nil
	for _, o := range d.Owned {
		if err := w.tree.PutRoom(roomID(d.Pod.UID, o.Container), d.Pod.UID, o.CPUs); err != nil {
			w.c.o.Log.Error("a pod does not keep the CPUs of its container", "pod", s.name, "container", o.Container,
				"err", err)
			continue
		}
		s.rooms = append(s.rooms, o.Container)
	}
}

// setForeign records whether a pod keeps its best-effort slice from being limited.
func (w *writer) setForeign(s *subject, is bool) {
	if s == nil {
		return
	}
	slice := w.limits.slices[cgroup.Parent(s.path)]
	if is = is && slice != nil; is == s.foreign {
		return
	}
	if s.foreign = is; slice != nil {
		w.limitSlice(slice)
	}
}

// setContainer applies a decision about a container. found is what was read from cgroups, in a
// takeover: its containers were not created with replies of this daemon, and the runtime may not
// have received a reply of a daemon that was killed.
func (w *writer) setContainer(d policy.SetContainer, found observations) {
	s := w.ctrs[d.Container.ID]
	if s == nil {
		s = &subject{}
		w.ctrs[d.Container.ID] = s
	}
	if d.Rev < s.rev {
		return
	}
	s.rev, s.path, s.name = d.Rev, d.Container.CgroupPath, podName(d.Pod)+"/"+d.Container.Name
	if s.path != "" && w.pods[d.Pod.UID] != nil && w.pods[d.Pod.UID].path != "" {
		c := cgroup.Container{ID: d.Container.ID, Pod: d.Pod.UID, Path: s.path,
			Need: w.needNow(s.path, s.logged != "", d.Need, d), Mems: memsOf(d.Mems)}
		masked := d.Need.Own != nil || d.StartMask != nil || len(w.pods[d.Pod.UID].rooms) > 0
		if s.logged == "" && (found == nil || w.reader == nil) {
			c.OwnCPUs = w.replied(&d)
			if !c.OwnCPUs.IsEmpty() {
				w.unproven[d.Container.ID] = true
			}
		}
		if err := w.tree.PutContainer(c); err != nil {
			w.c.o.Log.Error("container has no usable cgroup and only its replies pin it", "container", s.name, "err",
				err)
		}
		if masked && found.missed(s.path) && w.reader != nil {
			w.tree.Unread(s.path)
		}
	}
	s.asked, s.container = cgroup.Quota(d.Asked.Quota), true
	if d.Cap != nil && !w.c.saving.has(d.Cap) {
		w.capLater(d)
	} else if s.limit.found(d.Asked.OurQuota); s.limit.want(d.Quota, d.QuotaOurs) {
		w.lookAtLimit(s)
	}
	w.report(s, d)
}

// needNow is what a cgroup needs by a decision. One that is not new gains no CPUs while the file may still say that a
// claim has them, since a new daemon would take them from the running owner; it gets them once that is saved. A new
// container waits for that with its reply.
func (w *writer) needNow(path string, known bool, need policy.Need, d policy.Decision) cgroup.Need {
	if need.Own == nil || !known {
		return treeNeed(need)
	}
	gains := w.c.saving.stale().Minus(w.tree.Has(path))
	now := need.Own.Minus(gains)
	if now == *need.Own || now.IsEmpty() {
		return treeNeed(need)
	}
	w.c.saving.now(func() { w.put(batch{decisions: []policy.Decision{d}}) })
	return cgroup.On(now)
}

// capLater writes a cap only after it is saved: a new daemon that cannot read cgroups undoes only
// the caps that the state file names.
func (w *writer) capLater(d policy.SetContainer) {
	w.c.saving.now(func() {
		w.c.unfinished.add(nil)
		w.c.o.At(failpoint.CapSaved)
		// If the file does not have this cap now, a newer decision has replaced it.
		if w.c.machine.Knows(d.Container.ID) && w.c.saving.has(d.Cap) {
			w.put(batch{decisions: []policy.Decision{d}})
		}
		w.c.unfinished.delivered()
	})
}

// creating puts in a batch with the mask that the runtime will create a container with. While the
// reply waited, the writer may have found no cgroup.
func (w *writer) creating(d *policy.SetContainer) {
	if d == nil {
		return
	}
	if cpus := w.replied(d); !cpus.IsEmpty() {
		w.put(batch{created: []created{{d.Container.ID, cpus}}, lazy: true})
	}
}

// replied is the mask that the runtime writes because of our reply; empty: none.
func (w *writer) replied(d *policy.SetContainer) cpuset.Set {
	switch {
	case d.Foreign:
		return cpuset.Set{}
	case d.Need.Own != nil:
		return *d.Need.Own
	case d.StartMask != nil:
		return *d.StartMask
	case d.Asked.CPUs:
		return w.topo.Online()
	}
	return cpuset.Set{}
}

// report logs one line if a decision has changed a container's CPUs or cap.
func (w *writer) report(s *subject, d policy.SetContainer) {
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
	w.c.o.Log.Info("container", "pod", podName(d.Pod), "container", d.Container.Name, "cpus", now, "was", s.logged,
		"why",
		d.Why, "rev", d.Rev)
	s.logged = now
}

// maxSlices bounds how many parents of pods are managed; kubelet has two.
const maxSlices = 64

// putSlice declares the slice of a pod, so that a pod that starts in it without a daemon runs in
// the slice's pool.
func (w *writer) putSlice(pod string) {
	path := cgroup.Parent(pod)
	if w.slices[path] || len(w.slices) >= maxSlices {
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
	if cgroup.IsUnit(path) && !w.c.o.Tree.Records && !w.raw {
		w.raw = true
		w.c.o.Log.Warn(
			"systemd manages these cgroups, but they are written as files: systemd restores its own values at every "+
				"reload, until the audit writes ours again; set cgroup.driver to auto", "cgroup", path)
	}
	w.slices[path] = true
	if err := w.tree.PutSlice(cgroup.Slice{Path: path, Need: cgroup.InPool(string(pool))}); err != nil {
		w.c.o.Log.Error("slice refused by the cgroup tree", "cgroup", path, "err", err)
		return
	}
	if pool == policy.PoolBE.ID() {
		w.limits.slices[path] = &subject{path: path, name: path, limit: limit{ours: true},
			asked: cgroup.Quota(noQuota())}
		w.limitSlice(w.limits.slices[path])
	}
	if w.reader != nil {
		w.tree.Unread(path)
	}
}

// readBackMask reads a cgroup's mask that is uncertain after an error.
func (w *writer) readBackMask(path string) {
	switch found, err := w.reader.CPUs(path); {
	case errors.Is(err, cgroup.ErrGone):
		w.tree.Gone(path)
	case err == nil && w.slices[path]:
		w.tree.ReadBack(path, w.lasting(path, found), w.c.now)
	case err == nil:
		w.tree.ReadBack(path, found, w.c.now)
	}
}

// lasting is a slice's mask as far as it lasts: a mask that its manager does not have on record,
// for example one from a version that wrote files, is lost at the next reload.
func (w *writer) lasting(path string, found cgroup.Effective) cgroup.Effective {
	if !w.c.o.Tree.Records {
		return found
	}
	if set, ok, err := w.out.recorded(path); err == nil && ok && set != found.OwnCPUs {
		found.OwnCPUs = cpuset.Set{}
	}
	return found
}

// KubeletSlices are the usual paths of kubelet's slices.
func KubeletSlices() []string {
	return []string{
		"kubepods/burstable", "kubepods/besteffort",
		"kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-besteffort.slice",
	}
}

// findSlices looks for kubelet's slices at their usual paths: they need masks before the first
// pod is in them. A slice that cannot be read is left to the next audit, or to its first pod.
func (w *writer) findSlices() {
	if w.reader == nil {
		return
	}
	for _, path := range KubeletSlices() {
		if w.slices[path] {
			continue
		}
		if _, err := w.reader.CPUs(path); err == nil {
			w.putSlice(path + "/x")
		}
	}
}
