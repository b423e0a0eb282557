package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// waiter is the answer about a container that is held back until the container can start
// without sharing a CPU that has an owner:
//
//   - no other cgroup may have any of the CPUs that it owns, if it owns any;
//   - its pod's cgroup may have none that others own. Of a pod whose containers own CPUs it
//     has those of all of them, and each starts with a mask of its own.
//
// Both are asked of what the kernel may have at that moment, which the tree derives; so
// nothing has to be remembered when a write fails, is left out or comes late. The tree
// has to know which CPUs are online: where those of a mask are not, the kernel gives others.
type waiter struct {
	reply  Reply
	gen    uint64      // the writer's number of the decisions
	id     string      // of the container
	uid    string      // of its pod
	path   string      // of its pod's cgroup
	update bool        // it runs already
	had    *cpuset.Set // it had these CPUs of its own then; nil: none
	// unsaved: its cap is not on disk yet, and a daemon that is killed now would leave it for good.
	unsaved bool
	ended   bool // it is answered, or is being answered
}

// errNotYetRead is why CPUs are held where no write failed.
var errNotYetRead = errors.New("what their cgroups allow is not yet known")

// errEnded is why a container does not start that has ended while it waited.
var errEnded = errors.New("it has ended, or its pod has")

// hold answers a create or an update as soon as it can be.
func (c *Core) hold(w *waiter, decisions []policy.Decision) {
	w.gen = c.writer.inbox.last
	if d, ok := decisionOf(decisions, w.id); ok {
		w.reply.Container = &d
	}
	c.saveAhead(w)
	if w.reply.Container == nil || !c.o.Tree.Writes || c.o.Late > 0 || c.blocked(w) == nil {
		c.start(w)
		return
	}
	c.waiters = append(c.waiters, w)
}

// await has every answer that waits do so for all that is decided now: pods of which it was not known what
// they have come into the tree with it.
func (c *Core) await() {
	for _, w := range c.waiters {
		w.gen = c.writer.inbox.last
	}
}

// renew replaces the answers that wait and were decided anew: what they say may be others'
// by now. A limit of ours that was decided since is written to the cgroup only: the policy knows
// what the runtime stores of ours by the events that are answered. A cap is answered by nobody
// before it is saved.
func (c *Core) renew(t taken) {
	if t.gen == 0 {
		return
	}
	for _, w := range c.waiters {
		if d, ok := decisionOf(t.decisions, w.id); ok {
			if was := w.reply.Container; d.QuotaOurs && !(was.QuotaOurs && was.Quota == d.Quota) {
				d.Quota, d.QuotaOurs, d.Cap = was.Quota, was.QuotaOurs, was.Cap
			}
			w.reply.Container, w.gen = &d, max(w.gen, t.gen)
			c.saveAhead(w)
		}
	}
}

// saveAhead has an answer wait for the save of the cap in it, and of the CPUs that it makes a
// pod's own: the runtime stores what it is told.
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

// start answers that a container may start.
func (c *Core) start(w *waiter) {
	w.reply.Topology = c.machine.Topology()
	if d := w.reply.Container; d != nil && d.Beside != nil { // others may have got CPUs of it meanwhile
		if pool := c.machine.PoolCPUs(d.Need.Pool); !pool.IsEmpty() {
			now := *d
			now.Beside, w.reply.Container = &pool, &now
		}
	}
	if !w.update {
		delete(c.fresh, w.uid)
		c.writer.creating(w.reply.Container)
	}
	c.reply(w.reply)
}

// decisionOf is the decision about one container.
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

// blocked says why a container cannot start yet; nil: it can.
func (c *Core) blocked(w *waiter) error {
	if w.unsaved {
		return errors.New("its cap is not saved yet")
	}
	if c.machine.HasOwners() && c.writer.topo.Online() != c.machine.Topology().Online() {
		return errors.New("CPUs came or went, and what their cgroups allow since is not yet known")
	}
	if own := w.reply.Container.Need.Own; own != nil {
		if c.saving.late(w.reply.Container.Pod.UID) {
			return errors.New("its pod's place is not saved yet")
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
			may = c.writer.tree.MayGive(w.path, *own)
		}
		if more := may.Minus(*own); !more.IsEmpty() {
			return fmt.Errorf("cgroup %s may still allow CPUs %s that are not the pod's: %w", w.path, more,
				c.writer.why())
		}
	}
	if others := c.beyond(w); !others.IsEmpty() {
		return fmt.Errorf("cgroup %s may still allow CPUs %s of owners: %w", w.path, others, c.writer.why())
	}
	return nil
}

// unread says that pods are not read yet, which are in no tree and may run anywhere: an owner does not come
// onto CPUs meanwhile that it does not have.
func (c *Core) unread(w *waiter) error {
	n, own := c.machine.Unread(), w.reply.Container.Need.Own
	if n == 0 {
		return nil
	}
	if has := c.writer.tree.Has(w.reply.Container.Container.CgroupPath); w.update && own.SubsetOf(&has) {
		return nil
	}
	return fmt.Errorf("CPUs %s may be in use by %d pods that ran before and are not read yet", own, n)
}

// beyond is the CPUs of others that a container may have now.
func (c *Core) beyond(w *waiter) cpuset.Set {
	if !c.machine.HasOwners() {
		return cpuset.Set{}
	}
	if d := w.reply.Container; d.Beside != nil {
		// The kernel gives it its neighbours' CPUs where its pod's cgroup has none of the pool's.
		may := c.writer.tree.MayGive(w.path, c.machine.PoolCPUs(d.Need.Pool))
		return c.machine.Beyond(w.uid, true, may, c.fresh)
	}
	return c.machine.Beyond(w.uid, false, c.writer.tree.MayUse(w.path), c.fresh)
}

// release answers those that need not wait any more, and those that cannot. A panic ends one
// wait and not those of others.
func (c *Core) release() {
	for _, w := range slices.Clone(c.waiters) {
		c.part("answering", func() { c.settle(w) })
	}
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool { return w.ended })
}

// settle answers one of those that wait, if it is time.
func (c *Core) settle(w *waiter) {
	c.unfinished.request, w.ended = w.reply.To, true // also where it panics
	err := c.blocked(w)
	late := !w.reply.To.Deadline.IsZero() && !c.now.Before(w.reply.To.Deadline)
	switch {
	case !c.machine.Knows(w.id):
		c.refuse(w, errEnded)
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

// refuse ends the wait of a container whose CPUs are not free in time. One that is being
// created is no container then; one that runs keeps running where it is, and the writer
// goes on.
func (c *Core) refuse(w *waiter, why error) {
	if w.update {
		w.reply.Container = c.asItIs(w)
		c.o.Log.Error("an update is answered before its CPUs are free", "container", w.id, "err", why)
	} else {
		w.reply.Container = nil
		w.reply.Err = &policy.Refusal{Code: policy.Busy, Message: why.Error() + "; the container is tried again"}
		c.take(policy.ContainerStopped{ID: w.id}, nil)
	}
	c.reply(w.reply)
}

// asItIs says of an owner that is to grow what it has. Where an update names no CPUs, the runtime writes
// those that it stores: what the writer has taken from it since, or from its pod, may be others'. Where its
// mask is not known it is told what it had and nobody else has, and nothing where the writer knows it in a pool only.
func (c *Core) asItIs(w *waiter) *policy.SetContainer {
	d := w.reply.Container
	if d == nil || d.Need.Own == nil || d.Container.CgroupPath == "" {
		return nil
	}
	has := c.writer.tree.Has(d.Container.CgroupPath)
	if own, ok := c.writer.tree.Own(w.id); has.IsEmpty() && ok && w.had != nil && c.machine.Unread() == 0 {
		has = own.And(*w.had).And(*d.Need.Own).Minus(c.writer.tree.Held())
	}
	if has.IsEmpty() || !has.SubsetOf(d.Need.Own) {
		return nil
	}
	now := *d
	now.Need.Own = &has
	return &now
}

// nextDeadline is when the first of those that wait has to be answered.
func (c *Core) nextDeadline() time.Time {
	var next time.Time
	for _, w := range c.waiters {
		if at := w.reply.To.Deadline; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
