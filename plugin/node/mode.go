package node

import (
	"time"

	"github.com/quietcore/quietcore/policy"
)

// Mode says whether decisions are carried out from now on.
//
// With Observe, caps end and best effort has its whole pool again; once that is written, nothing else is: every
// placement stays as it is. Without it, nothing is written before the next Synchronize, which takes over what runs by
// then as at a start. So the sender has the runtime synchronize again.
type Mode struct{ Observe bool }

func (Mode) in() {}

// mode is what is carried out of decisions.
type mode struct {
	observe  bool      // what is decided from now on is not carried out
	released bool      // the policy has ended its limits since
	undo     uint64    // the writer's last batch that is carried out then
	giveUp   time.Time // what is not undone by then stays
	still    bool      // nothing is written any more
	stores   bool      // the state is saved: it was enforced at least once
}

// withdrawFor bounds how long it is tried to undo what was enforced.
const withdrawFor = 10 * time.Minute

func newMode(o *Options) mode {
	silent := o.Observe && !o.Undo
	return mode{observe: o.Observe, released: silent, still: silent, stores: o.Stores && !silent}
}

// carriesOut reports whether what is decided now is written.
func (c *Core) carriesOut() bool { return c.o.Tree.Writes && !c.mode.observe }

func (c *Core) setMode(in Mode) {
	switch {
	case in.Observe:
		c.mode.observe, c.mode.released = true, false
	case c.mode.observe:
		c.mode.observe, c.mode.stores = false, c.o.Stores
		c.saving.dirty = true
		c.writer.put(batch{resume: true})
	}
}

// endLimits ends what the policy limits, once it is known what runs: an earlier daemon may have enforced it.
func (c *Core) endLimits() {
	if c.mode.released || !c.mode.observe || !c.takeover.known() || c.machine.frozen != "" {
		return
	}
	c.mode.released = true
	c.take(policy.Released{}, nil)
	if last := c.writer.put(batch{}); !c.mode.still {
		c.mode.undo, c.mode.giveUp = last, c.now.Add(withdrawFor)
	}
}

// withdrawing reports whether what was enforced is still being undone.
func (c *Core) withdrawing() bool { return c.mode.observe && !c.mode.still }

// carried is how many of the batches in the inbox are carried out; those behind them wait until nothing is written
// any more.
func (w *writer) carried() int {
	n := len(w.inbox.batches)
	if !w.c.withdrawing() || !w.c.mode.released {
		return n
	}
	return int(min(uint64(n), w.c.mode.undo-min(w.absorbed(), w.c.mode.undo)))
}

// withdrawn ends the withdrawal once everything is undone and reports whether it has ended now.
func (w *writer) withdrawn() bool {
	if !w.c.withdrawing() || !w.c.mode.released || w.carried() > 0 {
		return false
	}
	open := w.retry.failed || w.uncertain()
	switch {
	case open && w.c.now.Before(w.c.mode.giveUp):
		return false
	case open:
		w.c.o.Log.Error("not all that was enforced could be undone, and it is not tried any more; the cgroups named "+
			"before have to be looked at", "err", w.retry.cause)
	}
	w.c.o.Log.Info("nothing is enforced any more; every placement stays as it is")
	w.c.mode.still = true
	w.retry = retry{}
	w.limits.unwritten, w.limits.soon, w.limits.soonAt = nil, nil, time.Time{}
	w.audit.clear()
	clear(w.audit.drifted)
	w.inbox.at, w.inbox.held = w.c.now, time.Time{}
	return true
}

// resume has the writer wait for the next Synchronize, since it does not know what was done meanwhile.
func (w *writer) resume() {
	w.c.mode.still, w.live, w.resuming = false, false, true
	w.tree.UnreadAll()
}
