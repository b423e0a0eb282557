package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// prepare asks for a claim of 4 CPUs of the first NUMA node, of which a pod of that name is told.
func (s *stepped) prepare(pod string, deadline time.Time) *Request {
	s.t.Helper()
	r := &Request{Deadline: deadline, Event: policy.ClaimPrepared{UID: "c1", Namespace: "default", Name: "cpus",
		Pods:     []string{"uid-" + pod},
		Requests: []policy.ClaimRequest{{Device: "numa-0", Within: s.topo.Nodes()[0].CPUs, CPUs: 4}}}}
	s.step(r)
	return r
}

func (s *stepped) unprepare() *Request {
	s.t.Helper()
	r := &Request{Event: policy.ClaimUnprepared{UID: "c1"}}
	s.step(r)
	return r
}

// given are the CPUs in an answer; it fails the test if there is none.
func (s *stepped) given(r *Request) cpuset.Set {
	s.t.Helper()
	answer, ok := s.replies[r]
	if !ok || answer.Err != nil || len(answer.Claim) != 1 {
		s.t.Fatalf("answered %t: %v, CPUs %v", ok, answer.Err, answer.Claim)
	}
	return answer.Claim[0]
}

// savedClaims are the claims in the state file.
func (s *stepped) savedClaims() (uids []string) {
	for _, c := range s.saved.Claims {
		uids = append(uids, c.UID)
	}
	return uids
}

// claimPod is a pod with nothing but the claim, whose runtime names the CDI device.
func claimPod(name string) (policy.Pod, policy.Container) {
	p := podOf(name, "", policy.BestEffort, 0)
	c := mainOf(p)
	c.Claims = []string{policy.ClaimDevice("c1", 0)}
	p.Claims = map[string][]string{"main": c.Claims}
	return p, c
}

// A claim is answered once it is on disk and no other pod is on its CPUs; its container runs on them, and everybody
// gets them back when it is unprepared.
func TestLifeOfAClaim(t *testing.T) {
	s := newStepped(t)
	web := burstable("web")
	s.up(web)
	s.want("web-main", "0-15")
	s.hangs = at(Write, "kubepods/burstable")
	r := s.prepare("app", time.Time{})
	s.wantHanging(1, "the pool's narrowing")
	if _, answered := s.replies[r]; answered {
		t.Fatal("it is answered although others are on its CPUs")
	}
	s.hangs = isSave
	s.resume(at(Write, "kubepods/burstable"))
	s.pass(saveDelay)
	given := s.given(r)
	if given.Count() != 4 || len(s.savedClaims()) != 1 {
		t.Errorf("given %s, in the file %v", given, s.savedClaims())
	}
	s.hangs = nil
	s.resume()
	if shared := s.on("web-main"); strings.HasPrefix(shared, "0") || shared == "0-15" {
		t.Errorf("the shared pod is on %s, the claim's CPUs are %s", shared, given)
	}
	p, c := claimPod("app")
	s.sandbox(p)
	create := &Request{Event: policy.ContainerCreate{Pod: p, Container: c}, Pod: p.UID}
	s.step(create)
	s.settle()
	s.want("app-main", given.String())
	s.remove(p)
	if done := s.unprepare(); s.replies[done].Err != nil || len(s.savedClaims()) != 0 {
		t.Errorf("unprepared: %v, in the file %v", s.replies[done].Err, s.savedClaims())
	}
	s.settle()
	s.want("web-main", "0-15")
}

// No answer goes before the file: kubelet would not ask again for what a killed daemon forgot.
func TestNoAnswerAboutAClaimGoesBeforeTheFile(t *testing.T) {
	s := newStepped(t)
	s.hangs = isSave
	prepared := s.prepare("app", s.now.Add(forThe))
	s.pass(forThe - 1)
	if _, answered := s.replies[prepared]; answered {
		t.Fatal("a claim is prepared that no file has")
	}
	s.pass(1)
	var busy *policy.Refusal
	if err := s.replies[prepared].Err; !errors.As(err, &busy) || busy.Code != policy.Busy ||
		!strings.Contains(busy.Message, "not saved yet") {
		t.Fatalf("when its time is over: %v", err)
	}
	s.hangs = nil
	s.resume()
	first := s.given(s.prepare("app", time.Time{}))
	s.hangs = isSave
	gone := s.unprepare()
	if _, answered := s.replies[gone]; answered {
		t.Fatal("a claim is unprepared that the file still has")
	}
	s.hangs = nil
	s.resume()
	if err := s.replies[gone].Err; err != nil || first.Count() != 4 || len(s.savedClaims()) != 0 {
		t.Errorf("%v, the file has %v", err, s.savedClaims())
	}
}

// A daemon that is killed after an answer finds the same CPUs, and asks for nothing before it knows what runs.
func TestAClaimSurvivesTheDaemon(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("a", 2000)) // so that the first CPUs are taken
	given := s.given(s.prepare("app", time.Time{}))
	s.restart(true)
	for _, early := range []*Request{s.prepare("app", time.Time{}), s.unprepare()} {
		if err := s.replies[early].Err; !errors.Is(err, errNotTaken) {
			t.Fatalf("before pods were taken over: %v", err)
		}
	}
	s.synchronize()
	s.settle()
	s.up(lsr("b", 4000)) // would take the claim's place
	if again := s.given(s.prepare("app", time.Time{})); again != given {
		t.Errorf("CPUs %s became %s", given, again)
	}
	if b := s.owns(lsr("b", 0)); b.Intersects(&given) {
		t.Errorf("b owns %s, the claim has %s", b, given)
	}
	s.synchronize() // the runtime reconnects
	s.settle()
	if again := s.given(s.prepare("app", time.Time{})); again != given {
		t.Errorf("after another Synchronize CPUs %s became %s", given, again)
	}
	s.unprepare()
	s.synchronize()
	s.settle()
	if n := len(s.core.Snapshot().Claims); n != 0 {
		t.Errorf("%d claims came back from the file as it was at the start", n)
	}
	s.restart(true)
	s.synchronize()
	s.settle()
	if n := len(s.core.Snapshot().Claims); n != 0 {
		t.Errorf("%d claims came back", n)
	}
}

// A write that fails leaves others on the claim's CPUs: it is not given to a pod then.
func TestAClaimWhoseCPUsOthersDoNotLeave(t *testing.T) {
	s := newStepped(t)
	s.up(burstable("web"))
	s.fail = func(e *Effect) error {
		if at(Write, "kubepods/burstable")(e) {
			return errors.New("read-only file system")
		}
		return nil
	}
	r := s.prepare("app", s.now.Add(forThe))
	s.pass(forThe)
	if err := s.replies[r].Err; err == nil || !strings.Contains(err.Error(), "still in use by others") {
		t.Fatalf("got %v", err)
	}
	s.fail = nil
	s.settle()
	s.given(s.prepare("app", s.now.Add(forThe)))
}

// A claim that cannot be met changes nothing, and the sentence has the numbers.
func TestAClaimThatIsRefused(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("a", 4000), lsr("b", 4000), lsr("c", 4000))
	saves := s.saves()
	r := s.prepare("app", time.Time{})
	var refusal *policy.Refusal
	if err := s.replies[r].Err; !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "claim default/cpus") {
		t.Fatalf("got %v", err)
	}
	s.settle()
	if len(s.savedClaims()) != 0 || s.saves() != saves {
		t.Errorf("in the file: %v, after %d saves", s.savedClaims(), s.saves()-saves)
	}
}

// An owner does not start on CPUs that a claim has given back while the file still has the claim: a daemon that finds
// it there believes it, and would move the owner.
func TestNoOwnerStartsOnTheCPUsOfAClaimThatTheFileStillHas(t *testing.T) {
	s := newStepped(t)
	given := s.given(s.prepare("app", time.Time{}))
	s.hangs = isSave
	s.unprepare()
	s.sandbox(lse("db", 4000))
	db := s.create(lse("db", 4000))
	s.pass(3 * saveAhead) // for longer than an owner's place is waited for
	if s.started(db) {
		t.Fatalf("the owner starts while the file has %v", s.savedClaims())
	}
	s.hangs = nil
	s.resume()
	s.settle()
	if !s.started(db) || s.on("db-main") != given.String() {
		t.Errorf("started: %t, on %s, want the claim's CPUs %s", s.started(db), s.on("db-main"), given)
	}
}

// A machine that is rebuilt without the event by which a claim came has the claim on its CPUs, and does not have one
// whose end is left out.
func TestARebuiltMachineHasTheClaimsThatWereDecided(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(policy.Event) bool // what panics from some time on
		then func(*stepped) *Request
		want int // claims
	}{
		{"prepared", func(e policy.Event) bool { _, ok := e.(policy.ClaimPrepared); return ok },
			func(s *stepped) *Request { return s.prepare("app", s.now.Add(time.Second)) }, 1},
		{"unprepared", func(e policy.Event) bool {
			_, ends := e.(policy.ClaimUnprepared)
			_, caps := e.(policy.BESuppressed)
			return ends || caps
		}, func(s *stepped) *Request {
			s.unprepare()
			r := &Request{Event: policy.BESuppressed{}}
			s.step(r)
			return r
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			defect := false
			s := newStepped(t, func(o *Options) {
				o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
					if defect && c.bad(e) {
						panic("a defect")
					}
					return m.Step(now, e)
				}
			})
			s.panicked = true
			s.up(burstable("web"))
			given := s.given(s.prepare("app", time.Time{}))
			if c.want == 0 {
				s.unprepare()
			}
			defect = true
			c.then(s)
			s.pass(5 * time.Second)
			if frozen := s.core.Status().Frozen; frozen != "" {
				t.Fatal("no machine was rebuilt: ", frozen)
			}
			claims := s.core.Checkpoint().Claims
			if len(claims) != c.want || c.want > 0 && *claims[0].Given[0].CPUs != given {
				t.Errorf("the machine has claims %+v, want %d on %s", claims, c.want, given)
			}
		})
	}
}

// While the runtime is not connected it starts pods anywhere: a claim waits for its list.
func TestAClaimWaitsForPodsThatStartedWithoutAConnection(t *testing.T) {
	s := newStepped(t)
	narrowing := at(Write, "kubepods/burstable")
	s.hangs = narrowing
	r := s.prepare("app", time.Time{})
	s.pass(saveDelay)
	s.wantHanging(1, "the pool's narrowing")
	s.step(Lost{})
	s.hangs = nil
	s.resume()
	s.pass(time.Second)
	if _, answered := s.replies[r]; answered {
		t.Fatal("it is answered although pods may start on its CPUs")
	}
	db := lse("db", 4000)
	s.pods[db.UID], s.ctrs["db-main"] = db, mainOf(db)
	s.kernel.Mkdir(db.CgroupParent, 0)
	s.kernel.Mkdir(mainOf(db).CgroupPath, 1)
	s.synchronize()
	s.settle()
	given := s.given(r)
	if on, err := cpuset.Parse(s.on("db-main")); err != nil || on.Intersects(&given) {
		t.Errorf("the claim has %s, and db is on %s", given, on)
	}
}

// A list from before the connection was lost is none of what runs now.
func TestAListFromBeforeTheConnectionWasLost(t *testing.T) {
	s := newStepped(t)
	s.up(burstable("web"))
	s.hangs = isRead
	s.synchronizeBy(s.now.Add(10 * time.Second))
	s.step(Lost{})
	s.hangs = nil
	s.resume()
	r := s.prepare("app", time.Time{})
	s.pass(time.Second)
	if _, answered := s.replies[r]; answered {
		t.Fatal("it is answered although pods may start on its CPUs")
	}
	s.synchronize()
	s.settle()
	s.given(r)
}

// The shared pool takes CPUs of a claim that is being prepared, since its last ones went offline. No pod has the claim:
// it is given back, and fits or does not when it is asked for again. If a pod has it, the answer is what is left.
func TestAClaimThatLosesCPUsBeforeItIsAnswered(t *testing.T) {
	for _, runs := range []bool{false, true} {
		s := newStepped(t)
		s.up(lse("small", 2000), lse("large", 8000))
		p, c := claimPod("app")
		if runs {
			s.given(s.prepare("app", time.Time{}))
			s.sandbox(p)
			s.step(&Request{Event: policy.ContainerCreate{Pod: p, Container: c}, Pod: p.UID})
			s.settle()
		}
		s.hangs = isSave
		r := s.prepare("app", time.Time{})
		s.pass(saveDelay)
		shared := s.core.Snapshot().Shared
		s.step(&Request{Event: policy.Hardware{Online: s.topo.Online().Minus(shared)}})
		var took cpuset.Set
		took.AddSet(&s.core.machine.anchor.claims["c1"][0])
		if took.Count() != 2 {
			t.Fatalf("the claim has %s, the shared pool is %s: the test shows nothing", took, s.core.Snapshot().Shared)
		}
		s.hangs = nil
		s.resume()
		s.pass(2 * time.Second)
		if runs {
			if given := s.given(r); given != took || len(s.savedClaims()) != 1 {
				t.Errorf("given %s, has %s, saved %v", given, took, s.savedClaims())
			}
			continue
		}
		var busy *policy.Refusal
		if err := s.replies[r].Err; !errors.As(err, &busy) || busy.Code != policy.Busy {
			t.Errorf("answered %v: %v", s.replies[r].Claim, err)
		}
		s.settle()
		if len(s.savedClaims()) != 0 || len(s.core.machine.anchor.claims) != 0 {
			t.Errorf("the file has %v", s.savedClaims())
		}
	}
}

// Where taking such a claim back panics, kubelet is answered. To try it again at the next step would rebuild the
// machine each time, and what a rebuild starts is the next step.
func TestAClaimThatCannotBeTakenBackIsAnswered(t *testing.T) {
	s := newStepped(t)
	s.panicked = true
	s.up(lse("small", 2000), lse("large", 8000))
	s.hangs = isSave
	r := s.prepare("app", time.Time{})
	s.pass(saveDelay)
	s.step(&Request{Event: policy.Hardware{Online: s.topo.Online().Minus(s.core.Snapshot().Shared)}})
	step, tries := s.core.o.Step, 0
	s.core.o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
		if _, takes := e.(policy.ClaimUnprepared); takes {
			if tries++; tries <= 10 { // else the test would not end
				panic("injected")
			}
		}
		return step(m, now, e)
	}
	s.hangs = nil
	s.resume()
	s.pass(2 * time.Second)
	if answer, ok := s.replies[r]; !ok || answer.Err == nil || tries != 1 {
		t.Errorf("answered %t: %v, after %d tries", ok, answer.Err, tries)
	}
}
