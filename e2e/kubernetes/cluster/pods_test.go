package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// The object has to be of the QoS class that the specification means; for Guaranteed
// that takes memory as well.
func TestPodObject(t *testing.T) {
	guaranteed := &kubelet.Pod{Name: "a", Namespace: "n", Labels: map[string]string{"k": "v"},
		Containers: []kubelet.Container{{Name: "first", Kind: kubelet.Init, LimitMilli: 1000},
			{Name: "main", RequestMilli: 2000, LimitMilli: 2000}}}
	burstable := &kubelet.Pod{Name: "b", Namespace: "n", Containers: []kubelet.Container{{Name: "main",
		RequestMilli: 100}, {Name: "side", Kind: kubelet.Sidecar}}}
	bestEffort := &kubelet.Pod{Name: "c", Namespace: "n", Containers: []kubelet.Container{{Name: "main"}}}
	for _, c := range []struct {
		pod       *kubelet.Pod
		has, lack []string
	}{
		{guaranteed, []string{`"cpu":"2000m"`, `"memory":"32Mi"`,
			`"initContainers":[{"command":["/bin/busybox","true"]`, `"labels":{"k":"v"}`}, []string{"Always"}},
		{burstable, []string{`"requests":{"cpu":"100m"}`, `"restartPolicy":"Always"`}, []string{"memory"}},
		{bestEffort, []string{`"limits":{},"requests":{}`}, []string{"cpu", "memory", "initContainers"}},
	} {
		text, err := json.Marshal(PodObject(c.pod))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.has {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s in %s", c.pod.Name, want, text)
			}
		}
		for _, bad := range c.lack {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s: %s in %s", c.pod.Name, bad, text)
			}
		}
	}
}

func TestRunningMeansAllContainers(t *testing.T) {
	const with, without = `{"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}`, `{"state":{"waiting":{}}}`
	for status, want := range map[string]bool{
		`{"phase":"Running","containerStatuses":[` + with + `]}`:                 true,
		`{"phase":"Running","containerStatuses":[` + with + `,` + without + `]}`: false,
		`{"phase":"Pending","containerStatuses":[` + with + `]}`:                 false,
		`{"phase":"Running"}`: false,
	} {
		var p Pod
		if err := json.Unmarshal([]byte(`{"status":`+status+`}`), &p); err != nil {
			t.Fatal(err)
		}
		if p.Running() != want {
			t.Errorf("%s: running %t, want %t", status, p.Running(), want)
		}
	}
}

func TestMoved(t *testing.T) {
	before := Placement{"n/a/main": "0-1", "n/b/main": "2-3"}
	if err := before.Moved(Placement{"n/a/main": "0-1", "n/b/main": "2-3", "n/new/main": "0-7"}); err != nil {
		t.Errorf("nobody moved: %v", err)
	}
	err := before.Moved(Placement{"n/a/main": "0-2"})
	if err == nil || !strings.Contains(err.Error(), `n/a/main was on CPUs "0-1" and is on "0-2"`) ||
		!strings.Contains(err.Error(), "n/b/main") {
		t.Errorf("got %v", err)
	}
}

// A static pod goes by its file's hash on the node, and by another UID in the API.
func TestUIDOfStaticPods(t *testing.T) {
	var p Pod
	p.Metadata.UID = "api"
	if p.uid() != "api" {
		t.Errorf("got %s", p.uid())
	}
	p.Metadata.Annotations = map[string]string{"kubernetes.io/config.hash": "file"}
	if p.uid() != "file" {
		t.Errorf("got %s", p.uid())
	}
}
