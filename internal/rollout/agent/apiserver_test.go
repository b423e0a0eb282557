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
	"strings"
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
	broken   atomic.Int64 // the number, from 1 on, of the node that a policy broke; 0: none
	requests sync.Map     // by what and result: *atomic.Int64
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
		Keep: func(rollout.Applied) error { return nil },
		Apply: func(_ context.Context, config []byte) error {
			text := string(config)
			if text == breaks {
				m.broken.CompareAndSwap(0, int64(i)+1)
			}
			m.inForce[i].Store(&text)
			return nil
		},
		Lacks: func() []string {
			if m.broken.Load() == int64(i)+1 {
				return []string{"lending: the estimator is stuck"}
			}
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

// What a policy says, first and then; the first node that takes over the second is degraded by it.
const works, breaks = `{"memory":"strict"}`, `{"memory":"preferred"}`

// TestRealAPIServerMany has a policy come to many nodes in stages: 12, or QUIETCORE_NODES. With -v it prints what that
// took. Each stage has a tenth of them. Its next revision breaks a node, and halts; mode observe is then in force on
// all.
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
	m.Within("all nodes know that there is no policy", func() bool { return m.are(rollout.File) == n })
	m.requests.Clear()
	began := time.Now()
	m.Create(PoliciesPath, fmt.Sprintf(`{apiVersion: quietcore.dev/v1alpha1, kind: QuietcorePolicy, metadata: {name: p},
spec: {rollout: {maxUnavailable: %d, settleFor: 1s}, config: {memory: strict}}}`, places))
	most := 0
	for m.are(rollout.Current) < n {
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
		if got := m.inForce[i].Load(); got == nil || *got != works {
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
	m.halts(places)
	m.stops()
}

// are is how many nodes are in a state.
func (m *many) are(state rollout.State) (n int) {
	for _, a := range m.agents {
		if a.Report().State == state {
			n++
		}
	}
	return n
}

// halts has the policy break a node, and wants the others to be left alone, with the reason.
func (m *many) halts(places int) {
	began := time.Now()
	m.Merge(PoliciesPath+"/p", `{spec: {config: {memory: preferred}, rollout: {settleFor: 5s}}}`)
	m.Within("one node is degraded, and halts the rollout", func() bool {
		return m.are(rollout.Failed) == 1 && m.are(rollout.Halted) > 0 && m.are(rollout.Waiting) == 0
	})
	took := time.Since(began)
	m.Within("those that had begun are settled", func() bool {
		return m.are(rollout.Failed)+m.are(rollout.Halted)+m.are(rollout.Current) == len(m.agents) && m.turns() == 1
	})
	changed := len(m.agents) - m.are(rollout.Halted)
	if changed > len(m.agents)*2/3 {
		m.t.Errorf("%d nodes have the revision that breaks one", changed)
	}
	broken := fmt.Sprintf("n%d", m.broken.Load()-1)
	for i, a := range m.agents {
		name, got := fmt.Sprintf("n%d", i), a.Report()
		switch got.State {
		case rollout.Halted:
			if *m.inForce[i].Load() != works || !strings.Contains(got.Why, broken+": lending") {
				m.t.Errorf("%s has %s in force, and waits since %q", name, *m.inForce[i].Load(), got.Why)
			}
		case rollout.Failed:
			m.Within("its object says why", func() bool {
				at := NodesPath + "/" + broken
				return name == broken && m.Get(at, "status", "state") == "Failed" &&
					strings.Contains(m.Get(at, "status", "why"), "lending")
			})
		}
	}
	m.t.Logf("a node that the next revision degrades halts it after %s: %d of %d nodes have that revision, of %d "+
		"places", took.Round(time.Second), changed, len(m.agents), places)
}

// stops ends enforcement on all nodes, those of a rollout that is halted included.
func (m *many) stops() {
	began := time.Now()
	m.Merge(PoliciesPath+"/p", `{spec: {config: {mode: observe}}}`)
	m.Within("all observe", func() bool {
		for i := range m.inForce {
			if !strings.Contains(*m.inForce[i].Load(), `"mode":"observe"`) {
				return false
			}
		}
		return true
	})
	took := time.Since(began)
	m.t.Logf("mode: observe is on the last node after %s", took.Round(time.Millisecond))
	if took > 5*time.Second {
		m.t.Errorf("it took %s", took)
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
