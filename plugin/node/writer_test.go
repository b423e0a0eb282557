package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// The tree has a part of a pool as long as a pod runs in it, and after a rebuild those of
// the new machine.
func TestTheTreeHasThePartsOfPoolsThatAreInUse(t *testing.T) {
	s := newNode(t, topology.Grid{Sockets: 1, NodesPerSocket: 4, CoresPerL3: 1, ThreadsPerCore: 2})
	trust := func(o *Options) { o.Config.Authority.TrustStatus = true }
	s.start(trust)
	pools := func(want ...string) {
		t.Helper()
		if got := s.core.writer.tree.Pools(); !slices.Equal(got, want) {
			t.Errorf("the tree has pools %v, want %v", got, want)
		}
	}
	pools("be", "shared")
	s.synchronize()
	s.settle()
	for name, pools := range map[string]string{"stays": `{"node":0},{"node":3}`, "passes": `{"node":1},{"node":2}`} {
		p := burstable(name)
		p.Annotations = map[string]string{policy.AnnStatus: `{"cpuSharedPools":[` + pools + `]}`}
		s.sandbox(p)
	}
	pools("be", "shared", "shared@0,3", "shared@1-2")
	s.remove(burstable("passes"))
	pools("be", "shared", "shared@0,3")
	fresh, err := policy.New(s.topo, s.core.Config())
	if err != nil {
		t.Fatal(err)
	}
	var decisions []policy.Decision
	for _, d := range fresh.UsedPools() {
		decisions = append(decisions, d)
	}
	s.core.writer.put(batch{decisions: decisions, full: true})
	s.step(Wake{})
	pools("be", "shared")
}

// A writer that panics while a write is under way: whether the write had its effect is not
// known, nor whether it will have one yet, so no owner starts on what it may have given to others.
// Then it goes on.
func TestAPanicOfTheWriterLeavesItsWriteUncertain(t *testing.T) {
	for _, effect := range []bool{true, false} {
		for _, grows := range []bool{true, false} {
			s := newStepped(t)
			s.panicked = true
			gone, db := lse("gone", 4000), lse("db", 4000)
			s.up(burstable("web"))
			if grows {
				s.up(gone)
			}
			s.hangs = at(Write, slice)
			if grows {
				s.remove(gone)
			}
			s.sandbox(db)
			s.wantHanging(1, "the slice is written")
			if effect {
				s.perform(s.hanging[0])
			}
			s.hangs, s.fail = nil, failReads
			s.step(Done{Op: s.hanging[0].Op}) // without a result, which is no valid input
			if !strings.Contains(s.log.String(), "panicked") {
				t.Fatal("the writer did not panic: the test shows nothing")
			}
			request := s.create(db)
			if s.started(request) {
				t.Errorf("effect %t, grows %t: the owner starts before anybody has read what became of the write",
					effect, grows)
			}
			s.fail = nil
			s.pass(retryWrites)
			if s.started(request) == grows { // a write that would take the CPUs from others may come late
				t.Errorf("effect %t, grows %t: the owner starts: %t", effect, grows, !grows)
			}
			s.pass(cgroup.InFlightFor + retryWrites)
			if request = s.create(db); !s.started(request) {
				t.Errorf("effect %t, grows %t: the owner does not start although the writer has read it", effect, grows)
			}
			s.settle()
			s.want("web-main", "4-15")
		}
	}
}

// What the writer was about to do when it panicked is found by the audit that follows.
func TestAPanicOfTheWriterIsFollowedByAnAudit(t *testing.T) {
	s := newStepped(t)
	s.panicked = true
	s.up(bestEffort("batch"))
	path := strings.Trim(s.ctrs["batch-main"].CgroupPath, "/")
	s.hangs = at(Write, path)
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.pass(time.Second)
	s.wantHanging(1, "the cap is written")
	s.hangs = nil
	s.step(Done{Op: s.hanging[0].Op})
	s.pass(retryWrites)
	s.wantQuota("batch-main", 10)
}

// A writer that panics while it takes in what was decided forgets none of it: not what came
// with it, and not what came behind, be it that the same panics again.
func TestAPanicOfTheWriterLosesNoDecision(t *testing.T) {
	for _, times := range []int{1, 100} {
		left := 0
		s := newStepped(t, func(o *Options) {
			o.Config.Degrade = true
			o.Notify = func(policy.Notice) {
				if left > 0 {
					left--
					panic("a defect")
				}
			}
		})
		s.panicked = true
		s.up(burstable("web"), lse("a", 8000))
		s.hangs = at(ReadCPUs, "kubepods/burstable/poduid-web/web-main")
		s.step(Verify{Container: "web-main"})
		s.wantHanging(1, "the writer is busy")
		left = times
		s.sandbox(lse("odd", 1500)) // is degraded, which is noted
		s.sandbox(lse("db", 4000))
		s.hangs = nil
		s.resume()
		if left == times {
			t.Fatal("nothing panicked: the test shows nothing")
		}
		db := s.create(lse("db", 4000))
		s.pass(time.Minute)
		left = 0
		if !s.started(db) {
			t.Errorf("%d panics: the owner does not start", times)
		}
		s.settle()
		s.want("web-main", "12-15")
		if want, ok := s.core.writer.tree.Want("uid-odd"); times == 1 && (!ok || want.String() != "12-15") {
			t.Errorf("the batch that panicked once is left out: the tree has %s for its pod", want)
		}
	}
}

func failReads(e *Effect) error {
	if isRead(e) {
		return errDisk
	}
	return nil
}

// A lazy batch is absorbed a moment later, any other one at once.
func TestLazyBatchesComeTogether(t *testing.T) {
	s := newStepped(t)
	s.pass(time.Minute)
	w := s.core.writer
	w.c.now = s.now
	w.put(batch{lazy: true})
	if at, want := w.next(), s.now.Add(lazyDelay); !at.Equal(want) {
		t.Errorf("a lazy batch is taken at %s, want %s", at, want)
	}
	w.put(batch{})
	if at := w.next(); !at.Equal(s.now) {
		t.Errorf("an urgent batch is taken at %s, want %s", at, s.now)
	}
	w.put(batch{lazy: true})
	if at := w.next(); !at.Equal(s.now) {
		t.Errorf("a lazy one behind it puts it off to %s", at)
	}
	s.step(Wake{})
	if !w.idle() {
		t.Error("they are not taken")
	}
	if w.shrunk != w.inbox.last {
		t.Errorf("the writer has come to batch %d of %d", w.shrunk, w.inbox.last)
	}
}

// Lazy batches are absorbed a piece at a time, so that a request in between is answered first;
// with a batch that is not lazy all are absorbed at once.
func TestWhatNobodyWaitsForIsTakenInByPieces(t *testing.T) {
	s := newStepped(t)
	w := s.core.writer
	w.c.now = s.now
	left := func(when string, want int) {
		t.Helper()
		if got := len(w.inbox.batches); got != want {
			t.Errorf("%s %d batches are left, want %d", when, got, want)
		}
		if at := w.inbox.last - uint64(want); w.shrunk != at {
			t.Errorf("%s everybody has left by batch %d, want %d", when, w.shrunk, at)
		}
	}
	for range 2*lazyPiece + 5 {
		w.put(batch{lazy: true})
	}
	s.pass(lazyDelay)
	left("after the delay", lazyPiece+5)
	s.pass(lazyPause - 1)
	left("before the pause is over", lazyPiece+5)
	s.pass(1)
	left("after the pause", 5)
	s.pass(lazyPause)
	left("after another", 0)
	for range 2 * lazyPiece {
		w.put(batch{lazy: true})
	}
	w.put(batch{})
	s.step(Wake{})
	left("with one that somebody waits for", 0)
}

// A limit that was being written when the writer panicked may be written late, also after it was
// seen that the one before is there, which is wanted again.
func TestALimitOfAWriterThatPanickedIsLookedAtAgain(t *testing.T) {
	s := newStepped(t)
	s.panicked = true
	s.up(bestEffort("batch"))
	s.hangs = at(Write, strings.Trim(s.ctrs["batch-main"].CgroupPath, "/"))
	s.step(&Request{Event: policy.CapVerdict{ID: "batch-main", Milli: 10, For: time.Hour}})
	s.pass(time.Second)
	s.wantHanging(1, "the cap is written")
	s.hangs = nil
	s.step(Done{Op: s.hanging[0].Op})
	s.step(&Request{Event: policy.CapReleased{ID: "batch-main"}})
	s.pass(2 * retryWrites)
	s.perform(s.hanging[0])
	s.wantQuota("batch-main", 10)
	s.pass(cgroup.InFlightFor)
	s.wantQuota("batch-main", policy.NoLimit)
}
