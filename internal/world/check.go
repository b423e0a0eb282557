package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// Property is a property of the daemon that a run may violate.
type Property string

const (
	// PropStart: an owner never starts on CPUs that another pod may still use.
	PropStart Property = "owner started beside others"
	// PropBeside: a pod that owns nothing is not started on the CPUs of an owner.
	PropBeside Property = "a shared pod started on an owner's CPUs"
	// PropMove: no other pod moves onto the CPUs of a live owner.
	PropMove Property = "others on a live owner's CPUs"
	// PropGrant: a live owner keeps its CPUs.
	PropGrant Property = "a live owner lost its CPUs"
	// PropDeadline: the runtime's requests are answered in time.
	PropDeadline Property = "a request was not answered in time"
	// PropPools: no pool that pods run in is empty.
	PropPools Property = "an empty pool"
	// PropSettle: once no fault is active any more, the node is as decided.
	PropSettle Property = "the node does not settle"
	// PropAlive: the daemon does not crash.
	PropAlive Property = "the daemon crashed"
)

// Violation is a property that was violated.
type Violation struct {
	Property Property
	Text     string
}

func (v *Violation) String() string { return string(v.Property) + ": " + v.Text }

func (w *World) violate(p Property, format string, args ...any) {
	if w.violation == nil && !slices.Contains(w.cfg.Ignore, p) {
		w.violation = &Violation{p, fmt.Sprintf(format, args...)}
		w.note("violates: %s", w.violation)
	}
}

// live reports whether a pod is an owner that must keep its CPUs.
func (p *Pod) live() bool { return p.phase == ready && !p.grant.IsEmpty() && !p.excused }

// admits reports whether an owner shares its CPUs with another pod; LSR does with BE.
func (p *Pod) admits(other *Pod) bool { return p.Class == policy.LSR && other.isBE() }

// checkStart checks the main property when an owner's create is answered, or an update that gives
// it more CPUs than those on which it runs (had).
func (w *World) checkStart(c *Container, had cpuset.Set) {
	p := c.Pod
	own, err := cpuset.Parse(c.cpus)
	view := w.shell.View()
	grants := view.Grants()
	left := grants[p.UID()].And(view.Online)
	if !c.owns() || err != nil || own.IsEmpty() || left.IsEmpty() {
		return // a container that is no owner any more may get every CPU: its pod's mask confines it
	}
	if saved, well := w.file(); well {
		if place := saved[p.UID()].CPUs; !own.SubsetOf(&place) {
			w.violate(PropGrant, "%s gets %s in the reply, but the state file has %q", p.Name, own, place)
		}
	}
	w.followResizes(view, grants)
	for _, other := range w.owners() {
		if others := w.kept(other).And(own); other != p && other.live() && !others.IsEmpty() {
			w.violate(PropStart, "%s gets %s in the reply, of which %s owns %s", p.Name, own, other.Name, others)
		}
	}
	tasks := w.tasks()
	w.intruders(PropStart, p, own.Minus(had), tasks)
	excludeEarly(tasks, had)
	if p.live() && !p.follows(own) && w.owned(p, p.grant) != w.owned(p, own) {
		w.violate(PropGrant, "%s owned %s, but a new container of it gets %s in the reply", p.Name, p.grant, own)
	}
	// If it runs on these CPUs already, as in the pool, followResizes grants them. The reply to a late update of
	// an owner whose mask is unknown has those of its CPUs that no other pod may use: a part is no grant.
	if had.IsEmpty() || p.grant.IsEmpty() && !own.SubsetOf(&had) && left.SubsetOf(&own) {
		p.grant = own
		p.off = p.off.Minus(own.Minus(w.offline)) // they are in an answer
	}
}

// excludeEarly records that containers that started without a daemon may use some CPUs since before
// these had an owner.
func excludeEarly(tasks []task, cpus cpuset.Set) {
	for i := range tasks {
		t := &tasks[i]
		t.ctr.isolated = t.ctr.isolated && !(t.ctr.early && t.cpus.Intersects(&cpus))
	}
}

// owned is a set without CPUs that are offline, or were when the pod got its grant: offline CPUs stay
// granted, but no reply has them.
func (w *World) owned(p *Pod, set cpuset.Set) cpuset.Set { return set.Minus(w.offline.Or(p.off)) }

// kept are the CPUs that others must not use: the pod's grant, but of CPUs that were offline when they
// were granted only those that the daemon still has as the pod's, or that the pod can use. If
// the daemon is killed, no mask has the others, and the next daemon cannot know them.
func (w *World) kept(p *Pod) cpuset.Set {
	kept := p.grant.Minus(p.off)
	if kept == p.grant {
		return kept
	}
	if w.alive {
		grant := w.shell.View().Grants()[p.UID()]
		kept = kept.Or(p.grant.And(grant))
	}
	return kept.Or(p.grant.And(w.runsOn(p)))
}

// revokeUnrecorded revokes grants that a new daemon cannot know: the daemon was killed before its
// first save while an owner moved to its CPUs, and the container has ended since, so the runtime
// stores nothing either. No task loses CPUs by that. It also allows a new result of a resize: which
// CPUs it leaves to an owner, or adds, was only in the memory of the old daemon, so the new one chooses
// again among the pod's CPUs, or lets the pod grow again from CPUs that a record shows, if its tasks run on no
// others. Where hidden says so, masks are no record that cannot be read now.
//
// A mask alone, of a pod that neither the disk nor the runtime's store names, is no record either if it may be the
// pool's: if the pod was resized without a daemon to another number of CPUs. Nor is it if another pod shows as much:
// see contested.
func (w *World) revokeUnrecorded(saved map[string]state.Pod, hidden bool) {
	for _, p := range w.node.pods {
		if !p.live() {
			continue
		}
		own := w.owned(p, p.grant)
		kernel, err := w.kernel.Effective(p.home())
		if err != nil && !p.Mixed {
			continue
		}
		mask := kernel.OwnCPUs
		if hidden && (covers(w.active.unreadable, p.home()) || covers(w.active.blind, p.home())) {
			mask = cpuset.Set{}
		}
		stored, cpus := p.storedBy(), saved[p.UID()].CPUs
		records := stored
		if !cpus.IsEmpty() {
			records = append(records, cpus)
		}
		resized := p.inPlace.resized && p.ownSize().request != int64(mask.Count())*1000
		if len(records) == 0 && (!own.SubsetOf(&mask) || resized || w.contested(p, own, saved)) {
			w.note("no record shows that %s owns %s", p.Name, p.grant)
			p.grant = cpuset.Set{}
			continue
		}
		// Without a container the disk or the mask may be newer, and no task uses CPUs of either.
		either := hidden && len(stored) == 0 && len(records) > 0 && !mask.IsEmpty() &&
			w.owned(p, mask) != w.owned(p, cpus)
		// Disk and store have as many CPUs, and the mask is on the way from one of them to the other.
		either = either || len(stored) > 0 && !cpus.IsEmpty() && cpus != stored[0] &&
			cpus.Count() == stored[0].Count() && mask.SubsetOf(&cpus) && mask.SubsetOf(&stored[0])
		records = append(records, mask)
		if !either && slices.ContainsFunc(records, func(cpus cpuset.Set) bool { return w.owned(p, cpus) == own }) {
			continue
		}
		w.note("no record shows that a resize left %s to %s", p.grant, p.Name)
		p.inPlace.resized = true
		on := w.runsOn(p)
		for _, cpus := range records {
			p.inPlace.held.AddSet(&cpus)
			if !cpus.IsEmpty() && on.SubsetOf(&cpus) {
				p.inPlace.recorded = append(p.inPlace.recorded, cpus)
			}
		}
	}
}

// contested reports whether CPUs that only a pod's mask shows are as well in the mask of another pod that neither disk
// nor store names, and that requests as many as its mask has: a daemon was killed before the runtime had its sandbox,
// so that the next one gave its CPUs to others. The burstable slice tells which of them an owner started on, unless it
// has none of either.
func (w *World) contested(p *Pod, own cpuset.Set, saved map[string]state.Pod) bool {
	slice, _ := w.kernel.Effective("kubepods/burstable")
	return slices.ContainsFunc(w.node.pods, func(o *Pod) bool {
		if o == p || o.phase != ready || !o.owns() || len(o.storedBy()) > 0 {
			return false
		}
		if place := saved[o.UID()].CPUs; !place.IsEmpty() {
			return false
		}
		e, _ := w.kernel.Effective(o.Parent()) // gone: it has no mask
		mask := e.OwnCPUs
		return mask.Intersects(&own) && !mask.Intersects(&slice.OwnCPUs) &&
			o.ownSize().request == int64(mask.Count())*1000
	})
}

// revokeUnrecordedSizes revokes the grant of a mixed pod's container if the disk does not have its CPUs. Once
// the container has ended no record shows them, and no task loses CPUs; a container that replaced it without a
// daemon never got any. If the disk does not name its pod and it was resized without a daemon, what the
// runtime stores and its mask show its CPUs only while they are as many as it requests: a larger or smaller
// mask may be a pool's. If the disk has it waiting for CPUs, they show them as well while its pod has another mask.
func (w *World) revokeUnrecordedSizes(saved map[string]state.Pod) {
	for _, p := range w.node.pods {
		o := p.parts[0]
		place, named := saved[p.UID()]
		if !p.Mixed || !p.live() || !place.CPUs.IsEmpty() ||
			o.is(ready, running) && (named && w.recordsCPUs(p, o.ctr) || w.recordsSize(p, o.ctr)) {
			continue
		}
		w.note("no record shows that %s owns %s", p.Name, p.grant)
		p.grant = cpuset.Set{}
	}
}

// recordsCPUs reports whether the runtime stores CPUs for a container that owns some, or it has a mask, and whether
// they show that it owns them. They may be those of the pool in which it was created: the runtime stores these, and
// writes them again at every update.
func (w *World) recordsCPUs(p *Pod, c *Container) bool {
	e, _ := w.kernel.Effective(c.Path()) // gone: it has no mask
	pod, _ := w.kernel.Effective(p.Parent())
	return (len(p.storedBy()) > 0 || !e.OwnCPUs.IsEmpty()) && (!pod.OwnCPUs.IsEmpty() || w.recordsSize(p, c))
}

// recordsSize reports whether a container has a grant of as many CPUs as it requests, and the runtime's store
// or its mask has as many.
func (w *World) recordsSize(p *Pod, c *Container) bool {
	e, _ := w.kernel.Effective(c.Path()) // gone: it has no mask
	return slices.ContainsFunc(append(p.storedBy(), e.OwnCPUs), func(cpus cpuset.Set) bool {
		return int64(cpus.Count())*1000 == c.size.request && cpus.Count() == p.grant.Count()
	})
}

// loseLimits records which limits are lost with the state file: the runtime stores a cap in their place, and kubelet
// has not written the pod's since, as where a container restarts during a resize. A new daemon takes the pod's.
func (w *World) loseLimits() {
	for _, c := range w.node.made() {
		p := c.Pod
		c.limitLost = c.limitLost || p.isBE() && c.quota > 0 && p.inPlace.written.limit != p.size().limit
	}
}

// home is the cgroup whose mask shows what an owner has.
func (p *Pod) home() string {
	if c := p.parts[0].ctr; p.Mixed && c != nil {
		return c.Path()
	}
	return p.Parent()
}

// storedBy lists the CPUs that the runtime stores for the pod's containers that own some.
func (p *Pod) storedBy() []cpuset.Set {
	var all []cpuset.Set
	for _, o := range p.parts {
		if !o.is(ready, running) || !o.ctr.owns() {
			continue
		}
		if cpus, err := cpuset.Parse(o.ctr.cpus); err == nil && !cpus.IsEmpty() {
			all = append(all, cpus)
		}
	}
	return all
}

// task is a cgroup with tasks, its container and the CPUs that it may use.
type task struct {
	path string
	ctr  *Container
	cpus cpuset.Set
}

// tasks lists the cgroups that have tasks.
func (w *World) tasks() []task {
	cpus := w.kernel.Tasks()
	var all []task
	for _, path := range slices.Sorted(maps.Keys(cpus)) {
		all = append(all, task{path, w.node.containerAt(path), cpus[path]})
	}
	return all
}

// intruders requires that no task of another pod is on an owner's CPUs. A task that has been there
// since its start violates PropBeside instead, whichever check finds it. A task that the kernel
// moved there when CPUs went offline may stay until the daemon moves it, but no owner starts beside
// it.
func (w *World) intruders(broken Property, p *Pod, own cpuset.Set, tasks []task) {
	if w.unaware() {
		return
	}
	for i := range tasks {
		t := &tasks[i]
		on := own.And(t.cpus)
		if broken != PropStart {
			on.RemoveSet(&t.ctr.fallback)
		}
		if broken == PropMove && t.ctr.lends(p, on) {
			continue
		}
		if t.ctr.uses(p) || on.IsEmpty() || p.admits(t.ctr.Pod) {
			continue
		}
		if !t.ctr.isolated && t.ctr.early {
			continue // it started while the CPUs' owners were unknown
		}
		found := broken
		if !t.ctr.isolated {
			found = PropBeside
		}
		w.violate(found, "%s owns %s, but tasks of %s may run on %s", p.Name, own, t.path, on)
	}
}

// unaware reports whether CPUs went offline or online and the daemon could not react yet.
func (w *World) unaware() bool { return w.alive && w.shell.View().Online != w.topo.Online() }

// checkBeside requires that a container that owns nothing does not start in a cgroup that allows CPUs
// of an owner.
func (w *World) checkBeside(c *Container) {
	if c.owns() || c.early || w.unaware() {
		return
	}
	may, err := w.kernel.Allowed(c.Pod.Parent())
	if err != nil {
		return
	}
	if mask, err := cpuset.Parse(c.cpus); err == nil && (c.Pod.Mixed || c.Pod.claim != nil) && mask.Intersects(&may) {
		may = may.And(mask) // it starts with a mask of its own
	}
	for _, p := range w.owners() {
		if !p.live() || c.uses(p) || p == c.Pod && !p.Mixed || p.admits(c.Pod) {
			continue
		}
		if on := w.kept(p).And(may); !on.IsEmpty() && !c.lends(p, on) {
			w.violate(PropBeside, "%s owns %s, but %s may start on %s", p.Name, p.grant, c.ID, on)
		}
	}
}

// updateFallback records which CPUs containers use because all CPUs of a mask above them went offline.
// This includes containers that are created and not started: runc waits in their cgroups.
func (w *World) updateFallback() {
	for _, c := range w.node.made() {
		if w.offline.IsEmpty() && c.fallback.IsEmpty() {
			continue // nothing to add, nothing to take away
		}
		e, err := w.kernel.Effective(c.Path())
		switch {
		case err != nil:
		case w.fallsBack(c.Path()):
			c.fallback.AddSet(&e.CPUs)
		default:
			c.fallback = c.fallback.And(e.CPUs)
		}
	}
}

// updateIsolated records which tasks have been off the CPUs of all owners. A task of an unannounced pod
// never counts: it has no mask of its own, so when the slice is widened for another pod, the task
// gets those CPUs too. Nor does a task whose pod was announced while such a write was in flight, which
// cannot be undone: the reply waits for it, but the runtime may not wait for the reply. The same holds for a container
// with a mask of its own, in a pod of which others own CPUs: it has none as long as the daemon has not heard of it.
func (w *World) updateIsolated(tasks []task) {
	for i := range tasks {
		t := &tasks[i]
		p := t.ctr.Pod
		counts := !p.unannounced && !slices.ContainsFunc(p.sliceWrites, w.mayLand) && (!p.Mixed && p.claim == nil ||
			!t.ctr.unheard && !slices.ContainsFunc(t.ctr.writes, w.mayLand))
		t.ctr.isolated = counts && (t.ctr.isolated || !slices.ContainsFunc(w.owners(), func(p *Pod) bool {
			on := w.kept(p).And(t.cpus)
			return p.live() && !t.ctr.uses(p) && !p.admits(t.ctr.Pod) && !on.IsEmpty()
		}))
	}
}

// mayLand reports whether a write is in flight, or has timed out and may still take effect.
func (w *World) mayLand(o *Op) bool {
	return slices.Contains(w.ops, o) ||
		slices.ContainsFunc(w.active.late, func(l lateWrite) bool { return l.of == o })
}

// fallsBack reports whether the kernel uses the CPUs of a cgroup above because all CPUs that the masks
// on the path have in common are offline.
func (w *World) fallsBack(path string) bool {
	if w.offline.IsEmpty() {
		return false
	}
	all := w.topo.Online().Or(w.topo.Offline())
	for end := 0; end < len(path); {
		if slash := strings.IndexByte(path[end+1:], '/'); slash >= 0 {
			end += 1 + slash
		} else {
			end = len(path)
		}
		e, err := w.kernel.Effective(path[:end])
		if err != nil || e.OwnCPUs.IsEmpty() {
			continue
		}
		if e.OwnCPUs.SubsetOf(&w.offline) {
			return true // the daemon wrote it before it was notified
		}
		if all = all.And(e.OwnCPUs); all.SubsetOf(&w.offline) {
			return !all.IsEmpty()
		}
	}
	return false
}

// check checks the properties after a choice.
func (w *World) check(c Choice) {
	if w.violation != nil {
		return
	}
	view, grants := View{}, map[string]cpuset.Set{}
	if w.alive {
		view = w.shell.View()
		grants = view.Grants()
	}
	w.followResizes(view, grants)
	tasks := w.tasks()
	w.updateFallback()
	for _, p := range w.owners() {
		if !p.live() {
			continue
		}
		if view.Synced && w.mayLose(p, view, grants) {
			p.excused = true // the youngest owners lose CPUs if the shared pool would lose its last one
			continue
		}
		w.intruders(PropMove, p, w.kept(p), tasks)
		if p.isHolder() && view.Frozen {
			continue // without a machine it cannot say what claims have
		}
		grant := grants[p.UID()]
		if p.follows(grant) {
			continue
		}
		if w.alive && view.Synced && !(view.Unread && grant.IsEmpty()) && w.owned(p, grant) != w.owned(p, p.grant) {
			w.violate(PropGrant, "%s owned %s, but the daemon has %q for it after %s", p.Name, p.grant, grant, c)
		}
	}
	if w.alive && (view.Shared.IsEmpty() || view.BE.IsEmpty()) {
		w.violate(PropPools, "shared %q, best effort %q after %s", view.Shared, view.BE, c)
	}
	w.updateIsolated(tasks)
	w.checkDeadline()
	w.checkClaimDeadlines()
}

// checkDeadline ignores requests that the world itself holds at a point.
func (w *World) checkDeadline() {
	r := w.node.inFlight
	atPoint := slices.ContainsFunc(w.ops, func(o *Op) bool { return o.Kind == Point })
	if r != nil && !atPoint && w.clock().Sub(r.sent) > requestLimit {
		w.violate(PropDeadline, "%s has no reply after %s (limit %s)", r.Kind, w.clock().Sub(r.sent), requestLimit)
	}
}

// settle ends all faults and requires the node to be as decided.
func (w *World) settle() {
	w.note("settles")
	w.cfg.Faults, w.cfg.Gates = nil, Gates{}
	w.active = activeFaults{late: w.active.late, poisoned: map[string]string{}}
	w.landLate(func(lateWrite) bool { return true })
	for _, o := range w.ops {
		o.hung = false
	}
	const rounds, more = 14, 12
	for i := range rounds + more {
		if i == rounds/2 { // a Synchronize settles what was not announced
			w.do(Choice{Do: "disconnect"})
		}
		w.settleRound()
		if w.violation != nil {
			return
		}
		if i >= rounds && w.unsettled() == "" {
			return
		}
	}
	if text := w.unsettled(); text != "" {
		w.violate(PropSettle, "%s", text)
	}
}

func (w *World) settleRound() {
	w.drain()
	for _, c := range []Choice{{Do: "start"}, {Do: "connect"}} {
		w.do(c)
		w.drain()
	}
	w.announceCPUs()
	w.settleClaims()
	w.check(Choice{Do: "settle"}) // what offline CPUs cost, before others give some up
	for _, p := range slices.Clone(w.node.pods) {
		for range 3 { // a sandbox, a container, its start
			if w.node.pod(p.Name) == p {
				w.do(Choice{Do: "next", What: p.Name})
				w.drain()
			}
		}
	}
	w.do(Choice{Do: "wait", What: "11s"})
	for _, do := range []string{"tick", "audit", "vanish"} {
		w.do(Choice{Do: do})
		w.drain()
	}
}

// drain releases everything that waits.
func (w *World) drain() {
	const most = 5000
	for range most {
		if len(w.ops) == 0 || w.violation != nil {
			return
		}
		o := w.ops[0]
		w.note("drain: %s", o.key())
		w.finish(o, howOK)
		w.run(0)
		w.check(Choice{Do: "drain"})
	}
	w.violate(PropSettle, "after %d ops there is always another one, now %s", most, w.ops[0].key())
}

// unsettled lists what differs from the decisions once no fault is active any more.
func (w *World) unsettled() string {
	n := &w.node
	view := w.shell.View()
	switch {
	case len(w.ops) > 0:
		return "an op has not ended: " + w.ops[0].key()
	case n.inFlight != nil || len(n.queue) > 0:
		return "the runtime still waits for a reply"
	case !view.Synced || !view.Settled:
		return fmt.Sprintf("the daemon is not settled: synchronized %t, settled %t", view.Synced, view.Settled)
	}
	grants := view.Grants()
	return cmp.Or(w.unsettledGrants(view, grants), w.unsettledCgroups(view, grants), w.unsettledDisk(grants))
}

func (w *World) unsettledGrants(view View, grants map[string]cpuset.Set) string {
	var owned cpuset.Set
	for _, uid := range slices.Sorted(maps.Keys(grants)) {
		grant := grants[uid]
		if !slices.ContainsFunc(w.owners(), func(p *Pod) bool { return p.UID() == uid }) {
			return fmt.Sprintf("%s has ended and still owns %s", uid, grant)
		}
		if owned.Intersects(&grant) {
			return fmt.Sprintf("%s owns %s, of which other pods own %s", uid, grant, grant.And(owned))
		}
		owned.AddSet(&grant)
	}
	if owned.Intersects(&view.Shared) {
		return fmt.Sprintf("the shared pool has %s, of which owners own %s", view.Shared, owned.And(view.Shared))
	}
	return ""
}

func (w *World) unsettledCgroups(view View, grants map[string]cpuset.Set) string {
	for _, c := range w.node.running() {
		p := c.Pod
		want := view.Shared
		grant := grants[p.UID()]
		if c.has(p.claim) {
			grant = grants[p.claim.UID()]
		}
		left := grant.And(w.topo.Online())
		switch {
		case !left.IsEmpty() && (c.owns() || c.has(p.claim)):
			want = left
		case p.isBE():
			want = view.BE
		}
		e, err := w.kernel.Effective(c.Path())
		if err != nil {
			return err.Error()
		}
		if e.CPUs != want {
			return fmt.Sprintf("%s runs on %s, want %s", c.Path(), e.CPUs, want)
		}
		if pod, _ := w.kernel.Effective(p.Parent()); pod.Idle {
			return fmt.Sprintf("%s still runs on otherwise idle CPUs alone", p.Parent())
		}
		quota := *c.asked().Quota
		if !left.IsEmpty() && (len(p.parts) == 1 || p.Mixed && c.owns()) { // several containers keep their limits
			quota.Micros = -1
		}
		if e.QuotaMilli != quota.Milli() && !(c.limitLost && e.QuotaMilli == p.inPlace.written.limit) {
			return fmt.Sprintf("%s has a quota of %dm, want %dm", c.Path(), e.QuotaMilli, quota.Milli())
		}
	}
	return ""
}

func (w *World) unsettledDisk(grants map[string]cpuset.Set) string {
	saved := map[string]cpuset.Set{}
	places := w.disk.load(w.clock(), w.elapsed)
	for uid, p := range claimPlaces(places.Places(), &places) {
		if !p.CPUs.IsEmpty() {
			saved[uid] = p.CPUs
		}
	}
	if !maps.Equal(saved, grants) {
		return fmt.Sprintf("the state file has %v, but pods own %v", saved, grants)
	}
	return ""
}

// mayLose reports whether an owner may have lost CPUs because some are offline, or because the daemon
// was not notified yet that they are back. It may get others instead if one of its own is offline, which
// the daemon may notice late; and it may lose all or a part if owners would otherwise have every online
// CPU.
func (w *World) mayLose(p *Pod, view View, grants map[string]cpuset.Set) bool {
	grant, owns := grants[p.UID()]
	off := w.heldOff(view)
	switch {
	case off.IsEmpty():
		return false
	case p.grant.Intersects(&off) && grant != p.grant:
		return true
	case owns && (grant == p.grant || !grant.SubsetOf(&p.grant)):
		return false
	}
	left := w.topo.Online().Minus(off)
	for _, theirs := range grants { // including pods that have ended without an event
		left.RemoveSet(&theirs)
	}
	for _, other := range w.owners() {
		left.RemoveSet(&other.grant)
	}
	return left.IsEmpty()
}

// heldOff are the CPUs that are offline, and those that the daemon takes for offline.
func (w *World) heldOff(view View) cpuset.Set {
	return w.offline.Or(w.topo.Online().Minus(view.Online))
}
