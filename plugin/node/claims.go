package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// claimWaiter is the reply about a claim of our own DRA driver that is held back until what was decided is on disk and,
// if the claim is prepared, until no cgroup may use its CPUs: kubelet starts the pod then. Unlike the place of a pod, a
// claim is in no cgroup, so a daemon that finds it in no file knows nothing of it.
type claimWaiter struct {
	reply   Reply
	gen     uint64     // number of the writer's batch with the decision
	cpus    cpuset.Set // that have to be free of others; empty: the claim is unprepared
	unsaved bool
	ended   bool // it is answered, or is being answered
}

// isClaim reports whether an event is about a claim of our own driver.
func isClaim(e policy.Event) bool {
	switch e.(type) {
	case policy.ClaimPrepared, policy.ClaimUnprepared:
		return true
	}
	return false
}

// errNotTaken is why no claim is prepared or unprepared yet: it may be in the state file, which counts once what runs
// is taken over.
var errNotTaken = &policy.Refusal{Code: policy.Busy,
	Message: "the pods that run are not taken over yet; the claim is tried again"}

// holdClaim answers an event about a claim as soon as that is possible.
func (c *Core) holdClaim(reply Reply, decisions []policy.Decision) {
	w := &claimWaiter{reply: reply, gen: c.writer.inbox.last, unsaved: true}
	for _, d := range decisions {
		if given, ok := d.(policy.ClaimGiven); ok {
			w.reply.Claim = given.CPUs
			for i := range given.CPUs {
				w.cpus.AddSet(&given.CPUs[i])
			}
		}
	}
	c.saving.now(func() { w.unsaved = false })
	c.claims = append(c.claims, w)
}

// claimBlocked is why the answer about a claim has to wait; nil: it need not.
func (c *Core) claimBlocked(w *claimWaiter) error {
	switch {
	case w.unsaved:
		return errors.New("what was decided about the claim is not saved yet")
	case w.cpus.IsEmpty() || !c.carriesOut():
		return nil
	case c.takeover.lost:
		return fmt.Errorf("the runtime is not connected, and may start pods on CPUs %s", w.cpus)
	case c.takeover.open || c.machine.Unread() > 0:
		return fmt.Errorf("CPUs %s may be in use by pods that ran before and are not read yet", w.cpus)
	case c.writer.topo.Online() != c.machine.Topology().Online():
		return fmt.Errorf("CPUs %s are online now, and what cgroups allow since is not yet known",
			c.machine.Topology().Online())
	case c.writer.shrunk < w.gen:
		return fmt.Errorf("CPUs %s are not yet free of others: %w", w.cpus, context.DeadlineExceeded)
	}
	if held := c.writer.tree.Held(); held.Intersects(&w.cpus) {
		return fmt.Errorf("CPUs %s are still in use by others: %w", held.And(w.cpus), c.writer.why())
	}
	return nil
}

// errTaken is why a claim is not prepared that lost CPUs before any pod had it.
var errTaken = errors.New("its CPUs went to the shared pool, which had none left")

// endsWait reports whether waiting longer does not help. After an internal error the next attempt is kubelet's: each
// costs a rebuild of the machine, whose batch would bring the next one at once.
func endsWait(err error) bool {
	return errors.Is(err, errTaken) || errors.Is(err, ErrInternal) || errors.Is(err, ErrFrozen)
}

// followClaim compares the answer about a claim that is prepared with what the claim has by now: the shared pool may
// have taken CPUs, its last ones being offline. If a pod has the claim, the answer is what is left. If none has, the
// claim is taken back, and decided anew when kubelet asks again: no pod starts with less than it asks for.
func (c *Core) followClaim(w *claimWaiter) error {
	e, prepares := w.reply.To.Event.(policy.ClaimPrepared)
	if !prepares {
		return nil
	}
	now := c.machine.anchor.claims[e.UID]
	if lacks(&e, now) {
		err := c.take(policy.ClaimUnprepared{UID: e.UID, IfUnused: true}, nil).err
		var has *policy.Refusal
		switch {
		case err == nil:
			return errTaken
		case !errors.As(err, &has):
			return err
		}
	}
	if slices.Equal(now, w.reply.Claim) {
		return nil
	}
	w.reply.Claim, w.cpus, w.gen, w.unsaved = now, cpuset.Set{}, c.writer.inbox.last, true
	for i := range now {
		w.cpus.AddSet(&now[i])
	}
	c.saving.now(func() { w.unsaved = false })
	return c.claimBlocked(w)
}

// lacks reports whether a claim has less than it asks for.
func lacks(e *policy.ClaimPrepared, has []cpuset.Set) bool {
	for i := range e.Requests {
		if len(has) <= i || has[i].Count() < e.Requests[i].CPUs {
			return true
		}
	}
	return false
}

// releaseClaims answers what can be answered, and what has waited for too long: the claim keeps its CPUs, and kubelet
// asks again.
func (c *Core) releaseClaims() {
	for _, w := range slices.Clone(c.claims) {
		c.part("answering about a claim", func() {
			c.unfinished.request, w.ended = w.reply.To, true // in case it panics
			err := c.claimBlocked(w)
			if err == nil {
				err = c.followClaim(w)
			}
			deadline := w.reply.To.Deadline
			if err != nil && (deadline.IsZero() || c.now.Before(deadline)) && !endsWait(err) {
				w.ended = false
				return
			}
			if err != nil {
				w.reply.Err = &policy.Refusal{Code: policy.Busy, Message: err.Error() + "; the claim is tried again"}
			}
			c.reply(w.reply)
		})
	}
	c.claims = slices.DeleteFunc(c.claims, func(w *claimWaiter) bool { return w.ended })
}
