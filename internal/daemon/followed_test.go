package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube/planetest"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/rollout"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/topology"
)

// member is the daemon of a node of a fleet. It can be restarted.
type member struct {
	*daemon
	t          *testing.T
	name, dir  string
	kubeconfig string
	stop       func()
}

func (m *member) start() {
	m.t.Helper()
	text := strings.Replace(head(m.dir), "name: node-a", "name: "+m.name, 1) +
		fmt.Sprintf("kubernetes: {policy: true, kubeconfig: %q, nodeResourceTopology: {enabled: false}}\n"+
			"cpi: {mode: \"off\"}\n", m.kubeconfig)
	file, err := config.Parse([]byte(text))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.MkdirAll(file.State.Dir, 0o700); err != nil {
		m.t.Fatal(err)
	}
	topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		m.t.Fatal(err)
	}
	d := &daemon{node: &node{}, log: slog.New(slog.NewTextHandler(m.t.Output(), nil)).With("node", m.name)}
	d.cfg.begin(file, readModes(file.State.Dir, d.log))
	d.cfg.followed.spread = 200 * time.Millisecond
	cfg := d.resume(file, topo)
	d.metrics = metrics.New("test", d.stats)
	cgroups := openTree(cfg, d.metrics, d.log)
	if err := d.build(cfg, topo, cgroups); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		together(ctx, d.node.Run, d.counting.Run, d.lending.Run, d.api.Run, policyPart{&d.cfg.followed}.Run,
			func(ctx context.Context) { d.health.Run(ctx, d.log) })
	}()
	m.daemon = d
	m.stop = sync.OnceFunc(func() { cancel(); <-ended; d.kubelet.close(); cgroups.close() })
	m.t.Cleanup(m.stop)
}

// fleet is an API server with the chart's definitions and rights, and nodes with daemons.
type fleet struct {
	*planetest.Plane
	t       *testing.T
	members []*member
}

const (
	policies = "/apis/quietcore.dev/v1alpha1/quietcorepolicies"
	turns    = "/apis/quietcore.dev/v1alpha1/quietcoreturns"
	nodes    = "/apis/quietcore.dev/v1alpha1/quietcorenodes/"
)

func newFleet(t *testing.T, names ...string) *fleet {
	t.Helper()
	f := &fleet{Plane: planetest.Start(t), t: t}
	for _, name := range []string{"quietcorepolicies", "quietcoreturns", "quietcorenodes"} {
		f.Apply("../../charts/quietcore/files/" + name + ".yaml")
	}
	f.Apply("../../hack/chart/testdata/policies.yaml")
	for _, name := range names {
		f.Create("/api/v1/nodes", "{metadata: {name: "+name+", labels: {pool: batch}}}")
		f.members = append(f.members, f.member(name))
	}
	for _, kind := range []string{policies, turns} {
		f.Within(kind+" is served", func() bool { code, _ := f.Try("GET", kind, "", nil); return code == 200 })
	}
	for _, m := range f.members {
		m.start()
	}
	return f
}

func (f *fleet) member(name string) *member {
	return &member{t: f.t, name: name, dir: f.t.TempDir(), kubeconfig: f.Kubeconfig(
		"system:serviceaccount:quietcore:quietcore", []string{"system:serviceaccounts", "system:authenticated"},
		map[string][]string{"authentication.kubernetes.io/node-name": {name}})}
}

// say has a policy say something.
func (f *fleet) say(name, config string) {
	f.t.Helper()
	if code, _ := f.Try("GET", policies+"/"+name, "", nil); code == 200 {
		f.Do("PATCH", policies+"/"+name, "application/json-patch+json",
			`[{op: replace, path: /spec/config, value: `+config+`}]`)
		return
	}
	f.Create(policies, fmt.Sprintf(`{apiVersion: quietcore.dev/v1alpha1, kind: QuietcorePolicy, metadata: {name: %s},
spec: {nodeSelector: {matchLabels: {pool: batch}}, rollout: {settleFor: 1s}, config: %s}}`, name, config))
}

// states are those that the nodes write, by how many nodes have them.
func (f *fleet) states() map[rollout.State]int {
	count := map[rollout.State]int{}
	for _, m := range f.members {
		code, text := f.Try("GET", nodes+m.name, "", nil)
		var o struct {
			Status struct {
				State rollout.State `json:"state"`
			} `json:"status"`
		}
		if code == 200 && json.Unmarshal(text, &o) == nil {
			count[o.Status.State]++
		}
	}
	return count
}

// all waits until each node says a state and has a word for memory in force.
func (f *fleet) all(state rollout.State, memory config.Memory) {
	f.t.Helper()
	most := 0
	f.Within(fmt.Sprintf("all nodes are %s with memory %s", state, memory), func() bool {
		most = max(most, f.turns())
		for _, m := range f.members {
			if m.cfg.Load().Memory != memory {
				return false
			}
		}
		return f.states()[state] == len(f.members)
	})
	if most > 1 {
		f.t.Errorf("%d nodes had their turn at once", most)
	}
}

func (f *fleet) turns() int {
	_, text := f.Try("GET", turns, "", nil)
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		f.t.Fatalf("%s: %v", text, err)
	}
	return len(list.Items)
}

func (f *fleet) degraded(m *member) string { return m.health.Ready().Degraded[metrics.FeaturePolicy] }

// Three daemons on a real API server, with no more than the chart's rights: a rollout, a conflict, a bad policy, a
// policy that stops enforcement, an API server that is away, restarts.
func TestRealAPIServerRollout(t *testing.T) {
	f := newFleet(t, "n1", "n2", "n3")
	f.all(rollout.File, "off")
	f.say("p", `{memory: strict}`)
	f.all(rollout.Current, "strict")
	f.Within("no turn is left", func() bool { return f.turns() == 0 })

	f.say("q", `{memory: preferred}`)
	f.all(rollout.Doubtful, "strict")
	if why := f.degraded(f.members[0]); !strings.Contains(why, "the policies p and q select this node") {
		t.Errorf("in a conflict degraded is %q", why)
	}
	f.Do("DELETE", policies+"/q", "application/json", "{}")
	f.all(rollout.Current, "strict")

	if code, answer := f.Try("PATCH", policies+"/p", "application/merge-patch+json",
		[]byte(`{"spec":{"config":{"memory":"sometimes"}}}`)); code != 422 {
		t.Errorf("a wrong word: %d %s", code, answer)
	}
	f.say("p", `{memory: preferred, reserved: {cpus: "99"}}`)
	f.Within("one refuses it, the others wait", func() bool {
		s := f.states()
		return s[rollout.Rejected] == 1 && s[rollout.Halted] == 2
	})
	refusing := 0
	for _, m := range f.members {
		if got := m.cfg.Load(); got.Memory != "strict" || !got.Reserved.CPUs.IsEmpty() {
			t.Errorf("%s has taken over a part of what is refused", m.name)
		}
		if why := f.degraded(m); strings.Contains(why, "this machine has no CPU 99") {
			refusing++
		} else if why != "" {
			t.Errorf("%s is degraded: %s", m.name, why)
		}
	}
	if refusing != 1 {
		t.Errorf("%d nodes refuse", refusing)
	}
	f.say("p", `{memory: preferred}`)
	f.all(rollout.Current, "preferred")
	f.Within("no turn is left", func() bool { return f.turns() == 0 })

	began := time.Now()
	f.say("p", `{memory: preferred, mode: observe}`)
	f.observe()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("enforcement ended after %s", took)
	}
	f.say("p", `{memory: preferred}`)
	f.all(rollout.Current, "preferred")
	f.stopsThoughRefused()
	f.absence()
}

// stopsThoughRefused has a policy with a mistake say mode: observe. That alone counts, also after a restart, until the
// policy is mended.
func (f *fleet) stopsThoughRefused() {
	began := time.Now()
	f.say("p", `{memory: strict, mode: observe, reserved: {cpus: "99"}}`)
	f.observe()
	if took := time.Since(began); took > 5*time.Second {
		f.t.Errorf("enforcement ended after %s", took)
	}
	f.all(rollout.Rejected, "preferred")
	old := f.members[0]
	old.stop()
	old.start()
	if now := old.modeNow(); now.Mode != "observe" || now.Source != fromPolicy || old.cfg.Load().Memory != "preferred" {
		f.t.Errorf("after a restart the mode is %+v, with memory %s", now, old.cfg.Load().Memory)
	}
	f.say("p", `{memory: preferred}`)
	f.all(rollout.Current, "preferred")
	for _, m := range f.members {
		if now := m.modeNow(); now.Mode != "enforce" {
			f.t.Errorf("%s has the mode %+v again", m.name, now)
		}
	}
}

// observe waits until no node enforces, by a policy's word.
func (f *fleet) observe() {
	f.t.Helper()
	f.Within("all observe", func() bool {
		for _, m := range f.members {
			if m.modeNow().Mode != "observe" || m.modeNow().Source != fromPolicy {
				return false
			}
		}
		return true
	})
}

// absence restarts daemons without an API server.
func (f *fleet) absence() {
	f.Stop()
	old, young := f.members[0], f.member("n4")
	old.stop()
	old.start()
	if got := old.cfg.Load().Memory; got != "preferred" || old.policyNow().Applied != "p" {
		f.t.Errorf("after a restart without an API server memory is %s", got)
	}
	young.start()
	if got := young.cfg.Load().Memory; got != "off" || young.policyNow().Applied != "" {
		f.t.Errorf("on a new node memory is %s without an API server", got)
	}
	f.Restart()
	f.Create("/api/v1/nodes", "{metadata: {name: n4, labels: {pool: batch}}}")
	f.members = append(f.members, young)
	f.say("p", `{memory: strict}`)
	f.all(rollout.Current, "strict")
	f.Do("DELETE", policies+"/p", "application/json", "{}")
	f.all(rollout.File, "off")
	if _, err := os.Stat(filepath.Join(old.dir, "state", state.PolicyFile)); !os.IsNotExist(err) {
		f.t.Errorf("the policy is kept though no policy selects the node: %v", err)
	}
}

// What is kept counts at a start, unless it does not fit any more, or the file does not follow policies.
func TestThePolicyOfBefore(t *testing.T) {
	const follows = "kubernetes: {policy: true}"
	for name, c := range map[string]struct {
		kept, file string
		memory     config.Memory
		lost       string
		gone       bool
	}{
		"counts":                   {`{"memory":"strict"}`, follows, "strict", "", false},
		"fits the machine no more": {`{"reserved":{"cpus":"99"}}`, follows, "off", "no CPU 99", false},
		"fits the file no more": {`{"cpi":{"window":"10s"}}`, follows + "\ncpi: {interval: 5s, window: 1s}", "off",
			"cpi.window: is 10s", false},
		"is forgotten": {`{"memory":"strict"}`, "", "off", "", true},
		"says what it may not": {`{"listen":""}`, follows, "off",
			"only the node's own file may say it", false},
		"of a version after this": {`{"memry":"strict"}`, follows, "off", `unknown key "memry"`, false},
		"stops and fits no more": {`{"memory":"strict","mode":"observe","reserved":{"cpus":"99"}}`, follows, "off",
			"no CPU 99", false},
		"says nothing of the memory": {`{}`, follows + "\nmemory: preferred", "preferred", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, err := config.Parse([]byte(head(dir) + c.file))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(file.State.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			kept := filepath.Join(file.State.Dir, state.PolicyFile)
			text, err := json.Marshal(rollout.Applied{Policy: "p", Generation: 3, Config: []byte(c.kept)})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(kept, text, 0o600); err != nil {
				t.Fatal(err)
			}
			topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
			if err != nil {
				t.Fatal(err)
			}
			d := &daemon{log: slog.New(slog.NewTextHandler(t.Output(), nil))}
			d.cfg.begin(file, readModes(file.State.Dir, d.log))
			if got := d.resume(file, topo); got.Memory != c.memory || d.cfg.file.Load().Memory != c.memory {
				t.Errorf("memory is %s, want %s", got.Memory, c.memory)
			}
			if got, stops := d.cfg.Load().Mode, strings.Contains(c.kept, "observe"); (got == "observe") != stops {
				t.Errorf("the mode is %s", got)
			}
			why := policyPart{&d.cfg.followed}.Health()[metrics.FeaturePolicy]
			if !strings.Contains(why, c.lost) || (why == "") != (c.lost == "") {
				t.Errorf("degraded is %q, want %q", why, c.lost)
			}
			if _, err := os.Stat(kept); os.IsNotExist(err) != c.gone {
				t.Errorf("the file of the policy: %v", err)
			}
		})
	}
}

// A changed file has the policy written over it, and is refused where the two do not fit.
func TestAFileBelowAPolicy(t *testing.T) {
	dir := t.TempDir()
	d := built(t, dir, "")
	read := func(text string) error {
		next, err := config.Parse([]byte(head(dir) + text))
		if err != nil {
			t.Fatal(err)
		}
		return d.reload(t.Context(), next)
	}
	if err := d.takePolicy(t.Context(), []byte(`{"memory":"strict","cpi":{"window":"10s"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := read("log: {level: debug}\nmemory: preferred"); err != nil {
		t.Fatal(err)
	}
	if got := d.cfg.Load(); got.Memory != "strict" || got.Log.Level != "debug" {
		t.Errorf("memory is %s and the log's level %s", got.Memory, got.Log.Level)
	}
	if err := read("cpi: {interval: 5s, window: 1s}"); err == nil || !strings.Contains(err.Error(),
		"with the QuietcorePolicy in force: cpi.window") {
		t.Errorf("a file that does not fit: %v", err)
	}
	if err := d.takePolicy(t.Context(), []byte(`{"reserved":{"cpus":"99"}}`)); err == nil {
		t.Error("a policy with a CPU that is not there is taken over")
	}
	if got := d.cfg.Load(); got.Memory != "strict" {
		t.Errorf("after a refusal memory is %s", got.Memory)
	}
	if err := d.takePolicy(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := d.cfg.Load(); got.Memory != "preferred" || got.Log.Level != "debug" {
		t.Errorf("with the file alone memory is %s", got.Memory)
	}
}

// The policy's word on the mode is the file's in every respect but its name: people's words go before it.
func TestTheModeOfAPolicy(t *testing.T) {
	d := built(t, t.TempDir(), "")
	if err := d.takePolicy(t.Context(), []byte(`{"mode":"observe"}`)); err != nil {
		t.Fatal(err)
	}
	if now := d.modeNow(); now.Mode != "observe" || now.Source != fromPolicy || now.Since != nil {
		t.Errorf("%+v", now)
	}
	if now, err := d.setMode(t.Context(), "enforce"); err != nil || now.Mode != "enforce" || now.Source != fromCommand {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := d.setMode(t.Context(), "observe"); err != nil {
		t.Fatal(err)
	}
	if err := d.takePolicy(t.Context(), []byte(`{"mode":"enforce"}`)); err != nil {
		t.Fatal(err)
	}
	if now := d.modeNow(); now.Mode != "observe" || now.Source != fromCommand {
		t.Errorf("the kill switch against a policy: %+v", now)
	}
}
