package nrt

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// machine is a policy machine that takes every event.
type machine struct {
	*policy.Machine
	t testing.TB
	n int
}

func newMachine(t testing.TB, topo *topology.Topology, cfg policy.Config) *machine {
	t.Helper()
	m, err := policy.New(topo, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{Machine: m, t: t}
}

func (m *machine) step(e policy.Event) error {
	m.n++
	_, err := m.Step(time.Unix(int64(m.n), 0), e)
	return err
}

// run starts a Guaranteed pod of one container.
func (m *machine) run(name, class string, cpus int64) error {
	r := policy.Resources{RequestMilli: cpus * 1000, LimitMilli: cpus * 1000}
	p := policy.Pod{
		UID: "uid-" + name, Sandbox: "sandbox-" + name, Namespace: "default", Name: name, QoS: policy.Guaranteed,
		Resources: &r,
		Labels:    map[string]string{}, CreatedAt: time.Unix(int64(m.n), 0),
	}
	if class != "" {
		p.Labels[policy.LabelClass] = class
	}
	if err := m.step(policy.PodRun{Pod: p}); err != nil {
		return err
	}
	return m.step(policy.ContainerCreate{Pod: p, Container: policy.Container{ID: "id-" + name, Sandbox: p.Sandbox,
		Name: "app", Resources: r, Shares: cpus * 1024}})
}

func grid(t testing.TB) *topology.Topology {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// gridOf is a machine of two sockets with four NUMA nodes each.
func gridOf(t testing.TB, cpus int) *topology.Topology {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 4, CoresPerL3: cpus / 16, ThreadsPerCore: 2}.Build()
	must(t, err)
	return topo
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cpus is a zone's capacity, allocatable and available CPUs.
func cpus(o *v1alpha2.NodeResourceTopology, zone int) string {
	r := o.Zones[zone].Resources[0]
	return fmt.Sprintf("%s %s/%s/%s", r.Name, r.Capacity.String(), r.Allocatable.String(), r.Available.String())
}

func TestWhatSchedulersRead(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{Reserved: cpuset.Of(0)})
	must(t, m.run("lse", "LSE", 4))
	must(t, m.run("lsr", "LSR", 2))
	must(t, m.step(policy.KubeletState{PolicyName: "static", Default: cpuset.Range(0, 13),
		Entries: map[string]map[string]cpuset.Set{"uid-pinned": {"app": cpuset.Range(14, 15)}}}))
	must(t, m.run("pinned", "", 2))
	must(t, m.run("web", "LS", 1))
	o := Build(Input{
		Node: "node1", NodeUID: "u", Snapshot: m.Snapshot(),
		Kubelet: Kubelet{CPUManagerPolicy: "static", Options: map[string]string{"full-pcpus-only": "true"},
			TopologyPolicy: "single-numa-node", TopologyScope: "pod"},
	})
	if o.Name != "node1" || o.Labels[LabelManagedBy] != "Koordinator" || len(o.OwnerReferences) != 1 ||
		o.OwnerReferences[0].UID != "u" {
		t.Errorf("metadata is %+v", o.ObjectMeta)
	}
	owned := map[string]string{}
	for _, a := range read[[]PodAlloc](t, o, AnnAllocs) {
		owned[fmt.Sprintf("%s/%s %s %t", a.Namespace, a.Name, a.UID, a.ManagedByKubelet)] = a.CPUSet
	}
	want := map[string]string{"default/lse uid-lse false": "2-5", "default/lsr uid-lsr false": "6-7",
		"default/pinned uid-pinned true": "14-15"}
	if d := cmp.Diff(want, owned); d != "" {
		t.Errorf("allocations (-want +got):\n%s", d)
	}
	for key, want := range map[string]string{
		AnnManagerPolicy: `{"policy":"static","options":{"full-pcpus-only":"true"},"reservedCPUs":"0"}`,
		AnnSharedPools:   `[{"socket":0,"node":0,"cpuset":"0-1"},{"socket":1,"node":1,"cpuset":"8-13"}]`,
		AnnBEPools:       `[{"socket":0,"node":0,"cpuset":"0-1,6-7"},{"socket":1,"node":1,"cpuset":"8-13"}]`,
		AnnReservation:   `{}`,
	} {
		if got := o.Annotations[key]; got != want {
			t.Errorf("%s is\n%s, want\n%s", key, got, want)
		}
	}
	if got := cpus(o, 0) + ", " + cpus(o, 1); got != "cpu 8/8/1, cpu 8/8/6" {
		t.Errorf("zones have %s", got)
	}
	if d := cmp.Diff(v1alpha2.CostList{{Name: "node-0", Value: 10}, {Name: "node-1", Value: 20}},
		o.Zones[0].Costs); d != "" {
		t.Errorf("costs (-want +got):\n%s", d)
	}
	topo := read[CPUTopology](t, o, AnnTopology)
	if len(topo.Detail) != 16 || topo.Detail[9] != (CPUInfo{ID: 9, Core: 4, Socket: 1, Node: 1}) {
		t.Errorf("CPU topology is %+v", topo)
	}
}

func read[T any](t testing.TB, o *v1alpha2.NodeResourceTopology, key string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(o.Annotations[key]), &v); err != nil {
		t.Fatalf("annotation %s: %v", key, err)
	}
	return v
}

func TestWithheldSiblingsAreNobodys(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{Allocation: policy.Allocation{SMT: cpuallocator.SMTIsolate}})
	must(t, m.run("quiet", "LSE", 2))
	o := Build(Input{Node: "n", Snapshot: m.Snapshot()})
	if got := read[[]PodAlloc](t, o, AnnAllocs)[0].CPUSet; got != "0,2" {
		t.Errorf("owner has %s", got)
	}
	if got := read[Reservation](t, o, AnnReservation); got != (Reservation{ReservedCPUs: "1,3",
		ApplyPolicy: "ReservedCPUsOnly"}) {
		t.Errorf("reservation is %+v", got)
	}
	if got := cpus(o, 0); got != "cpu 8/8/4" {
		t.Errorf("zone 0 has %s", got)
	}
}

// A pod whose container has just died keeps its CPUs; a scheduler must not take
// them for free.
func TestOwnerWithoutContainer(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{})
	must(t, m.run("crashing", "LSE", 2))
	must(t, m.step(policy.ContainerStopped{ID: "id-crashing"}))
	o := Build(Input{Node: "n", Snapshot: m.Snapshot()})
	want := []PodAlloc{{Namespace: "default", Name: "crashing", UID: "uid-crashing", CPUSet: "0-1"}}
	if d := cmp.Diff(want, read[[]PodAlloc](t, o, AnnAllocs)); d != "" {
		t.Errorf("allocations (-want +got):\n%s", d)
	}
	if got := o.Annotations[AnnReservation]; got != "{}" {
		t.Errorf("reservation is %s", got)
	}
	if got := cpus(o, 0); got != "cpu 8/8/6" {
		t.Errorf("zone 0 has %s", got)
	}
}

// Koordinator's scheduler takes only what kubelet manages for taken, and no
// annotation of its own says where a pod went that kubelet pinned onto an
// owner's CPUs.
func TestAPinThatWeMovedIsTaken(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{})
	must(t, m.run("owner", "LSE", 2))
	must(t, m.step(policy.KubeletState{PolicyName: "static",
		Entries: map[string]map[string]cpuset.Set{"uid-pinned": {"app": cpuset.Of(0, 1)}}}))
	must(t, m.run("pinned", "", 2))
	o := Build(Input{Node: "n", Snapshot: m.Snapshot()})
	want := []PodAlloc{
		{Namespace: "default", Name: "owner", UID: "uid-owner", CPUSet: "0-1"},
		{Namespace: "default", Name: "pinned", UID: "uid-pinned", CPUSet: "2-3", ManagedByKubelet: true},
	}
	if d := cmp.Diff(want, read[[]PodAlloc](t, o, AnnAllocs)); d != "" {
		t.Errorf("allocations (-want +got):\n%s", d)
	}
}

// What kubelet booked for a pod that the runtime has not shown yet has no name, and
// is still no other pod's.
func TestWhatKubeletBookedAheadIsReserved(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{})
	must(t, m.step(policy.KubeletState{PolicyName: "static",
		Entries: map[string]map[string]cpuset.Set{"uid-coming": {"app": cpuset.Of(6, 7)}}}))
	o := Build(Input{Node: "n", Snapshot: m.Snapshot()})
	if got := o.Annotations[AnnAllocs]; got != "[]" {
		t.Errorf("allocations are %s", got)
	}
	if got := read[Reservation](t, o, AnnReservation).ReservedCPUs; got != "6-7" {
		t.Errorf("reserved are %q", got)
	}
}

func TestFloorBoundsWhatIsAvailable(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{SharedFloor: 12})
	o := Build(Input{Node: "n", Snapshot: m.Snapshot(), SharedFloor: 12})
	if got := cpus(o, 0) + ", " + cpus(o, 1); got != "cpu 8/8/4, cpu 8/8/4" {
		t.Errorf("zones have %s", got)
	}
	if err := m.run("five", "LSE", 5); err == nil {
		t.Error("a pod of 5 CPUs was placed, more than was available")
	}
	must(t, m.run("four", "LSE", 4))
}

func TestOfflineIsolatedStrictAndSystem(t *testing.T) {
	list := grid(t).CPUs()
	topo, err := topology.New(list, topology.Options{Offline: cpuset.Of(15), Isolated: cpuset.Of(12, 13)})
	must(t, err)
	m := newMachine(t, topo, policy.Config{Reserved: cpuset.Of(0, 1), ReservedStrict: true,
		System:    policy.System{CPUs: cpuset.Of(8, 9)},
		Authority: policy.Authority{Namespaces: map[policy.Power][]string{policy.PowerIsolatedCPUs: {"default"}}}})
	o := Build(Input{Node: "n", Snapshot: m.Snapshot()})
	if got := cpus(o, 0) + ", " + cpus(o, 1); got != "cpu 8/8/6, cpu 8/7/3" {
		t.Errorf("zones have %s", got)
	}
	if got := read[ManagerPolicy](t, o, AnnManagerPolicy); got.ReservedCPUs != "0-1,8-9" || got.Policy != "none" {
		t.Errorf("manager policy is %+v", got)
	}
	if got := read[Reservation](t, o, AnnReservation).ReservedCPUs; got != "12-13" {
		t.Errorf("reserved are %q", got)
	}
	// An isolated CPU that a pod owns is the pod's, and no zone has less for that.
	_, err = m.Step(time.Unix(1, 0), policy.PodRun{Pod: policy.Pod{UID: "poll", Sandbox: "poll", Namespace: "default",
		Name: "poll", QoS: policy.Guaranteed, Labels: map[string]string{policy.LabelClass: "LSR"},
		Annotations: map[string]string{policy.AnnIsolated: "required"},
		Resources:   &policy.Resources{RequestMilli: 1000, LimitMilli: 1000}}})
	must(t, err)
	o = Build(Input{Node: "n", Snapshot: m.Snapshot()})
	if got := cpus(o, 0) + ", " + cpus(o, 1); got != "cpu 8/8/6, cpu 8/7/3" {
		t.Errorf("zones have %s", got)
	}
	if got := read[Reservation](t, o, AnnReservation).ReservedCPUs; got != "13" {
		t.Errorf("reserved are %q, and one is owned", got)
	}
}

func TestTopologyManagerWords(t *testing.T) {
	for _, c := range []struct{ policy, scope, label, policies, attributes string }{
		{"", "", "", "None", "none container"},
		{"none", "pod", "None", "None", "none pod"},
		{"best-effort", "container", "", "BestEffortContainerLevel BestEffort", "best-effort container"},
		{"best-effort", "pod", "", "BestEffortPodLevel BestEffort", "best-effort pod"},
		{"restricted", "", "", "RestrictedContainerLevel Restricted", "restricted container"},
		{"single-numa-node", "container", "", "SingleNUMANodeContainerLevel SingleNUMANodePodLevel",
			"single-numa-node container"},
		{"single-numa-node", "pod", "", "SingleNUMANodePodLevel", "single-numa-node pod"},
		{"best-effort", "container", "SingleNUMANode", "SingleNUMANodePodLevel", "single-numa-node pod"},
		{"single-numa-node", "container", "BestEffort", "BestEffortPodLevel BestEffort", "best-effort pod"},
		{"single-numa-node", "pod", "Sideways", "SingleNUMANodePodLevel", "single-numa-node pod"},
		{"sideways", "pod", "", "None", "none pod"},
	} {
		m := newMachine(t, grid(t), policy.Config{})
		o := Build(Input{Node: "n", Snapshot: m.Snapshot(), Alignment: c.label,
			Kubelet: Kubelet{TopologyPolicy: c.policy, TopologyScope: c.scope}})
		if got := strings.Join(o.TopologyPolicies, " "); got != c.policies {
			t.Errorf("%+v: topologyPolicies %s", c, got)
		}
		if got := o.Attributes[0].Value + " " + o.Attributes[1].Value; got != c.attributes ||
			o.Attributes[0].Name != "topologyManagerPolicy" || o.Attributes[1].Name != "topologyManagerScope" {
			t.Errorf("%+v: attributes %+v", c, o.Attributes)
		}
	}
}

func TestMemoryHugepagesAndDevices(t *testing.T) {
	const gi = 1 << 30
	topo, err := topology.New(grid(t).CPUs(), topology.Options{Memory: map[int]uint64{0: 16 * gi, 1: 16 * gi,
		3: 64 * gi}})
	must(t, err)
	m := newMachine(t, topo, policy.Config{})
	o := Build(Input{
		Node: "n", Snapshot: m.Snapshot(),
		Capacity: Amounts{0: {"hugepages-2Mi": 2 * gi, "hugepages-1Gi": 4 * gi, "vendor.com/nic": 3, "cpu": 99},
			1: {"vendor.com/nic": 2, "bad": -1}, 7: {"vendor.com/nic": 5}},
		Reserved: Amounts{0: {"memory": gi}},
		Taken:    Amounts{0: {"vendor.com/nic": 1, "memory": 2 * gi}, 1: {"vendor.com/nic": 9}},
	})
	var got []string
	for _, z := range o.Zones {
		for _, r := range z.Resources {
			got = append(got, fmt.Sprintf("%s %s %s/%s/%s", z.Name, r.Name, r.Capacity.String(),
				r.Allocatable.String(), r.Available.String()))
		}
	}
	want := []string{
		"node-0 cpu 8/8/8", "node-0 memory 10Gi/9Gi/7Gi", "node-0 hugepages-1Gi 4Gi/4Gi/4Gi",
		"node-0 hugepages-2Mi 2Gi/2Gi/2Gi", "node-0 vendor.com/nic 3/3/2",
		"node-1 cpu 8/8/8", "node-1 memory 16Gi/16Gi/16Gi", "node-1 vendor.com/nic 2/2/0",
		"node-3 cpu 0/0/0", "node-3 memory 64Gi/64Gi/64Gi",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("resources (-want +got):\n%s", d)
	}
}

// The largest machine has more to say than the API server takes.
func TestAnnotationsStayWithinTheLimit(t *testing.T) {
	topo, err := topology.Grid{Sockets: 8, NodesPerSocket: 8, CoresPerL3: 64, ThreadsPerCore: 2}.Build()
	must(t, err)
	m := newMachine(t, topo, policy.Config{})
	for i := range 500 {
		must(t, m.run(fmt.Sprintf("%s-%d", strings.Repeat("x", 40), i), "LSE", 2))
	}
	o := Build(Input{Node: "n", Snapshot: m.Snapshot()})
	size := 0
	for k, v := range o.Annotations {
		size += len(k) + len(v)
	}
	if size > 256<<10 {
		t.Errorf("the annotations take %d bytes, the API server takes %d", size, 256<<10)
	}
	if o.Annotations[AnnOmitted] != `["node.koordinator.sh/cpu-topology"]` || o.Annotations[AnnTopology] != "" ||
		len(read[[]PodAlloc](t, o, AnnAllocs)) != 500 {
		t.Errorf("omitted are %s", o.Annotations[AnnOmitted])
	}
}

func TestReadHugepages(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got := ReadHugepages(fstest.MapFS{
		"devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages":    file("512\n"),
		"devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages": file("4\n"),
		"devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages":    file("0\n"),
		"devices/system/node/node2/hugepages/hugepages-64kB/nr_hugepages":      file("many"),
		"devices/system/node/nodeX/hugepages/hugepages-2048kB/nr_hugepages":    file("1"),
		"devices/system/node/node3/hugepages/hugepages-0kB/nr_hugepages":       file("1"),
		"devices/system/node/node4/hugepages/hugepages-2048kB/nr_hugepages":    file("99999999999999999999"),
	})
	want := Amounts{0: {"hugepages-2Mi": 1 << 30, "hugepages-1Gi": 4 << 30}, 1: {"hugepages-2Mi": 0}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := ReadHugepages(fstest.MapFS{}); len(got) != 0 {
		t.Errorf("an empty /sys has %v", got)
	}
}

func FuzzReadHugepages(f *testing.F) {
	f.Add("node0", "hugepages-2048kB", "512\n")
	f.Add("node8191", "hugepages-1073741824kB", "1099511627776")
	f.Fuzz(func(t *testing.T, node, size, count string) {
		if strings.ContainsAny(node+size, "/\x00") || node == "" || size == "" {
			return
		}
		for id, sizes := range ReadHugepages(fstest.MapFS{"devices/system/node/" + node + "/hugepages/" + size +
			"/nr_hugepages": {Data: []byte(count)}}) {
			for name, bytes := range sizes {
				if id < 0 || id >= cpuset.MaxCPUs || bytes < 0 {
					t.Errorf("node %d has %d bytes of %s", id, bytes, name)
				}
			}
		}
	})
}

func BenchmarkBuild(b *testing.B) {
	m := newMachine(b, gridOf(b, 512), policy.Config{})
	for i := range 100 {
		must(b, m.run(fmt.Sprintf("pod-%d", i), "LSE", 2))
	}
	in := Input{Node: "n", Snapshot: m.Snapshot()}
	b.ReportAllocs()
	for b.Loop() {
		Build(in)
	}
}
