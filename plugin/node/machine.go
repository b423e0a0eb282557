package node

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"

	"github.com/quietcore/quietcore/policy"
)

// machine is the policy's, with what outlives a panic of it.
type machine struct {
	*policy.Machine
	anchor anchor
	frozen string // why there is no machine to rely on; empty: there is one
}

// recordedEvents bounds the record of what happened.
const recordedEvents = 512

func newMachine(m *policy.Machine, o *Options) machine {
	return machine{Machine: m, anchor: newAnchor(m, o.Config)}
}

// ErrFrozen answers whatever needs the policy while it has no machine to rely on.
var ErrFrozen = errors.New("quietcore: no decisions are made after an internal error, see its log; tried again soon")

// step gives the policy an event. A machine that panicked may be half changed, so it is
// rebuilt without the event.
func (c *Core) step(e policy.Event) (decisions []policy.Decision, err error) {
	_, tick := e.(policy.Tick)
	if c.machine.frozen != "" {
		if tick {
			c.rebuild()
			return nil, nil
		}
		// No pod is started: one that owns nothing would be in no machine afterwards, and no
		// owner would wait for it to leave.
		return nil, ErrFrozen
	}
	defer func() {
		if p := recover(); p != nil {
			c.o.Log.Error("a step of the policy panicked; this is a defect, please report it with the record",
				"event", kindOf(e), "panic", fmt.Sprint(p), "record", recordText(c.now, e), "stack",
				string(debug.Stack()))
			if !tick { // of a tick nothing was recorded before the step
				c.machine.anchor.recorder.Undo()
			}
			c.rebuild()
			decisions, err = nil, ErrInternal
		}
	}()
	recorder := c.machine.anchor.recorder
	if !tick {
		recorder.Add(c.machine.Machine, c.now, e)
	}
	if decisions, err = c.o.Step(c.machine.Machine, c.now, e); err != nil {
		return nil, err
	}
	if tick {
		if len(decisions) > 0 { // idle seconds would push everything else out of the record
			recorder.Add(c.machine.Machine, c.now, e)
		}
		recorder.Turn(c.machine.Machine, c.now)
	}
	c.machine.anchor.hold(c.machine.Machine, c.now, e, decisions)
	return decisions, nil
}

// rebuild puts a machine in place of the one that panicked, or freezes: an empty
// machine would give the CPUs of those who run to others.
func (c *Core) rebuild() {
	var r *rebuilt
	err := errors.New("rebuilding the machine panicked")
	c.Guard("rebuilding the machine", func() { r, err = c.machine.anchor.rebuild(c.o.Step, c.now, c.machine.Machine) })
	if err != nil {
		if c.machine.frozen == "" {
			c.o.Log.Error("the policy is frozen: masks stay, nothing is released and no pod is started "+
				"until its machine can be rebuilt, which is tried every second", "err", err)
		}
		c.machine.frozen = err.Error()
		return
	}
	if len(r.leftOut) > 0 {
		c.o.Log.Error("events that panic again are left out of the policy's record", "events", r.leftOut)
	}
	c.machine.Machine = r.machine
	c.machine.anchor.recorder.Rebase(r.machine, c.now)
	c.machine.anchor.decided = map[string]place{}
	note(c.machine.anchor.decided, r.decisions)
	c.machine.anchor.unread = r.machine.UnreadUIDs()
	// What the runtime made meanwhile, and by which answer, is not known: nothing is taken to be as decided.
	observed := observations{}
	maps.Copy(observed, c.hand.observed)
	gen := c.writer.put(batch{decisions: r.decisions, topo: r.machine.Topology(), rev: r.machine.Rev(), anew: true,
		observed: observed, live: c.takeover.known()})
	c.renew(taken{decisions: r.decisions, gen: gen}) // what led to an answer that waits may be left out
	c.hand.paid()
	c.saving.dirty = true
	if c.machine.frozen != "" {
		c.machine.frozen = ""
		c.o.Log.Warn("the policy's machine is rebuilt and goes on")
	}
}

// kindOf names an event as records do: containerCreate.
func kindOf(e policy.Event) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", e), "policy.")
	return strings.ToLower(name[:1]) + name[1:]
}
