package lend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/kube/kubetest"
	"github.com/quietcore/quietcore/policy"
)

// evictions is an evictor with the notices that it sent.
type evictions struct {
	*Evictor
	s *apiServer

	mu      sync.Mutex
	results map[string]int
	notices []policy.Notice
}

func (s *apiServer) run(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		s.pods["jobs/"+n] = types.UID("uid-" + n)
	}
}

func (s *apiServer) block(name, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked["jobs/"+name] = why
}

func (s *apiServer) runs(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.pods["jobs/"+name]
	return ok
}

func victim(name string) Pod { return Pod{UID: "uid-" + name, Namespace: "jobs", Name: name} }

func evicting(t *testing.T, s *apiServer, o EvictorOptions, story func(t *testing.T, e *evictions)) {
	t.Helper()
	serve(t, s, func(t *testing.T, api *Server) {
		e := &evictions{s: s, results: map[string]int{}}
		o.API = api
		o.Report = func(r string) { e.mu.Lock(); defer e.mu.Unlock(); e.results[r]++ }
		o.Notify = func(n policy.Notice) { e.mu.Lock(); defer e.mu.Unlock(); e.notices = append(e.notices, n) }
		e.Evictor = NewEvictor(o)
		story(t, e)
	})
}

const why = "batch pods need 8.00 CPUs and 6.00 exist for them"

// evict expects a result, and after how long another attempt makes sense.
func (e *evictions) evict(t *testing.T, p Pod, want string, after time.Duration) *EvictError {
	t.Helper()
	err := e.Evict(t.Context(), p, why)
	if want == Evicted || want == Observed {
		if err != nil {
			t.Errorf("evict %s: %v", p, err)
		}
		return nil
	}
	var failed *EvictError
	if !errors.As(err, &failed) {
		t.Fatalf("evict %s: %v, want %s", p, err, want)
	}
	if failed.Result != want || failed.After != after || failed.Pod != p {
		t.Errorf("evict %s: %s, again after %s (%v), want %s and %s", p, failed.Result, failed.After, err, want, after)
	}
	return failed
}

func TestEvict(t *testing.T) {
	s := newServer("")
	s.run("a", "b", "c", "d")
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		e.evict(t, victim("a"), Evicted, 0)
		if s.runs("a") {
			t.Error("a still runs")
		}
		e.evict(t, victim("a"), Repeated, 0)
		e.evict(t, victim("b"), Evicted, 0)
		e.evict(t, victim("c"), Limited, DefaultEvictEvery)
		after(DefaultEvictEvery)
		e.evict(t, victim("c"), Evicted, 0)
		e.evict(t, victim("d"), Limited, DefaultEvictEvery)
		if got := s.count(); got != 3 {
			t.Errorf("%d requests, want 3", got)
		}
		if diff := cmp.Diff(map[string]int{Evicted: 3, Repeated: 1, Limited: 2}, e.results); diff != "" {
			t.Error(diff)
		}
		want := policy.Notice{Pod: policy.PodRef{UID: "uid-a", Namespace: "jobs", Name: "a"}, Reason: ReasonEvicted,
			Message: "evicted " + why}
		if diff := cmp.Diff(want, e.notices[0]); diff != "" || len(e.notices) != 3 {
			t.Errorf("%d notices: %s", len(e.notices), diff)
		}
	})
}

// The pod that is named may be gone, and another have its name.
func TestEvictOnlyWhoIsMeant(t *testing.T) {
	s := newServer("")
	s.run("a", "b")
	s.pods["jobs/a"] = "another"
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		e.evict(t, victim("a"), Gone, 0)
		if !s.runs("a") {
			t.Error("another pod with the name of a is gone")
		}
		after(time.Minute)
		e.evict(t, victim("nobody"), Gone, 0)
		e.evict(t, victim("nobody"), Repeated, 0)
		e.evict(t, Pod{Namespace: "jobs", Name: "b"}, Failed, 0)
		if !s.runs("b") {
			t.Error("a pod was evicted without its UID")
		}
	})
}

func TestEvictRespectsBudgets(t *testing.T) {
	s := newServer("")
	s.run("a", "b", "c")
	s.block("a", "The disruption budget sort needs 2 healthy pods and has 2 currently")
	s.block("c", "two")
	evicting(t, s, EvictorOptions{Burst: 10}, func(t *testing.T, e *evictions) {
		got := e.evict(t, victim("a"), Blocked, 10*time.Second) // the server's Retry-After
		if !strings.Contains(got.Error(), "budget sort needs 2 healthy pods") || !apierrors.IsTooManyRequests(got) {
			t.Errorf("the error is %v", got)
		}
		if s.count() != 1 {
			t.Error("a refusal was tried again at once")
		}
		e.evict(t, victim("a"), Limited, 10*time.Second)
		e.evict(t, victim("b"), Evicted, 0) // another pod's turn all the same
		e.evict(t, victim("c"), Blocked, againAfter)
		s.block("a", "")
		after(10 * time.Second)
		e.evict(t, victim("a"), Evicted, 0)
		if e.notices[0].Reason != ReasonBlocked || !strings.Contains(e.notices[0].Message, "budget sort") {
			t.Errorf("the first notice is %+v", e.notices[0])
		}
	})
}

// A budget that never allows: the pod stays, and the API server is not flooded.
func TestBudgetThatNeverAllows(t *testing.T) {
	s := newServer("")
	s.run("a")
	s.block("a", "The disruption budget never allows")
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		for range 3600 {
			_ = e.Evict(t.Context(), victim("a"), why)
			after(time.Second)
		}
		if got := s.count(); !s.runs("a") || got > 3600/10+1 {
			t.Errorf("%d requests in an hour, the pod runs %t", got, s.runs("a"))
		}
	})
}

func TestEvictFaults(t *testing.T) {
	for _, c := range []struct {
		name, result string
		after        time.Duration
		others       string // what becomes of another pod at once
		fault        func(w http.ResponseWriter, r *http.Request) bool
	}{
		{"forbidden", Forbidden, againAfter, Evicted, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "a",
				errors.New("RBAC")))
			return true
		}},
		{"a broken budget", Blocked, againAfter, Evicted, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewForbidden(schema.GroupResource{Group: "policy",
				Resource: "poddisruptionbudget"}, "sort", errors.New("pdb disruptions allowed is negative")))
			return true
		}},
		{"too many requests of all", Limited, 40 * time.Second, Limited, func(w http.ResponseWriter,
			_ *http.Request) bool {
			w.Header().Set("Retry-After", "40")
			kubetest.Refuse(w, apierrors.NewTooManyRequests("slow down", 40))
			return true
		}},
		{"an internal error", Failed, againAfter, Evicted, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewInternalError(errors.New("a webhook")))
			return true
		}},
		{"it hangs", TimedOut, againAfter, Evicted, func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		}},
		{"the connection breaks", Failed, againAfter, Evicted, func(http.ResponseWriter, *http.Request) bool {
			panic(http.ErrAbortHandler)
		}},
		{"an answer that is none", Failed, againAfter, Evicted, func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = io.WriteString(w, "<html>")
			return true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer("")
			s.run("a", "b")
			evicting(t, s, EvictorOptions{Burst: 10}, func(t *testing.T, e *evictions) {
				s.breaks(c.fault)
				e.evict(t, victim("a"), c.result, c.after)
				if got := s.count(); got != 1 {
					t.Errorf("%d requests, want 1", got)
				}
				s.breaks(nil)
				e.evict(t, victim("a"), Limited, c.after)
				e.evict(t, victim("b"), c.others, map[string]time.Duration{Limited: c.after}[c.others])
				after(c.after)
				e.evict(t, victim("a"), Evicted, 0)
			})
		})
	}
}

// The daemon ends while a request is under way: no result is reported.
func TestEvictEnds(t *testing.T) {
	s := newServer("")
	s.run("a")
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		s.breaks(func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := e.Evict(ctx, victim("a"), why); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := e.Evict(ctx, victim("a"), why); !errors.Is(err, context.Canceled) || len(e.results) != 0 ||
			len(e.notices) != 0 {
			t.Errorf("got %v, results %v, notices %v", err, e.results, e.notices)
		}
	})
}

func TestEvictObserves(t *testing.T) {
	s := newServer("")
	s.run("a", "b")
	evicting(t, s, EvictorOptions{Observe: true, Burst: 1}, func(t *testing.T, e *evictions) {
		e.evict(t, victim("a"), Observed, 0)
		e.evict(t, victim("a"), Repeated, 0)
		e.evict(t, victim("b"), Limited, DefaultEvictEvery) // as it would be
		if s.count() != 0 || !s.runs("a") || len(e.notices) != 0 {
			t.Errorf("observing asked the API server, or sent notices: %v", e.notices)
		}
	})
	e := NewEvictor(EvictorOptions{Observe: true}) // and needs no API server
	if err := e.Evict(t.Context(), victim("a"), why); err != nil {
		t.Error(err)
	}
}

func TestEvictWithoutServer(t *testing.T) {
	e := NewEvictor(EvictorOptions{})
	var failed *EvictError
	if err := e.Evict(t.Context(), victim("a"), why); !errors.As(err, &failed) || failed.Result != Absent {
		t.Errorf("got %v, want %s", err, Absent)
	}
}

// TestEvictorLives: whatever the server answers, no pod is evicted twice, none that
// was not named, never faster than the rate, and memory stays bounded.
func TestEvictorLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start
		requested, passed := 0, time.Duration(0)
		kills := map[string]int{}
		var next error
		api := evicterFunc(func(_ context.Context, p Pod) error {
			requested++
			if next == nil {
				kills[p.UID]++
			}
			return next
		})
		e := NewEvictor(EvictorOptions{API: api, Now: func() time.Time { return now }})
		t.Repeat(map[string]func(*rapid.T){
			"evict": func(t *rapid.T) {
				_ = e.Evict(context.Background(), victim(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "pod"))), why)
			},
			"time": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(-2, 40).Draw(t, "s")) * time.Second
				now, passed = now.Add(d), passed+max(d, 0)
			},
			"answer": func(t *rapid.T) {
				gr := schema.GroupResource{Resource: "pods"}
				next = rapid.SampledFrom([]error{nil, errors.New("connection refused"), context.DeadlineExceeded,
					apierrors.NewNotFound(gr, "p"),
					apierrors.NewConflict(gr, "p", errors.New("UID")),
					apierrors.NewTooManyRequests("slow", 7)}).Draw(t, "error")
			},
			"": func(t *rapid.T) {
				if most := DefaultEvictBurst + int(passed/DefaultEvictEvery); requested > most {
					t.Fatalf("asked %d times within %s, want at most %d", requested, passed, most)
				}
				for uid, n := range kills {
					if n > 1 {
						t.Fatalf("%s was evicted %d times", uid, n)
					}
				}
			},
		})
	})
	a := requested{byUID: map[string]attempt{}}
	for i := range 2 * maxAsked {
		a.put(fmt.Sprint(i), attempt{at: start.Add(time.Duration(i))})
	}
	if _, last := a.byUID[fmt.Sprint(2*maxAsked-1)]; len(a.byUID) != maxAsked || !last {
		t.Errorf("%d pods are remembered, want %d", len(a.byUID), maxAsked)
	}
}

type evicterFunc func(context.Context, Pod) error

func (f evicterFunc) Evict(ctx context.Context, p Pod) error { return f(ctx, p) }
