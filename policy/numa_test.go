package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// machineOf has nodes NUMA nodes of cores cores of two threads.
func machineOf(t testing.TB, nodes, cores int, cfg Config) *Machine {
	t.Helper()
	topo, err := topology.Grid{NodesPerSocket: nodes, CoresPerL3: cores, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Authority.Profile = ProfileOpen
	m, err := New(topo, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func numa(policy, exclusive string) map[string]string {
	return map[string]string{AnnNUMASpec: fmt.Sprintf(`{"numaTopologyPolicy":%q,"singleNUMANodeExclusive":%q}`, policy,
		exclusive)}
}

// placed tells where an owner is, or the code of its refusal.
func placed(t testing.TB, m *Machine, p Pod) string {
	t.Helper()
	if c := code(t, m, PodRun{Pod: p}); c != "" {
		return string(c)
	}
	switch o := m.pods[p.UID]; {
	case o.grant != nil:
		return o.grant.cpus.String()
	case o.nodes != nil:
		return "node " + o.nodes.String()
	}
	return "shared"
}

func ls(name string, milli int64, annotations map[string]string) Pod {
	p := lsr(name, milli, annotations)
	p.Labels, p.QoS = nil, Burstable
	return p
}

// TestApart is singleNUMANodeExclusive on four NUMA nodes of four CPUs: by the word
// of the pod that comes, by the word of the one that is there, and with no room.
func TestApart(t *testing.T) {
	for _, c := range []struct {
		name string
		pods []Pod
		want []string
	}{
		{"nobody asked", []Pod{lsr("one", 2000, nil), lsr("wide", 6000, nil)}, []string{"0-1", "2-7"}},
		{"the wide one asks", []Pod{lsr("one", 2000, nil), lsr("wide", 6000, numa("", "Required"))},
			[]string{"0-1", "4-9"}},
		{"the wide one prefers", []Pod{lsr("one", 2000, nil), lsr("wide", 6000, numa("", "Preferred"))},
			[]string{"0-1", "4-9"}},
		{"the one on a node asked before", []Pod{lsr("one", 2000, numa("SingleNUMANode", "Required")),
			lsr("wide", 6000, nil)}, []string{"0-1", "4-9"}},
		{"the wide one asked before", []Pod{lsr("wide", 7000, numa("", "Required")), lsr("one", 1000, nil)},
			[]string{"0-6", "8"}},
		{"two of a kind", []Pod{lsr("one", 1000, numa("", "Required")), lsr("too", 1000, numa("", "Required"))},
			[]string{"0", "2"}},
		{"no room apart", []Pod{lsr("wide", 13000, nil), lsr("one", 1000, numa("", "Required"))},
			[]string{"0-12", "TopologyAffinityError"}},
		{"no room apart, preferred", []Pod{lsr("wide", 13000, nil), lsr("one", 1000, numa("", "Preferred"))},
			[]string{"0-12", "14"}},
		{"a bound pod is on one node", []Pod{ls("web", 1000, numa("SingleNUMANode", "")),
			lsr("wide", 7000, numa("", "Required"))}, []string{"node 0", "4-10"}},
		{"a bound pod keeps apart", []Pod{lsr("wide", 7000, nil), ls("web", 1000, numa("SingleNUMANode", "Required"))},
			[]string{"0-6", "node 2"}},
		{"a bound pod prefers", []Pod{lsr("wide", 13000, nil), ls("web", 500, numa("SingleNUMANode", "Preferred"))},
			[]string{"0-12", "node 3"}},
		{"a bound pod finds no room", []Pod{lsr("wide", 13000, nil),
			ls("web", 500, numa("SingleNUMANode", "Required"))}, []string{"0-12", "TopologyAffinityError"}},
		{"pods in the whole pool are of no kind", []Pod{ls("web", 1000, nil), lsr("wide", 7000, numa("", "Required"))},
			[]string{"shared", "0-6"}},
		{"Restricted never takes more nodes to keep apart",
			[]Pod{lsr("one", 1000, nil), lsr("wide", 7000, numa("Restricted", "Required"))}, []string{"0", "4-10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machineOf(t, 4, 2, Config{})
			for i, p := range c.pods {
				if got := placed(t, m, p); got != c.want[i] {
					t.Errorf("%s is on %s, want %s", p.Name, got, c.want[i])
				}
			}
		})
	}
}

// TestDevices: demands have the devices' nodes in them, wishes only break ties.
func TestDevices(t *testing.T) {
	on := func(p Pod, nodes ...int) Pod {
		set := cpuset.Of(nodes...)
		p.DeviceNodes = &set
		return p
	}
	burst := map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}
	burstPod := ls("burst", 1000, burst)
	for _, c := range []struct {
		name  string
		cfg   Config
		setup []Pod
		pod   Pod
		want  string
	}{
		{"none known", Config{}, nil, on(lsr("a", 2000, nil)), "0-1"},
		{"a tie is broken", Config{}, nil, on(lsr("a", 2000, nil), 2), "8-9"},
		{"BestEffort too", Config{}, nil, on(lsr("a", 2000, numa("BestEffort", "")), 2), "8-9"},
		{"before the strategy", Config{}, []Pod{lsr("x", 1000, nil)}, on(lsr("a", 2000, nil), 2), "8-9"},
		{"one node is worth more than the devices'", Config{}, []Pod{on(lsr("x", 3000, nil), 2)},
			on(lsr("a", 2000, nil), 2), "0-1"},
		{"as many of the devices' nodes as the request uses", Config{}, nil, on(lsr("a", 2000, nil), 1, 3), "4-5"},
		{"one of two nodes is the devices'", Config{}, nil, on(lsr("a", 6000, nil), 3), "0-3,12-13"},
		{"an exclusive policy is worth more", Config{Allocation: Allocation{Exclusive: cpuallocator.NUMANodeLevel}},
			[]Pod{on(lsr("x", 1000, nil), 2)}, on(lsr("a", 1000, nil), 2), "0"},
		{"SingleNUMANode demands it", Config{}, nil, on(lsr("a", 4000, numa("SingleNUMANode", "")), 3), "12-15"},
		{"SingleNUMANode has no room there", Config{}, []Pod{on(lsr("x", 1000, nil), 3)},
			on(lsr("a", 4000, numa("SingleNUMANode", "")), 3), "TopologyAffinityError"},
		{"SingleNUMANode and devices on two", Config{}, nil, on(lsr("a", 2000, numa("SingleNUMANode", "")), 1, 3),
			"TopologyAffinityError"},
		{"Restricted has them among its nodes", Config{}, nil, on(lsr("a", 6000, numa("Restricted", "")), 2),
			"0-3,8-9"},
		{"Restricted and both nodes", Config{}, nil, on(lsr("a", 6000, numa("Restricted", "")), 1, 3), "4-7,12-13"},
		{"Restricted and more devices than nodes", Config{}, nil, on(lsr("a", 4000, numa("Restricted", "")), 1, 3),
			"TopologyAffinityError"},
		{"too many for the machine, wished for", Config{}, nil, on(lsr("a", 17000, nil), 2), "InsufficientCPUs"},
		{"too many for the machine, demanded", Config{}, nil, on(lsr("a", 17000, numa("Restricted", "")), 2),
			"InsufficientCPUs"},
		{"nodes without CPUs are passed over", Config{}, nil, on(lsr("a", 2000, numa("SingleNUMANode", "")), 9), "0-1"},
		{"a bound pod", Config{}, nil, on(ls("a", 1000, numa("SingleNUMANode", "")), 3), "node 3"},
		{"a bound pod has no room there", Config{}, []Pod{on(lsr("x", 3000, nil), 3)},
			on(ls("a", 2000, numa("SingleNUMANode", "")), 3), "TopologyAffinityError"},
		{"a bound pod and devices on two", Config{}, nil, on(ls("a", 1000, numa("Restricted", "")), 1, 3),
			"TopologyAffinityError"},
		{"ConstrainedBurst prefers it", Config{}, nil, on(burstPod, 3), "node 3"},
		{"ConstrainedBurst does without", Config{}, []Pod{on(lsr("x", 4000, numa("SingleNUMANode", "")), 3)},
			on(burstPod, 3), "node 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machineOf(t, 4, 2, c.cfg)
			for _, p := range c.setup {
				told(t, m, PodRun{Pod: p})
			}
			if got := placed(t, m, c.pod); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestDevicesOnManyNodes: the sets that are tried are bounded, each comes once, and
// all have the devices' nodes in them.
func TestDevicesOnManyNodes(t *testing.T) {
	m := machineOf(t, 24, 1, Config{})
	for count := 1; count <= 6; count++ {
		q := question{m: m, devices: cpuset.Of(5, 20)}
		seen := map[string]bool{}
		sets := q.around(cpuallocator.Request{}, count)
		for _, s := range sets {
			if seen[s.String()] || !q.devices.SubsetOf(&s) || s.Count() != max(count, 2) {
				t.Errorf("count %d: %s", count, s)
			}
			seen[s.String()] = true
		}
		if len(sets) == 0 || len(sets) > maxAround {
			t.Errorf("count %d: %d sets", count, len(sets))
		}
	}
}

// TestARestartKeepsPodsBoundToSeveralNodes, from our record and from one of a
// daemon that knew only one node.
func TestARestartKeepsPodsBoundToSeveralNodes(t *testing.T) {
	cfg := Config{Authority: Authority{TrustStatus: true}}
	m := machineOf(t, 4, 2, cfg)
	p := ls("web", 1000,
		map[string]string{AnnStatus: `{"cpuSharedPools":[{"socket":0,"node":1},{"socket":0,"node":3}]}`})
	if got := placed(t, m, p); got != "node 1,3" {
		t.Fatalf("on %s", got)
	}
	told(t, m, mainOf(p))
	again := machineOf(t, 4, 2, Config{}) // not even trusted any more
	told(t, again, m.Checkpoint())
	if a, b := describe(m.Snapshot()), describe(again.Snapshot()); a != b {
		t.Errorf("before:\n%s\nafter:\n%s", a, b)
	}
	node := 2
	p.Recovered = &Recovered{From: fromState, BoundNode: &node}
	older := machineOf(t, 4, 2, cfg)
	told(t, older, Synchronized{Pods: []Pod{p}})
	if got := older.pods["web"].nodes.String(); got != "2" {
		t.Errorf("a record of one node puts the pod on %s", got)
	}
}

// TestABindingThatIsNotThereAnyMore: the daemon starts with a configuration that leaves the
// shared pool nothing on the pod's NUMA node.
func TestABindingThatIsNotThereAnyMore(t *testing.T) {
	m := machineOf(t, 2, 2, Config{})
	node := cpuset.Of(1)
	p := ls("web", 1000, numa("SingleNUMANode", ""))
	p.DeviceNodes = &node
	if got := placed(t, m, p); got != "node 1" {
		t.Fatalf("on %s", got)
	}
	again := machineOf(t, 2, 2, Config{Reserved: cpuset.Of(4, 5, 6, 7), ReservedStrict: true})
	decisions, err := again.Step(time.Unix(1e9, 0), m.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	notices := ""
	for _, d := range decisions {
		if n, ok := d.(Notice); ok {
			notices += n.Reason + ": " + n.Message + "\n"
		}
	}
	const want = "NUMANodeLost: the shared pool of NUMA node 1 has no CPU left; the pod runs in the whole shared pool\n"
	if got := again.pods["web"]; got.nodes != nil || got.degraded != "" || notices != want {
		t.Errorf("bound to %v, degraded %q, told\n%s", got.nodes, got.degraded, notices)
	}
}
