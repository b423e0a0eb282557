package dra

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Options are what devices are made of.
type Options struct {
	Name     string // of the Node; its pool has the same
	Topology *topology.Topology
	By       config.DRADevices
	Share    config.Share
	// Kept are CPUs that no claim gets, such as reserved ones.
	Kept cpuset.Set
	// Free are CPUs that a claim could have now, Spare is how many of them in all, and Had what claims have of each
	// device, by its name. They count for ShareDynamic alone.
	Free  cpuset.Set
	Spare int
	Had   map[string]int
	// Roots are the CPUs near each PCIe root, by its name.
	Roots map[string]cpuset.Set
	// Lists publishes attributes that are lists. An API server without DRAListTypeAttributes refuses them.
	Lists bool
	// Allocatable publishes that CPUs of claims are CPUs of the node, which its allocatable resources have. An API
	// server without DRANodeAllocatableResources drops that.
	Allocatable bool
}

// Device is one device of the node.
type Device struct {
	Name string
	CPUs cpuset.Set // online ones that a claim may have; a claim gets some of them
	// Offline are siblings of its CPUs that are offline: the device is not healthy.
	Offline cpuset.Set
	// Offered is how many of them claims may have together; 0: it is in no slice, and its claims keep what they have.
	Offered int
	api     resourceapi.Device
}

// Node is a node as the driver shows it.
type Node struct {
	Name    string
	Devices []Device
	lists   bool
	dynamic bool // what is offered follows owners
}

// NewNode makes the devices of a node, in order of their domains. A domain without CPUs that a claim may have has none.
func NewNode(o Options) *Node {
	n := &Node{Name: o.Name, lists: o.Lists, dynamic: o.Share == config.ShareDynamic}
	var domains []topology.Domain
	switch o.By {
	case config.DevicesL3:
		domains = o.Topology.L3s()
	case config.DevicesSocket:
		domains = o.Topology.Sockets()
	default:
		for _, d := range o.Topology.Nodes() {
			domains = append(domains, d.Domain)
		}
	}
	for i := range domains {
		n.Devices = append(n.Devices, o.devicesOf(&domains[i])...)
	}
	o.offer(n.Devices)
	for i := range n.Devices {
		n.Devices[i].api = o.describe(&n.Devices[i])
	}
	return n
}

// offer decides how many CPUs of each device claims may have together. What is free moves with every owner that comes
// or goes, and the scheduler takes what claims have from what is offered.
func (o *Options) offer(devices []Device) {
	sizes := make([]int, len(devices))
	all := 0
	for i := range devices {
		d := &devices[i]
		sizes[i] = d.CPUs.Count()
		all += sizes[i]
		d.Offered = min(d.CPUs.CountAnd(&o.Free), o.Spare) + o.Had[d.Name]
	}
	if o.Share == config.ShareDynamic {
		return
	}
	for i, offered := range split(o.Share.Of(all), sizes) {
		devices[i].Offered = offered
	}
}

// devicesOf are the devices of a domain: one for each kind of core, since a claim that asks for a kind gets no other.
func (o *Options) devicesOf(d *topology.Domain) []Device {
	byKind := map[topology.Kind]cpuset.Set{}
	for cpu := range d.CPUs.All() {
		c, _ := o.Topology.CPU(cpu)
		set := byKind[c.Kind]
		set.Add(cpu)
		byKind[c.Kind] = set
	}
	usable := o.Topology.Online().Minus(o.Topology.Isolated()).Minus(o.Kept)
	var list []Device
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		cpus := byKind[kind].And(usable)
		if cpus.IsEmpty() {
			continue
		}
		name := fmt.Sprintf("%s-%d", o.By, d.ID)
		if len(byKind) > 1 {
			name += "-" + kind.String()
		}
		offline := o.Topology.Siblings(cpus).And(o.Topology.Offline())
		list = append(list, Device{Name: name, CPUs: cpus, Offline: offline})
	}
	return list
}

// split divides n over parts in proportion to their sizes; what is left over goes to the largest remainders.
func split(n int, sizes []int) []int {
	total, given := 0, 0
	for _, s := range sizes {
		total += s
	}
	parts := make([]int, len(sizes))
	if total == 0 {
		return parts
	}
	order := make([]int, len(sizes))
	for i, s := range sizes {
		parts[i], order[i] = n*s/total, i
		given += parts[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(n*sizes[b]%total, n*sizes[a]%total) })
	for _, i := range order[:n-given] {
		parts[i]++
	}
	return parts
}

// describe is a device as the API has it. What its CPUs do not have in common is left out.
func (o *Options) describe(d *Device) resourceapi.Device {
	value := *resource.NewQuantity(int64(d.Offered), resource.DecimalSI)
	one := *resource.NewQuantity(1, resource.DecimalSI)
	many := true
	described := resourceapi.Device{
		Name: d.Name, Attributes: o.attributes(d), AllowMultipleAllocations: &many,
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{Capacity: {
			Value: value,
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: &one, ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &one, Step: &one},
			},
		}},
	}
	if key := resourceapi.QualifiedName(Capacity); o.Allocatable {
		described.NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{
			corev1.ResourceCPU: {Mapping: &resourceapi.NodeAllocatableMapping{CapacityKey: &key,
				CapacityMultiplier: &one}},
		}
	}
	return described
}

func (o *Options) attributes(d *Device) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	a := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	number := func(name resourceapi.QualifiedName, of func(topology.CPU) int) {
		if n, ok := o.common(d, of); ok {
			v := int64(n)
			a[name] = resourceapi.DeviceAttribute{IntValue: &v}
		}
	}
	number("socket", func(c topology.CPU) int { return c.Socket })
	number("numaNode", func(c topology.CPU) int { return c.Node })
	number(numaNode, func(c topology.CPU) int { return c.Node })
	number("l3", func(c topology.CPU) int { return c.L3 })
	if kind, ok := o.common(d, func(c topology.CPU) int { return int(c.Kind) }); ok {
		name := topology.Kind(kind).String()
		a["coreKind"] = resourceapi.DeviceAttribute{StringValue: &name}
	}
	smt, cores := false, map[int]bool{}
	for cpu := range d.CPUs.All() {
		c, _ := o.Topology.CPU(cpu)
		smt = smt || cores[c.Core]
		cores[c.Core] = true
	}
	count := int64(len(cores))
	a["smt"], a["cores"] = resourceapi.DeviceAttribute{BoolValue: &smt}, resourceapi.DeviceAttribute{IntValue: &count}
	healthy := d.Offline.IsEmpty()
	a["healthy"] = resourceapi.DeviceAttribute{BoolValue: &healthy}
	switch roots := o.rootsOf(d); {
	case len(roots) > 0 && o.Lists:
		a[pcieRoot] = resourceapi.DeviceAttribute{StringValues: roots[:min(len(roots), maxValues)]}
	case len(roots) == 1:
		a[pcieRoot] = resourceapi.DeviceAttribute{StringValue: &roots[0]}
	}
	return a
}

// common is what all CPUs of a device have in common; false: they differ, or it is not known.
func (o *Options) common(d *Device, of func(topology.CPU) int) (value int, ok bool) {
	value = -1
	for cpu := range d.CPUs.All() {
		c, _ := o.Topology.CPU(cpu)
		n := of(c)
		if value >= 0 && n != value || n < 0 {
			return 0, false
		}
		value = n
	}
	return value, value >= 0
}

// rootsOf are the PCIe roots near a device. A root that is equally near to all CPUs of several NUMA nodes does not say
// where it is.
func (o *Options) rootsOf(d *Device) []string {
	online := o.Topology.Online()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(o.Roots)) {
		near := o.Roots[name]
		everywhere := len(o.Topology.Nodes()) > 1 && online.SubsetOf(&near)
		if !everywhere && near.Intersects(&d.CPUs) {
			names = append(names, name)
		}
	}
	return names
}

// Device is the device of that name.
func (n *Node) Device(name string) (*Device, bool) {
	i := slices.IndexFunc(n.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return nil, false
	}
	return &n.Devices[i], true
}

const (
	// Kubernetes' limits of devices in a slice, where attributes are no lists and where some are.
	maxDevices     = resourceapi.ResourceSliceMaxDevices
	maxListDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	// maxValues leaves room for the other attributes within ResourceSliceMaxAttributeValuesPerDevice.
	maxValues = 32
)

// Shares are what owners leave to claims, for the policy: of each device what is offered of it. Where that is what
// owners leave, it is nothing: who comes first has them.
func (n *Node) Shares() (shares []policy.ClaimShare) {
	if n.dynamic {
		return nil
	}
	for _, d := range n.Devices {
		if d.Offered > 0 {
			shares = append(shares, policy.ClaimShare{Within: d.CPUs, CPUs: d.Offered})
		}
	}
	return shares
}

// StripAllocatable takes the mapping on the node's allocatable CPUs from devices, and reports whether one had it.
func StripAllocatable(specs []resourceapi.ResourceSliceSpec) (had bool) {
	for i := range specs {
		for j := range specs[i].Devices {
			d := &specs[i].Devices[j]
			had = had || len(d.NodeAllocatableResources) > 0
			d.NodeAllocatableResources = nil
		}
	}
	return had
}

// Slices are the specs of the node's ResourceSlices, without the pool's generation: one, or several where devices are
// more than a slice holds.
func (n *Node) Slices() []resourceapi.ResourceSliceSpec {
	most := maxDevices
	if n.lists {
		most = maxListDevices
	}
	var specs []resourceapi.ResourceSliceSpec
	offered := slices.DeleteFunc(slices.Clone(n.Devices), func(d Device) bool { return d.Offered == 0 })
	for chunk := range slices.Chunk(offered, most) {
		name := n.Name
		s := resourceapi.ResourceSliceSpec{
			Driver: DriverName, NodeName: &name, Pool: resourceapi.ResourcePool{Name: n.Name},
		}
		for _, d := range chunk {
			s.Devices = append(s.Devices, *d.api.DeepCopy())
		}
		specs = append(specs, s)
	}
	for i := range specs {
		specs[i].Pool.ResourceSliceCount = int64(len(specs))
	}
	return specs
}
