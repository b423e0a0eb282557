package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/quietcore/quietcore/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nodeName = "worker-1"

// apiServer speaks as much of the API as the client uses, and can be broken.
type apiServer struct {
	t       *testing.T
	address string

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	server   *http.Server
	served   sync.WaitGroup
	version  int
	oldest   int // watches from before it are gone
	pods     map[string]corev1.Pod
	nodes    map[string]corev1.Node
	log      []change
	events   map[string]eventsv1.Event
	requests []string // "GET pods", "WATCH pods", "POST events", ...
	fault    func(verb, resource string, w http.ResponseWriter) bool
	denies   func(path string, w http.ResponseWriter) bool // like fault, by path
}

type change struct {
	version        int
	resource, kind string
	object         any
}

// newServer makes a server that is not up yet.
func newServer(t *testing.T) *apiServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := &apiServer{t: t, address: l.Addr().String(), changed: make(chan struct{}), version: 1,
		pods: map[string]corev1.Pod{}, nodes: map[string]corev1.Node{}, events: map[string]eventsv1.Event{}}
	t.Cleanup(s.down)
	return s
}

func upServer(t *testing.T) *apiServer {
	s := newServer(t)
	s.up()
	return s
}

func (s *apiServer) up() {
	s.t.Helper()
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(s.serve)}
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	s.served.Go(func() { _ = server.Serve(l) })
}

// down cuts every connection.
func (s *apiServer) down() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Close()
		s.served.Wait()
	}
}

// breaks installs a fault: it says whether it has answered.
func (s *apiServer) breaks(fault func(verb, resource string, w http.ResponseWriter) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *apiServer) change(kind, resource string, object any) {
	s.log = append(s.log, change{s.version, resource, kind, object})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) putPod(p corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	kind := "ADDED"
	if _, ok := s.pods[p.Namespace+"/"+p.Name]; ok {
		kind = "MODIFIED"
	}
	s.pods[p.Namespace+"/"+p.Name] = p
	s.change(kind, "pods", p)
}

func (s *apiServer) deletePod(p corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	delete(s.pods, p.Namespace+"/"+p.Name)
	s.change("DELETED", "pods", p)
}

func (s *apiServer) putNode(labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid", Labels: labels,
		ResourceVersion: strconv.Itoa(s.version)}}
	kind := "ADDED"
	if _, ok := s.nodes[n.Name]; ok {
		kind = "MODIFIED"
	}
	s.nodes[n.Name] = n
	s.change(kind, "nodes", n)
}

func (s *apiServer) deleteNode() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[nodeName]
	s.version++
	n.ResourceVersion = strconv.Itoa(s.version)
	delete(s.nodes, nodeName)
	s.change("DELETED", "nodes", n)
}

// compact forgets history and ends every watch, so that the next one is Gone.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest = s.version
	s.log = nil
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if r == request {
			n++
		}
	}
	return n
}

func (s *apiServer) written() []eventsv1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []eventsv1.Event
	for _, e := range s.events {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b eventsv1.Event) int { return strings.Compare(a.Note, b.Note) })
	return list
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	if got, want := r.UserAgent(), "quietcore/v9"; got != want {
		s.t.Errorf("user agent %q, want %q", got, want)
	}
	q := r.URL.Query()
	resource := "events"
	if strings.HasPrefix(r.URL.Path, "/api/v1/") {
		resource = strings.TrimPrefix(r.URL.Path, "/api/v1/")
	}
	verb := r.Method
	if q.Get("watch") == "true" {
		verb = "WATCH"
	}
	s.mu.Lock()
	s.requests = append(s.requests, verb+" "+resource)
	fault, denies := s.fault, s.denies
	s.mu.Unlock()
	if fault != nil && fault(verb, resource, w) || denies != nil && denies(r.URL.Path, w) {
		return
	}
	switch {
	case resource == "events":
		s.serveEvents(w, r)
	case verb == "WATCH":
		s.serveWatch(w, r, resource, q)
	default:
		s.serveList(w, resource, q)
	}
}

func (s *apiServer) serveList(w http.ResponseWriter, resource string, q url.Values) {
	s.mu.Lock()
	list := map[string]any{"apiVersion": "v1", "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}}
	items := []any{}
	switch resource {
	case "pods":
		list["kind"] = "PodList"
		if got, want := q.Get("fieldSelector"), "spec.nodeName="+nodeName; got != want {
			s.t.Errorf("pods are listed with the field selector %q, want %q", got, want)
		}
		for _, p := range s.pods {
			items = append(items, p)
		}
	case "nodes":
		list["kind"] = "NodeList"
		for _, n := range s.nodes {
			if q.Get("fieldSelector") == "metadata.name="+n.Name {
				items = append(items, n)
			}
		}
	}
	list["items"] = items
	s.mu.Unlock()
	answer(w, http.StatusOK, list)
}

func (s *apiServer) serveWatch(w http.ResponseWriter, r *http.Request, resource string, q url.Values) {
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	for {
		s.mu.Lock()
		if from < s.oldest {
			s.mu.Unlock()
			frameTo(w, "ERROR", status(http.StatusGone, "Expired", "too old resource version"))
			return
		}
		for _, c := range s.log {
			if c.version > from && c.resource == resource {
				frameTo(w, c.kind, c.object)
			}
		}
		from = s.version
		changed := s.changed
		s.mu.Unlock()
		flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func frameTo(w io.Writer, kind string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
}

// serveEvents is as strict about a new Event as the API server is.
func (s *apiServer) serveEvents(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/"), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPatch {
		e, ok := s.events[path[0]+"/"+path[2]]
		if !ok {
			answer(w, http.StatusNotFound, status(http.StatusNotFound, "NotFound", "no such event"))
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Series == nil || e.Series.Count < 2 {
			answer(w, http.StatusUnprocessableEntity, status(422, "Invalid", fmt.Sprint("bad patch: ", err)))
			return
		}
		s.events[path[0]+"/"+path[2]] = e
		answer(w, http.StatusOK, e)
		return
	}
	var e eventsv1.Event
	err := json.NewDecoder(r.Body).Decode(&e)
	key := e.Namespace + "/" + e.Name
	_, there := s.events[key]
	switch {
	case err != nil, len(e.Note) > 1024, e.Reason == "", e.Action == "", e.EventTime.IsZero(),
		len(e.ReportingInstance) > 128, e.ReportingInstance == "", len(e.Name) > 253,
		e.ReportingController == "", e.Type != "Normal" && e.Type != "Warning", e.Series != nil && e.Series.Count < 2,
		e.Namespace != path[0],
		e.Regarding.Kind == "Node" && e.Namespace != "default":
		s.t.Errorf("the Event %+v is not valid: %v", e, err)
		answer(w, http.StatusUnprocessableEntity, status(422, "Invalid", "invalid event"))
	case there:
		answer(w, http.StatusConflict, status(409, "AlreadyExists", "it is there"))
	default:
		s.events[key] = e
		answer(w, http.StatusCreated, e)
	}
}

func status(code int, reason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure",
		Code: int32(code), Reason: metav1.StatusReason(reason), Message: message}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// fixture is a client of a server, with what it reported.
type fixture struct {
	*Client
	t      *testing.T
	clock  *clock
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	facts   []policy.PodFacts
	labels  []map[string]string
	reports map[string]int
	lines   []string
}

// clock is time that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (s *apiServer) kubeconfig() string {
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: secret}}]
current-context: c
`, s.address)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// client makes a client with short pauses that does not run yet.
func (s *apiServer) client() *fixture {
	s.t.Helper()
	f := &fixture{t: s.t, clock: newClock(), reports: map[string]int{}}
	c, err := New(Options{
		Kubeconfig: s.kubeconfig(), Node: nodeName, Version: "v9", Now: f.clock.now, Log: slog.New(lineHandler{f}),
		Report: func(what, result string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.reports[what+" "+result]++
		},
		OnFacts: func(_ context.Context, p policy.PodFacts) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.facts = append(f.facts, p)
		},
		OnLabels: func(_ context.Context, l map[string]string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.labels = append(f.labels, l)
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	c.backoff = wait.Backoff{Duration: time.Millisecond, Factor: 2, Jitter: 1, Steps: 4, Cap: 10 * time.Millisecond}
	c.after = func(time.Duration) <-chan time.Time { return time.After(time.Millisecond) }
	c.qps = 1000
	f.Client = c
	return f
}

func (s *apiServer) run() *fixture {
	s.t.Helper()
	f := s.client()
	f.start()
	return f
}

func (f *fixture) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan struct{})
	go func() { defer close(f.done); f.Run(ctx) }()
	f.t.Cleanup(f.stop)
}

// stop ends the client; it has seconds, whatever state it is in.
func (f *fixture) stop() {
	f.cancel()
	select {
	case <-f.done:
	case <-time.After(10 * time.Second):
		f.t.Error("the client does not end")
	}
}

// within waits until something is so.
func (f *fixture) within(what string, so func() bool) {
	f.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			f.t.Fatalf("not so after a minute: %s; state %q, reports %v, log %q", what, f.State(), f.reported(),
				f.logged())
		}
	}
}

func (f *fixture) reported() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := map[string]int{}
	for k, v := range f.reports {
		m[k] = v
	}
	return m
}

func (f *fixture) logged() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

func (f *fixture) factsOf(uid string) []policy.PodFacts {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []policy.PodFacts
	for _, p := range f.facts {
		if p.UID == uid {
			list = append(list, p)
		}
	}
	return list
}

func (f *fixture) labelled() []map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.labels)
}

func (f *fixture) knows(uid string) func() bool {
	return func() bool { _, ok := f.Facts(uid); return ok }
}

// lineHandler keeps what is logged.
type lineHandler struct{ f *fixture }

func (lineHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h lineHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h lineHandler) WithGroup(string) slog.Handler          { return h }
func (h lineHandler) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%v", a.Key, a.Value); return true })
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.f.lines = append(h.f.lines, line)
	return nil
}
