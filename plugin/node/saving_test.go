package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// saves are those that were carried out since done was emptied.
func (s *stepped) saves() int {
	n := 0
	for _, e := range s.done {
		if e.Kind == Save {
			n++
		}
	}
	return n
}

func isSave(e *Effect) bool { return e.Kind == Save }

func (s *stepped) wantSaves(n int, when string) {
	s.t.Helper()
	if got := s.saves(); got != n {
		s.t.Errorf("%s: %d saves, want %d", when, got, n)
	}
}

// savedOwner reports whether the state file names a pod that owns CPUs.
func (s *stepped) savedOwner(p policy.Pod) bool {
	_, ok := s.saved.Places()[p.UID]
	return ok
}

// A burst of changes is one save, soon after the first of them; the next burst waits.
func TestABurstIsOneSave(t *testing.T) {
	s := newStepped(t)
	s.pass(time.Minute)
	burst := func(name string) {
		for i := range 3 {
			s.sandbox(lsr(fmt.Sprint(name, i), 1000))
		}
	}
	s.done = nil
	burst("a")
	s.wantSaves(0, "at once")
	if s.core.Settled() {
		t.Error("the core is settled before its state is saved")
	}
	if got := s.core.Status().Unsaved; !got.Equal(s.now) {
		t.Errorf("the file is behind since %s, want %s", got, s.now)
	}
	s.pass(saveDelay - 1)
	s.wantSaves(0, "before the delay is over")
	s.pass(1)
	s.wantSaves(1, "when it is over")
	if !s.savedOwner(lsr("a2", 0)) {
		t.Error("the last of the burst is not in the file")
	}
	if got := s.core.Status().Unsaved; !got.IsZero() {
		t.Errorf("after the save the file is behind since %s", got)
	}
	burst("b")
	s.pass(saveEvery - 1)
	s.wantSaves(1, "soon after a save")
	s.pass(1)
	s.wantSaves(2, "later")
	s.pass(time.Minute)
	s.wantSaves(2, "without a change")
}

// What changes while a save is under way is saved by the next one, and there is only one.
func TestWhatPilesUpBehindASaveIsOneSave(t *testing.T) {
	s := newStepped(t)
	s.pass(time.Minute)
	s.done, s.hangs = nil, isSave
	s.sandbox(lsr("a", 1000))
	s.pass(time.Minute)
	s.wantHanging(1, "a save is under way")
	for i := range 3 {
		s.sandbox(lsr(fmt.Sprint("b", i), 1000))
		s.pass(time.Minute)
	}
	s.wantHanging(1, "no other save begins")
	if got, want := s.core.Status().Unsaved, s.now.Add(-4*time.Minute); !got.Equal(want) {
		t.Errorf("the file is behind since %s, want %s", got, want)
	}
	s.hangs = nil
	s.resume()
	s.wantSaves(2, "the first has ended, and the next begins at once, since it has owners' places")
	if !s.savedOwner(lsr("b2", 0)) {
		t.Error("the last is not in the file")
	}
}

// Before what runs was taken over, the file knows more than the core.
func TestNothingIsSavedBeforeTheTakeover(t *testing.T) {
	s := newNode(t, testGrid)
	s.start()
	s.step(&Request{Event: policy.NodeLabels{Labels: map[string]string{"a": "b"}}})
	s.step(&Request{Event: policy.PodRun{Pod: lsr("early", 1000)}, Pod: "uid-early"})
	s.pass(time.Minute)
	s.wantSaves(0, "before the Synchronize")
	if e := s.core.LastSave(); e != nil {
		t.Error("at its end it saves what it did not take over")
	}
	s.synchronize()
	s.settle()
	if s.saves() == 0 {
		t.Error("after the Synchronize nothing is saved")
	}
}

// One without a state file is settled without it, and applies caps at once.
func TestACoreWithoutAStateFile(t *testing.T) {
	s := newStepped(t, func(o *Options) { o.Stores = false })
	s.up(bestEffort("batch"))
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Minute}})
	s.settle()
	s.wantSaves(0, "without a file")
	s.wantQuota("batch-main", 10)
}

func (s *stepped) wantQuota(id string, milli int64) {
	s.t.Helper()
	e, err := s.kernel.Effective(s.ctrs[id].CgroupPath)
	if err != nil {
		s.t.Fatal(err)
	}
	if e.QuotaMilli != milli {
		s.t.Errorf("the quota of %s is %d m, want %d", id, e.QuotaMilli, milli)
	}
}

// A cap is in the kernel only when it is on disk, however often that fails, and waits for
// no other change.
func TestACapIsNotAppliedBeforeItIsSaved(t *testing.T) {
	s := newStepped(t)
	s.up(bestEffort("batch"))
	s.done, s.hangs = nil, isSave
	full := errors.New("no space left on device")
	s.fail = func(e *Effect) error {
		if e.Kind == Save {
			return full
		}
		return nil
	}
	begun := s.now
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Minute}})
	s.wantHanging(1, "the cap is saved at once")
	if caps := s.hanging[0].State.Caps; len(caps) != 1 || caps[0].Container != "main" ||
		caps[0].PreviousQuotaMilli == nil ||
		*caps[0].PreviousQuotaMilli != policy.NoLimit {
		t.Errorf("what is saved has the caps %+v", caps)
	}
	s.pass(saveEvery)
	s.wantQuota("batch-main", policy.NoLimit)
	s.hangs = nil
	s.resume()
	s.wantSaves(1, "it has failed")
	s.wantQuota("batch-main", policy.NoLimit)
	s.pass(saveAgain - 1)
	s.wantSaves(1, "before it is tried again")
	s.pass(1)
	s.wantSaves(2, "it is tried again")
	s.wantQuota("batch-main", policy.NoLimit)
	if got := s.core.Status().Unsaved; !got.Equal(begun) {
		t.Errorf("the file is behind since %s, want %s", got, begun)
	}
	s.fail = nil
	s.pass(saveAgain)
	s.wantSaves(3, "the disk has room")
	s.wantQuota("batch-main", 10)
	if got := s.core.Status().Unsaved; !got.IsZero() {
		t.Errorf("the file is behind since %s", got)
	}
	s.settle()
	if len(s.saved.Caps) != 1 {
		t.Errorf("the file has the caps %+v", s.saved.Caps)
	}
}

// A machine that is rebuilt after a panic decides its caps again. They still wait for their save.
func TestARebuiltMachineKeepsItsCapsOffTheKernelUntilTheyAreSaved(t *testing.T) {
	poisoned := false
	s := newStepped(t, func(o *Options) {
		o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
			if _, run := e.(policy.PodRun); run && poisoned {
				poisoned = false
				panic("a defect")
			}
			return m.Step(now, e)
		}
	})
	s.panicked = true
	s.up(bestEffort("batch"))
	s.pass(time.Minute)
	s.hangs = isSave
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.wantHanging(1, "the cap is saved at once")
	poisoned = true
	s.step(&Request{Event: policy.PodRun{Pod: lsr("db", 1000)}})
	s.pass(time.Second)
	if poisoned {
		t.Fatal("the policy did not panic")
	}
	s.wantQuota("batch-main", policy.NoLimit)
	s.hangs = nil
	s.resume()
	s.settle()
	s.wantQuota("batch-main", 10)
}

// A cap that is decided while an older state is being saved waits for the next save.
func TestACapWaitsForASaveOfItsOwn(t *testing.T) {
	s := newStepped(t)
	s.up(bestEffort("batch"))
	s.pass(time.Minute)
	s.hangs = isSave
	s.sandbox(lsr("db", 1000))
	s.pass(saveDelay)
	s.wantHanging(1, "an older state is saved")
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Minute}})
	s.resume()
	s.wantHanging(1, "the next save begins at once")
	s.wantQuota("batch-main", policy.NoLimit)
	s.hangs = nil
	s.resume()
	s.pass(saveDelay)
	s.wantQuota("batch-main", 10)
}

// A cap that the file does not name when the save that it waited for has ended is none any more: it
// is not waited for again.
func TestACapThatNoFileWillNameIsNotSavedWithoutAnEnd(t *testing.T) {
	var capped policy.SetContainer
	s := newStepped(t, func(o *Options) {
		o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
			decisions, err := m.Step(now, e)
			if d, ok := decisionOf(decisions, "batch-main"); ok && d.Cap != nil {
				capped = d
			}
			return decisions, err
		}
	})
	s.up(bestEffort("batch"))
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.settle()
	s.wantQuota("batch-main", 10)
	other := *capped.Cap
	other.Milli, capped.Cap = 20, &other
	s.done = nil
	s.core.writer.put(batch{decisions: []policy.Decision{capped}})
	s.step(Wake{})
	s.pass(time.Minute)
	s.wantSaves(1, "it waited for one")
	s.wantQuota("batch-main", 10)
}

// What is not on disk when the core ends is saved then, and nothing else is.
func TestTheLastSave(t *testing.T) {
	s := newStepped(t)
	if e := s.core.LastSave(); e != nil {
		t.Errorf("all is saved, and it wants %+v", e)
	}
	has := func(what string, p policy.Pod) {
		t.Helper()
		e := s.core.LastSave()
		if e == nil {
			t.Fatalf("%s: there is no last save", what)
		}
		if _, ok := e.State.Places()[p.UID]; !ok || e.Kind != Save {
			t.Errorf("%s: what is saved lacks pod %s", what, p.Name)
		}
	}
	s.sandbox(lsr("a", 1000))
	has("not begun", lsr("a", 0))
	s.hangs = isSave
	s.pass(time.Minute)
	s.wantHanging(1, "a save is under way")
	has("under way", lsr("a", 0))
	s.sandbox(lsr("b", 1000))
	has("behind the one that is under way", lsr("b", 0))
	s.hangs = nil
	s.fail = func(e *Effect) error {
		if e.Kind == Save {
			return errDisk
		}
		return nil
	}
	s.resume()
	has("failed", lsr("b", 0))
	s.fail = nil
	s.settle()
	if e := s.core.LastSave(); e != nil {
		t.Errorf("all is saved again, and it wants %+v", e)
	}
}

// A panic while the result of a save is taken in does not pass for a save.
func TestAPanicBehindASaveIsFollowedByAnother(t *testing.T) {
	s := newStepped(t)
	s.panicked = true
	s.pass(time.Minute)
	s.done, s.hangs = nil, isSave
	s.sandbox(lsr("a", 1000))
	s.pass(saveDelay)
	s.wantHanging(1, "the owner is saved")
	s.hangs = nil
	s.step(Done{Op: s.hanging[0].Op}) // without a result, which is no valid input
	if s.core.Settled() || s.core.Status().Unsaved.IsZero() {
		t.Error("the state passes for saved")
	}
	s.pass(saveAgain - 1)
	s.wantSaves(0, "too early")
	s.pass(1)
	s.wantSaves(1, "a while after the panic")
	if !s.savedOwner(lsr("a", 0)) {
		t.Error("the owner is not saved")
	}
}

// One of those that wait for a save panics: the others go on.
func TestAPanicOfOneThatWaitsForASaveLosesNoOther(t *testing.T) {
	caps := 0
	s := newStepped(t, func(o *Options) {
		o.At = func(p failpoint.Point) {
			if p != failpoint.CapSaved {
				return
			}
			if caps++; caps == 1 {
				panic("a defect")
			}
		}
	})
	s.panicked = true
	s.up(bestEffort("a"), bestEffort("b"))
	s.settle()
	s.hangs = isSave
	s.sandbox(lsr("c", 1000))
	s.pass(saveEvery)
	s.wantHanging(1, "something is being saved")
	for _, id := range []string{"a-main", "b-main"} {
		s.step(&Request{Event: policy.CapVerdict{ID: id, Milli: 10, For: time.Hour}})
	}
	s.hangs = nil
	s.resume()
	s.settle()
	if caps != 2 {
		t.Fatalf("%d caps were saved, want 2", caps)
	}
	s.wantQuota("a-main", 10)
	s.wantQuota("b-main", 10)
}
