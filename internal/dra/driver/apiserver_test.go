package driver

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// mapsGate is the feature by which Kubernetes counts claims as CPUs of the node.
const mapsGate = "--feature-gates=DRANodeAllocatableResources="

// TestRealAPIServerMapsCPUs: a real API server drops the mapping without the gate, refuses it for a node whose kubelet
// does not declare it, and keeps it for one that does.
func TestRealAPIServerMapsCPUs(t *testing.T) {
	s := planetest.Start(t)
	w := newWorld(t)
	w.maps = true
	w.driver.o.API = NewAPI(func() (*rest.Config, error) { return s.Config(), nil })
	p := newPublisher(w.driver)
	at := func(what string, mapped bool, state string) {
		t.Helper()
		eventually(t, what, func() bool {
			p.attempt(t.Context())
			return !strings.Contains(w.driver.slices, "not yet ready")
		})
		list, err := w.driver.o.API.Slices(t.Context(), "n1")
		if err != nil || len(list) != 1 || len(list[0].Spec.Devices) != 2 {
			t.Fatalf("%s: slices %+v, %v; state %q", what, list, err, w.driver.slices)
		}
		for _, d := range list[0].Spec.Devices {
			m := d.NodeAllocatableResources["cpu"].Mapping
			if (m != nil) != mapped ||
				m != nil && (*m.CapacityKey != dra.Capacity || m.CapacityMultiplier.Value() != 1) {
				t.Errorf("%s: device %s has mapping %v", what, d.Name, m)
			}
		}
		if !strings.Contains(w.driver.slices, state) || (w.driver.slices == "") != (state == "") {
			t.Errorf("%s: state %q", what, w.driver.slices)
		}
	}
	s.Restart(mapsGate + "false")
	s.Create("/api/v1/nodes", `metadata: {name: n1}`)
	at("off in the API server", false, "drops nodeAllocatableResources")
	s.Restart(mapsGate + "true")
	p.forget() // kubelet came back
	at("off in kubelet", false, "refuses nodeAllocatableResources")
	s.Merge("/api/v1/nodes/n1/status", `status: {declaredFeatures: [DRANodeAllocatableResources]}`)
	eventually(t, "the API server's own list of nodes", func() bool {
		p.attempt(t.Context())
		return w.driver.slices == ""
	})
	at("on in both", true, "")
}

// TestRealAPIServerCountsClaims: a real kube-scheduler counts claims of our devices with what pods request, notes that
// in the status that the daemon reads, and has a pod wait whose claim and request do not fit together. One claim may
// have more CPUs than Kubernetes allows devices in a claim.
func TestRealAPIServerCountsClaims(t *testing.T) {
	s := planetest.Start(t)
	s.Restart(mapsGate + "true")
	s.Create("/api/v1/nodes", `metadata: {name: n1}`)
	s.Merge("/api/v1/nodes/n1", `spec: {taints: null}`) // it is not ready when it is new
	s.Create("/apis/resource.k8s.io/v1/deviceclasses", `
metadata: {name: cpu.quietcore.dev}
spec: {selectors: [{cel: {expression: "device.driver == 'cpu.quietcore.dev'"}}]}`)
	s.Merge("/api/v1/nodes/n1/status", `
status:
  declaredFeatures: [DRANodeAllocatableResources]
  conditions: [{type: Ready, status: "True"}]
  capacity: {cpu: "8", memory: 8Gi, pods: "9"}`)
	w := newWorld(t)
	w.maps, w.topo = true, withCores(t, 64)
	w.driver.o.API = NewAPI(func() (*rest.Config, error) { return s.Config(), nil })
	p := newPublisher(w.driver)
	eventually(t, "slices with a mapping", func() bool { p.attempt(t.Context()); return w.driver.slices == "" })
	s.Run("kube-scheduler", "--kubeconfig="+s.Kubeconfig("admin", []string{"system:masters"}, nil),
		"--leader-elect=false", "--secure-port=0", mapsGate+"true")
	get := func(name string) (pod corev1.Pod) {
		code, text := s.Try(http.MethodGet, "/api/v1/namespaces/default/pods/"+name, "", nil)
		if code != http.StatusOK || json.Unmarshal(text, &pod) != nil {
			return corev1.Pod{}
		}
		return pod
	}
	pod := func(name, claim, request string) (pod corev1.Pod) {
		t.Helper()
		s.Create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `
metadata: {name: `+name+`}
spec: {devices: {requests: [{name: cpus, exactly: {deviceClassName: cpu.quietcore.dev,
  capacity: {requests: {cpu: "`+claim+`"}}}}]}}`)
		s.Create("/api/v1/namespaces/default/pods", `
metadata: {name: `+name+`}
spec:
  resourceClaims: [{name: c, resourceClaimName: `+name+`}]
  containers: [{name: main, image: i, resources: {claims: [{name: c}], requests: {cpu: "`+request+`"}}}]`)
		eventually(t, "a decision on pod "+name, func() bool {
			pod = get(name)
			return len(pod.Status.Conditions) > 0
		})
		return pod
	}
	first := pod("first", "2", "4")
	counted := first.Status.NodeAllocatableResourceClaimStatuses
	if first.Spec.NodeName != "n1" || len(counted) != 1 || counted[0].Mapping[0].Quantity.Value() != 2 ||
		len(counted[0].Containers) != 1 {
		t.Errorf("on node %q, counted %+v, %+v", first.Spec.NodeName, counted, first.Status.Conditions)
	}
	second := pod("second", "2", "1") // 4 and 2 are taken of 8, and 1 and 2 more do not fit
	if why := second.Status.Conditions[0].Message; second.Spec.NodeName != "" ||
		!strings.Contains(why, "Insufficient cpu") {
		t.Errorf("on node %q: %s", second.Spec.NodeName, why)
	}
	s.Merge("/api/v1/nodes/n1/status", `status: {capacity: {cpu: "128"}, allocatable: {cpu: "128"}}`)
	pod("large", "48", "1")
	eventually(t, "a node for a claim of 48 CPUs", func() bool { return get("large").Spec.NodeName == "n1" })
	claim, err := w.driver.o.API.Claim(t.Context(), "default", "large")
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.driver.o.Node().Prepared(claim)
	if err != nil || len(e.Requests) != 1 || e.Requests[0].CPUs != 48 {
		t.Errorf("a claim of 48 CPUs asks for %+v, %v", e.Requests, err)
	}
}
