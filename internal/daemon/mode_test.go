package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// built is a daemon whose parts run, but that neither serves nor watches a file. No runtime is there.
func built(t *testing.T, dir, text string) *daemon {
	t.Helper()
	cfg, err := config.Parse([]byte(head(dir) + text))
	if err != nil {
		t.Fatal(err)
	}
	topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cfg.State.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := &daemon{node: &node{}, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	cfg = d.cfg.begin(cfg, readModes(cfg.State.Dir, d.log))
	d.metrics = metrics.New("test", d.stats)
	cgroups := openTree(cfg, d.metrics, d.log)
	if err := d.build(cfg, topo, cgroups); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		together(ctx, d.node.Run, d.counting.Run, d.lending.Run, d.api.Run)
	}()
	t.Cleanup(func() { stop(); <-ended; d.kubelet.close(); cgroups.close() })
	return d
}

func head(dir string) string {
	return fmt.Sprintf(`apiVersion: quietcore.dev/v1alpha1
state: {dir: %[1]s/state}
socket: %[1]s/run/q.sock
nri: {socket: %[1]s/nri.sock}
cgroup: {root: %[1]s/cgroup}
sysfs: {root: %[1]s/sys}
node: {name: node-a, kubelet: {stateFile: "", configFile: "", podResources: ""}}
`, dir)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: still not so", what)
		}
	}
}

// Who says observe is heard before who says enforce, and both before the file.
func TestWhoSaysTheMode(t *testing.T) {
	for _, c := range []struct {
		command, annotation, file config.Mode
		want                      config.Mode
		source                    string
	}{
		{"", "", config.Enforce, config.Enforce, fromFile},
		{"", "", config.Observe, config.Observe, fromFile},
		{config.Observe, "", config.Enforce, config.Observe, fromCommand},
		{config.Enforce, "", config.Observe, config.Enforce, fromCommand},
		{"", config.Observe, config.Enforce, config.Observe, fromAnnotation},
		{config.Enforce, config.Observe, config.Enforce, config.Observe, fromAnnotation},
		{config.Observe, config.Observe, config.Enforce, config.Observe, fromCommand},
	} {
		s := said{Command: c.command, Annotation: c.annotation}
		if mode, source := s.of(c.file); mode != c.want || source != c.source {
			t.Errorf("%+v: %s by %s", c, mode, source)
		}
	}
}

// The command and the annotation take effect in a running daemon, survive its restart, and are taken back.
func TestTheModeIsSwitched(t *testing.T) {
	dir := t.TempDir()
	d := built(t, dir, "")
	in := func(d *daemon, mode, source string) {
		t.Helper()
		now := d.modeNow()
		if now.Mode != mode || now.Source != source || now.Problem != "" || d.cfg.Load().Mode != config.Mode(mode) {
			t.Errorf("the mode is %+v, and in force is %s; want %s by %s", now, d.cfg.Load().Mode, mode, source)
		}
		if s, _ := d.stats(); s.Modes.Mode != mode || s.Source != source {
			t.Errorf("metrics have %s by %s", s.Modes.Mode, s.Source)
		}
	}
	in(d, "enforce", fromFile)
	if now, err := d.setMode(t.Context(), "observe"); err != nil || now.Mode != "observe" || now.Since == nil {
		t.Errorf("%+v, %v", now, err)
	}
	in(d, "observe", fromCommand)
	if !d.node.Observes() {
		t.Error("the plugin enforces on")
	}
	again := built(t, dir, "")
	in(again, "observe", fromCommand)
	if !again.node.Observes() || !again.node.Undoing() {
		t.Error("after a restart what was not undone yet is not")
	}
	again.takeAnnotation(t.Context(), "observe")
	if _, err := again.setMode(t.Context(), "enforce"); err != nil {
		t.Fatal(err)
	}
	in(again, "observe", fromAnnotation)
	in(built(t, dir, ""), "observe", fromAnnotation)
	again.takeAnnotation(t.Context(), "enfroce") // which is not observe
	in(again, "enforce", fromCommand)
	eventually(t, "the plugin enforces", func() bool { return !again.node.Observes() })
	if _, err := again.setMode(t.Context(), wordConfig); err != nil {
		t.Fatal(err)
	}
	in(again, "enforce", fromFile)
	in(built(t, dir, ""), "enforce", fromFile)
}

// The switch works where it cannot be kept, and says that a restart would undo it. What cannot be read is taken for
// the word of somebody who stopped enforcement.
func TestASwitchThatIsNotKept(t *testing.T) {
	dir := t.TempDir()
	d := built(t, dir, "")
	name := filepath.Join(dir, "state", state.ModeFile)
	if err := os.Mkdir(name, 0o700); err != nil { // nothing can be put in its place
		t.Fatal(err)
	}
	now, err := d.setMode(t.Context(), "observe")
	if err != nil || now.Mode != "observe" || !strings.Contains(now.Problem, "a restart of the daemon would undo it") {
		t.Errorf("%+v, %v", now, err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := built(t, dir, "")
	if now := damaged.modeNow(); now.Mode != "observe" || now.Problem == "" || !damaged.node.Observes() {
		t.Errorf("with a damaged file: %+v", now)
	}
	if now, err := damaged.setMode(t.Context(), wordConfig); err != nil || now.Mode != "enforce" || now.Problem != "" {
		t.Errorf("said again: %+v, %v", now, err)
	}
}

// The switch stops the parts that enforce, and starts them again.
func TestTheSwitchReachesEveryPart(t *testing.T) {
	d := built(t, t.TempDir(), "suppression: {mode: enforce}\nreclaim: {mode: enforce, evict: true}\n"+
		"cpi: {mode: enforce}\nkubernetes: {batchSlice: enforce}\n")
	enforce := func() []bool {
		l, c := d.lending.now(), d.counting.now()
		rules, err := d.node.Config(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return []bool{l.enforced(), l.narrows(), c.acts(), rules.BEIdle, rules.BEGrouped, !d.node.Observes()}
	}
	all := func(want bool) func() bool {
		return func() bool { return !slices.Contains(enforce(), !want) }
	}
	eventually(t, "all parts enforce", all(true))
	if _, err := d.setMode(t.Context(), "observe"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no part enforces", all(false))
	if _, err := d.setMode(t.Context(), wordConfig); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all parts enforce again", all(true))
}

// A part that is turned off ends what it had decided.
func TestAPartThatIsTurnedOffEndsItsLimits(t *testing.T) {
	d := built(t, t.TempDir(), "suppression: {mode: enforce}\ncpi: {mode: enforce}\n")
	whole := d.node.Snapshot().BEWhole
	for _, e := range []policy.Event{policy.BESuppressed{CPUs: cpuset.Range(0, 11)},
		policy.BEKeptOff{Victim: "v", CPUs: cpuset.Range(0, 3), For: time.Hour}} {
		if err := d.node.Submit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if d.node.Snapshot().BE == whole {
		t.Fatal("best effort is not limited")
	}
	for _, text := range []string{"suppression: {mode: observe}\ncpi: {mode: enforce}\n",
		"suppression: {mode: observe}\ncpi: {mode: off}\n"} {
		next, err := config.Parse([]byte(head(filepath.Dir(d.cfg.Load().State.Dir)) + strings.Replace(text, "off",
			`"off"`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.reload(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "best effort has its pool", func() bool { return d.node.Snapshot().BE == whole })
}

// Every key of the configuration either takes effect in a running daemon, or the daemon says that it waits for a
// restart, and does not call the reload successful.
func TestEveryKeyIsTakenOverOrWaits(t *testing.T) {
	dir := t.TempDir()
	d := built(t, dir, "")
	first := *d.cfg.file.Load()
	hot, waiting := 0, 0
	for key, value := range keysOf(t, &first) {
		next := otherValue(t, dir, key, value)
		if next == nil {
			t.Errorf("%s: no other value of it is known to this test", key)
			continue
		}
		err := d.reload(t.Context(), next)
		var partly *waitingError
		switch required := d.cfg.restartRequired(); {
		case errors.As(err, &partly):
			waiting++
			if !slices.Contains(required, key) {
				t.Errorf("%s: %v wait for a restart", key, required)
			}
		case err != nil:
			t.Errorf("%s: %v", key, err)
		default:
			hot++
			if len(required) > 0 {
				t.Errorf("%s: %v wait for a restart of a reload that succeeded", key, required)
			}
			d.wantInForce(t, key, next)
		}
		if err := d.reload(t.Context(), &first); err != nil || len(d.cfg.restartRequired()) > 0 {
			t.Fatalf("%s: taken back: %v", key, err)
		}
	}
	t.Logf("%d keys are taken over, %d wait", hot, waiting)
	if hot < 90 || waiting < 30 {
		t.Errorf("%d keys are taken over and %d wait: the test does not see them all", hot, waiting)
	}
}

// wantInForce requires that each part works by a configuration.
func (d *daemon) wantInForce(t *testing.T, key string, next *config.Config) {
	t.Helper()
	now := d.cfg.Load()
	if changes, err := config.Changes(now, next); err != nil || len(changes) > 0 {
		t.Errorf("%s: in force is another value: %+v, %v", key, changes, err)
	}
	rules, err := d.node.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := next.Policy()
	want.NodeLabels, rules.NodeLabels = nil, nil // the architecture's is added
	if fmt.Sprint(rules) != fmt.Sprint(want) {
		t.Errorf("%s: the policy has other rules:\n%+v\n%+v", key, rules, want)
	}
	eventually(t, key+": counting has it", func() bool { return config.SameCounting(d.counting.now().o.config, next) })
	eventually(t, key+": lending has it", func() bool { return config.SameLending(d.lending.now().cfg, next) })
	if d.node.Observes() != (next.Mode == config.Observe) && next.Mode == config.Observe {
		t.Errorf("%s: the plugin enforces on", key)
	}
	if d.level.Level() != next.Log.Level.Slog() {
		t.Errorf("%s: the log's level is %s", key, d.level.Level())
	}
}

// keysOf are the keys of a configuration, with their values.
func keysOf(t *testing.T, c *config.Config) map[string]any {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	flatten(all, "", doc)
	delete(all, "apiVersion")
	delete(all, "kind")
	return all
}

func flatten(all map[string]any, prefix string, doc map[string]any) {
	for key, v := range doc {
		if inner, ok := v.(map[string]any); ok && len(inner) > 0 {
			flatten(all, prefix+key+".", inner)
			continue
		}
		all[prefix+key] = v
	}
}

// otherValue is the configuration with another value of one key; nil: none is found.
func otherValue(t *testing.T, dir, key string, value any) *config.Config {
	t.Helper()
	base, err := config.Parse([]byte(head(dir)))
	if err != nil {
		t.Fatal(err)
	}
	for _, candidate := range candidates(value) {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(head(dir)), &doc); err != nil {
			t.Fatal(err)
		}
		at, parts := doc, strings.Split(key, ".")
		for _, p := range parts[:len(parts)-1] {
			inner, ok := at[p].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[p] = inner
			}
			at = inner
		}
		at[parts[len(parts)-1]] = candidate
		if other, needs := company()[key]; needs {
			at[other[0]] = other[1]
		}
		changed, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		next, err := config.Parse(changed)
		if err != nil {
			continue
		}
		if changes, err := config.Changes(base, next); err == nil && len(changes) > 0 {
			return next
		}
	}
	return nil
}

// company is which key beside it another one does not go without, and a value of that.
func company() map[string][2]string {
	return map[string][2]string{"system.exclusive": {"cpus", "14-15"}, "metrics.certFile": {"keyFile", "/key"},
		"metrics.keyFile": {"certFile", "/certificate"}}
}

// candidates are other values that a key may take.
func candidates(value any) []any {
	switch v := value.(type) {
	case bool:
		return []any{!v}
	case float64:
		return []any{v + 1, v / 2, v + 0.1}
	case []any:
		return []any{[]any{"other"}}
	case map[string]any:
		return []any{map[string]any{"a": "b"}, map[string]any{"full-pcpus-only": "true"}, map[string]any{"*": 8}}
	}
	return []any{"observe", "enforce", "off", "on", "degrade", "mask", "preferred", "SpreadByPCPUs", "PCPULevel",
		"LeastAllocated", "BestEffort", "isolate", "always", "strict", "trust", "static", "restricted", "pod",
		"contrast", "request", "owners", "page-faults", "usage", "l3", "cgroupfs", "debug", "json", "14-15", "25%",
		"http://prometheus:9090", "90s", "30m", "2h", "5s", "500ms", "127.0.0.1:1", "other", "/other", "80"}
}

// The annotation's name is the documented one.
func TestTheAnnotationOfTheMode(t *testing.T) {
	if kube.AnnMode != "quietcore.dev/mode" {
		t.Error(kube.AnnMode)
	}
}
