package lend

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kube/planetest"
	"github.com/quietcore/quietcore/policy"
)

const daemonUser = "system:serviceaccount:quietcore:quietcore"

// plane is a real API server without anything behind it.
type plane struct {
	*planetest.Plane
	t *testing.T
}

// daemonOf is a kubeconfig that speaks as the daemon with the token of a node.
func (p plane) daemonOf(node string) string {
	return p.Kubeconfig(daemonUser, []string{"system:serviceaccounts", "system:authenticated"},
		map[string][]string{"authentication.kubernetes.io/node-name": {node}})
}

func (p plane) node(name string) {
	p.t.Helper()
	p.Create("/api/v1/nodes", fmt.Sprintf("{metadata: {name: %s, labels: {zone: a}, annotations: {theirs: stays}}}",
		name))
	p.Merge("/api/v1/nodes/"+name+"/status",
		`{status: {capacity: {cpu: "16"}, allocatable: {cpu: "15"}, conditions: [{type: Ready, status: "True"}]}}`)
}

// pod is bound to n1 and runs. It returns the UID.
func (p plane) pod(name, request string) Pod {
	p.t.Helper()
	p.Create("/api/v1/namespaces/default/pods", fmt.Sprintf(
		`{metadata: {name: %s, labels: {app: %s}}, spec: {nodeName: n1, containers: [{name: a, image: a,
  resources: {requests: {quietcore.dev/batch-cpu: %q}, limits: {quietcore.dev/batch-cpu: %q}}}]}}`, name, name,
		request, request))
	path := "/api/v1/namespaces/default/pods/" + name
	p.Merge(path+"/status", `{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`)
	return Pod{UID: p.Get(path, "metadata", "uid"), Namespace: "default", Name: name}
}

// TestRealAPIServer publishes to a real API server with no more than the rights in
// testdata/rights.yaml, and tries what they forbid. Evictions are tried in
// scheduler/evictor.
func TestRealAPIServer(t *testing.T) {
	p := plane{planetest.Start(t), t}
	p.Apply("testdata/rights.yaml")
	p.node("n1")
	p.node("n2")

	wire := &struct {
		sync.Mutex
		repairs []string
	}{}
	var publisher *Publisher
	client, err := kube.New(kube.Options{
		Kubeconfig: p.daemonOf("n1"), Node: "n1",
		OnFacts: func(context.Context, policy.PodFacts) {}, OnLent: func(n kube.LentNode) {
			publisher.Observe(n)
		}, OnBatch: func() { publisher.Changed() },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(client.REST)
	t.Run("the policy", func(t *testing.T) {
		// It takes a moment until policies are in force.
		p.Within("the daemon of n1 may not write n2", func() bool {
			_, err := server.PatchNode(t.Context(), "n2",
				[]byte(`{"status":{"capacity":{"quietcore.dev/batch-cpu":"1"}}}`))
			return err != nil
		})
		for _, c := range []struct{ name, patch, want string }{
			{"CPUs", `{"status":{"capacity":{"cpu":"64"}}}`, "batch-cpu only"},
			{"a resource less", `{"status":{"allocatable":{"cpu":null}}}`, "batch-cpu only"},
			{"a resource more", `{"status":{"allocatable":{"example.com/gpu":"4"}}}`, "batch-cpu only"},
			{"conditions", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
				"capacity and allocatable only"},
			{"conditions taken away", `{"status":{"conditions":null}}`, "capacity and allocatable only"},
			{"a label", `{"metadata":{"labels":{"zone":"b"}}}`, "quietcore.dev/lending only"},
			{"an annotation", `{"metadata":{"annotations":{"theirs":"changed"}}}`, "quietcore.dev/lending only"},
			{"an annotation taken away", `{"metadata":{"annotations":{"theirs":null}}}`, "quietcore.dev/lending only"},
			{"an annotation more", `{"metadata":{"annotations":{"volumes":"x"}}}`, "quietcore.dev/lending only"},
			{"what is allowed",
				`{"metadata":{"annotations":{"quietcore.dev/lending":"x"}},` +
					`"status":{"capacity":{"quietcore.dev/batch-cpu":"1","kubernetes.io/batch-cpu":"1"}}}`, ""},
			{"and back",
				`{"metadata":{"annotations":{"quietcore.dev/lending":null}},` +
					`"status":{"capacity":{"quietcore.dev/batch-cpu":null,"kubernetes.io/batch-cpu":null}}}`, ""},
		} {
			_, err := server.PatchNode(t.Context(), "n1", []byte(c.patch))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
		}
	})

	t.Run("published", func(t *testing.T) {
		publisher = New(Options{API: server, Node: "n1", Bound: client.Batch, RaiseEvery: time.Millisecond,
			Repaired: func(cause string) {
				wire.Lock()
				defer wire.Unlock()
				wire.repairs = append(wire.repairs, cause)
			}})
		ctx, cancel := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		defer parts.Wait()
		defer cancel()
		parts.Go(func() { client.Run(ctx) })
		parts.Go(func() { publisher.Run(ctx) })
		says := func() string {
			return p.Get("/api/v1/nodes/n1", "status", "capacity", kube.BatchResource) + "/" +
				p.Get("/api/v1/nodes/n1", "status", "allocatable", kube.BatchResource)
		}
		publisher.Offer(8000)
		p.Within("8 CPUs are published", func() bool { return says() == "8k/8k" })
		publisher.Offer(2500)
		p.Within("2.5 CPUs are published", func() bool { return says() == "2500/2500" })
		p.pod("big", "4000")
		p.Within("what a pod requests is covered", func() bool { return says() == "4k/4k" })
		began := time.Now()
		p.Merge("/api/v1/nodes/n1/status",
			`{status: {capacity: {quietcore.dev/batch-cpu: "0"}, allocatable: {quietcore.dev/batch-cpu: "0"}}}`)
		p.Within("zeroes are repaired", func() bool { return says() == "4k/4k" })
		t.Logf("zeroes were repaired %s after they were written", time.Since(began).Round(time.Millisecond))
		wire.Lock()
		if diff := cmp.Diff([]string{CauseZeroed}, wire.repairs); diff != "" {
			t.Errorf("repairs: %s", diff)
		}
		wire.Unlock()
		publisher.Withdraw()
		p.Within("nothing is published", func() bool { return says() == "/" })
		if got := p.Get("/api/v1/nodes/n1", "metadata", "annotations"); got != "map[theirs:stays]" {
			t.Errorf("the annotations are %s in the end", got)
		}
		if got := p.Get("/api/v1/nodes/n1", "status", "allocatable", "cpu"); got != "15" {
			t.Errorf("the Node has %s CPUs in the end", got)
		}
	})
}
