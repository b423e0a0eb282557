package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// immutable are the fields that the API server does not let change, by kind: an upgrade
// that does is refused half way. See the validation of updates in Kubernetes' registry
// of each kind.
func immutable() map[string][][]string {
	return map[string][][]string{
		"DaemonSet":                {{"spec", "selector"}},
		"Deployment":               {{"spec", "selector"}},
		"Service":                  {{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "ipFamilies"}},
		"ClusterRoleBinding":       {{"roleRef"}},
		"ConfigMap":                {{"immutable"}},
		"CustomResourceDefinition": {{"spec", "group"}, {"spec", "scope"}, {"spec", "names"}},
	}
}

// byName are objects by what the API server knows them by.
func byName(t *testing.T, objects []runtime.Object) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: m}
		gvk := u.GroupVersionKind()
		all[fmt.Sprintf("%s.%s %s/%s", gvk.Kind, gvk.Group, u.GetNamespace(), u.GetName())] = u
	}
	return all
}

// TestUpgradeFromTheFirst: testdata/first is the first version of the chart, and what it
// installed. What was there is there, and no field of it changes that cannot.
func TestUpgradeFromTheFirst(t *testing.T) {
	for _, name := range []string{"defaults", "everything"} {
		text, err := os.ReadFile(filepath.Join("testdata/first", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		old := byName(t, decodeText(t, string(text)))
		now := byName(t, decode(t, render(t, Release{Values: cases(t)[name], Kinds: monitoring})))
		if len(old) < 8 {
			t.Errorf("%s: the first version had %d objects", name, len(old))
		}
		for id, o := range old {
			n := now[id]
			if n == nil {
				t.Errorf("%s: %s goes away", name, id)
				continue
			}
			for _, path := range immutable()[o.GetKind()] {
				was, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
				is, _, _ := unstructured.NestedFieldNoCopy(n.Object, path...)
				if !reflect.DeepEqual(was, is) {
					t.Errorf("%s: %s: %v was %v and is %v, which the API server refuses", name, id, path, was, is)
				}
			}
		}
	}
}

// TestReusedValues: `helm upgrade --reuse-values` puts the first version's values.yaml in
// place of this one's, so that what came later is not there at all.
func TestReusedValues(t *testing.T) {
	reused := func() map[string]any { return valuesOf(t, "testdata/first/chart/values.yaml") }
	for name, values := range cases(t) {
		fresh := decode(t, render(t, Release{Values: values, Kinds: monitoring}))
		old := decode(t, render(t, Release{Values: values, Kinds: monitoring, Reused: reused()}))
		a, b := byName(t, fresh), byName(t, old)
		for id := range a {
			if b[id] == nil && a[id].GetKind() == "NetworkPolicy" {
				continue // networkPolicy.enabled was said to be false
			}
			if b[id] == nil {
				t.Errorf("%s: %s is missing after --reuse-values", name, id)
				continue
			}
			// What one says by default may be missing; the rest is the same.
			if a[id].GetKind() == "DaemonSet" {
				var pods [2]string
				for i, o := range []*unstructured.Unstructured{a[id], b[id]} {
					spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
					containers := spec["containers"].([]any)
					for _, c := range containers {
						delete(c.(map[string]any), "resources")
						delete(c.(map[string]any), "env")
					}
					text, err := json.Marshal([]any{spec["volumes"], containers})
					if err != nil {
						t.Fatal(err)
					}
					pods[i] = string(text)
				}
				if pods[0] != pods[1] {
					t.Errorf("%s: after --reuse-values the pods are\n%s\nwithout it\n%s", name, pods[1], pods[0])
				}
			}
		}
	}
}
