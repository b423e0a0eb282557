package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
)

// An owner was shrunk and a newer one got the rest, which the disk did not take: in whatever order they are read
// after the answer, the newer one keeps its CPUs, and the older one the rest of its own.
func TestANewerOwnerIsReadAfterTheAnswer(t *testing.T) {
	older, newer := lsr("older", 2000), lsr("newer", 2000)
	first, second := older.CgroupParent, newer.CgroupParent
	for _, order := range [][]string{{first, second}, {second, first}} {
		for _, readable := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s first, the older is readable %t", order[0], readable), func(t *testing.T) {
				s := newStepped(t)
				s.up(older, newer, burstable("web"))
				before := s.places()
				s.saved.Pods = slices.DeleteFunc(slices.Clone(s.saved.Pods), func(p state.Pod) bool {
					return p.UID == newer.UID
				})
				for i := range s.saved.Pods {
					if p := &s.saved.Pods[i]; p.UID == older.UID {
						p.CPUs, p.Request = cpuset.Range(0, 3), 4
					}
				}
				s.restart(true)
				if !readable {
					s.fail = func(e *Effect) error {
						if at(ReadAll, older.CgroupParent)(e) {
							return errors.New("input/output error")
						}
						return nil
					}
				}
				s.hangs = func(e *Effect) bool { return slices.Contains(order, cleanOf(e.Path)) }
				s.synchronizeBy(s.now.Add(forThe))
				s.pass(forThe / 2)
				if got := s.owns(older).String(); got != "0-3" || s.core.Status().Unread != 1 {
					t.Fatalf("the older owns %s, %d are unread", got, s.core.Status().Unread)
				}
				s.hangs = nil
				for _, path := range order {
					s.resume(func(e *Effect) bool { return cleanOf(e.Path) == path })
				}
				s.fail = nil
				s.settle()
				if a, b := s.owns(older).String(), s.owns(newer).String(); a != "0-1" || b != "2-3" {
					t.Errorf("the older owns %s, the newer %s; want 0-1 and 2-3", a, b)
				}
				s.wantPlaces(before)
			})
		}
	}
}

// An owner whose cgroup's path is not known is decided on without a read of it.
func TestAnOwnerWithoutAPathIsNotUnreadForEver(t *testing.T) {
	a, b := lsr("a", 2000), lsr("b", 2000)
	b.CgroupParent = ""
	s := newStepped(t)
	s.up(a)
	s.pods[b.UID] = b
	s.restart(false)
	s.hangs = at(ReadAll, a.CgroupParent)
	s.synchronizeBy(s.now.Add(forThe))
	s.pass(forThe / 2)
	if n := s.core.Status().Unread; n != 2 {
		t.Fatalf("%d are unread", n)
	}
	s.hangs = nil
	s.resume()
	s.settle()
	if n := s.core.Status().Unread; n != 0 {
		t.Errorf("%d are still unread", n)
	}
}
