package kubelet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func source(text string) Source { return Source{"config.yaml", []byte(head + text)} }

func TestParse(t *testing.T) {
	defaults := Config{CPUManagerPolicy: "none", TopologyPolicy: "none", TopologyScope: "container",
		CgroupDriver: "cgroupfs"}
	with := func(change func(*Config)) Config { c := defaults; change(&c); return c }
	for name, c := range map[string]struct {
		sources []Source
		want    Config
	}{
		"defaults": {[]Source{source("")}, defaults},
		"everything": {[]Source{source(`
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", strict-cpu-reservation: "false"}
reservedSystemCPUs: 0-1,8,0
kubeReserved: {cpu: 500m}
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
reservedMemory:
- {numaNode: 0, limits: {memory: 1100Mi, hugepages-2Mi: "0"}}
- {numaNode: 1, limits: {memory: 1Gi}}
cgroupDriver: systemd
maxPods: 110
authentication: {anonymous: {enabled: false}}
somethingNew: [1, {2: 3}]
`)}, Config{
			CPUManagerPolicy: "static", Options: map[string]string{"full-pcpus-only": "true",
				"strict-cpu-reservation": "false"}, ReservedCPUs: cpuset.Of(0, 1, 8),
			TopologyPolicy: "single-numa-node", TopologyScope: "pod",
			TopologyOptions: map[string]string{"prefer-closest-numa-nodes": "true"},
			ReservedMemory: map[int]map[string]int64{0: {"memory": 1100 << 20, "hugepages-2Mi": 0},
				1: {"memory": 1 << 30}}, CgroupDriver: "systemd",
		}},
		"JSON": {[]Source{{"c",
			[]byte(
				`{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1",` +
					`"cpuManagerPolicy":"static","kubeReserved":{"cpu":"1500m","memory":"1Gi"},` +
					`"systemReserved":{"cpu":"1"}}`)}},
			with(func(c *Config) { c.CPUManagerPolicy, c.ReservedMilli = "static", 2500 })},
		"drop-ins in order": {
			[]Source{
				source("cpuManagerPolicy: static\ncpuManagerPolicyOptions: {a: x, b: x}\nreservedSystemCPUs: \"0\"\n"),
				source("cpuManagerPolicyOptions: {b: w, c: z}\nreservedSystemCPUs: 0-1\n"),
				source("cpuManagerPolicyOptions: {a: null}\ntopologyManagerScope: pod\n")},
			with(func(c *Config) {
				c.CPUManagerPolicy, c.Options, c.ReservedCPUs, c.TopologyScope = "static", map[string]string{"b": "w",
					"c": "z"}, cpuset.Of(0, 1), "pod"
			})},
		"a drop-in takes a value back": {[]Source{source("cpuManagerPolicy: static\n"),
			source("cpuManagerPolicy: null\n")}, defaults},
		"keys are case-sensitive": {[]Source{source("CPUManagerPolicy: static\n")}, defaults},
	} {
		got, err := Parse(c.sources...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, got, sets()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("#", maxSource)
	for text, want := range map[string]string{
		"":                             "has apiVersion <nil> and kind <nil>",
		"kind: KubeletConfiguration\n": "has apiVersion <nil>",
		strings.Replace(head, "v1beta1", "v2", 1): "kubelet.config.k8s.io/v2",
		"[1, 2]":                                "is no object",
		"a: [":                                  "config.yaml",
		head + "cpuManagerPolicy: dynamic\n":    `cpuManagerPolicy is "dynamic", Quietcore knows none, static`,
		head + "cpuManagerPolicy: 1\n":          "cpuManagerPolicy is 1, it has to be a string",
		head + "cpuManagerPolicyOptions: [a]\n": "cpuManagerPolicyOptions is [a], it has to be a map",
		head +
			"cpuManagerPolicyOptions: {full-pcpus-only: true}\n": "full-pcpus-only is true, it has to be a string",
		head + "reservedSystemCPUs: 0-100000000\n":                         "reservedSystemCPUs",
		head + "reservedSystemCPUs: 1,,2\n":                                "a CPU number is missing",
		head + "kubeReserved: {cpu: lots}\n":                               "lots",
		head + "kubeReserved: {cpu: \"-1\"}\n":                             "has to be 0 to 8192",
		head + "kubeReserved: {cpu: \"1e400000\"}\n":                       "reserved cpu",
		head + "topologyManagerPolicy: sideways\n":                         "topologyManagerPolicy",
		head + "topologyManagerScope: node\n":                              "topologyManagerScope",
		head + "kubeReserved: {cpu: \"1e19\"}\n":                           "has to be 0 to 8192",
		head + "reservedMemory: [{numaNode: 0, limits: {memory: 1e30}}]\n": "reservedMemory",
		head + "reservedMemory: {}\n":                                      "reservedMemory",
		head + "reservedMemory: [{limits: {memory: 1Gi}}]\n":               "numaNode is missing",
		head + "reservedMemory: [{numaNode: 99999}]\n":                     "outside 0-8191",
		long + head: "larger than",
	} {
		if _, err := Parse(Source{"config.yaml", []byte(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q in it", text, err, want)
		}
	}
	if _, err := Parse(make([]Source, maxSources+1)...); err == nil {
		t.Error("any number of files is read")
	}
}

func TestReserved(t *testing.T) {
	online := cpuset.Range(0, 15)
	static := Config{CPUManagerPolicy: "static", ReservedMilli: 1500}
	strict := static
	strict.Options = map[string]string{"strict-cpu-reservation": "true"}
	listed := static
	listed.ReservedCPUs, listed.ReservedMilli = cpuset.Of(4, 5), 0
	none := static
	none.CPUManagerPolicy = "none"
	state := policy.KubeletState{PolicyName: "static", Default: cpuset.Range(2, 11),
		Entries: map[string]map[string]cpuset.Set{"u": {"a": cpuset.Range(12, 15)}}}
	for name, c := range map[string]struct {
		config      Config
		allocatable cpuset.Set
		state       policy.KubeletState
		want        string
		known       bool
	}{
		"a list":                                {listed, cpuset.Set{}, state, "4-5", true},
		"policy none reserves nothing":          {none, cpuset.Range(2, 15), state, "", true},
		"what is not allocatable":               {static, cpuset.Range(2, 15), state, "0-1", true},
		"allocatable from before a CPU came on": {static, cpuset.Range(3, 15), policy.KubeletState{}, "", false},
		"nothing says so":                       {static, cpuset.Set{}, state, "", false},
		"strict ones show in the state":         {strict, cpuset.Set{}, state, "0-1", true},
		"a state of another policy": {strict, cpuset.Set{}, policy.KubeletState{PolicyName: "none"}, "",
			false},
	} {
		got, known := c.config.Reserved(online, c.allocatable, c.state)
		if got.String() != c.want || known != c.known {
			t.Errorf("%s: %q %t, want %q %t", name, got, known, c.want, c.known)
		}
	}
	p := strict.Policy(cpuset.Of(0, 1))
	want := policy.Kubelet{Static: true, Options: strict.Options, Reserved: cpuset.Of(0, 1)}
	if d := cmp.Diff(want, p, sets()); d != "" {
		t.Errorf("policy (-want +got):\n%s", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head+"cpuManagerPolicy: static\nkubeReserved: {cpu: 1500m}\nreservedSystemCPUs: 0-1\n"),
		[]byte(head+"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n"))
	f.Add(
		[]byte(
			`{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1",`+
				`"kubeReserved":{"cpu":"1e9"}}`), []byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, file, dropIn []byte) {
		c, err := Parse(Source{"file", file}, Source{"drop-in", dropIn})
		if err != nil {
			if len(err.Error()) > 8<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if c.CPUManagerPolicy != "none" && c.CPUManagerPolicy != "static" || c.ReservedCount() < 0 ||
			c.ReservedMilli < 0 {
			t.Errorf("%+v", c)
		}
		_ = fmt.Sprint(c.Policy(c.ReservedCPUs))
	})
}

// sets compares CPU sets by value.
func sets() cmp.Option { return cmp.Comparer(func(a, b cpuset.Set) bool { return a == b }) }
