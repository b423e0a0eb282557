package nrt

import (
	"encoding/json"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

// Annotations of the object, in the JSON that Koordinator's scheduler parses.
const (
	AnnManagerPolicy = "kubelet.koordinator.sh/cpu-manager-policy"
	AnnAllocs        = "node.koordinator.sh/pod-cpu-allocs"
	AnnReservation   = "node.koordinator.sh/reservation"
	AnnSharedPools   = "node.koordinator.sh/cpu-shared-pools"
	AnnBEPools       = "node.koordinator.sh/be-cpu-shared-pools"
	AnnTopology      = "node.koordinator.sh/cpu-topology"
	// AnnWaiting names pods that wait for CPUs of their own: a scheduler leaves them some.
	AnnWaiting = "quietcore.dev/waiting-pods"
	// AnnOmitted names annotations that were too large for the object.
	AnnOmitted = "quietcore.dev/omitted-annotations"
)

// maxAnnotations leaves room for other writers within the API server's 256 KiB.
const maxAnnotations = 240 << 10

// ManagerPolicy is kubelet's CPU manager policy, with the CPUs that it never gives away
// exclusively although pods share them.
type ManagerPolicy struct {
	Policy       string            `json:"policy,omitempty"`
	Options      map[string]string `json:"options,omitempty"`
	ReservedCPUs string            `json:"reservedCPUs,omitempty"`
}

// CPUTopology lists the online CPUs.
type CPUTopology struct {
	Detail []CPUInfo `json:"detail,omitempty"`
}

// CPUInfo is a CPU's place.
type CPUInfo struct {
	ID     int32 `json:"id"`
	Core   int32 `json:"core"`
	Socket int32 `json:"socket"`
	Node   int32 `json:"node"`
}

// PodAlloc is a pod with CPUs of its own.
type PodAlloc struct {
	Namespace        string `json:"namespace,omitempty"`
	Name             string `json:"name,omitempty"`
	UID              string `json:"uid,omitempty"`
	CPUSet           string `json:"cpuset,omitempty"`
	ManagedByKubelet bool   `json:"managedByKubelet,omitempty"`
}

// SharedPool is the part of a pool that lies on one NUMA node.
type SharedPool struct {
	Socket int32  `json:"socket"`
	Node   int32  `json:"node"`
	CPUSet string `json:"cpuset,omitempty"`
}

// Reservation names CPUs that no pod may be given.
type Reservation struct {
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	ApplyPolicy  string `json:"applyPolicy,omitempty"`
}

func annotations(in *Input) map[string]string {
	s := in.Snapshot
	allocs, owned := podAllocs(s)
	neverExclusive := s.Reserved.Or(s.System)
	name := in.Kubelet.CPUManagerPolicy
	if name == "" {
		name = "none"
	}
	own, tooLarge := forQuietcore(in)
	values := []struct {
		key   string
		value any
	}{ // the most important first
		{AnnManagerPolicy, ManagerPolicy{Policy: name, Options: in.Kubelet.Options,
			ReservedCPUs: neverExclusive.String()}},
		{AnnSharedPools, sharedPools(s, s.Shared)},
		{AnnBEPools, sharedPools(s, s.BE)},
		{AnnReservation, reservation(s, owned)},
		{AnnWaiting, s.Waiting},
		{ledger.AnnAlive, ledger.EncodeAlive(in.Alive)},
		{ledger.AnnRules, own[ledger.AnnRules]},
		{ledger.AnnMachine, own[ledger.AnnMachine]},
		{ledger.AnnLedger, own[ledger.AnnLedger]},
		{ledger.AnnRefused, ledger.EncodeRefused(in.Refused)},
		{ledger.AnnPairs, ledger.EncodePairs(in.Pairs)},
		{AnnAllocs, allocs},
		{AnnTopology, cpuTopology(s)},
	}
	all, size, omitted := map[string]string{}, 0, tooLarge
	for _, v := range values {
		if v.key == AnnWaiting && len(s.Waiting) == 0 || v.value == "" {
			continue
		}
		text, err := asText(v.value)
		if err != nil || size+len(v.key)+len(text) > maxAnnotations {
			omitted = append(omitted, v.key)
			continue
		}
		all[v.key] = string(text)
		size += len(v.key) + len(text)
	}
	if len(omitted) > 0 {
		text, _ := json.Marshal(omitted) // strings always marshal
		all[AnnOmitted] = string(text)
	}
	return all
}

// forQuietcore is what Quietcore's own scheduler reads, or what would be too large for it.
func forQuietcore(in *Input) (all map[string]string, tooLarge []string) {
	if in.Ledger == nil {
		return nil, []string{}
	}
	all, err := ledger.Encode(in.Snapshot.Topology, in.Ledger, in.Generation)
	if err != nil {
		return nil, []string{ledger.AnnLedger}
	}
	return all, []string{}
}

// asText is a value in JSON; a string is text already.
func asText(value any) ([]byte, error) {
	if text, ok := value.(string); ok {
		return []byte(text), nil
	}
	return json.Marshal(value)
}

// podAllocs lists the pods with CPUs of their own by UID, and the union of those CPUs.
// Koordinator's scheduler counts the CPUs of pods that kubelet pinned as taken, and
// knows the others from its own annotations. A pod that we placed elsewhere counts as
// pinned too, since no annotation names its CPUs.
func podAllocs(s *policy.Snapshot) ([]PodAlloc, cpuset.Set) {
	list := make([]PodAlloc, 0, len(s.Owners))
	var sum cpuset.Set
	var of cpuset.Set
	for i, o := range s.Owners {
		sum.AddSet(&o.CPUs)
		if i > 0 && s.Owners[i-1].PodUID == o.PodUID { // another container of the same pod
			of.AddSet(&o.CPUs)
			list[len(list)-1].CPUSet = of.String()
			continue
		}
		of = o.CPUs
		list = append(list, PodAlloc{Namespace: o.Namespace, Name: o.Pod, UID: o.PodUID, CPUSet: of.String(),
			ManagedByKubelet: o.ByKubelet})
	}
	return list, sum
}

// reservation names CPUs that a scheduler would count as free: siblings kept idle, CPUs
// outside of every pool, and those that kubelet holds for pods that are not known yet.
func reservation(s *policy.Snapshot, owned cpuset.Set) Reservation {
	isolated := s.Topology.Isolated().And(s.Topology.Online())
	unowned := s.Withheld.Or(isolated.Minus(s.Shared).Minus(s.BE).Minus(owned)).Or(s.Exclusive.Minus(owned))
	if unowned.IsEmpty() {
		return Reservation{}
	}
	return Reservation{ReservedCPUs: unowned.String(), ApplyPolicy: "ReservedCPUsOnly"}
}

func sharedPools(s *policy.Snapshot, pool cpuset.Set) []SharedPool {
	list := []SharedPool{}
	for i := range s.Topology.Nodes() {
		n := &s.Topology.Nodes()[i]
		part := n.CPUs.And(pool)
		first, ok := s.Topology.CPU(part.First())
		if !ok {
			continue
		}
		list = append(list, SharedPool{Socket: int32(first.Socket), Node: int32(n.ID), CPUSet: part.String()})
	}
	return list
}

func cpuTopology(s *policy.Snapshot) CPUTopology {
	online := s.Topology.Online()
	var t CPUTopology
	for _, c := range s.Topology.CPUs() {
		if online.Has(c.ID) {
			t.Detail = append(t.Detail, CPUInfo{ID: int32(c.ID), Core: int32(c.Core), Socket: int32(c.Socket),
				Node: int32(c.Node)})
		}
	}
	return t
}
