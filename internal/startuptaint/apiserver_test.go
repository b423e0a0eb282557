package startuptaint

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// TestRealAPIServer takes the taint away at a real API server, with no more than the rights that the chart gives, and
// tries what these forbid.
func TestRealAPIServer(t *testing.T) {
	p := planetest.Start(t)
	p.Apply("../../hack/chart/testdata/startup-taint.yaml")
	const taints = `taints: [{key: theirs, effect: NoSchedule},
  {key: quietcore.dev/not-ready, value: "x", effect: NoSchedule}, {key: quietcore.dev/not-ready, effect: NoExecute},
  {key: last, effect: PreferNoSchedule}]`
	for _, name := range []string{"n1", "n2"} {
		p.Create("/api/v1/nodes", "{metadata: {name: "+name+", labels: {zone: a}, annotations: {theirs: stays}}, "+
			"spec: {podCIDR: 10.0.0.0/24, "+taints+"}}")
	}
	daemon := p.Kubeconfig("system:serviceaccount:quietcore:quietcore",
		[]string{"system:serviceaccounts", "system:authenticated"},
		map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}})
	ready := &atomic.Bool{}
	var remover *Remover
	client, err := kube.New(kube.Options{Kubeconfig: daemon, Node: "n1",
		OnStartupTaint: func(list []kube.Taint) { remover.Observe(list) }})
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(client.REST)
	try := func(node, patch string) error { return server.Patch(t.Context(), node, []byte(patch)) }
	const ours = `[{"op":"remove","path":"/spec/taints/2"}]`
	// The policy takes a while to be in force. This patch changes nothing before it is, either.
	p.Within("the daemon of n1 may not write n2", func() bool {
		err := try("n2", `[{"op":"test","path":"/metadata/name","value":"n2"}]`)
		return err != nil && strings.Contains(err.Error(), "may not write Node n2")
	})
	for _, c := range []struct{ name, node, patch, want string }{
		{"another Node", "n2", ours, "the daemon of node n1 may not write Node n2"},
		{"a taint of others", "n1", `[{"op":"remove","path":"/spec/taints/0"}]`, "only takes the taint"},
		{"a taint more", "n1", `[{"op":"add","path":"/spec/taints/-","value":{"key":"a","effect":"NoSchedule"}}]`,
			"only takes the taint"},
		{"ours, changed", "n1", `[{"op":"replace","path":"/spec/taints/2/effect","value":"PreferNoSchedule"}]`,
			"only takes the taint"},
		{"theirs, changed", "n1", `[{"op":"replace","path":"/spec/taints/0/effect","value":"PreferNoSchedule"}]`,
			"only takes the taint"},
		{"all taints", "n1", `[{"op":"remove","path":"/spec/taints"}]`, "only takes the taint"},
		{"unschedulable", "n1", `[{"op":"add","path":"/spec/unschedulable","value":true}]`, "of a Node's spec"},
		{"ours, and unschedulable", "n1", `[{"op":"remove","path":"/spec/taints/2"},` +
			`{"op":"add","path":"/spec/unschedulable","value":true}]`, "of a Node's spec"},
		{"a label", "n1", `[{"op":"replace","path":"/metadata/labels/zone","value":"b"}]`, "metadata"},
		{"a label more", "n1", `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`, "metadata"},
		{"an annotation", "n1", `[{"op":"remove","path":"/metadata/annotations/theirs"}]`, "metadata"},
		{"a finalizer", "n1", `[{"op":"add","path":"/metadata/finalizers","value":["a.b/c"]}]`, "metadata"},
		{"what is not there any more", "n1",
			`[{"op":"test","path":"/spec/taints/0/key","value":"other"},{"op":"remove","path":"/spec/taints/2"}]`,
			"the server rejected our request"},
	} {
		if err := try(c.node, c.patch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}

	remover = New(Options{API: server, Node: "n1", Ready: ready.Load})
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { client.Run(ctx) })
	parts.Go(func() { remover.Run(ctx) })
	p.Within("the Node is seen", func() bool { return len(remover.pending()) == 2 })
	all := p.Get("/api/v1/nodes/n1", "spec", "taints")
	if strings.Count(all, "quietcore.dev/not-ready") != 2 {
		t.Errorf("before the daemon is ready the Node has %s", all)
	}
	// Somebody else changes the list meanwhile: the daemon's places are old, and it looks again.
	p.Do("PATCH", "/api/v1/nodes/n1", "application/json-patch+json", `[{op: remove, path: /spec/taints/0}]`)
	ready.Store(true)
	left := func() string { return p.Get("/api/v1/nodes/n1", "spec", "taints") }
	p.Within("the taint is gone", func() bool { return !strings.Contains(left(), "quietcore.dev/not-ready") })
	if got := left(); !strings.Contains(got, "last") || strings.Contains(got, "theirs") {
		t.Errorf("in the end the Node has %s", got)
	}
	if got := p.Get("/api/v1/nodes/n1", "metadata", "annotations"); got != "map[theirs:stays]" {
		t.Errorf("the annotations are %s in the end", got)
	}
	p.Within("it is seen to be gone", func() bool { return len(remover.pending()) == 0 && remover.State() == "" })
}
