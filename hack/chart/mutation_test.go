package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
)

const lending = `
config: {reclaim: {mode: enforce}}
admissionPolicies:
  batchRequests: {enabled: true, namespaceSelector: {matchLabels: {quietcore.dev/exclusive: allowed}}}
`

// documented is a client that knows Kubernetes' OpenAPI document, without which the API
// server changes no object.
type documented struct{ kubernetes.Interface }

type document struct{ discovery.DiscoveryInterfaces }

func (d documented) Discovery() discovery.DiscoveryInterfaces {
	return document{d.Interface.Discovery()}
}
func (document) OpenAPIV3() openapi.Client { return openapitest.NewEmbeddedFileClient() }

// newMutator is the API server's admission by mutating policies, with the chart's in it.
func newMutator(t *testing.T, values string) *mutating.Plugin {
	t.Helper()
	var policies []runtime.Object
	for _, o := range decode(t, render(t, Release{Values: parseValues(t, values)})) {
		switch o := o.(type) {
		case *admissionregistrationv1.MutatingAdmissionPolicy:
			completeMatch(o.Spec.MatchConstraints)
			policies = append(policies, o)
		case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
			if o.Spec.MatchResources != nil {
				completeMatch(o.Spec.MatchResources)
			}
			policies = append(policies, o)
		}
	}
	if len(policies) != 2 {
		t.Fatalf("the chart has %d objects, want a policy and its binding", len(policies))
	}
	plugin, err := mutating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	plugin.SetEnabled(true)
	start(t, plugin, policies, nil)
	return plugin
}

// resources writes down what the containers of a pod request, "name requests/limits".
func resources(p *corev1.Pod) []string {
	of := func(l corev1.ResourceList) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(l)) {
			q := l[name]
			all = append(all, strings.TrimPrefix(string(name), "quietcore.dev/")+"="+q.String())
		}
		return strings.Join(all, ",")
	}
	var all []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		all = append(all, fmt.Sprintf("%s %s/%s", c.Name, of(c.Resources.Requests), of(c.Resources.Limits)))
	}
	return all
}

// TestRequestsOfBatchPods: what a new pod of class BE requests of cpu it requests of batch-cpu instead, and nothing
// else of any pod changes.
func TestRequestsOfBatchPods(t *testing.T) {
	be := words{"koordinator.sh/qosClass": "BE"}
	list := func(pairs ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	with := func(requests, limits corev1.ResourceList) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
		}
	}
	always := corev1.ContainerRestartPolicyAlways
	plugin := newMutator(t, lending)
	for name, c := range map[string]struct {
		labels, annotations words
		namespace           string
		change              func(*corev1.Pod)
		want                []string
	}{
		"cpu": {labels: be, change: with(list("cpu", "2"), nil), want: []string{"main batch-cpu=2k/batch-cpu=2k"}},
		"thousandths": {labels: be, change: with(list("cpu", "1001m"), nil),
			want: []string{"main batch-cpu=1001/batch-cpu=1001"}},
		"every thousandth counts": {labels: be, change: with(list("cpu", "0.57"), nil),
			want: []string{"main batch-cpu=570/batch-cpu=570"}},
		"its limit goes, memory stays": {labels: be,
			change: with(list("cpu", "500m", "memory", "1Gi"), list("cpu", "4", "memory", "2Gi")),
			want:   []string{"main memory=1Gi,batch-cpu=500/memory=2Gi,batch-cpu=500"}},
		"a limit alone": {labels: be, change: with(nil, list("memory", "1Gi")),
			want: []string{"main /memory=1Gi"}},
		"nothing": {labels: be, change: func(*corev1.Pod) {}, want: []string{"main /"}},
		"of zero": {labels: be, change: with(list("cpu", "0"), nil), want: []string{"main cpu=0/"}},
		"a limit and a request of zero": {labels: be, change: with(list("cpu", "0"), list("cpu", "2")),
			want: []string{"main cpu=0/cpu=2"}},
		"batch-cpu of its own": {labels: be, change: with(list("cpu", "2", "quietcore.dev/batch-cpu", "300"),
			list("quietcore.dev/batch-cpu", "300")), want: []string{"main batch-cpu=300/batch-cpu=300"}},
		"every container": {labels: be, change: func(p *corev1.Pod) {
			with(list("cpu", "1"), nil)(p)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "none", Image: "x"}, corev1.Container{
				Name: "more", Image: "x", Resources: corev1.ResourceRequirements{Requests: list("cpu", "3")}})
			p.Spec.InitContainers = []corev1.Container{
				{Name: "first", Image: "x", Resources: corev1.ResourceRequirements{Limits: list("cpu", "4"),
					Requests: list("cpu", "4")}},
				{Name: "aside", Image: "x", RestartPolicy: &always,
					Resources: corev1.ResourceRequirements{Requests: list("cpu", "100m")}}}
		}, want: []string{"first batch-cpu=4k/batch-cpu=4k", "aside batch-cpu=100/batch-cpu=100",
			"main batch-cpu=1k/batch-cpu=1k", "none /", "more batch-cpu=3k/batch-cpu=3k"}},
		"no label of the class": {change: with(list("cpu", "2"), nil), want: []string{"main cpu=2/"}},
		"LS": {labels: words{"koordinator.sh/qosClass": "LS"}, change: with(list("cpu", "2"), nil),
			want: []string{"main cpu=2/"}},
		"another namespace": {labels: be, namespace: tenants, change: with(list("cpu", "2"), nil),
			want: []string{"main cpu=2/"}},
		"a mirror of a static pod": {labels: be, annotations: words{"kubernetes.io/config.mirror": "x"},
			change: with(list("cpu", "2"), nil), want: []string{"main cpu=2/"}},
		"cpu of the pod as a whole": {labels: be, change: func(p *corev1.Pod) {
			with(list("cpu", "1"), nil)(p)
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "2")}
		}, want: []string{"main cpu=1/"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.namespace == "" {
				c.namespace = allowed
			}
			p := pod(c.namespace, c.labels, c.annotations)
			c.change(p)
			want := p.DeepCopy()
			for range 2 { // what has been changed once stays as it is
				admit(t, plugin, p)
				if diff := cmp.Diff(c.want, resources(p)); diff != "" {
					t.Fatal(diff)
				}
			}
			p.TypeMeta = want.TypeMeta // lost in the conversions, where it is nobody's
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Resources = want.Spec.Containers[i].Resources
			}
			for i := range p.Spec.InitContainers {
				p.Spec.InitContainers[i].Resources = want.Spec.InitContainers[i].Resources
			}
			if diff := cmp.Diff(want, p); diff != "" {
				t.Errorf("changed besides: %s", diff)
			}
		})
	}
}

// admit is a request that makes a pod.
func admit(t *testing.T, plugin *mutating.Plugin, p *corev1.Pod) {
	t.Helper()
	attributes := admission.NewAttributesRecord(p, nil, schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		p.Namespace, p.Name, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", admission.Create,
		&metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "mallory"})
	if err := plugin.Admit(t.Context(), attributes,
		admission.NewObjectInterfacesFromScheme(scheme.Scheme)); err != nil {
		t.Fatal(err)
	}
}

// TestBatchRequestsAreDerived keeps what internal/lend tries on a real API server.
func TestBatchRequestsAreDerived(t *testing.T) {
	out := render(t, Release{Values: valuesOf(t, "testdata/values/lending.yaml")})
	golden(t, "testdata/batch-requests.yaml", out.Manifests["policy-batch.yaml"])
}

// TestBatchRequestsThatNobodyServes: the chart is refused where the cluster has no such
// policies, or pods would wait for a resource that no node has.
func TestBatchRequestsThatNobodyServes(t *testing.T) {
	for values, c := range map[string]struct{ kubernetes, want string }{
		lending: {"1.35.2", "Kubernetes is v1.35.2; MutatingAdmissionPolicy needs 1.36"},
		"admissionPolicies: {batchRequests: {enabled: true}}": {"1.36.0", "set config.reclaim.mode to enforce"},
	} {
		_, err := Render(chartDir, Release{Name: "quietcore", Namespace: namespace, Kubernetes: c.kubernetes,
			Values: parseValues(t, values)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %s: %v, want %q", values, c.kubernetes, err, c.want)
		}
	}
	canaries := strings.Replace(lending, "config:", "canary: {nodeLabel: a, reclaim: {mode: enforce}}\nconfig:", 1)
	canaries = strings.Replace(canaries, "{reclaim: {mode: enforce}}\nadm", "{}\nadm", 1)
	render(t, Release{Values: parseValues(t, canaries)})
}
