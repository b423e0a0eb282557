package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

var errDisk = errors.New("input/output error")

const slice = "kubepods/burstable"

// failWrites fails the writes to a cgroup and those below.
func failWrites(path string) func(*Effect) error {
	return func(e *Effect) error {
		if e.Kind == Write && strings.HasPrefix(e.Path, path) {
			return errDisk
		}
		return nil
	}
}

// D1: a write fails, another batch arrives, and while the write is tried again its CPUs must not
// count as free.
func TestWhileAFailedWriteIsTriedAgainItsCPUsStayHeld(t *testing.T) {
	s := newStepped(t)
	s.up(burstable("web"))
	s.fail = func(e *Effect) error {
		if e.Kind == Write && e.Path == slice {
			return errDisk
		}
		return nil
	}
	s.sandbox(lsr("db", 4000))
	db := s.create(lsr("db", 4000))
	if s.started(db) {
		t.Fatal("an owner is started although the others could not be moved")
	}
	s.hangs = at(Write, slice)
	s.step(Verify{Container: "web-main"}) // other news
	s.wantHanging(1, "the write is tried again")
	s.step(Tick{})
	s.pass(time.Second)
	if s.started(db) {
		t.Error("an owner is started while the write is tried again")
	}
	s.hangs = nil
	s.resume()
	if s.started(db) {
		t.Error("an owner is started although the write has failed again")
	}
	s.fail = nil
	s.step(Verify{Container: "web-main"})
	if !s.started(db) {
		t.Error("the owner is refused although everybody has left its CPUs")
	}
	s.want("web-main", "4-15")
}

// D6: what is left out since another write failed keeps owners out as if it had failed
// itself.
func TestAWriteThatIsLeftOutKeepsTheOwnerOut(t *testing.T) {
	s := newStepped(t)
	a, b, c := lse("a", 8000), lse("b", 6000), lsr("c", 2000)
	s.up(burstable("web"), a, b)
	s.want("web-main", "14-15")
	// The writer learns at once that a has ended and that c has come.
	s.hangs = at(ReadCPUs, "kubepods/burstable/poduid-web/web-main")
	s.step(Verify{Container: "web-main"})
	s.wantHanging(1, "the writer is busy")
	s.remove(a)
	s.sandbox(c)
	first := s.create(c)
	own := s.owns(c)
	if own.String() != "14-15" {
		t.Fatalf("c gets %s, and web is elsewhere: the test shows nothing", own)
	}
	s.fail = failWrites(c.CgroupParent)
	s.hangs = nil
	s.resume()
	if s.started(first) {
		t.Error("an owner is started although a write of its own CPUs failed")
	}
	s.fail = nil
	s.step(Verify{Container: "b-main"})
	if !s.started(first) {
		t.Error("the owner is refused although everybody has left its CPUs")
	}
	s.settle()
	s.want("web-main", "0-7")
}

// D7: a write that was given up may take effect later. Until the mask was read twice
// no owner gets what that would take back.
func TestAWriteInFlightKeepsOwnersOutUntilItsMaskWasReadTwice(t *testing.T) {
	s := newStepped(t)
	a := lse("a", 8000)
	s.up(burstable("web"), a, lse("b", 4000))
	var late *Effect
	s.fail = func(e *Effect) error {
		if e.Kind == Write && e.Path == slice && !e.Values.CPUs.IsZero() && late == nil {
			late = e
			return fmt.Errorf("systemd does not answer: %w", cgroup.ErrInFlight)
		}
		return nil
	}
	s.remove(a) // the pool grows, and the write is given up
	if late == nil {
		t.Fatal("the pool did not grow: the test shows nothing")
	}
	c := lsr("c", 8000)
	s.sandbox(c)
	request := s.create(c)
	if s.started(request) {
		t.Error("an owner is started although a write in flight may put others onto its CPUs")
	}
	s.fail = nil
	s.perform(late) // and so it does
	s.pass(15 * time.Second)
	if s.started(request) {
		t.Error("an owner is started although the mask was not read again when the write can no longer come")
	}
	s.pass(time.Minute)
	if !s.started(request) {
		t.Error("the owner is refused although everybody has left its CPUs for good")
	}
	s.want("web-main", "12-15")
}

// D2b: a slice that cannot be seen for a moment is not gone with all that run in it.
func TestASliceOutOfSightIsNotGone(t *testing.T) {
	s := newStepped(t)
	s.up(burstable("web"))
	s.fail = func(e *Effect) error {
		if strings.HasPrefix(e.Path, slice) {
			return cgroup.ErrGone
		}
		return nil
	}
	s.sandbox(lsr("db", 4000))
	db := s.create(lsr("db", 4000))
	s.pass(20 * time.Second)
	if s.started(db) {
		t.Error("an owner is started while nobody sees who is on its CPUs")
	}
	s.fail = nil
	s.step(Verify{Container: "web-main"})
	if !s.started(db) {
		t.Error("the owner is refused although everybody has left its CPUs")
	}
	s.want("web-main", "4-15")
}

// A mask that is left out since others may still come onto its CPUs is not written again
// and again, and the log does not claim that something else changes it.
func TestWhatIsLeftOutWaits(t *testing.T) {
	const be = "kubepods/besteffort"
	s := newStepped(t)
	gone := lse("gone", 4000)
	s.up(burstable("web"), bestEffort("low"), gone)
	s.fail = func(e *Effect) error {
		switch {
		case e.Kind == Write && e.Path == be:
			return cgroup.ErrInFlight
		case e.Kind == Write && e.Path == slice:
			return errDisk
		}
		return nil
	}
	s.remove(gone)
	s.pass(time.Second)
	s.fail = nil
	s.step(&Request{Event: policy.BESuppressed{CPUs: cpuset.Range(4, 7)}})
	s.pass(10 * time.Second)
	if got := s.allows(slice); got != "4-15" {
		t.Fatalf("the slice has %s: the test shows nothing", got)
	}
	if strings.Contains(s.log.String(), "after every write of ours") {
		t.Errorf("what was left out is reported as changed by others:\n%s", s.log.String())
	}
	s.pass(30 * time.Second)
	if got := s.allows(slice); got != "0-15" {
		t.Errorf("the slice has %s when nothing may come any more", got)
	}
}
