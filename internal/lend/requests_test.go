package lend

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// batchRequests is the chart's policy as hack/chart renders it.
const batchRequests = "../../hack/chart/testdata/batch-requests.yaml"

// created makes a pod and returns what the API server has made of its containers'
// resources, and the QoS class.
func (p plane) created(namespace, text string) string {
	p.t.Helper()
	var pod struct {
		Spec struct {
			InitContainers, Containers []struct{ Resources json.RawMessage }
		}
		Status struct{ QOSClass string }
	}
	if err := json.Unmarshal(p.Create("/api/v1/namespaces/"+namespace+"/pods", text), &pod); err != nil {
		p.t.Fatal(err)
	}
	all := []string{pod.Status.QOSClass}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		all = append(all, string(c.Resources))
	}
	return strings.Join(all, " ")
}

// TestRealAPIServerLendsRequests: a real API server, with no webhook, makes requests for lent CPUs of those that new
// pods of class BE have for cpu, also where a LimitRange gives them one.
func TestRealAPIServerLendsRequests(t *testing.T) {
	p := plane{planetest.Start(t), t}
	p.Apply(batchRequests)
	const chosen = `{quietcore.dev/lent: "true"}`
	for name, labels := range map[string]string{"lent": chosen, "ranged": chosen, "paid": "{}"} {
		p.Create("/api/v1/namespaces", "{metadata: {name: "+name+", labels: "+labels+"}}")
	}
	p.Create("/api/v1/namespaces/ranged/limitranges", `{metadata: {name: l}, spec: {limits: [
  {type: Container, defaultRequest: {cpu: 300m}, default: {cpu: "2"}}]}}`)
	be := "{metadata: {generateName: p-, labels: {koordinator.sh/qosClass: BE}}, spec: "
	p.Within("the policy is in force", func() bool {
		body, err := yaml.YAMLToJSON([]byte(be +
			`{containers: [{name: a, image: a, resources: {requests: {cpu: 1m}}}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		code, answer := p.Try(http.MethodPost, "/api/v1/namespaces/lent/pods", "application/json", body)
		return code == http.StatusCreated && strings.Contains(string(answer), `"quietcore.dev/batch-cpu":"1"`)
	})
	p.Within("the limits of a namespace are in force", func() bool {
		return strings.Contains(p.created("ranged",
			`{metadata: {generateName: p-}, spec: {containers: [{name: a, image: a}]}}`), `"cpu":"300m"`)
	})
	const two = `{containers: [{name: a, image: a, resources: {requests: {cpu: "2"}}}]}}`
	for name, c := range map[string]struct{ namespace, pod, want string }{
		"cpu alone": {"lent", be + two,
			`BestEffort {"limits":{"quietcore.dev/batch-cpu":"2k"},"requests":{"quietcore.dev/batch-cpu":"2k"}}`},
		"Guaranteed": {"lent",
			be + `{containers: [{name: a, image: a, resources: {limits: {cpu: 1500m, memory: 1Gi}}}]}}`,
			`Burstable {"limits":{"memory":"1Gi","quietcore.dev/batch-cpu":"1500"},` +
				`"requests":{"memory":"1Gi","quietcore.dev/batch-cpu":"1500"}}`},
		"finer than a thousandth": {"lent",
			be + `{containers: [{name: a, image: a, resources: {requests: {cpu: "0.0004"}}}]}}`,
			`BestEffort {"limits":{"quietcore.dev/batch-cpu":"1"},"requests":{"quietcore.dev/batch-cpu":"1"}}`},
		"init containers": {"lent", be + `{initContainers: [{name: i, image: a, resources: {limits: {cpu: "3"}}}],
  containers: [{name: a, image: a, resources: {requests: {cpu: 100m}}}, {name: b, image: a}]}}`,
			`BestEffort {"limits":{"quietcore.dev/batch-cpu":"3k"},"requests":{"quietcore.dev/batch-cpu":"3k"}}` +
				` {"limits":{"quietcore.dev/batch-cpu":"100"},"requests":{"quietcore.dev/batch-cpu":"100"}} {}`},
		"batch-cpu by itself": {"lent",
			be + `{containers: [{name: a, image: a, resources: {limits: {quietcore.dev/batch-cpu: 7}}}]}}`,
			`BestEffort {"limits":{"quietcore.dev/batch-cpu":"7"},"requests":{"quietcore.dev/batch-cpu":"7"}}`},
		"a LimitRange's default": {"ranged", be + `{containers: [{name: a, image: a}]}}`,
			`BestEffort {"limits":{"quietcore.dev/batch-cpu":"300"},"requests":{"quietcore.dev/batch-cpu":"300"}}`},
		"another class": {"lent", `{metadata: {generateName: p-, labels: {koordinator.sh/qosClass: LS}}, spec: ` + two,
			`Burstable {"requests":{"cpu":"2"}}`},
		"no class": {"lent", `{metadata: {generateName: p-}, spec: ` + two,
			`Burstable {"requests":{"cpu":"2"}}`},
		"another namespace": {"paid", be + two, `Burstable {"requests":{"cpu":"2"}}`},
		"the pod as a whole": {"lent", be + `{resources: {requests: {cpu: "2"}}, containers: [{name: a, image: a}]}}`,
			`Burstable {}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, p.created(c.namespace, c.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
