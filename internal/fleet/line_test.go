package fleet

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/access"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// visited is one round's answers: the owners of each node, or why there is none.
func visited(t *testing.T, l *Line) (owners map[string]int, wrong map[string]string) {
	t.Helper()
	var mu sync.Mutex // guards both
	owners, wrong = map[string]int{}, map[string]string{}
	err := l.Round(t.Context(), func(ctx context.Context, n Node) {
		var s control.Summary
		err := n.Get(ctx, "/v1/summary", nil, &s)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			wrong[n.Name] = err.Error()
			return
		}
		owners[n.Name] = s.Owners
	})
	if err != nil {
		t.Fatal(err)
	}
	return owners, wrong
}

// A line asks all nodes in every round, with a token that is had anew when it is half as old as it gets, and finds
// those that have come.
func TestALineAsksAgain(t *testing.T) {
	f, c := clusterOf(t, 5)
	now := time.Unix(1e9, 0)
	l, err := c.Open("a-test", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	last := f.nodes[4]
	f.nodes = f.nodes[:4]
	for round, want := range []struct {
		nodes  int
		tokens int64
	}{{4, 1}, {4, 1}, {5, 1}, {5, 2}} {
		if round == 2 {
			f.nodes = append(f.nodes, last)
		}
		if round == 3 {
			now = now.Add(tokenSeconds / 2 * time.Second)
		}
		owners, wrong := visited(t, l)
		if len(owners) != want.nodes || len(wrong) > 0 || f.asked("token") != want.tokens {
			t.Errorf("round %d: %v, %v, %d tokens, want %+v", round, owners, wrong, f.asked("token"), want)
		}
	}
	port := f.nodes[2].port
	f.nodes[2].port = 1 // nobody listens there
	if owners, wrong := visited(t, l); len(owners) != 4 || wrong["node-002"] == "" {
		t.Errorf("without one: %v, %v", owners, wrong)
	}
	f.nodes[2].port = port
	l.a.most = 10
	if owners, wrong := visited(t, l); len(owners) > 0 || !strings.Contains(wrong["node-000"], "longer than 10 bytes") {
		t.Errorf("answers that are too long: %v, %v", owners, wrong)
	}
}

// A token of a file is read in each round, and none is asked for.
func TestATokenOfAFile(t *testing.T) {
	f, c := clusterOf(t, 2)
	c.TokenFile = filepath.Join(t.TempDir(), "token")
	l, err := c.Open("a-test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Round(t.Context(), func(context.Context, Node) {}); err == nil ||
		!strings.Contains(err.Error(), "read the token for daemons") {
		t.Errorf("without the file: %v", err)
	}
	for text, want := range map[string]int{readerToken + "1\n": 2, "another": 0} {
		if err := os.WriteFile(c.TokenFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if owners, wrong := visited(t, l); len(owners) != want || len(wrong) != 2-want || f.asked("token") > 0 {
			t.Errorf("%q: %v, %v, %d tokens", text, owners, wrong, f.asked("token"))
		}
	}
}

// hubRights are those of the chart for a release quietcore.
const hubRights = "../../hack/chart/testdata/hub.yaml"

// hubMayAsk is a hub with the rights of the chart at the real API server: it reads what it shows, and cannot have a
// token, or what else daemons say.
func hubMayAsk(t *testing.T, p *planetest.Plane, nodes []*simulated) {
	t.Helper()
	c := &Cluster{Home: "quietcore-system", Labels: "app.kubernetes.io/name=quietcore", Parallel: 2,
		Patience: 30 * time.Second, Kubeconfig: p.Kubeconfig("system:serviceaccount:quietcore-system:quietcore-hub",
			[]string{"system:serviceaccounts", "system:authenticated"}, nil)}
	l, err := c.Open("quietcore-hub", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	err = l.Round(t.Context(), func(context.Context, Node) {})
	if err == nil || !strings.Contains(err.Error(), `cannot create resource "serviceaccounts/token"`) {
		t.Errorf("a token of readers: %v", err)
	}
	l.a.TokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(l.a.TokenFile, []byte(tokenOf(t, p, "quietcore-hub", access.Audience)), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards got
	got := map[string][]string{}
	err = l.Round(t.Context(), func(ctx context.Context, n Node) {
		for _, path := range []string{"/v1/summary", "/v1/top", "/v1/incidents", "/v1/status", "/v1/bundle"} {
			var any map[string]any
			if err := n.Get(ctx, path, nil, &any); err == nil {
				mu.Lock()
				got[n.Name] = append(got[n.Name], path)
				mu.Unlock()
			} else if !strings.Contains(err.Error(), "may not get") {
				t.Errorf("%s of %s: %v", path, n.Name, err)
			}
		}
	})
	want := []string{"/v1/summary", "/v1/top", "/v1/incidents"}
	for _, d := range nodes {
		if err != nil || !slices.Equal(got[d.node], want) {
			t.Errorf("%s says to it %v (%v), want %v", d.node, got[d.node], err, want)
		}
	}
}
