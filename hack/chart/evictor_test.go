package chart

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

const evicting = "config: {reclaim: {mode: enforce, evict: true}}"

// ofEvictor are the objects with the evictor's name.
func ofEvictor(t *testing.T, values string) (objects, its []runtime.Object) {
	t.Helper()
	objects = decode(t, render(t, Release{Values: parseValues(t, values), Kinds: monitoring}))
	for _, o := range objects {
		if nameOf(o) == "quietcore-evictor" {
			its = append(its, o)
		}
	}
	return objects, its
}

// TestEvictorIsOptional: it is there exactly where daemons may mark pods.
func TestEvictorIsOptional(t *testing.T) {
	for values, want := range map[string]int{
		"{}": 0, evicting: 10, "config: {reclaim: {mode: enforce}}": 0,
		"config: {reclaim: {mode: observe, evict: true}}":                            0,
		"config: {mode: observe, reclaim: {mode: enforce, evict: true}}":             0,
		"config: {cpi: {mode: enforce, evictAfter: 3}}":                              10,
		"canary: {nodeLabel: a, reclaim: {mode: enforce, evict: true}}":              10,
		"{rbac: {create: false}, networkPolicy: {enabled: false}, " + evicting + "}": 5,
	} {
		objects, its := ofEvictor(t, values)
		var all []string
		for _, o := range its {
			all = append(all, o.GetObjectKind().GroupVersionKind().Kind)
		}
		if len(its) != want {
			t.Errorf("%s: its objects are %v, want %d", values, all, want)
		}
		marks := slices.ContainsFunc(objects, func(o runtime.Object) bool {
			return nameOf(o) == "quietcore-own-node-evictions"
		})
		if marks != (want > 0) {
			t.Errorf("%s: a policy on marks: %t", values, marks)
		}
	}
}

// TestNobodyElseEvicts: of all service accounts only the evictor's has the right.
func TestNobodyElseEvicts(t *testing.T) {
	objects, its := ofEvictor(t, "{scheduler: {enabled: true}, "+evicting+"}")
	for _, o := range objects {
		role, ok := o.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		may := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "pods/eviction")
		})
		if may != (role.Name == "quietcore-evictor") {
			t.Errorf("%s may evict: %t", role.Name, may)
		}
	}
	role, _ := first[*rbacv1.ClusterRole](its)
	const want = "   pods: list,watch\n   pods/eviction: create\n   pods/status: patch\n  events.k8s.io events: " +
		"create,patch\n"
	if got := rights(role.Rules); got != want {
		t.Errorf("its rights are\n%s", got)
	}
	lease, _ := first[*rbacv1.Role](its)
	const leases = "  coordination.k8s.io leases: create\n  coordination.k8s.io leases: get,update " +
		"(quietcore-evictor)\n"
	if got := rights(lease.Rules); got != leases || lease.Namespace != namespace {
		t.Errorf("in %s its rights are\n%s", lease.Namespace, got)
	}
	page, err := os.ReadFile("../../docs/security/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(role.Rules, lease.Rules) {
		row := "`" + r.Resources[0] + "`: " + strings.Join(r.Verbs, ", ") + " |"
		if !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/security/scheduler.md has no row with %s", row)
		}
	}
}

// TestEvictorsPods: no rights on the node, and selectors that tell it from the others.
func TestEvictorsPods(t *testing.T) {
	objects, its := ofEvictor(t, "{scheduler: {enabled: true, image: {repository: r/s}}, metrics: {podMonitor: "+
		"{enabled: true}}, evictor: {every: 30s, burst: 1}, "+evicting+"}")
	d, _ := first[*appsv1.Deployment](its)
	spec, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	s := c.SecurityContext
	if *d.Spec.Replicas != 2 || spec.HostNetwork || len(spec.Volumes) > 0 || *s.Privileged || !*s.RunAsNonRoot ||
		*s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Add) > 0 ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("its pods are %+v", d.Spec)
	}
	if got, want := strings.Join(c.Args, " "),
		"evictor --lease=quietcore-evictor --every=30s --burst=1 --health=:9467 --metrics=:9468"; got != want ||
		!strings.HasPrefix(c.Image, "r/s:") {
		t.Errorf("it runs %s %s, want %s", c.Image, got, want)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("it is probed by %+v", p)
		}
	}
	for _, o := range objects {
		if selector := selectorOf(o); selector != nil {
			if got := selector.Matches(labels.Set(d.Spec.Template.Labels)); got != slices.Contains(its, o) {
				t.Errorf("%T %s selects its pods: %t", o, nameOf(o), got)
			}
		}
	}
}

// TestEvictorsMetricsAreScraped: without a token, which it does not ask for, and by the port that its policy opens.
func TestEvictorsMetricsAreScraped(t *testing.T) {
	const monitors = "{metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true, scheme: https, " +
		"tlsConfig: {caFile: a}, authorization: {credentials: {name: s, key: k}}}}, networkPolicy: {metricsFrom: " +
		"[{podSelector: {matchLabels: {app: prometheus}}}]}, " + evicting + "}"
	objects, its := ofEvictor(t, monitors)
	pods, _ := first[*monitoringv1.PodMonitor](its)
	services, _ := first[*monitoringv1.ServiceMonitor](its)
	service, _ := first[*corev1.Service](its)
	policy, _ := first[*networkingv1.NetworkPolicy](its)
	d, _ := first[*appsv1.Deployment](its)
	if len(pods.Spec.PodMetricsEndpoints) != 1 || len(services.Spec.Endpoints) != 1 || len(service.Spec.Ports) != 1 {
		t.Fatalf("of %d objects its monitors are %+v and %+v, its service %+v", len(objects), pods, services, service)
	}
	pod, end := pods.Spec.PodMetricsEndpoints[0], services.Spec.Endpoints[0]
	if pod.Scheme == nil || *pod.Scheme != "http" || pod.Authorization != nil || pod.TLSConfig != nil ||
		end.Scheme == nil || *end.Scheme != "http" || end.Authorization != nil || end.TLSConfig != nil {
		t.Errorf("it is scraped by %+v and %+v", pod, end)
	}
	in := policy.Spec.Ingress
	port := d.Spec.Template.Spec.Containers[0].Ports[1]
	if port.Name != end.Port || len(in) != 1 || in[0].Ports[0].Port.IntVal != port.ContainerPort ||
		service.Spec.Ports[0].Port != port.ContainerPort || len(in[0].From) != 1 {
		t.Errorf("its port is %+v, its policy %+v, its service %+v", port, in, service.Spec)
	}
}

// TestEvictionRightsAreDerived keeps what scheduler/evictor tries on a real API server.
func TestEvictionRightsAreDerived(t *testing.T) {
	out := render(t, Release{Name: "quietcore", Namespace: "quietcore", Values: parseValues(t, evicting)})
	golden(t, "testdata/evictions.yaml", out.Manifests["policy-evictions.yaml"]+"---\n"+out.Manifests["rbac.yaml"]+
		"---\n"+out.Manifests["scheduler-evictor-rbac.yaml"])
}

// TestMarks: a daemon marks pods of its own node and changes nothing else of them, and the
// evictor answers a mark and changes nothing else.
func TestMarks(t *testing.T) {
	s := newServer(t, evicting, nil)
	daemon := func(nodes ...string) user.DefaultInfo {
		return user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":quietcore",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	evictor := user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":quietcore-evictor"}
	at := metav1.NewTime(time.Unix(1e9, 0))
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	mark := corev1.PodCondition{Type: "quietcore.dev/EvictionRequested", Status: corev1.ConditionTrue, Reason: "a",
		LastTransitionTime: at}
	running := func(change func(*corev1.Pod)) *corev1.Pod {
		p := bound(pod(tenants, words{"a": "b"}, nil))
		p.Status.Phase, p.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{ready}
		change(p)
		return p
	}
	with := func(all ...corev1.PodCondition) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions = append([]corev1.PodCondition{ready}, all...) }
	}
	changed := func(change func(*corev1.PodCondition)) func(*corev1.Pod) {
		m := mark
		change(&m)
		return with(m)
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions[0].Status = "False" }
	for name, c := range map[string]struct {
		user        user.DefaultInfo
		before, now func(*corev1.Pod)
		denied      string
	}{
		"marked":     {daemon("node-a"), with(), with(mark), ""},
		"withdrawn":  {daemon("node-a"), with(mark), changed(func(m *corev1.PodCondition) { m.Status = "False" }), ""},
		"taken away": {daemon("node-a"), with(mark), with(), ""},
		"of another node": {daemon("node-b"), with(), with(mark),
			"the daemon of node node-b may not mark a pod of node node-a"},
		"of no node yet": {daemon("node-a"), func(p *corev1.Pod) { p.Spec.NodeName = "" },
			func(p *corev1.Pod) { p.Spec.NodeName = "" }, "a pod of no node"},
		"a token of no node": {user.DefaultInfo{Name: daemon("").Name}, with(), with(mark), "names no node"},
		"a token of two":     {daemon("node-a", "node-b"), with(), with(mark), "names no node"},
		"twice":              {daemon("node-a"), with(), with(mark, mark), "EvictionRequested only"},
		"another condition": {daemon("node-a"), with(), with(corev1.PodCondition{Type: "x"}),
			"EvictionRequested only"},
		"unready": {daemon("node-a"), with(), unready, "EvictionRequested only"},
		"no condition": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Status.Conditions = nil },
			"EvictionRequested only"},
		"a long message": {daemon("node-a"), with(), changed(func(m *corev1.PodCondition) {
			m.Message = strings.Repeat("x", 1025)
		}), "EvictionRequested only"},
		"its phase": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			"a condition only"},
		"its address": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" },
			"a condition only"},
		"without phase": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Status.Phase = "" }, "a condition only"},
		"its image": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" },
			"a condition only"},
		"a label": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Labels = words{"a": "c"} }, "writes nothing"},
		"an annotation": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Annotations = words{"a": "c"} },
			"writes nothing"},
		"a finalizer": {daemon("node-a"), with(), func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} },
			"writes nothing"},

		"answered": {evictor, with(mark), changed(func(m *corev1.PodCondition) {
			m.Reason, m.Message = "DisruptionBudget", "b"
		}), ""},
		"made by the evictor":  {evictor, with(), with(mark), "neither makes one"},
		"taken by the evictor": {evictor, with(mark), with(), "neither makes one"},
		"turned by the evictor": {evictor, with(mark), changed(func(m *corev1.PodCondition) { m.Status = "False" }),
			"neither makes one"},
		"moved by the evictor": {evictor, with(mark), changed(func(m *corev1.PodCondition) {
			m.LastTransitionTime = metav1.NewTime(at.Add(time.Hour))
		}), "neither makes one"},
		"the evictor and a label": {evictor, with(mark), func(p *corev1.Pod) { with(mark)(p); p.Labels = nil },
			"writes nothing"},
		"the evictor and Ready": {evictor, with(mark), func(p *corev1.Pod) {
			with(mark)(p)
			p.Status.Conditions[0].Status = "False"
		}, "EvictionRequested only"},
		"somebody else's matter": {user.DefaultInfo{Name: "system:node:node-b"}, with(mark), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
		}, ""},
	} {
		r := request{user: c.user, resource: "pods/status", operation: admission.Update, object: running(c.now),
			before: running(c.before)}
		if _, err := s.ask(r); (err != nil) != (c.denied != "") || err != nil &&
			!strings.Contains(err.Error(), c.denied) {
			t.Errorf("%s: %v, want %q", name, err, c.denied)
		}
	}
}
