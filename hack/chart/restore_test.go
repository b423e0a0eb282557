package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/quietcore/quietcore/internal/config"
)

// TestRestore: what undoes may write what the daemon could, and the daemon that comes
// after it nothing.
func TestRestore(t *testing.T) {
	for _, mode := range []string{"enforce", "observe"} {
		objects := decode(t, render(t, Release{Values: parseValues(t, "{config: {mode: "+mode+
			", reclaim: {mode: enforce}}, restore: {enabled: true}}")}))
		m, _ := first[*corev1.ConfigMap](objects)
		for file, want := range map[string]config.Mode{"config.yaml": config.Observe, "restore.yaml": config.Enforce} {
			c, err := config.Parse([]byte(m.Data[file]))
			if err != nil || c.Mode != want || c.Reclaim.Mode != config.SwitchEnforce {
				t.Errorf("%s: %v, mode %v; want %s", file, err, c, want)
			}
		}
		d, _ := first[*appsv1.DaemonSet](objects)
		restore, daemon := d.Spec.Template.Spec.InitContainers[0], d.Spec.Template.Spec.Containers[0]
		for name, readOnly := range map[string][2]bool{"cgroup": {false, true}, "state": {false, false},
			"nri": {true, true}} {
			if got := [2]bool{mount(restore, name).ReadOnly, mount(daemon, name).ReadOnly}; got != readOnly {
				t.Errorf("%s is mounted read-only: %v, want %v", name, got, readOnly)
			}
		}
		if mount(restore, "systemd") == nil || mount(daemon, "systemd") != nil {
			t.Error("systemd is asked while restoring, and not afterwards")
		}
		if !slices.ContainsFunc(restore.Env, func(e corev1.EnvVar) bool { return e.Name == "NODE_NAME" }) {
			t.Error("what restores does not know its Node")
		}
		role, _ := first[*rbacv1.ClusterRole](objects)
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.Resources, []string{"nodes/status"})
		}) {
			t.Error("lent CPUs cannot be taken from the Node's status")
		}
	}
}

func mount(c corev1.Container, name string) *corev1.VolumeMount {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == name {
			return &c.VolumeMounts[i]
		}
	}
	return nil
}
