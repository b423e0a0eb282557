package chart

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/topology"
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

// TestExampleOfAClaim: the example of the chart is the one of the documentation, it asks for the DeviceClass of the
// chart, and our driver understands its parameters.
func TestExampleOfAClaim(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "examples", "cpu-claim.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(repo, "docs", "dra.md"))
	if err != nil || !strings.Contains(string(page), "```yaml\n"+string(text)+"```\n") {
		t.Errorf("docs/dra.md has another example (%v) than\n%s", err, text)
	}
	claims, pods, _ := bytes.Cut(text, []byte("---\n"))
	var template resourceapi.ResourceClaimTemplate
	var pod corev1.Pod
	if err := errors.Join(yaml.UnmarshalStrict(claims, &template),
		yaml.UnmarshalStrict(pods, &pod)); err != nil {
		t.Fatal(err)
	}
	spec, out := template.Spec.Spec, render(t, Release{Values: parseValues(t, claimsOn)})
	class, _ := first[*resourceapi.DeviceClass](decode(t, out))
	request := spec.Devices.Requests[0]
	if name := request.Exactly.DeviceClassName; class == nil || name != class.Name {
		t.Errorf("the example asks for DeviceClass %q, the chart has %+v", name, class)
	}
	if !strings.Contains(out.Notes, "examples/cpu-claim.yaml") {
		t.Errorf("the notes do not name the example: %s", out.Notes)
	}
	if c := pod.Spec.ResourceClaims; len(c) != 1 || *c[0].ResourceClaimTemplateName != template.Name ||
		pod.Spec.Containers[0].Resources.Claims[0].Name != c[0].Name {
		t.Errorf("the pod does not claim by the template: %+v", pod.Spec)
	}
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	allocation := &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: request.Name, Driver: dra.DriverName, Pool: "n1",
			Device: "numa-0", ConsumedCapacity: request.Exactly.Capacity.Requests}}}}
	for _, c := range spec.Devices.Config {
		allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: c.DeviceConfiguration})
	}
	claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: allocation}}
	claim.UID, claim.Namespace, claim.Name = "u", "default", "c"
	node := dra.NewNode(dra.Options{Name: "n1", Topology: topo, By: config.DevicesNUMA, Share: "100%"})
	if e, err := node.Prepared(claim); err != nil || len(e.Requests) != 1 || e.Requests[0].CPUs != 2 ||
		e.Requests[0].SMT == nil || *e.Requests[0].SMT != cpuallocator.SMTAlign {
		t.Errorf("the driver reads %+v, %v", e, err)
	}
}
