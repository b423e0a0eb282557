package lend

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kube/kubetest"
)

func TestFallsAtOnceAndRisesLate(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		after(time.Second)
		n.expect(t, "-", "-", "no offer yet")
		n.Offer(8000)
		after(time.Second)
		n.expect(t, "8000", "-", "")
		n.Offer(3000)
		after(time.Second)
		n.expect(t, "3000", "-", "")
		n.Offer(9000)
		after(55 * time.Second)
		n.expect(t, "3000", "-", "")
		after(10 * time.Second)
		n.expect(t, "9000", "-", "")
		if got := n.s.count(); got != 3 {
			t.Errorf("%d requests, want 3", got)
		}
		if got := n.Published(); got.Own != 9000 || got.Offer != 9000 || got.Bound != 0 || got.At.IsZero() {
			t.Errorf("published is %+v", got)
		}
	})
}

func TestNeverBelowWhatPodsRequest(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(8000)
		after(time.Second)
		n.bind(pod(1, 4000, 0), pod(2, 2000, 0))
		after(time.Second)
		n.expect(t, "8000", "-", "")
		n.Offer(1000)
		after(time.Second)
		n.expect(t, "6000", "-", "")
		// Bound while the offer fell: covered at once, though it is a rise.
		n.bind(pod(1, 4000, 0), pod(2, 2000, 0), pod(3, 1000, 0))
		after(2 * time.Second)
		n.expect(t, "7000", "-", "")
		n.bind(pod(2, 2000, 0))
		after(2 * time.Second)
		n.expect(t, "2000", "-", "")
		n.Offer(-5)
		after(2 * time.Second)
		n.expect(t, "2000", "-", "")
		if got := n.Published(); got.Offer != 0 || got.Bound != 2000 || n.Published() != got {
			t.Errorf("published is %+v", got)
		}
	})
}

// What one name was promised is not promised by the other.
func TestTwoNamesForTheSameCPUs(t *testing.T) {
	play(t, newServer(""), Options{AlsoKoordinator: true}, func(t *testing.T, n *node) {
		n.Offer(8000)
		after(time.Second)
		n.expect(t, "8000", "8000", "")
		n.bind(pod(1, 3000, 0), pod(2, 0, 1000), kube.BatchPod{UID: "annotated", Milli: 500})
		after(2 * time.Second)
		n.expect(t, "6500", "4500", "") // 3.5 CPUs are left, by either name
		n.Offer(2000)
		after(2 * time.Second)
		n.expect(t, "3000", "1000", "")
		n.Withdraw()
		after(2 * time.Second)
		n.expect(t, "-", "1000", "") // kubelet would fail pod 2 without it
		n.bind()
		after(2 * time.Second)
		n.expect(t, "-", "-", "")
		n.s.mu.Lock()
		defer n.s.mu.Unlock()
		if a := n.s.node.Annotations; len(a) != 1 || a["example.com/theirs"] != "stays" {
			t.Errorf("the annotations are %v in the end", a)
		}
	})
}

func TestKoordinatorsOwnIsLeftAlone(t *testing.T) {
	s := newServer("")
	s.set(kube.KoordinatorResource, "12k")
	play(t, s, Options{}, func(t *testing.T, n *node) {
		n.bind(pod(1, 0, 3000))
		n.Offer(4000)
		after(2 * time.Second)
		n.expect(t, "1000", "12000", "") // pod 1 has 3 of the 4 CPUs
		n.Withdraw()
		after(time.Minute)
		n.expect(t, "-", "12000", "")
	})
}

// What pods request by Koordinator's name is published before there is an offer, although nothing was.
func TestKoordinatorsNameBeforeAnOffer(t *testing.T) {
	play(t, newServer(""), Options{AlsoKoordinator: true}, func(t *testing.T, n *node) {
		n.bind(pod(1, 0, 3000))
		after(time.Second)
		n.expect(t, "-", "3000", "no offer yet")
	})
}

// A configuration that no longer publishes Koordinator's name takes it back.
func TestKoordinatorsNameSwitchedOff(t *testing.T) {
	s := newServer("")
	play(t, s, Options{AlsoKoordinator: true}, func(t *testing.T, n *node) {
		n.Offer(4000)
		after(time.Second)
		n.expect(t, "4000", "4000", "")
	})
	play(t, s, Options{}, func(t *testing.T, n *node) {
		n.Offer(4000)
		after(2 * time.Second)
		n.expect(t, "4000", "-", "")
	})
}

func TestKubeletZeroes(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.bind(pod(1, 2000, 0))
		n.Offer(5000)
		after(2 * time.Second)
		n.s.set(kube.BatchResource, "0")
		after(100 * time.Millisecond) // before kubelet has listed its pods
		n.expect(t, "5000", "-", "")
		if n.repaired(CauseZeroed) != 1 {
			t.Errorf("repairs are %v", n.repairs)
		}
	})
}

// Before the first offer it is unknown what can be lent, but pods exist.
func TestDaemonStartsAfterKubeletZeroed(t *testing.T) {
	s := newServer("0")
	play(t, s, Options{}, func(t *testing.T, n *node) {
		n.bind(pod(1, 2000, 0))
		after(time.Second)
		n.expect(t, "2000", "-", "no offer yet")
	})
}

func TestDaemonRestartKeepsWhatIsPublished(t *testing.T) {
	s := newServer("")
	play(t, s, Options{}, func(t *testing.T, n *node) { n.Offer(7000); after(time.Second) })
	s.count()
	play(t, s, Options{}, func(t *testing.T, n *node) {
		after(time.Minute)
		n.expect(t, "7000", "-", "no offer yet")
		if got := s.count(); got != 0 {
			t.Errorf("%d requests although nothing was offered", got)
		}
		n.Offer(7000)
		after(time.Minute)
		n.expect(t, "7000", "-", "")
		n.Offer(2000)
		after(time.Second)
		n.expect(t, "2000", "-", "")
	})
	play(t, s, Options{}, func(t *testing.T, n *node) {
		after(OfferFor + time.Minute)
		n.expect(t, "0", "-", "there has been no offer")
	})
}

func TestOfferThatIsNotRepeated(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.bind(pod(1, 1000, 0))
		n.Offer(7000)
		after(OfferFor - time.Second)
		n.expect(t, "7000", "-", "")
		after(2 * time.Second)
		n.expect(t, "1000", "-", "no offer for")
		n.Offer(7000)
		after(time.Minute)
		n.expect(t, "7000", "-", "")
	})
}

func TestOthersWrite(t *testing.T) {
	for _, c := range []struct {
		name, cause string
		edit        func(s *apiServer)
	}{
		{"another amount", CauseChanged, func(s *apiServer) { s.set(kube.BatchResource, "64k") }},
		{"taken away", CauseRemoved, func(s *apiServer) { s.set(kube.BatchResource, "") }},
		{"one list only", CauseChanged, func(s *apiServer) {
			s.edit(func(n *corev1.Node) { n.Status.Allocatable[kube.BatchResource] = resource.MustParse("1") })
		}},
		{"a Node made anew", CauseRecreated, func(s *apiServer) {
			s.edit(func(n *corev1.Node) {
				n.UID, n.Annotations = "u2", nil
				delete(n.Status.Capacity, kube.BatchResource)
				delete(n.Status.Allocatable, kube.BatchResource)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
				n.Offer(5000)
				after(2 * time.Second)
				c.edit(n.s)
				after(time.Second)
				n.expect(t, "5000", "-", "")
				if n.repaired(c.cause) != 1 {
					t.Errorf("repairs are %v, want one for %s", n.repairs, c.cause)
				}
			})
		})
	}
}

// More in capacity than in allocatable is harmless, but is not what was written.
func TestCapacityAlone(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(5000)
		after(2 * time.Second)
		n.s.edit(func(n *corev1.Node) { n.Status.Capacity[kube.BatchResource] = resource.MustParse("9k") })
		after(2 * time.Second)
		n.expect(t, "5000", "-", "")
	})
}

func TestRivalIsAnsweredAtABoundedRate(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(5000)
		after(2 * time.Second)
		n.s.count()
		for range 600 { // a rival that is quick
			n.Offer(5000)
			if n.s.says(kube.BatchResource) != "64000" {
				n.s.set(kube.BatchResource, "64k")
			}
			after(time.Second)
		}
		if got, most := n.s.count(), repairBurst+600/10+1; got > most {
			t.Errorf("%d writes in ten minutes, want at most %d", got, most)
		}
	})
}

func TestRivalIsNamed(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(5000)
		after(2 * time.Second)
		for range 20 {
			n.s.set(kube.BatchResource, "64k")
			after(time.Second)
		}
		n.s.set(kube.BatchResource, "64k")
		after(time.Millisecond)
		n.expect(t, "64000", "-", "it has quietcore.dev/batch-cpu 64000 instead of quietcore.dev/batch-cpu 5000")
		after(repairEvery)
		n.expect(t, "5000", "-", "")
	})
}

func TestAnnotation(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.bind(pod(1, 2000, 0))
		n.Offer(1500)
		after(time.Second)
		first := time.Now()
		at := func() record {
			n.s.mu.Lock()
			defer n.s.mu.Unlock()
			r, ok := parseRecord(n.s.node.Annotations[kube.AnnLending])
			if !ok {
				t.Fatalf("the annotation is %q", n.s.node.Annotations[kube.AnnLending])
			}
			return r
		}
		if r := at(); r.Offer != 1500 || len(r.Resources) != 1 || r.Resources[0] != kube.BatchResource ||
			first.Sub(r.At) > 2*time.Second {
			t.Errorf("the record is %+v", r)
		}
		n.s.count()
		n.keep(1500, time.Hour)
		if got := n.s.count(); got != 6 {
			t.Errorf("%d writes in an hour in which nothing changed, want 6", got)
		}
		if r := at(); time.Since(r.At) > RenewEvery+time.Second {
			t.Errorf("the record is of %s ago", time.Since(r.At))
		}
	})
}

func TestUnknownPods(t *testing.T) {
	s := newServer("7000")
	play(t, s, Options{}, func(t *testing.T, n *node) {
		n.unknown = true
		n.Offer(1000)
		after(time.Hour)
		n.expect(t, "7000", "-", "the pods of this node are not known")
		n.Withdraw()
		after(time.Second)
		n.expect(t, "-", "-", "")
	})
}

func TestNothingToWithdraw(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Withdraw()
		after(time.Hour)
		n.expect(t, "-", "-", "")
		if got := n.s.count(); got != 0 {
			t.Errorf("%d requests", got)
		}
	})
}

// A publisher needs an API server, a Node and its pods; what else it takes has a default.
func TestAPublisherWithoutOptions(t *testing.T) {
	s := newServer("")
	serve(t, s, func(t *testing.T, api *Server) {
		p := New(Options{API: api, Node: "n1", Bound: func() ([]kube.BatchPod, bool) { return nil, true }})
		s.watch = p.Observe
		p.Observe(s.lent())
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); p.Run(ctx) }()
		p.Offer(5000)
		after(2 * time.Second)
		s.set(kube.BatchResource, "64k")
		after(2 * time.Second)
		if got := s.says(kube.BatchResource); got != "5000" {
			t.Errorf("the Node says %s, want 5000", got)
		}
		least, most := time.Hour, time.Hour
		for range 1000 {
			d := p.o.Spread(time.Hour)
			least, most = min(least, d), max(most, d)
		}
		if least < 48*time.Minute || most > 72*time.Minute || most-least < 20*time.Minute {
			t.Errorf("an hour is spread from %v to %v, want a fifth less to a fifth more", least, most)
		}
		cancel()
		<-ran
		s.watch = nil
	})
}

// What the watch repeats is no news, and each change of what the publisher reads is.
func TestWhatIsNews(t *testing.T) {
	was := kube.LentNode{UID: "u1", Version: "1", Own: kube.Amount{Capacity: 1, Allocatable: 1},
		Koordinator: kube.Amount{Capacity: 2, Allocatable: 2}, Record: "r"}
	for name, c := range map[string]struct {
		change func(n *kube.LentNode)
		news   bool
	}{
		"nothing":       {func(*kube.LentNode) {}, false},
		"the version":   {func(n *kube.LentNode) { n.Version = "2" }, false},
		"the UID":       {func(n *kube.LentNode) { n.UID = "u2" }, true},
		"ours":          {func(n *kube.LentNode) { n.Own.Allocatable = 0 }, true},
		"Koordinator's": {func(n *kube.LentNode) { n.Koordinator.Capacity = 0 }, true},
		"the record":    {func(n *kube.LentNode) { n.Record = "" }, true},
	} {
		p := New(Options{})
		if p.Observe(was); len(p.wake) != 1 {
			t.Error("the first Node is no news")
		}
		<-p.wake
		is := was
		c.change(&is)
		if p.Observe(is); (len(p.wake) == 1) != c.news {
			t.Errorf("a change of %s is news: %t, want %t", name, !c.news, c.news)
		}
	}
}

func TestNodeGone(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(5000)
		after(2 * time.Second)
		n.Observe(kube.LentNode{})
		n.s.count()
		n.Offer(4000)
		after(time.Minute)
		n.expect(t, "5000", "-", "there is no Node n1")
		if got := n.s.count(); got != 0 {
			t.Errorf("%d requests", got)
		}
	})
}

func forbid(w http.ResponseWriter, _ *http.Request) bool {
	kubetest.Refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/status"}, "n1", errors.New("RBAC")))
	return true
}

// What keeps the Node from being written is told until the next attempt, whatever comes in meanwhile.
func TestAFailureIsToldUntilTheNextAttempt(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(8000)
		after(2 * time.Second)
		n.s.breaks(forbid)
		n.Offer(3000)
		after(10 * time.Second)
		n.s.count()
		n.Offer(2000)
		after(time.Second)
		n.expect(t, "8000", "-", "forbidden")
		if got := n.s.count(); got != 0 {
			t.Errorf("%d requests between two attempts", got)
		}
	})
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, state, result string
		most                int // requests in ten minutes
		fault               func(w http.ResponseWriter, r *http.Request) bool
	}{
		{"forbidden", "forbidden", resultForbidden, 10, forbid},
		{"conflict", "the object has been modified", resultConflict, 17, func(w http.ResponseWriter,
			_ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1",
				errors.New("the object has been modified")))
			return true
		}},
		{"no such Node", "not found", resultNotFound, 17, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n1"))
			return true
		}},
		{"invalid", "invalid", resultError, 10, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n1", nil))
			return true
		}},
		{"too many requests", "slow down", resultError, 20, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "40")
			kubetest.Refuse(w, apierrors.NewTooManyRequests("slow down", 40))
			return true
		}},
		{"the connection breaks", "not written", resultError, 17, func(http.ResponseWriter, *http.Request) bool {
			panic(http.ErrAbortHandler)
		}},
		{"it hangs", "deadline", resultTimeout, 17, func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		}},
		{"a proxy's page", "not written", resultError, 17, func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>")
			return true
		}},
		{"half an answer", "not written", resultError, 17, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"metadata":`)
			return true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
				n.Offer(8000)
				after(2 * time.Second)
				n.s.count()
				n.s.breaks(c.fault)
				n.keep(3000, 10*time.Minute)
				n.expect(t, "8000", "-", c.state)
				if got := n.s.count(); got > c.most {
					t.Errorf("%d requests in ten minutes, want at most %d", got, c.most)
				}
				if n.reported(c.result) == 0 {
					t.Errorf("results are %v, want %s among them", n.results, c.result)
				}
				n.s.breaks(nil)
				n.keep(3000, refusedRetry+time.Minute)
				n.expect(t, "3000", "-", "")
			})
		})
	}
}

// A server that takes 9 s: Offer never waits, and the latest offer is written.
func TestSlowServer(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.s.breaks(func(http.ResponseWriter, *http.Request) bool {
			time.Sleep(9 * time.Second) // fake time
			return false
		})
		n.Offer(8000)
		after(time.Second)
		began := time.Now()
		for i := range int64(1000) {
			n.Offer(7999 - i)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("Offer waited %s", d)
		}
		after(30 * time.Second)
		n.expect(t, "7000", "-", "")
	})
}

// loses makes the next write work and its answer get lost.
func (n *node) loses(t *testing.T) {
	n.s.breaks(func(_ http.ResponseWriter, r *http.Request) bool {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		n.s.breaks(nil)
		n.s.edit(func(node *corev1.Node) {
			if err := merge(node, text); err != nil {
				t.Error(err)
			}
		})
		panic(http.ErrAbortHandler)
	})
}

// An answer that gets lost after the write is no foreign change, nor is the rise
// that it was made a second time.
func TestLostAnswer(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.Offer(8000)
		after(2 * time.Second)
		n.loses(t)
		n.Offer(3000)
		after(time.Millisecond)
		n.Offer(2000)
		after(time.Minute)
		n.expect(t, "2000", "-", "")
		if len(n.repairs) != 0 {
			t.Errorf("repairs are %v, want none", n.repairs)
		}
		n.loses(t)
		n.Offer(5000)
		after(time.Millisecond)
		n.Offer(7000)
		after(50 * time.Second)
		n.expect(t, "5000", "-", "")
		after(15 * time.Second)
		n.expect(t, "7000", "-", "")
	})
}

// A rise that failed and then worked without an answer is a rise when it worked.
func TestLostAnswerAfterAFailure(t *testing.T) {
	play(t, newServer(""), Options{}, func(t *testing.T, n *node) {
		n.s.breaks(func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "down", http.StatusInternalServerError)
			return true
		})
		n.Offer(5000)
		after(20 * time.Second)
		n.expect(t, "-", "-", "down")
		n.loses(t)
		n.Offer(7000)
		for n.s.says(kube.BatchResource) == "-" {
			after(time.Second)
		}
		after(55 * time.Second)
		n.expect(t, "5000", "-", "")
		after(15 * time.Second)
		n.expect(t, "7000", "-", "")
	})
}

// A watch reports late: what it has of the time before our write is old news.
func TestWatchIsLate(t *testing.T) {
	s := newServer("")
	play(t, s, Options{}, func(t *testing.T, n *node) {
		n.Offer(8000)
		after(2 * time.Second)
		old := s.lent()
		n.Offer(3000)
		after(time.Second)
		s.count()
		n.Observe(old)
		after(time.Second)
		if got := s.count(); got != 0 || len(n.repairs) != 0 {
			t.Errorf("%d requests and repairs %v for old news", got, n.repairs)
		}
	})
}

func TestClear(t *testing.T) {
	for _, c := range []struct {
		name                string
		alsoK               bool
		pods                []kube.BatchPod
		own, koordinator    string // afterwards
		requests            int
		again, afterPodsEnd string
	}{
		{"nothing is requested", true, nil, "-", "-", 1, "-", "-"},
		{"ours is requested", false, []kube.BatchPod{pod(1, 2000, 0)}, "-", "-", 1, "-", "-"},
		{"Koordinator's is requested", true, []kube.BatchPod{pod(1, 0, 2000)}, "-", "2000", 1, "2000", "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer("")
			play(t, s, Options{AlsoKoordinator: c.alsoK}, func(t *testing.T, n *node) {
				n.bind(c.pods...)
				n.Offer(8000)
				after(2 * time.Second)
			})
			serve(t, s, func(t *testing.T, api *Server) {
				clear := func(pods []kube.BatchPod) Cleared {
					t.Helper()
					got, err := Clear(t.Context(), api, "n1", s.lent(), pods)
					if err != nil {
						t.Fatal(err)
					}
					return got
				}
				s.count()
				got := clear(c.pods)
				if !got.Changed || s.says(kube.BatchResource) != c.own ||
					s.says(kube.KoordinatorResource) != c.koordinator || s.count() != c.requests {
					t.Errorf("cleared %+v, the Node says %s and %s", got, s.says(kube.BatchResource),
						s.says(kube.KoordinatorResource))
				}
				if got := clear(c.pods); got.Changed || s.says(kube.KoordinatorResource) != c.again {
					t.Errorf("a second time: %+v", got)
				}
				if clear(nil); s.says(kube.KoordinatorResource) != c.afterPodsEnd {
					t.Errorf("once no pod is left the Node says %s", s.says(kube.KoordinatorResource))
				}
			})
		})
	}
}

// A record that is left alone, without what it was about, goes too.
func TestClearRemovesARecordAlone(t *testing.T) {
	s := newServer("")
	s.edit(func(n *corev1.Node) {
		n.Annotations[kube.AnnLending] = `{"at":"2026-11-21T12:00:00Z","offer":0,"resources":[]}`
	})
	serve(t, s, func(t *testing.T, api *Server) {
		got, err := Clear(t.Context(), api, "n1", s.lent(), nil)
		if err != nil || !got.Changed || s.lent().Record != "" {
			t.Errorf("%+v %v, and the record is %q", got, err, s.lent().Record)
		}
	})
}

func TestClearLeavesOthersAlone(t *testing.T) {
	s := newServer("")
	s.set(kube.KoordinatorResource, "12k")
	serve(t, s, func(t *testing.T, api *Server) {
		got, err := Clear(t.Context(), api, "n1", s.lent(), nil)
		if err != nil || got.Changed || s.count() != 0 {
			t.Errorf("%+v %v", got, err)
		}
		s.set(kube.BatchResource, "1k")
		s.breaks(forbid)
		if _, err := Clear(t.Context(), api, "n1", s.lent(), nil); !apierrors.IsForbidden(err) {
			t.Errorf("got %v, want forbidden", err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add(`{"at":"2026-11-21T12:00:00Z","offer":5000,"resources":["quietcore.dev/batch-cpu"]}`, int64(5000))
	f.Add(`{"at":"9999-12-31T23:59:59Z","resources":["kubernetes.io/batch-cpu","x"]}`, int64(-1))
	f.Add(`null`, int64(0))
	f.Fuzz(func(t *testing.T, text string, milli int64) {
		r, ok := parseRecord(text)
		if !ok {
			return
		}
		// Whatever another writer put there, the next patch is one.
		to := amounts{max(milli, absent), absent}
		patch, err := patchOf(to, [resources]bool{true, r.has(koordinator)}, record{At: r.At, Offer: r.Offer})
		if err != nil || !json.Valid(patch) {
			t.Fatalf("%s %v", patch, err)
		}
		n := applyTo(t, kube.LentNode{Own: kube.Amount{Capacity: 1, Allocatable: 2}}, patch)
		if have, torn := amountsIn(n); have[own] != to[own] || torn[own] {
			t.Fatalf("%s makes %v, want %v", patch, have, to)
		}
		if back, ok := parseRecord(n.Record); to[own] != absent && (!ok ||
			!back.At.Equal(r.At.Truncate(time.Second)) || !back.has(own)) {
			t.Fatalf("the record %q comes back as %+v", n.Record, back)
		}
	})
}
