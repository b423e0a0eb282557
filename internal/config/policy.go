package config

import (
	"maps"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/policy"
)

// Policy is the part of the configuration that decides about CPUs. It shares no
// memory with c.
func (c *Config) Policy() policy.Config {
	a, k := c.Allocation, c.Node.Kubelet
	return policy.Config{
		Degrade:         c.Admission.Mode == Degrade,
		ClaimsCounted:   c.DRA.Mode == DRAOn && c.DRA.NodeAllocatable,
		NoHeal:          c.Admission.Heal == HealOff,
		HealAfter:       time.Duration(c.Admission.HealAfter),
		Memory:          policy.Memory(c.Memory),
		Reserved:        c.Reserved.CPUs,
		ReservedStrict:  c.Reserved.Strict,
		SharedFloor:     c.Pools.SharedFloor,
		BEFloor:         c.Pools.BEFloor,
		MaskUnannounced: c.Unannounced == MaskFound,
		BEIdle:          c.Suppress.Mode == SwitchEnforce && c.Mode != Observe,
		BEGrouped:       c.Kubernetes.BatchSlice == SwitchEnforce && c.Mode != Observe,
		JobLabel:        c.CPI.JobLabel,
		ProtectRequest:  c.protectsRequests(),
		Allocation: policy.Allocation{
			Bind:              cpuallocator.BindPolicy(a.BindPolicy),
			BindRequired:      a.BindRequired,
			Exclusive:         cpuallocator.ExclusivePolicy(a.ExclusivePolicy),
			ExclusiveRequired: a.ExclusiveRequired,
			Strategy:          cpuallocator.NUMAStrategy(a.NUMAStrategy),
			Alignment:         cpuallocator.Alignment(a.Alignment),
			SMT:               cpuallocator.SMT(a.SMT),
			SMTRequired:       a.SMTRequired,
			Compact:           a.Compact.policy(),
		},
		LiftContainers: c.Quota.LiftContainersOfMultiContainerPods,
		System: policy.System{CPUs: c.System.CPUs, Exclusive: c.System.Exclusive,
			Namespaces: slices.Clone(c.System.Namespaces)},
		Authority: policy.Authority{
			Profile:     policy.Profile(c.Authority.Profile),
			Namespaces:  c.Authority.namespaces(),
			MaxCPUs:     maps.Clone(c.Authority.Exclusive.MaxCPUs),
			TrustStatus: c.Authority.ResourceStatus == TrustStatus,
		},
		NodeLabels: maps.Clone(c.Node.Labels),
		Kubelet:    k.Policy(),
	}
}

// protectsRequests says that a cap may quiet containers of every class, down to their
// requests: by its own key, else by the profile.
func (c *Config) protectsRequests() bool {
	strict := c.Authority.Profile == Profile(policy.ProfileStrict)
	return c.CPI.Protect == ProtectRequest || c.CPI.Protect == ProtectDefault && strict
}

// namespaces are those that have each power.
func (a *Authority) namespaces() map[policy.Power][]string {
	all := map[policy.Power][]string{
		policy.PowerExclusive: a.Exclusive.Namespaces, policy.PowerWholeCores: a.WholeCores.Namespaces,
		policy.PowerNUMAExclusive: a.NUMAExclusive.Namespaces, policy.PowerUnmanaged: a.Unmanaged.Namespaces,
		policy.PowerWithoutRequest: a.WithoutRequest.Namespaces, policy.PowerCapExemption: a.CapExemption.Namespaces,
		policy.PowerIsolatedCPUs: a.IsolatedCPUs.Namespaces,
	}
	for power, list := range all {
		all[power] = slices.Clone(list)
	}
	return all
}

func (v Compact) policy() policy.Compact {
	if v == CompactOff {
		return policy.CompactOff
	}
	return policy.Compact(v)
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
