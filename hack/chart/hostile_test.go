package chart

import (
	"strings"
	"testing"
)

// TestHostileRightsAreDerived keeps what e2e/hostile attacks on a real API server: every policy and right that the
// chart can install, for daemons that do all that they can.
func TestHostileRightsAreDerived(t *testing.T) {
	out := render(t, Release{Kubernetes: "1.37.0", Values: parseValues(t, `
admissionPolicies:
  schedulers: ["`+scheduler+`"]
  claims: {enabled: true, workloads: Deny}
  frozen: {enabled: true}
config: {reclaim: {mode: enforce, evict: true}, dra: {mode: "on"}, kubernetes: {policy: true}}
`)})
	var docs []string
	for _, name := range []string{"policy-claims.yaml", "policy-events.yaml", "policy-evictions.yaml",
		"policy-fleet.yaml", "policy-frozen.yaml", "policy-lending.yaml", "policy-own-node.yaml", "dra.yaml",
		"rbac.yaml", "scheduler-evictor-rbac.yaml"} {
		for _, doc := range strings.Split(strings.TrimPrefix(out.Manifests[name], "---\n"), "\n---\n") {
			if doc == "" {
				t.Errorf("%s is not rendered", name)
			}
			if !strings.Contains(doc, "\nkind: DeviceClass\n") {
				docs = append(docs, strings.TrimSuffix(doc, "\n"))
			}
		}
	}
	golden(t, "testdata/hostile.yaml", strings.Join(docs, "\n---\n")+"\n")
}
