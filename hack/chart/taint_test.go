package chart

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quietcore/quietcore/internal/config"
)

// TestRightsOfTheStartupTaintAreDerived keeps what internal/startuptaint tries on a real API server.
func TestRightsOfTheStartupTaintAreDerived(t *testing.T) {
	out := render(t, Release{Name: "quietcore", Namespace: "quietcore",
		Values: parseValues(t, "startupTaint: {enabled: true}")})
	golden(t, "testdata/startup-taint.yaml", out.Manifests["policy-taint.yaml"]+"---\n"+out.Manifests["rbac.yaml"])
}

// TestStartupTaint has the daemon take the taint away, and tolerate it where it does not tolerate everything.
func TestStartupTaint(t *testing.T) {
	objects := decode(t, render(t, Release{Values: parseValues(t, "{startupTaint: {enabled: true}, tolerations: []}")}))
	d, _ := first[*appsv1.DaemonSet](objects)
	want := []corev1.Toleration{{Key: "quietcore.dev/not-ready", Operator: corev1.TolerationOpExists}}
	if got := d.Spec.Template.Spec.Tolerations; !reflect.DeepEqual(got, want) {
		t.Errorf("it tolerates %+v, want %+v", got, want)
	}
	m, _ := first[*corev1.ConfigMap](objects)
	if c, err := config.Parse([]byte(m.Data["config.yaml"])); err != nil || !c.Kubernetes.StartupTaint {
		t.Errorf("the file: %v\n%s", err, m.Data["config.yaml"])
	}
	d, _ = first[*appsv1.DaemonSet](decode(t, render(t, Release{Values: parseValues(t, "tolerations: []")})))
	if got := d.Spec.Template.Spec.Tolerations; got != nil {
		t.Errorf("without the taint it tolerates %+v", got)
	}
}
