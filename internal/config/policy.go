package config

import (
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/policy"
)

// Policy is the part of the configuration that decides about CPUs. It shares no
// memory with c.
func (c *Config) Policy() policy.Config {
	a, k := c.Allocation, c.Node.Kubelet
	return policy.Config{
		Degrade:         c.Admission == Degrade,
		Memory:          policy.Memory(c.Memory),
		Reserved:        c.Reserved.CPUs,
		ReservedStrict:  c.Reserved.Strict,
		SharedFloor:     c.Pools.SharedFloor,
		BEFloor:         c.Pools.BEFloor,
		MaskUnannounced: c.Unannounced == MaskFound,
		BEIdle:          c.Suppress.Mode == SwitchEnforce,
		JobLabel:        c.CPI.JobLabel,
		Allocation: policy.Allocation{
			Bind:              cpuallocator.BindPolicy(a.BindPolicy),
			BindRequired:      a.BindRequired,
			Exclusive:         cpuallocator.ExclusivePolicy(a.ExclusivePolicy),
			ExclusiveRequired: a.ExclusiveRequired,
			Strategy:          cpuallocator.NUMAStrategy(a.NUMAStrategy),
			Alignment:         cpuallocator.Alignment(a.Alignment),
			SMT:               cpuallocator.SMT(a.SMT),
			SMTRequired:       a.SMTRequired,
		},
		LiftContainers: c.Quota.LiftContainersOfMultiContainerPods,
		System: policy.System{CPUs: c.System.CPUs, Exclusive: c.System.Exclusive,
			Namespaces: slices.Clone(c.System.Namespaces)},
		Authority: policy.Authority{
			Namespaces:  slices.Clone(c.Authority.Exclusive.Namespaces),
			MaxCPUs:     maps.Clone(c.Authority.Exclusive.MaxCPUs),
			TrustStatus: c.Authority.ResourceStatus == TrustStatus,
			CapExempt:   slices.Clone(c.Authority.CapExemption.Namespaces),
		},
		NodeLabels: maps.Clone(c.Node.Labels),
		Kubelet:    k.Policy(),
	}
}

// Policy is the part of kubelet's configuration that decides about CPUs.
func (k *Kubelet) Policy() policy.Kubelet {
	return policy.Kubelet{
		Static:         k.CPUManagerPolicy == CPUManagerStatic,
		Options:        maps.Clone(k.Options),
		Reserved:       k.ReservedCPUs,
		TopologyPolicy: k.TopologyManagerPolicy.String(),
	}
}
