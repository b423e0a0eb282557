package chart

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
)

var update = flag.Bool("update", false, "write what is derived: schema, README, golden files")

const (
	chartDir = "../../charts/quietcore"
	begin    = "<!-- values: begin -->\n"
	end      = "<!-- values: end -->\n"
)

func readValues(t *testing.T) []Value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := ReadValues(text)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// golden compares with a file that -update writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf(
			"%s is not what is derived now; run `go test ./... -update` in hack/chart and read the "+
				"difference\ngot:\n%s", name, got)
	}
}

func TestSchemaIsDerivedFromTheValues(t *testing.T) {
	about, err := ConfigKeys("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := Schema(readValues(t), about)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(chartDir, "values.schema.json"), string(schema))
}

func TestTableOfValuesIsDerived(t *testing.T) {
	name := filepath.Join(chartDir, "README.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its marks %q and %q", name, begin, end)
	}
	table, err := Table(readValues(t))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, name, head+begin+table+end+tail)
}

func TestRestartKeysAreDerived(t *testing.T) {
	golden(t, filepath.Join(chartDir, "files/restart-keys.txt"), strings.Join(RestartKeys(), "\n")+"\n")
}

func TestPolicyCRDIsDerived(t *testing.T) {
	about, err := ConfigKeys("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	crd, err := PolicyCRD(about)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(chartDir, "files/quietcorepolicies.yaml"), string(crd))
}

// TestSchemaKnowsTheFile: the schema takes what the daemon takes, all of it.
func TestSchemaKnowsTheFile(t *testing.T) {
	whole := config.Default()
	whole.Listen, whole.Health.Listen = ":9464", ":9466"
	whole.Reserved.CPUs, _ = cpuset.Parse("0-1")
	whole.Node.Labels = map[string]string{"a": "b"}
	whole.Authority.Exclusive.MaxCPUs = map[string]int{"*": 0}
	text, err := whole.YAML()
	if err != nil {
		t.Fatal(err)
	}
	// Helm reads YAML 1.1, in which off without quotes is false, and the daemon writes 1.2.
	file := map[string]any{}
	if err := yamlv3.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	objects := decode(t, render(t, Release{Values: map[string]any{"config": file}}))
	m, _ := first[*corev1.ConfigMap](objects)
	got, err := config.Parse([]byte(m.Data["config.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, &whole) {
		t.Errorf("the file is\n%+v\nwant\n%+v", got, whole)
	}
}

// TestSchemaKnowsEveryWord holds the words of the schema to the daemon: it takes each
// of them, and keys that have only some are known as such.
func TestSchemaKnowsEveryWord(t *testing.T) {
	var with []string
	var walk func(s map[string]any, path string)
	walk = func(s map[string]any, path string) {
		if words, ok := s["examples"].([]string); ok {
			with = append(with, path)
			for _, w := range words {
				text := config.APIVersion
				body := map[string]any{"apiVersion": text}
				at := body
				keys := strings.Split(path, ".")
				for _, k := range keys[:len(keys)-1] {
					next := map[string]any{}
					at[k] = next
					at = next
				}
				at[keys[len(keys)-1]] = w
				file, err := yaml.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := config.Parse(file); err != nil {
					t.Errorf("the schema has %q for %s, and the daemon: %v", w, path, err)
				}
			}
		}
		props, _ := s["properties"].(map[string]any)
		for name, p := range props {
			walk(p.(map[string]any), strings.TrimPrefix(path+"."+name, "."))
		}
	}
	walk(configSchema(reflect.TypeFor[config.Config](), "", nil), "")
	for _, want := range []string{
		"mode", "admission", "memory", "allocation.bindPolicy", "allocation.smt", "cpi.mode", "cpi.standIns.cycles",
		"reclaim.mode", "reclaim.from", "suppression.mode",
		"cgroup.driver", "kubernetes.api", "log.level", "log.format", "node.kubelet.cpuManagerPolicy",
		"authority.resourceStatus",
	} {
		if !slices.Contains(with, want) {
			t.Errorf("the schema takes any word for %s; it knows those of %v", want, with)
		}
	}
}

// TestSchemaKnowsEveryRange: what is outside of the range of a number, and what is no
// length of time or no word of those there are, Helm refuses as the daemon does.
func TestSchemaKnowsEveryRange(t *testing.T) {
	about, err := ConfigKeys("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	refused := func(path string, v any) {
		t.Helper()
		file := nested(path, v)
		if _, err := Render(chartDir, Release{Name: "quietcore", Namespace: namespace, Kubernetes: "1.36.0",
			Values: map[string]any{"config": file}}); err == nil ||
			!strings.Contains(err.Error(), path[strings.LastIndex(path, ".")+1:]) {
			t.Errorf("helm takes %s: %v, or does not name it: %v", path, v, err)
		}
		file["apiVersion"] = config.APIVersion
		text, err := yaml.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Parse(text); err == nil {
			t.Errorf("the daemon takes %s: %v", path, v)
		}
	}
	var walk func(s map[string]any, path string)
	walk = func(s map[string]any, path string) {
		if s["type"] == "integer" || s["type"] == "number" {
			n++
			_, closed := s["minimum"]
			_, open := s["exclusiveMinimum"]
			if !closed && !open {
				t.Errorf("%s has no range; docs/configuration.md says %q", path, about[path])
			}
			refused(path, -1)
			if high, ok := s["maximum"].(json.Number); ok {
				most, err := high.Float64()
				if err != nil {
					t.Fatal(err)
				}
				refused(path, most+1)
			}
		}
		props, _ := s["properties"].(map[string]any)
		for name, p := range props {
			walk(p.(map[string]any), strings.TrimPrefix(path+"."+name, "."))
		}
	}
	walk(configSchema(reflect.TypeFor[config.Config](), "", about), "")
	if n < 20 {
		t.Errorf("only %d numbers were found", n)
	}
	refused("reclaim.from", "everything")
	for _, v := range []any{"often", "-1s", "10", "1 m", ""} {
		refused("cpi.interval", v)
	}
	refused("authority.exclusive.maxCPUs", map[string]any{"*": 9999})
}

// nested is a file with one key.
func nested(path string, v any) map[string]any {
	key, rest, below := strings.Cut(path, ".")
	if below {
		return map[string]any{key: nested(rest, v)}
	}
	return map[string]any{key: v}
}
