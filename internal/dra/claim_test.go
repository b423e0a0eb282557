package dra

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

func node(t *testing.T) *Node {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 32, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return NewNode(Options{Name: "n1", Topology: topo, By: config.DevicesNUMA, Share: "100%"})
}

// claim reads a claim, whose status alone a row gives.
func claim(t *testing.T, status string) *resourceapi.ResourceClaim {
	t.Helper()
	c := &resourceapi.ResourceClaim{}
	c.UID, c.Namespace, c.Name = "u1", "ns", "c1"
	if err := yaml.UnmarshalStrict([]byte(status), &c.Status); err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	one = `
reservedFor: [{resource: pods, name: p, uid: pod1}, {apiGroup: x.y, resource: jobs, name: j, uid: job1}]
allocation:
  devices:
    results:
    - {request: gpu, driver: gpu.example.com, pool: n1, device: gpu-0}
    - {request: cpus, driver: cpu.quietcore.dev, pool: n1, device: numa-1, consumedCapacity: {cpu: "48"}, shareID: s1}
`
	configured = one + `
    config:
    - {source: FromClaim, requests: [cpus], opaque: {driver: cpu.quietcore.dev, parameters: {
        apiVersion: quietcore.dev/v1alpha1, kind: CPUClaimParameters, smt: align, containers: [db]}}}
    - {source: FromClass, opaque: {driver: cpu.quietcore.dev, parameters: {
        apiVersion: quietcore.dev/v1alpha1, kind: CPUClaimParameters, smt: isolate, exclusivePolicy: PCPULevel,
        bindPolicy: SpreadByPCPUs, bindRequired: true}}}
    - {source: FromClass, opaque: {driver: gpu.example.com, parameters: {what: ever}}}
    - {source: FromClaim, requests: [others], opaque: {driver: cpu.quietcore.dev, parameters: {what: ever}}}
`
)

func TestPrepared(t *testing.T) {
	e, err := node(t).Prepared(claim(t, one))
	if err != nil {
		t.Fatal(err)
	}
	if e.UID != "u1" || e.Namespace != "ns" || e.Name != "c1" || !slices.Equal(e.Pods, []string{"pod1"}) ||
		len(e.Requests) != 1 {
		t.Fatalf("got %+v", e)
	}
	r := e.Requests[0]
	if r.Device != "numa-1" || r.CPUs != 48 || r.Within.String() != "64-127" || r.SMT != nil || r.Bind != nil ||
		r.Exclusive != nil || r.Containers != nil {
		t.Errorf("got %+v", r)
	}
}

func TestParametersOfClaimAndClass(t *testing.T) {
	e, err := node(t).Prepared(claim(t, configured))
	if err != nil {
		t.Fatal(err)
	}
	r := e.Requests[0]
	if *r.SMT != cpuallocator.SMTAlign || *r.Exclusive != cpuallocator.PCPULevel ||
		*r.Bind != cpuallocator.SpreadByPCPUs || !r.BindRequired || !slices.Equal(r.Containers, []string{"db"}) {
		t.Errorf("got %+v", r)
	}
}

func TestGivenDevices(t *testing.T) {
	c := claim(t, strings.Replace(one, "config", "", 1)+`
    - {request: more/a, driver: cpu.quietcore.dev, pool: n1, device: numa-0, consumedCapacity: {cpu: "2"}}
`)
	got := GivenDevices(c)
	if len(got) != 2 || got[0].Request != "cpus" || got[0].Device != "numa-1" || *got[0].ShareID != "s1" ||
		got[0].CDIDevice != policy.ClaimDevice("u1", 0) || got[1].Request != "more/a" || got[1].ShareID != nil ||
		got[1].CDIDevice != policy.ClaimDevice("u1", 1) {
		t.Errorf("got %+v", got)
	}
	e, err := node(t).Prepared(c)
	if err != nil || len(e.Requests) != len(got) || e.Requests[1].Device != got[1].Device {
		t.Errorf("the policy's requests are %+v, %v", e.Requests, err)
	}
}

func TestClaimsThatCannotBeCarriedOut(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"nothing of ours", "driver: cpu.quietcore.dev", "driver: dra.cpu", "no device of the claim is one of driver"},
		{"another node's", "pool: n1, device: numa-1", "pool: n2, device: numa-1", `pool "n2"; this node's is n1`},
		{"a device that is gone", "numa-1", "l3-7", `no device "l3-7", only numa-0, numa-1`},
		{"no consumable capacity", `, consumedCapacity: {cpu: "48"}`, "", "the cluster needs consumable capacity"},
		{"half a CPU", `{cpu: "48"}`, `{cpu: 500m}`, "it consumes 500m CPUs; a claim has whole CPUs"},
		{"none", `{cpu: "48"}`, `{cpu: "0"}`, "it consumes 0 CPUs"},
		{"more than there can be", `{cpu: "48"}`, `{cpu: "1e9"}`, "CPUs; a claim has whole CPUs"},
		{"admin access", "device: numa-1", "device: numa-1, adminAccess: true", "cannot be given to two"},
		{"parameters", "smt: align", "smtt: align", `parameters (FromClaim): line 1: unknown key "smtt"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(configured, c.old) {
				t.Fatalf("the claim does not have %s", c.old)
			}
			_, err := node(t).Prepared(claim(t, strings.Replace(configured, c.old, c.new, 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	c := claim(t, one)
	c.Status.Allocation = nil
	if _, err := node(t).Prepared(c); err == nil || err.Error() != "the claim is not allocated" {
		t.Errorf("not allocated: %v", err)
	}
}

func TestParametersAreStrict(t *testing.T) {
	const head = `{"apiVersion":"quietcore.dev/v1alpha1","kind":"CPUClaimParameters"`
	for _, c := range []struct{ text, err string }{
		{head + `}`, ""},
		{head + `,"smt":"isolate","bindPolicy":"FullPCPUs","bindRequired":true}`, ""},
		{head + `,"bindpolicy":"FullPCPUs"}`, `unknown key "bindpolicy"; did you mean "bindPolicy"?`},
		{head + `,"smt":"Isolate"}`, "write isolate, words are case-sensitive"},
		{head + `,"bindRequired":true}`, "bindPolicy is not set"},
		{head + `,"containers":["a","B"]}`, `"B" is no name of a container`},
		{`{"smt":"isolate"}`, "apiVersion"},
		{`{"apiVersion":"v1","kind":"CPUClaimParameters"}`, `apiVersion "v1"`},
		{``, "apiVersion"},
		{`null`, "apiVersion"},
		{head + strings.Repeat(" ", maxParameters) + `}`, "larger"},
	} {
		_, err := ParseParameters([]byte(c.text))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.90s: %v, want %s", c.text, err, c.err)
		}
	}
}

func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"quietcore.dev/v1alpha1","kind":"CPUClaimParameters","smt":"align"}`))
	f.Add([]byte("apiVersion: quietcore.dev/v1alpha1\nkind: CPUClaimParameters\ncontainers: [a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseParameters(text)
		if err == nil && (p.APIVersion != APIVersion || p.Kind != Kind || len(p.Containers) > maxContainers) {
			t.Fatalf("took %+v", p)
		}
	})
}

// A claim is whatever the API server sends: it is refused or understood, and never more than it says.
func FuzzPrepared(f *testing.F) {
	f.Add([]byte(configured))
	f.Add([]byte(one))
	topo, err := topology.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		f.Fatal(err)
	}
	n := NewNode(Options{Name: "n1", Topology: topo, By: config.DevicesNUMA, Share: "100%"})
	f.Fuzz(func(t *testing.T, text []byte) {
		c := &resourceapi.ResourceClaim{}
		c.UID = types.UID("u")
		if yaml.Unmarshal(text, &c.Status) != nil {
			return
		}
		e, err := n.Prepared(c)
		if err != nil {
			return
		}
		if len(e.Requests) != len(GivenDevices(c)) {
			t.Fatalf("%d requests, %d devices", len(e.Requests), len(GivenDevices(c)))
		}
		for _, r := range e.Requests {
			if r.CPUs < 1 || r.Within.IsEmpty() {
				t.Fatalf("took %+v", r)
			}
		}
	})
}
