package node

import (
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// effects are the effects in flight.
type effects struct {
	last    Op
	pending map[Op]*pending
	hung    int // reads that timed out and have not returned
	// routines are those that wait for an effect.
	routines map[*routine]struct{}
}

// pending is an effect in flight, and what is done with its result.
type pending struct {
	effect *Effect
	then   func(*Result)
	giveUp time.Time // when it times out; zero: never
	hung   bool      // it timed out and has not returned
}

const (
	// readLimit is how long a routine waits for a read. A read changes nothing, so it may time
	// out. A write may not, since it can still take effect.
	readLimit = 2 * time.Second
	// maxHung is how many reads may hang before no further read is started.
	maxHung = 8
)

// perform starts an effect; then is called with its result in a later step.
func (c *Core) perform(e *Effect, then func(*Result)) *pending {
	p := &pending{effect: e, then: then}
	c.effects.last++
	e.Op = c.effects.last
	c.effects.pending[e.Op] = p
	c.out.Effects = append(c.out.Effects, e)
	return p
}

func (f *effects) done(d Done) {
	p := f.pending[d.Op]
	if p == nil {
		return
	}
	delete(f.pending, d.Op)
	if p.hung {
		f.hung--
		return
	}
	p.then(d.Result)
}

// expire times out the reads that take too long.
func (f *effects) expire(now time.Time) {
	var late []Op
	for op, p := range f.pending {
		if !p.hung && !p.giveUp.IsZero() && !now.Before(p.giveUp) {
			late = append(late, op)
		}
	}
	slices.Sort(late) // in the order in which they started, so that a run replays exactly
	for _, op := range late {
		p := f.pending[op]
		p.hung = true
		f.hung++
		p.then(&Result{Err: errReadTimeout})
	}
}

// hangs reports whether the same read timed out before and has not returned.
func (f *effects) hangs(e *Effect) bool {
	for _, p := range f.pending {
		if p.hung && p.effect.Kind == e.Kind && p.effect.Path == e.Path {
			return true
		}
	}
	return false
}

func (f *effects) next() time.Time {
	var next time.Time
	for _, p := range f.pending {
		if !p.hung && !p.giveUp.IsZero() && (next.IsZero() || p.giveUp.Before(next)) {
			next = p.giveUp
		}
	}
	return next
}

// run starts a routine; ended is called at its end with the value of its panic, or nil.
func (c *Core) run(name string, body func(do), ended func(panicked any)) {
	r := newRoutine(body)
	c.effects.routines[r] = struct{}{}
	c.resume(name, r, nil, ended)
}

// resume runs a routine until it waits for an effect.
func (c *Core) resume(name string, r *routine, result *Result, ended func(panicked any)) {
	for {
		e, more, panicked := c.advance(name, r, result)
		if !more {
			delete(c.effects.routines, r)
			if ended(panicked); panicked != nil {
				c.afterPanic()
			}
			return
		}
		if result = c.refused(e); result != nil {
			continue
		}
		p := c.perform(e, func(result *Result) { c.resume(name, r, result, ended) })
		if e.Kind != Write && e.Kind != Save {
			p.giveUp = c.now.Add(readLimit)
		}
		return
	}
}

// refused is the result of a read that is not started; nil: it is started. A read that hangs is not
// repeated: each repetition would wait for readLimit, and in the end maxHung would stop all other reads.
func (c *Core) refused(e *Effect) *Result {
	switch {
	case e.Kind == Write || e.Kind == Save || c.effects.hung == 0:
		return nil
	case c.effects.hangs(e):
		return &Result{Err: fmt.Errorf("%s of cgroup %s is not started: the same read has not returned yet; "+
			"it is tried again when it has", e.Kind, e.Path)}
	case c.effects.hung < maxHung:
		return nil
	}
	return &Result{Err: fmt.Errorf("%s of cgroup %s is not started: %d other reads hang (limit %d); "+
		"it is tried again when one has returned", e.Kind, e.Path, c.effects.hung, maxHung)}
}

func (c *Core) advance(name string, r *routine, result *Result) (e *Effect, more bool, panicked any) {
	defer func() {
		if p := recover(); p != nil {
			c.o.Log.Error("a part of the daemon's core panicked; this is a defect, please report it", "part", name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			e, more, panicked = nil, false, p
		}
	}()
	e, more = r.resume(result)
	return e, more, nil
}

// Stop ends the waiting routines. The core takes no inputs afterwards.
func (c *Core) Stop() {
	for r := range c.effects.routines {
		r.stop()
	}
}
