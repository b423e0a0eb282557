package placement

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

// fixture reads a machine's files as the daemon does: a header line for each, and what is in it.
func fixture(t *testing.T, name string) *topology.Topology {
	t.Helper()
	text, err := os.ReadFile("../../sysfs/testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	var file *fstest.MapFile
	for line := range bytes.Lines(text) {
		if header, ok := bytes.CutPrefix(line, []byte("-- ")); ok {
			file = &fstest.MapFile{Mode: 0o444}
			tree[string(bytes.TrimSuffix(header, []byte(" --\n")))] = file
		} else if file != nil {
			file.Data = append(file.Data, line...)
		}
	}
	delete(tree, "want")
	topo, _, err := sysfs.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// Scenario 15: of whatever hardware, what the scheduler chooses by what a node publishes is what the node chooses:
// on 256 and 512 CPUs, with cores of two kinds, with siblings that are off, on ARM.
func TestEqualCPUs(t *testing.T) {
	machines := map[string]*topology.Topology{}
	for _, name := range []string{"hybrid-pmu", "hybrid-capacity", "offline-sibling", "smt-off", "arm64-server",
		"ccx-l3s-in-node", "snc-l3-spans-nodes", "two-sockets-split"} {
		machines[name] = fixture(t, name)
	}
	for _, g := range []topology.Grid{
		{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 4, ThreadsPerCore: 2},
		{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2, Numbering: topology.Split},
	} {
		topo, err := g.Build()
		if err != nil {
			t.Fatal(err)
		}
		online := topo.Online()
		machines[fmt.Sprintf("%d CPUs", online.Count())] = topo
	}
	for name, topo := range machines {
		t.Run(name, func(t *testing.T) {
			given := 0
			for seed := range uint64(3) {
				given += equal(t, topo, seed)
			}
			if given < 6 {
				t.Errorf("only %d owners had a place", given)
			}
		})
	}
}

// equal lets pods come and go on a node, and asks the scheduler before the node; it counts those that got CPUs.
func equal(t *testing.T, topo *topology.Topology, seed uint64) (given int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 15))
	m, err := policy.New(topo, policy.Config{Authority: policy.Authority{Profile: policy.ProfileOpen}})
	if err != nil {
		t.Fatal(err)
	}
	c, d, stamp := NewCluster(nil), ledger.NewDecoder(), ledger.Stamp{}
	online := topo.Online()
	var there []string
	for i := range 40 {
		s := m.Snapshot()
		l, generation := stamp.Of(s)
		text, err := ledger.Encode(s.Topology, l, generation)
		if err != nil {
			t.Fatal(err)
		}
		node, err := d.Decode(text)
		if err == nil {
			err = c.Publish("a", node)
		}
		if err != nil {
			t.Fatal(err)
		}
		milli := 1000 * (1 + rng.Int64N(max(int64(online.Count())/8, 3)))
		p := policy.Pod{UID: fmt.Sprintf("pod-%d", i), Sandbox: fmt.Sprintf("pod-%d", i), Namespace: "default",
			Name: fmt.Sprintf("pod-%d", i), QoS: policy.Guaranteed,
			Resources: &policy.Resources{RequestMilli: milli, LimitMilli: milli},
			Labels:    map[string]string{policy.LabelClass: []string{"LSR", "LSE"}[rng.IntN(2)]},
			Annotations: map[string]string{
				policy.AnnSMT: []string{"none", "align", "isolate", "roundup"}[rng.IntN(4)]}}
		if rng.IntN(3) == 0 {
			p.Annotations[policy.AnnNUMASpec] = `{"numaTopologyPolicy":"SingleNUMANode"}`
		}
		place, refusal := c.Node("a").Ask(NewWish(&p), Load{})
		_, err = m.Step(time.Unix(int64(i), 0), policy.PodRun{Pod: p})
		if (err == nil) != (refusal == nil) {
			t.Fatalf("seed %d, pod %d: the scheduler says %v, the node %v", seed, i, refusal, err)
		}
		if err == nil {
			there, given = append(there, p.UID), given+1
			for _, h := range m.Snapshot().Ledger.Holdings {
				if h.UID == p.UID && (h.CPUs.String() != place.CPUs.String() ||
					h.Withheld.String() != place.Withheld.String()) {
					t.Fatalf("seed %d, pod %d: the scheduler chooses %s beside idle %s, the node %s beside %s", seed, i,
						place.CPUs, place.Withheld, h.CPUs, h.Withheld)
				}
			}
		}
		if len(there) > 0 && (err != nil || rng.IntN(4) == 0) {
			k := rng.IntN(len(there))
			if _, err := m.Step(time.Unix(int64(i), 0), policy.PodRemoved{Sandbox: there[k]}); err != nil {
				t.Fatal(err)
			}
			there = append(there[:k], there[k+1:]...)
		}
	}
	return given
}
