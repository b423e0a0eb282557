package nrt

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"

	"github.com/quietcore/quietcore/internal/kube/kubetest"
)

// server is an API server that knows one kind. Who owns which field is decided by
// the API server's own code.
type server struct {
	mu      sync.Mutex
	served  []string
	objects map[string]*unstructured.Unstructured
	rv      int
	fault   func(w http.ResponseWriter, r *http.Request) bool // true: it answered
	log     []string                                          // method and path of every request
	fields  *managedfields.FieldManager
}

func newServer() *server {
	gvk := schema.GroupVersionKind{Group: group, Version: V1alpha2, Kind: kind}
	return &server{
		served: []string{V1alpha1, V1alpha2}, objects: map[string]*unstructured.Unstructured{},
		fields: managedfieldstest.NewFakeFieldManager(managedfields.NewDeducedTypeConverter(), gvk),
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, r.Method+" "+r.URL.Path)
	fault := s.fault
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, groupURL)
	switch parts := strings.Split(path, "/"); {
	case len(s.served) == 0:
		http.NotFound(w, r)
	case path == "":
		g := metav1.APIGroup{Name: group}
		for _, v := range s.served {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: group + "/" + v, Version: v})
		}
		kubetest.Answer(w, http.StatusOK, g)
	case len(parts) != 4 || parts[2] != plural || !contains(s.served, parts[1]):
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		o := s.objects[parts[3]]
		if o == nil {
			kubetest.Refuse(w, apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: plural}, parts[3]))
			return
		}
		kubetest.Answer(w, http.StatusOK, o)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		s.apply(w, r, parts[1], parts[3])
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *server) apply(w http.ResponseWriter, r *http.Request, version, name string) {
	text, err := io.ReadAll(r.Body)
	applied := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(text, &applied.Object)
	}
	if err != nil || applied.GetAPIVersion() != group+"/"+version || applied.GetName() != name {
		kubetest.Refuse(w, apierrors.NewBadRequest("the body does not fit the request"))
		return
	}
	if _, found := applied.Object["attributes"]; found && version == V1alpha1 {
		kubetest.Refuse(w, apierrors.NewBadRequest(".attributes: field not declared in schema"))
		return
	}
	applied.SetAPIVersion(group + "/" + V1alpha2) // as it is stored
	live := s.objects[name]
	if live == nil {
		live = &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/" + V1alpha2, "kind": kind,
			"metadata": map[string]any{"name": name}}}
	}
	o, err := s.fields.Apply(live, applied, r.URL.Query().Get("fieldManager"), r.URL.Query().Get("force") == "true")
	if err != nil {
		kubetest.Refuse(w, err)
		return
	}
	kubetest.Answer(w, http.StatusOK, s.store(name, o.(*unstructured.Unstructured)))
}

func (s *server) store(name string, o *unstructured.Unstructured) *unstructured.Unstructured {
	if was := s.objects[name]; was == nil || !sameButVersion(was, o) {
		s.rv++
		o.SetResourceVersion(jsonOf(s.rv))
		s.objects[name] = o
	}
	return s.objects[name]
}

func sameButVersion(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, o := range []*unstructured.Unstructured{a, b} {
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
	}
	return jsonOf(a) == jsonOf(b)
}

// edit is another client's update.
func (s *server) edit(name, manager string, change func(o map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.objects[name]
	if live == nil {
		live = &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/" + V1alpha2, "kind": kind,
			"metadata": map[string]any{"name": name}}}
	}
	next := live.DeepCopy()
	change(next.Object)
	o, err := s.fields.Update(live, next, manager)
	if err != nil {
		panic(err)
	}
	s.store(name, o.(*unstructured.Unstructured))
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
}

func (s *server) serve(versions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = versions
}

func (s *server) breaks(fault func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// count is how many requests of a method were made, and forgets them.
func (s *server) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.log {
		if strings.HasPrefix(l, method+" ") {
			n++
		}
	}
	s.log = nil
	return n
}

func (s *server) object(t *testing.T, name string) *v1alpha2.NodeResourceTopology {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[name] == nil {
		return nil
	}
	o, err := decode([]byte(jsonOf(s.objects[name])), nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func contains(list []string, v string) bool {
	for _, s := range list {
		if s == v {
			return true
		}
	}
	return false
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// node is a publisher with its API server, in fake time.
type node struct {
	*Publisher
	s       *server
	mu      sync.Mutex
	now     *v1alpha2.NodeResourceTopology
	results map[string]int
	good    time.Time
}

// set says what the node looks like now, and that it changed.
func (n *node) set(o *v1alpha2.NodeResourceTopology) {
	n.mu.Lock()
	n.now = o
	n.mu.Unlock()
	n.Changed()
}

// play runs a publisher against a server in fake time.
func play(t *testing.T, s *server, story func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config, stop := kubetest.Serve(s)
		api, err := NewAPI(config)
		if err != nil {
			t.Fatal(err)
		}
		n := &node{s: s, results: map[string]int{}}
		n.Publisher = New(Options{
			API: api, Log: slog.New(slog.DiscardHandler), Spread: func(d time.Duration) time.Duration { return d },
			Source: func() *v1alpha2.NodeResourceTopology { n.mu.Lock(); defer n.mu.Unlock(); return n.now },
			Report: func(r string) { n.mu.Lock(); defer n.mu.Unlock(); n.results[r]++ },
			Published: func(at time.Time) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.good = at
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); n.Run(ctx) }()
		story(t, n)
		cancel()
		<-ran
		stop()
		api.(*client).rest.Client.CloseIdleConnections()
		synctest.Wait()
	})
}

// after lets d pass and everything that follows from it happen.
func after(d time.Duration) {
	time.Sleep(d) // fake time
	synctest.Wait()
}
