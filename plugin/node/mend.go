package node

import (
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/quietcore/quietcore/policy"
)

// hand is what a part of the core has in hand: a panic must not lose it.
type hand struct {
	request *Request // that is being answered; nil: none
	// owes says that the machine has decided something that the writer does not have, and
	// observed is what came with it.
	owes     bool
	observed observations
}

// owe notes that the writer lacks what was decided.
func (h *hand) owe(observed observations) {
	h.owes = true
	if len(observed) == 0 {
		return
	}
	if h.observed == nil {
		h.observed = observations{}
	}
	maps.Copy(h.observed, observed)
}

// paid notes that the writer has it. What was observed is old from then on.
func (h *hand) paid() { h.owes, h.observed = false, nil }

// part runs a part of a step. Where it panics the others go on, and what it had in hand is
// dealt with.
func (c *Core) part(what string, f func()) {
	if !c.Guard(what, f) {
		c.mend()
	}
	c.hand.request = nil
}

// Guard keeps the daemon up where code panics that reads the machine or carries out what
// it decided; a panic of the policy's step is handled where it is called. It reports whether
// there was none.
func (c *Core) Guard(what string, f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			c.o.Log.Error("the daemon's core panicked; this is a defect, please report it", "while", what,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// mend goes on after a panic: whoever waits is answered, and the writer is given all that was
// decided, since it may have none of what was decided last.
func (c *Core) mend() {
	if r := c.hand.request; r != nil && !c.answers(r) {
		c.Guard("answering after a panic", func() { c.fail(r) })
		if !c.answers(r) {
			c.reply(Reply{To: r, Err: ErrInternal})
		}
	}
	if c.hand.owes {
		c.Guard("handing on what was decided", c.rebuild)
	}
}

// answers says whether a request is answered, or will be.
func (c *Core) answers(r *Request) bool {
	for i := range c.out.Replies {
		if c.out.Replies[i].To == r {
			return true
		}
	}
	for _, w := range c.waiters {
		if w.reply.To == r && !w.ended {
			return true
		}
	}
	return c.takeover.request == r
}

// fail answers a request whose handling panicked. The runtime makes no container then; it
// removes a sandbox by itself.
func (c *Core) fail(r *Request) {
	if e, ok := r.Event.(policy.ContainerCreate); ok && c.machine.Knows(e.Container.ID) {
		c.take(policy.ContainerStopped{ID: e.Container.ID}, nil)
	}
	c.reply(Reply{To: r, Err: ErrInternal})
}
