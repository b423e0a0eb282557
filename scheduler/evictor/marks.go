package evictor

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/policy"
)

// mark is a pod whose eviction is asked for. Its fields do not change but until, told and
// limited, which are the worker's that has its node.
type mark struct {
	lend.Mark
	pod     lend.Pod
	node    string
	refused string // why it is never evicted

	until   time.Time // it is left alone
	told    string    // of a budget
	limited bool      // it is counted as waiting for its node's rate
}

// marks are the marked pods of a cluster: the store of a reflector. Of all other pods
// nothing is kept.
type marks struct {
	changed func(node string)

	mu    sync.Mutex
	nodes map[string]map[types.UID]*mark
	where map[types.UID]string // the node of a marked pod
}

func newMarks(changed func(node string)) *marks {
	return &marks{changed: changed, nodes: map[string]map[types.UID]*mark{}, where: map[types.UID]string{}}
}

// markOf is nil for a pod that nobody wants evicted.
func markOf(p *v1.Pod) *mark {
	m := lend.MarkIn(p.Status.Conditions)
	if !m.On || p.DeletionTimestamp != nil || p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded ||
		p.Status.Phase == v1.PodFailed {
		return nil
	}
	return &mark{Mark: m, node: p.Spec.NodeName, refused: notBestEffort(p),
		pod: lend.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}}
}

// notBestEffort says why a pod may not be evicted for others' sake: it is neither best
// effort nor lets itself be capped. A daemon asks for no such pod.
func notBestEffort(p *v1.Pod) string {
	one := kube.PodOf(p)
	wish, _ := policy.ReadWish(&one) // what cannot be read of it is no claim
	switch {
	case wish.Class == policy.BE, one.QoS == policy.BestEffort && wish.Class != policy.LSE && wish.Class != policy.LSR,
		wish.AllowsCaps():
		return ""
	}
	return "it is not best effort"
}

func (s *marks) put(p *v1.Pod) {
	next := markOf(p)
	if next == nil {
		s.drop(p.UID)
		return
	}
	s.mu.Lock()
	was := s.nodes[next.node][p.UID]
	if was != nil && was.Since.Equal(next.Since) { // what was tried of it counts on
		s.mu.Unlock()
		return
	}
	if s.nodes[next.node] == nil {
		s.nodes[next.node] = map[types.UID]*mark{}
	}
	s.nodes[next.node][p.UID] = next
	s.where[p.UID] = next.node
	s.mu.Unlock()
	s.changed(next.node)
}

func (s *marks) drop(uid types.UID) {
	s.mu.Lock()
	node, marked := s.where[uid]
	if marked {
		delete(s.where, uid)
		delete(s.nodes[node], uid)
		if len(s.nodes[node]) == 0 {
			delete(s.nodes, node)
		}
	}
	s.mu.Unlock()
	if marked {
		s.changed(node)
	}
}

// of lists the marks of a node: those that were not tried first, and the oldest of them.
func (s *marks) of(node string) []*mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*mark
	for _, m := range s.nodes[node] {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *mark) int {
		return cmp.Or(a.until.Compare(b.until), a.Since.Compare(b.Since), strings.Compare(a.pod.UID, b.pod.UID))
	})
	return list
}

// has says whether a mark still stands.
func (s *marks) has(m *mark) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[m.node][types.UID(m.pod.UID)] == m
}

// Add, Update, Delete, Replace and Resync implement cache.ReflectorStore.
func (s *marks) Add(o any) error {
	if p, ok := o.(*v1.Pod); ok {
		s.put(p)
	}
	return nil
}

// Update is one of the methods of cache.ReflectorStore.
func (s *marks) Update(o any) error { return s.Add(o) }

// Delete is one of them, too.
func (s *marks) Delete(o any) error {
	if p, ok := o.(*v1.Pod); ok {
		s.drop(p.UID)
	}
	return nil
}

// Replace is one of them, too.
func (s *marks) Replace(list []any, _ string) error {
	there := map[types.UID]bool{}
	for _, o := range list {
		if p, ok := o.(*v1.Pod); ok {
			there[p.UID] = true
			s.put(p)
		}
	}
	s.mu.Lock()
	var gone []types.UID
	for uid := range s.where {
		if !there[uid] {
			gone = append(gone, uid)
		}
	}
	s.mu.Unlock()
	for _, uid := range gone {
		s.drop(uid)
	}
	return nil
}

// Resync is one of them, too.
func (s *marks) Resync() error { return nil }

// Transformer keeps a list of all pods of a cluster small.
func (s *marks) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		p, ok := o.(*v1.Pod)
		if !ok || markOf(p) != nil {
			return o, nil
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name,
			UID: p.UID, ResourceVersion: p.ResourceVersion}}, nil
	}
}
