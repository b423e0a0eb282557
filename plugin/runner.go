package plugin

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// runner plays a node.Core on a real node: one goroutine steps it, and each effect is
// carried out by a goroutine of its own, of which the core allows only a few at a time. It
// decides nothing.
type runner struct {
	core    *node.Core
	backend node.Backend
	clock   Clock
	at      func(failpoint.Point)
	inbox   chan message
	spare   chan *node.Effect // taken by a goroutine that has carried out another one
	writes  sync.WaitGroup    // effects that change something
	waiting map[*node.Request]chan<- node.Reply

	start  time.Time
	offset atomic.Int64 // nanoseconds that tests have put the clock forward
	beat   atomic.Int64 // of the last turn, in nanoseconds since start
	status atomic.Pointer[node.Status]
	view   atomic.Pointer[policy.Snapshot]
	stale  atomic.Bool // the core is ahead of view
}

// message is one thing for the core: an input, or a question.
type message struct {
	in    node.In
	reply chan<- node.Reply // of a request
	ask   func(*node.Core)
}

// lookFor is how long a reader waits for a busy core.
const lookFor = time.Second

func newRunner(o *Options, rivals *rivals) (*runner, error) {
	at := o.At
	if at == nil {
		at = func(failpoint.Point) {}
	}
	r := &runner{
		backend: node.Backend{Driver: o.Driver, Reader: o.Reader, Recorded: o.Recorded},
		clock:   o.Clock, at: at, inbox: make(chan message), spare: make(chan *node.Effect),
		waiting: map[*node.Request]chan<- node.Reply{},
		start:   o.Clock.Now(),
	}
	if o.Store != nil {
		r.backend.Save = o.Store.Save
	}
	core, err := node.New(node.Options{
		Topology: o.Topology, Config: o.Config, Saved: o.Saved, Stores: o.Store != nil,
		Tree: node.TreeOptions{
			Reads: o.Reader != nil, Writes: o.Driver != nil, Records: o.Recorded != nil, Flat: o.Flat,
		},
		Observe: o.Observe, Undo: o.Undo,
		Facts: o.Facts, Notify: o.Notify, Changed: o.Changed, Moved: rivals.moved, Log: o.Log, Metrics: o.Metrics,
		At: at, Step: o.step, Late: o.late, SaveEvery: o.saveEvery,
	})
	if err != nil {
		return nil, err
	}
	r.core = core
	r.publish()
	r.view.Store(core.Snapshot())
	return r, nil
}

func (r *runner) now() time.Time { return r.clock.Now().Add(time.Duration(r.offset.Load())) }

func (r *runner) beatAt() time.Time { return r.start.Add(time.Duration(r.beat.Load())) }

// ticks are the core's regular inputs.
type ticks struct {
	tick, audit, round <-chan time.Time
	stop               func()
}

func (c *Clock) ticks() ticks {
	t := ticks{tick: c.Tick, audit: c.Audit, round: c.Vanish}
	var stops []func()
	start := func(given <-chan time.Time, every time.Duration) <-chan time.Time {
		if given != nil {
			return given
		}
		ticker := time.NewTicker(every)
		stops = append(stops, ticker.Stop)
		return ticker.C
	}
	t.tick, t.audit, t.round = start(t.tick, tickEvery), start(t.audit, auditEvery), start(t.round, auditEvery)
	t.stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	return t
}

// run steps the core until ctx ends.
func (r *runner) run(ctx context.Context) {
	t := r.clock.ticks()
	defer t.stop()
	var next time.Time
	var timer <-chan time.Time
	asleep := r.clock.Slept()
	for {
		r.beat.Store(int64(r.clock.Now().Sub(r.start)))
		if at := r.core.Next(); at != next {
			next, timer = at, nil
			if !at.IsZero() {
				timer = time.After(max(at.Sub(r.now()), 0))
			}
		}
		var m message
		select {
		case <-ctx.Done():
			r.end(ctx)
			return
		case m = <-r.inbox:
		case <-t.tick:
			now := r.clock.Slept()
			m.in = node.Tick{Slept: sleptBetween(asleep, now)}
			asleep = now
		case <-t.audit:
			m.in = node.Audit{}
		case <-t.round:
			m.in = node.Round{}
		case <-timer:
			m.in, next = node.Wake{}, time.Time{}
		}
		r.turn(ctx, m)
	}
}

// sleptBetween is by how much the machine's sleep has grown, 0 where the clocks were only not read at once.
func sleptBetween(before, now time.Duration) time.Duration {
	if d := now - before; d >= time.Second {
		return d
	}
	return 0
}

// turn gives the core one message.
func (r *runner) turn(ctx context.Context, m message) {
	if m.ask != nil {
		r.core.Guard("answering a question", func() { m.ask(r.core) })
		return
	}
	if request, ok := m.in.(*node.Request); ok {
		r.waiting[request] = m.reply
	}
	r.stale.Store(true) // before an answer: its receiver sees what the step changed
	r.carryOut(ctx, r.core.Step(r.now(), m.in))
	r.publish()
	if _, tick := m.in.(node.Tick); tick {
		r.core.Guard("publishing", r.refresh) // the old view keeps memory alive until it is replaced
	}
}

// refresh publishes the core's state to readers.
func (r *runner) refresh() {
	r.view.Store(r.core.Snapshot())
	r.stale.Store(false) // only now: a reader in between must ask the core instead of using the old view
}

// carryOut answers and starts the effects of a step.
func (r *runner) carryOut(ctx context.Context, out node.Out) {
	for _, reply := range out.Replies {
		// A core that panicked between two answers may answer one again: nothing receives that.
		if to, waits := r.waiting[reply.To]; waits {
			to <- reply
			delete(r.waiting, reply.To)
		}
	}
	for _, e := range out.Effects {
		if e.Kind == node.Write || e.Kind == node.Save {
			r.writes.Add(1)
		}
		select {
		case r.spare <- e:
		default:
			go r.perform(ctx, e)
		}
	}
}

// perform carries out an effect and then waits for another one: a Synchronize has
// thousands, and for each a new goroutine would have to grow its stack. As many wait as
// were at work at a time.
func (r *runner) perform(ctx context.Context, e *node.Effect) {
	for {
		result := r.do(ctx, e)
		select {
		case r.inbox <- message{in: node.Done{Op: e.Op, Result: result}}:
		case <-ctx.Done():
			return
		}
		select {
		case e = <-r.spare:
		case <-ctx.Done():
			return
		}
	}
}

func (r *runner) do(ctx context.Context, e *node.Effect) *node.Result {
	if e.Kind == node.Write || e.Kind == node.Save {
		defer r.writes.Done()
	}
	if e.Before != "" {
		r.at(e.Before)
	}
	result := r.carriedOut(ctx, e)
	if e.After != "" {
		r.at(e.After)
	}
	return result
}

// carriedOut performs an effect. The result of a write that panicked is unknown, as that of one that
// failed.
func (r *runner) carriedOut(ctx context.Context, e *node.Effect) *node.Result {
	result := &node.Result{Err: fmt.Errorf("%s of %q panicked", e.Kind, e.Path)}
	r.core.Guard("carrying out an effect", func() { result = r.backend.Perform(ctx, e) })
	return result
}

// end waits for writes in flight, and saves what is not saved.
func (r *runner) end(ctx context.Context) {
	r.core.Stop()
	r.writes.Wait()
	r.core.Guard("publishing", r.refresh)
	if e := r.core.LastSave(); e != nil {
		r.core.Saved(r.carriedOut(context.WithoutCancel(ctx), e).Err)
	}
}

// publish publishes the core's health.
func (r *runner) publish() {
	if now := r.core.Status(); r.status.Load() == nil || now != *r.status.Load() {
		r.status.Store(&now)
	}
}

// put gives the core an input that needs no reply.
func (r *runner) put(ctx context.Context, in node.In) error {
	select {
	case r.inbox <- message{in: in}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// submit hands over a request and waits for its answer, no longer than ctx and late allow; a
// nil late allows any time. Every container that starts waits here, and a timer costs a
// quarter of what a context with a deadline costs.
func (r *runner) submit(ctx context.Context, late <-chan time.Time, request *node.Request) node.Reply {
	reply := make(chan node.Reply, 1)
	m := message{in: request, reply: reply}
	select {
	case r.inbox <- m: // an idle core takes it at once, which a select of three costs more than
	default:
		select {
		case r.inbox <- m:
		case <-late:
			return node.Reply{Err: context.DeadlineExceeded}
		case <-ctx.Done():
			return node.Reply{Err: ctx.Err()}
		}
	}
	select {
	case answer := <-reply:
		return answer
	case <-late:
		return node.Reply{Err: context.DeadlineExceeded}
	case <-ctx.Done():
		return node.Reply{Err: ctx.Err()}
	}
}

// ask runs question with the core, which it must not keep a reference to.
func ask[T any](ctx context.Context, r *runner, question func(*node.Core) T) (T, error) {
	var answer T
	done := make(chan struct{})
	m := message{ask: func(c *node.Core) {
		defer close(done)
		answer = question(c)
	}}
	select {
	case r.inbox <- m:
		<-done
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// snapshot is the state after everything that was answered so far; current is false
// where a busy core left an older one.
func (r *runner) snapshot() (view *policy.Snapshot, current bool) {
	if !r.stale.Load() {
		return r.view.Load(), true
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	_, err := ask(ctx, r, func(*node.Core) struct{} {
		r.refresh()
		return struct{}{}
	})
	return r.view.Load(), err == nil
}

func (r *runner) settled() bool {
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	settled, err := ask(ctx, r, (*node.Core).Settled)
	return err == nil && settled
}
