package nrt

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quietcore/quietcore/internal/kube/kubetest"
)

// withCPUs is a small object whose available CPUs tell one from another.
func withCPUs(name string, available int64) *v1alpha2.NodeResourceTopology {
	q := *resource.NewQuantity(available, resource.DecimalSI)
	return &v1alpha2.NodeResourceTopology{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelManagedBy: DefaultManagedBy},
			Annotations: map[string]string{AnnAllocs: "[]"}},
		TopologyPolicies: []string{"None"}, Attributes: v1alpha2.AttributeList{{Name: AttributePolicy, Value: "none"}},
		Zones: v1alpha2.ZoneList{{Name: "node-0", Type: "Node",
			Resources: v1alpha2.ResourceInfoList{{Name: "cpu", Capacity: q, Allocatable: q, Available: q}}}},
	}
}

func available(o *v1alpha2.NodeResourceTopology) int64 {
	if o == nil {
		return -1
	}
	return o.Zones[0].Resources[0].Available.Value()
}

func (n *node) expect(t *testing.T, name string, want int64, state string) {
	t.Helper()
	if got := available(n.s.object(t, name)); got != want {
		t.Errorf("object %s says %d available CPUs, want %d (-1: there is none)", name, got, want)
	}
	if got := n.State(); state == "" && got != "" || !strings.Contains(got, state) {
		t.Errorf("state is %q, want %q in it", got, state)
	}
}

func TestCreatesAndUpdatesAtOnce(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		synctest.Wait()
		n.expect(t, "n1", -1, "not known yet")
		n.set(withCPUs("n1", 8))
		after(time.Second)
		n.expect(t, "n1", 8, "")
		after(10 * time.Second)
		start := time.Now()
		n.set(withCPUs("n1", 6))
		synctest.Wait()
		n.expect(t, "n1", 6, "")
		if d := time.Since(start); d != 0 {
			t.Errorf("a first change was written after %s, want at once", d)
		}
		if age, ok := n.Age(); !ok || age != 0 || n.good != time.Now() {
			t.Errorf("age is %s %t, published at %s", age, ok, n.good)
		}
	})
}

func TestBurstIsTwoWrites(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 0))
		after(10 * time.Second)
		n.s.count("PATCH")
		for i := range 100 {
			n.set(withCPUs("n1", int64(i+1)))
			after(5 * time.Millisecond)
		}
		after(time.Second)
		n.expect(t, "n1", 100, "")
		if got := n.s.count("PATCH"); got != 2 {
			t.Errorf("100 changes in half a second were %d writes, want 2", got)
		}
	})
}

func TestWritesNothingWhereNothingDiffers(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.s.count("PATCH")
		for range 50 {
			n.set(withCPUs("n1", 8))
			after(2 * time.Second)
		}
		if got := n.s.count("PATCH"); got != 0 {
			t.Errorf("%d writes although nothing differed", got)
		}
		after(time.Hour)
		if got := n.s.count("GET"); got != 12 {
			t.Errorf("%d looks in an hour, want 12", got)
		}
		if got := n.s.count("PATCH"); got != 0 {
			t.Errorf("%d writes after looks that found nothing", got)
		}
	})
}

func TestDeletionBehindOurBack(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.s.remove("n1")
		after(lookEvery)
		n.expect(t, "n1", 8, "")
	})
}

func TestEditIsTakenBackOnce(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		spoil := func() {
			n.s.edit("n1", "kubectl-edit", func(o map[string]any) { o["topologyPolicies"] = []any{"Restricted"} })
		}
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		spoil()
		after(lookEvery)
		if got := n.s.object(t, "n1").TopologyPolicies[0]; got != "None" || n.State() != "" {
			t.Fatalf("policy %s, state %q after one edit; want it taken back", got, n.State())
		}
		spoil()
		after(lookEvery)
		if got := n.s.object(t, "n1").TopologyPolicies[0]; got != "Restricted" ||
			!strings.Contains(n.State(), "kubectl-edit keeps changing") {
			t.Fatalf("policy %s, state %q after a second edit; want a rival", got, n.State())
		}
		n.s.count("")
		n.set(withCPUs("n1", 4))
		after(time.Minute)
		if got := n.s.count("PATCH"); got != 0 {
			t.Errorf("%d writes over a rival", got)
		}
		after(conflictPause + lookEvery)
		n.expect(t, "n1", 4, "")
	})
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	s := newServer()
	s.edit("n1", "nfd-topology-updater", func(o map[string]any) {
		o["zones"] = []any{map[string]any{"name": "node-0", "type": "Node",
			"resources": []any{map[string]any{"name": "cpu", "capacity": "3", "allocatable": "3", "available": "3"}}}}
	})
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Hour)
		n.expect(t, "n1", 3, "written by nfd-topology-updater")
		n.s.remove("n1")
		after(lookEvery)
		n.expect(t, "n1", 8, "")
	})
}

func TestLabelOfAnotherManager(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		relabel := func(to string) {
			n.s.edit("n1", "kubectl-label", func(o map[string]any) {
				labels := o["metadata"].(map[string]any)["labels"].(map[string]any)
				if to == "" {
					delete(labels, LabelManagedBy)
				} else {
					labels[LabelManagedBy] = to
				}
			})
		}
		relabel("Other")
		n.set(withCPUs("n1", 4))
		after(2 * time.Second)
		n.expect(t, "n1", 8, `is "Other" and Quietcore's is "Koordinator"`)
		after(2 * time.Hour)
		n.expect(t, "n1", 8, "Other")
		relabel("")
		after(lookEvery)
		n.expect(t, "n1", 4, "")
	})
}

func TestForbidden(t *testing.T) {
	s := newServer()
	forbid := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		kubetest.Refuse(w, apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: plural}, "n1",
			fmt.Errorf("RBAC: not allowed")))
		return true
	}
	s.breaks(forbid)
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(time.Hour)
		n.expect(t, "n1", -1, "forbidden")
		if got := n.s.count("PATCH"); got > 25 {
			t.Errorf("%d tries in an hour, want them to become rare", got)
		}
		if n.results["forbidden"] == 0 {
			t.Errorf("results are %v", n.results)
		}
		n.s.breaks(nil)
		after(lastRetry)
		n.expect(t, "n1", 8, "")
	})
}

func TestAbsentCRD(t *testing.T) {
	s := newServer()
	s.serve()
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(time.Minute)
		n.expect(t, "n1", -1, "is not installed")
		if got := n.s.count("GET"); got != 1 {
			t.Errorf("%d questions in a minute, want 1", got)
		}
		n.s.serve(V1alpha2)
		after(absentEvery)
		n.expect(t, "n1", 8, "")
		n.s.serve() // and taken away while we run
		n.set(withCPUs("n1", 4))
		after(2 * time.Second)
		n.expect(t, "n1", 8, "is not installed")
		n.s.serve(V1alpha1, V1alpha2)
		after(absentEvery)
		n.expect(t, "n1", 4, "")
	})
}

func TestOldAndUnknownVersions(t *testing.T) {
	s := newServer()
	s.serve(V1alpha1)
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.expect(t, "n1", 8, "")
		if a := n.s.object(t, "n1").Attributes; a != nil {
			t.Errorf("v1alpha1 was written with attributes %v", a)
		}
	})
	s = newServer()
	s.serve("v1beta1")
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.expect(t, "n1", -1, "serves [v1beta1]; Quietcore writes v1alpha2 or v1alpha1")
	})
}

// A server that is 10 s slow and then one that never answers: Changed returns at
// once, and what is written in the end is the latest.
func TestSlowServer(t *testing.T) {
	s := newServer()
	s.breaks(func(_ http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return true
	})
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 1))
		synctest.Wait()
		start := time.Now()
		for i := range 1000 {
			n.set(withCPUs("n1", int64(i)))
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("Changed waited %s", d)
		}
		after(time.Minute)
		n.expect(t, "n1", -1, "not written")
		if n.results["timeout"] == 0 {
			t.Errorf("results are %v, want timeouts", n.results)
		}
		n.s.breaks(func(_ http.ResponseWriter, r *http.Request) bool {
			time.Sleep(9 * time.Second) // fake time: within the limit
			return false
		})
		after(lastRetry + time.Minute)
		n.expect(t, "n1", 999, "")
	})
}

func TestServerGoneForTenMinutes(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.s.breaks(func(w http.ResponseWriter, _ *http.Request) bool {
			panic(http.ErrAbortHandler) // the connection breaks
		})
		n.set(withCPUs("n1", 2))
		after(10 * time.Minute)
		n.expect(t, "n1", 8, "not written")
		if age, ok := n.Age(); !ok || age < 10*time.Minute {
			t.Errorf("age is %s %t", age, ok)
		}
		n.s.breaks(nil)
		after(lastRetry)
		n.expect(t, "n1", 2, "")
	})
}

func TestNodeRenamed(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("", 8))
		after(2 * time.Second)
		n.expect(t, "", -1, "the node's name is not known")
		n.set(withCPUs("old", 8))
		after(lookEvery)
		n.expect(t, "old", 8, "")
		n.set(withCPUs("new", 8))
		after(2 * time.Second)
		n.expect(t, "new", 8, "")
	})
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	s := newServer()
	s.breaks(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":`)
		return true
	})
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(10 * time.Second)
		n.expect(t, "n1", -1, "not written")
		n.s.breaks(nil)
		after(time.Minute)
		n.expect(t, "n1", 8, "")
	})
}

// An annotation of another writer on our object is theirs, and stays.
func TestOthersMayAnnotate(t *testing.T) {
	play(t, newServer(), func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.s.edit("n1", "somebody", func(o map[string]any) {
			o["metadata"].(map[string]any)["annotations"].(map[string]any)["example.com/note"] = "theirs"
		})
		n.set(withCPUs("n1", 4))
		after(lookEvery)
		n.expect(t, "n1", 4, "")
		if got := n.s.object(t, "n1").Annotations["example.com/note"]; got != "theirs" {
			t.Errorf("their annotation is %q now", got)
		}
	})
}

// Koordlet writes v1alpha1, and the API server then refuses to merge what that
// version does not have: the object is written without it.
func TestObjectThatSomebodyWroteAsV1alpha1(t *testing.T) {
	s := newServer()
	s.breaks(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		text, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(text), `"attributes"`) {
			kubetest.Refuse(w, apierrors.NewInternalError(
				fmt.Errorf("failed to convert new object: .attributes: field not declared in schema")))
			return true
		}
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		return false
	})
	play(t, s, func(t *testing.T, n *node) {
		n.set(withCPUs("n1", 8))
		after(2 * time.Second)
		n.expect(t, "n1", 8, "")
		if o := n.s.object(t, "n1"); o.Attributes != nil || o.TopologyPolicies[0] != "None" {
			t.Errorf("attributes %v, policies %v", o.Attributes, o.TopologyPolicies)
		}
		n.s.count("PATCH")
		n.set(withCPUs("n1", 8))
		after(time.Minute)
		if got := n.s.count("PATCH"); got != 0 {
			t.Errorf("%d writes although nothing differed", got)
		}
	})
}
