package nrt

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// LabelManagedBy names the writer of an object.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// DefaultManagedBy is the value that Koordinator's components expect.
const DefaultManagedBy = "Koordinator"

// Attributes of the object, as the community's scheduler plugin reads them.
const (
	AttributePolicy = "topologyManagerPolicy"
	AttributeScope  = "topologyManagerScope"
)

// Amounts are quantities in bytes or pieces, by NUMA node ID and resource name.
type Amounts map[int]map[string]int64

// Kubelet is what kubelet's configuration says about topology.
type Kubelet struct {
	CPUManagerPolicy string // none or static; empty is none
	Options          map[string]string
	TopologyPolicy   string // none, best-effort, restricted or single-numa-node; empty is none
	TopologyScope    string // container or pod; empty is container
}

// Input is everything that the object is built from.
type Input struct {
	Node      string
	NodeUID   types.UID // of the Node object, which then owns this one; empty: unknown
	ManagedBy string    // empty: DefaultManagedBy
	Snapshot  *policy.Snapshot
	// SharedFloor is the number of CPUs that the shared pool keeps; 0: one physical
	// core.
	SharedFloor int
	Kubelet     Kubelet
	// Ledger is the snapshot's, or one before it that differs in requests alone; nil: none is
	// published.
	Ledger     *policy.Ledger
	Generation uint64 // of the ledger
	Refused    []policy.RefusedPod
	Pairs      []ledger.Pair
	Alive      time.Time // when the daemon last ran for sure; zero: it is not said
	// Alignment is the Node's label; None or empty: not set. It takes precedence over
	// kubelet's topology manager, as for pods.
	Alignment string

	// Capacity, Reserved and Taken cover every resource but cpu: what there is, what
	// kubelet keeps from pods, and what containers hold exclusively. Without a capacity
	// of memory the topology's is used, less hugepages.
	Capacity Amounts
	Reserved Amounts
	Taken    Amounts
}

// Build makes the object. It shares no memory with the input.
func Build(in Input) *v1alpha2.NodeResourceTopology {
	managedBy := in.ManagedBy
	if managedBy == "" {
		managedBy = DefaultManagedBy
	}
	policies, attributes := topologyManager(&in)
	o := &v1alpha2.NodeResourceTopology{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha2.SchemeGroupVersion.String(), Kind: "NodeResourceTopology"},
		ObjectMeta: metav1.ObjectMeta{
			Name: in.Node, Labels: map[string]string{LabelManagedBy: managedBy}, Annotations: annotations(&in),
		},
		TopologyPolicies: policies,
		Attributes:       attributes,
		Zones:            zones(&in),
	}
	if in.NodeUID != "" {
		// The garbage collector then removes the object with its node.
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: in.Node, UID: in.NodeUID}}
	}
	return o
}

const (
	scopePod       = "pod"
	scopeContainer = "container"
)

// level is one topology policy by all of its names.
type level struct {
	alignment string // Koordinator's node label
	kubelet   string
	pod       []string // topologyPolicies in pod scope
	container []string
}

// levels lists the policies. The community's name comes first, since its scheduler
// plugin reads no other, then Koordinator's. Koordinator's scheduler reads all, and has
// no name for alignment by container; here alignment is by pod anyway.
func levels() []level {
	word := func(p ...v1alpha2.TopologyManagerPolicy) []string {
		var s []string
		for _, w := range p {
			s = append(s, string(w))
		}
		return s
	}
	return []level{
		{"BestEffort", "best-effort", word(v1alpha2.BestEffortPodLevel, v1alpha2.BestEffort),
			word(v1alpha2.BestEffortContainerLevel, v1alpha2.BestEffort)},
		{"Restricted", "restricted", word(v1alpha2.RestrictedPodLevel, v1alpha2.Restricted),
			word(v1alpha2.RestrictedContainerLevel, v1alpha2.Restricted)},
		{"SingleNUMANode", "single-numa-node", word(v1alpha2.SingleNUMANodePodLevel),
			word(v1alpha2.SingleNUMANodeContainerLevel, v1alpha2.SingleNUMANodePodLevel)},
	}
}

func topologyManager(in *Input) ([]string, v1alpha2.AttributeList) {
	scope := in.Kubelet.TopologyScope
	if scope == "" {
		scope = scopeContainer
	}
	found := level{kubelet: "none", pod: []string{string(v1alpha2.None)}, container: []string{string(v1alpha2.None)}}
	labelled := false
	for _, l := range levels() {
		if l.alignment == in.Alignment {
			found, scope, labelled = l, scopePod, true
		}
		if l.kubelet == in.Kubelet.TopologyPolicy && !labelled {
			found = l
		}
	}
	policies := found.container
	if scope == scopePod {
		policies = found.pod
	}
	return policies, v1alpha2.AttributeList{{Name: AttributePolicy, Value: found.kubelet},
		{Name: AttributeScope, Value: scope}}
}

func zoneName(node int) string { return "node-" + strconv.Itoa(node) }

// zones lists every NUMA node, including memory-only nodes.
func zones(in *Input) v1alpha2.ZoneList {
	t := in.Snapshot.Topology
	left := in.Snapshot.Spare(in.SharedFloor)
	list := make(v1alpha2.ZoneList, 0, len(t.Nodes()))
	for i := range t.Nodes() {
		n := &t.Nodes()[i]
		z := v1alpha2.Zone{Name: zoneName(n.ID), Type: "Node"}
		for j := range t.Nodes() {
			z.Costs = append(z.Costs, v1alpha2.CostInfo{Name: zoneName(t.Nodes()[j].ID),
				Value: int64(t.Distance(i, j))})
		}
		z.Resources = append(v1alpha2.ResourceInfoList{cpuOf(in, n, left)}, othersOf(in, n)...)
		list = append(list, z)
	}
	return list
}

// cpuOf counts a node's CPUs. Allocatable are all online CPUs: Koordinator's scheduler
// itself subtracts what the annotations name as reserved or allocated. Available is
// bounded by the shared pool's floor in each zone, since one pod may take all that is
// left from any zone.
func cpuOf(in *Input, n *topology.Node, left int) v1alpha2.ResourceInfo {
	s := in.Snapshot
	online := s.Topology.Online()
	f := s.Free()
	return v1alpha2.ResourceInfo{
		Name:        "cpu",
		Capacity:    *resource.NewQuantity(int64(n.CPUs.Count()), resource.DecimalSI),
		Allocatable: *resource.NewQuantity(int64(n.CPUs.CountAnd(&online)), resource.DecimalSI),
		Available:   *resource.NewQuantity(int64(min(left, n.CPUs.CountAnd(&f))), resource.DecimalSI),
	}
}

const (
	memory     = "memory"
	hugepages  = "hugepages-"
	maxPerZone = 64 // resources of a zone, more than any node has kinds of devices
)

func othersOf(in *Input, n *topology.Node) v1alpha2.ResourceInfoList {
	capacity := make(map[string]int64, len(in.Capacity[n.ID])+1)
	var huge int64
	for name, amount := range in.Capacity[n.ID] {
		if name == "cpu" || name == "" || amount < 0 {
			continue
		}
		capacity[name] = amount
		if strings.HasPrefix(name, hugepages) {
			huge += amount
		}
	}
	if _, given := capacity[memory]; !given && n.MemoryBytes > 0 {
		capacity[memory] = max(0, int64(min(n.MemoryBytes, 1<<62))-huge)
	}
	var list v1alpha2.ResourceInfoList
	for _, name := range sortedNames(capacity) {
		if len(list) == maxPerZone {
			break
		}
		c := capacity[name]
		allocatable := min(c, max(0, c-max(0, in.Reserved[n.ID][name])))
		available := min(allocatable, max(0, allocatable-max(0, in.Taken[n.ID][name])))
		format := resource.DecimalSI
		if name == memory || strings.HasPrefix(name, hugepages) {
			format = resource.BinarySI
		}
		list = append(list, v1alpha2.ResourceInfo{
			Name: name, Capacity: *resource.NewQuantity(c, format),
			Allocatable: *resource.NewQuantity(allocatable, format),
			Available:   *resource.NewQuantity(available, format),
		})
	}
	return list
}

// sortedNames puts memory and hugepages before devices.
func sortedNames(m map[string]int64) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	rank := func(name string) string {
		switch {
		case name == memory:
			return "0"
		case strings.HasPrefix(name, hugepages):
			return "1" + name
		}
		return "2" + name
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	return names
}
