package node

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// grow is an update that gives a pod's container so many milli-CPUs.
func (s *stepped) grow(p policy.Pod, milli int64) *Request {
	s.t.Helper()
	res := policy.Resources{RequestMilli: milli, LimitMilli: milli}
	r := &Request{Event: policy.ContainerUpdate{ID: mainOf(p).ID, Quota: milli * 100, Period: 100000, Resources: &res}}
	s.step(r)
	return r
}

// The runtime gets an owner's CPUs in a reply once they are on disk. A shared pod waits for no save.
func TestAnOwnerIsAnsweredWhenItsPlaceIsSaved(t *testing.T) {
	s := newStepped(t)
	s.hangs = isSave
	s.sandbox(lsr("db", 2000))
	db := s.create(lsr("db", 2000))
	s.wantHanging(1, "an owner that waits is saved at once")
	if s.started(db) {
		t.Fatal("it is started although no file tells whose its CPUs are")
	}
	s.sandbox(burstable("web"))
	if web := s.create(burstable("web")); !s.started(web) {
		t.Error("a shared pod waits for a save")
	}
	s.hangs = nil
	s.resume()
	if !s.started(db) || !s.savedOwner(lsr("db", 0)) {
		t.Errorf("after the save: started %t, saved %t", s.started(db), s.savedOwner(lsr("db", 0)))
	}
}

// A disk that hangs or fails holds an owner up for a moment only.
func TestAnOwnerDoesNotWaitForABrokenDisk(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		s := newStepped(t)
		s.hangs = func(e *Effect) bool { return hangs && isSave(e) }
		s.fail = func(e *Effect) error {
			if isSave(e) {
				return errDisk
			}
			return nil
		}
		s.sandbox(lsr("db", 2000))
		db := s.create(lsr("db", 2000))
		s.pass(saveAhead - 1)
		if s.started(db) {
			t.Errorf("hangs %t: it is not waited for the disk", hangs)
		}
		s.pass(1)
		if !s.started(db) {
			t.Errorf("hangs %t: the disk keeps an owner from starting", hangs)
		}
		s.grow(lsr("db", 0), 4000)
		s.pass(saveAhead)
		s.want("db-main", "0-3")
	}
}

// A save that fails is tried again soon while a reply or a mask waits for it, and otherwise later.
func TestASaveThatIsWaitedForIsTriedAgainSoon(t *testing.T) {
	s := newStepped(t)
	failing := true
	s.fail = func(e *Effect) error {
		if isSave(e) && failing {
			return errDisk
		}
		return nil
	}
	s.sandbox(lsr("db", 2000))
	db := s.create(lsr("db", 2000))
	failing = false
	s.pass(saveSoon - 1)
	if s.started(db) {
		t.Error("it is started although its place is not saved: the test shows nothing")
	}
	s.pass(1)
	if !s.started(db) || !s.savedOwner(lsr("db", 0)) {
		t.Errorf("after the second save: started %t, saved %t", s.started(db), s.savedOwner(lsr("db", 0)))
	}
	s.settle()
	s.done, failing = nil, true
	s.sandbox(lsr("other", 2000))
	s.pass(saveAgain)
	if n := s.saves(); n > 8 {
		t.Errorf("%d saves in five seconds are tried on a disk that fails", n)
	}
}

// No mask is written that the state file contradicts, and no reply has it.
func TestAResizeIsSavedBeforeItsMasksAreWritten(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("db", 2000), burstable("web"))
	s.pass(time.Minute)
	s.done, s.hangs = nil, isSave
	grown := s.grow(lsr("db", 2000), 4000)
	s.pass(saveAhead / 2)
	s.wantHanging(1, "the resize is saved at once")
	if w := s.writes(); len(w) > 0 {
		t.Errorf("written are %v, of which the file tells something else", w)
	}
	if _, answered := s.replies[grown]; answered {
		t.Error("the runtime is told of CPUs that the file gives to nobody")
	}
	s.hangs = nil
	s.resume()
	if answer, ok := s.replies[grown]; !ok || answer.Container == nil || answer.Container.Need.Own.String() != "0-3" {
		t.Errorf("after the save: answered %t with %+v", ok, answer)
	}
	s.settle()
	s.want("db-main", "0-3")
	s.want("web-main", "4-15")
}

// A disk that is back is waited for again: what an owner was given while it hung is on disk before
// the owner is started.
func TestAnOwnerWaitsForADiskThatIsBack(t *testing.T) {
	s := newStepped(t)
	s.hangs = isSave
	s.sandbox(lsr("first", 1000))
	s.pass(time.Second)
	s.sandbox(lsr("db", 2000))
	s.pass(time.Minute)
	s.wantHanging(1, "what was there before is saved")
	s.resume()
	s.wantHanging(1, "the owner that came meanwhile is saved at once")
	db := s.create(lsr("db", 2000))
	if s.started(db) {
		t.Error("it is started although no file tells whose its CPUs are, and the disk is back")
	}
	s.pass(saveAhead)
	if !s.started(db) {
		t.Error("a disk that hangs again keeps it from starting")
	}
}
