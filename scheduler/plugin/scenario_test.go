package plugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

var (
	small = topology.Grid{Sockets: 1, CoresPerL3: 8, ThreadsPerCore: 2}
	two   = topology.Grid{Sockets: 1, NodesPerSocket: 2, CoresPerL3: 8, ThreadsPerCore: 2}
)

// Scenario 1: of two nodes with 8 free CPUs, the one with whole free cores gets a pod that
// wants whole cores.
func TestWholeCores(t *testing.T) {
	w := newWorld(t, options{})
	w.node("split", 0, &small, trusting())
	for i := range 7 { // spread: one thread of each core
		w.create(fmt.Sprintf("spread-%d", i), "LSR", "1", annotated(policy.AnnSMT, "none"), annotated(policy.AnnSpec,
			`{"preferredCPUBindPolicy":"SpreadByPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}`))
		w.lands(fmt.Sprintf("spread-%d", i), "split")
	}
	w.node("whole", 0, &small, trusting())
	w.create("aligned", "LSR", "4", annotated(policy.AnnSMT, "align"))
	w.lands("aligned", "whole")
	if told, owned := w.told("aligned"), w.owned("aligned"); told != fmt.Sprintf(`{"cpuset":%q}`, owned) {
		t.Errorf("told %s, owned %s", told, owned)
	}
	w.check()
}

// Scenario 2: only a node whose one NUMA node holds the pod gets it; the reason for Pending is
// a sentence with numbers.
func TestOneNUMANode(t *testing.T) {
	w := newWorld(t, options{})
	w.node("narrow", 0, &topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2}, trusting())
	single := annotated(policy.AnnNUMASpec, `{"numaTopologyPolicy":"SingleNUMANode"}`)
	w.create("first", "LSR", "12", single)
	w.says("first", "TopologyAffinityError: 12 CPUs")
	w.node("wide", 0, &two, trusting())
	w.lands("first", "wide")
	w.check()
}

// Scenario 4: 100 pods at once for 96 places: 96 run, 4 are pending, and no node refuses.
func TestAHundredPodsForFewerPlaces(t *testing.T) {
	w := newWorld(t, options{})
	const nodes, places = 8, 96
	for i := range nodes { // 26 CPUs, of which two are the floor
		w.node(fmt.Sprintf("node-%d", i), 0, &topology.Grid{Sockets: 1, CoresPerL3: 13, ThreadsPerCore: 2}, trusting())
	}
	for i := range 100 {
		w.create(fmt.Sprintf("pod-%d", i), "LSR", "2")
	}
	pending := 0
	for i := range 100 {
		if strings.HasPrefix(w.where(fmt.Sprintf("pod-%d", i)), "Pending") {
			pending++
		}
	}
	w.until("96 run", func() bool { running, _ := w.counts(); return running == places })
	w.check()
	if pending < 4 {
		t.Errorf("%d are pending", pending)
	}
	for i := range 100 {
		name := fmt.Sprintf("pod-%d", i)
		if node := w.where(name); !strings.HasPrefix(node, "Pending") {
			if told, owned := w.told(name), w.owned(name); told != fmt.Sprintf(`{"cpuset":%q}`, owned) {
				t.Errorf("%s was told %s and owns %s", name, told, owned)
			}
		}
	}
}

// Scenarios 5 and 6: ledgers do not come, and the scheduler is another one: no CPUs are
// promised twice, and none is lost once they come.
func TestLateLedgersAndAnotherScheduler(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, trusting())
	before := w.annotations("a")
	w.hold = true
	for i := range 3 {
		w.create(fmt.Sprintf("first-%d", i), "LSR", "2")
		w.lands(fmt.Sprintf("first-%d", i), "a")
	}
	w.check()
	w.stop()
	w.schedule(options{}) // it reads what the node said before the pods came, and their annotations
	if w.server == nil {
		w.reader.take("a", before)
	}
	w.create("overlaps", "LSR", "10")
	if got := w.where("overlaps"); !strings.HasPrefix(got, "Pending") {
		t.Errorf("CPUs that were promised before are promised again: %s", got)
	}
	w.check()
	w.remove("overlaps")
	w.hold = false
	w.publish("a")
	w.create("more", "LSR", "8") // 16 less 6 less the floor of 2
	w.lands("more", "a")
	w.check()
}

// Scenario 7: ledgers that come, go and come again are followed.
func TestLedgersComeAndGo(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 16, nil, policy.Config{})
	w.create("pod", "LSR", "2")
	w.says("pod", "no ledger")
	w.equip("a", &small, trusting())
	w.lands("pod", "a")
	w.unpublish("a")
	w.until("the scheduler has seen it", func() bool { return !w.plugin.cluster.Node("a").Known() })
	w.create("next", "LSR", "2")
	w.says("next", "no ledger")
	w.publish("a")
	w.lands("next", "a")
	w.check()
}

// The reason of Pending is that of now: of a node whose ledger has come, what it says of the pod.
func TestTheReasonIsOfNow(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 16, nil, policy.Config{})
	w.create("large", "LSR", "15")
	w.says("large", "no ledger")
	w.equip("a", &small, trusting())
	w.says("large", "15 CPUs")
	w.check()
}

// Scenario 8: pods with a wish on nodes without the daemon, as configured.
func TestNodesWithoutTheDaemon(t *testing.T) {
	for absent, want := range map[Absent]string{AbsentRefuse: "Pending", AbsentIgnore: "bare"} {
		t.Run(string(absent), func(t *testing.T) {
			w := newWorld(t, options{args: Args{AbsentNodes: absent}})
			w.node("bare", 16, nil, policy.Config{})
			w.create("owner", "LSR", "2")
			w.until("the owner is "+want, func() bool { return strings.HasPrefix(w.where("owner"), want) })
			w.create("plain", "", "2")
			w.lands("plain", "bare")
		})
	}
}

// Scenario 9: another scheduler binds pods to the same node. What its annotations say is known
// before the node has said it; of two that take the same CPUs the node refuses the second, in
// a sentence.
func TestAnotherScheduler(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, trusting())
	w.hold = true
	w.bindByHand("theirs", "a", `{"cpuset":"0-1"}`)
	w.until("their pod arrives", func() bool { return w.owned("theirs") == "0-1" })
	w.create("ours", "LSR", "2")
	w.lands("ours", "a")
	w.until("our pod arrives", func() bool { return w.owned("ours") == "2-3" })
	w.check()
	w.bindByHand("late", "a", `{"cpuset":"2-3"}`)
	w.until("the node refuses one", func() bool { _, refused := w.counts(); return refused == 1 })
	if why := w.refused[0]; !strings.Contains(why, "gives CPUs 2-3; of these 2-3 are owned by another pod") {
		t.Error(why)
	}
}

// Scenario 10: what is kept idle, and what was rounded up to, is offered to nobody: neither to
// owners nor to pods without a wish.
func TestWithheldAndSurplus(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, trusting())
	w.create("isolated", "LSR", "4", annotated(policy.AnnSMT, "isolate")) // 8 of 16
	w.create("rounded", "LSR", "3", annotated(policy.AnnSMT, "roundup"))  // 4 of 16
	w.lands("isolated", "a")
	w.lands("rounded", "a")
	w.create("owner", "LSR", "4")
	if got := w.where("owner"); !strings.HasPrefix(got, "Pending") {
		t.Errorf("an owner is on %s", got)
	}
	w.create("plain", "", "5") // 16 - 7 requested: a stock scheduler finds 9
	w.says("plain", "kept idle")
	w.create("fits", "", "4")
	w.lands("fits", "a")
	w.check()
}

// Scenarios 11 and 12: a pod of higher priority preempts the one whose CPUs help, and what it
// is nominated for is given to nobody else.
func TestPreemption(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &two, trusting())
	single := annotated(policy.AnnNUMASpec, `{"numaTopologyPolicy":"SingleNUMANode"}`)
	w.create("large", "LSR", "14", single, priority(50)) // its CPUs would help, too
	w.create("small-1", "LSR", "8", single, priority(1))
	w.create("small-2", "LSR", "6", single, priority(1))
	for _, name := range []string{"large", "small-1", "small-2"} {
		w.lands(name, "a")
	}
	w.create("urgent", "LSR", "10", single, priority(100))
	gone := ""
	w.until("somebody is preempted", func() bool {
		for _, name := range []string{"large", "small-1", "small-2"} {
			if !w.exists(name) {
				gone += name + " "
				w.vanish(name)
			}
		}
		return gone != ""
	})
	w.create("cheeky", "LSR", "8", single, priority(1))
	w.lands("urgent", "a")
	if gone != "small-1 " {
		t.Errorf("preempted: %s", gone)
	}
	if got := w.where("cheeky"); !strings.HasPrefix(got, "Pending") {
		t.Errorf("a pod of lower priority took the place: %s", got)
	}
	w.check()
}

// Scenario 13: a node whose allocatable is amplified has no more CPUs than it has.
func TestAmplification(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, trusting())
	w.amplify("a", 24)
	w.create("first", "LSR", "10")
	w.lands("first", "a")
	w.create("second", "LSR", "6")
	if got := w.where("second"); !strings.HasPrefix(got, "Pending") {
		t.Errorf("CPUs that there are not: %s", got)
	}
	w.check()
}

// Scenario 14: a tenant's own resource-status has no effect.
func TestForgedStatus(t *testing.T) {
	w := newWorld(t, options{})
	cfg := trusting()
	cfg.Reserved = cpuset.Of(0, 1)
	w.node("a", 0, &small, cfg)
	w.create("forged", "LSR", "2", annotated(policy.AnnStatus, `{"cpuset":"0-1"}`))
	w.lands("forged", "a")
	if got := w.owned("forged"); got != "2-3" {
		t.Errorf("it owns %s", got)
	}
	w.check()
}

// Without trust nothing is told, and the node's own choice is the one that was foreseen.
func TestUntrustingNode(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, policy.Config{})
	for i, cpus := range []string{"2", "4", "3", "3"} {
		name := fmt.Sprintf("pod-%d", i)
		w.create(name, "LSR", cpus)
		w.lands(name, "a")
		if w.told(name) != "" || w.owned(name) == "" {
			t.Errorf("%s is told %q, owns %s", name, w.told(name), w.owned(name))
		}
	}
	w.check()
}

// A wish that no node could understand is said at once, in the daemon's own sentence.
func TestBadWish(t *testing.T) {
	w := newWorld(t, options{})
	w.node("a", 0, &small, trusting())
	w.create("bad", "LSR", "2", annotated(policy.AnnSMT, "isolated"))
	w.says("bad", "must be none, isolate, align or roundup")
	w.create("half", "LSR", "1500m")
	w.says("half", "whole number of CPUs")
}

// Pods that a daemon has proven to be better apart are kept apart where there is another node, whether
// they ask for CPUs or not, and for as long as it was said.
func TestProvenPairs(t *testing.T) {
	for _, c := range []struct {
		name, class string
		until       time.Duration
		node        string
	}{
		{"antagonist", "", time.Hour, "other"},
		{"owner", "LSR", time.Hour, "other"},
		{"long-ago", "", -time.Hour, "proven"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, options{})
			for _, name := range []string{"proven", "other"} {
				w.node(name, 0, &small, trusting())
			}
			// The other node is the fuller one: the stock scheduler avoids it.
			w.create("web", "", "1", runsOn("proven"), ownedBy("web"))
			w.create("large", "", "4", runsOn("other"))
			w.lands("web", "proven")
			w.lands("large", "other")
			w.mu.Lock()
			w.nodes["proven"].pairs = []ledger.Pair{{Victim: "default/Deployment/web",
				Antagonist: "default/Pod/" + c.name, Until: time.Now().Add(c.until)}}
			w.mu.Unlock()
			w.publish("proven")
			pod := w.object(c.name, c.class, "2")
			w.until("the scheduler has read it", func() bool {
				return c.until < 0 || len(w.plugin.apart.from(pod, time.Now())) == 1
			})
			w.create(c.name, c.class, "2")
			w.lands(c.name, c.node)
			w.check()
		})
	}
}

func runsOn(node string) podOption {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"node": node} }
}

func ownedBy(deployment string) podOption {
	yes := true
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment,
			UID: "u", Controller: &yes}}
	}
}

// TestAgainstStock: a mixed load on a cluster, with and without the plugin: how many pods end
// up refused on nodes. QUIETCORE_LOAD is another number of pods, QUIETCORE_NODES of nodes, a twelfth as many, and
// QUIETCORE_QPS how many requests a second the scheduler may make.
func TestAgainstStock(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	for _, stock := range []bool{true, false} {
		t.Run(fmt.Sprintf("stock=%v", stock), func(t *testing.T) { mixedLoad(t, stock) })
	}
}

func mixedLoad(t *testing.T, stock bool) {
	load := sizeFrom("QUIETCORE_LOAD", 120)
	w := newWorld(t, options{noPlugin: stock})
	for i := range sizeFrom("QUIETCORE_NODES", load/12) {
		grid, cfg := two, trusting()
		if i%3 == 1 {
			grid = small
		}
		if i%4 == 2 {
			cfg.NodeLabels = map[string]string{policy.LabelBind: "FullPCPUsOnly"}
		}
		w.node(fmt.Sprintf("node-%d", i), 0, &grid, cfg)
	}
	began := time.Now()
	for i := range load {
		name := fmt.Sprintf("pod-%d", i)
		switch i % 5 {
		case 0:
			w.create(name, "LSR", "3")
		case 1:
			w.create(name, "LSE", "2", annotated(policy.AnnSMT, "isolate"))
		case 2:
			w.create(name, "LSR", "4", annotated(policy.AnnNUMASpec, `{"numaTopologyPolicy":"SingleNUMANode"}`))
		case 3:
			w.create(name, "LSR", "2", annotated(policy.AnnSMT, "align"))
		default:
			w.create(name, "", "1500m")
		}
	}
	for i := range load {
		w.where(fmt.Sprintf("pod-%d", i))
	}
	took := time.Since(began).Seconds()
	running, refused := w.counts()
	t.Logf("stock %v: of %d pods %d are bound, %d of them refused by their nodes; %.0f a second, from the first one's "+
		"creation to the last one's decision", stock, load, running, refused, float64(running)/took)
	if !stock {
		w.check()
	} else if refused == 0 {
		t.Error("the nodes refuse nobody whom the stock scheduler sends: the load shows nothing")
	}
}
