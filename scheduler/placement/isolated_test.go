package placement

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// TestIsolatedCPUs: what the kernel isolates counts for nobody but its owners. A pod that asks
// for it is not refused since the other CPUs are taken, nor are others for what it requests.
func TestIsolatedCPUs(t *testing.T) {
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err == nil {
		topo, err = topo.WithIsolated(cpuset.Of(4, 5, 6, 7))
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{Authority: policy.Authority{
		Namespaces: map[policy.Power][]string{policy.PowerIsolatedCPUs: {"default"}}}})
	if err != nil {
		t.Fatal(err)
	}
	owner := func(name string, milli int64, isolated string) policy.Pod {
		return policy.Pod{UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: policy.Guaranteed,
			Resources:   &policy.Resources{RequestMilli: milli, LimitMilli: milli},
			Labels:      map[string]string{policy.LabelClass: "LSR"},
			Annotations: map[string]string{policy.AnnIsolated: isolated}}
	}
	shared := func(milli int64) policy.Pod {
		p := owner("web", milli, "")
		p.Labels, p.Annotations, p.QoS = nil, nil, policy.Burstable
		return p
	}
	for _, p := range []policy.Pod{owner("plain", 2000, ""), owner("poll", 2000, "required")} {
		if _, err := m.Step(time.Unix(1e9, 0), policy.PodRun{Pod: p}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := ledger.Encode(topo, m.Snapshot().Ledger, 1)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ledger.NewDecoder().Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCluster(nil)
	if err := c.Publish("node", read); err != nil {
		t.Fatal(err)
	}
	s := c.Node("node")
	asks := func(p policy.Pod) string {
		place, refusal := s.Ask(NewWish(&p), Load{})
		if refusal != nil {
			return refusal.Error()
		}
		return place.CPUs.String()
	}
	for _, a := range []struct {
		pod  policy.Pod
		want string
	}{
		{owner("a", 2000, "required"), "6-7"},
		{owner("a", 3000, "required"), "InsufficientCPUs: 3 CPUs are asked for and 2 of 8 are free (annotation " +
			"quietcore.dev/isolated-cpus: the kernel isolates CPUs 4-7, and of these 6-7 are free)"},
		{owner("a", 3000, ""), "InsufficientCPUs: 3 CPUs are asked for; 2 are free, of which pods of the shared pool " +
			"request 0m"},
	} {
		if got := asks(a.pod); got != a.want {
			t.Errorf("%s, %+v: got %s, want %s", a.pod.Annotations, *a.pod.Resources, got, a.want)
		}
	}
	const requested = 4000 // by both owners
	for milli, fits := range map[int64]bool{2000: true, 2001: false} {
		p := shared(milli)
		if refusal := s.Glance().Fits(NewWish(&p), requested); (refusal == nil) != fits {
			t.Errorf("%dm beside them: %v", milli, refusal)
		}
	}
}
