package node

import (
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// saving brings the newest state to disk. Of several states that pile up while a save is
// under way only the last is written.
type saving struct {
	c *Core
	// dirty says that the disk is behind the machine.
	dirty bool
	since time.Time // that, or what is under way, has been so
	last  time.Time // when the last save began
	retry time.Time // when a failed one is tried again
	// waiting are called when the machine as it is now is on disk, or something newer is;
	// under those of the save that is under way.
	waiting, under  []func()
	urgent, busy    bool
	caps, underCaps []state.Cap // those on disk, and those of the save that is under way
	places          places
}

// A change is saved soon, after its reply, and a burst of changes a few times a
// second: a save costs a copy of everything. A failed save is tried again.
const (
	saveDelay = 10 * time.Millisecond
	saveEvery = 250 * time.Millisecond
	saveAgain = 5 * time.Second
	saveSoon  = 100 * time.Millisecond // the same, while an answer or a mask waits for it
)

// now calls then when the machine as it is now is on disk.
func (s *saving) now(then func()) {
	if !s.possible() {
		then()
		return
	}
	s.dirty, s.urgent = true, true
	s.waiting = append(s.waiting, then)
}

// has says that the file names a cap and what it is followed by: a daemon that finds it
// anywhere undoes it.
func (s *saving) has(limit *policy.Cap) bool {
	return !s.possible() || slices.ContainsFunc(s.caps, func(c state.Cap) bool {
		was := c.PreviousQuotaMilli
		return c.PodUID == limit.PodUID && c.Container == limit.Container && c.CapMilli == limit.Milli &&
			(limit.Limit == nil || was != nil && *was == *limit.Limit)
	})
}

// ahead takes down what is decided of owners and returns until when masks have to wait for that
// to be saved; zero: they need not. They have to where the file tells another place of a pod: a
// daemon that is killed between the two would leave its successor with both. Pods that a new machine does
// not name are gone.
func (s *saving) ahead(decisions []policy.Decision, full bool) (until time.Time) {
	if !s.c.o.Stores || s.c.machine.frozen != "" {
		return time.Time{}
	}
	online, end := s.c.machine.Topology().Online(), s.c.now.Add(saveAhead)
	if full {
		named := map[string]place{}
		note(named, decisions)
		maps.DeleteFunc(s.places.owners, func(uid string, _ *ownerPlace) bool {
			_, ok := named[uid]
			return !ok
		})
	}
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.SetPod:
			s.dirty = s.places.changed(&d, online, end) || s.dirty
		case policy.DropPod:
			delete(s.places.owners, d.UID)
		}
	}
	if s.possible() {
		until = s.places.contradicted(s.c.now)
	}
	s.urgent = s.urgent || !until.IsZero()
	return until
}

// late says that the place of an owner is not on disk yet, and that it is worth waiting for.
func (s *saving) late(uid string) bool { return s.possible() && s.places.late(uid, s.c.now) }

// possible: before what runs was taken over, the file knows more than the machine.
func (s *saving) possible() bool { return s.c.o.Stores && s.c.takeover.taken }

func (s *saving) next() time.Time {
	next, at := s.places.next(s.c.now), s.due()
	if next.IsZero() || !at.IsZero() && at.Before(next) {
		return at
	}
	return next
}

// due is when the next save begins; zero: none does.
func (s *saving) due() time.Time {
	switch {
	case !s.dirty || s.busy || !s.possible() || s.c.machine.frozen != "":
		return time.Time{}
	case !s.retry.IsZero() && s.urgent && s.retry.After(s.last.Add(saveSoon)):
		return s.last.Add(saveSoon)
	case !s.retry.IsZero():
		return s.retry
	case s.urgent:
		return s.since
	}
	at := s.last.Add(s.c.o.SaveEvery)
	if soon := s.since.Add(saveDelay); at.Before(soon) {
		return soon
	}
	return at
}

func (s *saving) proceed() {
	if s.dirty && s.since.IsZero() {
		s.since = s.c.now
	}
	if s.dirty && !s.c.o.Stores {
		s.dirty, s.since = false, time.Time{}
	}
	if at := s.due(); at.IsZero() || s.c.now.Before(at) {
		return
	}
	s.retry = s.c.now.Add(saveAgain) // where it panics
	s.begin()
}

func (s *saving) begin() {
	s.last, s.urgent = s.c.now, false // also where it panics
	next := s.c.state()
	s.under, s.waiting = append(s.under, s.waiting...), nil
	s.dirty, s.busy = false, true
	s.retry, s.underCaps = time.Time{}, next.Caps
	s.places.begin(&next)
	s.c.perform(&Effect{Kind: Save, State: &next}, s.ended)
}

func (s *saving) ended(r *Result) {
	behind := s.dirty
	s.busy, s.dirty, s.retry = false, true, s.c.now.Add(saveAgain) // also where it panics
	s.c.o.Metrics.Saved(r.Err)
	if r.Err != nil {
		s.urgent = s.urgent || !s.places.next(s.c.now).IsZero()
		s.c.o.Log.Error("the state is not saved; a restart would find an older one", "err", r.Err)
		return
	}
	then := s.under
	s.caps = s.underCaps
	s.urgent = s.places.end(s.c.now.Add(saveAhead)) || s.urgent
	s.c.writer.saved()
	s.under, s.since, s.dirty, s.retry = nil, time.Time{}, behind, time.Time{}
	for _, f := range then {
		s.c.part("going on after a save", f)
	}
}

// LastSave is the effect that saves what is not on disk when the core ends, nil where
// all is.
func (c *Core) LastSave() *Effect {
	s := &c.saving
	if !s.dirty && !s.busy || !s.possible() || c.machine.frozen != "" {
		return nil
	}
	next := c.state()
	return &Effect{Kind: Save, State: &next}
}

// Saved notes how that ended.
func (c *Core) Saved(err error) {
	c.o.Metrics.Saved(err)
	if err != nil {
		c.o.Log.Error("the state is not saved; a restart finds an older one", "err", err)
	}
}

// state is what is saved of the machine.
func (c *Core) state() state.Snapshot { return state.Of(c.machine.Checkpoint(), c.machine.Rev()) }
