package node

import (
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/quietcore/quietcore/policy"
)

// unfinished is the work of the running part of a step. A panic must not lose it.
type unfinished struct {
	request *Request // the request that is being answered; nil: none
	// undelivered means that the writer lacks decisions of the machine; observed is what was
	// read from cgroups for them.
	undelivered bool
	observed    observations
}

// add records that the writer lacks decisions.
func (u *unfinished) add(observed observations) {
	u.undelivered = true
	if len(observed) == 0 {
		return
	}
	if u.observed == nil {
		u.observed = observations{}
	}
	maps.Copy(u.observed, observed)
}

// delivered records that the writer has all decisions. What was observed is stale from then on.
func (u *unfinished) delivered() { u.undelivered, u.observed = false, nil }

// part runs a part of a step. If it panics, its unfinished work is completed and the other parts
// still run.
func (c *Core) part(what string, f func()) {
	if !c.Guard(what, f) {
		c.afterPanic()
	}
	c.unfinished.request = nil
}

// Guard catches a panic of code that reads the machine or carries out its decisions; step
// handles panics of the policy itself. It reports whether f returned without a panic.
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

// afterPanic completes unfinished work: the request gets a reply, and the writer gets the whole
// state, since it may lack the latest decisions.
func (c *Core) afterPanic() {
	if r := c.unfinished.request; r != nil && !c.answers(r) {
		c.Guard("answering after a panic", func() { c.fail(r) })
		if !c.answers(r) {
			c.reply(Reply{To: r, Err: ErrInternal})
		}
	}
	if c.unfinished.undelivered {
		c.Guard("passing decisions on after a panic", c.rebuild)
	}
}

// answers reports whether a request has a reply or waits for one.
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
	for _, w := range c.claims {
		if w.reply.To == r && !w.ended {
			return true
		}
	}
	return c.takeover.request == r
}

// fail refuses a request whose handling panicked. The runtime then creates no container; it
// removes a sandbox by itself.
func (c *Core) fail(r *Request) {
	if e, ok := r.Event.(policy.ContainerCreate); ok && c.machine.Knows(e.Container.ID) {
		c.take(policy.ContainerStopped{ID: e.Container.ID}, nil)
	}
	c.reply(Reply{To: r, Err: ErrInternal})
}
