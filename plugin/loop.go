package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// errInternal answers an event whose step panicked.
var errInternal = errors.New("quietcore: internal error, see its log; the pod is retried")

// outcome is what became of one event.
type outcome struct {
	decisions []policy.Decision
	seq       uint64 // what the enforcer calls the batch
	// placed is the batch that placed the pod of a created container, where there are
	// owners; 0: there are none. exposed says that the mask of its slice does not keep
	// the pod off their CPUs.
	placed  uint64
	exposed bool
	topo    *topology.Topology
	err     error
}

// request is one thing for the loop to do: an event, or a question.
type request struct {
	ctx      context.Context
	event    policy.Event
	observed map[string]cgroup.Effective
	ask      func(*policy.Machine)
	reply    chan outcome
}

// placed is the batch that last placed a pod, and whether the pod was ever exposed:
// whoever exposed it may be gone by now and its slice still be as wide.
type placed struct {
	seq     uint64
	exposed bool
}

// loop is the goroutine that owns the machine, and what it shares.
type loop struct {
	requests chan request
	machine  *policy.Machine
	anchor   anchor
	frozen   atomic.Pointer[string] // why there is no machine to rely on; nil: there is one
	placed   map[string]placed      // by the UID of a pod
	view     atomic.Pointer[policy.Snapshot]
	stale    atomic.Bool  // the machine is ahead of view
	beat     atomic.Int64 // of the last turn, in nanoseconds since start
	offset   atomic.Int64 // nanoseconds that tests have put the clock forward
	start    time.Time
	clock    Clock
	log      *slog.Logger

	// step is the machine's; tests replace it.
	step stepFunc
	// emit hands decisions on to be enforced and returns what waits for them.
	emit    func(batch) uint64
	saver   *saver
	changed func()
	pace    time.Duration // between two saves
	dirty   atomic.Bool   // the state file is behind and a save is not yet on its way
	at      passing
	unread  atomic.Int64 // pods whose CPUs are not known yet
	live    bool         // it was known once who owns what
	taken   bool         // what runs was taken over at least once; before, the file knows more than we do
}

// A change is saved soon, after its reply, and a burst of changes a few times a
// second: a save costs a copy of everything.
const (
	saveDelay = 10 * time.Millisecond
	saveEvery = 250 * time.Millisecond
)

// lookFor is how long a reader waits for a busy loop.
const lookFor = time.Second

// recordedEvents bounds the record of what happened.
const recordedEvents = 512

func newLoop(o *Options) (*loop, error) {
	m, err := policy.New(o.Topology, o.Config)
	if err != nil {
		return nil, err
	}
	l := &loop{
		requests: make(chan request), machine: m, anchor: newAnchor(m, o.Config),
		placed: map[string]placed{},
		clock:  o.Clock, log: o.Log, step: (*policy.Machine).Step,
		at: o.At, pace: saveEvery, changed: o.Changed, start: o.Clock.Now(),
	}
	l.view.Store(m.Snapshot())
	return l, nil
}

func (l *loop) now() time.Time { return l.clock.Now().Add(time.Duration(l.offset.Load())) }

// run serves until ctx ends.
func (l *loop) run(ctx context.Context) {
	tick := l.clock.Tick
	if tick == nil {
		t := time.NewTicker(tickEvery)
		defer t.Stop()
		tick = t.C
	}
	var save <-chan time.Time
	var saved time.Time
	for {
		l.beat.Store(int64(l.clock.Now().Sub(l.start)))
		if l.dirty.Load() && save == nil && l.frozen.Load() == nil {
			save = time.After(max(saveDelay, l.pace-time.Since(saved)))
		}
		switch r, what := l.next(ctx, tick, save); what {
		case toEnd:
			l.guard("ending", func() {
				l.publish()
				if l.dirty.Load() && l.frozen.Load() == nil {
					l.save(nil)
				}
			})
			return
		case toServe:
			r.reply <- l.serve(r)
		case toTick:
			l.serve(request{ctx: ctx, event: policy.Tick{}})
			l.guard("publishing", l.publish)
		case toSave:
			save, saved = nil, time.Now()
			l.guard("saving", func() { l.save(nil) })
		}
	}
}

// work is what the loop turns to.
type work int

const (
	toEnd work = iota
	toServe
	toTick
	toSave
)

// next waits for something to do. Of what is ready at the same time a request comes
// first, since somebody waits for it: a fixed order, so that a simulated run can be
// repeated.
func (l *loop) next(ctx context.Context, tick, save <-chan time.Time) (request, work) {
	if ctx.Err() != nil {
		return request{}, toEnd
	}
	select {
	case r := <-l.requests:
		return r, toServe
	default:
	}
	select {
	case <-tick:
		return request{}, toTick
	default:
	}
	select {
	case <-ctx.Done():
		return request{}, toEnd
	case r := <-l.requests:
		return r, toServe
	case <-tick:
		return request{}, toTick
	case <-save:
		return request{}, toSave
	}
}

// guard does something that reads the machine. A panic in it is a defect that does not
// bring the daemon down.
func (l *loop) guard(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("a part of the event loop panicked; this is a defect, please report it", "while", what,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// save hands the state on to be written; then runs once it is on disk.
func (l *loop) save(then func()) {
	if !l.taken {
		l.dirty.Store(false)
		if then != nil {
			then()
		}
		return
	}
	l.saver.put(stateOf(l.machine), then)
	l.dirty.Store(false)
}

// submit gives the loop an event and waits for its decisions, no longer than ctx
// allows. An event whose sender has given up before its turn is not taken: its
// sender has answered as if it had never been.
func (l *loop) submit(ctx context.Context, e policy.Event, observed map[string]cgroup.Effective) outcome {
	return l.send(ctx, request{ctx: ctx, event: e, observed: observed})
}

// ask runs a question on the machine, which it must not keep.
func (l *loop) ask(ctx context.Context, question func(*policy.Machine)) error {
	return l.send(ctx, request{ctx: ctx, ask: question}).err
}

func (l *loop) send(ctx context.Context, r request) outcome {
	r.reply = make(chan outcome, 1)
	select {
	case l.requests <- r:
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
	select {
	case o := <-r.reply:
		return o
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
}

func (l *loop) serve(r request) outcome {
	if err := r.ctx.Err(); err != nil {
		return outcome{err: err}
	}
	if l.frozen.Load() != nil {
		return l.whileFrozen(r)
	}
	if r.ask == nil {
		return l.safely(r)
	}
	o := outcome{err: errInternal}
	l.guard("answering a question", func() {
		r.ask(l.machine)
		o.err = nil
	})
	return o
}

// safely takes an event without bringing the daemon down. A machine that panicked may
// be half changed, so it is rebuilt without the event.
func (l *loop) safely(r request) (o outcome) {
	now := l.now()
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("a step of the policy panicked; this is a defect, please report it with the record",
				"event", kindOf(r.event), "panic", fmt.Sprint(p), "record", recordText(now, r.event), "stack",
				string(debug.Stack()))
			if _, tick := r.event.(policy.Tick); !tick { // of a tick nothing was recorded before the step
				l.anchor.recorder.Undo()
			}
			l.rebuild(now)
			o = outcome{err: errInternal}
		}
	}()
	return l.take(now, r)
}

// take steps the machine and hands on what came of it.
func (l *loop) take(now time.Time, r request) outcome {
	_, tick := r.event.(policy.Tick)
	if !tick {
		l.at.at(failpoint.EventTaken)
		l.anchor.recorder.Add(l.machine, now, r.event)
	}
	decisions, err := l.step(l.machine, now, r.event)
	if err != nil {
		return outcome{err: err}
	}
	if tick && len(decisions) == 0 {
		// Idle seconds would push everything else out of the record.
		l.stale.Store(true)
		return outcome{}
	}
	if tick {
		l.anchor.recorder.Add(l.machine, now, r.event)
	}
	l.stale.Store(true)
	l.changed()
	l.at.at(failpoint.EventStepped)
	o := outcome{decisions: decisions, topo: l.machine.Topology()}
	o.seq = l.enforce(r, decisions)
	if e, ok := r.event.(policy.ContainerCreate); ok && l.machine.HasOwners() {
		p := l.placed[e.Pod.UID]
		o.placed, o.exposed = p.seq, p.exposed || l.machine.Exposed(e.Pod.UID)
	}
	l.anchor.hold(l.machine, now, r.event, decisions)
	l.at.at(failpoint.EventHanded)
	return o
}

// publish makes what the machine holds visible to readers. It is left for when
// somebody looks: a reply to the runtime does not wait for it.
func (l *loop) publish() {
	if l.stale.Load() && l.frozen.Load() == nil {
		l.view.Store(l.machine.Snapshot())
		l.stale.Store(false) // only now: who reads in between has to ask, not to take the last one
	}
}

// snapshot is the state after everything that was answered so far; current is false
// where a busy loop left an older one.
func (l *loop) snapshot() (view *policy.Snapshot, current bool) {
	current = true
	if l.stale.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), lookFor)
		defer cancel()
		current = l.ask(ctx, func(*policy.Machine) { l.publish() }) == nil
	}
	return l.view.Load(), current
}

// enforce hands decisions on. A cap is on disk before it is in the kernel, so
// that it is undone even if we are killed in between.
func (l *loop) enforce(r request, decisions []policy.Decision) uint64 {
	if len(decisions) == 0 && r.observed == nil {
		return 0
	}
	b := batch{decisions: decisions, topo: l.machine.Topology(), rev: l.machine.Rev(), observed: r.observed}
	unread := l.machine.Unread()
	l.unread.Store(int64(unread))
	_, synchronized := r.event.(policy.Synchronized)
	l.taken = l.taken || synchronized
	// Nothing is written before it is known who owns what: a pool would grow onto the
	// CPUs of an owner that is not read yet.
	live := l.taken && unread == 0
	b.synchronized = live && (synchronized || !l.live)
	l.live = l.live || live
	_, b.audit = r.event.(policy.Hardware)
	if _, cap := r.event.(policy.CapVerdict); cap {
		l.save(func() {
			l.at.at(failpoint.CapSaved)
			l.emit(b)
		})
		return 0
	}
	keep, lazy := weigh(decisions)
	_, tick := r.event.(policy.Tick) // what time decides is the end of caps
	_, released := r.event.(policy.CapReleased)
	if keep || tick || released {
		l.dirty.Store(true)
	}
	b.lazy = lazy && !b.synchronized && !b.audit && !tick
	seq := l.emit(b)
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPod:
			before := l.placed[d.Pod.UID]
			l.placed[d.Pod.UID] = placed{seq, before.exposed || l.machine.Exposed(d.Pod.UID)}
		case policy.DropPod:
			delete(l.placed, d.UID)
		}
	}
	return seq
}

// weigh tells whether decisions change what is saved, which is about pods and what
// capped containers go back to, and whether enforcing them can wait: nobody leaves
// or starts on CPUs of its own.
func weigh(decisions []policy.Decision) (keep, lazy bool) {
	lazy = true
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPod, policy.DropPod:
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

// rebuild puts a machine in place of the one that panicked, or freezes: an empty
// machine would give the CPUs of those who run to others.
func (l *loop) rebuild(now time.Time) {
	var r *rebuilt
	err := errors.New("rebuilding the machine panicked")
	l.guard("rebuilding the machine", func() { r, err = l.anchor.rebuild(l.step, now, l.machine) })
	if err != nil {
		why := err.Error()
		if l.frozen.Swap(&why) == nil {
			l.log.Error("the policy is frozen: masks stay, nothing is released and no pod is started "+
				"until its machine can be rebuilt, which is tried every second", "err", err)
		}
		return
	}
	if len(r.leftOut) > 0 {
		l.log.Error("events that panic again are left out of the policy's record", "events", r.leftOut)
	}
	l.machine = r.machine
	l.anchor.recorder.Rebase(r.machine, now)
	l.anchor.decided = map[string]place{}
	note(l.anchor.decided, r.decisions)
	l.view.Store(r.machine.Snapshot())
	l.emit(batch{decisions: r.decisions, topo: r.machine.Topology(), rev: r.machine.Rev(), anew: true})
	l.dirty.Store(true)
	if l.frozen.Swap(nil) != nil {
		l.log.Warn("the policy's machine is rebuilt and goes on")
	}
}

// errFrozen answers whatever needs the policy while it has no machine to rely on.
var errFrozen = errors.New("quietcore: no decisions are made after an internal error, see its log; tried again soon")

// whileFrozen answers without a machine. No pod is started: one that owns nothing would
// be in no machine afterwards, and no owner would wait for it to leave.
func (l *loop) whileFrozen(r request) outcome {
	if _, tick := r.event.(policy.Tick); tick {
		l.rebuild(l.now())
		return outcome{}
	}
	return outcome{err: errFrozen}
}

// kindOf names an event as records do: containerCreate.
func kindOf(e policy.Event) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", e), "policy.")
	return strings.ToLower(name[:1]) + name[1:]
}
