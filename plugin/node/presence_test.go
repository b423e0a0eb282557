package node

import (
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// hide makes paths invisible, as to a reader with a wrong root.
func (s *stepped) hide(path string) {
	s.fail = func(e *Effect) error {
		if isRead(e) && strings.HasPrefix(e.Path, path) {
			return cgroup.ErrGone
		}
		return nil
	}
}

func (s *stepped) rounds(n int) {
	s.t.Helper()
	for range n {
		s.pass(30 * time.Second)
		s.step(Round{})
	}
}

func TestAPodWhoseCgroupIsGoneEnds(t *testing.T) {
	s := newStepped(t)
	db := lsr("db", 4000)
	s.up(db, lsr("other", 2000), burstable("web"))
	s.kernel.Rmdir(db.CgroupParent)
	delete(s.ctrs, "db-main")
	s.rounds(enoughMisses - 1)
	if s.owns(db).IsEmpty() {
		t.Fatal("a pod ends that was missing once")
	}
	s.rounds(1)
	s.settle()
	if own := s.owns(db); !own.IsEmpty() {
		t.Errorf("a pod that has ended owns %s", own)
	}
	s.want("web-main", "0-3,6-15")
}

// A pod that is ending is looked at every other second, for a while.
func TestAPodThatStopsIsLookedAtOften(t *testing.T) {
	s := newStepped(t)
	db := lsr("db", 4000)
	s.up(db, burstable("web"))
	s.step(Stopping{Pod: db.UID})
	s.pass(looks / 2 * lookEvery)
	s.kernel.Rmdir(db.CgroupParent)
	delete(s.ctrs, "db-main")
	s.pass(enoughMisses * lookEvery)
	if own := s.owns(db); !own.IsEmpty() {
		t.Errorf("%s after its end it owns %s", enoughMisses*lookEvery, own)
	}
	s.pass(time.Hour)
	if next := s.core.Next(); !next.IsZero() {
		t.Errorf("nothing is to be done, and the core wants to be woken in %s", next.Sub(s.now))
	}
}

func TestABlindReaderEndsNoPod(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("a", 2000), lsr("b", 2000), burstable("web"))
	s.hide("kubepods")
	s.rounds(2 * enoughMisses)
	if s.core.Status().Blind == "" {
		t.Error("a reader that sees nothing is believed")
	}
	if n := len(s.core.Grants()); n != 2 {
		t.Errorf("%d owners are left of 2", n)
	}
	s.fail = nil
	s.rounds(enoughMisses)
	if why := s.core.Status().Blind; why != "" {
		t.Errorf("it sees again, and is blind because %s", why)
	}
}

// A look whose reads hang neither holds up the core nor ends anything, and ends itself.
func TestALookThatHangs(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("db", 2000), burstable("web"))
	s.hangs = func(e *Effect) bool { return e.Kind == List }
	s.step(Round{})
	s.wantHanging(1, "a listing hangs")
	s.step(Round{})
	s.wantHanging(1, "no other look begins beside it")
	s.up(lsr("new", 2000))
	s.pass(time.Minute)
	s.hangs = nil
	s.resume()
	if n := len(s.core.Grants()); n != 2 {
		t.Errorf("%d owners are left of 2", n)
	}
	s.rounds(enoughMisses)
	if why := s.core.Status().Blind; why != "" {
		t.Errorf("all can be listed again, and it is blind because %s", why)
	}
	if n := len(s.core.Grants()); n != 2 {
		t.Errorf("%d owners are left of 2", n)
	}
}

// A pod that no event named is found in the second round and named once; one that the
// runtime names while it is looked for is not found.
func TestAPodThatWasNeverAnnouncedIsFound(t *testing.T) {
	var notices []string
	s := newStepped(t, func(o *Options) { o.Notify = func(n policy.Notice) { notices = append(notices, n.Reason) } })
	s.up(lsr("db", 2000))
	s.kernel.Mkdir("kubepods/burstable/podsilent/c", 1)
	s.kernel.Mkdir("kubepods/burstable/poduid-late/c", 1)
	found := func() int { return len(s.core.Snapshot().Unannounced) }
	s.rounds(1)
	if found() > 0 {
		t.Error("found in the first round")
	}
	s.hangs = at(List, "kubepods/burstable/podsilent")
	s.step(Round{})
	s.wantHanging(1, "it is looked at")
	s.sandbox(burstable("late"))
	s.hangs = nil
	s.resume()
	s.rounds(3)
	if list := s.core.Snapshot().Unannounced; len(list) != 1 || list[0].UID != "silent" {
		t.Errorf("found are %+v", list)
	}
	if len(notices) != 1 || notices[0] != "PodUnannounced" {
		t.Errorf("the notices are %q", notices)
	}
	s.kernel.Rmdir("kubepods/burstable/podsilent")
	s.rounds(1)
	if found() > 0 {
		t.Error("it has ended and is still found")
	}
}
