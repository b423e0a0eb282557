package plugin

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// Store keeps what must outlive the daemon. Save returns when it is durable.
type Store interface {
	Save(state.Snapshot) error
}

// stateOf is what is saved of a machine. Each cap takes along what to go back
// to: the runtime's own store may hold our cap by then.
func stateOf(m *policy.Machine) state.Snapshot {
	c := m.Checkpoint()
	s := state.Of(c, m.Rev())
	for i := range s.Caps {
		if limit, ok := limitIn(c, s.Caps[i].PodUID, s.Caps[i].Container); ok {
			s.Caps[i].PreviousQuotaMilli = &limit
		}
	}
	return s
}

func limitIn(c policy.Synchronized, uid, name string) (int64, bool) {
	sandboxes := map[string]bool{}
	for _, p := range c.Pods {
		if p.UID == uid {
			sandboxes[p.Sandbox] = true
		}
	}
	for _, ctr := range c.Containers {
		if ctr.Name == name && sandboxes[ctr.Sandbox] {
			return ctr.Resources.LimitMilli, true
		}
	}
	return 0, false
}

// saver writes the newest state in a goroutine of its own: a slow disk costs
// nobody but itself, and of several states that pile up only the last is written.
type saver struct {
	store Store
	log   *slog.Logger
	meter *metrics.Metrics
	after func(time.Duration) <-chan time.Time
	now   func() time.Time

	mu      sync.Mutex
	pending *state.Snapshot
	then    []func()
	busy    bool
	since   time.Time // when the first of what pending replaced was put
	saving  time.Time // the same of what is on its way to disk
	wake    chan struct{}
}

// retrySave is how long after a failed save the next attempt follows.
const retrySave = 5 * time.Second

func newSaver(o *Options) *saver {
	return &saver{store: o.Store, log: o.Log, meter: o.Metrics, after: o.Clock.After, now: o.Clock.Now,
		wake: make(chan struct{}, 1)}
}

// put replaces what is to be saved; then is called once it, or something newer,
// is on disk.
func (s *saver) put(next state.Snapshot, then func()) {
	if s.store == nil {
		if then != nil {
			then()
		}
		return
	}
	s.mu.Lock()
	if s.pending == nil {
		s.since = s.now()
	}
	s.pending = &next
	if then != nil {
		s.then = append(s.then, then)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// idle reports whether everything that was put is on disk.
func (s *saver) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending == nil && !s.busy
}

func (s *saver) run(ctx context.Context) {
	for {
		var retry <-chan time.Time
		if !s.once() {
			retry = s.after(retrySave) // what was put meanwhile has also woken us
		}
		select {
		case <-ctx.Done():
			s.once() // what is pending at the end is still worth having
			return
		case <-s.wake:
		case <-retry:
		}
	}
}

// once saves what is pending and reports whether nothing is left to do.
func (s *saver) once() bool {
	s.mu.Lock()
	next, then := s.pending, s.then
	s.pending, s.then, s.busy, s.saving = nil, nil, next != nil, s.since
	s.mu.Unlock()
	if next == nil {
		return true
	}
	err := s.store.Save(*next)
	s.meter.Saved(err)
	if err != nil {
		s.log.Error("the state is not saved; a restart would find an older one", "err", err)
		s.again(next, then)
		return false
	}
	for _, f := range then {
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	return s.pending == nil
}

// unsaved is for how long something has waited to be on disk.
func (s *saver) unsaved() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.busy:
		return max(s.now().Sub(s.saving), 0)
	case s.pending != nil:
		return max(s.now().Sub(s.since), 0)
	}
	return 0
}

// again puts back what could not be saved, behind what is newer.
func (s *saver) again(next *state.Snapshot, then []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.since = false, s.saving
	if s.pending == nil {
		s.pending = next
	}
	s.then = append(then, s.then...)
}
