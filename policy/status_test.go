package policy

import (
	"testing"

	"github.com/quietcore/quietcore/cpuset"
)

func status(s string) map[string]string { return map[string]string{AnnStatus: s} }

// TestStatusIsCheckedAgainstWhatIsDemanded of the CPUs by the pod or its node.
func TestStatusIsCheckedAgainstWhatIsDemanded(t *testing.T) {
	with := func(s, key, value string) map[string]string {
		return map[string]string{AnnStatus: s, key: value}
	}
	for _, c := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		milli       int64
		want        string
		withheld    string
	}{
		{"half cores where nobody minds", nil, status(`{"cpuset":"3-4"}`), 2000, "3-4", ""},
		{"half cores on a node of whole ones", map[string]string{LabelBind: "FullPCPUsOnly"},
			status(`{"cpuset":"3-4"}`), 2000, "SMTAlignmentError", ""},
		{"whole cores on a node of whole ones", map[string]string{LabelBind: "FullPCPUsOnly"},
			status(`{"cpuset":"4-5"}`), 2000, "4-5", ""},
		{"isolated", nil, with(`{"cpuset":"4,6"}`, AnnSMT, "isolate"), 2000, "4,6", "5,7"},
		{"isolated on one core", nil, with(`{"cpuset":"4-5"}`, AnnSMT, "isolate"), 2000, "SMTAlignmentError", ""},
		{"isolated beside an owner", nil, with(`{"cpuset":"1"}`, AnnSMT, "isolate"), 1000, "SMTAlignmentError", ""},
		{"two nodes where one is demanded", map[string]string{LabelAlignment: "SingleNUMANode"},
			status(`{"cpuset":"7-8"}`), 2000, "TopologyAffinityError", ""},
		{"amounts on two nodes where one is demanded", map[string]string{LabelAlignment: "SingleNUMANode"},
			status(`{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}},{"node":1,"resources":{"cpu":"1"}}]}`),
			2000, "TopologyAffinityError", ""},
		{"amounts in whole cores", map[string]string{LabelBind: "FullPCPUsOnly"},
			status(`{"numaNodeResources":[{"node":0,"resources":{"cpu":"2"}},{"node":1,"resources":{"cpu":"2"}}]}`),
			4000, "2-3,8-9", ""},
		{"amounts in half cores", map[string]string{LabelBind: "FullPCPUsOnly"},
			status(`{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}},{"node":1,"resources":{"cpu":"3"}}]}`),
			4000, "SMTAlignmentError", ""},
		{"amounts, isolated", nil,
			with(`{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}},{"node":1,"resources":{"cpu":"1"}}]}`,
				AnnSMT, "isolate"), 2000, "2,8", "3,9"},
		{"no amounts", nil, status(`{"numaNodeResources":[{"node":1}]}`), 2000, "8-9", ""},
		{"more than the node has", nil, status(`{"numaNodeResources":[{"node":1,"resources":{"cpu":"9"}}]}`), 9000,
			"TopologyAffinityError", ""},
		{"memory alone", nil, status(`{"numaNodeResources":[{"node":1,"resources":{"memory":"1Gi"}}]}`), 2000, "8-9",
			""},
		{"an amount of 0 beside one", nil, status(
			`{"numaNodeResources":[{"node":0,"resources":{"cpu":"0"}},{"node":1,"resources":{"cpu":"2"}}]}`), 2000,
			"8-9", ""},
		{"nothing in it", nil, status(`{}`), 2000, "2-3", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, Config{Authority: Authority{TrustStatus: true}})
			told(t, m, PodRun{Pod: lsr("there", 1000, nil)}) // on CPU 0
			told(t, m, NodeLabels{Labels: c.labels})
			if got := placed(t, m, lsr("a", c.milli, c.annotations)); got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
			if a := m.pods["a"]; a != nil && a.grant.withheld.String() != c.withheld {
				t.Errorf("withheld %s, want %s", a.grant.withheld, c.withheld)
			}
		})
	}
}

// TestStatusHoldsThroughAResize: a pod held to a NUMA node grows there or not.
func TestStatusHoldsThroughAResize(t *testing.T) {
	m := small(t, Config{Authority: Authority{TrustStatus: true}})
	p := lsr("a", 2000, status(`{"numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}`))
	told(t, m, PodRun{Pod: p})
	for _, c := range []struct {
		milli int64
		want  string
	}{{6000, "8-13"}, {10000, "8-13"}, {4000, "8-11"}} {
		refused := code(t, m, PodResized{Sandbox: "a", Resources: Resources{c.milli, c.milli}})
		if got := m.pods["a"].grant.cpus.String(); got != c.want {
			t.Errorf("resized to %dm (%s) it owns %s, want %s", c.milli, refused, got, c.want)
		}
	}
}

// TestAnEditedAnnotationChangesNothing: what counts is the sandbox's creation.
func TestAnEditedAnnotationChangesNothing(t *testing.T) {
	m := small(t, Config{Authority: Authority{TrustStatus: true,
		Namespaces: map[Power][]string{PowerCapExemption: {"default"}}}})
	p := lsr("a", 2000, status(`{"cpuset":"2-3"}`))
	told(t, m, PodRun{Pod: p})
	told(t, m, mainOf(p))
	before := describe(m.Snapshot())
	edited := p
	edited.Annotations = map[string]string{AnnStatus: `{"cpuset":"8-9"}`, AnnCap: "exempt", AnnManaged: "false",
		AnnSMT: "isolate"}
	edited.Labels = map[string]string{LabelClass: "LSE"}
	told(t, m, PodRun{Pod: edited})
	again := mainOf(edited)
	told(t, m, again)
	if after := describe(m.Snapshot()); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestStatusOfPodsThatOwnNothing is not read.
func TestStatusOfPodsThatOwnNothing(t *testing.T) {
	m := small(t, Config{Authority: Authority{TrustStatus: true}, System: System{Namespaces: []string{"default"}}})
	for _, class := range []string{"BE", "SYSTEM"} {
		p := lsr(class, 2000, status(`{"cpuset":"2-3","cpuSharedPools":[{"node":99}]}`))
		p.Labels = map[string]string{LabelClass: class}
		if got := placed(t, m, p); got != "shared" {
			t.Errorf("%s: %s", class, got)
		}
	}
}

func TestMilliOf(t *testing.T) {
	for text, want := range map[string]int64{
		"4": 4000, `"4"`: 4000, `"4000m"`: 4000, `"500m"`: 500, "1.5": 1500, `"0.25"`: 250, `"1.005"`: 1005,
		`"2k"`: 2_000_000, "0": 0, `"0"`: 0,
		"": -1, `""`: -1, "-1": -1, `"4 "`: -1, `"1e3"`: -1, `"1.5m"`: -1, `"."`: -1, "1.": -1, ".5": -1, "1.0001": -1,
		"+1": -1, "null": -1, "{}": -1,
		`"99999999999999999999"`: -1, `"4294967296"`: -1, `"m"`: -1, `"1Gi"`: -1, "1.+1": -1,
	} {
		got, ok := milliOf(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}

// FuzzStatus: whatever is in the annotation, the pod is placed on free CPUs or
// refused, and a refusal changes nothing.
func FuzzStatus(f *testing.F) {
	for _, s := range []string{
		`{"cpuset":"2-3"}`, `{"cpuSharedPools":[{"socket":0,"node":0},{"socket":1,"node":1}]}`,
		`{"numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}`,
		`{"cpuset":"0-9999999999"}`, `{"numaNodeResources":[{"node":-1}]}`,
		`{"numaNodeResources":[{"node":1,"resources":{"cpu":"1.5"}}]}`, `[]`, `{"cpuset":7}`,
	} {
		f.Add(s, "2", true)
		f.Add(s, "1500m", false)
	}
	f.Fuzz(func(t *testing.T, text, amount string, owner bool) {
		if milli, ok := milliOf(amount); ok && milli < 0 {
			t.Fatalf("%q is %d", amount, milli)
		}
		m := small(t, Config{Authority: Authority{TrustStatus: true}, Reserved: cpuset.Of(0)})
		told(t, m, PodRun{Pod: lsr("there", 2000, nil)})
		free := m.free()
		p := lsr("a", 2000, Relevant(status(text), ""))
		if !owner {
			p = ls("a", 2000, Relevant(status(text), ""))
		}
		if code(t, m, PodRun{Pod: p}) != "" {
			return
		}
		switch a := m.pods["a"]; {
		case owner && (a.grant == nil || a.grant.cpus.Count() != 2 || !a.grant.cpus.SubsetOf(&free)):
			t.Errorf("%s: got %+v of %s", text, a.grant, free)
		case !owner && a.nodes != nil && m.sharedOn(a.nodes) == 0:
			t.Errorf("%s: bound to %s", text, a.nodes)
		}
	})
}
