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

// Property is a promise that a run may break.
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

// Violation is a promise that was broken.
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

// live reports whether a pod is an owner whose CPUs are to be respected.
func (p *Pod) live() bool { return p.phase == ready && !p.grant.IsEmpty() && !p.excused }

// admits reports whether an owner shares its CPUs with another pod; LSR does with BE.
func (p *Pod) admits(other *Pod) bool { return p.Class == policy.LSR && other.isBE() }

// checkStart is the main property: an owner's create is answered, or an update that gives it
// more CPUs than the ones on which it runs.
func (w *World) checkStart(c *Container, had cpuset.Set) {
	p := c.Pod
	own, err := cpuset.Parse(c.cpus)
	view := w.shell.View()
	grants := view.Grants()
	left := grants[p.UID()].And(view.Online)
	if !c.owns() || err != nil || own.IsEmpty() || left.IsEmpty() {
		return // one that is no owner any more may be given every CPU: its pod's mask confines it
	}
	if saved, well := w.file(); well {
		if place := saved[p.UID()].CPUs; !own.SubsetOf(&place) {
			w.violate(PropGrant, "%s is answered %s, and the file says %q", p.Name, own, place)
		}
	}
	w.followResizes(view, grants)
	for _, other := range w.node.pods {
		if others := w.kept(other).And(own); other != p && other.live() && !others.IsEmpty() {
			w.violate(PropStart, "%s is given %s of %s, which %s owns", p.Name, others, own, other.Name)
		}
	}
	tasks := w.tasks()
	w.intruders(PropStart, p, own.Minus(had), tasks)
	cameFirst(tasks, had)
	if p.live() && !p.follows(own) && w.owned(p, p.grant) != w.owned(p, own) {
		w.violate(PropGrant, "%s owned %s and a new container is answered %s", p.Name, p.grant, own)
	}
	// CPUs that it has already, as one in the pool has, followResizes makes a promise. A late update of an
	// owner whose mask is unknown is answered those of its CPUs that no other pod may have: a part is none.
	if had.IsEmpty() || p.grant.IsEmpty() && !own.SubsetOf(&had) && left.SubsetOf(&own) {
		p.grant = own
		p.off = p.off.Minus(own.Minus(w.offline)) // they are in an answer
	}
}

// cameFirst records that containers that started without a daemon may have been on some CPUs
// before they were an owner's.
func cameFirst(tasks []task, cpus cpuset.Set) {
	for i := range tasks {
		t := &tasks[i]
		t.ctr.apart = t.ctr.apart && !(t.ctr.early && t.cpus.Intersects(&cpus))
	}
}

// owned is a set without CPUs that are offline, or were when the pod's CPUs were promised: what is
// off stays granted and is in no answer.
func (w *World) owned(p *Pod, set cpuset.Set) cpuset.Set { return set.Minus(w.offline.Or(p.off)) }

// kept is what others must stay off: the pod's CPUs, but of those that were off when they
// were promised only what the daemon still holds to be the pod's, or the pod can use. A
// daemon that is killed leaves none of them in a mask, and the next one cannot know.
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

// letGo takes back promises that a new daemon cannot know of: an owner was on its way to its
// CPUs when the daemon was killed before its first save, and its container has ended since,
// so that the runtime stores nothing either. No task loses CPUs by that. And what a resize was
// to leave to an owner was in the memory of the old daemon alone: the new one chooses anew from
// what the pod has.
func (w *World) letGo(saved map[string]state.Pod) {
	for _, p := range w.node.pods {
		if !p.live() {
			continue
		}
		own := w.owned(p, p.grant)
		kernel, err := w.kernel.Effective(p.home())
		if err != nil && !p.Mixed {
			continue
		}
		told := p.storedBy()
		if cpus := saved[p.UID()].CPUs; !cpus.IsEmpty() {
			told = append(told, cpus)
		}
		if len(told) == 0 && !own.SubsetOf(&kernel.OwnCPUs) {
			w.note("nothing tells that %s owns %s", p.Name, p.grant)
			p.grant = cpuset.Set{}
			continue
		}
		told = append(told, kernel.OwnCPUs)
		if slices.ContainsFunc(told, func(cpus cpuset.Set) bool { return w.owned(p, cpus) == own }) {
			continue
		}
		w.note("nothing tells that a resize left %s to %s", p.grant, p.Name)
		p.inPlace.resized = true
		for _, cpus := range told {
			p.inPlace.held.AddSet(&cpus)
		}
	}
}

// forgetSizes takes back what a container was promised that owns CPUs beside others of its pod,
// where the disk does not say which. Once it has ended nothing tells, and no task loses CPUs; one that came
// in its place with no daemon there was never given any. Where the
// disk does not name its pod and it was resized with no daemon there, what the runtime stores, and its
// mask, tell of it only while they are as many CPUs as it requests: a larger or smaller mask may be a
// pool's. What a resize left to a pod whose containers have ended may be what its unreadable mask says or
// what the disk says: no task has either.
func (w *World) forgetSizes() {
	places := w.disk.load(w.clock().Add(w.jump), w.elapsed)
	saved := places.Places()
	for _, p := range w.node.pods {
		o := p.parts[0]
		place, named := saved[p.UID()]
		if w.onlyMaskTells(p, place.CPUs) {
			w.note("only a mask that cannot be read tells that %s owns %s", p.Name, p.grant)
			p.inPlace.resized = true
			p.inPlace.held.AddSet(&place.CPUs)
			continue
		}
		if !p.Mixed || !p.live() || !place.CPUs.IsEmpty() ||
			o.is(ready, running) && (named && w.tellsCPUs(p, o.ctr) || w.tellsSize(p, o.ctr)) {
			continue
		}
		w.note("nothing tells that %s owns %s", p.Name, p.grant)
		p.grant = cpuset.Set{}
	}
}

// onlyMaskTells reports whether a pod's containers have ended, the disk says other CPUs than a resize left to
// it, and its mask, which says them, cannot be read.
func (w *World) onlyMaskTells(p *Pod, saved cpuset.Set) bool {
	return !p.Mixed && p.live() && !saved.IsEmpty() && w.owned(p, saved) != w.owned(p, p.grant) &&
		len(p.storedBy()) == 0 && covers(w.weather.unreadable, p.home())
}

// tellsCPUs reports whether the runtime stores CPUs for a container that owns some, or that it has a mask.
func (w *World) tellsCPUs(p *Pod, c *Container) bool {
	e, _ := w.kernel.Effective(c.Path()) // gone: it has no mask
	return len(p.storedBy()) > 0 || !e.OwnCPUs.IsEmpty()
}

// tellsSize reports whether a container was promised as many CPUs as it requests, and that the runtime or its
// mask has as many.
func (w *World) tellsSize(p *Pod, c *Container) bool {
	e, _ := w.kernel.Effective(c.Path()) // gone: it has no mask
	return slices.ContainsFunc(append(p.storedBy(), e.OwnCPUs), func(cpus cpuset.Set) bool {
		return int64(cpus.Count())*1000 == c.size.request && cpus.Count() == p.grant.Count()
	})
}

// home is the cgroup whose mask shows what an owner has.
func (p *Pod) home() string {
	if c := p.parts[0].ctr; p.Mixed && c != nil {
		return c.Path()
	}
	return p.Parent()
}

// storedBy lists the CPUs that the runtime stores for those of the pod's containers that own.
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

// task is a cgroup with tasks, the container whose it is and the CPUs that it may use.
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

// intruders requires that no task of another pod is on an owner's CPUs. One that has been there
// since it was started is a promise of its own, however it is found. A task that CPUs
// which went off have put there may stay until it is moved, but no owner starts beside it.
func (w *World) intruders(broken Property, p *Pod, own cpuset.Set, tasks []task) {
	if w.unaware() {
		return
	}
	for i := range tasks {
		t := &tasks[i]
		on := own.And(t.cpus)
		if broken != PropStart {
			on.RemoveSet(&t.ctr.fell)
		}
		if t.ctr.Pod == p && t.ctr.owns() || on.IsEmpty() || p.admits(t.ctr.Pod) {
			continue
		}
		if !t.ctr.apart && t.ctr.early {
			continue // it was let start while the CPUs' owners were unknown
		}
		found := broken
		if !t.ctr.apart {
			found = PropBeside
		}
		w.violate(found, "%s has %s; %s may run on %s", p.Name, own, t.path, on)
	}
}

// unaware reports whether CPUs went off or came and that the daemon could not yet react.
func (w *World) unaware() bool { return w.alive && w.shell.View().Online != w.topo.Online() }

// checkBeside wants a container that owns nothing not to be started in a cgroup that allows
// CPUs of an owner.
func (w *World) checkBeside(c *Container) {
	if c.owns() || c.early || w.unaware() {
		return
	}
	may, err := w.kernel.Allowed(c.Pod.Parent())
	if err != nil {
		return
	}
	if mask, err := cpuset.Parse(c.cpus); err == nil && c.Pod.Mixed && mask.Intersects(&may) {
		may = may.And(mask) // it starts with a mask of its own
	}
	for _, p := range w.node.pods {
		if on := w.kept(p).And(may); (p != c.Pod || p.Mixed) && p.live() && !p.admits(c.Pod) && !on.IsEmpty() {
			w.violate(PropBeside, "%s has %s; %s is let start on %s", p.Name, p.grant, c.ID, on)
		}
	}
}

// noteFell notes which containers have CPUs because those of a mask above them went off. One that is
// created and not started has: runc waits in its cgroup.
func (w *World) noteFell() {
	for _, c := range w.node.made() {
		if w.offline.IsEmpty() && c.fell.IsEmpty() {
			continue // nothing to add, nothing to take away
		}
		e, err := w.kernel.Effective(c.Path())
		switch {
		case err != nil:
		case w.fellBack(c.Path()):
			c.fell.AddSet(&e.CPUs)
		default:
			c.fell = c.fell.And(e.CPUs)
		}
	}
}

// noteApart notes which tasks have been off the CPUs of all owners since they were started. That
// holds of none whose pod was not announced: a slice that is widened for another of its pods is
// widened for it too, and it has no mask of its own. Nor of one whose pod was announced while that
// write was under way, which cannot be taken back: its answer waits, and the runtime may not.
func (w *World) noteApart(tasks []task) {
	for i := range tasks {
		t := &tasks[i]
		p := t.ctr.Pod
		surely := !p.untold && !w.mayLand(p.behind)
		t.ctr.apart = surely && (t.ctr.apart || !slices.ContainsFunc(w.node.pods, func(p *Pod) bool {
			on := w.kept(p).And(t.cpus)
			return p.live() && (p != t.ctr.Pod || !t.ctr.owns()) && !p.admits(t.ctr.Pod) && !on.IsEmpty()
		}))
	}
}

// mayLand reports whether a write is under way, or that its sender has given it up and it may still come.
func (w *World) mayLand(o *Op) bool {
	return o != nil && (slices.Contains(w.ops, o) ||
		slices.ContainsFunc(w.weather.late, func(l lateWrite) bool { return l.of == o }))
}

// fellBack reports whether the kernel gives a cgroup the CPUs of one above it because all that
// the masks on the way have in common are offline.
func (w *World) fellBack(path string) bool {
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
			return true // written by a daemon that was not notified yet
		}
		if all = all.And(e.OwnCPUs); all.SubsetOf(&w.offline) {
			return !all.IsEmpty()
		}
	}
	return false
}

// check holds the promises after a choice.
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
	w.noteFell()
	for _, p := range w.node.pods {
		if !p.live() {
			continue
		}
		if view.Synced && w.pays(p, view, grants) {
			p.excused = true // the youngest owners pay where the shared pool would lose its last CPU
			continue
		}
		w.intruders(PropMove, p, w.kept(p), tasks)
		grant := grants[p.UID()]
		if p.follows(grant) {
			continue
		}
		if w.alive && view.Synced && !(view.Unread && grant.IsEmpty()) && w.owned(p, grant) != w.owned(p, p.grant) {
			w.violate(PropGrant, "%s owned %s; the daemon says %q after %s", p.Name, p.grant, grant, c)
		}
	}
	if w.alive && (view.Shared.IsEmpty() || view.BE.IsEmpty()) {
		w.violate(PropPools, "shared %q, best effort %q after %s", view.Shared, view.BE, c)
	}
	w.noteApart(tasks)
	w.checkDeadline()
}

// checkDeadline ignores requests that the world itself holds at a point.
func (w *World) checkDeadline() {
	r := w.node.inFlight
	atPoint := slices.ContainsFunc(w.ops, func(o *Op) bool { return o.Kind == Point })
	if r != nil && !atPoint && w.clock().Sub(r.sent) > requestLimit {
		w.violate(PropDeadline, "%s is unanswered after %s", r.Kind, w.clock().Sub(r.sent))
	}
}

// settle ends all faults and requires the node to be as decided.
func (w *World) settle() {
	w.note("settles")
	w.cfg.Faults, w.cfg.Gates = nil, Gates{}
	w.weather = weather{late: w.weather.late, poisoned: map[string]string{}}
	w.landLate(func(lateWrite) bool { return true })
	for _, o := range w.ops {
		o.hung = false
	}
	const rounds, more = 14, 12
	for i := range rounds + more {
		if i == rounds/2 { // what was not announced a Synchronize settles
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
		w.note("drains: %s", o.key())
		w.finish(o, howOK)
		w.run(0)
		w.check(Choice{Do: "drain"})
	}
	w.violate(PropSettle, "there is no end of %s", w.ops[0].key())
}

// unsettled lists what differs from the decisions once no fault is active any more.
func (w *World) unsettled() string {
	n := &w.node
	view := w.shell.View()
	switch {
	case len(w.ops) > 0:
		return "still waiting: " + w.ops[0].key()
	case n.inFlight != nil || len(n.queue) > 0:
		return "the runtime still waits for answers"
	case !view.Synced || !view.Settled:
		return fmt.Sprintf("the daemon says synced %t, settled %t", view.Synced, view.Settled)
	}
	grants := view.Grants()
	return cmp.Or(w.unsettledGrants(view, grants), w.unsettledCgroups(view, grants), w.unsettledDisk(grants))
}

func (w *World) unsettledGrants(view View, grants map[string]cpuset.Set) string {
	var owned cpuset.Set
	for _, uid := range slices.Sorted(maps.Keys(grants)) {
		grant := grants[uid]
		if !slices.ContainsFunc(w.node.pods, func(p *Pod) bool { return p.UID() == uid }) {
			return fmt.Sprintf("%s is over and still owns %s", uid, grant)
		}
		if owned.Intersects(&grant) {
			return fmt.Sprintf("%s owns %s, of which others own %s", uid, grant, grant.And(owned))
		}
		owned.AddSet(&grant)
	}
	if owned.Intersects(&view.Shared) {
		return fmt.Sprintf("the shared pool has %s, of which owners have %s", view.Shared, owned.And(view.Shared))
	}
	return ""
}

func (w *World) unsettledCgroups(view View, grants map[string]cpuset.Set) string {
	for _, c := range w.node.running() {
		p := c.Pod
		want := view.Shared
		grant := grants[p.UID()]
		left := grant.And(w.topo.Online())
		switch {
		case !left.IsEmpty() && c.owns():
			want = left
		case p.isBE():
			want = view.BE
		}
		e, err := w.kernel.Effective(c.Path())
		if err != nil {
			return err.Error()
		}
		if e.CPUs != want {
			return fmt.Sprintf("%s runs on %s and belongs on %s", c.Path(), e.CPUs, want)
		}
		quota := *c.asked().Quota
		if !left.IsEmpty() && (len(p.parts) == 1 || p.Mixed && c.owns()) { // of several, each keeps its own limit
			quota.Micros = -1
		}
		if e.QuotaMilli != quota.Milli() {
			return fmt.Sprintf("%s has quota %d and should have %d", c.Path(), e.QuotaMilli, quota.Milli())
		}
	}
	return ""
}

func (w *World) unsettledDisk(grants map[string]cpuset.Set) string {
	saved := map[string]cpuset.Set{}
	places := w.disk.load(w.clock(), w.elapsed)
	for uid, p := range places.Places() {
		if !p.CPUs.IsEmpty() {
			saved[uid] = p.CPUs
		}
	}
	if !maps.Equal(saved, grants) {
		return fmt.Sprintf("saved are %v, owned are %v", saved, grants)
	}
	return ""
}

// pays reports whether an owner gave up CPUs while some are off, or while the daemon has not heard
// that they are back: for others, as one of its own is off, which the daemon may have learned late;
// or all of them or a part, where owners would otherwise have every CPU that is on.
func (w *World) pays(p *Pod, view View, grants map[string]cpuset.Set) bool {
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
	for _, theirs := range grants { // also of pods that are over, of which it has not heard
		left.RemoveSet(&theirs)
	}
	for _, other := range w.node.pods {
		left.RemoveSet(&other.grant)
	}
	return left.IsEmpty()
}

// heldOff are the CPUs that are off and those that the daemon holds to be.
func (w *World) heldOff(view View) cpuset.Set {
	return w.offline.Or(w.topo.Online().Minus(view.Online))
}
