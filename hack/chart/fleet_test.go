package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/config"
)

const policiesOn = "config: {kubernetes: {policy: true}}"

// TestADaemonChangesItsOwnNode: of turns and reports a daemon writes those of its own node.
func TestADaemonChangesItsOwnNode(t *testing.T) {
	s := newServer(t, policiesOn, nil)
	daemon := func(nodes ...string) user.DefaultInfo {
		return user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":quietcore",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": nodes}}
	}
	turn := func(node string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "quietcore.dev/v1alpha1",
			"kind": "QuietcoreTurn", "metadata": map[string]any{"name": "batch.0"},
			"spec": map[string]any{"node": node}}}
	}
	report := func(node string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "quietcore.dev/v1alpha1",
			"kind": "QuietcoreNode", "metadata": map[string]any{"name": node},
			"spec": map[string]any{"node": "node-a"}}}
	}
	const turns, reports = "quietcoreturns", "quietcorenodes"
	empty := turn("")
	delete(empty.Object, "spec")
	for name, c := range map[string]struct {
		user        user.DefaultInfo
		was, is     *unstructured.Unstructured
		resource    string
		denied      string
		updatesOnly bool
	}{
		"its turn":       {user: daemon("node-a"), was: turn("node-a"), is: turn("node-a"), resource: turns},
		"another's":      {daemon("node-a"), turn("node-b"), turn("node-b"), turns, "of another node", false},
		"one taken over": {daemon("node-a"), turn("node-b"), turn("node-a"), turns, "of another node", true},
		"one given away": {daemon("node-a"), turn("node-a"), turn("node-b"), turns, "of another node", true},
		"one of no node": {daemon("node-a"), empty, empty, turns, "of another node", false},
		"its report":     {user: daemon("node-a"), was: report("node-a"), is: report("node-a"), resource: reports},
		"another's report": {daemon("node-a"), report("node-b"), report("node-b"), reports, "of another node",
			false},
		"a token of no node": {user.DefaultInfo{Name: daemon().Name}, turn(""), turn(""), turns, "names no node",
			false},
		"a token of two": {daemon("node-a", "node-b"), turn("node-a"), turn("node-a"), turns, "names no node", false},
		"an operator's hands": {user: user.DefaultInfo{Name: "admin"}, was: turn("node-b"), is: turn("node-b"),
			resource: turns},
	} {
		for _, r := range []request{
			{operation: admission.Create, object: c.is},
			{operation: admission.Update, object: c.is, before: c.was},
			{operation: admission.Delete, before: c.was},
		} {
			if c.updatesOnly && r.operation != admission.Update {
				continue
			}
			r.user, r.resource = c.user, c.resource+".quietcore.dev"
			if _, err := s.ask(r); (err != nil) != (c.denied != "") || err != nil &&
				!strings.Contains(err.Error(), c.denied) {
				t.Errorf("%s, %s: %v, want %q", name, r.operation, err, c.denied)
			}
		}
	}
}

// TestDefinitionsOfPolicies: the API server takes them, and they are there only where policies are followed.
func TestDefinitionsOfPolicies(t *testing.T) {
	count := func(values string) (names []string) {
		for _, o := range decode(t, render(t, Release{Values: parseValues(t, values)})) {
			crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
			if !ok {
				continue
			}
			names = append(names, crd.Name)
			if crd.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s goes with the release", crd.Name)
			}
			internal := &apiextensions.CustomResourceDefinition{}
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd,
				internal, nil); err != nil {
				t.Fatal(err)
			}
			internal.Status.StoredVersions = []string{crd.Spec.Versions[len(crd.Spec.Versions)-1].Name}
			if errs := validation.ValidateCustomResourceDefinition(t.Context(), internal); len(errs) > 0 {
				t.Errorf("%s: %v", crd.Name, errs.ToAggregate())
			}
		}
		return names
	}
	if n := count("{}"); len(n) != 1 {
		t.Errorf("without policies: %v", n)
	}
	if n := count(policiesOn); len(n) != 4 {
		t.Errorf("with policies: %v", n)
	}
	if n := count("{crds: {install: false}, " + policiesOn + "}"); len(n) != 0 {
		t.Errorf("of somebody else: %v", n)
	}
}

// TestThePolicysSchemaIsTheFiles: what a policy may not say is not in its schema, and of what it says the API server
// and the daemon refuse the same.
func TestThePolicysSchemaIsTheFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "files/quietcorepolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
		t.Fatal(err)
	}
	schema, err := structuralschema.NewStructural(props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	file := config.Default()
	for _, c := range []struct {
		config       string
		schema, node bool
	}{
		{"{}", true, true},
		{"{mode: observe, cpi: {mode: enforce, budget: {node: 0.2}}, log: {level: debug}}", true, true},
		{"{memory: \"off\", admission: {mode: degrade}, authority: {exclusive: {maxCPUs: {a: 3}}}}", true, true},
		{"{reclaim: {mode: enforce, horizon: 20m}, suppression: {threshold: 70}}", true, true},
		{"{mode: on}", false, false},
		{"{cpi: {interval: often}}", false, false},
		{"{suppression: {threshold: 101}}", false, false},
		{"{authority: {exclusive: {maxCPUs: {a: -3}}}}", false, false},
		{"{reserved: {cpus: [1]}}", false, false},
		{"{cpi: {window: 31s, interval: 1m}}", true, false}, // relations are the daemon's
	} {
		var said map[string]any
		if err := yaml.Unmarshal([]byte(c.config), &said); err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"apiVersion": config.APIVersion, "kind": "QuietcorePolicy",
			"metadata": map[string]any{"name": "a"}, "spec": map[string]any{"config": said}}
		if errs := schemavalidation.ValidateCustomResource(nil, object, validator); (len(errs) == 0) != c.schema {
			t.Errorf("%s: the schema says %v", c.config, errs.ToAggregate())
		}
		whole, err := yaml.YAMLToJSON([]byte(c.config))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.With(whole); (err == nil) != c.node {
			t.Errorf("%s: the daemon says %v", c.config, err)
		}
	}
	keys := map[string]bool{}
	var walk func(s *structuralschema.Structural, path string)
	walk = func(s *structuralschema.Structural, path string) {
		for name, below := range s.Properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			keys[at] = true
			if !config.InPolicies(at) {
				t.Errorf("the schema has %s", at)
			}
			walk(&below, at)
		}
	}
	said := schema.Properties["spec"].Properties["config"]
	walk(&said, "")
	for _, key := range []string{"mode", "cpi.budget.node", "kubernetes.batchSlice", "log.level", "node.labels"} {
		if !keys[key] {
			t.Errorf("the schema lacks %s", key)
		}
	}
	if len(keys) < 80 {
		t.Errorf("the schema has only %d keys", len(keys))
	}
}

// TestRightsOfPoliciesAreDerived keeps what internal/daemon tries on a real API server.
func TestRightsOfPoliciesAreDerived(t *testing.T) {
	out := render(t, Release{Name: "quietcore", Namespace: "quietcore", Values: parseValues(t, policiesOn)})
	golden(t, "testdata/policies.yaml", out.Manifests["policy-fleet.yaml"]+"---\n"+out.Manifests["rbac.yaml"])
}
