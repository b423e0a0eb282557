package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/script"
)

func milli(n int64) *int64 { return &n }

func line() script.Line {
	return script.Line{
		Step: 1, Op: "create",
		Containers: []script.State{
			{Pod: "a", Namespace: "d", Container: "m", Class: "LSR", Pool: "exclusive", CPUs: "0-1", Mems: "0",
				QuotaMilli: -1, Shares: 2048, Why: "because"},
			{Pod: "b", Namespace: "d", Container: "m", Class: "BE", Pool: "be", CPUs: "0-15", Mems: "0-3",
				QuotaMilli: 100, CapMilli: milli(100)},
		},
		Pools:   script.Pools{Shared: "2-15", BE: "0-15", Exclusive: "0-1"},
		Changed: []string{"d/a/m", "d/b/m"},
	}
}

func TestCompareAccepts(t *testing.T) {
	other := line()
	slices.Reverse(other.Containers)
	slices.Reverse(other.Changed)
	for i := range other.Containers {
		other.Containers[i].Why, other.Containers[i].Weight = "other words", milli(77)
	}
	other.Notices = []string{"free"}
	if d := Compare([]script.Line{line()}, []script.Line{other}); len(d) != 0 {
		t.Errorf("%v", d)
	}
}

func TestCompareRefuses(t *testing.T) {
	for want, change := range map[string]func(*script.Line){
		"a/m class":              func(l *script.Line) { l.Containers[0].Class = "LSE" },
		"a/m pool":               func(l *script.Line) { l.Containers[0].Pool = "shared" },
		"a/m cpus":               func(l *script.Line) { l.Containers[0].CPUs = "0-15" },
		"a/m mems":               func(l *script.Line) { l.Containers[0].Mems = "0-3" },
		"a/m withheld":           func(l *script.Line) { l.Containers[0].Withheld = "1" },
		"a/m quotaMilli":         func(l *script.Line) { l.Containers[0].QuotaMilli = 2000 },
		"a/m shares":             func(l *script.Line) { l.Containers[0].Shares = 2 },
		"b/m capMilli":           func(l *script.Line) { l.Containers[1].CapMilli = nil },
		"b/m capMilli: simulate": func(l *script.Line) { l.Containers[1].CapMilli = milli(10) },
		"pool shared":            func(l *script.Line) { l.Pools.Shared = "0-15" },
		"error":                  func(l *script.Line) { l.Error = &script.Error{Code: "InvalidQoS", Message: "no"} },
		"changed":                func(l *script.Line) { l.Changed = nil },
		"op":                     func(l *script.Line) { l.Op = "remove" },
		"only in simulate":       func(l *script.Line) { l.Containers = l.Containers[:1] },
		"only on the machine":    func(l *script.Line) { l.Containers = append(l.Containers, script.State{Pod: "c"}) },
	} {
		other := line()
		change(&other)
		got := Compare([]script.Line{line()}, []script.Line{other})
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: %v", want, got)
		}
	}
	if got := Compare([]script.Line{line()}, nil); len(got) != 1 {
		t.Errorf("a missing line: %v", got)
	}
	if got := Compare(nil, []script.Line{line()}); len(got) != 1 {
		t.Errorf("a line too many: %v", got)
	}
}

func TestSameRefusal(t *testing.T) {
	a := &script.Error{Code: "InvalidRequest", Message: "equal to the limit, this pod has none"}
	for _, tc := range []struct {
		b    *script.Error
		want bool
	}{
		{nil, false}, {a, true},
		{&script.Error{Code: "InvalidRequest", Message: "equal to the limit, container main has none"}, true},
		{&script.Error{Code: "InvalidRequest", Message: "something else, this pod has none"}, false},
		{&script.Error{Code: "InvalidQoS", Message: a.Message}, false},
	} {
		if got := sameRefusal(a, tc.b); got != tc.want {
			t.Errorf("%+v: %t", tc.b, got)
		}
	}
	if !sameRefusal(nil, nil) {
		t.Error("no refusal twice is a difference")
	}
}

func TestRefusalOf(t *testing.T) {
	for text, want := range map[string]*script.Error{
		"RunPodSandbox: rpc error: code = Unknown desc = NRI RunPodSandbox failed: rpc error: code = Unknown desc = " +
			"InsufficientCPUs: 4 CPUs asked for: 2 free": {Code: "InsufficientCPUs",
			Message: "4 CPUs asked for: 2 free"},
		"KubeletOwned: no": {Code: "KubeletOwned", Message: "no"},
		"context deadline exceeded: NotInvalidQoS: x": nil,
		"no room": nil,
	} {
		got := refusalOf(errors.New(text))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	if refusalOf(nil) != nil {
		t.Error("no error is a refusal")
	}
}

func TestQuotaMilli(t *testing.T) {
	for _, tc := range []struct {
		files []string
		want  int64
	}{
		{[]string{"max 100000"}, -1}, {[]string{"150000 100000"}, 1500},
		{[]string{"max 100000", "1000 100000", ""}, 10},
		{[]string{"400000 100000", "200000 100000"}, 2000}, {[]string{"5000 50000"}, 100},
	} {
		if got, err := quotaMilli(tc.files...); err != nil || got != tc.want {
			t.Errorf("%v: %d, %v, want %d", tc.files, got, err, tc.want)
		}
	}
	for _, bad := range []string{"1 2 3", "x 100000", "1000 0"} {
		if _, err := quotaMilli(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestCPUList(t *testing.T) {
	got, err := cpuList("0-2,8")
	if err != nil || !slices.Equal(got, []int{0, 1, 2, 8}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "x", "3-1"} {
		if _, err := cpuList(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func write1(t *testing.T, text string) *Script {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNotRealisable(t *testing.T) {
	const grid = "topology: {grid: {sockets: 1, nodesPerSocket: 1, l3PerNode: 1, coresPerL3: 4, threadsPerCore: 2, " +
		"numbering: %}}\n"
	for name, text := range map[string]string{
		"split": strings.Replace(grid, "%", "split", 1),
		"cpus":  "topology: {cpus: [{id: 0, core: 0, l3: 0, node: 0, socket: 0}]}\n",
		"sysfs": "topology: {sysfs: /sys}\n",
		"CPU 0": strings.Replace(grid, "%", "adjacent", 1) + "steps: [{offline: {cpus: \"0-1\"}}]\n",
		"CPU 0b": strings.Replace(grid, "%", "adjacent", 1) +
			"steps: [{offline: {cpus: \"1\"}}, {offline: {cpus: \"3,0\"}}]\n",
		"devices": strings.Replace(grid, "%", "adjacent", 1) +
			"steps: [{create: {pod: a, deviceNodes: \"0\", containers: [{name: main}]}}]\n",
	} {
		_, err := write1(t, text).Grid()
		var not machine.NotRealisable
		if !errors.As(err, &not) {
			t.Errorf("%s: %v, want NotRealisable", name, err)
		}
	}
	if _, err := write1(t, strings.Replace(grid, "%", "adjacent", 1)+
		"steps: [{offline: {cpus: \"1\"}}]\n").Grid(); err != nil {
		t.Error(err)
	}
}

// Every step that simulate knows is played on the node, or refused by name before a machine
// boots, and not both.
func TestEveryStepIsPlayedOrRefused(t *testing.T) {
	plays, step := (&Player{}).plays(), reflect.TypeFor[script.Step]()
	for i := range step.NumField() {
		name, _, _ := strings.Cut(step.Field(i).Tag.Get("json"), ",")
		one := script.Step{}
		field := reflect.ValueOf(&one).Elem().Field(i)
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
		} else {
			field.Set(reflect.MakeMap(field.Type()))
		}
		if op := one.Op(); op != name {
			t.Errorf("step %s calls itself %q", name, op)
		}
		script := &Script{Path: "test", File: &script.File{Steps: []script.Step{one}}}
		var not machine.NotRealisable
		refused := errors.As(script.checkSteps(), &not)
		if played := plays[name] != nil; played == refused {
			t.Errorf("step %s: played %t, refused %t", name, played, refused)
		}
		if refused && !strings.Contains(not.Why, "step 1 ") {
			t.Errorf("step %s is refused as %q, which does not say where", name, not.Why)
		}
		delete(plays, name)
	}
	for name := range plays {
		t.Errorf("%s is played and no step", name)
	}
}

// The suite must not grow topologies without notice: each costs a boot.
func TestTheSuiteIsWellFormed(t *testing.T) {
	paths, err := filepath.Glob("../scenarios/*.yaml")
	if err != nil || len(paths) < 24 {
		t.Fatalf("%d scenarios, %v", len(paths), err)
	}
	grids := map[string]bool{}
	for _, p := range paths {
		s, err := Load(p)
		if err != nil {
			t.Error(err)
			continue
		}
		g, err := s.Grid()
		if err != nil {
			t.Error(err)
		}
		grids[g.Key()] = true
		if len(s.File.Steps) < 3 {
			t.Errorf("%s has only %d steps", p, len(s.File.Steps))
		}
		if _, err := s.Simulate(); err != nil {
			t.Errorf("%s: simulate: %v", p, err)
		}
		if data, _ := os.ReadFile(p); !strings.HasPrefix(string(data), "# ") {
			t.Errorf("%s does not say what it shows", p)
		}
	}
	if len(grids) > 4 { // each takes a boot of its own
		t.Errorf("%d topologies, at most 4: %v", len(grids), grids)
	}
}

func TestDaemonConfig(t *testing.T) {
	s := write1(t,
		"topology: {grid: {sockets: 1}}\nnode: {name: n, labels: {a: b}, kubelet: {cpuManagerPolicy: "+
			"static}}\nconfig: {memory: strict}\n")
	text, err := daemonConfig(s, map[string]string{"c": "d"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if string(c.Memory) != "strict" || c.Node.Name != "n" || c.Node.Labels["c"] != "d" || len(c.Node.Labels) != 1 ||
		c.Node.Kubelet.CPUManagerPolicy != config.CPUManagerStatic {
		t.Errorf("%+v", c)
	}
}

func TestEntryUID(t *testing.T) {
	if entryUID("default/web") != script.UIDOf("default", "web") || entryUID("x") != "x" {
		t.Error("namespace/pod does not stand for the UID, or a UID not for itself")
	}
}

func TestWhatIsOfPods(t *testing.T) {
	for name, want := range map[string]bool{
		"kubepods.slice": true, "kubepods.slice.d": true, "kubepods-burstable-pod1_2.slice": true,
		"cri-containerd-abc.scope.d": true,
		"crio-abc.scope.d":           true, "crio-conmon-abc.scope": true, "crio.service": false,
		"system.slice.d": false, "agent.service": false, "kubelet.service": false, "kubepodsy.slice": false,
	} {
		if got := ofPods(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func files(text map[int]string) []wire.FileResult {
	out := make([]wire.FileResult, len(looked))
	for i := range out {
		out[i].Missing = true
		if data, there := text[i]; there {
			out[i] = wire.FileResult{Data: []byte(data + "\n")}
		}
	}
	return out
}

func at(up int, file string) int {
	return slices.IndexFunc(looked, func(l struct {
		up   int
		file string
	}) bool {
		return l.up == up && l.file == file
	})
}

func TestNearestSetsCount(t *testing.T) {
	c := script.State{}
	err := fill(&c, files(map[int]string{
		at(0, weight): "39", at(0, maximum): "max 100000", at(1, maximum): "150000 100000",
		at(2, cpus): "4-15", at(3, cpus): "0-15", at(0, mems): "1", at(3, mems): "0-3",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if c.CPUs != "4-15" || c.Mems != "1" || *c.Weight != 39 || c.QuotaMilli != 1500 {
		t.Errorf("%+v with weight %d", c, *c.Weight)
	}
	if err := fill(&c, files(map[int]string{at(3, cpus): "0-15"})); err == nil {
		t.Error("a container without a cgroup is no error")
	}
}
