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
)

// evictions is an evictor with its results.
type evictions struct {
	*Evictor
	s *apiServer

	mu      sync.Mutex
	results map[string]int
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
	return ok && !s.ending["jobs/"+name]
}

// marked is the mark of a pod.
func (s *apiServer) marked(name string) Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks["jobs/"+name]
}

func victim(name string) Pod { return Pod{UID: "uid-" + name, Namespace: "jobs", Name: name} }

func evicting(t *testing.T, s *apiServer, o EvictorOptions, story func(t *testing.T, e *evictions)) {
	t.Helper()
	serve(t, s, func(t *testing.T, api *Server) {
		e := &evictions{s: s, results: map[string]int{}}
		o.API, o.Reason = api, ReasonLending
		o.Report = func(r string) { e.mu.Lock(); defer e.mu.Unlock(); e.results[r]++ }
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
		began := time.Now()
		e.evict(t, victim("a"), Evicted, 0)
		if took := time.Since(began); s.runs("a") || took != firstLook {
			t.Errorf("a runs: %t, after %s", s.runs("a"), took)
		}
		want := Mark{On: true, Since: began, Reason: ReasonLending, Message: why}
		if got := s.marked("a"); !got.Since.Equal(began.Truncate(time.Second)) {
			t.Errorf("marked at %s, want %s", got.Since, began)
		} else if got.Since = began; got != want {
			t.Errorf("the mark is %+v, want %+v", got, want)
		}
		e.evict(t, victim("a"), Repeated, 0)
		e.evict(t, victim("b"), Evicted, 0)
		e.evict(t, victim("c"), Limited, DefaultEvictEvery-2*firstLook)
		after(DefaultEvictEvery)
		e.evict(t, victim("c"), Evicted, 0)
		if got := s.written(); got != 3 {
			t.Errorf("%d marks, want 3", got)
		}
		if diff := cmp.Diff(map[string]int{Evicted: 3, Repeated: 1, Limited: 1}, e.results); diff != "" {
			t.Error(diff)
		}
	})
}

// The pod that is named may be gone, and another have its name.
func TestEvictOnlyWhoIsMeant(t *testing.T) {
	s := newServer("")
	s.run("a", "b", "c", "d")
	s.pods["jobs/a"] = "another"
	s.ending["jobs/c"], s.over["jobs/d"] = true, true
	evicting(t, s, EvictorOptions{Burst: 9}, func(t *testing.T, e *evictions) {
		for _, name := range []string{"a", "nobody", "c", "d"} {
			e.evict(t, victim(name), Gone, 0)
			e.evict(t, victim(name), Repeated, 0)
		}
		e.evict(t, Pod{Namespace: "jobs", Name: "b"}, Failed, 0)
		if n := s.written(); n > 0 {
			t.Errorf("%d pods were marked that nobody meant", n)
		}
		// It goes between the look and the mark.
		s.breaks(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch {
				s.mu.Lock()
				s.pods["jobs/b"] = "another"
				s.mu.Unlock()
			}
			return false
		})
		e.evict(t, victim("b"), Gone, 0)
		if !s.runs("b") || s.marked("b").On {
			t.Error("another pod with the name of b is marked")
		}
	})
}

func TestEvictRespectsBudgets(t *testing.T) {
	s := newServer("")
	s.run("a", "b")
	s.block("a", "The disruption budget sort needs 2 healthy pods and has 2 currently")
	evicting(t, s, EvictorOptions{Burst: 10}, func(t *testing.T, e *evictions) {
		got := e.evict(t, victim("a"), Blocked, againAfter)
		if !strings.Contains(got.Error(), "budget sort needs 2 healthy pods") {
			t.Errorf("the error is %v", got)
		}
		if m := s.marked("a"); m.On || m.Reason != ReasonWithdrawn {
			t.Errorf("its mark is %+v", m)
		}
		e.evict(t, victim("a"), Limited, againAfter)
		e.evict(t, victim("b"), Evicted, 0) // another pod's turn all the same
		s.block("a", "")
		after(againAfter)
		e.evict(t, victim("a"), Evicted, 0)
	})
}

// A budget that never allows: the pod stays, and the API server is not flooded.
func TestBudgetThatNeverAllows(t *testing.T) {
	s := newServer("")
	s.run("a")
	s.block("a", "The disruption budget never allows")
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		for began := time.Now(); time.Since(began) < time.Hour; after(time.Second) {
			_ = e.Evict(t.Context(), victim("a"), why)
		}
		if got := s.count(); !s.runs("a") || got > 3600/30*4 {
			t.Errorf("%d requests in an hour, the pod runs %t", got, s.runs("a"))
		}
	})
}

// Nobody evicts what is marked: the mark is withdrawn, this pod and all others wait for a
// while, and the API server hears little.
func TestNobodyAnswers(t *testing.T) {
	s := newServer("")
	s.run("a", "b")
	s.nobody = true
	evicting(t, s, EvictorOptions{Burst: 10}, func(t *testing.T, e *evictions) {
		began := time.Now()
		e.evict(t, victim("a"), Unanswered, unansweredAfter)
		if took := time.Since(began); took < MarkFor || took > MarkFor+mostLook || s.marked("a").On {
			t.Errorf("after %s the mark is %+v", took, s.marked("a"))
		}
		if took := time.Since(began); took >= MarkMaxAge {
			t.Errorf("the evictor ignores marks after %s, and this one is withdrawn after %s", MarkMaxAge, took)
		}
		if n := s.count(); n > 16 {
			t.Errorf("%d requests", n)
		}
		e.evict(t, victim("a"), Limited, unansweredAfter)
		e.evict(t, victim("b"), Limited, unansweredAfter)
		s.mu.Lock()
		s.nobody = false
		s.mu.Unlock()
		after(unansweredAfter)
		e.evict(t, victim("b"), Evicted, 0)
		e.evict(t, victim("a"), Evicted, 0)
	})
}

// What becomes of a marked pod otherwise.
func TestWhatBecomesOfAMark(t *testing.T) {
	for _, c := range []struct {
		name, want string
		after      time.Duration
		change     func(s *apiServer)
	}{
		{"evicted late", Evicted, 0, func(s *apiServer) { s.ending["jobs/a"] = true }},
		{"evicted, and gone", Evicted, 0, func(s *apiServer) { delete(s.pods, "jobs/a") }},
		{"its containers end", Gone, 0, func(s *apiServer) { s.over["jobs/a"] = true }},
		{"another pod has its name", Evicted, 0, func(s *apiServer) { s.pods["jobs/a"] = "another" }},
		{"its mark is taken away", Failed, againAfter, func(s *apiServer) { delete(s.marks, "jobs/a") }},
		{"its mark is withdrawn", Failed, againAfter, func(s *apiServer) { s.marks["jobs/a"] = Mark{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer("")
			s.run("a")
			s.nobody = true
			evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
				time.AfterFunc(20*time.Second, func() { s.mu.Lock(); defer s.mu.Unlock(); c.change(s) })
				e.evict(t, victim("a"), c.want, c.after)
			})
		})
	}
}

// A daemon that was killed leaves a mark behind, which the next one does not take for its own.
func TestMarkOfADaemonThatWasKilled(t *testing.T) {
	s := newServer("")
	s.run("a")
	s.marks["jobs/a"] = Mark{On: true, Since: time.Unix(1, 0), Reason: ReasonLending}
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		now := time.Now()
		e.evict(t, victim("a"), Evicted, 0)
		if m := s.marked("a"); !m.Since.Equal(now.Truncate(time.Second)) || s.written() != 2 {
			t.Errorf("the mark is %+v", m)
		}
	})
}

func TestEvictFaults(t *testing.T) {
	for _, c := range []struct {
		name, result string
		after        time.Duration
		others       string // what becomes of another pod at once
		writes       int
		fault        func(w http.ResponseWriter, r *http.Request) bool
	}{
		{"forbidden", Forbidden, againAfter, Evicted, 1, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/status"}, "a",
				errors.New("RBAC")))
			return true
		}},
		{"too many requests of all", Limited, 40 * time.Second, Limited, 1, func(w http.ResponseWriter,
			_ *http.Request) bool {
			w.Header().Set("Retry-After", "40")
			kubetest.Refuse(w, apierrors.NewTooManyRequests("slow down", 40))
			return true
		}},
		{"an internal error", Failed, againAfter, Evicted, 1, func(w http.ResponseWriter, _ *http.Request) bool {
			kubetest.Refuse(w, apierrors.NewInternalError(errors.New("a webhook")))
			return true
		}},
		{"it hangs", TimedOut, againAfter, Evicted, 2, func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		}},
		{"the connection breaks", Failed, againAfter, Evicted, 2, func(http.ResponseWriter, *http.Request) bool {
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer("")
			s.run("a", "b")
			evicting(t, s, EvictorOptions{Burst: 10}, func(t *testing.T, e *evictions) {
				s.breaks(func(w http.ResponseWriter, r *http.Request) bool {
					return r.Method == http.MethodPatch && c.fault(w, r)
				})
				e.evict(t, victim("a"), c.result, c.after)
				if got := s.written(); got != c.writes { // where it may have arrived, it is withdrawn
					t.Errorf("%d writes, want %d", got, c.writes)
				}
				s.breaks(nil)
				e.evict(t, victim("a"), Limited, c.after)
				before := time.Now()
				e.evict(t, victim("b"), c.others, map[string]time.Duration{Limited: c.after}[c.others])
				after(c.after - time.Since(before))
				e.evict(t, victim("a"), Evicted, 0)
			})
		})
	}
	for _, answer := range []string{"<html>", `{"kind": "Status"}`} {
		s := newServer("")
		s.run("a")
		evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
			s.breaks(func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = io.WriteString(w, answer)
				return true
			})
			if e.evict(t, victim("a"), Failed, againAfter); s.written() > 0 {
				t.Errorf("%s: a pod was marked that nobody saw", answer)
			}
		})
	}
}

// The answer to a mark is lost, and it has arrived: it is withdrawn.
func TestALostAnswerIsWithdrawn(t *testing.T) {
	s := newServer("")
	s.run("a")
	s.nobody = true
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		lost := false
		s.breaks(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPatch || lost {
				return false
			}
			lost = true
			s.mu.Lock()
			s.marks["jobs/a"] = Mark{On: true}
			s.mu.Unlock()
			panic(http.ErrAbortHandler)
		})
		if e.evict(t, victim("a"), Failed, againAfter); s.marked("a").Reason != ReasonWithdrawn {
			t.Errorf("its mark is %+v", s.marked("a"))
		}
	})
}

// The daemon ends while a mark stands: it is withdrawn, and no result is reported.
func TestEvictEnds(t *testing.T) {
	s := newServer("")
	s.run("a")
	s.nobody = true
	evicting(t, s, EvictorOptions{}, func(t *testing.T, e *evictions) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := e.Evict(ctx, victim("a"), why); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if m := s.marked("a"); m.On || m.Reason != ReasonWithdrawn {
			t.Errorf("its mark is %+v", m)
		}
		if err := e.Evict(ctx, victim("a"), why); !errors.Is(err, context.Canceled) || len(e.results) != 0 {
			t.Errorf("got %v, results %v", err, e.results)
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
		if s.count() != 0 || !s.runs("a") {
			t.Error("observing asked the API server")
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

// lives is an API server whose pods are evicted, blocked or left alone as drawn, and which
// may refuse or lose a write.
type lives struct {
	pods   map[string]*Marked
	marks  int
	evicts bool
	err    error
	arrive bool // a write arrives although it fails
	t      *rapid.T
}

func (l *lives) Look(_ context.Context, p Pod) (Marked, error) {
	if m := l.pods[p.UID]; m != nil {
		if m.Mark.On && l.evicts {
			m.Ending = true
		}
		return *m, nil
	}
	return Marked{Gone: true}, nil
}

func (l *lives) Mark(_ context.Context, p Pod, m Mark) error {
	was := l.pods[p.UID]
	if was.Mark.On == m.On && was.Mark.Since != m.Since && m.On {
		l.t.Fatalf("%s was marked twice", p)
	}
	if m.On {
		l.marks++
	}
	if err := l.err; err != nil && m.On {
		if l.arrive {
			was.Mark = m
		}
		return err
	}
	was.Mark = m
	return nil
}

// TestEvictorLives: whatever the server answers and whoever evicts, no pod is marked after its
// end, or faster than the rate; at most one mark stands, and none when Evict has returned; and
// memory stays bounded.
func TestEvictorLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start
		passed := time.Duration(0)
		api := &lives{pods: map[string]*Marked{}, t: t}
		for i := range 6 {
			api.pods[fmt.Sprint("uid-", i)] = &Marked{}
		}
		e := NewEvictor(EvictorOptions{API: api, Now: func() time.Time { return now },
			pause: func(_ context.Context, d time.Duration) { now, passed = now.Add(d), passed+d }})
		t.Repeat(map[string]func(*rapid.T){
			"evict": func(t *rapid.T) {
				p := victim(fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "pod")))
				marks, ended := api.marks, api.pods[p.UID].Ending
				err := e.Evict(context.Background(), p, why)
				if ended && api.marks != marks {
					t.Fatalf("%s was marked, and had ended", p)
				}
				if err == nil && !api.pods[p.UID].Ending {
					t.Fatalf("%s counts as evicted, and runs", p)
				}
			},
			"time": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(-2, 40).Draw(t, "s")) * time.Second
				now, passed = now.Add(d), passed+max(d, 0)
			},
			"answer": func(t *rapid.T) {
				gr := schema.GroupResource{Resource: "pods"}
				api.evicts, api.arrive = rapid.Bool().Draw(t, "evicts"), rapid.Bool().Draw(t, "arrives")
				api.err = rapid.SampledFrom([]error{nil, errors.New("connection refused"), context.DeadlineExceeded,
					apierrors.NewServerTimeout(gr, "patch", 1)}).Draw(t, "error")
			},
			"": func(t *rapid.T) {
				if most := DefaultEvictBurst + int(passed/DefaultEvictEvery); api.marks > most {
					t.Fatalf("marked %d times within %s, want at most %d", api.marks, passed, most)
				}
				for uid, p := range api.pods {
					if p.Mark.On && !p.Ending {
						t.Fatalf("the mark of %s stands, and nobody waits for it", uid)
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

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"short", 10, "short"}, {"0123456789", 10, "0123456789"}, {"0123456789a", 10, "0123456…"},
		{"012345ü789", 10, "012345…"}, {"0123456ü89", 10, "0123456…"}, {"üabc", 4, "…"}, {"abcd", 3, "…"},
	} {
		if got := Clip(c.text, c.limit); got != c.want {
			t.Errorf("%q is cut to %q, want %q", c.text, got, c.want)
		}
	}
}
