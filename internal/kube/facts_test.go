package kube

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/policy"
)

func podFrom(t testing.TB, text string) corev1.Pod {
	t.Helper()
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestResources(t *testing.T) {
	for _, c := range []struct {
		name, pod      string
		request, limit int64
	}{
		{"requests and limits are summed", `
spec:
  containers:
  - {name: a, resources: {requests: {cpu: 1500m}, limits: {cpu: "2"}}}
  - {name: b, resources: {requests: {cpu: 500m}, limits: {cpu: "1"}}}`, 2000, 3000},
		{"a container without a limit leaves the pod without one", `
spec:
  containers:
  - {name: a, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}
  - {name: b, resources: {requests: {cpu: 100m}}}`, 1100, policy.NoLimit},
		{"a missing request is the limit", `
spec: {containers: [{name: a, resources: {limits: {cpu: "4"}}}]}`, 4000, 4000},
		{"a request of zero is not missing", `
spec: {containers: [{name: a, resources: {requests: {cpu: "0"}, limits: {cpu: "4"}}}]}`, 0, 4000},
		{"nothing is asked", `
spec: {containers: [{name: a}]}`, 0, policy.NoLimit},
		{"an init container counts by itself", `
spec:
  initContainers: [{name: i, resources: {requests: {cpu: "3"}, limits: {cpu: "3"}}}]
  containers:
  - {name: a, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}
  - {name: b, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}`, 3000, 3000},
		{"an init container that is smaller does not count", `
spec:
  initContainers: [{name: i, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]
  containers: [{name: a, resources: {requests: {cpu: "2"}, limits: {cpu: "2"}}}]`, 2000, 2000},
		{"a sidecar is added", `
spec:
  initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]
  containers: [{name: a, resources: {requests: {cpu: "2"}, limits: {cpu: "2"}}}]`, 3000, 3000},
		{"an init container runs next to the sidecars before it", `
spec:
  initContainers:
  - {name: s, restartPolicy: Always, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}
  - {name: i, resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}}
  - {name: s2, restartPolicy: Always, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}
  containers: [{name: a, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]`, 5000, 5000},
		{"a sidecar without a limit leaves the pod without one", `
spec:
  initContainers:
  - {name: s, restartPolicy: Always, resources: {limits: {cpu: "1"}}}
  - {name: s2, restartPolicy: Always}
  containers: [{name: a, resources: {limits: {cpu: "2"}}}]`, 3000, policy.NoLimit},
		{"a RuntimeClass's overhead is not asked for", `
spec:
  overhead: {cpu: 250m}
  containers: [{name: a, resources: {limits: {cpu: "2"}}}]`, 2000, 2000},
		{"pod-level resources go before the containers'", `
spec:
  resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}
  containers:
  - {name: a, resources: {requests: {cpu: "1"}}}
  - {name: b}`, 4000, 4000},
		{"a pod-level limit alone is the request too", `
spec:
  resources: {limits: {cpu: "4"}}
  containers: [{name: a}]`, 4000, 4000},
		{"a pod-level limit over containers that request", `
spec:
  resources: {limits: {cpu: "4"}}
  containers: [{name: a, resources: {requests: {cpu: "1"}}}]`, 1000, 4000},
		{"a pod-level request without limit", `
spec:
  resources: {requests: {cpu: "2"}}
  containers: [{name: a}]`, 2000, policy.NoLimit},
		{"a resize that kubelet has not seen", `
metadata: {generation: 2}
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}}]}
status:
  qosClass: Guaranteed
  observedGeneration: 1
  containerStatuses: [{name: a, allocatedResources: {cpu: "2"},
    resources: {requests: {cpu: "2"}, limits: {cpu: "2"}}}]`, 2000, 2000},
		{"a resize that is put off", `
metadata: {generation: 2}
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "8"}}}]}
status:
  qosClass: Burstable
  observedGeneration: 2
  conditions: [{type: PodResizePending, status: "True", reason: Deferred}]
  containerStatuses: [{name: a, allocatedResources: {cpu: "2"},
    resources: {requests: {cpu: "2"}, limits: {cpu: "3"}}}]`, 2000, 3000},
		{"a resize that is allocated and under way", `
metadata: {generation: 2}
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}}]}
status:
  qosClass: Guaranteed
  observedGeneration: 2
  conditions: [{type: PodResizeInProgress, status: "True"}]
  containerStatuses: [{name: a, allocatedResources: {cpu: "4"},
    resources: {requests: {cpu: "2"}, limits: {cpu: "2"}}}]`, 4000, 4000},
		{"a quota that was lifted is no limit of a Guaranteed pod", `
metadata: {generation: 3}
spec: {containers: [{name: a, resources: {requests: {cpu: "6"}, limits: {cpu: "6"}}}]}
status:
  qosClass: Guaranteed
  observedGeneration: 2
  containerStatuses: [{name: a, allocatedResources: {cpu: "4"}, resources: {requests: {cpu: "4"}, limits: {}}}]`, 4000,
			4000},
		{"a kubelet that allocates without saying so", `
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}}]}
status:
  conditions: [{type: PodResizePending, status: "True", reason: Infeasible}]
  containerStatuses: [{name: a, resources: {requests: {cpu: "2"}, limits: {cpu: "2"}}}]`, 2000, 2000},
		{"a container that has not started is as the spec says", `
metadata: {generation: 2}
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}}]}
status: {observedGeneration: 1}`, 4000, 4000},
		{"a pod-level resize that is put off, with an overhead", `
metadata: {generation: 2}
spec:
  overhead: {cpu: 250m}
  resources: {requests: {cpu: "8"}, limits: {cpu: "8"}}
  containers: [{name: a}]
status:
  qosClass: Guaranteed
  allocatedResources: {cpu: 4250m}
  conditions: [{type: PodResizePending, status: "True", reason: Deferred}]`, 4000, 4000},
		{"a pod-level limit as it runs", `
spec:
  resources: {requests: {cpu: "2"}, limits: {cpu: "8"}}
  containers: [{name: a}]
status:
  qosClass: Burstable
  resources: {limits: {cpu: "4"}}
  conditions: [{type: PodResizePending, status: "True", reason: Deferred}]`, 2000, 4000},
		{"absurd sizes stay numbers", `
spec: {containers: [{name: a, resources: {limits: {cpu: 9E}}}, {name: b, resources: {limits: {cpu: 9E}}}]}`, maxMilli,
			maxMilli},
		{"fractions are rounded up, as kubelet does", `
spec: {containers: [{name: a, resources: {limits: {cpu: 1500u}}}]}`, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podFrom(t, c.pod)
			want := policy.Resources{RequestMilli: c.request, LimitMilli: c.limit}
			if got := infoOf(&pod).facts.Resources; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// What Kubernetes counts for claims is told apart, whatever the spec says of the pod as a whole. A driver's overhead is
// requested like any other CPU.
func TestCounted(t *testing.T) {
	const claims = `
status:
  nodeAllocatableResourceClaimStatuses:
  - resourceClaimName: ml-cpus
    containers: [a, b]
    mapping: [{name: cpu, quantity: "2"}, {name: memory, quantity: 1Gi}]
  - {resourceClaimName: ml-more, containers: [b], mapping: [{name: cpu, quantity: "1"}]}
  - {resourceClaimName: gpu, containers: [a], overhead: [{name: cpu, perPod: 100m, perContainer: 50m}]}`
	for _, c := range []struct {
		name, spec     string
		request, limit int64
	}{
		{"containers", `
spec:
  containers:
  - {name: a, resources: {requests: {cpu: 1500m}, limits: {cpu: "2"}}}
  - {name: b, resources: {requests: {cpu: 500m}, limits: {cpu: "1"}}}`, 2150, 3150},
		{"no limit", `
spec: {containers: [{name: a, resources: {requests: {cpu: "1"}}}, {name: b}]}`, 1150, policy.NoLimit},
		{"claims alone", `
spec: {containers: [{name: a}, {name: b}]}`, 150, policy.NoLimit},
		{"a pod-level request has them", `
spec:
  resources: {requests: {cpu: "5"}, limits: {cpu: "6"}}
  containers: [{name: a}, {name: b}]`, 2000, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podFrom(t, c.spec+claims)
			got := infoOf(&pod).facts
			if r := got.Resources; r.RequestMilli != c.request || r.LimitMilli != c.limit {
				t.Errorf("besides claims %+v, want %d and %d", r, c.request, c.limit)
			}
			if want := (policy.Counted{"": 3000, "a": 2000, "b": 3000}); !cmp.Equal(got.Counted, want) {
				t.Errorf("of claims %v, want %v", got.Counted, want)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	for _, c := range []struct {
		name, pod string
		want      int64
	}{
		{"none", `spec: {containers: [{name: a, resources: {requests: {cpu: "1"}}}]}`, 0},
		{"ours",
			`spec: {containers: [{name: a, resources: {requests: {quietcore.dev/batch-cpu: "1500"}}}, {name: b, ` +
				`resources: {requests: {quietcore.dev/batch-cpu: 1k}}}]}`, 2500},
		{"Koordinator's", `spec: {containers: [{name: a, resources: {requests: {kubernetes.io/batch-cpu: "1500"}}}]}`,
			1500},
		{"ours goes first",
			`spec: {containers: [{name: a, resources: {requests: {quietcore.dev/batch-cpu: "1", ` +
				`kubernetes.io/batch-cpu: "1500"}}}]}`, 1},
		{"the annotation", `
metadata: {annotations: {node.koordinator.sh/extended-resource-spec:
  '{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1k"}},` +
			`"b":{"limits":{"kubernetes.io/batch-cpu":"500"}},` +
			`"nobody":{"requests":{"kubernetes.io/batch-cpu":"9"}}}}'}}
spec: {containers: [{name: a}, {name: b}, {name: c}]}`, 1500},
		{"an annotation that is none", `
metadata: {annotations: {node.koordinator.sh/extended-resource-spec: '{"containers":'}}
spec: {containers: [{name: a}]}`, 0},
		{"negative", `
metadata: {annotations: {node.koordinator.sh/extended-resource-spec:
  '{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"-5"}}}}'}}
spec: {containers: [{name: a}]}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := podFrom(t, c.pod)
			if got := infoOf(&pod).facts.BatchMilli; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestOwner(t *testing.T) {
	yes := true
	made := time.Date(2026, 11, 21, 12, 0, 5, 0, time.UTC) // minute 29921040
	ref := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "Volume", Name: "other"}, {Kind: kind, Name: name, Controller: &yes}}
	}
	for _, c := range []struct {
		name   string
		pod    string
		labels map[string]string
		owners []metav1.OwnerReference
		want   string
	}{
		{"alone", "web", nil, nil, "Pod/web"},
		{"owned but not controlled", "web", nil, []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "x"}}, "Pod/web"},
		{"Deployment", "web-5d4f8-abcde", map[string]string{"pod-template-hash": "5d4f8"},
			ref("ReplicaSet", "web-5d4f8"), "Deployment/web"},
		{"ReplicaSet of nobody", "web-abcde", nil, ref("ReplicaSet", "web-5d4f8"), "ReplicaSet/web-5d4f8"},
		{"ReplicaSet whose hash is another", "web-abcde", map[string]string{"pod-template-hash": "ffff"},
			ref("ReplicaSet", "web-5d4f8"), "ReplicaSet/web-5d4f8"},
		{"ReplicaSet that is only a hash", "x", map[string]string{"pod-template-hash": "5d4f8"},
			ref("ReplicaSet", "-5d4f8"), "ReplicaSet/-5d4f8"},
		{"Rollout", "web-5d4f8-abcde", map[string]string{"rollouts-pod-template-hash": "5d4f8"},
			ref("ReplicaSet", "web-5d4f8"), "Rollout/web"},
		{"StatefulSet", "db-0", nil, ref("StatefulSet", "db"), "StatefulSet/db"},
		{"DaemonSet", "log-abcde", nil, ref("DaemonSet", "log"), "DaemonSet/log"},
		{"Job", "once-abcde", nil, ref("Job", "once"), "Job/once"},
		{"CronJob", "nightly-29920320-abcde", nil, ref("Job", "nightly-29920320"), "CronJob/nightly"},
		{"Job that ends in a date", "load-20261121-abcde", nil, ref("Job", "load-20261121"), "Job/load-20261121"},
		{"Job that ends in a number", "load-7-abcde", nil, ref("Job", "load-7"), "Job/load-7"},
		{"Job that ends in a minute with a zero before it", "load-029920320-x", nil, ref("Job", "load-029920320"),
			"Job/load-029920320"},
		{"Job that ends in a number past all numbers", "l", nil, ref("Job", "load-99999999999999999999"),
			"Job/load-99999999999999999999"},
		{"custom", "train-0", nil, ref("PyTorchJob", "train"), "PyTorchJob/train"},
		{"static", "etcd-worker-1", nil, ref("Node", "worker-1"), "Pod/etcd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.pod, Labels: c.labels, OwnerReferences: c.owners,
				CreationTimestamp: metav1.NewTime(made)}}
			if got := OwnerOf(&pod); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCronJobsOfEveryMinute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minute := rapid.Int64Range(20_000_000, 60_000_000).Draw(t, "minute")
		delay := rapid.Int64Range(0, 30*24*60).Draw(t, "delay")
		name := rapid.StringMatching(`[a-z]([-a-z0-9]{0,20}[a-z0-9])?`).Draw(t, "name")
		got, ok := cronJobOf(name+"-"+strconv.FormatInt(minute, 10), time.Unix((minute+delay)*60, 0))
		if !ok || got != name {
			t.Fatalf("got %q, %v, want %q", got, ok, name)
		}
	})
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

// TestSettledSpecIsTheSpec: with nothing under way the status changes nothing.
func TestSettledSpecIsTheSpec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t)
		plain := pod.DeepCopy()
		plain.Status = corev1.PodStatus{}
		if diff := cmp.Diff(infoOf(plain).facts, infoOf(pod).facts); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestSumsAreBounded: whatever a tenant writes, sums of a node's pods fit into 64 bits.
func TestSumsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t)
		f := infoOf(pod).facts
		for _, n := range []int64{f.Resources.RequestMilli, f.Resources.LimitMilli, f.BatchMilli} {
			if n < policy.NoLimit || n > math.MaxInt64/(1<<20) {
				t.Fatalf("%+v is out of bounds", f)
			}
		}
	})
}

func drawPod(t *rapid.T) *corev1.Pod {
	pod := &corev1.Pod{Status: corev1.PodStatus{QOSClass: rapid.SampledFrom([]corev1.PodQOSClass{"",
		corev1.PodQOSGuaranteed, corev1.PodQOSBurstable}).Draw(t, "qos")}}
	draw := func(init bool) corev1.Container {
		c := corev1.Container{Name: rapid.StringMatching(`[a-z]{4}`).Draw(t, "name")}
		for _, list := range []*corev1.ResourceList{&c.Resources.Requests, &c.Resources.Limits} {
			if rapid.Bool().Draw(t, "set") {
				setCPU(list, *quantity(rapid.SampledFrom([]string{"0", "1", "100m", "4", "9E", "1u"}).Draw(t, "cpu")))
			}
		}
		if init && rapid.Bool().Draw(t, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		return c
	}
	for range rapid.IntRange(1, 4).Draw(t, "containers") {
		pod.Spec.Containers = append(pod.Spec.Containers, draw(false))
	}
	for range rapid.IntRange(0, 3).Draw(t, "inits") {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, draw(true))
	}
	for i := range pod.Spec.Containers {
		s := corev1.ContainerStatus{Name: pod.Spec.Containers[i].Name, Resources: &corev1.ResourceRequirements{}}
		setCPU(&s.Resources.Limits, *quantity("7"))
		setCPU(&s.AllocatedResources, *quantity("7"))
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
	}
	return pod
}
