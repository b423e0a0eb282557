package node

import (
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// saving writes the newest state to disk. Changes during a save are coalesced into the next one.
type saving struct {
	c *Core
	// dirty means that the machine has changes that no save has.
	dirty bool
	since time.Time // of the oldest change that is not on disk; zero: there is none
	last  time.Time // when the last save started
	retry time.Time // when a failed save is tried again
	// waiting are called when the current state, or a newer one, is on disk; inFlight are those of
	// the save in flight.
	waiting, inFlight []func()
	urgent, busy      bool
	// caps are those on disk, inFlightCaps those of the save in flight.
	caps, inFlightCaps []state.Cap
	places             places
	claims             claimFile
}

// A change is saved soon after its reply, a burst of changes a few times a second: a save costs
// a copy of the whole state. A failed save is tried again.
const (
	saveDelay = 10 * time.Millisecond
	saveEvery = 250 * time.Millisecond
	saveAgain = 5 * time.Second
	saveSoon  = 100 * time.Millisecond // in place of saveAgain while a reply or a mask waits for the save
)

// now calls then when the current state is on disk.
func (s *saving) now(then func()) {
	if !s.possible() {
		then()
		return
	}
	s.dirty, s.urgent = true, true
	s.waiting = append(s.waiting, then)
}

// has reports whether the file has a cap with the limit that follows it, so that a new daemon undoes the
// cap wherever it finds it.
func (s *saving) has(limit *policy.Cap) bool {
	return !s.possible() || slices.ContainsFunc(s.caps, func(c state.Cap) bool {
		was := c.PreviousQuotaMilli
		return c.PodUID == limit.PodUID && c.Container == limit.Container && c.CapMilli == limit.Milli &&
			(limit.Limit == nil || was != nil && *was == *limit.Limit)
	})
}

// ahead records decisions about owners and returns until when masks have to wait for their save; zero: they
// need not wait. Masks wait if the file has another place of a pod: if the daemon were killed after the
// mask and before the save, the next one would find two places. full: decisions are the whole state,
// and owners that are not in it are gone.
func (s *saving) ahead(decisions []policy.Decision, full bool) (until time.Time) {
	if !s.c.mode.stores || s.c.machine.frozen != "" {
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
	s.claims.decided(decisions, full)
	if s.possible() {
		until = s.places.contradicted(s.c.now)
	}
	stale := s.claims.stale()
	s.dirty = s.dirty || !stale.IsEmpty()
	s.urgent = s.urgent || !until.IsZero() || !stale.IsEmpty()
	return until
}

// late reports whether the place of an owner is not on disk and still has to be waited for.
func (s *saving) late(uid string) bool { return s.possible() && s.places.late(uid, s.c.now) }

// stale are CPUs of which the file may still say that a claim has them.
func (s *saving) stale() cpuset.Set {
	if !s.possible() {
		return cpuset.Set{}
	}
	return s.claims.stale()
}

// possible reports whether the state may be saved. Before running pods are taken over it may not: the
// file knows more than the machine.
func (s *saving) possible() bool { return s.c.mode.stores && s.c.takeover.taken }

func (s *saving) next() time.Time {
	next, at := s.places.next(s.c.now), s.due()
	if next.IsZero() || !at.IsZero() && at.Before(next) {
		return at
	}
	return next
}

// due is when the next save starts; zero: there is none.
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
	if s.dirty && !s.c.mode.stores {
		s.dirty, s.since = false, time.Time{}
	}
	if at := s.due(); at.IsZero() || s.c.now.Before(at) {
		return
	}
	s.retry = s.c.now.Add(saveAgain) // in case it panics
	s.begin()
}

func (s *saving) begin() {
	s.last, s.urgent = s.c.now, false // before what follows, which may panic
	now := s.c.machine.Kept()
	next := s.c.stateOf(now)
	s.inFlight, s.waiting = append(s.inFlight, s.waiting...), nil
	s.dirty, s.busy = false, true
	s.retry, s.inFlightCaps = time.Time{}, next.Caps
	s.places.begin(now.Pods)
	s.claims.begin(&next)
	s.c.perform(&Effect{Kind: Save, State: &next}, s.ended)
}

func (s *saving) ended(r *Result) {
	behind := s.dirty
	s.busy, s.dirty, s.retry = false, true, s.c.now.Add(saveAgain) // in case the rest panics
	s.c.o.Metrics.Saved(r.Err)
	if r.Err != nil {
		stale := s.claims.stale()
		s.urgent = s.urgent || !s.places.next(s.c.now).IsZero() || !stale.IsEmpty()
		s.c.o.Log.Error("the state could not be saved, and a restart would find an older one; it is tried again",
			"in", s.retry.Sub(s.c.now), "err", r.Err)
		return
	}
	then := s.inFlight
	s.caps = s.inFlightCaps
	s.claims.end()
	s.urgent = s.places.end(s.c.now.Add(saveAhead)) || s.urgent
	s.c.writer.saved()
	s.inFlight, s.since, s.dirty, s.retry = nil, time.Time{}, behind, time.Time{}
	for _, f := range then {
		s.c.part("continuing after a save", f)
	}
}

// LastSave is the effect that saves what is not on disk when the core ends; nil: everything is on
// disk.
func (c *Core) LastSave() *Effect {
	s := &c.saving
	if !s.dirty && !s.busy || !s.possible() || c.machine.frozen != "" {
		return nil
	}
	next := c.state()
	return &Effect{Kind: Save, State: &next}
}

// Saved records the result of LastSave.
func (c *Core) Saved(err error) {
	c.o.Metrics.Saved(err)
	if err != nil {
		c.o.Log.Error("the state could not be saved; the next start finds an older one", "err", err)
	}
}

// state is the part of the machine that is saved.
func (c *Core) state() state.Snapshot { return c.stateOf(c.machine.Kept()) }

func (c *Core) stateOf(kept policy.Synchronized) state.Snapshot {
	s := state.Of(kept, c.machine.Rev())
	s.CapsUnknown = c.takeover.capsUnknown()
	return s
}
