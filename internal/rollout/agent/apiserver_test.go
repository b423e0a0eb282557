package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kube/planetest"
	"github.com/quietcore/quietcore/internal/rollout"
)

// many are agents on a real API server.
type many struct {
	*planetest.Plane
	t        *testing.T
	agents   []*Agent
	inForce  []atomic.Pointer[string]
	requests sync.Map // by what and result: *atomic.Int64
}

func (m *many) count(what, result string) {
	n, _ := m.requests.LoadOrStore(what+" "+result, &atomic.Int64{})
	n.(*atomic.Int64).Add(1)
}

// run has one more node follow policies until ctx ends.
func (m *many) run(ctx context.Context, parts *sync.WaitGroup, i int) {
	name := fmt.Sprintf("n%d", i)
	var client *kube.Client
	tick := time.NewTicker(time.Second)
	m.t.Cleanup(tick.Stop)
	log := slog.New(slog.DiscardHandler)
	a := New(Options{Node: name, API: NewAPI(func() (*rest.Config, error) { return client.REST() }),
		Log: log, Now: time.Now,
		Tick: tick.C, Random: rand.Uint64, NodeUID: func() types.UID { return client.NodeUID() },
		Keep: func(rollout.Applied) error { return nil }, Lacks: func() []string { return nil },
		Apply: func(_ context.Context, config []byte) error {
			text := string(config)
			m.inForce[i].Store(&text)
			return nil
		},
		Report: func(what string, err error) { m.count("write "+what, kube.Result(err)) }})
	m.agents = append(m.agents, a)
	client, err := kube.New(kube.Options{Node: name, Log: log, Report: m.count, OnAllLabels: a.Labels,
		Customs: a.Customs(),
		Kubeconfig: m.Kubeconfig("system:serviceaccount:quietcore:quietcore", []string{"system:authenticated"},
			map[string][]string{"authentication.kubernetes.io/node-name": {name}})})
	if err != nil {
		m.t.Fatal(err)
	}
	parts.Go(func() { client.Run(ctx) })
	parts.Go(func() { a.Run(ctx) })
}

// TestRealAPIServerMany has a policy come to many nodes in stages: 12, or QUIETCORE_NODES. With -v it prints what that
// took. Each stage has a tenth of them.
func TestRealAPIServerMany(t *testing.T) {
	n := 12
	if text := os.Getenv("QUIETCORE_NODES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	places := max(n/10, 2)
	m := &many{Plane: planetest.Start(t), t: t, inForce: make([]atomic.Pointer[string], n)}
	for _, name := range []string{"quietcorepolicies", "quietcoreturns", "quietcorenodes"} {
		m.Apply("../../../charts/quietcore/files/" + name + ".yaml")
	}
	m.Apply("../../../hack/chart/testdata/policies.yaml")
	for i := range n {
		m.Create("/api/v1/nodes", fmt.Sprintf("{metadata: {name: n%d}}", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	for i := range n {
		m.run(ctx, &parts, i)
	}
	are := func(state rollout.State) bool {
		for _, a := range m.agents {
			if a.Report().State != state {
				return false
			}
		}
		return true
	}
	m.Within("all nodes know that there is no policy", func() bool { return are(rollout.File) })
	m.requests.Clear()
	began := time.Now()
	m.Create(PoliciesPath, fmt.Sprintf(`{apiVersion: quietcore.dev/v1alpha1, kind: QuietcorePolicy, metadata: {name: p},
spec: {rollout: {maxUnavailable: %d, settleFor: 1s}, config: {memory: strict}}}`, places))
	most := 0
	for !are(rollout.Current) {
		most = max(most, m.turns())
		if time.Since(began) > 20*time.Minute {
			t.Fatal("no end after 20 minutes")
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	took := time.Since(began)
	if most > places {
		t.Errorf("%d turns at once, of %d places", most, places)
	}
	for i := range n {
		if got := m.inForce[i].Load(); got == nil || *got != `{"memory":"strict"}` {
			t.Errorf("n%d has %v in force", i, got)
		}
	}
	m.Within("no turn is left", func() bool { return m.turns() == 0 })
	var heap runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&heap)
	t.Logf("%d nodes, %d places: %s, at most %d turns at once; %d KiB of heap a node", n, places,
		took.Round(time.Second), most, heap.HeapAlloc/1024/uint64(n))
	m.requests.Range(func(what, n any) bool {
		t.Logf("%s: %d", what, n.(*atomic.Int64).Load())
		return true
	})
	began = time.Now()
	m.Do("PATCH", PoliciesPath+"/p", "application/merge-patch+json", `{spec: {config: {mode: observe}}}`)
	m.Within("all observe", func() bool {
		for i := range n {
			if *m.inForce[i].Load() != `{"memory":"strict","mode":"observe"}` {
				return false
			}
		}
		return true
	})
	t.Logf("mode: observe is on the last node after %s", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func (m *many) turns() int {
	_, text := m.Try("GET", TurnsPath, "", nil)
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		m.t.Fatalf("%s: %v", text, err)
	}
	return len(list.Items)
}
