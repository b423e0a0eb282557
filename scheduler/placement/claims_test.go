package placement

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// TestClaims: what claims have, and what is kept for them, is no owner's. A claim is not gone because no pod has its
// UID.
func TestClaims(t *testing.T) {
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{ClaimShares: []policy.ClaimShare{{Within: topo.Known(), CPUs: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Step(time.Unix(1e9, 0), policy.ClaimPrepared{UID: "claim", Namespace: "default", Name: "cpus",
		Requests: []policy.ClaimRequest{{Device: "numa-0", Within: topo.Known(), CPUs: 2}}}); err != nil {
		t.Fatal(err)
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
	for _, want := range []struct {
		milli  int64
		answer string
	}{
		{2000, "2-3"},
		{4000, "InsufficientCPUs: giving 4 CPUs away exclusively would leave the shared pool 0 of its 6 CPUs once " +
			"claims have the 2 that are kept for them, and its floor is 2"},
		{5000, "InsufficientCPUs: 5 CPUs are asked for and 4 of 8 are free (CPUs 6-7 are kept for claims)"},
	} {
		p := policy.Pod{UID: "owner", Namespace: "default", Name: "owner", QoS: policy.Guaranteed,
			Resources: &policy.Resources{RequestMilli: want.milli, LimitMilli: want.milli},
			Labels:    map[string]string{policy.LabelClass: "LSR"}}
		place, refusal := s.Ask(NewWish(&p), Load{})
		got := place.Offer.CPUs.String()
		if refusal != nil {
			got = refusal.Error()
		}
		if got != want.answer {
			t.Errorf("an owner that asks for %d is answered %q, want %q", want.milli, got, want.answer)
		}
	}
	if gone := s.Ending(1, func() map[string]bool { return nil }); len(gone) > 0 {
		t.Errorf("%v are taken to be ending", gone)
	}
	if free := s.freeWith(&Load{}); free != cpuset.Range(2, 5) {
		t.Errorf("nobody holds %s", free)
	}
	if free := s.freeWith(&Load{Without: []string{"other"}}); free != cpuset.Range(2, 5) {
		t.Errorf("without another pod nobody holds %s", free)
	}
}
