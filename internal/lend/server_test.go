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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	ending  map[string]bool      // those of them that are terminating
	over    map[string]bool      // or have ended
	blocked map[string]string    // namespace/name -> what its budget says
	marks   map[string]Mark
	nobody  bool // no evictor answers marks
	fault   func(w http.ResponseWriter, r *http.Request) bool
	log     []string
	watch   func(kube.LentNode) // called at every change; may be nil
}

func newServer(own string) *apiServer {
	s := &apiServer{pods: map[string]types.UID{}, blocked: map[string]string{}, version: 100,
		ending: map[string]bool{}, over: map[string]bool{}, marks: map[string]Mark{}}
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
	case r.Method == http.MethodGet && len(parts) == 6 && parts[5] == "pods":
		s.look(w, parts[4]+"/"+strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="))
	case r.Method == http.MethodPatch && len(parts) == 8 && parts[7] == "status" &&
		r.Header.Get("Content-Type") == "application/strategic-merge-patch+json":
		s.mark(w, body, parts[4]+"/"+parts[6])
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
func (s *apiServer) count() int { return s.counted("") }

// written is how many of them were to write.
func (s *apiServer) written() int { return s.counted(http.MethodPatch) }

func (s *apiServer) counted(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, line := range s.log {
		if strings.HasPrefix(line, method) {
			n++
		}
	}
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

func (s *apiServer) look(w http.ResponseWriter, key string) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if uid, there := s.pods[key]; there {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if m, marked := s.marks[key]; marked {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: EvictionRequested,
				Status: statusOf(m.On), Reason: m.Reason, Message: m.Message,
				LastTransitionTime: metav1.NewTime(m.Since)})
		}
		if s.ending[key] {
			p.DeletionTimestamp = &metav1.Time{Time: start}
		}
		if s.over[key] {
			p.Status.Phase = corev1.PodFailed
		}
		list.Items = append(list.Items, p)
	}
	kubetest.Answer(w, http.StatusOK, list)
}

// mark writes a mark, which the evictor answers at once.
func (s *apiServer) mark(w http.ResponseWriter, body []byte, key string) {
	var p corev1.Pod
	err := json.Unmarshal(body, &p)
	gr := schema.GroupResource{Resource: "pods"}
	uid, there := s.pods[key]
	c := p.Status.Conditions
	switch {
	case err != nil || p.UID == "" || len(c) != 1 || c[0].LastTransitionTime.IsZero() || c[0].Reason == "":
		kubetest.Refuse(w, apierrors.NewBadRequest("these tests want one whole condition, and the pod's UID"))
		return
	case !there:
		kubetest.Refuse(w, apierrors.NewNotFound(gr, key))
		return
	case p.UID != uid:
		kubetest.Refuse(w, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, key, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), p.UID, "field is immutable")}))
		return
	}
	m := MarkIn(c)
	if before := s.marks[key]; before.On == m.On && !before.Since.Equal(m.Since) {
		kubetest.Refuse(w, apierrors.NewBadRequest("there is no transition, and its time changes"))
		return
	}
	s.marks[key] = m
	switch budget := s.blocked[key]; {
	case !m.On || s.nobody:
	case budget != "":
		m.Reason, m.Message = ReasonBudget, budget
		s.marks[key] = m
	default:
		s.ending[key] = true
	}
	kubetest.Answer(w, http.StatusOK, p)
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
