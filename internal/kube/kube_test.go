package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/policy"
)

const bindLabel = "node.koordinator.sh/cpu-bind-policy"

func testPod(name, cpus string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{corev1.ResourceCPU: *quantity(cpus)}},
		}}},
	}
}

func factsFor(name string, milli int64) policy.PodFacts {
	return policy.PodFacts{UID: "uid-" + name, Resources: policy.Resources{RequestMilli: milli, LimitMilli: milli},
		Owner: "Pod/" + name}
}

func TestPodsAreFollowed(t *testing.T) {
	s := upServer(t)
	s.putPod(testPod("before", "2"))
	f := s.run()
	f.within("a pod from before is known", f.knows("uid-before"))
	s.putPod(testPod("db", "4"))
	f.within("a new pod is known", f.knows("uid-db"))
	if got, _ := f.Facts("uid-db"); !reflect.DeepEqual(got, factsFor("db", 4000)) {
		t.Errorf("got %+v", got)
	}
	// Edited after creation: what is new is reported, once; what is not is not.
	edited := testPod("db", "4")
	edited.Labels = map[string]string{"koordinator.sh/qosClass": "LSE"}
	s.putPod(edited)
	s.putPod(testPod("db", "6"))
	f.within("the change is known", func() bool {
		got, _ := f.Facts("uid-db")
		return reflect.DeepEqual(got, factsFor("db", 6000))
	})
	if diff := cmp.Diff([]policy.PodFacts{factsFor("db", 4000), factsFor("db", 6000)},
		f.factsOf("uid-db")); diff != "" {
		t.Error(diff)
	}
	over := testPod("before", "2")
	over.Status.Phase = corev1.PodSucceeded
	s.putPod(over)
	s.deletePod(testPod("db", "6"))
	f.within("both are forgotten", func() bool { return !f.knows("uid-db")() && !f.knows("uid-before")() })
	if lists, watches := s.count("GET pods"), s.count("WATCH pods"); lists != 1 || watches != 1 {
		t.Errorf("%d lists and %d watches for all of that, want one each", lists, watches)
	}
}

func TestStaticPodsAreKnownByBothUIDs(t *testing.T) {
	s := upServer(t)
	s.putPod(mirror("uid-of-the-api", "hash-of-the-file"))
	f := s.run()
	f.within("the runtime's UID is known", f.knows("hash-of-the-file"))
	if _, ok := f.Facts("uid-of-the-api"); !ok {
		t.Error("the API server's UID is not known")
	}
	got := f.factsOf("hash-of-the-file")
	if len(got) != 1 || got[0].Owner != "Pod/etcd" {
		t.Errorf("reported %+v", got)
	}
}

func TestLabelsAreFollowed(t *testing.T) {
	s := upServer(t)
	s.putNode(map[string]string{bindLabel: "FullPCPUsOnly", "kubernetes.io/os": "linux"})
	f := s.run()
	f.within("the labels are reported", func() bool { return len(f.labelled()) == 1 })
	s.putNode(map[string]string{bindLabel: "FullPCPUsOnly", "kubernetes.io/os": "windows"}) // nothing that is read
	s.putNode(map[string]string{bindLabel: "None"})
	f.within("the change is reported", func() bool { return len(f.labelled()) == 2 })
	s.deleteNode()
	f.within("it is said that the Node is gone", func() bool {
		return strings.Contains(f.State(), "Node worker-1: not found")
	})
	s.putNode(map[string]string{bindLabel: "None"}) // the same again: nothing new
	f.within("all is well again", func() bool { return f.State() == "" })
	s.putNode(map[string]string{})
	f.within("no labels are reported too", func() bool { return len(f.labelled()) == 3 })
	want := []map[string]string{{bindLabel: "FullPCPUsOnly"}, {bindLabel: "None"}, {}}
	if diff := cmp.Diff(want, f.labelled()); diff != "" {
		t.Error(diff)
	}
	if n := f.reported()["node notfound"]; n != 1 {
		t.Errorf("the Node's absence was counted %d times, want 1", n)
	}
}

func TestANodeOfAnotherName(t *testing.T) {
	s := upServer(t)
	f := s.run()
	f.within("it is said that there is none", func() bool {
		return strings.Contains(f.State(), "Node worker-1: not found")
	})
	for range 3 {
		s.compact()
		lists := s.count("GET nodes")
		f.within("it is looked for again", func() bool { return s.count("GET nodes") > lists })
	}
	if len(f.labelled()) != 0 {
		t.Errorf("labels of another Node are reported: %v", f.labelled())
	}
	if n := linesWith(f, "there is no such Node"); n != 1 {
		t.Errorf("%d lines of it, want 1: %q", n, f.logged())
	}
}

func linesWith(f *fixture, text string) int {
	n := 0
	for _, l := range f.logged() {
		if strings.Contains(l, text) {
			n++
		}
	}
	return n
}

func TestAbsentAtStart(t *testing.T) {
	s := newServer(t)
	s.putPod(testPod("db", "4"))
	s.putNode(map[string]string{bindLabel: "None"})
	f := s.run()
	f.Notify(notice("a", "InsufficientCPUs", "m"))
	f.within("all three have tried", func() bool {
		r := f.reported()
		return r["pods error"] > 2 && r["node error"] > 2 && r["events error"] > 2
	})
	f.clock.pass(3 * time.Minute)
	if got := f.State(); !strings.Contains(got, "pods: API server not reached for 3m0s: ") ||
		!strings.Contains(got, "connection refused") {
		t.Errorf("state %q", got)
	}
	s.up()
	f.within("all is well", func() bool {
		return f.State() == "" && f.knows("uid-db")() && len(f.labelled()) == 1 && len(s.written()) == 1
	})
}

// TestGoneForTenMinutes: what is known stays, what happened is written afterwards.
func TestGoneForTenMinutes(t *testing.T) {
	s := upServer(t)
	s.putPod(testPod("db", "4"))
	s.putPod(testPod("gone", "1"))
	s.putNode(map[string]string{bindLabel: "None"})
	f := s.run()
	f.within("all is known", func() bool {
		return f.knows("uid-db")() && f.knows("uid-gone")() && len(f.labelled()) == 1 && f.State() == ""
	})
	s.down()
	s.deletePod(testPod("gone", "1"))
	s.putPod(testPod("new", "2"))
	for n := range 1000 {
		f.Notify(notice(fmt.Sprint(n), "InsufficientCPUs", "m"))
	}
	for range 10 {
		tried := f.reported()["pods error"]
		f.within("it is tried again", func() bool { return f.reported()["pods error"] > tried })
		f.clock.pass(time.Minute)
	}
	if _, ok := f.Facts("uid-db"); !ok {
		t.Error("what was known is forgotten")
	}
	if got := f.State(); !strings.Contains(got, "pods: API server not reached for 10m") {
		t.Errorf("state %q", got)
	}
	if n := linesWith(f, "what=pods"); n > 2 {
		t.Errorf("%d lines in ten minutes: %q", n, f.logged())
	}
	s.compact()
	s.up()
	f.within("all is well", func() bool { return f.State() == "" && f.knows("uid-new")() && !f.knows("uid-gone")() })
	f.within("the backlog is written", func() bool { f.clock.pass(time.Second); return len(s.written()) == maxPending })
	if got := f.reported()["events dropped"]; got != 1000-maxPending {
		t.Errorf("%d Events were given up, want %d", got, 1000-maxPending)
	}
	if n := len(f.labelled()); n != 1 {
		t.Errorf("the same labels were reported %d times", n)
	}
}

// TestHungServer: an API server that takes every request and answers none delays
// no other part.
func TestHungServer(t *testing.T) {
	s := upServer(t)
	s.putPod(testPod("db", "4"))
	f := s.run()
	f.within("the pod is followed", func() bool { return f.knows("uid-db")() && f.reported()["pods ok"] == 2 })
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	s.breaks(func(string, string, http.ResponseWriter) bool { <-release; return true })
	s.compact()
	lists := s.count("GET pods")
	f.Notify(notice("0", "R", "m"))
	f.within("requests hang", func() bool { return s.count("GET pods") > lists && s.count("POST events") > 0 })

	// Both are called more often than a node ever does in a second; a single wait
	// for the server would take longer than all of them may.
	start := time.Now()
	for n := range 100_000 {
		if _, ok := f.Facts("uid-db"); !ok {
			t.Fatal("not known")
		}
		f.Notify(notice(fmt.Sprint(n%5000), "InsufficientCPUs", "m"))
	}
	if took := time.Since(start); took > requestTimeout {
		t.Errorf("200,000 calls took %v", took)
	}
	// And without help: the client is not even asked to end.
	if s.count("POST events") != 1 {
		t.Errorf("%d Events are under way at once", s.count("POST events"))
	}
	f.stop()
}

// TestSlowServer: ten seconds, of which a test waits for none, are within every
// request's time.
func TestSlowServer(t *testing.T) {
	const slow = 10 * time.Second
	if listTimeout <= slow || requestTimeout <= slow || watchOpening <= slow {
		t.Errorf("requests end after %v, %v and %v; a server that takes %v must be waited for", listTimeout,
			requestTimeout, watchOpening, slow)
	}
	s := upServer(t)
	s.putPod(testPod("db", "4"))
	gate := make(chan struct{})
	s.breaks(func(string, string, http.ResponseWriter) bool { <-gate; return false })
	f := s.run()
	f.Notify(notice("a", "R", "m"))
	f.within("requests are under way", func() bool { return s.count("GET pods") == 1 && s.count("POST events") == 1 })
	if got := f.State(); !strings.Contains(got, "no answer yet") {
		t.Errorf("state %q", got)
	}
	close(gate)
	f.within("answers are taken", func() bool { return f.knows("uid-db")() && len(s.written()) == 1 })
}

// TestTimeouts shows that a request that is not answered ends by itself.
func TestTimeouts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	s := upServer(t)
	f := s.client()
	_, listErr := f.list(ctx, f.podFeed(), metav1.ListOptions{})
	_, watchErr := f.watch(ctx, f.podFeed(), metav1.ListOptions{})
	writeErr := f.write(ctx, item{entry: &entry{key: noticeKey{uid: "u", namespace: "n", name: "p", reason: "R"},
		first: f.clock.now()}, count: 1, create: true})
	for _, err := range []error{listErr, watchErr, writeErr} {
		if classify(err) != resultTimeout {
			t.Errorf("%v is a %s, want a timeout", err, classify(err))
		}
	}
	if f.reported()["pods timeout"] != 2 {
		t.Errorf("reports %v", f.reported())
	}
}

func TestForbidden(t *testing.T) {
	s := upServer(t)
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		answer(w, http.StatusForbidden, status(http.StatusForbidden, "Forbidden", resource+
			` is forbidden: User "system:serviceaccount:quietcore" cannot do that`))
		return true
	})
	f := s.run()
	for n := range 30 {
		f.Notify(notice(fmt.Sprint(n), "R", "m"))
	}
	f.within("all were refused", func() bool {
		f.clock.pass(time.Second)
		r := f.reported()
		return r["pods forbidden"] > 5 && r["node forbidden"] > 5 && r["events forbidden"] > 5
	})
	state := f.State()
	for _, part := range []string{"pods: API server refuses", "node: API server refuses",
		"events: API server refuses"} {
		if !strings.Contains(state, part) {
			t.Errorf("state %q lacks %q", state, part)
		}
	}
	for _, what := range []string{"what=pods", "what=node", "what=events"} {
		if n := linesWith(f, what); n != 1 {
			t.Errorf("%d lines with %s, want 1: %q", n, what, f.logged())
		}
	}
	f.clock.pass(logEvery)
	before := f.reported()["pods forbidden"]
	f.within("it goes on", func() bool { return f.reported()["pods forbidden"] > before+5 })
	if n := linesWith(f, "what=pods"); n != 2 {
		t.Errorf("%d lines after ten minutes, want 2", n)
	}
	s.putPod(testPod("db", "4"))
	s.breaks(nil)
	f.Notify(notice("again", "R", "m"))
	s.putNode(nil)
	f.within("the rights are there", func() bool {
		f.clock.pass(time.Second)
		return f.State() == "" && f.knows("uid-db")()
	})
}

// TestServerThatHasJustStarted refuses every client until it knows its rules; what
// waited for it is not lost.
func TestServerThatHasJustStarted(t *testing.T) {
	s := newServer(t)
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		if verb != "POST" || s.count("POST events") >= maxAttempts {
			return false
		}
		answer(w, http.StatusForbidden, status(http.StatusForbidden, "Forbidden", "events are forbidden"))
		return true
	})
	f := s.run()
	for n := range 5 {
		f.Notify(notice(fmt.Sprint(n), "R", "m"))
	}
	f.within("it was away for long", func() bool { return f.reported()["events error"] > 2*maxAttempts })
	s.up()
	f.within("all are written", func() bool {
		f.clock.pass(time.Second)
		return len(s.written()) == 5
	})
	if n := f.reported()["events dropped"]; n != 0 {
		t.Errorf("%d were dropped", n)
	}
}

// TestRightsInSomeNamespaces: where they end, the others' Events do not.
func TestRightsInSomeNamespaces(t *testing.T) {
	s := upServer(t)
	var refuses atomic.Int32
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		if verb != "POST" || refuses.Add(1) > maxAttempts {
			return false
		}
		answer(w, http.StatusForbidden, status(http.StatusForbidden, "Forbidden", "events are forbidden"))
		return true
	})
	f := s.run()
	f.Notify(notice("a", "R", "m"))
	f.Notify(notice("b", "R", "m"))
	f.within("the other is written", func() bool {
		f.clock.pass(time.Second)
		return len(s.written()) == 1 && s.written()[0].Regarding.UID == "b"
	})
	f.within("one is dropped", func() bool { return f.reported()["events dropped"] == 1 })
}

func TestGoneOnWatch(t *testing.T) {
	s := upServer(t)
	s.putPod(testPod("db", "4"))
	s.putNode(nil)
	f := s.run()
	f.within("the pod is known", func() bool { return f.knows("uid-db")() && f.State() == "" })
	s.deletePod(testPod("db", "4"))
	s.putPod(testPod("web", "1"))
	s.compact()
	f.within("it was listed again", func() bool {
		return s.count("GET pods") > 1 && f.knows("uid-web")() && !f.knows("uid-db")()
	})
	if n := linesWith(f, "WARN"); n != 0 {
		t.Errorf("what happens every day is reported: %q", f.logged())
	}
}

func TestNonsense(t *testing.T) {
	for _, c := range []struct {
		name, body string
	}{
		{"not JSON", `<html>Bad gateway</html>`},
		{"half", `{"kind":"PodList","metadata":{"resourceVersion":"3"},"items":[{"metadata":{"uid":"x"`},
		{"another kind", `{"kind":"SecretList","metadata":{"resourceVersion":"3"},"items":[]}`},
		{"bad item", `{"kind":"PodList","metadata":{"resourceVersion":"3"},"items":[{"spec":{"containers":7}}]}`},
		{"empty", ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := upServer(t)
			s.putPod(testPod("db", "4"))
			nonsense := func(verb, resource string, w http.ResponseWriter) bool {
				if resource != "pods" {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, c.body)
				return true
			}
			s.breaks(nonsense)
			f := s.run()
			f.within("it was tried again and again", func() bool { return f.reported()["pods error"] > 3 })
			s.breaks(nil)
			f.within("the pod is known", f.knows("uid-db"))
			s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
				return verb == "WATCH" && nonsense(verb, resource, w)
			})
			s.compact()
			seen := f.reported()["pods error"]
			if c.name != "empty" && c.name != "half" { // these are how a broken connection looks
				f.within("the watch is nonsense", func() bool { return f.reported()["pods error"] > seen+1 })
			}
			s.breaks(nil)
			s.putPod(testPod("web", "1"))
			f.within("the next pod is known", f.knows("uid-web"))
			if _, ok := f.Facts("uid-db"); !ok {
				t.Error("the first pod is forgotten")
			}
		})
	}
}

func TestAThousandPods(t *testing.T) {
	s := upServer(t)
	for n := range 500 {
		s.putPod(testPod(fmt.Sprintf("old-%d", n), "1"))
	}
	f := s.run()
	f.within("the first half is known", f.knows("uid-old-499"))
	for n := range 500 {
		s.putPod(testPod(fmt.Sprintf("new-%d", n), "1"))
	}
	all := func(is bool) func() bool {
		return func() bool {
			for n := range 500 {
				if f.knows(fmt.Sprintf("uid-old-%d", n))() != is || f.knows(fmt.Sprintf("uid-new-%d", n))() != is {
					return false
				}
			}
			return true
		}
	}
	f.within("all are known", all(true))
	if lists, watches := s.count("GET pods"), s.count("WATCH pods"); lists != 1 || watches != 1 {
		t.Errorf("%d lists and %d watches, want one each", lists, watches)
	}
	for n := range 500 {
		s.deletePod(testPod(fmt.Sprintf("old-%d", n), "1"))
		s.deletePod(testPod(fmt.Sprintf("new-%d", n), "1"))
	}
	f.within("none is", all(false))
	if n := len(f.pods.held) + len(f.pods.aliases); n != 0 {
		f.stop()
		t.Errorf("%d remain", n)
	}
}

func TestEventsAreWritten(t *testing.T) {
	s := upServer(t)
	f := s.run()
	n := notice("a", "InsufficientCPUs", "4 CPUs are asked for,\n2 are \x1b[31mfree")
	f.Notify(n)
	f.within("it is written", func() bool { return len(s.written()) == 1 })
	e := s.written()[0]
	want := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "pod-a", UID: "a"}
	if e.Regarding != want || e.Namespace != "shop" || e.Type != "Warning" || e.Reason != "InsufficientCPUs" ||
		e.Series != nil || !strings.HasPrefix(e.Name, "pod-a.") {
		t.Errorf("got %+v", e)
	}
	if e.Note != "4 CPUs are asked for, 2 are ?[31mfree" {
		t.Errorf("note %q", e.Note)
	}
	first := f.clock.now()
	if !e.EventTime.Equal(&metav1.MicroTime{Time: first}) {
		t.Errorf("time %v, want %v", e.EventTime, first)
	}
	for range 5 {
		f.clock.pass(20 * time.Second)
		f.Notify(n)
	}
	f.within("the repeats are counted", func() bool {
		f.clock.pass(time.Second)
		e := s.written()[0]
		return e.Series != nil && e.Series.Count == 6
	})
	if len(s.written()) != 1 {
		t.Errorf("%d Events of one", len(s.written()))
	}
	if n := s.count("PATCH events"); n > 3 {
		t.Errorf("%d patches of five repeats within two minutes", n)
	}
	f.within("it is reported", func() bool { return f.reported()["events ok"] >= 2 })
}

func TestEventsOfTheNode(t *testing.T) {
	s := upServer(t)
	f := s.run()
	f.Notify(policy.Notice{Reason: "UnknownNodeLabel", Message: strings.Repeat("long ", 1000)})
	f.within("it is written", func() bool { return len(s.written()) == 1 })
	e := s.written()[0]
	want := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: nodeName}
	if e.Regarding != want || e.Namespace != "default" {
		t.Errorf("got %+v", e)
	}
}

func TestEventsThatWereForgotten(t *testing.T) {
	s := upServer(t)
	f := s.run()
	f.Notify(notice("a", "R", "m"))
	f.within("it is written", func() bool { return len(s.written()) == 1 })
	old := s.written()[0].Name
	s.mu.Lock()
	clear(s.events) // an hour is over
	s.mu.Unlock()
	f.clock.pass(time.Second)
	f.Notify(notice("a", "R", "m"))
	f.within("a new one is written", func() bool { f.clock.pass(time.Second); return len(s.written()) == 1 })
	if e := s.written()[0]; e.Name == old || e.Series != nil {
		t.Errorf("got %+v", e)
	}
}

// TestAnswerThatGotLost: the server wrote the Event and its answer never came.
func TestAnswerThatGotLost(t *testing.T) {
	s := upServer(t)
	f := s.run()
	var lost atomic.Bool
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		if verb != "POST" || !lost.CompareAndSwap(false, true) {
			return false
		}
		hijacked, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			hijacked.Close()
		}
		return true
	})
	f.Notify(notice("a", "R", "m"))
	f.within("it is written", func() bool { return len(s.written()) == 1 })
	posts := s.count("POST events")
	if posts != 2 {
		t.Errorf("%d attempts, want 2", posts)
	}
	// The same Event again, as a repeated attempt would be.
	f.stop()
	i := item{entry: &entry{key: noticeKey{uid: "a", namespace: "shop", name: "pod-a", reason: "R", note: "m"}},
		create: true, count: 1, first: f.clock.now(), last: f.clock.now()}
	if err := f.write(context.Background(), i); err != nil {
		t.Errorf("an Event that is there already: %v", err)
	}
	if n := len(s.written()); n != 1 {
		t.Errorf("%d Events, want 1", n)
	}
}

// TestOneEventHoldsUpNoOther: what the API server never takes is given up.
func TestOneEventHoldsUpNoOther(t *testing.T) {
	s := upServer(t)
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		if verb != "POST" || s.count("POST events") > maxAttempts+1 {
			return false
		}
		answer(w, http.StatusInternalServerError, status(500, "InternalError", "failed calling webhook"))
		return true
	})
	f := s.run()
	f.Notify(notice("poison", "R", "m"))
	f.Notify(notice("a", "R", "m"))
	f.within("the other is written", func() bool {
		f.clock.pass(time.Second)
		return len(s.written()) == 1
	})
	if e := s.written()[0]; e.Regarding.UID != "a" {
		t.Errorf("got %+v", e)
	}
	f.within("what is about one Event says nothing of the rest", func() bool {
		return !strings.Contains(f.State(), "events")
	})
	// Nor does a pod that was created through the runtime alone.
	f.Notify(policy.Notice{Pod: policy.PodRef{UID: "u", Namespace: "../..", Name: "x/y"}, Reason: "R", Message: "m"})
	f.Notify(notice("b", "R", "m"))
	f.within("the next is written", func() bool { return len(s.written()) == 2 })
}

func TestNamespaceThatEnds(t *testing.T) {
	s := upServer(t)
	s.breaks(func(verb, resource string, w http.ResponseWriter) bool {
		if verb != "POST" {
			return false
		}
		st := status(http.StatusForbidden, "Forbidden", "because it is being terminated")
		st.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
		answer(w, http.StatusForbidden, st)
		return true
	})
	f := s.run()
	f.Notify(notice("a", "R", "m"))
	f.within("it was refused", func() bool { return f.reported()["events forbidden"] == 1 })
	if got := f.State(); strings.Contains(got, "events") {
		t.Errorf("state %q", got)
	}
}

// TestLongNames: names are valid however long the pod's is.
func TestLongNames(t *testing.T) {
	s := upServer(t)
	f := s.run()
	f.Notify(policy.Notice{Pod: policy.PodRef{UID: "u", Namespace: "shop", Name: strings.Repeat("a.", 126) + "b"},
		Reason: strings.Repeat("R", 300), Message: "m"})
	f.within("it is written", func() bool { return len(s.written()) == 1 })
}

func TestCredentialsThatComeLater(t *testing.T) {
	s := upServer(t)
	s.putPod(testPod("db", "4"))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	good, err := os.ReadFile(s.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	f := s.client()
	f.o.Kubeconfig = path
	f.start()
	f.within("it is said what is missing", func() bool {
		return f.reported()["pods error"] > 1 && strings.Contains(f.State(), "read kubeconfig "+path)
	})
	if _, err := f.REST(); err == nil {
		t.Error("there is a configuration without credentials")
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	f.within("the pod is known", f.knows("uid-db"))
	config, err := f.REST()
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "http://"+s.address || config.UserAgent != "quietcore/v9" || config.Timeout == 0 {
		t.Errorf("got %+v", config)
	}
}

func TestNewWantsANode(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, ErrNoNode) {
		t.Errorf("got %v", err)
	}
}

func TestAvailable(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if Available("") || !Available("/etc/kubeconfig") {
		t.Error("without a service account only a kubeconfig is available")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	_, err := os.Stat(serviceAccountToken)
	if Available("") != (err == nil) {
		t.Error("the service account's token decides")
	}
}

// TestNothingIsFollowedThatNobodyWants: options that are off cost no request.
func TestNothingIsFollowedThatNobodyWants(t *testing.T) {
	s := upServer(t)
	f := s.client()
	f.o.OnFacts, f.o.OnLabels = nil, nil
	f.start()
	f.Notify(notice("a", "R", "m"))
	f.within("the Event is written", func() bool { return len(s.written()) == 1 })
	if n := s.count("GET pods") + s.count("GET nodes"); n != 0 {
		t.Errorf("%d lists", n)
	}
}
