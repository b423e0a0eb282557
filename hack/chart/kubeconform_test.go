package chart

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/validator"
)

// apiOfKubernetes is the OpenAPI document of the Kubernetes that e2e/kubernetes runs,
// out of the module of its sources: kubeconform would fetch its schemas from a server.
func apiOfKubernetes(t *testing.T) map[string]any {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes")
	cmd.Dir = "../tools/kubernetes"
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "api/openapi-spec/swagger.json"))
	if err != nil {
		t.Fatal(err)
	}
	api := map[string]any{}
	if err := json.Unmarshal(text, &api); err != nil {
		t.Fatal(err)
	}
	return api
}

// writeSchemas writes a JSON schema of each kind, as kubeconform looks for them, and
// returns where.
func writeSchemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	definitions := apiOfKubernetes(t)["definitions"].(map[string]any)
	whole := filepath.Join(dir, "definitions.json")
	kinds := map[string]string{}
	for name, d := range definitions {
		d := d.(map[string]any)
		if _, more := d["additionalProperties"]; d["properties"] != nil && !more {
			d["additionalProperties"] = false
		}
		if d["format"] == "int-or-string" {
			d["type"] = []string{"string", "integer"}
		}
		if strings.HasSuffix(name, ".resource.Quantity") {
			d["type"] = []string{"string", "number"}
		}
		list, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, k := range list {
			k := k.(map[string]any)
			file := strings.ToLower(fmt.Sprintf("%s-%s-%s.json", k["kind"], k["group"], k["version"]))
			if k["group"] == "" {
				file = strings.ToLower(fmt.Sprintf("%s-%s-%s.json", k["kind"], k["version"], k["version"]))
			}
			kinds[file] = name
		}
	}
	write := func(file string, what any) {
		text, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(whole, map[string]any{"definitions": definitions})
	for file, name := range kinds {
		write(filepath.Join(dir, file), map[string]any{"$ref": "file://" + whole + "#/definitions/" + name})
	}
	return filepath.Join(dir, "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json")
}

// ofOthers are the kinds that Kubernetes' document does not have. Their own Go types
// are what TestWhatIsInstalled decodes them with.
func ofOthers() map[string]struct{} {
	return map[string]struct{}{"PodMonitor": {}, "ServiceMonitor": {}, "PrometheusRule": {},
		"SecurityContextConstraints": {}}
}

func conforms(v validator.Validator, text string) []validator.Result {
	return v.Validate("chart", io.NopCloser(strings.NewReader(text)))
}

// TestKubeconform finds what Go's types do not: a key that must be there and is not.
func TestKubeconform(t *testing.T) {
	v, err := validator.New([]string{writeSchemas(t)}, validator.Opts{Strict: true, SkipKinds: ofOthers()})
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range cases(t) {
		out := render(t, Release{Values: values, Kinds: monitoring})
		for _, file := range out.Names() {
			for _, r := range conforms(v, out.Manifests[file]) {
				if r.Status == validator.Invalid || r.Status == validator.Error {
					t.Errorf("%s: %s: %v\n%s", name, file, r.Err, r.Resource.Bytes)
				}
			}
		}
	}
	for what, text := range map[string]string{
		"a DaemonSet without selector": "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: " +
			"{template: {spec: {containers: [{name: a}]}}}\n",
		"a container without name": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{image: " +
			"a}]}\n",
		"a misspelt key":           "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatas: {}\n",
		"a kind that nobody knows": "apiVersion: v1\nkind: ConfigMaps\nmetadata: {name: a}\n",
	} {
		results := conforms(v, text)
		if len(results) != 1 || results[0].Status != validator.Invalid && results[0].Status != validator.Error {
			t.Errorf("%s conforms: %+v", what, results)
		}
	}
}
