package plugin

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/policy"
)

// placer is a second plugin of the runtime that sets the CPUs of one pod's containers.
type placer struct{ pod, cpus string }

func (p placer) CreateContainer(_ context.Context, s *api.PodSandbox,
	_ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if s.GetName() != p.pod {
		return nil, nil, nil
	}
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUSetCPUs(p.cpus)
	return a, nil, nil
}

// told are a daemon's notices about other plugins, and its metrics.
type told struct {
	mu      sync.Mutex
	notices []string
	metrics *metrics.Metrics
}

func (n *rig) listening(change ...func(*Options)) *told {
	n.t.Helper()
	heard := &told{metrics: metrics.New("", func() (metrics.Stats, bool) { return metrics.Stats{}, false })}
	n.up(append(change, func(o *Options) {
		o.Metrics = heard.metrics
		o.Notify = func(m policy.Notice) {
			heard.mu.Lock()
			defer heard.mu.Unlock()
			if m.Reason == policy.ReasonRival {
				if m.Pod != (policy.PodRef{}) {
					n.t.Errorf("the notice is about pod %s, want the node", m.Pod.Name)
				}
				heard.notices = append(heard.notices, m.Message)
			}
		}
	})...)
	n.kubelet(policy.KubeletState{PolicyName: "none"})
	return heard
}

func (n *rig) kubelet(s policy.KubeletState) {
	n.t.Helper()
	if err := n.plugin.Submit(short(n.t), s); err != nil {
		n.t.Fatal(err)
	}
}

// retried is a container that kubelet creates several times, each time with a new ID; refused says what came of it.
func (n *rig) retried(s spec, times int, refused bool) {
	n.t.Helper()
	for i := range times {
		c := s.container("sb-"+s.name, fmt.Sprint(s.name, "-main-", i), s.ctrs[0])
		if _, err := n.create(n.pods["sb-"+s.name], c); (err != nil) != refused {
			n.t.Fatalf("attempt %d: %v", i+1, err)
		}
	}
}

// sandboxed starts a pod without its containers.
func (n *rig) sandboxed(s spec) {
	n.t.Helper()
	n.kernel.Mkdir(s.parent(), 0)
	sandbox := s.sandbox("sb-" + s.name)
	if err := n.nri.RunPodSandbox(short(n.t), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[sandbox.Id] = sandbox
}

// rival checks that one kind of other plugin was noticed, and how it was told.
func (n *rig) rival(heard *told, want policy.Rival, message string) {
	n.t.Helper()
	list := n.plugin.Rivals()
	if len(list) != 1 {
		n.t.Fatalf("%d are noticed, want 1: %+v", len(list), list)
	}
	got := list[0]
	if got.How != want.How || got.Times != want.Times || got.Container != want.Container {
		n.t.Errorf("noticed %+v, want %+v", got, want)
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if len(heard.notices) != 1 || !strings.Contains(heard.notices[0], message) {
		n.t.Errorf("told %q, want one notice with %q", heard.notices, message)
	}
	series := fmt.Sprintf(`quietcore_foreign_cpusets_total{how=%q} %d`, want.How, want.Times)
	page := httptest.NewRecorder()
	metrics.Handler(heard.metrics, metrics.NewHealth(time.Now, time.Now)).ServeHTTP(page,
		httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(page.Body.String(), series+"\n") {
		n.t.Errorf("no %s", series)
	}
}

// 44: it sets CPUs before us. The runtime refuses the container, each time.
func TestAPluginBeforeOursThatSetsCPUsIsTold(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	heard := n.listening()
	n.another("10", "early", placer{"db", "8-9"})
	n.another("95", "late", placer{"nobody", ""})
	mustRun(t, n, burstable("web"))
	db := lse("db", 4000)
	n.sandboxed(db)
	n.retried(db, 3, true)
	n.remove(db) // the last attempt is over, too
	n.rival(heard, policy.Rival{How: policy.RivalBefore, Times: 2,
		Container: "default/db/main"},
		"another NRI plugin sets CPUs: container default/db/main had CPUs 8-9 before")
}

// 44: it sets CPUs after us. Once may be anything, and twice is told.
func TestAPluginAfterOursThatSetsCPUsIsTold(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	heard := n.listening()
	n.another("95", "late", placer{"db", "8-9"})
	mustRun(t, n, burstable("web"))
	db := lse("db", 4000)
	n.sandboxed(db)
	n.retried(db, 2, true)
	if list := n.plugin.Rivals(); len(list) > 0 {
		t.Errorf("after a single failure: %+v", list)
	}
	n.retried(db, 2, true)
	n.rival(heard, policy.Rival{How: policy.RivalAfter, Times: 2,
		Container: "default/db/main"}, "container default/db/main was refused 2 times")
}

// 44: it sets CPUs where we set none. Nothing is refused.
func TestAPluginThatSetsCPUsAloneIsTold(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	heard := n.listening(func(o *Options) { o.Observe = true })
	n.another("10", "early", placer{"db", "8-9"})
	db := lse("db", 4000)
	mustRun(t, n, db, burstable("web"))
	n.rival(heard, policy.Rival{How: policy.RivalAlone, Times: 1, Container: "default/db/main"},
		"another NRI plugin sets CPUs: container default/db/main, to which Quietcore gives no CPUs, was given 8-9")
}

// 44: it moves a container that runs. The audit moves it back.
func TestAContainerThatOthersMoveIsTold(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	heard := n.listening()
	mustRun(t, n, lsr("db", 4000))
	n.settle()
	n.kernel.Tamper("kubepods/poduid-db/db-main", "8-9")
	n.plugin.Audit()
	n.settle()
	n.want("db-main", "0-3")
	n.rival(heard, policy.Rival{How: policy.RivalMoved, Times: 1, Container: "default/db/main"},
		"container default/db/main was moved through its runtime to CPUs 8-9, and back to 0-3")
}

// What kubelet's static policy gives, and a plugin that only looks, is no rival.
func TestKubeletIsNoRival(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.listening()
	other := &picky{}
	n.later(other)
	pinned := spec{name: "pinned", qos: policy.Guaranteed, ctrs: []ctr{{name: "main", request: 2000, limit: 2000,
		cpus: "8-9"}}}
	plain := spec{name: "plain", qos: policy.Burstable, ctrs: []ctr{{name: "main", request: 100, cpus: "0-7,10-15"}}}
	n.kubelet(policy.KubeletState{PolicyName: "static", Default: setOf(t, "0-7,10-15"),
		Entries: map[string]map[string]cpuset.Set{"uid-pinned": {"main": setOf(t, "8-9")}}})
	mustRun(t, n, pinned)
	other.refuse("plain/main")
	if err := n.run(plain); err == nil { // once is the runtime's own affair
		t.Fatal("the other plugin let it pass")
	}
	n.remove(plain)
	if list := n.plugin.Rivals(); len(list) > 0 {
		t.Errorf("noticed %+v", list)
	}
}

// What becomes of a container is told by the next event of it.
func TestRivalsByEvents(t *testing.T) {
	var notices []string
	o := Options{Notify: func(n policy.Notice) { notices = append(notices, n.Message) }}
	o.fill()
	r := newRivals(&o)
	pod := &policy.Pod{UID: "uid", Namespace: "default", Name: "db"}
	ctr := func(id, cpus string) *policy.Container { return &policy.Container{ID: id, Name: "main", CPUs: cpus} }
	r.answer(pod, ctr("a", "8-9"), false)
	if len(r.list()) > 0 {
		t.Error("before kubelet's own state is known it may be kubelet's")
	}
	r.takeKubelet(policy.KubeletState{PolicyName: "static", Default: setOf(t, "0-15")})
	r.connected()
	r.answer(pod, ctr("b", "8-9"), false)
	if len(r.list()) > 0 {
		t.Error("kubelet may have given them a moment ago")
	}
	r.answer(pod, ctr("c", "8-9"), false)
	if l := r.list(); len(l) != 1 || l[0].How != policy.RivalAlone {
		t.Errorf("the second time: %+v", l)
	}
	for i := range 3 { // it fails, works, fails
		id := fmt.Sprint("d", i)
		r.answer(pod, ctr(id, ""), true)
		if i == 1 {
			r.made(id)
		}
		r.gone(id)
	}
	if l := r.list(); len(l) != 1 {
		t.Errorf("a failure of a runtime once in a while: %+v", l)
	}
	for i := range 5 * mostOpen {
		r.answer(&policy.Pod{UID: fmt.Sprint(i)}, ctr(fmt.Sprint(i), "1"), true)
		r.gone(fmt.Sprint(i - 1))
		r.gone(fmt.Sprint(i))
	}
	if len(r.open) > mostOpen || len(r.odd) > mostOpen || len(r.refused) > mostOpen || len(notices) > 3 {
		t.Errorf("%d, %d, %d are remembered, %d told", len(r.open), len(r.odd), len(r.refused), len(notices))
	}
}
