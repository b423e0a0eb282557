package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/kube/planetest"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/rollout"
	"github.com/quietcore/quietcore/internal/rollout/agent"
)

// many is a real API server with the chart's definitions and rights, simulated daemons and real ones.
type many struct {
	*planetest.Plane
	t         *testing.T
	simulated []*simulated
	real      []*process
	broken    atomic.Pointer[simulated] // that the second revision broke; nil: none yet
	reader    string                    // a kubeconfig of who may read
	before    map[string]float64        // what the API server had been asked for, when that was looked at last

	program, plugin string // quietcore and kubectl-quietcore
}

const (
	usualNodes, realDaemons = 20, 3
	// What a policy says, first and then; the first simulated node that takes over the second is degraded by it.
	works, breaks = "strict", "preferred"
	stuck         = "the estimator is stuck"
)

// TestRealAPIServerMany has a policy come to many nodes in stages, a third of them at a time: 20 simulated daemons, or
// QUIETCORE_NODES with a tenth of them at a time, and three real ones. Its next revision breaks a node, and halts;
// mode observe is then in force on all. The hub and kubectl quietcore ask all of them. With -v it prints what that
// took. 500 take three minutes on two cores (make test-fleet).
func TestRealAPIServerMany(t *testing.T) {
	n, part, spread := usualNodes, 3, 200*time.Millisecond
	text, full := os.LookupEnv("QUIETCORE_NODES")
	if full {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		part, spread = 10, 0
	}
	m := gather(t, n, spread)
	places := (n + realDaemons) / part
	m.rolls(places)
	m.halts()
	m.stops(full)
	m.asks()
	m.watches(full)
}

// gather starts all of them, and waits until each knows that there is no policy.
func gather(t *testing.T, n int, spread time.Duration) *many {
	t.Helper()
	m := &many{t: t, Plane: planetest.Start(t), program: built(t, "quietcore"), plugin: built(t, "kubectl-quietcore")}
	ip := globalAddress(t)
	for _, name := range []string{"quietcorepolicies", "quietcoreturns", "quietcorenodes"} {
		m.Apply("../../charts/quietcore/files/" + name + ".yaml")
	}
	m.Create("/api/v1/namespaces", "{metadata: {name: quietcore-system}}")
	m.Apply("../../hack/chart/testdata/policies.yaml")
	m.Apply(rights)
	for _, path := range []string{agent.PoliciesPath, agent.TurnsPath} {
		m.Within(path+" is served", func() bool { code, _ := m.Try("GET", path, "", nil); return code == 200 })
	}
	m.reader = m.Kubeconfig("reader", []string{"system:authenticated"}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	began := time.Now()
	for i := range n {
		d := simulate(t, i, "0.0.0.0:0", m.Config())
		t.Cleanup(d.follow(ctx, t, m.daemon(d.node), spread, func(now *config.Config) {
			if now.Memory == breaks && m.broken.CompareAndSwap(nil, d) {
				why := stuck
				d.lacks.Store(&why)
			}
		}))
		m.simulated = append(m.simulated, d)
		running(t, m.Plane, d, ip)
	}
	t.Cleanup(cancel) // before what waits for its end
	for i := range realDaemons {
		node := fmt.Sprintf("real-%d", i)
		d := start(t, m.program, node, m.daemon(node), freePort(t))
		m.real = append(m.real, d)
		running(t, m.Plane, &d.simulated, ip)
	}
	m.within("all nodes know that there is no policy", func() bool {
		return m.are(rollout.File) == n+realDaemons
	})
	var heap runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&heap)
	t.Logf("%d simulated daemons and %d real ones in %s, with %d KiB of heap each and %s", n, realDaemons,
		time.Since(began).Round(time.Second), heap.HeapAlloc/1024/uint64(n), m.memory())
	m.asked()
	return m
}

// daemon makes a node, and the kubeconfig of its daemon.
func (m *many) daemon(node string) string {
	m.Create("/api/v1/nodes", "{metadata: {name: "+node+"}}")
	return m.Kubeconfig("system:serviceaccount:quietcore:quietcore", []string{"system:authenticated"},
		map[string][]string{"authentication.kubernetes.io/node-name": {node}})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// rolls has the policy come to all nodes.
func (m *many) rolls(places int) {
	began, most, all := time.Now(), 0, len(m.simulated)+len(m.real)
	m.Create(agent.PoliciesPath, fmt.Sprintf(`{apiVersion: quietcore.dev/v1alpha1, kind: QuietcorePolicy,
metadata: {name: p}, spec: {rollout: {maxUnavailable: %d, settleFor: 1s}, config: {memory: %s}}}`, places, works))
	m.within("the policy is on all nodes", func() bool {
		most = max(most, m.turns())
		return m.are(rollout.Current) == all
	})
	took := time.Since(began)
	if most > places {
		m.t.Errorf("%d turns at once, of %d places", most, places)
	}
	for _, d := range m.simulated {
		if got := d.cfg.Load().Memory; got != works {
			m.t.Errorf("%s has memory %s in force", d.node, got)
		}
	}
	m.Within("no turn is left", func() bool { return m.turns() == 0 })
	m.t.Logf("%d nodes, %d at a time: the policy is on all after %s, at most %d turns at once; %s", all, places,
		took.Round(time.Second), most, m.asked())
}

// halts has the policy break a node, and wants the others to be left alone, with the reason.
func (m *many) halts() {
	began, all := time.Now(), len(m.simulated)+len(m.real)
	m.Merge(agent.PoliciesPath+"/p", `{spec: {config: {memory: `+breaks+`}, rollout: {settleFor: 5s}}}`)
	m.Within("one node is degraded, and halts the rollout", func() bool {
		return m.are(rollout.Failed) == 1 && m.are(rollout.Halted) > 0 && m.are(rollout.Waiting) == 0
	})
	took := time.Since(began)
	m.Within("those that had begun are settled", func() bool {
		return m.are(rollout.Failed)+m.are(rollout.Halted)+m.are(rollout.Current) == all && m.turns() == 1
	})
	broken := m.broken.Load().node
	changed := all - m.are(rollout.Halted)
	for node, p := range m.followed() {
		switch rollout.State(p.State) {
		case rollout.Halted:
			if p.AppliedRevision != 1 || !strings.Contains(p.Why, broken+": lending") {
				m.t.Errorf("%s has revision %d in force, and waits since %q", node, p.AppliedRevision, p.Why)
			}
		case rollout.Failed:
			m.Within("its object says why", func() bool {
				at := agent.NodesPath + "/" + broken
				return node == broken && m.Get(at, "status", "state") == "Failed" &&
					strings.Contains(m.Get(at, "status", "why"), metrics.FeatureLending+": "+stuck)
			})
		}
	}
	_, out := m.kubectl("status", "-o", "json", "--node", broken)
	want := "QuietcorePolicy: since policy p, revision 2, is in force: lending: " + stuck
	if !strings.Contains(out, want) {
		m.t.Errorf("status does not say %q:\n%s", want, out)
	}
	m.t.Logf("a node that the next revision degrades halts it after %s: %d of %d nodes have that revision; %s",
		took.Round(time.Second), changed, all, m.asked())
}

// stops ends enforcement on all nodes, those of a rollout that is halted included, and leaves owners their CPUs.
func (m *many) stops(full bool) {
	owners := map[string]string{}
	for _, d := range m.real {
		owners[d.node] = fmt.Sprint(m.status(d).Owners)
	}
	began := time.Now()
	m.Merge(agent.PoliciesPath+"/p", `{spec: {config: {mode: observe}}}`)
	m.Within("the simulated daemons observe", func() bool {
		return !slices.ContainsFunc(m.simulated, func(d *simulated) bool { return !d.plugin.Observes() })
	})
	simulated := time.Since(began)
	m.Within("the real daemons observe", func() bool {
		return !slices.ContainsFunc(m.real, func(d *process) bool {
			now, err := d.Mode(m.t.Context())
			return err != nil || now.Mode != "observe" || now.Source != "policy"
		})
	})
	took := time.Since(began)
	if n := m.turns(); n > 1 {
		m.t.Errorf("%d nodes took a turn to stop", n-1)
	}
	if full && took > 5*time.Second {
		m.t.Errorf("the last node observes after %s", took)
	}
	for _, d := range m.real {
		if got := fmt.Sprint(m.status(d).Owners); got != owners[d.node] || !strings.Contains(got, "db-"+d.node) {
			m.t.Errorf("%s has the owners %s after that, before it had %s", d.node, got, owners[d.node])
		}
	}
	m.t.Logf("mode: observe is on the last simulated node after %s, on all after %s; %s",
		simulated.Round(time.Millisecond), took.Round(time.Millisecond), m.asked())
}

// asks has kubectl quietcore ask all nodes.
func (m *many) asks() {
	all := len(m.simulated) + len(m.real)
	for _, c := range []struct {
		args []string
		want string // that its output matches
	}{
		{[]string{"status"}, fmt.Sprintf(`(?m)^%d nodes: .* 0 without an answer`, all)},
		{[]string{"map", "-o", "json"}, `"node":"real-2"`},
		{[]string{"top"}, fmt.Sprintf(`(?m)^%d nodes, `, all)},
		{[]string{"explain", "-n", "shop", "db-real-1"}, `shop/db-real-1/main`},
		{[]string{"incidents"}, `(?m)^\S+ \S+ +node-\d`},
		{[]string{"incidents", "top", "--victim", "web"}, `lab/Job/`},
		{[]string{"report"}, fmt.Sprintf(`(?m)^%d nodes: `, all)},
	} {
		took, out := m.kubectl(c.args...)
		if !regexp.MustCompile(c.want).MatchString(out) {
			m.t.Errorf("%v: no %s in\n%.3000s", c.args, c.want, out)
		}
		if n := strings.Count(out, "observe"); c.args[0] == "status" && n < all {
			m.t.Errorf("%d nodes of %d observe:\n%s", n, all, out)
		}
		m.t.Logf("kubectl quietcore %s: %s; %s", strings.Join(c.args, " "), took, m.asked())
	}
}

// kubectl runs the plugin as a reader.
func (m *many) kubectl(args ...string) (cost, string) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.plugin, append([]string{"--kubeconfig", m.reader}, args...)...)
	c, out, err := run(m.t, cmd)
	if err != nil {
		m.t.Errorf("%v: %v\n%.3000s", args, err, out)
	}
	return c, out
}

// watches has a hub ask all nodes for two rounds.
func (m *many) watches(full bool) {
	every := time.Second
	if full {
		every = 15 * time.Second // as usual
	}
	h := runHub(m.t, m.program, m.reader, 2, every)
	if all := len(m.simulated) + len(m.real); h.nodes != all || h.silent > 0 {
		m.t.Errorf("the hub has %d of %d nodes, %d are silent", h.nodes, all, h.silent)
	}
	m.t.Logf("the hub: first round %s, in two rounds; %s; %s", h.cost, m.asked(), m.memory())
}

func (c cost) String() string {
	return fmt.Sprintf("%s, %.0f MiB, %.2f s of CPU time, %.0f kB", c.took.Round(100*time.Millisecond), c.resident,
		c.processor, float64(c.size)/1e3)
}

func (m *many) status(d *process) *control.Status {
	m.t.Helper()
	s, err := d.Status(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// followed is what each node says of its policy.
func (m *many) followed() map[string]*control.FollowedPolicy {
	by := map[string]*control.FollowedPolicy{}
	for _, d := range m.simulated {
		by[d.node] = d.policy()
	}
	for _, d := range m.real {
		by[d.node] = &control.FollowedPolicy{}
		if s, err := d.Status(m.t.Context()); err == nil && s.Policy != nil { // it may not listen yet
			by[d.node] = s.Policy
		}
	}
	return by
}

// are is how many nodes are in a state.
func (m *many) are(state rollout.State) (n int) {
	for _, p := range m.followed() {
		if p.State == string(state) {
			n++
		}
	}
	return n
}

func (m *many) turns() int {
	_, text := m.Try("GET", agent.TurnsPath, "", nil)
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		m.t.Fatalf("%s: %v", text, err)
	}
	return len(list.Items)
}

// within is Within with ten seconds for each node.
func (m *many) within(what string, so func() bool) {
	m.t.Helper()
	limit := time.Duration(len(m.simulated)+len(m.real)) * 10 * time.Second
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(limit); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			m.t.Fatalf("not so after %s: %s: %s", limit, what, m.states())
		}
	}
}

// states is what the nodes say of their policy, those that say the same together.
func (m *many) states() string {
	by := map[string][]string{}
	for node, p := range m.followed() {
		what := fmt.Sprintf("%s, revision %d, %s", p.State, p.AppliedRevision, p.Why)
		by[what] = append(by[what], node)
	}
	return fmt.Sprint(by)
}

// ours is what the API server is asked for by daemons and those who ask them, and not by itself.
var ours = regexp.MustCompile(` (nodes|pods|serviceaccounts/token|tokenreviews|subjectaccessreviews|quietcore)`)

// asked is what the API server was asked for since it was looked at last, the most frequent first.
func (m *many) asked() string {
	m.t.Helper()
	now := m.metrics("apiserver_request_total")
	type count struct {
		what string
		n    int
	}
	var list []count
	for what, n := range now {
		if d := int(n - m.before[what]); d > 0 && ours.MatchString(what) {
			list = append(list, count{what, d})
		}
	}
	m.before = now
	slices.SortFunc(list, func(a, b count) int { return b.n - a.n })
	var text []string
	for _, c := range list {
		text = append(text, fmt.Sprintf("%d %s", c.n, c.what))
	}
	return strings.Join(text, ", ")
}

// memory is what the API server and the real daemons have resident.
func (m *many) memory() string {
	text := fmt.Sprintf("%.0f MiB of the API server", m.metrics("process_resident_memory_bytes")[""]/(1<<20))
	for _, d := range m.real {
		text += fmt.Sprintf(", %.0f of %s", peakNow(d.pid), d.node)
	}
	return text
}

// metrics are the values of one of the API server's, summed by verb and resource.
func (m *many) metrics(name string) map[string]float64 {
	m.t.Helper()
	_, text := m.Try("GET", "/metrics", "", nil)
	label := regexp.MustCompile(`(verb|resource|subresource)="([^"]*)"`)
	sums := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		rest, is := strings.CutPrefix(lines.Text(), name)
		at := strings.LastIndexByte(rest, ' ')
		if !is || at < 0 || at > 0 && rest[0] != '{' {
			continue
		}
		by := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(rest, -1) {
			by[l[1]] = l[2]
		}
		what := strings.TrimSpace(by["verb"] + " " + by["resource"])
		if by["subresource"] != "" {
			what += "/" + by["subresource"]
		}
		n, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			m.t.Fatal(err)
		}
		sums[what] += n
	}
	return sums
}
