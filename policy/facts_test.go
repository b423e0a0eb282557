package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// told steps an event that must be accepted and returns the notices' reasons.
func told(t testing.TB, m *Machine, e Event) string {
	t.Helper()
	decisions, err := m.Step(time.Unix(1e9, 0), e)
	if err != nil {
		t.Fatalf("%T: %v", e, err)
	}
	var reasons []string
	for _, d := range decisions {
		if n, ok := d.(Notice); ok {
			reasons = append(reasons, n.Reason)
		}
	}
	return strings.Join(reasons, ",")
}

func code(t testing.TB, m *Machine, e Event) Code {
	t.Helper()
	before := describe(m.Snapshot())
	_, err := m.Step(time.Unix(1e9, 0), e)
	if err == nil {
		return ""
	}
	if after := describe(m.Snapshot()); after != before {
		t.Errorf("%T was refused and changed something:\n%s\n%s", e, before, after)
	}
	return err.(*Refusal).Code
}

func mainOf(p Pod) ContainerCreate {
	c := Container{ID: p.Name + "-main", Sandbox: p.Sandbox, Name: "main", Resources: Resources{LimitMilli: NoLimit}}
	if p.Resources != nil {
		c.Resources = *p.Resources
	}
	return ContainerCreate{Pod: p, Container: c}
}

// TestFactsAtAdmission: the API server's sums go before the runtime's.
func TestFactsAtAdmission(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts PodFacts
		code  Code
		owns  int
	}{
		{"as the runtime says", PodFacts{Resources: Resources{2000, 2000}}, "", 2},
		{"more than shares can say", PodFacts{Resources: Resources{3000, 3000}}, "", 3},
		{"a container without a limit", PodFacts{Resources: Resources{2000, NoLimit}}, InvalidRequest, 0},
		{"a fraction", PodFacts{Resources: Resources{2001, 2001}}, InvalidRequest, 0},
		{"nothing", PodFacts{Resources: Resources{0, NoLimit}}, InvalidRequest, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, Config{})
			p := lsr("a", 2000, nil)
			p.LimitHidden, c.facts.UID = true, "a"
			p.Facts = &c.facts
			if got := code(t, m, PodRun{Pod: p}); got != c.code {
				t.Fatalf("got %q, want %q", got, c.code)
			}
			if c.code == "" && m.pods["a"].grant.cpus.Count() != c.owns {
				t.Errorf("owns %s, want %d CPUs", m.pods["a"].grant.cpus, c.owns)
			}
		})
	}
}

// TestFactsLater: facts that arrive while the pod runs move no pod, except into the place
// of a pod whose sums were unknown.
func TestFactsLater(t *testing.T) {
	facts := PodFacts{UID: "a", Resources: Resources{4000, 4000}, Owner: "StatefulSet/db", BatchMilli: 500}
	unequal := facts
	unequal.Resources = Resources{2000, NoLimit}
	unknown := lsr("a", 2000, nil)
	unknown.Resources = nil
	hidden := lsr("a", 2000, nil)
	hidden.LimitHidden, hidden.Resources = true, &Resources{2000, NoLimit}
	best := lsr("a", 0, nil)
	best.Labels, best.QoS = nil, BestEffort
	burst := Pod{UID: "a", Sandbox: "a", Name: "a", Namespace: "default", QoS: Burstable,
		Annotations: map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}}
	for _, c := range []struct {
		name   string
		pod    Pod
		facts  PodFacts
		notice string
		cpus   string
	}{
		{"a resize that was only wished for", lsr("a", 2000, nil), facts, "", "0-1"},
		{"sums that nobody knew", unknown, facts, "", "0-3"},
		{"a limit that was hidden", hidden, unequal, "LimitUnequal", "0-1"},
		{"a hidden limit that is there", hidden, PodFacts{UID: "a", Resources: Resources{2000, 2000}}, "", "0-1"},
		{"of a pod that owns nothing", best, facts, "", "0-15"},
		{"of a pod to be bound", burst, PodFacts{UID: "a", Resources: Resources{1000, 8000}}, "", "0-7"},
		{"of a pod that no node holds", burst, PodFacts{UID: "a", Resources: Resources{1000, 9000}}, "", "0-15"},
		{"a refusal that has nobody to refuse", unknown, PodFacts{UID: "a", Resources: Resources{2500, 2500}}, "",
			"0-15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, Config{})
			told(t, m, PodRun{Pod: c.pod})
			if got := told(t, m, c.facts); got != c.notice {
				t.Errorf("notices %q, want %q", got, c.notice)
			}
			need, _ := m.needOf(m.pods["a"], "")
			if got := m.Snapshot().CPUs(&ContainerView{Need: need}); got.String() != c.cpus {
				t.Errorf("runs on %s, want %s", got, c.cpus)
			}
			if told(t, m, PodFacts{UID: "nobody"}) != "" || told(t, m, c.facts) != "" {
				t.Error("the same again, or facts of nobody, are news")
			}
		})
	}
}

// TestFactsOfAPodThatKubeletPinned give it nothing besides kubelet's CPUs.
func TestFactsOfAPodThatKubeletPinned(t *testing.T) {
	m := small(t, Config{})
	told(t, m, KubeletState{PolicyName: "static", Entries: map[string]map[string]cpuset.Set{"a": {"main": cpuset.Of(4,
		5)}}})
	p := lsr("a", 2000, nil)
	p.Labels, p.Resources = nil, nil
	told(t, m, PodRun{Pod: p})
	told(t, m, PodFacts{UID: "a", Resources: Resources{2000, 2000}})
	if a := m.pods["a"]; !a.kubelet || a.grant != nil || m.pools.Exclusive != cpuset.Of(4, 5) {
		t.Errorf("kubelet's pod owns %+v; exclusive are %s", a.grant, m.pools.Exclusive)
	}
}

// TestFactsAreSeenAndOutliveTheDaemon: the owner is in the snapshot, whether it
// came with the pod or later, and in a checkpoint.
func TestFactsAreSeenAndOutliveTheDaemon(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	rev := m.Rev()
	told(t, m, PodFacts{UID: "a", Resources: Resources{2000, 2000}, Owner: "Deployment/web", BatchMilli: 7})
	if got := m.Snapshot().Containers[0].Owner; got != "Deployment/web" || m.Rev() == rev {
		t.Errorf("the snapshot names %q as the owner, revision %d after %d", got, m.Rev(), rev)
	}
	again := small(t, Config{})
	told(t, again, m.Checkpoint())
	if a, b := describe(m.Snapshot()), describe(again.Snapshot()); a != b {
		t.Errorf("before:\n%s\nafter:\n%s", a, b)
	}
	if got := again.Snapshot().Containers[0].Owner; got != "Deployment/web" || again.pods["a"].batch != 7 {
		t.Errorf("after a restart the owner is %q", got)
	}
}

// TestRecordsOfWhatTheClusterSays come back as what they were.
func TestRecordsOfWhatTheClusterSays(t *testing.T) {
	nodes := cpuset.Of(1, 3)
	pod := lsr("a", 2000, nil)
	pod.DeviceNodes, pod.Facts = &nodes, &PodFacts{UID: "a", Resources: Resources{2000, 2000}, Owner: "Job/x"}
	bound := Synchronized{Pods: []Pod{{UID: "b", Recovered: &Recovered{From: "state file", BoundNodes: &nodes}}},
		Containers: []Container{}}
	for _, e := range []Event{
		PodFacts{UID: "a", Resources: Resources{2000, NoLimit}, Owner: "Deployment/web", BatchMilli: 1500},
		KubeletConfigured{Kubelet: Kubelet{Static: true, Options: map[string]string{"full-pcpus-only": "true"},
			Reserved: cpuset.Of(0, 8), TopologyPolicy: "restricted"}},
		PodRun{Pod: pod}, bound,
	} {
		r, ok := RecordOf(time.Unix(1e9, 0).UTC(), e)
		if !ok {
			t.Fatalf("%T is not recorded", e)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back Record
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if got := back.Event(); !reflect.DeepEqual(got, e) {
			t.Errorf("%s came back as %+v, was %+v", text, got, e)
		}
	}
}

// TestARecordBeginsWithKubeletsConfiguration, so that its replay decides the same.
func TestARecordBeginsWithKubeletsConfiguration(t *testing.T) {
	m := small(t, Config{})
	r := NewRecorder(10)
	told(t, m, KubeletConfigured{Kubelet: Kubelet{Options: map[string]string{"full-pcpus-only": "true"},
		Reserved: cpuset.Of(0)}})
	odd := PodRun{Pod: lsr("odd", 3000, nil)}
	r.Add(m, time.Unix(1e9, 0), odd)
	if got := code(t, m, odd); got != "SMTAlignmentError" {
		t.Fatalf("got %q", got)
	}
	again := small(t, Config{})
	var last error
	for _, record := range r.Records() {
		_, last = again.Step(record.At, record.Event())
	}
	if last == nil || describe(again.Snapshot()) != describe(m.Snapshot()) {
		t.Errorf("the replay ends with %v and\n%s, was\n%s", last, describe(again.Snapshot()), describe(m.Snapshot()))
	}
}

// TestKubeletsConfigurationStaysInForce over the operator's, and one that this
// machine cannot have is refused whole.
func TestKubeletsConfigurationStaysInForce(t *testing.T) {
	m := small(t, Config{Kubelet: Kubelet{Reserved: cpuset.Of(1)}})
	if m.pools.Reserved != cpuset.Of(1) {
		t.Fatalf("reserved are %s", m.pools.Reserved)
	}
	options := map[string]string{"strict-cpu-reservation": "true"}
	told(t, m, KubeletConfigured{Kubelet: Kubelet{Options: options, Reserved: cpuset.Of(2, 3)}})
	options["strict-cpu-reservation"] = "false" // the machine has its own copy
	told(t, m, Reconfigured{Config: Config{Reserved: cpuset.Of(0), Kubelet: Kubelet{Reserved: cpuset.Of(7)}}})
	if want := cpuset.Of(0, 2, 3); m.pools.Reserved != want || m.pools.Shared.Intersects(&want) {
		t.Errorf("reserved are %s, shared %s; want %s reserved strictly", m.pools.Reserved, m.pools.Shared, want)
	}
	if got := code(t, m, KubeletConfigured{Kubelet: Kubelet{Reserved: cpuset.Of(99)}}); got != InvalidRequest {
		t.Errorf("a CPU that is not there: %q", got)
	}
	if m.fromKubelet.Reserved != cpuset.Of(2, 3) {
		t.Errorf("a refused configuration left %+v", m.fromKubelet)
	}
}

// TestUnknownLabelsAreSaidOnce for each value, those of the start too.
func TestUnknownLabelsAreSaidOnce(t *testing.T) {
	m := small(t, Config{NodeLabels: map[string]string{LabelBind: "Sideways"}})
	for i, c := range []struct{ bind, strategy, want string }{
		{"Sideways", "", "UnknownNodeLabel"},
		{"Sideways", "", ""},
		{"FullPCPUsOnly", "Odd", "UnknownNodeLabel"},
		{"Sideways", "Odd", ""},
		{"Upwards", "Odd", "UnknownNodeLabel"},
		{"None", "", ""},
	} {
		if got := told(t, m, NodeLabels{Labels: map[string]string{LabelBind: c.bind,
			LabelStrategy: c.strategy}}); got != c.want {
			t.Errorf("%d: %+v: notices %q, want %q", i, c, got, c.want)
		}
	}
}

// TestMemoryOfNodesWithoutAny: strict memory names nodes that have some, or nobody
// is restricted; SingleNUMANode means a node with memory.
func TestMemoryOfNodesWithoutAny(t *testing.T) {
	var cpus []topology.CPU
	for id := range 12 {
		cpus = append(cpus, topology.CPU{ID: id, Core: id / 2, L3: id / 4, Node: id / 4})
	}
	topo, err := topology.New(cpus, topology.Options{Memory: map[int]uint64{0: 1 << 30, 2: 1 << 30, 7: 1 << 40}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name          string
		spec          string
		before, milli int64
		cpus, mems    string
	}{
		{"a node with memory", "", 0, 4000, "0-3", "0"},
		{"one with and one without", "", 0, 6000, "0-5", "0"},
		{"one without", "", 4000, 4000, "4-7", "all"},
		{"SingleNUMANode passes over it", "SingleNUMANode", 4000, 3000, "8-10", "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := New(topo, Config{Memory: MemoryStrict})
			if err != nil {
				t.Fatal(err)
			}
			if c.before > 0 {
				told(t, m, PodRun{Pod: lsr("before", c.before, nil)})
			}
			var annotations map[string]string
			if c.spec != "" {
				annotations = map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"` + c.spec + `"}`}
			}
			p := lsr("a", c.milli, annotations)
			told(t, m, PodRun{Pod: p})
			told(t, m, mainOf(p))
			s := m.Snapshot()
			mems := "all"
			if set := s.Containers[0].Mems; set != nil {
				mems = set.String()
			}
			if got := s.CPUs(s.Containers[0]); got.String() != c.cpus || mems != c.mems {
				t.Errorf("CPUs %s with the memory of %s, want %s with %s", got, mems, c.cpus, c.mems)
			}
		})
	}
}
