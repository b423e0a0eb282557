package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// waiter is the reply about a container that is held back until the container can start without
// sharing a CPU that has an owner:
//
//   - if it owns CPUs, no other cgroup may use any of them;
//   - its pod's cgroup may use no CPU that others own. If containers of the pod own CPUs, it has
//     the CPUs of all of them, and each starts with a mask of its own.
//
// Both are checked against what the kernel may allow at that moment, which the tree derives; so
// no state has to be kept when a write fails, is left out or takes effect late. The tree has to
// know which CPUs are online: if those of a mask are not, the kernel uses others.
type waiter struct {
	reply  Reply
	gen    uint64      // number of the writer's batch with the decisions
	id     string      // of the container
	uid    string      // of its pod
	path   string      // of its pod's cgroup
	update bool        // the container runs already
	had    *cpuset.Set // its own CPUs before the update; nil: none
	// unsaved means that its cap is not on disk yet: if the daemon were killed now, the cap would
	// stay for good.
	unsaved bool
	ended   bool // it is answered, or is being answered
}

// errNotYetRead is why CPUs are held although no write failed.
var errNotYetRead = errors.New("what their cgroups allow is not yet known")

// errEnded is why a container that ended while it waited does not start.
var errEnded = errors.New("the container has ended, or its pod has")

// hold answers a create or an update as soon as that is possible.
func (c *Core) hold(w *waiter, decisions []policy.Decision) {
	w.gen = c.writer.inbox.last
	if d, ok := decisionOf(decisions, w.id); ok {
		w.reply.Container = &d
	}
	c.saveAhead(w)
	if w.reply.Container == nil || !c.carriesOut() || c.o.Late > 0 || c.blocked(w) == nil {
		c.start(w)
		return
	}
	c.waiters = append(c.waiters, w)
}

// waitForAll makes every waiting reply wait for all decisions so far: they bring pods into the tree whose
// CPUs were not known before.
func (c *Core) waitForAll() {
	for _, w := range c.waiters {
		w.gen = c.writer.inbox.last
	}
	for _, w := range c.claims {
		w.gen = c.writer.inbox.last
	}
}

// renew replaces waiting replies by newer decisions about the same container: CPUs in the old ones may
// belong to others by now. A newer limit of ours is written to the cgroup only and not added to the
// reply: the policy derives what the runtime stores from the events that were answered. No reply
// has a cap before the cap is saved.
func (c *Core) renew(t taken) {
	if t.gen == 0 {
		return
	}
	for _, w := range c.waiters {
		if d, ok := decisionOf(t.decisions, w.id); ok && !w.ended { // one that is being refused has no decision
			if was := w.reply.Container; d.QuotaOurs && !(was.QuotaOurs && was.Quota == d.Quota) {
				d.Quota, d.QuotaOurs, d.Cap = was.Quota, was.QuotaOurs, was.Cap
			}
			w.reply.Container, w.gen = &d, max(w.gen, t.gen)
			c.saveAhead(w)
		}
	}
}

// saveAhead makes a reply wait for the save of its cap, and of the CPUs that its pod then owns: the
// runtime stores what is in the reply.
func (c *Core) saveAhead(w *waiter) {
	d := w.reply.Container
	if d == nil {
		return
	}
	if d.Cap != nil && !c.saving.has(d.Cap) {
		w.unsaved = true
		c.saving.now(func() { w.unsaved = false })
	}
	if d.Need.Own != nil && c.saving.late(d.Pod.UID) {
		c.saving.urgent = true
	}
}

// start sends the reply with which a container may start.
func (c *Core) start(w *waiter) {
	w.reply.Topology = c.machine.Topology()
	if d := w.reply.Container; d != nil && d.StartMask != nil { // some of these CPUs may have an owner by now
		if pool := c.machine.PoolCPUs(d.Need.Pool); !pool.IsEmpty() {
			now := *d
			now.StartMask, w.reply.Container = &pool, &now
		}
	}
	if !w.update {
		delete(c.fresh, w.uid)
		if !w.reply.To.Made && !c.mode.observe {
			c.writer.creating(w.reply.Container)
		}
	}
	c.reply(w.reply)
}

// decisionOf is the last decision about one container.
func decisionOf(decisions []policy.Decision, id string) (policy.SetContainer, bool) {
	var found policy.SetContainer
	ok := false
	for _, d := range decisions {
		if c, is := d.(policy.SetContainer); is && c.Container.ID == id {
			found, ok = c, true
		}
	}
	return found, ok
}

// blocked is why a container cannot start yet; nil: it can.
func (c *Core) blocked(w *waiter) error {
	if w.unsaved {
		return errors.New("its cap is not saved yet")
	}
	if c.machine.HasOwners() && c.writer.topo.Online() != c.machine.Topology().Online() {
		return fmt.Errorf("CPUs %s are online now instead of %s, and what cgroups allow since is not yet known",
			c.machine.Topology().Online(), c.writer.topo.Online())
	}
	if own := w.reply.Container.Need.Own; own != nil {
		if c.saving.late(w.reply.Container.Pod.UID) {
			return errors.New("its pod's place is not saved yet")
		}
		if stale := c.saving.stale(); stale.Intersects(own) {
			return fmt.Errorf("that a claim has given back CPUs %s is not saved yet", stale.And(*own))
		}
		if err := c.unread(w); err != nil {
			return err
		}
		if c.writer.shrunk < w.gen {
			return fmt.Errorf("CPUs %s are not yet free of others: %w", own, context.DeadlineExceeded)
		}
		if held := c.writer.tree.Held(); held.Intersects(own) {
			return fmt.Errorf("CPUs %s are still in use by others: %w", held.And(*own), c.writer.why())
		}
	}
	if w.update || w.path == "" {
		return nil
	}
	if own := w.reply.Container.Need.Own; own != nil {
		may := c.writer.tree.MayUse(w.path)
		if c.machine.Mixed(w.uid) {
			may = c.mayGive(w, *own)
		}
		if more := may.Minus(*own); !more.IsEmpty() {
			return fmt.Errorf("cgroup %s may still allow CPUs %s that are not the pod's: %w", w.path, more,
				c.writer.why())
		}
	}
	if others := c.othersCPUs(w); !others.IsEmpty() {
		return fmt.Errorf("cgroup %s may still allow CPUs %s of owners: %w", w.path, others, c.writer.why())
	}
	return nil
}

// unread is an error while there are pods that are not taken over, or not read yet: they are not in the tree and may
// run anywhere, so meanwhile no owner gets CPUs that it does not have yet.
func (c *Core) unread(w *waiter) error {
	n, own := c.machine.Unread(), w.reply.Container.Need.Own
	if n == 0 && !c.takeover.open {
		return nil
	}
	if has := c.writer.tree.Has(w.reply.Container.Container.CgroupPath); w.update && own.SubsetOf(&has) {
		return nil
	}
	if c.takeover.open {
		return fmt.Errorf("CPUs %s may be in use by pods that the runtime lists and that are not taken over", own)
	}
	return fmt.Errorf("CPUs %s may be in use by %d pods that ran before and are not read yet", own, n)
}

// othersCPUs are the CPUs of other owners that a container could use if it started now.
func (c *Core) othersCPUs(w *waiter) cpuset.Set {
	if !c.machine.HasOwners() {
		return cpuset.Set{}
	}
	if d := w.reply.Container; d.StartMask != nil {
		// If its pod's cgroup has no CPU of the pool, the kernel lets it run on those of its neighbours.
		may := c.mayGive(w, c.machine.PoolCPUs(d.Need.Pool))
		return c.machine.ForbiddenCPUs(w.uid, true, may, c.fresh)
	}
	return c.machine.ForbiddenCPUs(w.uid, false, c.writer.tree.MayUse(w.path), c.fresh)
}

// mayGive is every CPU that a container gets that starts with a mask of its own: the one in the reply, unless it exists
// with another.
func (c *Core) mayGive(w *waiter, mask cpuset.Set) cpuset.Set {
	if w.reply.To.Made {
		return c.writer.tree.MayUse(w.reply.Container.Container.CgroupPath)
	}
	return c.writer.tree.MayGive(w.path, mask)
}

// release answers the waiters that can start and those whose deadline has passed. A panic ends one wait
// only.
func (c *Core) release() {
	for _, w := range slices.Clone(c.waiters) {
		c.part("answering", func() { c.settle(w) })
	}
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool { return w.ended })
}

// settle answers one waiter if it is time.
func (c *Core) settle(w *waiter) {
	c.unfinished.request, w.ended = w.reply.To, true // in case it panics
	err := c.blocked(w)
	late := !w.reply.To.Deadline.IsZero() && !c.now.Before(w.reply.To.Deadline)
	switch {
	case !c.machine.Knows(w.id):
		c.refuse(w, errEnded)
	case !c.carriesOut():
		c.start(w)
	case err == nil:
		if w.reply.Container.Need.Own != nil && !w.update {
			c.o.At(failpoint.CreateVacated)
		} else if w.update {
			c.o.At(failpoint.UpdateVacated)
		}
		c.start(w)
	case late:
		c.refuse(w, err)
	default:
		w.ended = false
	}
}

// refuse ends the wait of a container whose CPUs are not free in time. If it is being created, it is
// not created; if it runs, it keeps its current CPUs, and the writer continues.
func (c *Core) refuse(w *waiter, why error) {
	if w.update {
		w.reply.Container = c.currentCPUs(w)
		c.o.Log.Error("an update is answered before its CPUs are free; the container gets them once they are",
			"container", w.id, "err", why)
	} else {
		w.reply.Container = nil
		w.reply.Err = &policy.Refusal{Code: policy.Busy, Message: why.Error() + "; the container is tried again"}
		c.take(policy.ContainerStopped{ID: w.id}, nil)
	}
	c.reply(w.reply)
}

// currentCPUs is the decision about an owner that should grow, with the CPUs that it has now. Without CPUs in
// the reply the runtime writes those that it stores, and CPUs that the writer has taken from the container or its
// pod since may belong to others. The reply also has CPUs of its mask that it had and that no other cgroup may use,
// if its pod's mask lacks them or is not known: a new daemon takes what the runtime stores for the container's own. But
// if its pod's cgroup has none of these, the kernel would let it run on all that its pod's other containers have. It is
// nil if the writer knows the container in a pool only.
func (c *Core) currentCPUs(w *waiter) *policy.SetContainer {
	d := w.reply.Container
	if d == nil || d.Need.Own == nil || d.Container.CgroupPath == "" {
		return nil
	}
	has := c.writer.tree.Has(d.Container.CgroupPath)
	if own, ok := c.writer.tree.Own(w.id); ok && w.had != nil && c.treeComplete() {
		kept := own.And(*w.had).And(*d.Need.Own).Minus(c.writer.tree.Held())
		if may := c.writer.tree.MayUse(cgroup.Parent(d.Container.CgroupPath)); kept.Intersects(&may) {
			has.AddSet(&kept)
		}
	}
	if has.IsEmpty() || !has.SubsetOf(d.Need.Own) {
		return nil
	}
	now := *d
	now.Need.Own = &has
	return &now
}

// treeComplete reports whether the writer's tree has every pod that may run, and the CPUs that are online: only then
// CPUs that it does not hold are free of others.
func (c *Core) treeComplete() bool {
	return !c.unfinished.undelivered && c.machine.Unread() == 0 && !c.takeover.open &&
		c.writer.absorbed() >= c.takeover.gen && c.writer.topo.Online() == c.machine.Topology().Online()
}

// nextDeadline is the earliest deadline of a waiter; zero: there is none.
func (c *Core) nextDeadline() time.Time {
	var next time.Time
	earliest := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, w := range c.waiters {
		earliest(w.reply.To.Deadline)
	}
	for _, w := range c.claims {
		earliest(w.reply.To.Deadline)
	}
	return next
}
