package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// ofScheduler is what the chart makes with the scheduler and does not make without it.
func ofScheduler(t *testing.T, values string) (objects, added []runtime.Object) {
	t.Helper()
	objects = decode(t, render(t, Release{Values: parseValues(t, values), Kinds: monitoring}))
	without := byName(t, decode(t, render(t, Release{Kinds: monitoring, Values: parseValues(t,
		strings.Replace(values, "scheduler: {enabled: true", "scheduler: {enabled: false", 1))})))
	for id := range byName(t, objects) {
		if without[id] != nil {
			continue
		}
		for _, o := range objects {
			if byName(t, []runtime.Object{o})[id] != nil {
				added = append(added, o)
			}
		}
	}
	return objects, added
}

const withScheduler = "{scheduler: {enabled: true}, networkPolicy: {enabled: true}, admissionPolicies: {frozen: " +
	"{enabled: true}}, metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}, rules: {enabled: true}}}"

// TestSchedulerIsOptional: what it adds is its own, and nothing of it without.
func TestSchedulerIsOptional(t *testing.T) {
	_, added := ofScheduler(t, withScheduler)
	var got []string
	for id, o := range byName(t, added) {
		if !strings.HasSuffix(id, "/quietcore-scheduler") {
			t.Errorf("%s has another's name", id)
		}
		got = append(got, o.GetKind())
	}
	slices.Sort(got)
	want := []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "NetworkPolicy",
		"PodDisruptionBudget", "PodMonitor", "Role", "RoleBinding", "Service", "ServiceAccount", "ServiceMonitor"}
	if !slices.Equal(got, want) {
		t.Errorf("the scheduler is %v, want %v", got, want)
	}
}

// TestSchedulersPods: no rights on the node, none of them on the daemon's terms, and selectors
// that tell the two apart.
func TestSchedulersPods(t *testing.T) {
	objects, added := ofScheduler(t, withScheduler)
	d, ok := first[*appsv1.Deployment](added)
	if !ok {
		t.Fatal("no Deployment")
	}
	spec := d.Spec.Template.Spec
	if *d.Spec.Replicas != 2 || len(spec.TopologySpreadConstraints) != 1 || spec.HostNetwork || spec.HostPID ||
		len(spec.Volumes) != 1 || spec.Volumes[0].ConfigMap == nil {
		t.Errorf("the pods are %+v", d.Spec)
	}
	c := spec.Containers[0]
	s := c.SecurityContext
	if *s.Privileged || !*s.RunAsNonRoot || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("its container has %+v", s)
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p == nil || p.HTTPGet.Scheme != corev1.URISchemeHTTPS || p.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("it is probed by %+v", p)
		}
	}
	daemon, _ := first[*appsv1.DaemonSet](objects)
	pods := map[string]labels.Set{"daemon": daemon.Spec.Template.Labels, "scheduler": d.Spec.Template.Labels}
	for _, o := range objects {
		whose := "daemon"
		if slices.Contains(added, o) {
			whose = "scheduler"
		}
		selector := selectorOf(o)
		if selector == nil {
			continue
		}
		for name, l := range pods {
			if got := selector.Matches(l); got != (name == whose) {
				t.Errorf("a %T of the %s, %s, selects the %s: %v", o, whose, selector, name, got)
			}
		}
	}
}

// selectorOf is how an object finds its pods; nil: it has none.
func selectorOf(o runtime.Object) labels.Selector {
	var s *metav1.LabelSelector
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		s = o.Spec.Selector
	case *appsv1.Deployment:
		s = o.Spec.Selector
	case *networkingv1.NetworkPolicy:
		s = &o.Spec.PodSelector
	case *policyv1.PodDisruptionBudget:
		s = o.Spec.Selector
	case *monitoringv1.PodMonitor:
		s = &o.Spec.Selector
	case *monitoringv1.ServiceMonitor:
		s = &o.Spec.Selector // of the Service, which has the labels of its pods
	case *corev1.Service:
		return labels.SelectorFromSet(o.Spec.Selector)
	default:
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// TestSchedulersRights: those of files/scheduler-rules.yaml, which the scheduler's own scenarios
// are played with, and a lease by its name.
func TestSchedulersRights(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "files/scheduler-rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/security/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		for _, word := range slices.Concat(r.Resources, r.Verbs, r.APIGroups) {
			if strings.Contains(word, "*") || word == "secrets" {
				t.Errorf("%s is in the rules", word)
			}
		}
		if row := "`" + strings.Join(r.Resources, "`, `") + "`: " +
			strings.Join(r.Verbs, ", ") + " |"; !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/security/scheduler.md has no row with %s", row)
		}
	}
	for values, more := range map[string]string{
		"{scheduler: {enabled: true}}":                                                             "",
		"{scheduler: {enabled: true, args: {annotate: PreBind}}}":                                  "   pods: patch\n",
		"{scheduler: {enabled: true, extraRules: [{apiGroups: [a], resources: [b], verbs: [x]}]}}": "  a b: x\n",
	} {
		_, added := ofScheduler(t, values)
		role, _ := first[*rbacv1.ClusterRole](added)
		if got := rights(role.Rules); got != rights(rules)+more {
			t.Errorf("%s: its rights are\n%s", values, got)
		}
		lease, _ := first[*rbacv1.Role](added)
		const want = "  coordination.k8s.io leases: create\n" +
			"  coordination.k8s.io leases: get,update (quietcore-scheduler)\n   events: create,patch\n"
		if got := rights(lease.Rules); got != want || lease.Namespace != namespace {
			t.Errorf("%s: in %s its rights are\n%s", values, lease.Namespace, got)
		}
	}
	if _, added := ofScheduler(t, "{scheduler: {enabled: true}, rbac: {create: false}}"); len(added) != 5 {
		t.Errorf("rbac.create is false, and the scheduler is %d objects", len(added))
	}
}

// TestSchedulersFile is read by kube-scheduler itself in scheduler/plugin: here it is written.
func TestSchedulersFile(t *testing.T) {
	_, added := ofScheduler(t, "{scheduler: {enabled: true, config: {percentageOfNodesToScore: 50}}}")
	m, _ := first[*corev1.ConfigMap](added)
	golden(t, "testdata/scheduler-config.yaml", m.Data["config.yaml"]+"\n")
	d, _ := first[*appsv1.Deployment](added)
	golden(t, "testdata/scheduler-args.txt", strings.Join(d.Spec.Template.Spec.Containers[0].Args, "\n")+"\n")
	restarts := func(values string) string {
		_, added := ofScheduler(t, values)
		d, _ := first[*appsv1.Deployment](added)
		return d.Spec.Template.Annotations["quietcore.dev/config"]
	}
	if a, b := restarts("{scheduler: {enabled: true}}"), restarts("{scheduler: {enabled: true, args: {refusedPods: "+
		"Delete}}}"); a == b || a == "" {
		t.Errorf("the file changes and its pods stay: %q, %q", a, b)
	}
}

// TestSchedulerMayWriteWhatItWrites: admission policies count it among the schedulers.
func TestSchedulerMayWriteWhatItWrites(t *testing.T) {
	objects, _ := ofScheduler(t, withScheduler)
	const user = "'system:serviceaccount:" + namespace + ":quietcore-scheduler'"
	n := 0
	for _, o := range objects {
		policy, ok := o.(*admissionv1.ValidatingAdmissionPolicy)
		if !ok || !strings.HasSuffix(policy.Name, "-frozen") {
			continue
		}
		for _, v := range policy.Spec.Variables {
			if v.Name == "scheduler" && strings.Contains(v.Expression, user) {
				n++
			}
		}
	}
	if n != 1 {
		t.Errorf("%d policies let %s write", n, user)
	}
}
