package node

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// machine is the policy's machine, with what survives a panic of it.
type machine struct {
	*policy.Machine
	anchor anchor
	frozen string // why the machine is not reliable; empty: it is
}

// recordedEvents bounds the record of what happened.
const recordedEvents = 512

func newMachine(m *policy.Machine, o *Options) machine {
	return machine{Machine: m, anchor: newAnchor(m, o.Config)}
}

// ErrFrozen answers every request that needs the policy while its machine is not reliable.
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
		// No pod is started: the rebuilt machine would not know it, so no owner would wait for
		// it to leave.
		return nil, ErrFrozen
	}
	defer func() {
		if p := recover(); p != nil {
			c.o.Log.Error("a step of the policy panicked; this is a defect, please report it with the record",
				"event", kindOf(e), "panic", fmt.Sprint(p), "record", recordText(c.now, e), "stack",
				string(debug.Stack()))
			if !tick { // a tick is recorded only after its step
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
		// Other ticks would push everything else out of the record.
		if e, _ := e.(policy.Tick); len(decisions) > 0 || e.Slept > 0 {
			recorder.Add(c.machine.Machine, c.now, e)
		}
		recorder.Turn(c.machine.Machine, c.now)
	}
	c.machine.anchor.update(c.machine.Machine, c.now, e, decisions)
	return decisions, nil
}

// rebuild replaces the machine that panicked, or freezes: an empty machine would give CPUs that
// are in use to others.
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
		c.o.Log.Error("events that panic again are left out of the policy's record", "events", kindsOf(r.leftOut))
	}
	c.machine.Machine = r.machine
	c.machine.anchor.recorder.Rebase(r.machine, c.now)
	c.machine.anchor.decided = map[string]place{}
	note(c.machine.anchor.decided, r.decisions)
	// A claim whose CPUs are offline may have others now.
	c.machine.anchor.claims = map[string][]cpuset.Set{}
	noteClaims(c.machine.anchor.claims, r.decisions)
	c.machine.anchor.unread = r.machine.UnreadUIDs()
	// Which containers the runtime created meanwhile, and from which reply, is not known: no cgroup is
	// assumed to be as decided.
	observed := observations{}
	maps.Copy(observed, c.unfinished.observed)
	gen := c.writer.put(batch{decisions: r.decisions, topo: r.machine.Topology(), rev: r.machine.Rev(), full: true,
		observed: observed, live: c.takeover.known()})
	c.renew(taken{decisions: r.decisions, gen: gen}) // the event behind a waiting reply may be left out
	c.unfinished.delivered()
	c.saving.dirty = true
	if c.machine.frozen != "" {
		c.machine.frozen = ""
		c.o.Log.Warn("the policy's machine is rebuilt and goes on")
	}
}

func kindsOf(records []policy.Record) (kinds []string) {
	for _, r := range records {
		kinds = append(kinds, kindOf(r.Event()))
	}
	return kinds
}

// kindOf names an event as records do: containerCreate.
func kindOf(e policy.Event) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", e), "policy.")
	return strings.ToLower(name[:1]) + name[1:]
}
