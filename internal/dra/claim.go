package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Given is a device that a claim has, as kubelet is told.
type Given struct {
	Request, Pool, Device string
	CDIDevice             string
	ShareID               *string
}

// Prepared is what an allocated claim asks of this node, with a request for each allocation result of this driver, in
// the API's order. The error says what about the claim cannot be carried out.
func (n *Node) Prepared(claim *resourceapi.ResourceClaim) (policy.ClaimPrepared, error) {
	e := policy.ClaimPrepared{UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name}
	if claim.Status.Allocation == nil {
		return e, errors.New("the claim is not allocated")
	}
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			e.Pods = append(e.Pods, string(consumer.UID))
		}
	}
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if result.Driver != DriverName {
			continue
		}
		r, err := n.request(claim, result)
		if err != nil {
			return e, fmt.Errorf("request %.70q: %w", result.Request, err)
		}
		e.Requests = append(e.Requests, r)
	}
	if len(e.Requests) == 0 {
		return e, fmt.Errorf("no device of the claim is one of driver %s", DriverName)
	}
	return e, nil
}

func (n *Node) request(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult) (
	r policy.ClaimRequest, err error) {
	switch {
	case result.AdminAccess != nil && *result.AdminAccess:
		return r, errors.New("it asks for admin access, and a CPU cannot be given to two")
	case result.Pool != n.Name:
		return r, fmt.Errorf("its device is of pool %.70q; this node's is %s", result.Pool, n.Name)
	}
	d, ok := n.Device(result.Device)
	if !ok {
		return r, fmt.Errorf("this node has no device %.70q, only %s: it was allocated before the CPUs or dra.devices "+
			"changed; delete the pod, so that its claim is allocated anew", result.Device, n.names())
	}
	r.Device, r.Within = d.Name, d.CPUs
	if r.CPUs, err = cpusOf(result.ConsumedCapacity); err != nil {
		return r, err
	}
	p, err := parametersOf(claim.Status.Allocation.Devices.Config, result.Request)
	p.apply(&r)
	return r, err
}

func (n *Node) names() string {
	names := make([]string, len(n.Devices))
	for i, d := range n.Devices {
		names[i] = d.Name
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// cpusOf is how many CPUs a result consumes.
func cpusOf(consumed map[resourceapi.QualifiedName]resource.Quantity) (int, error) {
	q, ok := consumed[Capacity]
	if !ok {
		q, ok = consumed[DriverName+"/"+Capacity]
	}
	if !ok {
		return 0, errors.New("its allocation does not say how much of capacity cpu it consumes; the cluster needs " +
			"consumable capacity (DRAConsumableCapacity, on since Kubernetes 1.36)")
	}
	n, whole := q.AsInt64()
	if !whole || n < 1 || n > cpuset.MaxCPUs {
		return 0, fmt.Errorf("it consumes %s CPUs; a claim has whole CPUs, 1 to %d", q.String(), cpuset.MaxCPUs)
	}
	return int(n), nil
}

// parametersOf are the parameters for a request: its class's, and over them the claim's.
func parametersOf(configs []resourceapi.DeviceAllocationConfiguration, request string) (p Parameters, err error) {
	main, _, _ := strings.Cut(request, "/") // of a subrequest
	for _, source := range []resourceapi.AllocationConfigSource{
		resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim,
	} {
		for i := range configs {
			c := &configs[i]
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != DriverName || len(c.Requests) > 0 &&
				!slices.Contains(c.Requests, request) && !slices.Contains(c.Requests, main) {
				continue
			}
			if err := p.read(c.Opaque.Parameters.Raw); err != nil {
				return p, fmt.Errorf("parameters (%s): %w", source, err)
			}
		}
	}
	return p, nil
}

// Given are the devices of a claim that has its CPUs, in the order of the requests of Prepared.
func GivenDevices(claim *resourceapi.ResourceClaim) (list []Given) {
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != DriverName {
			continue
		}
		g := Given{Request: r.Request, Pool: r.Pool, Device: r.Device,
			CDIDevice: policy.ClaimDevice(string(claim.UID), len(list))}
		if r.ShareID != nil {
			id := string(*r.ShareID)
			g.ShareID = &id
		}
		list = append(list, g)
	}
	return list
}
