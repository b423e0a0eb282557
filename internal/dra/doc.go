// Package dra is what Quietcore's own DRA driver says and understands: a node's CPUs as devices of ResourceSlices, and
// an allocated ResourceClaim as an event of the policy. It does no I/O; package internal/dra/driver serves it.
//
//	n := dra.NewNode(dra.Options{Name: "n1", Topology: t, By: config.DevicesNUMA, Share: share})
//	specs := n.Slices()              // what the scheduler sees
//	event, err := n.Prepared(claim)  // what the policy decides
//
// A device is all CPUs of a NUMA node (or of an L3 or a socket) that claims may have, and a claim takes a number of
// them by the consumable capacity cpu: with a device for each CPU, Kubernetes' limit of 32 devices a claim would be one
// of 32 CPUs. Which CPUs a claim gets is decided on the node, by the policy and the allocator that serve pods as well.
package dra

import resourceapi "k8s.io/api/resource/v1"

const (
	// DriverName is the driver's name in ResourceSlices, claims and DeviceClasses.
	DriverName = "cpu.quietcore.dev"
	// Capacity is the consumable capacity of a device, in CPUs.
	Capacity resourceapi.QualifiedName = "cpu"

	// pcieRoot and numaNode are names that drivers of GPUs and NICs use too, so that a claim can match them.
	pcieRoot resourceapi.QualifiedName = "resource.kubernetes.io/pcieRoot"
	numaNode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"
)
