package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// fraction is a pod that lies in no slice and owns nothing: it has a mask of its own as
// soon as a pod owns CPUs.
func fraction(name string) policy.Pod { return podOf(name, "", policy.Guaranteed, 500) }

func fractionPath(name string) string { return strings.Trim(fraction(name).CgroupParent, "/") }

// A container starts where no owner is that has started; it waits until its pod's cgroup
// allows no CPU of it any more.
func TestASharedContainerWaitsForTheMaskOfItsPod(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("db", 4000))
	s.hangs = at(Write, fractionPath("web"))
	s.sandbox(fraction("web"))
	web := s.create(fraction("web"))
	s.wantHanging(1, "the mask is written")
	s.pass(time.Second)
	if s.started(web) {
		t.Fatal("it starts although its cgroup may have the CPUs of the owner")
	}
	if s.core.Settled() {
		t.Error("the core calls itself settled while a container waits")
	}
	s.resume()
	if !s.started(web) {
		t.Fatal("it does not start in a cgroup that leaves the owner alone")
	}
	if got := s.allows(fractionPath("web")); got != "4-15" {
		t.Errorf("its cgroup allows %s, want 4-15", got)
	}
}

// In a slice whose mask is right no container waits, nor on a node without owners.
func TestASharedContainerStartsWhereTheSliceIsRight(t *testing.T) {
	s := newStepped(t)
	s.hangs = func(e *Effect) bool { return e.Kind == Write }
	s.sandbox(fraction("first"))
	if r := s.create(fraction("first")); !s.started(r) {
		t.Error("it waits although nobody owns anything")
	}
	s.hangs = nil
	s.resume()
	s.settle()
	s.up(lsr("db", 4000))
	s.hangs = func(e *Effect) bool { return e.Kind == Write }
	s.sandbox(burstable("web"))
	if r := s.create(burstable("web")); !s.started(r) {
		t.Error("it waits although its slice leaves the owner alone")
	}
	s.sandbox(bestEffort("low"))
	if r := s.create(bestEffort("low")); !s.started(r) {
		t.Error("best effort waits for an owner of class LSR")
	}
}

// Where the mask cannot be written the container waits to its deadline, and is no
// container then.
func TestBusyAtTheDeadlineEndsTheContainer(t *testing.T) {
	for _, p := range []policy.Pod{fraction("web"), lsr("web", 2000)} {
		t.Run(p.Labels[policy.LabelClass], func(t *testing.T) {
			s := newStepped(t)
			s.up(burstable("app"), lsr("db", 4000))
			s.hangs = func(e *Effect) bool { return e.Kind == Write }
			s.sandbox(p)
			deadline := s.now.Add(time.Second)
			web := s.createBy(p, deadline)
			if at := s.core.Next(); at.After(deadline) {
				t.Errorf("the core wants to be woken at %s, the deadline is %s", at, deadline)
			}
			s.pass(time.Second - 1)
			if _, answered := s.replies[web]; answered || !s.core.Knows("web-main") {
				t.Fatalf("before the deadline: answered %t, known %t", answered, s.core.Knows("web-main"))
			}
			s.pass(1)
			var refusal *policy.Refusal
			if err := s.replies[web].Err; !errors.As(err, &refusal) || refusal.Code != policy.Busy {
				t.Fatalf("at the deadline the answer is %v, want Busy", err)
			}
			if s.replies[web].Container != nil {
				t.Error("the refusal comes with a decision")
			}
			if s.core.Knows("web-main") {
				t.Error("a container that was refused is still known")
			}
			s.hangs = nil
			s.resume()
			if again := s.create(p); !s.started(again) {
				t.Error("the next attempt waits, too")
			}
		})
	}
}

// An owner of which nothing runs waits for those that run, not they for it: otherwise
// both would wait.
func TestNobodyWaitsForAnOwnerThatHasNotStarted(t *testing.T) {
	s := newStepped(t)
	s.up(burstable("app"))
	s.sandbox(lsr("db", 4000))
	s.hangs = at(Write, fractionPath("web"))
	s.sandbox(fraction("web"))
	if web := s.create(fraction("web")); !s.started(web) {
		t.Fatal("it waits for an owner that has not started")
	}
	s.wantHanging(1, "its mask is written")
	db := s.create(lsr("db", 4000))
	s.pass(time.Second)
	if s.started(db) {
		t.Fatal("the owner is started although others may be on its CPUs")
	}
	// Until it has started no other container waits for it, nor after it was refused.
	s.sandbox(burstable("late"))
	if late := s.create(burstable("late")); !s.started(late) {
		t.Error("a container in its slice waits for an owner that has not started")
	}
	s.hangs = nil
	s.resume()
	if !s.started(db) {
		t.Fatal("the owner is not started although all have left")
	}
	s.hangs = at(Write, fractionPath("next"))
	s.sandbox(fraction("next"))
	if next := s.create(fraction("next")); s.started(next) {
		t.Error("a container is started beside an owner that has")
	}
	s.hangs = nil
	s.resume()
}

// An owner that is taken over has started, whatever became of its containers.
func TestAnOwnerThatWasTakenOverHasStarted(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("db", 4000))
	s.start()
	s.synchronize()
	s.settle()
	s.step(&Request{Event: policy.ContainerStopped{ID: "db-main"}, Pod: "uid-db"})
	s.hangs = at(Write, fractionPath("web"))
	s.sandbox(fraction("web"))
	if web := s.create(fraction("web")); s.started(web) {
		t.Error("it is started in a cgroup that may have the owner's CPUs")
	}
}

// A pod that was refused or has ended leaves nothing behind.
func TestPodsThatWereRefusedAreForgotten(t *testing.T) {
	s := newStepped(t)
	for i := range 3 {
		huge := lsr(fmt.Sprint("huge", i), 64000)
		r := &Request{Event: policy.PodRun{Pod: huge}, Pod: huge.UID}
		s.step(r)
		if s.replies[r].Err == nil {
			t.Fatal("an owner of more CPUs than there are is not refused: the test shows nothing")
		}
		s.step(&Request{Event: policy.PodRemoved{Sandbox: huge.Sandbox}, Pod: huge.UID})
	}
	ended := lsr("ended", 2000)
	s.sandbox(ended)
	s.remove(ended)
	if n := len(s.core.fresh); n > 0 {
		t.Errorf("%d pods that are gone are kept: %v", n, s.core.fresh)
	}
}

// An owner that grows waits as one that starts; one that runs is not ended by its deadline.
func TestAnUpdateWaitsForItsCPUs(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late: ", late), func(t *testing.T) {
			s := newStepped(t)
			s.up(burstable("web"), lsr("db", 2000))
			s.hangs = at(Write, slice)
			r := policy.Resources{RequestMilli: 4000, LimitMilli: 4000}
			update := &Request{Pod: "uid-db", Deadline: s.now.Add(time.Second),
				Event: policy.ContainerUpdate{ID: "db-main", Quota: 400000, Period: 100000, Resources: &r}}
			s.step(update)
			s.wantHanging(1, "the others leave")
			if _, answered := s.replies[update]; answered {
				t.Fatal("it is answered before the others have left")
			}
			if late {
				s.pass(time.Second)
			} else {
				s.hangs = nil
				s.resume()
			}
			answer, answered := s.replies[update]
			if !answered || answer.Err != nil || !s.core.Knows("db-main") {
				t.Fatalf("answered %t with %v, known %t", answered, answer.Err, s.core.Knows("db-main"))
			}
			want := "0-3"
			if late {
				want = "0-1" // without CPUs in the reply the runtime would write those that it stores
			}
			if answer.Container == nil || answer.Container.Need.Own.String() != want {
				t.Fatalf("the answer has the decision %+v, want CPUs %s", answer.Container, want)
			}
			s.hangs = nil
			s.resume()
			s.settle()
			if got := s.owns(lsr("db", 0)).String(); got != "0-3" {
				t.Errorf("it owns %s, want 0-3", got)
			}
			s.want("web-main", "4-15")
		})
	}
}

// An answer has the decision about its container alone, with the machine it is about.
func TestTheDecisionThatIsAnswered(t *testing.T) {
	own, other := cpuset.Range(0, 1), cpuset.Range(2, 3)
	set := func(id string, own *cpuset.Set) policy.SetContainer {
		return policy.SetContainer{Container: policy.ContainerRef{ID: id}, Need: policy.Need{Own: own}}
	}
	decisions := []policy.Decision{policy.SetPod{}, set("a", &other), set("b", &other), set("a", &own),
		policy.DropContainer{ID: "b"}}
	if d, ok := decisionOf(decisions, "a"); !ok || d.Need.Own != &own {
		t.Errorf("the last decision about a is %+v, %t", d, ok)
	}
	if d, ok := decisionOf(decisions, "c"); ok {
		t.Errorf("there is a decision about c: %+v", d)
	}
	s := newStepped(t)
	s.sandbox(lsr("db", 2000))
	answer := s.replies[s.create(lsr("db", 2000))]
	if answer.Container == nil || answer.Container.Container.ID != "db-main" || answer.Topology != s.topo ||
		answer.Container.Need.Own.String() != "0-1" {
		t.Errorf("the answer is %+v", answer)
	}
}

// What is decided while a container waits is what it is answered: the CPUs that it was to
// have may be others' by then.
func TestADecisionThatChangesWhileItsContainerWaits(t *testing.T) {
	s := newNode(t, topology.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2})
	s.start()
	s.synchronize()
	s.settle()
	s.up(burstable("web"))
	s.hangs = at(Write, slice)
	s.sandbox(lsr("db", 2000))
	db := s.create(lsr("db", 2000))
	s.wantHanging(1, "the others leave")
	own := s.owns(lsr("db", 0))
	if own.String() != "0-1" {
		t.Fatalf("it owns %s", own)
	}
	// The last CPUs that are not its own go off, and it has to run in the shared pool.
	online := cpuset.Range(0, 1)
	s.kernel.SetOnline(online)
	s.step(&Request{Event: policy.Hardware{Online: online}})
	if got := s.owns(lsr("db", 0)); !got.IsEmpty() {
		t.Fatalf("it still owns %s: the test shows nothing", got)
	}
	s.hangs = nil
	s.resume()
	s.settle()
	answer, answered := s.replies[db]
	if !answered || answer.Err != nil || answer.Container == nil {
		t.Fatalf("answered %t: %v, %+v", answered, answer.Err, answer.Container)
	}
	if answer.Container.Need.Own != nil {
		t.Errorf("it is told to run alone on %s, which it does not own any more", answer.Container.Need.Own)
	}
	if answer.Topology.Online() != online {
		t.Errorf("the answer is about a machine of CPUs %s", answer.Topology.Online())
	}
}

// A container that ends while it waits is not started: its CPUs are free for others.
func TestAContainerThatEndsWhileItWaitsIsNotStarted(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*stepped)
	}{
		{"the pod is removed", func(s *stepped) { s.remove(lsr("db", 4000)) }},
		{"the container is stopped", func(s *stepped) {
			s.step(&Request{Event: policy.ContainerStopped{ID: "db-main"}, Pod: "uid-db"})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStepped(t)
			s.up(burstable("web"))
			s.hangs = at(Write, slice)
			s.sandbox(lsr("db", 4000))
			db := s.create(lsr("db", 4000))
			s.wantHanging(1, "the others leave")
			c.end(s)
			var refusal *policy.Refusal
			if err := s.replies[db].Err; !errors.As(err, &refusal) || refusal.Code != policy.Busy {
				t.Errorf("the answer is %v, want Busy", err)
			}
			s.hangs = nil
			s.resume()
			s.settle()
			s.up(lsr("next", 8000))
		})
	}
}

// One whose sender has gone before its turn is not taken.
func TestARequestThatComesTooLateIsNotTaken(t *testing.T) {
	s := newStepped(t)
	p := lsr("db", 2000)
	s.kernel.Mkdir(p.CgroupParent, 0)
	r := &Request{Event: policy.PodRun{Pod: p}, Pod: p.UID, Deadline: s.now}
	s.step(r)
	if err := s.replies[r].Err; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the answer is %v", err)
	}
	if own := s.owns(p); !own.IsEmpty() {
		t.Errorf("it owns %s", own)
	}
}

// In a daemon that writes no masks no container waits.
func TestAnObserverKeepsNobodyWaiting(t *testing.T) {
	s := newStepped(t, func(o *Options) { o.Tree.Writes = false })
	s.sandbox(burstable("web"))
	s.sandbox(lsr("db", 2000))
	request := &Request{Event: policy.ContainerCreate{Pod: lsr("db", 2000), Container: mainOf(lsr("db", 2000))},
		Pod: "uid-db"}
	s.step(request)
	if answer, ok := s.replies[request]; !ok || answer.Err != nil {
		t.Errorf("answered %t: %v", ok, answer.Err)
	}
	if w := s.writes(); len(w) > 0 {
		t.Errorf("it writes %v", w)
	}
}
