package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/strict"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

const head = "apiVersion: " + APIVersion + "\n"

func TestDefaultIsValidAndIsThePolicysDefault(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	may := map[policy.Power][]string{}
	for _, power := range policy.Powers() {
		if power != policy.PowerSystem {
			may[power] = []string{}
		}
	}
	want := policy.Config{
		Memory: policy.MemoryOff, System: policy.System{Namespaces: []string{"kube-system"}},
		Authority:  policy.Authority{Profile: policy.ProfileDefault, Namespaces: may, MaxCPUs: map[string]int{}},
		NodeLabels: map[string]string{},
		Kubelet:    policy.Kubelet{Options: map[string]string{}, TopologyPolicy: "none"},
	}
	if got := c.Policy(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
	parsed, err := Parse([]byte(head))
	if err != nil || !reflect.DeepEqual(*parsed, c) {
		t.Fatalf("a file that says nothing: %+v, %v", parsed, err)
	}
}

// What a cap may take is said by its own key, else by the profile.
func TestWhoIsProtected(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "cpi: {protect: class}": false, "cpi: {protect: request}": true, `cpi: {protect: ""}`: false,
		"authority: {profile: open}": false, "authority: {profile: strict}": true,
		"authority: {profile: strict}\ncpi: {protect: class}": false,
	} {
		c, err := Parse([]byte(head + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Policy().ProtectRequest; got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

// Who reads the cluster's specs helps to make them, unless the file says how much.
func TestWhoMakesSpecs(t *testing.T) {
	const reads = `specs: {prometheus: {url: "http://p:9090"}}`
	for text, want := range map[string]int{
		"{}": 0, "{jobSeries: 7}": 7, "{" + reads + "}": 1000, "{jobSeries: 7, " + reads + "}": 7,
		"{jobSeries: 0, " + reads + "}": 0, "{jobSeries: null, " + reads + "}": 1000,
		`{specs: {prometheus: {url: ""}}}`: 0,
	} {
		c, err := Parse([]byte(head + "cpi: " + text))
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.With([]byte(`{"memory":"off"}`))
		if err != nil || c.CPI.JobSeries != want || again.CPI.JobSeries != want {
			t.Errorf("%s: %d, and with a policy %+v (%v); want %d", text, c.CPI.JobSeries, again, err, want)
		}
	}
}

func TestEveryWordIsTheValueItNames(t *testing.T) {
	c, err := Parse([]byte(head + `
memory: off
admission: {mode: degrade, heal: off, healAfter: 30s}
reserved: {cpus: 0-1, strict: true}
pools: {sharedFloor: 4}
allocation: {bindPolicy: SpreadByPCPUs, bindRequired: true, exclusivePolicy: NUMANodeLevel, exclusiveRequired: true,
  numaStrategy: DistributeEvenly, alignment: SingleNUMANode, smt: roundup, smtRequired: true, compact: always}
quota: {liftContainersOfMultiContainerPods: true}
system: {cpus: "7", exclusive: true, namespaces: [a, b]}
authority: {exclusive: {namespaces: [batch], maxCPUs: {batch: 4, "*": 0}}, resourceStatus: trust,
  capExemption: {namespaces: [ci]}, profile: strict, wholeCores: {namespaces: [c]}, numaExclusive: {namespaces: [d]},
  unmanaged: {namespaces: ["*"]}, withoutRequest: {namespaces: [f]}, isolatedCPUs: {namespaces: [g]}}
node: {name: n1, labels: {k: v}, kubelet: {cpuManagerPolicy: static, options: {full-pcpus-only: true},
  reservedCPUs: "2", topologyManagerPolicy: restricted, topologyManagerScope: pod, stateFile: ""}}
`))
	if err != nil {
		t.Fatal(err)
	}
	may := map[policy.Power][]string{policy.PowerExclusive: {"batch"}, policy.PowerCapExemption: {"ci"},
		policy.PowerWholeCores: {"c"}, policy.PowerNUMAExclusive: {"d"}, policy.PowerUnmanaged: {"*"},
		policy.PowerWithoutRequest: {"f"}, policy.PowerIsolatedCPUs: {"g"}}
	want := policy.Config{
		ProtectRequest: true, // strict implies it
		Degrade:        true, NoHeal: true, HealAfter: 30 * time.Second,
		Memory: policy.MemoryOff, Reserved: cpuset.Of(0, 1), ReservedStrict: true, SharedFloor: 4,
		Allocation: policy.Allocation{
			Bind: cpuallocator.SpreadByPCPUs, BindRequired: true, Exclusive: cpuallocator.NUMANodeLevel,
			ExclusiveRequired: true,
			Strategy:          cpuallocator.DistributeEvenly, Alignment: cpuallocator.AlignSingleNode,
			SMT: cpuallocator.SMTRoundUp, SMTRequired: true, Compact: policy.CompactAlways,
		},
		LiftContainers: true, System: policy.System{CPUs: cpuset.Of(7), Exclusive: true,
			Namespaces: []string{"a", "b"}},
		Authority: policy.Authority{Profile: policy.ProfileStrict, Namespaces: may, TrustStatus: true,
			MaxCPUs: map[string]int{"batch": 4, "*": 0}},
		NodeLabels: map[string]string{"k": "v"},
		Kubelet: policy.Kubelet{Static: true, Options: map[string]string{"full-pcpus-only": "true"},
			Reserved: cpuset.Of(2), TopologyPolicy: "restricted"},
	}
	if got := c.Policy(); !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

// Each word list must be in the order of the constants that it stands for.
func TestWordListsAreInTheOrderOfTheAllocators(t *testing.T) {
	for _, c := range []struct {
		got  []string
		want map[string]int
	}{
		{bindWords(), map[string]int{"FullPCPUs": int(cpuallocator.FullPCPUs),
			"SpreadByPCPUs": int(cpuallocator.SpreadByPCPUs)}},
		{exclusiveWords(), map[string]int{"None": int(cpuallocator.ExclusiveNone),
			"PCPULevel": int(cpuallocator.PCPULevel), "NUMANodeLevel": int(cpuallocator.NUMANodeLevel)}},
		{strategyWords(), map[string]int{"MostAllocated": int(cpuallocator.MostAllocated),
			"LeastAllocated":   int(cpuallocator.LeastAllocated),
			"DistributeEvenly": int(cpuallocator.DistributeEvenly)}},
		{alignmentWords(), map[string]int{"None": int(cpuallocator.AlignNone),
			"BestEffort": int(cpuallocator.AlignBestEffort), "Restricted": int(cpuallocator.AlignRestricted),
			"SingleNUMANode": int(cpuallocator.AlignSingleNode)}},
		{smtWords(), map[string]int{"none": int(cpuallocator.SMTNone), "isolate": int(cpuallocator.SMTIsolate),
			"align": int(cpuallocator.SMTAlign), "roundup": int(cpuallocator.SMTRoundUp)}},
	} {
		if len(c.got) != len(c.want) {
			t.Errorf("%v: want %v", c.got, c.want)
		}
		for i, w := range c.got {
			if v, ok := c.want[w]; !ok || v != i {
				t.Errorf("%s is %d, the allocator's is %d", w, i, v)
			}
		}
	}
}

func TestRefusesAllMistakesAtOnce(t *testing.T) {
	_, err := Parse([]byte(head + `kind: Config
Mode: observe
memory: sometimes
reserved: {cpus: 0-2000000000}
pools: {sharedFloor: -1}
allocation:
  bindpolicy: FullPCPUs
  smt: Isolate
  alignmnt: None
system: {namespaces: [Kube, a, a, "*"]}
authority: {exclusive: {maxCPUs: {"?": 1, a: -3}}}
node: {name: "a b", kubelet: {options: {full-pcpu-only: "true", full-pcpus-only: maybe}, stateFile: x}}
cpi: {mode: "on", interval: 2h, window: 1s, waits: some, maxContainers: 0, containerSeries: -1, ` +
		`jobSeries: 30000, specs: {prometheus: {url: "prometheus:9090", period: 0s, timeout: 1h, caFile: ca}}, ` +
		`standIns: {cycles: seconds, llcmisses: cpu-clock}}
nri: {socket: run/nri.sock, name: "", index: 9}
cgroup: {root: /sys/../x, driver: cgroups, bus: dbus.sock}
state: {dir: ""}
socket: /` + strings.Repeat("s", 120) + `
listen: everywhere
log: {level: loud, format: [text]}
`))
	if err == nil {
		t.Fatal("accepted")
	}
	text := err.Error()
	for _, want := range []string{
		`line 3: unknown key "Mode"; did you mean "mode"?`,
		`line 4: memory: is "sometimes", must be off, preferred or strict`,
		`line 5: reserved.cpus: CPU list "0-2000000000"`,
		`line 8: allocation: unknown key "bindpolicy"; did you mean "bindPolicy"?`,
		`line 9: allocation.smt: is "Isolate"; write isolate, words are case-sensitive`,
		`line 10: allocation: unknown key "alignmnt"; did you mean "alignment"?`,
		`line 16: cgroup.driver: is "cgroups", must be auto, cgroupfs or systemd`,
		`line 20: log.level: is "loud", must be debug, info, warn or error`,
		`line 20: log.format: is a list, must be text`,
		`line 14: cpi.mode: is "on", must be off, observe or enforce`,
		`line 14: cpi.waits: is "some", must be off or total`,
		`line 14: cpi.standIns.cycles: is "seconds", must be on-cpu-nanoseconds, cpu-clock or page-faults`,
		`line 14: cpi.standIns: unknown key "llcmisses"; did you mean "llcMisses"?`,
		`cpi.interval: is 2h, must be 1s to 1h`,
		`cpi.maxContainers: is 0, must be 1 to 16384`,
		`cpi.containerSeries: is -1, must be 0 (none) to 20000`,
		`cpi.jobSeries: is 30000, must be 0 (none) to 20000`,
		`cpi.specs.prometheus.url: is "prometheus:9090", must be such as http://prometheus.monitoring:9090, or "" ` +
			`to ask none`,
		`cpi.specs.prometheus.period: is 0s, must be 1s to 24h`,
		`cpi.specs.prometheus.timeout: is 1h, must be 100ms to 5m`,
		`cpi.specs.prometheus.caFile: is "ca", must be an absolute path`,
		`kind: is "Config", must be Configuration`,
		`pools.sharedFloor: is -1, must be 0 (one physical core) to 8192 CPUs`,
		`system.namespaces[0]: is "Kube", must be the name of a namespace`,
		`system.namespaces[2]: "a" is listed twice`,
		`system.namespaces[3]: is "*"; leave the list empty`,
		`authority.exclusive.maxCPUs: "?" is neither a namespace nor "*"`,
		`authority.exclusive.maxCPUs.a: is -3, must be 0 (none) to 8192 CPUs`,
		`node.name: is "a b"`,
		`node.kubelet.options: "full-pcpu-only" is no option of kubelet's static policy`,
		`node.kubelet.options.full-pcpus-only: is "maybe", must be "true" or "false"`,
		`node.kubelet.stateFile: is "x", must be an absolute path`,
		`nri.socket: is "run/nri.sock", must be an absolute path`,
		`nri.name: is ""`,
		`nri.index: is "9", must be two digits`,
		`cgroup.root: is "/sys/../x", must be written as "/x"`,
		`cgroup.bus: is "dbus.sock", must be an absolute path`,
		`state.dir: is "", must be an absolute path`,
		`socket: is 121 bytes long, a Unix socket's path has at most 107`,
		`listen: is "everywhere", must be HOST:PORT`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not reported: %s", want)
		}
	}
	if n := strings.Count(text, "\n") + 1; n != 40 {
		t.Errorf("%d mistakes reported, 40 made:\n%s", n, text)
	}
}

func TestRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"": "apiVersion: is missing; begin the file with apiVersion: " +
			"quietcore.dev/v1alpha1",
		"mode: observe": "apiVersion: is missing",
		"apiVersion: quietcore.dev/v1": `apiVersion: is "quietcore.dev/v1", this version of quietcore reads ` +
			`quietcore.dev/v1alpha1`,
		head + "system: {exclusive: true}": "system.exclusive: is true and system.cpus is empty",
		head +
			"reserved: {cpus: 0-3}\nsystem: {exclusive: true, cpus: 3-4}": "system.cpus: CPUs 3 are in " +
			"reserved.cpus too",
		head + "listen: 127.0.0.1:99999": "listen: is",
		head +
			"cpi: {window: 31s}": "cpi.window: is 31s, must be 100ms to 30s, half of cpi.interval",
		head + "cpi: {interval: 1s, window: 50ms}": "cpi.window: is 50ms, must be 100ms to 500ms",
		head +
			"cpi: {minScore: 7, minConfidence: -0.5}": "cpi.minScore: is 7, must be 0 to 1\ncpi.minConfidence: is " +
			"-0.5, must be 0 to 1",
		head +
			"cpi: {capBatch: 0, capBestEffort: 2000, evictAfter: -1}": "cpi.capBatch: is 0 CPUs, must be 0.001 to " +
			"1000\ncpi.capBestEffort: is 2000 CPUs, must be 0.001 to 1000\ncpi.evictAfter: is -1, must be 0 to 1000000",
		head + "cpi: {probe: {budget: 61}}": "cpi.probe.budget: is 61, must be 0 (nobody is tested) to 60 minutes an " +
			"hour",
		head + "cpi: {outlierWindow: 1s}": "cpi.outlierWindow: is 1s, must be 1m to 24h",
		head + "cpi: {scoreWindow: 48h}":  "cpi.scoreWindow: is 48h, must be 1m to 24h",
		head + "cpi: {history: 1m}":       "cpi.history: is 1m, must be 10m to 24h",
		head +
			"cpi: {minTasks: 0, minTaskSamples: 0}": "cpi.minTasks: is 0, must be 1 to 1000000\ncpi.minTaskSamples: " +
			"is 0, must be 1 to 1000000",
		head + "cpi: {specEvery: 1s, capFor: 1s, moveFor: 1s}": "cpi.specEvery: is 1s, must be 1m to 168h",
		head + "cpi: {minUsage: -1}":                           "cpi.minUsage: is -1, must be 0 to 1000",
		head +
			"kubernetes: {batchSlice: enforce, pods: false}": "kubernetes.batchSlice: " +
			"is enforce and kubernetes.pods is false",
		head + "dra: {share: 0%}":                        "dra.share: is \"0%\", must be a number of CPUs",
		head + "dra: {share: 101%}":                      "dra.share: is \"101%\", must be a number of CPUs",
		head + "dra: {share: dynamic}":                   "dra.share: is \"dynamic\", which needs dra.node",
		head + "dra: {share: 1.5}":                       "dra.share: is \"1.5\", must be a number of CPUs",
		head + "dra: {devices: cpu}":                     "dra.devices: is \"cpu\", must be numa, l3 or socket",
		head + "dra: {pluginDir: plugins}":               "dra.pluginDir: is \"plugins\", must be an absolute path",
		head + "dra: {mode: on}\nkubernetes: {api: off}": "dra.mode: is on and kubernetes.api is off",
		head +
			"suppression: {threshold: 101}": "suppression.threshold: is 101, must be 0 to 100 percent",
		head +
			"reclaim: {idle: {threshold: 101}, reserve: -1}": "reclaim.idle.threshold: is 101, must be 0 to 100 " +
			"percent",
		head + "cpi: {interval: 60}": `line 2: cpi.interval: is`,
		head +
			"cpi: {interval: a minute}": `line 2: cpi.interval: is "a minute", must be a length of time such as 10s ` +
			`or 1m30s`,
		head + "mode: on": `line 2: mode: is "on", must be enforce or observe`,
	} {
		if _, err := Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
	var mistake *strict.Error
	if _, err := Parse([]byte(head + "mod: observe")); !errors.As(err, &mistake) || mistake.Line != 2 {
		t.Errorf("the line of a misspelt key: %+v", mistake)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "must be a regular file") {
		t.Errorf("/dev/zero: %v", err)
	}
}

func TestThePageIsForThisMachineAlone(t *testing.T) {
	for address, good := range map[string]bool{
		"": true, "127.0.0.1:9465": true, "localhost:1": true, "[::1]:80": true, "127.8.9.10:1": true,
		"/run/quietcore/page.sock": true,
		":9465":                    false, "0.0.0.0:9465": false, "[::]:9465": false, "10.0.0.7:9465": false,
		"node-a:9465": false, "localhost.example:9465": false, "127.0.0.1": false,
		"127.0.0.1:http": false, "run/page.sock": false, "/run/../page.sock": false, "/" +
			strings.Repeat("s", 120): false,
	} {
		_, err := Parse([]byte(head + "page: {listen: " + strconv.Quote(address) + "}\n"))
		if (err == nil) != good {
			t.Errorf("page.listen %q: %v", address, err)
		}
		if err != nil && !strings.Contains(err.Error(), "page.listen: ") {
			t.Errorf("page.listen %q: the error names no key: %v", address, err)
		}
	}
}

// Helm reads YAML 1.1, in which off is false: printed words are still words there.
func TestPrintedWordsAreNoBooleans(t *testing.T) {
	c := Default()
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `memory: "off"`) || strings.Contains(string(text), ": off") {
		t.Errorf("printed:\n%s", text)
	}
}

func TestYAMLReadsBack(t *testing.T) {
	c := Default()
	c.Node.Labels["a"], c.Node.Labels["b"] = "true", "1.10"
	c.Reserved.CPUs = cpuset.Of(0)
	c.Listen = ""
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(text)
	if err != nil || !reflect.DeepEqual(*back, c) {
		t.Fatalf("%s\n%v\ngot %+v", text, err, back)
	}
	if !strings.HasPrefix(string(text), "apiVersion: quietcore.dev/v1alpha1\nkind: Configuration\nmode: enforce\n") {
		t.Errorf("not in the order of the reference:\n%s", text)
	}
}

// TestReference holds docs/configuration.md and the struct together: a row for
// each key and no other, with the default that Default has.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (`[^`]*`|) *\\| (.+) \\|$")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s has two rows", m[1])
		}
		documented[m[1]] = strings.Trim(m[2], "`")
	}
	c := Default()
	want := map[string]string{}
	leaves(reflect.ValueOf(c), "", want)
	for key, value := range want {
		got, ok := documented[key]
		switch {
		case !ok:
			t.Errorf("docs/configuration.md has no row for %s", key)
		case got != value:
			t.Errorf("docs/configuration.md says that %s is %q by default, it is %q", key, got, value)
		}
		delete(documented, key)
	}
	for key := range documented {
		t.Errorf("docs/configuration.md has a row for %s, which is no key", key)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if _, err := Parse([]byte(m[1])); err != nil {
			t.Errorf("an example in docs/configuration.md is refused: %v\n%s", err, m[1])
		}
	}
	for _, key := range NeedsRestart(&Config{}, &c) {
		if !strings.Contains(string(text), "`"+key) {
			t.Errorf("docs/configuration.md does not say that %s needs a restart", key)
		}
	}
}

// leaves lists the keys that hold a value, with their values as one writes them.
func leaves(v reflect.Value, prefix string, into map[string]string) {
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		key := prefix + name
		f := v.Field(i)
		if options == "omitzero" { // of an earlier version
			into[key] = ""
			continue
		}
		if _, isSet := f.Interface().(cpuset.Set); f.Kind() == reflect.Struct && !isSet {
			leaves(f, key+".", into)
			continue
		}
		if list, ok := f.Interface().([]string); ok {
			into[key] = "[" + strings.Join(list, ", ") + "]"
			continue
		}
		c := map[string]any{"v": f.Interface()}
		into[key] = strings.TrimSpace(strings.TrimPrefix(inYAML(c), "v: "))
	}
}

func inYAML(v any) string {
	text, err := toYAML(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func TestNeedsRestartNamesOnlyWhatDiffers(t *testing.T) {
	a, b := Default(), Default()
	b.Listen, b.NRI.Index, b.Mode, b.Kubernetes.Pods = "", "10", Observe, false
	if got := NeedsRestart(&a, &b); !slices.Equal(got, []string{"kubernetes.pods", "nri", "listen"}) {
		t.Fatalf("%v", got)
	}
}

func TestNodeName(t *testing.T) {
	c := Default()
	t.Setenv("NODE_NAME", "")
	if got := c.NodeName(); got != "" {
		t.Errorf("nobody said it: %q", got)
	}
	t.Setenv("NODE_NAME", "from-env")
	if got := c.NodeName(); got != "from-env" {
		t.Errorf("from the environment: %q", got)
	}
	c.Node.Name = "from-file"
	if got := c.NodeName(); got != "from-file" {
		t.Errorf("from the file: %q", got)
	}
}

func FuzzParse(f *testing.F) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		f.Add([]byte(m[1]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(text)
		if err != nil {
			t.Fatalf("accepted, what it means was not:\n%s\n%v", text, err)
		}
		again, err := back.YAML()
		if err != nil || string(again) != string(text) {
			t.Fatalf("%s\nthen\n%s (%v)", text, again, err)
		}
	})
}

func TestDurationsAreWrittenAsPeopleDo(t *testing.T) {
	for text, want := range map[string]string{"60s": "1m", "3600s": "1h", "90s": "1m30s", "1.5h": "1h30m",
		"10s": "10s", "0.1s": "100ms", "0": "0s", "1h0m5s": "1h0m5s"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("%s is written %s (%v), want %s", text, d, err, want)
		}
		var back Duration
		if err := back.UnmarshalText([]byte(d.String())); err != nil || back != d {
			t.Errorf("%s reads back as %s (%v)", d, back, err)
		}
	}
}

// Keys of earlier versions are taken for one version, with a sentence on each. They are printed
// where they are set, and are no part of the configuration otherwise.
func TestKeysOfEarlierVersionsAreTaken(t *testing.T) {
	d := Default()
	text, err := d.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key, value string
		change     func(*reclaim.Config)
		says       string
	}{
		{"predictor", "max(pods(99),peak(1.1))", func(*reclaim.Config) {}, "has no effect any more"},
		{"idle", "{window: 12h}", func(c *reclaim.Config) { c.Idle.Window /= 2 },
			"idle if 95 % of its samples of 5m in 24h are below 10 % of its request"},
		{"raise", "{hold: 2m}", func(c *reclaim.Config) { c.Raise.Hold *= 2 }, "rises by 1 CPU or more after 1m"},
		{"correct", "{after: 1m}", func(c *reclaim.Config) { c.Correct.After *= 2 },
			"for 30s before a pod is evicted, and one whose eviction was refused is left alone for 5m"},
	} {
		got, err := Parse([]byte(head + "reclaim:\n  " + c.key + ": " + c.value + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		want := d.Reclaim.Estimation()
		c.change(&want)
		if e := got.Reclaim.Estimation(); e != want {
			t.Errorf("reclaim.%s: the estimator is set to %+v, want %+v", c.key, e, want)
		}
		if says := got.Reclaim.Former(); len(says) != 1 || !strings.Contains(says[0], "reclaim."+c.key+" ") ||
			!strings.Contains(says[0], c.says) {
			t.Errorf("reclaim.%s: is said to be %q, want %q", c.key, says, c.says)
		}
		print, err := got.YAML()
		if key := "\n  " + c.key + ":"; err != nil || !strings.Contains(string(print), key) ||
			strings.Contains(string(text), key) {
			t.Errorf("reclaim.%s is not printed where it is set, or where it is not: %v", c.key, err)
		}
	}
	if says := d.Reclaim.Former(); len(says) > 0 {
		t.Errorf("of the defaults is said %q", says)
	}
}
