package chart

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/quietcore/quietcore/policy"
)

// grants is an authorizer with a list of permissions: "user verb resource.group
// namespace".
type grants []string

func (g grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := fmt.Sprintf("%s %s %s.%s %s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetAPIGroup(),
		a.GetNamespace())
	if slices.Contains(g, asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (g grants) ConditionsAwareAuthorize(ctx context.Context,
	a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(g.Authorize(ctx, a))
}

func (grants) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// server is the API server's admission by policies, the real one, with the chart's
// policies in it.
type server struct {
	t      *testing.T
	plugin *validating.Plugin
}

const tenants, allowed = "tenants", "trusted"

func newServer(t *testing.T, values string, g grants) *server {
	t.Helper()
	var policies []runtime.Object
	for _, o := range decode(t, render(t, Release{Values: parseValues(t, values)})) {
		switch o := o.(type) {
		case *admissionregistrationv1.ValidatingAdmissionPolicy:
			completeMatch(o.Spec.MatchConstraints)
			policies = append(policies, o)
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			policies = append(policies, o)
		}
	}
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	start(t, plugin, policies, g)
	return &server{t: t, plugin: plugin}
}

// start gives an admission plugin what it needs, and waits until the policies are in force.
func start(t *testing.T, plugin interface {
	admission.Interface
	admission.InitializationValidator
	WaitForReady() bool
}, policies []runtime.Object, g grants) {
	t.Helper()
	client := fake.NewClientset(append(policies,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenants,
			Labels: map[string]string{"quietcore.dev/Exclusive": "allowed", "quietcore.dev/system": "Allowed"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: allowed, Labels: map[string]string{
			"quietcore.dev/exclusive": "allowed", "quietcore.dev/system": "allowed",
			"quietcore.dev/cap-exempt": "allowed", "quietcore.dev/whole-cores": "allowed",
			"quietcore.dev/numa-exclusive": "allowed", "quietcore.dev/unmanaged": "allowed",
			"quietcore.dev/without-request": "allowed", "quietcore.dev/isolated-cpus": "allowed"}}})...)
	factory := informers.NewSharedInformerFactory(client, 0)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.Scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	mapper.Add(schema.GroupVersionKind{Group: "topology.node.k8s.io", Version: "v1alpha2",
		Kind: "NodeResourceTopology"}, meta.RESTScopeRoot)
	for _, kind := range []string{"QuietcoreTurn", "QuietcoreNode"} {
		mapper.Add(schema.GroupVersionKind{Group: "quietcore.dev", Version: "v1alpha1", Kind: kind}, meta.RESTScopeRoot)
	}
	initializer.New(documented{client}, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), factory, g,
		utilfeature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), ctx.Done(),
		mapper).Initialize(plugin)
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !plugin.WaitForReady() {
		t.Fatal("the policies are not ready")
	}
}

// completeMatch sets what the API server does when it stores a policy.
func completeMatch(m *admissionregistrationv1.MatchResources) {
	equivalent, all := admissionregistrationv1.Equivalent, admissionregistrationv1.AllScopes
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	m.ObjectSelector, m.MatchPolicy = &metav1.LabelSelector{}, &equivalent
	for i := range m.ResourceRules {
		m.ResourceRules[i].Scope = &all
	}
}

// What a pod's requests do not pay for, in every way that it can be asked for: refused in
// a namespace without the label, allowed in one with it, and open where the profile is.
func TestWhoMayAskForMoreThanItRequests(t *testing.T) {
	class := func(name string) words { return words{"koordinator.sh/qosClass": name} }
	numa := "scheduling.koordinator.sh/numa-topology-spec"
	node := words{"scheduling.koordinator.sh/resource-spec": `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`}
	requesting := func(p *corev1.Pod, cpu string) *corev1.Pod {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return p
	}
	servers := map[string]*server{}
	for profile, file := range map[string]string{
		"default": "", "open": "config: {authority: {profile: open}}\n",
		"listed":     "config: {authority: {profile: open, wholeCores: {namespaces: [x]}}}\n",
		"configured": "config: {allocation: {smt: isolate, exclusiveRequired: true}}\n",
	} {
		servers[profile] = newServer(t, closed+file, grants{
			"system:serviceaccount:tenants:granted claim exclusivecpus.quietcore.dev tenants",
			"system:serviceaccount:tenants:app claim exclusivecpus.quietcore.dev tenants",
			"system:serviceaccount:tenants:granted claim wholecores.quietcore.dev tenants"})
	}
	smt := func(of, word, cpus string) func(string) *corev1.Pod {
		return func(ns string) *corev1.Pod {
			return requesting(pod(ns, class(of), words{"quietcore.dev/smt": word}), cpus)
		}
	}
	granted := func(p *corev1.Pod) *corev1.Pod { p.Spec.ServiceAccountName = "granted"; return p }
	for name, c := range map[string]struct {
		server string
		pod    func(namespace string) *corev1.Pod
		denied string // in a namespace without labels; empty: allowed
	}{
		"isolate":           {"default", smt("LSE", "isolate", "2"), "keep siblings idle"},
		"roundup":           {"default", smt("LSR", "roundup", "1"), "claim wholecores.quietcore.dev"},
		"align is paid for": {"default", smt("LSR", "align", "2"), ""},
		"by the service account": {"default", func(ns string) *corev1.Pod {
			return granted(requesting(pod(ns, class("LSR"), words{"quietcore.dev/smt": "roundup"}), "1"))
		}, ""},
		"isolated CPUs": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, class("LSR"), words{"quietcore.dev/isolated-cpus": "required"}), "2")
		}, "claim isolatedcpus.quietcore.dev"},
		"isolated CPUs, open": {"open", func(ns string) *corev1.Pod {
			return requesting(pod(ns, class("LSE"), words{"quietcore.dev/isolated-cpus": "required"}), "2")
		}, "own CPUs that the kernel isolates"},
		"isolated CPUs that mean nothing": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, nil, words{"quietcore.dev/isolated-cpus": "required"}), "2")
		}, ""},
		"open":                 {"open", smt("LSE", "isolate", "2"), ""},
		"open, and listed":     {"listed", smt("LSE", "isolate", "2"), "keep siblings idle"},
		"configured for all":   {"configured", smt("LSE", "isolate", "2"), ""},
		"the other one is not": {"configured", smt("LSE", "roundup", "2"), "keep siblings idle"},
		"a demand for a node": {"configured", func(ns string) *corev1.Pod {
			return requesting(pod(ns, class("LSE"), node), "2")
		}, "keep other pods off"},
		"a wish for a node": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, class("LSE"), node), "2")
		}, ""},
		"Required": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, nil, words{numa: `{"singleNUMANodeExclusive":"Required"}`}), "1m")
		}, "keep other pods off its NUMA nodes"},
		"Required, escaped": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, nil, words{numa: `{"SINGLENUMANODEEXCLUSIVE":"\u0052equired"}`}), "1m")
		}, "keep other pods off its NUMA nodes"},
		"Preferred": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, nil, words{numa: `{"singleNUMANodeExclusive":"Preferred"}`}), "1m")
		}, ""},
		"unmanaged": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, nil, words{"quietcore.dev/managed": "false"}), "1")
		}, "leave pods unmanaged"},
		"LS without requests": {"default", func(ns string) *corev1.Pod { return pod(ns, class("LS"), nil) },
			"use class LS for BestEffort pods"},
		"LS that requests nothing in words": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, class("LS"), nil), "0")
		}, "use class LS for BestEffort pods"},
		"LS that requests": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, class("LS"), nil), "1m")
		}, ""},
		"a cap that is allowed": {"default", func(ns string) *corev1.Pod {
			return requesting(pod(ns, nil, words{"quietcore.dev/cap": "allow"}), "1")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := servers[c.server]
			_, err := s.ask(request{resource: "pods", object: c.pod(tenants)})
			if (err != nil) != (c.denied != "") || err != nil && !strings.Contains(err.Error(), c.denied) {
				t.Errorf("got %v, want %q", err, c.denied)
			}
			if _, err := s.ask(request{resource: "pods", object: c.pod(allowed)}); err != nil {
				t.Errorf("with labels: %v", err)
			}
			// A template's words become those of pods, which a controller creates: both are seen.
			template := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
				ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: tenants}}
			template.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: c.pod(tenants).ObjectMeta,
				Spec: c.pod(tenants).Spec}
			warned, err := s.ask(request{resource: "deployments.apps", object: template})
			if all := strings.Join(warned, "\n"); err != nil || (all != "") != (c.denied != "") ||
				!strings.Contains(all, c.denied) {
				t.Errorf("in a template: warned of %q, %v; want %q", all, err, c.denied)
			}
			controller := user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller",
				Groups: []string{"system:serviceaccounts", "system:authenticated"}}
			_, err = s.ask(request{user: controller, resource: "pods", object: c.pod(tenants)})
			if (err != nil) != (c.denied != "") || err != nil && !strings.Contains(err.Error(), c.denied) {
				t.Errorf("by a controller: got %v, want %q", err, c.denied)
			}
			edited := c.pod(tenants)
			edited.Annotations = words{"a": "b"}
			for k, v := range c.pod(tenants).Annotations {
				edited.Annotations[k] = v
			}
			r := request{resource: "pods", operation: admission.Update, object: edited, before: c.pod(tenants)}
			if _, err := s.ask(r); err != nil {
				t.Errorf("edited otherwise: %v", err)
			}
		})
	}
}

// request is what comes to the API server.
type request struct {
	user           user.DefaultInfo
	resource       string // "pods", "pods/status", "deployments.apps"
	operation      admission.Operation
	object, before runtime.Object
}

type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) AddWarning(_, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (s *server) ask(r request) (warned []string, refused error) {
	s.t.Helper()
	if r.user.Name == "" {
		r.user = user.DefaultInfo{Name: "mallory", Groups: []string{"system:authenticated"}}
	}
	if r.operation == "" {
		r.operation = admission.Create
	}
	path, sub, _ := strings.Cut(r.resource, "/")
	resource, group, _ := strings.Cut(path, ".")
	subject := r.object
	if subject == nil {
		subject = r.before
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(subject)
	gvk := subject.GetObjectKind().GroupVersionKind()
	if err == nil {
		gvk = kinds[0]
	}
	m, err := meta.Accessor(subject)
	if err != nil {
		s.t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Group: group, Version: gvk.Version, Resource: resource}
	attributes := admission.NewAttributesRecord(r.object, r.before, gvk, m.GetNamespace(), m.GetName(), gvr, sub,
		r.operation, nil, false, &r.user)
	var w warnings
	ctx := warning.WithWarningRecorder(context.Background(), &w)
	refused = s.plugin.Validate(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	return w.text, refused
}

type words = map[string]string

func pod(namespace string, labels, annotations words) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{ServiceAccountName: "app",
			Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}
}

func bound(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = "node-a"
	return p
}

func lse() words { return words{"koordinator.sh/qosClass": "LSE"} }

const scheduler = "system:serviceaccount:koordinator-system:koord-scheduler"

const closed = `
admissionPolicies:
  schedulers: ["` + scheduler + `"]
  claims: {enabled: true}
  frozen: {enabled: true}
`

func TestWhoMayClaim(t *testing.T) {
	asScheduler := user.DefaultInfo{Name: scheduler}
	asKubelet := user.DefaultInfo{Name: "system:node:node-a", Groups: []string{"system:nodes", "system:authenticated"}}
	asController := user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller"}
	status := words{"scheduling.koordinator.sh/resource-status": `{"cpuset":"0-3"}`}
	annotated := func(p *corev1.Pod, k, v string) *corev1.Pod {
		p = p.DeepCopy()
		if p.Annotations == nil {
			p.Annotations = words{}
		}
		p.Annotations[k] = v
		return p
	}
	ephemeral := bound(pod(tenants, lse(), nil))
	ephemeral.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x"}}}
	ending := pod(tenants, lse(), nil)
	ending.DeletionTimestamp = &metav1.Time{}
	ending.DeletionTimestamp.Time = ending.DeletionTimestamp.Add(1)
	noAccount := pod(tenants, lse(), nil)
	noAccount.Spec.ServiceAccountName = ""
	template := func(labels, annotations words) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
			Spec: corev1.PodSpec{ServiceAccountName: "app"}}
	}
	deployment := func(ns string, own, labels, annotations words) *appsv1.Deployment {
		return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: ns, Labels: own, Annotations: own},
			Spec:       appsv1.DeploymentSpec{Template: template(labels, annotations)}}
	}
	cronjob := &batchv1.CronJob{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: tenants}}
	cronjob.Spec.JobTemplate.Spec.Template = template(lse(), nil)
	binding := func(labels, annotations words) *corev1.Binding {
		return &corev1.Binding{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: tenants, Labels: labels, Annotations: annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "node-a"}}
	}
	s := newServer(t, closed, grants{
		"system:serviceaccount:tenants:granted claim exclusivecpus.quietcore.dev tenants",
		"mallory claim exclusivecpus.quietcore.dev tenants", // what the *user* may do is no matter
	})
	granted := pod(tenants, lse(), nil)
	granted.Spec.ServiceAccountName = "granted"
	for name, c := range map[string]struct {
		r      request
		denied string // a part of the message; empty: allowed
		warned string
	}{
		"an ordinary pod": {r: request{resource: "pods", object: pod(tenants, nil, nil)}},
		"LS and BE are everybody's": {r: request{resource: "pods",
			object: pod(tenants, words{"koordinator.sh/qosClass": "BE"}, nil)}},
		"LSE without the label": {r: request{resource: "pods", object: pod(tenants, lse(), nil)},
			denied: "namespace tenants may not claim exclusive CPUs (class LSE): label the namespace " +
				"quietcore.dev/exclusive: allowed, or let the service account app claim exclusivecpus.quietcore.dev"},
		"LSR without the label": {r: request{resource: "pods",
			object: pod(tenants, words{"koordinator.sh/qosClass": "LSR"}, nil)}, denied: "exclusive CPUs"},
		"LSE with the label":         {r: request{resource: "pods", object: pod(allowed, lse(), nil)}},
		"LSE by the service account": {r: request{resource: "pods", object: granted}},
		"no service account yet": {r: request{resource: "pods", object: noAccount},
			denied: "service account default"},
		"through a controller": {r: request{user: asController, resource: "pods",
			object: pod(tenants, lse(), nil)}, denied: "exclusive CPUs"},
		"class in another case": {r: request{resource: "pods",
			object: pod(tenants, words{"koordinator.sh/qosClass": "lse"}, nil)},
			denied: "must be LSE, LSR, LS, BE or SYSTEM"},
		"key in another case is nobody's": {r: request{resource: "pods",
			object: pod(tenants, words{"koordinator.sh/QosClass": "LSE"}, nil)}},
		"the class as an annotation": {r: request{resource: "pods", object: pod(tenants, nil, lse())}},
		"SYSTEM": {r: request{resource: "pods",
			object: pod(tenants, words{"koordinator.sh/qosClass": "SYSTEM"}, nil)}, denied: "may not use class SYSTEM"},
		"SYSTEM with the label": {r: request{resource: "pods",
			object: pod(allowed, words{"koordinator.sh/qosClass": "SYSTEM"}, nil)}},
		"exempt from caps": {r: request{resource: "pods",
			object: pod(tenants, nil, words{"quietcore.dev/cap": "exempt"})}, denied: "be exempt from caps"},
		"exempt with the label": {r: request{resource: "pods",
			object: pod(allowed, nil, words{"quietcore.dev/cap": "exempt"})}},
		"a forged resource-status": {r: request{resource: "pods", object: pod(tenants, nil, status)},
			denied: "only schedulers do"},
		"forged in a trusted namespace": {r: request{resource: "pods", object: pod(allowed, lse(), status)},
			denied: "only schedulers do"},
		"resource-status by the scheduler": {r: request{user: asScheduler, resource: "pods",
			operation: admission.Update, object: pod(tenants, nil, status), before: pod(tenants, nil, nil)}},
		"a name that only resembles": {r: request{user: user.DefaultInfo{Name: scheduler + "x"},
			resource: "pods", object: pod(tenants, nil, status)}, denied: "only schedulers do"},
		"a mirror pod by kubelet": {r: request{user: asKubelet, resource: "pods",
			object: bound(pod(tenants, lse(), words{"kubernetes.io/config.mirror": "x"}))}},
		"a mirror pod that is none": {r: request{resource: "pods",
			object: pod(tenants, lse(), words{"kubernetes.io/config.mirror": "x"})}, denied: "exclusive CPUs"},
		"changed before it is bound": {r: request{resource: "pods", operation: admission.Update,
			object: pod(tenants, lse(), nil), before: pod(tenants, nil, nil)}, denied: "exclusive CPUs"},
		"what was allowed once can be edited": {r: request{resource: "pods", operation: admission.Update,
			object: annotated(pod(tenants, lse(), nil), "a", "b"), before: pod(tenants, lse(), nil)}},
		"from LSR to LSE": {r: request{resource: "pods", operation: admission.Update,
			object: pod(tenants, lse(), nil), before: pod(tenants, words{"koordinator.sh/qosClass": "LSR"}, nil)},
			denied: "exclusive CPUs"},
		"through the status, unbound": {r: request{resource: "pods/status", operation: admission.Update,
			object: pod(tenants, lse(), nil), before: pod(tenants, nil, nil)}, denied: "exclusive CPUs"},
		"finalizers of a pod that ends": {r: request{resource: "pods", operation: admission.Update, object: ending,
			before: pod(tenants, nil, nil)}},

		"bound, class added": {r: request{resource: "pods", operation: admission.Update,
			object: bound(pod(allowed, lse(), nil)), before: bound(pod(allowed, nil, nil))},
			denied: "the pod is on node node-a and its koordinator.sh/qosClass can no longer be changed"},
		"bound, class removed": {r: request{resource: "pods", operation: admission.Update,
			object: bound(pod(allowed, nil, nil)), before: bound(pod(allowed, lse(), nil))},
			denied: "can no longer be changed"},
		"bound, through the status": {r: request{resource: "pods/status", operation: admission.Update,
			object: bound(pod(allowed, nil, words{"quietcore.dev/smt": "isolate"})),
			before: bound(pod(allowed, nil, nil))}, denied: "quietcore.dev/smt"},
		"bound, opts out": {r: request{resource: "pods", operation: admission.Update,
			object: bound(pod(tenants, nil, words{"quietcore.dev/managed": "false"})),
			before: bound(pod(tenants, nil, nil))}, denied: "quietcore.dev/managed"},
		"bound, other annotations": {r: request{resource: "pods", operation: admission.Update,
			object: bound(pod(tenants, nil, words{"a": "b"})), before: bound(pod(tenants, nil, nil))}},
		"bound, by the scheduler": {r: request{user: asScheduler, resource: "pods",
			operation: admission.Update, object: bound(pod(tenants, nil, status)),
			before: bound(pod(tenants, nil, nil))}},
		"an ephemeral container changes nothing": {r: request{resource: "pods/ephemeralcontainers",
			operation: admission.Update, object: ephemeral, before: bound(pod(tenants, lse(), nil))}},
		"a resize changes nothing": {r: request{resource: "pods/resize", operation: admission.Update,
			object: bound(pod(tenants, lse(), nil)), before: bound(pod(tenants, lse(), nil))}},
		"a resize that edits too": {r: request{resource: "pods/resize", operation: admission.Update,
			object: bound(pod(tenants, lse(), nil)), before: bound(pod(tenants, nil, nil))}, denied: "no"},

		"a binding": {r: request{resource: "pods/binding", object: binding(nil, nil)}},
		"a binding that brings CPUs": {r: request{resource: "pods/binding", object: binding(nil, status)},
			denied: "by binding it"},
		"a binding that brings a class": {r: request{resource: "pods/binding", object: binding(lse(), nil)},
			denied: "by binding it"},
		"the old resource for bindings": {r: request{resource: "bindings", object: binding(nil, status)},
			denied: "by binding it"},
		"a binding by the scheduler": {r: request{user: asScheduler, resource: "pods/binding",
			object: binding(nil, status)}},

		"a workload is warned": {r: request{resource: "deployments.apps",
			object: deployment(tenants, nil, lse(), nil)}, warned: "may not claim exclusive CPUs"},
		"a workload's own words are nobody's": {r: request{resource: "deployments.apps",
			object: deployment(tenants, lse(), nil, nil)}},
		"a workload with the label": {r: request{resource: "deployments.apps",
			object: deployment(allowed, nil, lse(), nil)}},
		"a template with resource-status": {r: request{resource: "deployments.apps",
			object: deployment(allowed, nil, nil, status)}, warned: "only schedulers write it"},
		"a cron job": {r: request{resource: "cronjobs.batch", object: cronjob}, warned: "may not claim exclusive CPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			warned, err := s.ask(c.r)
			switch {
			case c.denied == "" && err != nil:
				t.Errorf("denied: %v", err)
			case c.denied != "" && (err == nil || !strings.Contains(err.Error(), c.denied)):
				t.Errorf("got %v, want a denial with %q", err, c.denied)
			}
			if all := strings.Join(warned, "\n"); c.warned == "" && all != "" || !strings.Contains(all, c.warned) {
				t.Errorf("warnings %q, want %q", all, c.warned)
			}
		})
	}
}

func TestWorkloadsCanBeDenied(t *testing.T) {
	d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: tenants}}
	d.Spec.Template.Labels = lse()
	for mode, want := range map[string]bool{"Deny": true, "Ignore": false} {
		s := newServer(t, strings.ReplaceAll(closed, "claims: {enabled: true}", "claims: {enabled: true, workloads: "+
			mode+"}"), nil)
		warned, err := s.ask(request{resource: "deployments.apps", object: d})
		if (err != nil) != want || len(warned) > 0 {
			t.Errorf("%s: %v, %q", mode, err, warned)
		}
	}
}

// TestOnlyLabelsWhereTheAuthorizerIsOff: then no permission helps.
func TestOnlyLabelsWhereTheAuthorizerIsOff(t *testing.T) {
	s := newServer(t, strings.ReplaceAll(closed, "claims: {enabled: true}",
		"claims: {enabled: true, authorizer: false}"),
		grants{"system:serviceaccount:tenants:app claim exclusivecpus.quietcore.dev tenants"})
	_, err := s.ask(request{resource: "pods", object: pod(tenants, lse(), nil)})
	if err == nil || strings.Contains(err.Error(), "service account") {
		t.Errorf("got %v, want a denial that names the label alone", err)
	}
}

// TestADaemonWritesItsOwnNode: the token of a pod says on which node it is.
func TestADaemonWritesItsOwnNode(t *testing.T) {
	s := newServer(t, "{}", nil)
	daemon := "system:serviceaccount:" + namespace + ":quietcore"
	on := func(nodes ...string) map[string][]string {
		return map[string][]string{"authentication.kubernetes.io/node-name": nodes,
			"authentication.kubernetes.io/pod-name": {"q"}}
	}
	topology := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "topology.node.k8s.io/v1alpha2",
			"kind": "NodeResourceTopology", "metadata": map[string]any{"name": name}}}
	}
	for name, c := range map[string]struct {
		user   user.DefaultInfo
		node   string
		denied string
	}{
		"its own": {user.DefaultInfo{Name: daemon, Extra: on("node-a")}, "node-a", ""},
		"another's": {user.DefaultInfo{Name: daemon, Extra: on("node-a")}, "node-b",
			"the daemon of node node-a may not write the NodeResourceTopology of node-b"},
		"a token of no node": {user.DefaultInfo{Name: daemon}, "node-a", "names no node"},
		"a token of no node, other extras": {user.DefaultInfo{Name: daemon, Extra: map[string][]string{"x": {"y"}}},
			"node-a", "names no node"},
		"a token of two": {user.DefaultInfo{Name: daemon, Extra: on("node-b", "node-a")}, "node-a",
			"names no node"},
		"somebody else's matter": {user.DefaultInfo{Name: "system:serviceaccount:node-feature-discovery:nfd"},
			"node-a", ""},
	} {
		for _, r := range []request{
			{operation: admission.Create, object: topology(c.node)},
			{operation: admission.Update, object: topology(c.node), before: topology(c.node)},
			{operation: admission.Delete, before: topology(c.node)},
		} {
			r.user, r.resource = c.user, "noderesourcetopologies.topology.node.k8s.io"
			if _, err := s.ask(r); (err != nil) != (c.denied != "") || err != nil &&
				!strings.Contains(err.Error(), c.denied) {
				t.Errorf("%s, %s: %v, want %q", name, r.operation, err, c.denied)
			}
		}
	}
}

// TestADaemonWritesItsOwnEvents: a daemon writes Events in the name of no other node, and changes no others.
func TestADaemonWritesItsOwnEvents(t *testing.T) {
	s := newServer(t, "{}", nil)
	daemon := func(nodes ...string) user.DefaultInfo {
		return user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":quietcore",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	event := func(instance, kind, name string) *eventsv1.Event {
		return &eventsv1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
			ObjectMeta:        metav1.ObjectMeta{Namespace: tenants, Name: "e"},
			ReportingInstance: instance, Regarding: corev1.ObjectReference{Kind: kind, Name: name}}
	}
	long := strings.Repeat("n", 200)
	own := event("quietcore-node-a", "Pod", "p")
	for name, c := range map[string]struct {
		user       user.DefaultInfo
		event, was *eventsv1.Event
		denied     string
	}{
		"its own":            {daemon("node-a"), own, own, ""},
		"of its Node":        {daemon("node-a"), event("quietcore-node-a", "Node", "node-a"), own, ""},
		"another's":          {daemon("node-b"), own, own, "of another reportingInstance than quietcore-node-b"},
		"of another Node":    {daemon("node-a"), event("quietcore-node-a", "Node", "node-b"), own, "of another Node"},
		"taken over":         {daemon("node-a"), own, event("kubelet", "Pod", "p"), "of another reportingInstance"},
		"given away":         {daemon("node-a"), event("kubelet", "Pod", "p"), own, "of another reportingInstance"},
		"nobody's":           {daemon("node-a"), event("", "Pod", "p"), own, "of another reportingInstance"},
		"a token of no node": {user.DefaultInfo{Name: daemon("").Name}, own, own, "names no node"},
		"a long name, cut": {daemon(long), event("quietcore-"+long[:118], "Pod", "p"),
			event("quietcore-"+long[:118], "Pod", "p"), ""},
		"a long name, cut short": {daemon(long), event("quietcore-n", "Pod", "p"), own, "of another reportingInstance"},
		"somebody else's matter": {user.DefaultInfo{Name: "system:node:node-b"}, own, own, ""},
	} {
		requests := []request{{operation: admission.Update, object: c.event, before: c.was}}
		if name != "taken over" {
			requests = append(requests, request{operation: admission.Create, object: c.event})
		}
		for _, r := range requests {
			r.user, r.resource = c.user, "events.events.k8s.io"
			if _, err := s.ask(r); (err != nil) != (c.denied != "") || err != nil &&
				!strings.Contains(err.Error(), c.denied) {
				t.Errorf("%s, %s: %v, want %q", name, r.operation, err, c.denied)
			}
		}
	}
}

// TestADaemonLendsItsOwnNode: of a Node's status the daemon of that node writes what
// is lent, and nothing else of any Node.
func TestADaemonLendsItsOwnNode(t *testing.T) {
	s := newServer(t, "config: {reclaim: {mode: enforce}}", nil)
	daemon := func(nodes ...string) user.DefaultInfo {
		return user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":quietcore",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: words{"zone": "z"}},
			Status: corev1.NodeStatus{
				Capacity:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
				Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")},
			},
		}
		change(n)
		return n
	}
	lend := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Capacity[corev1.ResourceName(name)] = resource.MustParse("4k")
			n.Status.Allocatable[corev1.ResourceName(name)] = resource.MustParse("4k")
			n.Annotations = words{"quietcore.dev/lending": "{}"}
		}
	}
	for name, c := range map[string]struct {
		user   user.DefaultInfo
		change func(*corev1.Node)
		denied string
	}{
		"its own":            {daemon("node-a"), lend("quietcore.dev/batch-cpu"), ""},
		"Koordinator's name": {daemon("node-a"), lend("kubernetes.io/batch-cpu"), ""},
		"another's":          {daemon("node-b"), lend("quietcore.dev/batch-cpu"), "may not write Node node-a"},
		"a token of no node": {user.DefaultInfo{Name: daemon("").Name}, lend("quietcore.dev/batch-cpu"),
			"names no node"},
		"another resource": {daemon("node-a"), lend("nvidia.com/gpu"), "batch-cpu only"},
		"its CPUs": {daemon("node-a"), func(n *corev1.Node) {
			n.Status.Capacity[corev1.ResourceCPU] = resource.MustParse("9")
		}, "batch-cpu only"},
		"without CPUs": {daemon("node-a"), func(n *corev1.Node) {
			delete(n.Status.Allocatable, corev1.ResourceCPU)
		}, "batch-cpu only"},
		"another annotation": {daemon("node-a"), func(n *corev1.Node) {
			n.Annotations = words{"a": "b"}
		}, "the annotation quietcore.dev/lending only"},
		"a label": {daemon("node-a"), func(n *corev1.Node) {
			n.Labels["zone"] = "y"
		}, "the annotation quietcore.dev/lending only"},
		"a condition": {daemon("node-a"), func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
		}, "capacity and allocatable only"},
		"somebody else's matter": {user.DefaultInfo{Name: "system:node:node-a"}, func(n *corev1.Node) {
			n.Labels["zone"] = "y"
		}, ""},
	} {
		r := request{user: c.user, resource: "nodes/status", operation: admission.Update, object: node(c.change),
			before: node(func(*corev1.Node) {})}
		if _, err := s.ask(r); (err != nil) != (c.denied != "") || err != nil &&
			!strings.Contains(err.Error(), c.denied) {
			t.Errorf("%s: %v, want %q", name, err, c.denied)
		}
	}
}

// TestThePoliciesKnowEveryKey: a key that the daemon reads of a pod and that the
// policies do not know would be a way around them.
func TestThePoliciesKnowEveryKey(t *testing.T) {
	s := newServer(t, closed, nil)
	keys := podKeys(t)
	if len(keys) < 6 || !slices.Contains(keys, policy.LabelClass) {
		t.Fatalf("found only %v", keys)
	}
	for _, k := range keys {
		before, after := bound(pod(allowed, nil, nil)), bound(pod(allowed, nil, words{k: "x"}))
		if _, err := s.ask(request{resource: "pods", operation: admission.Update, object: after,
			before: before}); err == nil {
			t.Errorf("annotation %s can be changed on a bound pod; add it to quietcore.podKeys in _helpers.tpl", k)
		}
	}
}

// podKeys finds the constants of package policy that name what is read of a pod.
func podKeys(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../policy/intent.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		name := v.Names[0].Name
		text, ok := v.Values[0].(*ast.BasicLit)
		if !ok || !strings.HasPrefix(name, "Ann") && name != "LabelClass" {
			return true
		}
		key, err := strconv.Unquote(text.Value)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
		return true
	})
	return keys
}
