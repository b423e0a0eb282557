package kube

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func batchPod(name, resourceName, amount string) corev1.Pod {
	p := testPod(name, "0")
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceName(resourceName): resource.MustParse(amount)}
	return p
}

func lentNode(own, record string) corev1.Node {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	if own != "" {
		list[BatchResource] = resource.MustParse(own)
	}
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node-uid"},
		Status: corev1.NodeStatus{Capacity: list, Allocatable: list}}
	if record != "" {
		n.Annotations = map[string]string{AnnLending: record}
	}
	return n
}

func (s *apiServer) setNode(n corev1.Node) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	n.ResourceVersion = strconv.Itoa(s.version)
	kind := "MODIFIED"
	if _, ok := s.nodes[n.Name]; !ok {
		kind = "ADDED"
	}
	s.nodes[n.Name] = n
	s.change(kind, "nodes", n)
	return n.ResourceVersion
}

// lentReports collects what is reported of the Node and of batch pods.
type lentReports struct {
	mu    sync.Mutex
	nodes []LentNode
	batch int
}

func (l *lentReports) last() LentNode {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.nodes) == 0 {
		return LentNode{}
	}
	return l.nodes[len(l.nodes)-1]
}

func (l *lentReports) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batch
}

func (s *apiServer) lending() (*fixture, *lentReports) {
	f, l := s.client(), &lentReports{}
	f.node.lent = func(n LentNode) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.nodes = append(l.nodes, n)
	}
	f.pods.batch.changed = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.batch++
	}
	return f, l
}

func TestBatchPodsAreFollowed(t *testing.T) {
	s := upServer(t)
	s.putPod(testPod("web", "2"))
	s.putPod(batchPod("a", BatchResource, "1500"))
	f, l := s.lending()
	if pods, known := f.Batch(); known || pods != nil {
		t.Errorf("before anything was listed: %v, known %t", pods, known)
	}
	f.start()
	f.within("a batch pod is known", func() bool { _, known := f.Batch(); return known })
	want := []BatchPod{{UID: "uid-a", Namespace: "shop", Name: "a", Milli: 1500, Own: 1500}}
	expect := func(what string) {
		t.Helper()
		f.within(what, func() bool { pods, _ := f.Batch(); return cmp.Equal(pods, want) })
	}
	expect("the one from before")
	s.putPod(batchPod("b", KoordinatorResource, "500"))
	want = append(want, BatchPod{UID: "uid-b", Namespace: "shop", Name: "b", Milli: 500, Koordinator: 500})
	expect("one by Koordinator's name")
	annotated := testPod("c", "0")
	annotated.Annotations = map[string]string{
		annExtendedResources: `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"70"}}}}`}
	s.putPod(annotated)
	want = append(want, BatchPod{UID: "uid-c", Namespace: "shop", Name: "c", Milli: 70})
	expect("one that only has the annotation: kubelet counts nothing of it")
	before := l.count()
	s.putPod(testPod("web", "2"))
	s.putPod(testPod("web2", "2"))
	f.within("web2 is known", f.knows("uid-web2"))
	if got := l.count(); got != before {
		t.Errorf("notified %d times of batch pods, want %d: the last changes were of others", got, before)
	}
	over := batchPod("a", BatchResource, "1500")
	over.Status.Phase = corev1.PodFailed
	s.putPod(over)
	want = want[1:]
	expect("one that is over does not count")
	s.deletePod(batchPod("b", KoordinatorResource, "500"))
	want = want[1:]
	expect("one that is gone does not count")
	listed, err := f.ListBatch(t.Context())
	if diff := cmp.Diff(want, listed); err != nil || diff != "" {
		t.Errorf("listed: %v %s", err, diff)
	}
}

// TestBatchOverhead: kubelet and the scheduler count a RuntimeClass's overhead of
// every resource.
func TestBatchOverhead(t *testing.T) {
	pod := batchPod("a", BatchResource, "1k")
	pod.Spec.InitContainers = []corev1.Container{{Name: "i",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{BatchResource: resource.MustParse("3k")}}}}
	pod.Spec.Overhead = corev1.ResourceList{BatchResource: resource.MustParse("10")}
	info := infoOf(&pod)
	if got := info.batchPod("u"); got.Own != 3010 || got.Milli != 3000 {
		t.Errorf("got %+v, want 3010 counted and 3000 lent", got)
	}
}

func TestLentNodeIsFollowed(t *testing.T) {
	s := upServer(t)
	s.setNode(lentNode("", ""))
	f, l := s.lending()
	f.node.take, f.o.OnLabels, f.o.OnLent = nil, nil, f.node.lent
	f.start()
	none := Amount{Absent, Absent}
	f.within("the Node without lent CPUs", func() bool {
		n := l.last()
		return n.UID == "node-uid" && n.Own == none && n.Koordinator == none
	})
	version := s.setNode(lentNode("5k", "written"))
	want := LentNode{UID: "node-uid", Version: version, Own: Amount{5000, 5000}, Koordinator: none, Record: "written"}
	f.within("the Node with 5 CPUs lent", func() bool { return l.last() == want })
	read, err := f.ReadNode(t.Context())
	if err != nil || read != want {
		t.Errorf("read %+v %v, want %+v", read, err, want)
	}
	s.deleteNode()
	f.within("the Node is gone", func() bool { return l.last() == LentNode{} })
	if _, err := f.ReadNode(t.Context()); err == nil {
		t.Error("a Node that is not there was read")
	}
}

func FuzzLentNode(f *testing.F) {
	raw, err := json.Marshal(lentNode("5k", "written"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(
		[]byte(
			`{"status":{"capacity":{"quietcore.dev/batch-cpu":"-1"},` +
				`"allocatable":{"kubernetes.io/batch-cpu":"1e400"}}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"quietcore.dev/lending":"` + strings.Repeat("x", 2000) + `"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := ParseLentNode(raw)
		if err != nil {
			return
		}
		for _, a := range []int64{n.Own.Capacity, n.Own.Allocatable, n.Koordinator.Capacity,
			n.Koordinator.Allocatable} {
			if a < Absent || a > maxMilli {
				t.Fatalf("amount %d", a)
			}
		}
		if len(n.Record) > maxLending {
			t.Fatalf("a record of %d bytes", len(n.Record))
		}
	})
}
