package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// incident is a node on which everything is enforced that can be: an owner, and best effort that is capped, idle and
// narrowed.
func incident(t *testing.T) (s *stepped, rules policy.Config) {
	t.Helper()
	rules = policy.Config{BEIdle: true, Authority: policy.Authority{Profile: policy.ProfileOpen}}
	s = newStepped(t, func(o *Options) { o.Config = rules })
	s.up(lsr("db", 4000), burstable("web"), bestEffort("batch"))
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.step(&Request{Event: policy.BESuppressed{CPUs: cpuset.Of(14, 15)}})
	s.settle()
	s.wantQuota("batch-main", 10)
	s.wantPlaces(map[string]string{"db-main": "0-3", "web-main": "4-15", "batch-main": "14-15"})
	if !s.idle("batch") {
		t.Fatal("best effort is not idle")
	}
	return s, rules
}

// idle reports whether a pod of class BE runs on otherwise idle CPUs alone.
func (s *stepped) idle(pod string) bool {
	s.t.Helper()
	e, err := s.kernel.Effective(s.pods["uid-"+pod].CgroupParent)
	if err != nil {
		s.t.Fatal(err)
	}
	return e.Idle
}

// killSwitch is what a daemon gives the core when the mode becomes observe.
func (s *stepped) killSwitch(rules policy.Config) {
	s.t.Helper()
	rules.BEIdle = false
	s.step(&Request{Event: policy.Reconfigured{Config: rules}})
	s.step(Mode{Observe: true})
}

// enforceAgain is what it gives when the mode becomes enforce.
func (s *stepped) enforceAgain(rules policy.Config) {
	s.t.Helper()
	s.step(&Request{Event: policy.Reconfigured{Config: rules}})
	s.step(Mode{})
	s.synchronize()
	s.settle()
}

// When nothing is to be enforced any more, what holds best effort back ends within seconds, and nobody moves: not
// then, and not when pods come and go.
func TestNothingIsEnforcedAfterTheSwitch(t *testing.T) {
	s, rules := incident(t)
	s.killSwitch(rules)
	s.pass(5 * time.Second)
	s.wantQuota("batch-main", policy.NoLimit)
	s.wantPlaces(map[string]string{"db-main": "0-3", "web-main": "4-15", "batch-main": "0-15"})
	if s.idle("batch") {
		t.Error("best effort is still idle")
	}
	if now := s.core.Status(); !now.Observing || now.Withdrawing {
		t.Errorf("the status is %+v", now)
	}
	before := len(s.writes())
	s.up(lsr("late", 2000), bestEffort("more"))
	s.step(Audit{})
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.step(&Request{Event: policy.BESuppressed{CPUs: cpuset.Of(14, 15)}})
	s.remove(s.pods["uid-db"])
	s.settle()
	if w := s.writes()[before:]; len(w) > 0 {
		t.Errorf("it writes %v", w)
	}
	s.wantPlaces(map[string]string{"web-main": "4-15", "batch-main": "0-15", "late-main": "0-15", "more-main": "0-15"})
	if own := s.owns(lsr("late", 2000)); own.Count() != 2 {
		t.Errorf("what would be is not shown: late has %s", own)
	}
	if s.core.Status().Unsaved != (time.Time{}) || !s.savedOwner(lsr("late", 2000)) {
		t.Error("what was decided is not saved")
	}
}

// When it is enforced again, everybody is where was decided, as after a restart.
func TestEnforcedAgain(t *testing.T) {
	s, rules := incident(t)
	s.killSwitch(rules)
	s.settle()
	late := lsr("late", 2000)
	s.up(late, bestEffort("more"))
	s.settle()
	own := s.owns(late)
	s.enforceAgain(rules)
	if got := s.owns(late); got != own {
		t.Errorf("late has %s, and was to have %s", got, own)
	}
	s.wantPlaces(map[string]string{"db-main": "0-3", "web-main": "6-15", "late-main": own.String(),
		"batch-main": "0-15", "more-main": "0-15"})
	s.apart("after the switch back")
	if !s.idle("batch") || !s.idle("more") {
		t.Error("best effort is not idle again")
	}
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.settle()
	s.wantQuota("batch-main", 10)
	if now := s.core.Status(); now.Observing || now.Withdrawing {
		t.Errorf("the status is %+v", now)
	}
}

// A pod that would have been refused runs while nothing is enforced, and is taken over afterwards: it keeps off the
// CPUs of owners.
func TestARefusedPodThatRanIsTakenOver(t *testing.T) {
	s, rules := incident(t)
	s.killSwitch(rules)
	s.settle()
	odd := lsr("odd", 1500)
	s.kernel.Mkdir(odd.CgroupParent, 0)
	r := &Request{Event: policy.PodRun{Pod: odd}, Pod: odd.UID}
	s.step(r)
	if s.replies[r].Err == nil {
		t.Fatal("it is not refused")
	}
	s.pods[odd.UID], s.ctrs["odd-main"] = odd, mainOf(odd)
	s.kernel.Mkdir(mainOf(odd).CgroupPath, 1)
	s.enforceAgain(rules)
	s.want("odd-main", "4-15")
	s.apart("after the switch back")
}

// What cannot be undone at once is tried until it is, and what is decided meanwhile is not carried out.
func TestUndoingIsTriedAgain(t *testing.T) {
	s, rules := incident(t)
	broken := true
	s.fail = func(e *Effect) error {
		if broken && e.Kind == Write {
			return errors.New("no")
		}
		return nil
	}
	s.killSwitch(rules)
	s.pass(4 * time.Second)
	s.begins(lsr("late", 2000))
	s.wantQuota("batch-main", 10)
	if !s.core.Status().Withdrawing {
		t.Error("it counts as undone")
	}
	broken = false
	s.pass(2 * retryWrites)
	s.wantQuota("batch-main", policy.NoLimit)
	s.wantPlaces(map[string]string{"db-main": "0-3", "web-main": "4-15", "batch-main": "0-15", "late-main": "0-15"})
	if now := s.core.Status(); now.Withdrawing {
		t.Errorf("the status is %+v", now)
	}
	s.settle()
}

// begins runs a pod and does not settle.
func (s *stepped) begins(p policy.Pod) {
	s.t.Helper()
	s.sandbox(p)
	if r := s.create(p); !s.started(r) {
		s.t.Fatalf("container %s-main does not start: %v", p.Name, s.replies[r].Err)
	}
}

// What cannot be undone is given up in the end, with an error in the log: nothing waits for it for ever.
func TestUndoingIsGivenUp(t *testing.T) {
	s, rules := incident(t)
	s.fail = func(e *Effect) error {
		if e.Kind == Write {
			return errors.New("no")
		}
		return nil
	}
	s.killSwitch(rules)
	s.pass(withdrawFor + time.Minute)
	if s.core.Status().Withdrawing || !strings.Contains(s.log.String(), "not all that was enforced could be undone") {
		t.Error("it is still tried")
	}
	before := len(s.writes())
	s.pass(time.Hour)
	if w := s.writes()[before:]; len(w) > 0 {
		t.Errorf("it writes %v", w)
	}
}

// A daemon that was killed before everything was undone has its successor finish: what runs is taken over, and
// released.
func TestTheNextDaemonUndoesTheRest(t *testing.T) {
	s, rules := incident(t)
	s.restart(true, func(o *Options) { rules.BEIdle = false; o.Config, o.Observe, o.Undo = rules, true, true })
	s.synchronize()
	s.settle()
	s.wantQuota("batch-main", policy.NoLimit)
	s.wantPlaces(map[string]string{"db-main": "0-3", "web-main": "4-15", "batch-main": "0-15"})
	if now := s.core.Status(); !now.Observing || now.Withdrawing || s.idle("batch") {
		t.Errorf("the status is %+v", now)
	}
}

// A daemon that observes from its start writes nothing, saves nothing, and enforces once it is told to.
func TestAnObserverEnforcesOnceItIsTold(t *testing.T) {
	s := newStepped(t, func(o *Options) { o.Observe = true })
	s.up(lsr("db", 4000), burstable("web"))
	s.settle()
	if len(s.writes()) > 0 || s.saves() > 0 {
		t.Errorf("it writes %v and saves %d times", s.writes(), s.saves())
	}
	s.wantPlaces(map[string]string{"db-main": "0-15", "web-main": "0-15"})
	s.step(Mode{})
	s.synchronize()
	s.settle()
	s.wantPlaces(map[string]string{"db-main": "0-3", "web-main": "4-15"})
	s.apart("once it enforces")
	if !s.savedOwner(lsr("db", 4000)) {
		t.Error("the owner is not saved")
	}
}

// A daemon that writes no cgroups has nothing to undo.
func TestWithoutCgroupsThereIsNothingToUndo(t *testing.T) {
	s := newStepped(t, func(o *Options) { o.Tree.Writes = false })
	s.up(burstable("web"))
	s.step(Mode{Observe: true})
	s.settle()
	if now := s.core.Status(); !now.Observing || now.Withdrawing {
		t.Errorf("the status is %+v", now)
	}
}

// Who waits for CPUs when the switch comes starts at once.
func TestNobodyWaitsAfterTheSwitch(t *testing.T) {
	s, rules := incident(t)
	s.hangs = func(e *Effect) bool { return e.Kind == Write }
	late := lsr("late", 2000)
	s.sandbox(late)
	r := s.create(late)
	s.pass(time.Second)
	if _, answered := s.replies[r]; answered {
		t.Fatal("it starts before its CPUs are free")
	}
	s.killSwitch(rules)
	if !s.started(r) {
		t.Error("it waits on")
	}
	s.begins(lsr("later", 2000))
	s.hangs = nil
	s.resume()
	s.settle()
	s.want("web-main", "6-15") // what was decided before the switch is carried out, and not what was after
}
