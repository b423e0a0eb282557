package chart

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/quietcore/quietcore/internal/config"
)

// named returns the object of a type and name; nil: there is none.
func named[T runtime.Object](objects []runtime.Object, name string) (found T) {
	for _, o := range objects {
		if one, ok := o.(T); ok && nameOf(o) == name {
			found = one
		}
	}
	return found
}

func nameOf(o runtime.Object) string { return o.(interface{ GetName() string }).GetName() }

// runsOn says whether a DaemonSet has a pod on a node with these labels.
func runsOn(t *testing.T, d *appsv1.DaemonSet, node words) bool {
	t.Helper()
	spec := d.Spec.Template.Spec
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(node)) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return true
	}
	operators := map[corev1.NodeSelectorOperator]selection.Operator{corev1.NodeSelectorOpIn: selection.In,
		corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return slices.ContainsFunc(required.NodeSelectorTerms,
		func(term corev1.NodeSelectorTerm) bool {
			for _, e := range term.MatchExpressions {
				r, err := labels.NewRequirement(e.Key, operators[e.Operator], e.Values)
				if err != nil {
					t.Fatal(err)
				}
				if !r.Matches(labels.Set(node)) {
					return false
				}
			}
			return true
		})
}

const canaries = `
config: {reclaim: {mode: observe, reserve: 2}, memory: strict}
canary: {nodeLabel: quietcore.dev/canary, reclaim: {mode: enforce, evict: true}, suppression: {threshold: 50}}
`

// Each node that the chart was to have a daemon on has one of the two, by its label, whatever else
// chooses nodes.
func TestEveryNodeHasOneDaemon(t *testing.T) {
	nodes := []words{{}, {"zone": "a"}, {"zone": "b"}, {"zone": "c"}, {"pool": "x", "zone": "a"}}
	for _, chosen := range []string{
		"{}", "nodeSelector: {pool: x}",
		"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: " +
			"[{matchExpressions: [{key: zone, operator: In, values: [a]}]}, " +
			"{matchExpressions: [{key: zone, operator: In, values: [b]}]}]}}}",
	} {
		alone, _ := first[*appsv1.DaemonSet](decode(t, render(t, Release{Values: parseValues(t, chosen)})))
		objects := decode(t, render(t, Release{Values: parseValues(t, canaries+strings.TrimPrefix(chosen, "{}"))}))
		main := named[*appsv1.DaemonSet](objects, "quietcore")
		canary := named[*appsv1.DaemonSet](objects, "quietcore-canary")
		for _, node := range nodes {
			for _, label := range []string{"", "yes", "no"} {
				at := words{}
				for k, v := range node {
					at[k] = v
				}
				if label != "" {
					at["quietcore.dev/canary"] = label
				}
				want := [2]bool{runsOn(t, alone, node) && label == "", runsOn(t, alone, node) && label != ""}
				if got := [2]bool{runsOn(t, main, at), runsOn(t, canary, at)}; got != want {
					t.Errorf("%s: on a node with labels %v the daemon and the canary run: %v, want %v", chosen, at, got,
						want)
				}
			}
		}
	}
}

// A canary differs in what it does with lending, and in nothing else.
func TestCanariesDifferInLending(t *testing.T) {
	objects := decode(t, render(t, Release{Values: parseValues(t, canaries)}))
	file := func(name string) *config.Config {
		m := named[*corev1.ConfigMap](objects, name)
		c, err := config.Parse([]byte(m.Data["config.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	main, canary := file("quietcore"), file("quietcore-canary")
	if main.Reclaim.Mode != config.SwitchObserve || canary.Reclaim.Mode != config.SwitchEnforce ||
		!canary.Reclaim.Evict || canary.Reclaim.Reserve != 2 || canary.Suppress.Threshold != 50 {
		t.Errorf("the canary has %+v and %+v, the others %+v", canary.Reclaim, canary.Suppress, main.Reclaim)
	}
	canary.Reclaim, canary.Suppress = main.Reclaim, main.Suppress
	if changes, err := config.Changes(main, canary); err != nil || len(changes) > 0 {
		t.Errorf("it differs in %v: %v", changes, err)
	}
	a := named[*appsv1.DaemonSet](objects, "quietcore")
	b := named[*appsv1.DaemonSet](objects, "quietcore-canary")
	if labels.SelectorFromSet(b.Spec.Selector.MatchLabels).Matches(labels.Set(a.Spec.Template.Labels)) {
		t.Error("the canary's DaemonSet selects the pods of the other")
	}
	if key := "quietcore.dev/restart-keys"; a.Spec.Template.Annotations[key] != b.Spec.Template.Annotations[key] {
		t.Errorf("%s differs: a change of the canary's lending would restart it, which takes it over", key)
	}
	b.Name, b.Spec.Selector, b.Spec.Template.Labels = a.Name, a.Spec.Selector, a.Spec.Template.Labels
	b.Spec.Template.Annotations = a.Spec.Template.Annotations
	b.Spec.Template.Spec.Affinity = a.Spec.Template.Spec.Affinity
	b.Spec.Template.Spec.Volumes[0] = a.Spec.Template.Spec.Volumes[0]
	checkDaemonSet(t, b)
	if one, other := summary([]runtime.Object{a}), summary([]runtime.Object{b}); one != other {
		t.Errorf("the canary may do\n%s\nthe others\n%s", other, one)
	}
}

// The rights are those that either needs, and none more.
func TestRightsOfCanaries(t *testing.T) {
	for values, want := range map[string][2]bool{
		canaries: {true, true},
		"canary: {reclaim: {mode: enforce, evict: true}}":                                      {false, false},
		"canary: {nodeLabel: a, reclaim: {mode: enforce}}":                                     {true, false},
		"canary: {nodeLabel: a, reclaim: {evict: true}}":                                       {false, false},
		"config: {reclaim: {mode: enforce}}\ncanary: {nodeLabel: a, reclaim: {evict: true}}":   {true, true},
		"config: {reclaim: {mode: enforce}}\ncanary: {nodeLabel: a, reclaim: {mode: \"off\"}}": {true, false},
	} {
		role, _ := first[*rbacv1.ClusterRole](decode(t, render(t, Release{Values: parseValues(t, values)})))
		may := func(resource string) bool {
			return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, resource)
			})
		}
		if got := [2]bool{may("nodes/status"), may("pods/status")}; got != want {
			t.Errorf("%s: may lend and evict: %v, want %v", values, got, want)
		}
	}
}

// What the daemon would refuse of a canary's keys, helm refuses.
func TestMistakesOfCanaries(t *testing.T) {
	for _, values := range []string{"canary: {reclaim: {rsik: 1}}", "canary: {reclaim: {risk: 99}}",
		"canary: {suppression: {mode: perhaps}}", "canary: {nodeLabel: \"a b\"}"} {
		if _, err := Render(chartDir, Release{Name: "quietcore", Namespace: namespace, Kubernetes: "1.36.0",
			Values: parseValues(t, values)}); err == nil {
			t.Errorf("helm takes %s", values)
		}
	}
}
