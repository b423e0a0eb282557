package chart

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

const claimsOn = "config: {dra: {mode: \"on\"}}"

// TestADaemonWritesItsOwnSlices: of ResourceSlices a daemon writes those of its node and of its driver.
func TestADaemonWritesItsOwnSlices(t *testing.T) {
	s := newServer(t, claimsOn, nil)
	daemon := func(nodes ...string) user.DefaultInfo {
		return user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":quietcore",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	slice := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "resource.k8s.io/v1",
			"kind": "ResourceSlice", "metadata": map[string]any{"name": "s"}, "spec": spec}}
	}
	own := map[string]any{"driver": "cpu.quietcore.dev", "nodeName": "node-a"}
	for name, c := range map[string]struct {
		user   user.DefaultInfo
		spec   map[string]any
		denied string
	}{
		"its own":   {daemon("node-a"), own, ""},
		"another's": {daemon("node-b"), own, "the daemon of node node-b may not write a ResourceSlice of another node"},
		"every node's": {daemon("node-a"), map[string]any{"driver": "cpu.quietcore.dev", "allNodes": true},
			"of another node"},
		"another driver's": {daemon("node-a"), map[string]any{"driver": "gpu.example.com", "nodeName": "node-a"},
			"of driver cpu.quietcore.dev only"},
		"a token of no node":     {user.DefaultInfo{Name: daemon("").Name}, own, "names no node"},
		"somebody else's matter": {user.DefaultInfo{Name: "system:node:node-b"}, own, ""},
	} {
		for _, r := range []request{
			{operation: admission.Create, object: slice(c.spec)},
			{operation: admission.Update, object: slice(c.spec), before: slice(c.spec)},
			{operation: admission.Delete, before: slice(c.spec)},
		} {
			r.user, r.resource = c.user, "resourceslices.resource.k8s.io"
			if _, err := s.ask(r); (err != nil) != (c.denied != "") || err != nil &&
				!strings.Contains(err.Error(), c.denied) {
				t.Errorf("%s, %s: %v, want %q", name, r.operation, err, c.denied)
			}
		}
	}
}

// TestDirectoriesOfClaims: kubelet's directories are written only where CPUs can be claimed.
func TestDirectoriesOfClaims(t *testing.T) {
	for values, want := range map[string]string{
		"{}":     "",
		claimsOn: "/var/lib/kubelet/plugins/cpu.quietcore.dev /var/lib/kubelet/plugins_registry /var/run/cdi",
		"config: {mode: observe, dra: {mode: \"on\"}}": "",
		"config: {dra: {mode: \"on\", pluginDir: /k/plugins/q, registryDir: /k/registry}}": "/k/plugins/q " +
			"/k/registry /var/run/cdi",
	} {
		d, _ := first[*appsv1.DaemonSet](decode(t, render(t, Release{Values: parseValues(t, values)})))
		hosts := map[string]string{}
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.HostPath != nil {
				hosts[v.Name] = v.HostPath.Path
			}
		}
		var got []string
		for _, name := range []string{"dra-plugin", "dra-registry", "cdi-run"} {
			for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
				if m.Name == name && !m.ReadOnly && hosts[name] == m.MountPath {
					got = append(got, m.MountPath)
				}
			}
		}
		if have := strings.Join(got, " "); have != want {
			t.Errorf("%s: %q, want %q", values, have, want)
		}
	}
}
