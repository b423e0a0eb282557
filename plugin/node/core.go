package node

import (
	"context"
	"errors"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Core is the daemon's state machine. One goroutine owns it.
type Core struct {
	o        *Options
	machine  machine
	writer   *writer
	waiters  []*waiter
	claims   []*claimWaiter
	fresh    map[string]bool // pods, by UID, none of whose containers has been allowed to start yet
	takeover takeover
	presence presence
	saving   saving
	effects  effects
	mode     mode
	// unfinished is the work that a panic must not lose.
	unfinished unfinished
	now        time.Time
	out        Out
}

// In is something that happened.
type In interface{ in() }

// Request is an event whose sender waits for the reply.
type Request struct {
	Event policy.Event
	// Inventory is what the runtime lists at a Synchronize, which has no Event.
	Inventory *Inventory
	// Pod is the UID of the pod that a request of the runtime is about.
	Pod string
	// Deadline is when the reply is due; zero: at any time.
	Deadline time.Time
	// Made means that the container of a ContainerCreate exists, created without a reply of ours, and is about to
	// start: the runtime takes no values from this reply.
	Made bool
}

// Done is the result of an effect.
type Done struct {
	Op     Op
	Result *Result
}

// Tick comes every second, and says for how long the machine Slept since the last one. Audit comes every half minute
// and reads cgroups back; Round, every half minute too, looks for pods. Wake means that the time of Next has come.
type (
	Tick  struct{ Slept time.Duration }
	Audit struct{}
	Round struct{}
	Wake  struct{}
	// Lost: the runtime's connection has ended. Until the next Synchronize it starts what it wants where it wants.
	Lost struct{}
)

// Verify asks for a container's cgroup to be read back.
type Verify struct{ Container string }

// Recheck asks for a pod's quota to be read again: kubelet wrote it, or will Soon.
type Recheck struct {
	Pod  string
	Soon bool
}

// Stopping names a pod that lost its sandbox or a container and may be terminating.
type Stopping struct{ Pod string }

func (*Request) in() {}
func (Done) in()     {}
func (Tick) in()     {}
func (Audit) in()    {}
func (Round) in()    {}
func (Wake) in()     {}
func (Lost) in()     {}
func (Verify) in()   {}
func (Recheck) in()  {}
func (Stopping) in() {}

// Out is what a step asks for.
type Out struct {
	Effects []*Effect
	Replies []Reply
}

// Reply is the answer to a request.
type Reply struct {
	To  *Request
	Err error
	// Container is the decision about the container that was created or updated; nil: there is
	// none, or it cannot be carried out in time.
	Container *policy.SetContainer
	Topology  *topology.Topology
	// Claim are the CPUs of each request of a claim that was prepared.
	Claim []cpuset.Set
}

// New makes a core. The error names the part of the configuration that this machine cannot satisfy.
func New(o Options) (*Core, error) {
	o.fill()
	m, err := policy.New(o.Topology, o.Config)
	if err != nil {
		return nil, err
	}
	c := &Core{o: &o, machine: newMachine(m, &o), effects: effects{pending: map[Op]*pending{},
		routines: map[*routine]struct{}{}},
		fresh: map[string]bool{}}
	c.writer = newWriter(c, m)
	c.mode = newMode(c.o)
	c.takeover = newTakeover(c)
	c.presence = newPresence(c)
	c.saving = saving{c: c, places: newPlaces(o.Saved), claims: newClaimFile(o.Saved)}
	return c, nil
}

// Step takes one input and returns what follows from it. Now never decreases.
func (c *Core) Step(now time.Time, in In) Out {
	c.now = now
	c.part("handling an input", func() { c.handle(in) })
	c.part("handling timers", func() { c.effects.expire(now) })
	c.proceed()
	out := c.out
	c.out = Out{}
	return out
}

func (c *Core) handle(in In) {
	switch in := in.(type) {
	case *Request:
		c.request(in)
	case Done:
		c.effects.done(in)
	case Tick:
		c.take(policy.Tick{Slept: in.Slept}, nil)
	case Audit:
		c.writer.put(batch{audit: true})
	case Round:
		c.presence.roundDue = true
	case Verify:
		c.takeover.othersWrite(c.writer.ctrs[in.Container])
		c.writer.put(batch{verify: []string{in.Container}})
	case Recheck:
		c.takeover.othersWrite(c.writer.pods[in.Pod])
		c.writer.recheck(in)
	case Stopping:
		c.presence.stopping(in.Pod)
	case Mode:
		c.setMode(in)
	case Lost:
		c.takeover.lose()
	case Wake:
	}
}

// proceed lets every part do what it can do now. Parts with timers compare them with c.now.
func (c *Core) proceed() {
	c.part("taking over", c.takeover.proceed)
	c.part("ending limits", c.endLimits)
	c.part("writing", c.writer.proceed)
	c.part("giving cpu.idle up", c.refuseIdle)
	c.part("looking for pods", c.presence.proceed)
	c.part("saving", c.saving.proceed)
	c.release()
	c.releaseClaims()
}

// Next is the earliest timer: Step has to be called then even without an input; zero: never.
func (c *Core) Next() time.Time {
	var next time.Time
	for _, at := range []time.Time{
		c.effects.next(), c.writer.next(), c.takeover.next(), c.presence.next(), c.saving.next(), c.nextDeadline(),
	} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func (c *Core) reply(r Reply) { c.out.Replies = append(c.out.Replies, r) }

// request handles a request. One whose deadline has passed is not taken: its sender has gone on
// as if it had never been sent.
func (c *Core) request(r *Request) {
	c.unfinished.request = r
	if !r.Deadline.IsZero() && !c.now.Before(r.Deadline) {
		c.reply(Reply{To: r, Err: context.DeadlineExceeded})
		return
	}
	c.presence.noteRequest(r)
	if r.Inventory != nil {
		c.takeover.begin(r)
		return
	}
	if isClaim(r.Event) && !c.takeover.taken {
		c.reply(Reply{To: r, Err: errNotTaken})
		return
	}
	pod := podIn(r.Event)
	first := pod != "" && !c.machine.KnowsPod(pod)
	had := c.machine.anchor.decided[updatedBy(r.Event)].own
	var observed observations
	if r.Made {
		observed = observations{} // it has the mask of its creation, and nothing was read
	}
	t := c.take(r.Event, observed)
	if first && c.machine.KnowsPod(pod) {
		c.fresh[pod] = true
	}
	answer := Reply{To: r, Err: t.err, Topology: c.machine.Topology()}
	if t.err == nil {
		switch e := r.Event.(type) {
		case policy.ContainerCreate:
			c.hold(&waiter{reply: answer, id: e.Container.ID, uid: e.Pod.UID,
				path: e.Pod.CgroupParent}, t.decisions)
			return
		case policy.PodResized:
			c.takeover.resized(&e)
		case policy.ClaimPrepared, policy.ClaimUnprepared:
			c.holdClaim(answer, t.decisions)
			return
		case policy.ContainerUpdate:
			c.takeover.updated(&e)
			c.hold(&waiter{reply: answer, id: e.ID, update: true, had: had}, t.decisions)
			return
		}
	}
	c.reply(answer)
}

// updatedBy is the ID of the container that an event updates; empty: it updates none.
func updatedBy(e policy.Event) string {
	if u, ok := e.(policy.ContainerUpdate); ok {
		return u.ID
	}
	return ""
}

// podIn is the UID of the pod that an event may add; empty: it adds none.
func podIn(e policy.Event) string {
	switch e := e.(type) {
	case policy.PodRun:
		return e.Pod.UID
	case policy.ContainerCreate:
		return e.Pod.UID
	}
	return ""
}

// taken is the result of one event.
type taken struct {
	decisions []policy.Decision
	gen       uint64 // the number of the writer's batch with these decisions
	err       error
}

// ErrInternal answers an event whose step panicked.
var ErrInternal = errors.New("quietcore: internal error, see its log; the pod is retried")

// take gives the policy an event and passes its decisions on. observed is what was read from
// cgroups, by path.
func (c *Core) take(e policy.Event, observed observations) taken {
	_, tick := e.(policy.Tick)
	if !tick {
		c.o.At(failpoint.EventTaken)
	}
	decisions, err := c.step(e)
	if err != nil || tick && len(decisions) == 0 {
		return taken{err: err}
	}
	earlier := c.unfinished.undelivered // from a panic: the writer lacks more than these decisions
	c.unfinished.add(observed)
	c.o.Changed()
	for _, d := range decisions {
		if d, ok := d.(policy.DropPod); ok {
			delete(c.fresh, d.UID)
		}
	}
	c.o.At(failpoint.EventStepped)
	t := taken{decisions: decisions, gen: c.carryOut(e, decisions, observed)}
	if !earlier {
		c.unfinished.delivered()
	}
	c.renew(t)
	c.o.At(failpoint.EventHanded)
	return t
}

// carryOut passes decisions on to the writer and returns the number of their batch.
func (c *Core) carryOut(e policy.Event, decisions []policy.Decision, observed observations) uint64 {
	if len(decisions) == 0 && observed == nil {
		return 0
	}
	b := batch{decisions: decisions, topo: c.machine.Topology(), rev: c.machine.Rev(), observed: observed}
	b.live = c.takeover.live(e)
	_, b.listed = e.(policy.Synchronized)
	b.listed = b.listed && !c.takeover.lost
	_, b.audit = e.(policy.Hardware)
	keep, lazy := weigh(decisions)
	_, tick := e.(policy.Tick) // its decisions are ends of caps
	if keep || tick || endsCaps(e) {
		c.saving.dirty = true
	}
	b.lazy = lazy && !b.live && !b.audit && !tick
	return c.writer.put(b)
}

func endsCaps(e policy.Event) bool {
	switch e.(type) {
	case policy.CapReleased, policy.Released:
		return true
	}
	return false
}

// weigh reports whether decisions change what is saved (pods, and the limits that capped
// containers return to), and whether they can wait: no pod ends, and none starts on CPUs of its
// own.
func weigh(decisions []policy.Decision) (keep, lazy bool) {
	lazy = true
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPod, policy.DropPod:
			keep, lazy = true, false
		case policy.ClaimGiven, policy.DropClaim: // their reply waits
			keep, lazy = true, false
		case policy.SetPool, policy.DropPool, policy.SetUnannounced, policy.DropUnannounced:
			lazy = false
		case policy.SetContainer:
			keep = keep || d.Cap != nil
			lazy = lazy && d.Need.Own == nil && !d.QuotaOurs
		}
	}
	return keep, lazy
}
