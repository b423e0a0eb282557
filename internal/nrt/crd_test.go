package nrt

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/policy"
)

// crdSchema is as much of an OpenAPI schema as the CRD uses.
type crdSchema struct {
	Type       string               `json:"type"`
	Required   []string             `json:"required"`
	Properties map[string]crdSchema `json:"properties"`
	Items      *crdSchema           `json:"items"`
}

// TestCRDHoldsWhatIsBuilt checks that no field would be pruned or missed, in
// either version.
func TestCRDHoldsWhatIsBuilt(t *testing.T) {
	text, err := os.ReadFile("../../charts/quietcore/files/noderesourcetopologies.yaml")
	must(t, err)
	var crd struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Scope    string `json:"scope"`
			Versions []struct {
				Name    string `json:"name"`
				Served  bool   `json:"served"`
				Storage bool   `json:"storage"`
				Schema  struct {
					OpenAPIV3Schema crdSchema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	must(t, yaml.Unmarshal(text, &crd))
	if crd.Metadata.Name != CRDName || crd.Spec.Scope != "Cluster" ||
		crd.Metadata.Annotations["api-approved.kubernetes.io"] == "" {
		t.Errorf("the CRD is %+v", crd.Metadata)
	}
	m := newMachine(t, grid(t), policy.Config{})
	must(t, m.run("db", "LSE", 2))
	o := Build(Input{Node: "n", NodeUID: "u", Snapshot: m.Snapshot(), Capacity: Amounts{0: {"vendor.com/nic": 1}}})
	stored := map[string]bool{}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			t.Errorf("%s is not served", v.Name)
		}
		stored[v.Name] = v.Storage
		body, err := encode(o, v.Name)
		must(t, err)
		var value any
		must(t, json.Unmarshal(body, &value))
		for _, problem := range fit(v.Name, value, v.Schema.OpenAPIV3Schema) {
			t.Error(problem)
		}
	}
	if len(stored) != 2 || stored[V1alpha1] || !stored[V1alpha2] {
		t.Errorf("versions and storage are %v", stored)
	}
}

// fit lists what of a value the schema would prune or refuse.
func fit(at string, value any, s crdSchema) []string {
	var problems []string
	switch v := value.(type) {
	case map[string]any:
		for _, key := range s.Required {
			if _, ok := v[key]; !ok {
				problems = append(problems, fmt.Sprintf("%s: %s is required and missing", at, key))
			}
		}
		for key, inner := range v {
			p, ok := s.Properties[key]
			if !ok {
				problems = append(problems, fmt.Sprintf("%s: %s is not in the schema", at, key))
				continue
			}
			if key != "metadata" {
				problems = append(problems, fit(at+"."+key, inner, p)...)
			}
		}
	case []any:
		if s.Items == nil {
			return []string{at + ": is no array in the schema"}
		}
		for _, inner := range v {
			problems = append(problems, fit(at+"[]", inner, *s.Items)...)
		}
	case string:
		if s.Type != "string" && s.Type != "" {
			problems = append(problems, fmt.Sprintf("%s: is a string, the schema says %s", at, s.Type))
		}
	case float64:
		if s.Type != "integer" && s.Type != "" {
			problems = append(problems, fmt.Sprintf("%s: is a number, the schema says %s", at, s.Type))
		}
	}
	return problems
}
