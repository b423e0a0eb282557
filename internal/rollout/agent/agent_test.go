package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/rollout"
)

// fake is an API server with turns and reports, and the node of the agent.
type fake struct {
	t       *testing.T
	agent   *Agent
	now     time.Time
	turns   map[string]rollout.Turn
	uids    int
	reports []Report
	calls   []string
	broken  error // of every request
	inForce string
	refuse  error
	refuses string // which configurations; empty: all
	unkept  error
	kept    rollout.Applied
	lacks   map[string]string
	random  uint64
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), turns: map[string]rollout.Turn{}}
	f.restart()
	return f
}

func (f *fake) restart() {
	f.agent = New(Options{Node: "n1", Version: "v1", API: f, Log: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
		Now: func() time.Time { return f.now }, Random: func() uint64 { return f.random },
		NodeUID: func() types.UID { return "node-uid" }, Applied: f.kept,
		Keep: func(a rollout.Applied) error { f.kept = a; return f.unkept },
		Apply: func(_ context.Context, config []byte) error {
			if f.refuse == nil || config == nil || f.refuses != "" && !strings.Contains(string(config), f.refuses) {
				f.inForce = string(config)
				return nil
			}
			return f.refuse
		}, Lacks: func() map[string]string { return f.lacks }, Report: func(string, error) {}})
}

func (f *fake) call(what string, n int) error {
	f.calls = append(f.calls, fmt.Sprint(what, n))
	return f.broken
}

func (f *fake) Take(_ context.Context, n Node, t *rollout.Turn) (string, error) {
	if err := f.call("take", t.Place); err != nil {
		return "", err
	}
	if n.UID != "node-uid" || t.Node != "n1" {
		f.t.Errorf("turn %+v of %+v", t, n)
	}
	if _, taken := f.turns[t.Name]; taken {
		return "", apierrors.NewAlreadyExists(schema.GroupResource{Resource: "quietcoreturns"}, t.Name)
	}
	f.uids++
	made := *t
	made.UID = fmt.Sprint(f.uids)
	f.turns[t.Name] = made
	return made.UID, nil
}

func (f *fake) Mark(_ context.Context, t *rollout.Turn) error {
	if err := f.call("mark", t.Place); err != nil {
		return err
	}
	there := f.turns[t.Name]
	if there.UID != t.UID {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "quietcoreturns"}, t.Name)
	}
	there.Generation, there.Failed = t.Generation, t.Failed
	f.turns[t.Name] = there
	return nil
}

func (f *fake) Release(_ context.Context, t *rollout.Turn) error {
	if err := f.call("release", t.Place); err != nil {
		return err
	}
	if f.turns[t.Name].UID != t.UID {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "quietcoreturns"}, t.Name)
	}
	delete(f.turns, t.Name)
	return nil
}

func (f *fake) Report(_ context.Context, _ Node, r *Report) error {
	if err := f.call("report", 0); err != nil {
		return err
	}
	f.reports = append(f.reports, *r)
	return nil
}

// policy is one as the watch brings it.
func policyObject(name string, generation int64, spec string) kube.CustomObject {
	return kube.CustomObject{Name: name, UID: "p-" + name, Generation: generation, Spec: []byte(spec)}
}

// watch brings the turns that there are.
func (f *fake) watch() {
	var list []kube.CustomObject
	for _, t := range f.turns {
		spec, err := json.Marshal(turnSpec{t.Policy, fmt.Sprint(t.Place), t.Node, t.Generation, t.Failed})
		if err != nil {
			f.t.Fatal(err)
		}
		list = append(list, kube.CustomObject{Name: t.Name, UID: t.UID, Spec: spec})
	}
	f.agent.takeTurns(list)
}

// run steps until nothing is left to do, every second of some time.
func (f *fake) run(seconds int) {
	f.t.Helper()
	for range seconds {
		for i := 0; f.agent.step(f.t.Context()); i++ {
			if i > maxActs {
				f.t.Fatalf("it does not come to rest: %v", f.calls)
			}
		}
		f.now = f.now.Add(time.Second)
	}
}

func (f *fake) is(state rollout.State, inForce string) {
	f.t.Helper()
	if r := f.agent.Report(); r.State != state || f.inForce != inForce {
		f.t.Errorf("it is %s (%s) with %q in force, want %s with %q", r.State, r.Why, f.inForce, state, inForce)
	}
}

const strict = `{"rollout":{"settleFor":"5s"},"config":{"memory":"strict"}}`

func (f *fake) known(policies ...kube.CustomObject) {
	f.agent.Labels(map[string]string{})
	f.agent.takePolicies(policies)
	f.watch()
}

// A change costs a turn taken and given back, and the reports.
func TestAChange(t *testing.T) {
	f := newFake(t)
	f.run(3)
	f.is(rollout.Unknown, "")
	f.known(policyObject("p", 4, strict))
	f.random = uint64(3 * time.Second)
	f.run(3)
	f.is(rollout.Waiting, "")
	if len(f.turns) > 0 {
		t.Error("it does not wait for its moment")
	}
	f.run(1)
	f.is(rollout.Settling, `{"memory":"strict"}`)
	f.watch()
	f.run(10)
	f.is(rollout.Current, `{"memory":"strict"}`)
	if len(f.turns) > 0 || !f.kept.Settled || f.kept.Generation != 4 {
		t.Errorf("turns %v, kept %+v", f.turns, f.kept)
	}
	f.run(20)
	count := map[string]int{}
	for _, c := range f.calls {
		count[c]++
	}
	if count["take0"] != 1 || count["release0"] != 1 || count["report0"] > 3 || len(count) != 3 {
		t.Errorf("requests: %v", count)
	}
	last := f.reports[len(f.reports)-1]
	if last.Policy != "p" || last.Revision != 4 || last.Applied == nil || last.Applied.Revision != 4 || last.Why != "" {
		t.Errorf("the last report is %+v", last)
	}
	if len(f.calls) != 2+len(f.reports) {
		t.Errorf("requests: %v", f.calls)
	}
	calls := len(f.calls)
	f.now = f.now.Add(reportEvery)
	f.run(10)
	if len(f.calls) != calls+1 {
		t.Errorf("after %s requests are %v", reportEvery, f.calls[calls:])
	}
}

// A watch that is late shows a turn that was given back: it is not held.
func TestALateWatch(t *testing.T) {
	f := newFake(t)
	f.known(policyObject("p", 4, strict))
	f.run(20)
	f.turns["p.0"] = rollout.Turn{Name: "p.0", UID: "1", Policy: "p", Node: "n1", Generation: 4}
	f.watch() // as it was
	delete(f.turns, "p.0")
	f.turns["p.0"] = rollout.Turn{Name: "p.0", UID: "another", Policy: "p", Node: "n2", Generation: 5}
	f.agent.takePolicies([]kube.CustomObject{policyObject("p", 5, `{"config":{"memory":"off"}}`)})
	f.run(20)
	f.is(rollout.Waiting, `{"memory":"strict"}`)
	f.watch()
	f.run(20)
	f.is(rollout.Waiting, `{"memory":"strict"}`)
	delete(f.turns, "p.0")
	f.watch()
	f.run(40)
	f.is(rollout.Current, `{"memory":"off"}`)
}

// After a restart a turn that a watch shows counts once the API server has confirmed it.
func TestATurnFromBeforeARestart(t *testing.T) {
	for _, there := range []bool{true, false} {
		f := newFake(t)
		f.turns["p.0"] = rollout.Turn{Name: "p.0", UID: "7", Policy: "p", Node: "n1", Generation: 4}
		f.known(policyObject("p", 4, strict))
		if !there {
			f.turns["p.0"] = rollout.Turn{Name: "p.0", UID: "8", Policy: "p", Node: "n2", Generation: 4}
		}
		f.run(1)
		if there {
			f.is(rollout.Settling, `{"memory":"strict"}`)
		} else {
			f.is(rollout.Waiting, "")
		}
		if f.calls[1] != "mark0" { // after the report
			t.Errorf("there %t: requests %v", there, f.calls)
		}
	}
}

// A policy that is refused is marked, and tried anew when the file has changed.
func TestARefusal(t *testing.T) {
	f := newFake(t)
	f.refuse = errors.New("this machine has no CPU 99")
	f.known(policyObject("p", 4, strict))
	f.run(5)
	f.is(rollout.Rejected, "")
	if f.turns["p.0"].Failed != "this machine has no CPU 99" {
		t.Errorf("turns %+v", f.turns)
	}
	if p := f.agent.Problem(); p != "policy p, revision 4, is refused, and what was before stays: "+
		"this machine has no CPU 99" {
		t.Errorf("the problem is %q", p)
	}
	f.watch()
	calls := len(f.calls)
	f.run(60)
	if len(f.calls) > calls+1 { // the report
		t.Errorf("a refusal is repeated: %v", f.calls[calls:])
	}
	f.refuse = nil
	f.agent.Retry()
	f.run(20)
	f.is(rollout.Current, `{"memory":"strict"}`)
	if p := f.agent.Problem(); p != "" || len(f.turns) > 0 {
		t.Errorf("%q, turns %v", p, f.turns)
	}
}

// Of a policy that is refused mode: observe counts, and is kept: over what was in force, a policy or the file.
func TestARefusalThatStops(t *testing.T) {
	const bad = `{"config":{"mode":"observe","reserved":{"cpus":"99"}}}`
	for name, c := range map[string]struct {
		before  []kube.CustomObject
		stopped string
		is      string // in force by
	}{
		"a policy": {[]kube.CustomObject{policyObject("p", 4, strict)}, `{"memory":"strict","mode":"observe"}`, "p 4"},
		"the file": {nil, `{"mode":"observe"}`, "p 5"},
	} {
		f := newFake(t)
		f.known(c.before...)
		f.run(20)
		before, calls := f.inForce, len(f.calls)
		f.refuse, f.refuses = errors.New("no CPU 99"), "99"
		f.agent.takePolicies([]kube.CustomObject{policyObject("p", 5, bad)})
		f.run(1)
		f.is(rollout.Rejected, c.stopped)
		if r := f.agent.Report(); r.Why != "no CPU 99; its mode: observe is in force all the same" ||
			fmt.Sprint(r.Applied.Policy, " ", r.Applied.Revision) != c.is || string(f.kept.Config) != c.stopped {
			t.Errorf("%s: it says %+v, %+v, and keeps %+v", name, r, r.Applied, f.kept)
		}
		f.restart()
		f.known(policyObject("p", 5, bad))
		f.run(60)
		f.is(rollout.Rejected, c.stopped)
		if n := len(f.calls) - calls; n > 4 || len(f.turns) > 0 { // reports
			t.Errorf("%s: it asks for %v, turns %v", name, f.calls[calls:], f.turns)
		}
		f.agent.takePolicies(c.before)
		f.run(20)
		if f.inForce != before {
			t.Errorf("%s: mended, %s is in force, and was %s", name, f.inForce, before)
		}
		f.refuses = "" // not even that
		f.agent.takePolicies([]kube.CustomObject{policyObject("p", 6, bad)})
		f.run(20)
		f.is(rollout.Rejected, before)
	}
}

// What breaks by a policy is marked, what was broken before is not.
func TestWhatBreaks(t *testing.T) {
	f := newFake(t)
	f.lacks = map[string]string{"CPU performance": "no PMU"}
	f.known(policyObject("p", 4, strict))
	f.run(2)
	f.watch()
	f.lacks = map[string]string{"CPU performance": "no counter is free", "lending": "it is stuck", "no runtime": ""}
	f.run(9)
	f.is(rollout.Settling, `{"memory":"strict"}`)
	f.run(5)
	f.is(rollout.Failed, `{"memory":"strict"}`)
	if f.turns["p.0"].Failed != "lending: it is stuck; no runtime" {
		t.Errorf("turns %+v", f.turns)
	}
	f.restart() // it is measured by what was before, still
	f.known(policyObject("p", 4, strict))
	f.run(15)
	f.is(rollout.Failed, `{"memory":"strict"}`)
	f.lacks = nil
	f.run(3)
	if f.turns["p.0"].Failed != "" {
		t.Errorf("turns %+v", f.turns)
	}
	f.is(rollout.Settling, `{"memory":"strict"}`)
	f.run(6)
	f.is(rollout.Current, `{"memory":"strict"}`)
}

// An API server that is away is asked less and less often; nothing changes meanwhile.
func TestAnAPIServerThatFails(t *testing.T) {
	f := newFake(t)
	f.broken = errors.New("away")
	f.known(policyObject("p", 4, strict))
	f.run(600)
	f.is(rollout.Waiting, "")
	if n := len(f.calls); n > 40 {
		t.Errorf("%d requests in ten minutes", n)
	}
	if p := f.agent.Problem(); p != "what the node says of its policy is not written: away" {
		t.Errorf("the problem is %q", p)
	}
	f.broken = nil
	f.run(100)
	f.is(rollout.Current, `{"memory":"strict"}`)
	if p := f.agent.Problem(); p != "" {
		t.Errorf("the problem is %q", p)
	}
}

// Somebody who is first is waited for; an operator may take a turn away.
func TestOthers(t *testing.T) {
	f := newFake(t)
	f.known(policyObject("p", 4, strict))
	f.turns["p.0"] = rollout.Turn{Name: "p.0", UID: "x", Policy: "p", Node: "n2", Generation: 4}
	f.run(1)
	f.is(rollout.Waiting, "")
	f.watch()
	f.run(100)
	if n := len(f.calls); n > 3 {
		t.Errorf("requests: %v", f.calls)
	}
	delete(f.turns, "p.0")
	f.watch()
	f.run(1)
	f.watch()
	delete(f.turns, "p.0")
	f.watch()
	f.run(20)
	f.is(rollout.Current, `{"memory":"strict"}`)
}

// What cannot be kept counts, and is said.
func TestWhatIsNotKept(t *testing.T) {
	f := newFake(t)
	f.unkept = errors.New("disk full")
	f.known(policyObject("p", 4, strict))
	f.run(20)
	f.is(rollout.Current, `{"memory":"strict"}`)
	if p := f.agent.Problem(); p != "a restart of the daemon would undo what a policy changed: disk full" {
		t.Errorf("the problem is %q", p)
	}
	f.agent.takePolicies(nil)
	f.unkept = nil
	f.run(20)
	f.is(rollout.File, "")
	if f.kept.Policy != "" || f.agent.Problem() != "" {
		t.Errorf("kept %+v, problem %q", f.kept, f.agent.Problem())
	}
}

// More policies than are read, and one that is too large, change nothing.
func TestTooMuch(t *testing.T) {
	f := newFake(t)
	var many []kube.CustomObject
	for i := range MaxPolicies + 1 {
		many = append(many, policyObject(fmt.Sprintf("p%d", i), 1, strict))
	}
	f.known(many...)
	f.run(20)
	f.is(rollout.Doubtful, "")
	if p := f.agent.Problem(); !strings.Contains(p, "there are 101 policies, at most 100 are read") {
		t.Errorf("the problem is %q", p)
	}
	f.agent.takePolicies([]kube.CustomObject{{Name: "p", Generation: 1, TooLarge: true}})
	f.run(20)
	f.is(rollout.Doubtful, "")
}
