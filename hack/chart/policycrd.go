package chart

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/rollout"
)

// PolicyCRD is the CustomResourceDefinition of QuietcorePolicy. What its spec may say of the configuration is the
// schema of the daemon's file, as far as a policy may say it. about describes the keys of that file.
func PolicyCRD(about map[string]string) ([]byte, error) {
	file := structural(configSchema(reflect.TypeFor[config.Config](), "", about), "")
	if file == nil {
		return nil, fmt.Errorf("the configuration has no key that a policy may say")
	}
	file["description"] = "Keys of the daemon's file, docs/configuration.md, that are written over it."
	spec := map[string]any{"type": "object", "required": []string{"config"}, "properties": map[string]any{
		"nodeSelector": nodeSelector(),
		"priority": map[string]any{"type": "integer", "minimum": 0, "maximum": 1000000, "description": "Of the " +
			"policies that select a node the one with the highest priority counts, alone. 0 where it is not said."},
		"rollout": rolloutSchema(),
		"config":  file,
	}}
	const name = "quietcorepolicies.quietcore.dev"
	crd := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "quietcore.dev", "scope": "Cluster",
			"names": map[string]any{"kind": "QuietcorePolicy", "listKind": "QuietcorePolicyList",
				"plural": "quietcorepolicies", "singular": "quietcorepolicy", "shortNames": []string{"qcpolicy"}},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true,
				"additionalPrinterColumns": []any{
					column("Priority", "integer", ".spec.priority"),
					column("Revision", "integer", ".metadata.generation"),
					column("Max unavailable", "integer", ".spec.rollout.maxUnavailable"),
					column("Age", "date", ".metadata.creationTimestamp")},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
					"description": "Configuration of the nodes that it selects, docs/fleet-policy.md.",
					"required":    []string{"spec"},
					"x-kubernetes-validations": []any{map[string]any{"rule": "size(self.metadata.name) <= 200",
						"message": "the name has more than 200 characters"}},
					"properties": map[string]any{"apiVersion": map[string]any{"type": "string"},
						"kind": map[string]any{"type": "string"}, "metadata": map[string]any{"type": "object"},
						"spec": spec}}}}}},
	}
	text, err := yaml.Marshal(crd)
	return append([]byte("# Generated from the daemon's configuration and docs/configuration.md: `make generate`.\n"),
		text...), err
}

func column(name, kind, path string) map[string]any {
	return map[string]any{"name": name, "type": kind, "jsonPath": path}
}

func rolloutSchema() map[string]any {
	return map[string]any{"type": "object", "description": "How a change of the policy comes to its nodes.",
		"properties": map[string]any{
			"maxUnavailable": map[string]any{"type": "integer", "minimum": 1, "maximum": rollout.MaxPlaces,
				"description": "How many nodes change at a time. 1 where it is not said."},
			"settleFor": map[string]any{"type": "string", "pattern": duration, "description": "How long a " +
				"node has to work after its change, up to 1h. 30s where it is not said."}}}
}

const (
	labelKey   = `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	labelValue = `^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	longestKey = 253 + 1 + 63
)

func nodeSelector() map[string]any {
	value := map[string]any{"type": "string", "maxLength": 63, "pattern": labelValue}
	return map[string]any{"type": "object", "description": "Labels of the nodes; all nodes where it is not said.",
		"properties": map[string]any{
			"matchLabels": map[string]any{"type": "object", "maxProperties": 20, "additionalProperties": value,
				"x-kubernetes-validations": []any{map[string]any{"rule": "self.all(k, size(k) <= " +
					fmt.Sprint(longestKey) + " && k.matches('" + labelKey + "'))",
					"message": "a key is no key of a label"}}},
			"matchExpressions": map[string]any{"type": "array", "maxItems": 20, "items": map[string]any{
				"type": "object", "required": []string{"key", "operator"},
				"x-kubernetes-validations": []any{map[string]any{
					"rule":    "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
					"message": "values are for In and NotIn, which need some"}},
				"properties": map[string]any{
					"key": map[string]any{"type": "string", "maxLength": longestKey, "pattern": labelKey},
					"operator": map[string]any{"type": "string", "maxLength": 12,
						"enum": []string{"In", "NotIn", "Exists", "DoesNotExist"}},
					"values": map[string]any{"type": "array", "maxItems": 100, "items": value}}}}}}
}

// structural is a schema of the file as a CustomResourceDefinition can have it, without keys that a policy may not say;
// nil: nothing of it is left.
func structural(s map[string]any, path string) map[string]any {
	out := map[string]any{}
	for _, k := range []string{"type", "description", "minimum", "maximum", "pattern"} {
		if v, ok := s[k]; ok {
			out[k] = v
		}
	}
	if _, short := s["type"].([]string); short { // a word in place of the mapping is for people's files
		out["type"] = "object"
		delete(out, "pattern")
	} else if words, ok := s["examples"].([]string); ok {
		out["enum"] = words
		delete(out, "pattern")
	}
	if v, ok := s["exclusiveMinimum"].(json.Number); ok {
		out["minimum"], out["exclusiveMinimum"] = v, true
	}
	if items, ok := s["items"].(map[string]any); ok {
		out["items"] = structural(items, "")
	}
	if each, ok := s["additionalProperties"].(map[string]any); ok {
		out["additionalProperties"] = structural(each, "")
	}
	props, ok := s["properties"].(map[string]any)
	if !ok {
		if out["type"] == nil {
			return nil // of an earlier version
		}
		return out
	}
	left := map[string]any{}
	for name, p := range props {
		at := strings.TrimPrefix(path+"."+name, ".")
		if !config.InPolicies(at) {
			continue
		}
		if below := structural(p.(map[string]any), at); below != nil {
			left[name] = below
		}
	}
	if len(left) == 0 {
		return nil
	}
	out["properties"] = left
	return out
}
