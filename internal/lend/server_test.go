package lend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kube/kubetest"
)

// apiServer has one Node and some pods.
type apiServer struct {
	mu      sync.Mutex
	node    corev1.Node
	version int
	pods    map[string]types.UID // namespace/name
	blocked map[string]string    // namespace/name -> what its budget says
	fault   func(w http.ResponseWriter, r *http.Request) bool
	log     []string
	watch   func(kube.LentNode) // called at every change; may be nil
}

func newServer(own string) *apiServer {
	s := &apiServer{pods: map[string]types.UID{}, blocked: map[string]string{}, version: 100}
	s.node = corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "100",
			Annotations: map[string]string{"example.com/theirs": "stays"}}}
	s.node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("16")}
	if own != "" {
		s.node.Status.Capacity[kube.BatchResource] = resource.MustParse(own)
	}
	s.node.Status.Allocatable = s.node.Status.Capacity.DeepCopy()
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.log = append(s.log, r.Method+" "+r.URL.Path)
	fault := s.fault
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	parts := strings.Split(r.URL.Path, "/")
	switch {
	case err != nil:
		kubetest.Refuse(w, apierrors.NewBadRequest(err.Error()))
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/n1/status" &&
		r.Header.Get("Content-Type") == "application/merge-patch+json":
		if s.node.Name == "" {
			kubetest.Refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "n1"))
			return
		}
		if err := merge(&s.node, body); err != nil {
			kubetest.Refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		s.changed()
		kubetest.Answer(w, http.StatusOK, s.node)
	case r.Method == http.MethodPost && len(parts) == 8 && parts[7] == "eviction":
		s.evict(w, body, parts[4]+"/"+parts[6])
	default:
		http.NotFound(w, r)
	}
}

// merge is RFC 7386 on the JSON of an object.
func merge(n *corev1.Node, patch []byte) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	var object, change map[string]any
	if err := errors.Join(json.Unmarshal(text, &object), json.Unmarshal(patch, &change)); err != nil {
		return err
	}
	var into func(to, from map[string]any)
	into = func(to, from map[string]any) {
		for k, v := range from {
			switch v := v.(type) {
			case nil:
				delete(to, k)
			case map[string]any:
				if _, ok := to[k].(map[string]any); !ok {
					to[k] = map[string]any{}
				}
				into(to[k].(map[string]any), v)
			default:
				to[k] = v
			}
		}
	}
	into(object, change)
	if text, err = json.Marshal(object); err != nil {
		return err
	}
	var next corev1.Node
	if err := json.Unmarshal(text, &next); err != nil {
		return err
	}
	*n = next
	return nil
}

// changed counts the Node's version up and notifies watchers. The lock is held.
func (s *apiServer) changed() {
	s.version++
	s.node.ResourceVersion = strconv.Itoa(s.version)
	if s.watch != nil {
		s.watch(s.lent())
	}
}

func (s *apiServer) lent() kube.LentNode {
	text, err := json.Marshal(s.node)
	if err != nil {
		panic(err)
	}
	n, err := kube.ParseLentNode(text)
	if err != nil {
		panic(err)
	}
	return n
}

// edit is a change of the Node by another writer.
func (s *apiServer) edit(change func(n *corev1.Node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.node)
	s.changed()
}

// set is another writer's value of a resource; "" removes it.
func (s *apiServer) set(name corev1.ResourceName, amount string) {
	s.edit(func(n *corev1.Node) {
		for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
			if amount == "" {
				delete(list, name)
			} else {
				list[name] = resource.MustParse(amount)
			}
		}
	})
}

func (s *apiServer) breaks(fault func(w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// count is how many requests there were, and forgets them.
func (s *apiServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.log)
	s.log = nil
	return n
}

// says are the amounts in the Node's capacity, "cap/alloc" where they differ.
func (s *apiServer) says(name corev1.ResourceName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := func(list corev1.ResourceList) string {
		q, ok := list[name]
		if !ok {
			return "-"
		}
		return strconv.FormatInt(q.Value(), 10)
	}
	c, a := text(s.node.Status.Capacity), text(s.node.Status.Allocatable)
	if c != a {
		return c + "/" + a
	}
	return c
}

func (s *apiServer) evict(w http.ResponseWriter, body []byte, key string) {
	var e policyv1.Eviction
	err := json.Unmarshal(body, &e)
	gr := schema.GroupResource{Resource: "pods"}
	uid, there := s.pods[key]
	switch {
	case err != nil || e.Namespace+"/"+e.Name != key || e.APIVersion != "policy/v1" || e.Kind != "Eviction":
		kubetest.Refuse(w, apierrors.NewBadRequest("the body does not fit the request"))
	case e.DeleteOptions == nil || e.DeleteOptions.Preconditions == nil || e.DeleteOptions.Preconditions.UID == nil:
		kubetest.Refuse(w, apierrors.NewBadRequest("these tests want the UID as a precondition"))
	case !there:
		kubetest.Refuse(w, apierrors.NewNotFound(gr, e.Name))
	case s.blocked[key] == "two":
		kubetest.Answer(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
			Kind: "Status"}, Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not " +
				"support."})
	case s.blocked[key] != "":
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: s.blocked[key]})
		w.Header().Set("Retry-After", "10")
		kubetest.Refuse(w, err)
	case *e.DeleteOptions.Preconditions.UID != uid:
		kubetest.Refuse(w, apierrors.NewConflict(gr, e.Name, errors.New("the UID in the precondition does not match")))
	default:
		delete(s.pods, key)
		kubetest.Answer(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
			Kind: "Status"}, Status: metav1.StatusSuccess, Code: 201})
	}
}

// serve gives a story a Server in fake time.
func serve(t *testing.T, s *apiServer, story func(t *testing.T, api *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config, stop := kubetest.Serve(s)
		api := NewServer(func() (*rest.Config, error) { return config, nil })
		story(t, api)
		stop()
		if c, err := api.api.Connect(); err == nil {
			c.Client.CloseIdleConnections()
		}
		synctest.Wait()
	})
}

// node is a publisher with its API server, in fake time.
type node struct {
	*Publisher
	s *apiServer

	mu      sync.Mutex
	pods    []kube.BatchPod
	unknown bool
	results map[string]int
	repairs map[string]int
}

func (n *node) bind(pods ...kube.BatchPod) {
	n.mu.Lock()
	n.pods = pods
	n.mu.Unlock()
	n.Changed()
}

func (n *node) repaired(cause string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.repairs[cause]
}

func (n *node) reported(result string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.results[result]
}

// expect compares what the Node says and the publisher's state.
func (n *node) expect(t *testing.T, own, koordinator, state string) {
	t.Helper()
	if o, k := n.s.says(kube.BatchResource), n.s.says(kube.KoordinatorResource); o != own || k != koordinator {
		t.Errorf("the Node says %s and Koordinator's %s, want %s and %s", o, k, own, koordinator)
	}
	got := n.State()
	if state == "" && got != "" || !strings.Contains(got, state) {
		t.Errorf("the state is %q, want %q", got, state)
	}
}

// play runs a publisher until the story ends. The watch is as quick as a call.
func play(t *testing.T, s *apiServer, o Options, story func(t *testing.T, n *node)) {
	t.Helper()
	serve(t, s, func(t *testing.T, api *Server) {
		n := &node{s: s, results: map[string]int{}, repairs: map[string]int{}}
		o.API, o.Node = api, "n1"
		o.Spread = func(d time.Duration) time.Duration { return d }
		o.Bound = func() ([]kube.BatchPod, bool) { n.mu.Lock(); defer n.mu.Unlock(); return n.pods, !n.unknown }
		o.Report = func(r string) { n.mu.Lock(); defer n.mu.Unlock(); n.results[r]++ }
		o.Repaired = func(c string) { n.mu.Lock(); defer n.mu.Unlock(); n.repairs[c]++ }
		n.Publisher = New(o)
		s.mu.Lock()
		s.watch = n.Observe
		n.Observe(s.lent())
		s.mu.Unlock()
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); n.Run(ctx) }()
		story(t, n)
		cancel()
		<-ran
		s.mu.Lock()
		s.watch = nil
		s.mu.Unlock()
	})
}

// after lets d pass and everything that follows from it happen.
func after(d time.Duration) {
	time.Sleep(d) // fake time
	synctest.Wait()
}

// keep repeats an offer for a while, as an estimator does.
func (n *node) keep(milli int64, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n.Offer(milli)
		after(min(time.Minute, time.Until(end)))
	}
}

func pod(i int, own, koordinator int64) kube.BatchPod {
	return kube.BatchPod{UID: fmt.Sprint("pod-", i), Namespace: "jobs", Name: fmt.Sprint("j-", i), Own: own,
		Koordinator: koordinator, Milli: max(own, koordinator)}
}
