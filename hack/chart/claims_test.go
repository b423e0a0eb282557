package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	compare "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/policy"
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

// exampleOfAClaim are the objects of an example, which the API server would take.
type exampleOfAClaim struct {
	name  string
	claim resourceapi.ResourceClaimSpec
	pods  []corev1.Pod
}

func readExample(t *testing.T, file string) exampleOfAClaim {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var e exampleOfAClaim
	for doc := range bytes.SplitSeq(text, []byte("---\n")) {
		var claim resourceapi.ResourceClaim
		var template resourceapi.ResourceClaimTemplate
		var pod corev1.Pod
		switch {
		case yaml.UnmarshalStrict(doc, &claim) == nil && claim.Kind == "ResourceClaim":
			e.name, e.claim = claim.Name, claim.Spec
		case yaml.UnmarshalStrict(doc, &template) == nil && template.Kind == "ResourceClaimTemplate":
			e.name, e.claim = template.Name, template.Spec.Spec
		case yaml.UnmarshalStrict(doc, &pod) == nil && pod.Kind == "Pod":
			e.pods = append(e.pods, pod)
		default:
			t.Fatalf("%s has neither a claim nor a pod:\n%s", file, doc)
		}
	}
	return e
}

// TestExamplesOfClaims: each asks for a DeviceClass of the chart, its pods claim by it, and our driver understands what
// it asks for with the parameters of the class. The first is the one of the documentation.
func TestExamplesOfClaims(t *testing.T) {
	out := render(t, Release{Values: parseValues(t, claimsOn)})
	classes := map[string]*resourceapi.DeviceClass{}
	for _, o := range decode(t, out) {
		if c, ok := o.(*resourceapi.DeviceClass); ok {
			classes[c.Name] = c
		}
	}
	if len(classes) != 3 {
		t.Errorf("the chart has %d DeviceClasses", len(classes))
	}
	for name := range classes {
		if !strings.Contains(out.Notes, name) {
			t.Errorf("the notes do not name DeviceClass %s", name)
		}
	}
	first, err := os.ReadFile(filepath.Join(chartDir, "examples", "cpu-claim.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(repo, "docs", "dra.md"))
	if err != nil || !strings.Contains(string(page), "```yaml\n"+string(first)+"```\n") {
		t.Errorf("docs/dra.md has another example (%v) than\n%s", err, first)
	}
	align, full := cpuallocator.SMTAlign, cpuallocator.FullPCPUs
	for file, want := range map[string]policy.ClaimRequest{
		"cpu-claim.yaml":        {CPUs: 2, SMT: &align},
		"cpu-claim-shared.yaml": {CPUs: 8, SMT: &align, Bind: &full, BindRequired: true},
		"cpu-claim-gpu.yaml":    {CPUs: 8},
	} {
		e := readExample(t, filepath.Join(chartDir, "examples", file))
		if !strings.Contains(string(page), file) {
			t.Errorf("docs/dra.md does not name %s", file)
		}
		for _, pod := range e.pods {
			c := pod.Spec.ResourceClaims
			if len(c) != 1 || *cmp.Or(c[0].ResourceClaimTemplateName, c[0].ResourceClaimName) != e.name ||
				pod.Spec.Containers[0].Resources.Claims[0].Name != c[0].Name {
				t.Errorf("%s: a pod does not claim by %s: %+v", file, e.name, pod.Spec)
			}
		}
		got, err := asRead(t, e, classes)
		want.Device, want.Within = got.Device, got.Within
		if diff := compare.Diff(want, got, cmpopts.EquateComparable(cpuset.Set{})); err != nil || diff != "" {
			t.Errorf("%s: the driver reads (+), want (-): %v\n%s", file, err, diff)
		}
	}
}

// asRead is what our driver makes of an example that has a device of a machine of 16 CPUs.
func asRead(t *testing.T, e exampleOfAClaim, classes map[string]*resourceapi.DeviceClass) (policy.ClaimRequest, error) {
	topo, err := topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	a := &resourceapi.AllocationResult{}
	for _, r := range e.claim.Devices.Requests {
		if class := classes[r.Exactly.DeviceClassName]; class != nil {
			a.Devices.Results = append(a.Devices.Results, resourceapi.DeviceRequestAllocationResult{Request: r.Name,
				Driver: dra.DriverName, Pool: "n1", Device: "numa-0", ConsumedCapacity: r.Exactly.Capacity.Requests})
			for _, c := range class.Spec.Config {
				a.Devices.Config = append(a.Devices.Config, resourceapi.DeviceAllocationConfiguration{
					Source: resourceapi.AllocationConfigSourceClass, Requests: []string{r.Name},
					DeviceConfiguration: c.DeviceConfiguration})
			}
		}
	}
	for _, c := range e.claim.Devices.Config {
		a.Devices.Config = append(a.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: c.DeviceConfiguration})
	}
	claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: a}}
	claim.UID, claim.Namespace, claim.Name = "u", "default", e.name
	node := dra.NewNode(dra.Options{Name: "n1", Topology: topo, By: config.DevicesNUMA, Share: "100%"})
	prepared, err := node.Prepared(claim)
	if err != nil || len(prepared.Requests) != 1 {
		return policy.ClaimRequest{}, fmt.Errorf("%d requests of our driver: %w", len(prepared.Requests), err)
	}
	return prepared.Requests[0], nil
}

// TestClassOfPerformanceCores: its expression takes devices of performance cores alone.
func TestClassOfPerformanceCores(t *testing.T) {
	out := render(t, Release{Values: parseValues(t, claimsOn)})
	for _, o := range decode(t, out) {
		c, ok := o.(*resourceapi.DeviceClass)
		if !ok {
			continue
		}
		x := dracel.GetCompiler(dracel.Features{}).CompileCELExpression(c.Spec.Selectors[0].CEL.Expression,
			dracel.Options{})
		if x.Error != nil {
			t.Errorf("%s: %v", c.Name, x.Error)
			continue
		}
		for kind, want := range map[string]bool{"performance": true, "efficiency": false} {
			want = want || c.Name != "performance.cpu.quietcore.dev"
			of := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"coreKind": {StringValue: &kind}}
			ok, _, err := x.DeviceMatches(t.Context(), dracel.Device{Driver: dra.DriverName, Attributes: of})
			if err != nil || ok != want {
				t.Errorf("%s takes a device of %s cores: %t, %v", c.Name, kind, ok, err)
			}
		}
	}
}
