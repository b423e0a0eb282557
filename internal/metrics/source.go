package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quietcore/quietcore/policy"
)

// Stats is the state of the node in numbers.
type Stats struct {
	Pools []Pool
	// CPUs by state; one CPU can be in several.
	Online, Offline, Isolated, Reserved, Withheld int
	// Unpinned containers ought to run elsewhere than the kernel has them.
	Unpinned int
	Capped   int
	Lending  *Lending // nil: idle CPUs are neither lent nor taken back
}

// Pool in numbers.
type Pool struct {
	Kind       policy.PoolKind
	CPUs       int
	Containers int
}

// Source returns the present state; false while there is none.
type Source func() (Stats, bool)

// FromSnapshot counts what a snapshot of the policy holds. Unpinned is not
// known to the policy: the enforcer sets it.
func FromSnapshot(s *policy.Snapshot) Stats {
	containers := map[policy.PoolKind]int{}
	capped := 0
	for _, c := range s.Containers {
		containers[c.Pool]++
		if c.CapMilli > 0 {
			capped++
		}
	}
	t := s.Topology
	return Stats{
		Pools: []Pool{
			{policy.PoolExclusive, s.Exclusive.Count(), containers[policy.PoolExclusive]},
			{policy.PoolShared, s.Shared.Count(), containers[policy.PoolShared]},
			{policy.PoolBE, s.BE.Count(), containers[policy.PoolBE]},
			{policy.PoolReserved, s.Reserved.Count(), containers[policy.PoolReserved]},
			{policy.PoolSystem, s.System.Count(), containers[policy.PoolSystem]},
			{policy.PoolUnmanaged, t.Online().Count(), containers[policy.PoolUnmanaged]},
		},
		Online: t.Online().Count(), Offline: t.Offline().Count(), Isolated: t.Isolated().Count(),
		Reserved: s.Reserved.Count(), Withheld: s.Withheld.Count(), Capped: capped,
	}
}

// stateCollector asks the source at every scrape.
type stateCollector struct{ source Source }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+"_"+name, help, labels, nil)
}

type stateDescs struct {
	poolCPUs, poolContainers, cpus, unpinned, capped, lending *prometheus.Desc
}

func descs() stateDescs {
	return stateDescs{
		poolCPUs:       desc("pool_cpus", "CPUs of each pool; the best-effort pool overlaps others.", "pool"),
		poolContainers: desc("pool_containers", "Containers that run in each pool.", "pool"),
		cpus:           desc("cpus", "CPUs by state; a CPU can be in several.", "state"),
		unpinned:       desc("unpinned_containers", "Containers that run on other CPUs than decided."),
		capped:         desc("capped_containers", "Containers under a hard cap."),
		lending:        lendingDesc(),
	}
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	d := descs()
	for _, one := range []*prometheus.Desc{d.poolCPUs, d.poolContainers, d.cpus, d.unpinned, d.capped, d.lending} {
		ch <- one
	}
}

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s, ok := c.source()
	if !ok {
		return
	}
	d := descs()
	send := func(desc *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	for _, p := range s.Pools {
		send(d.poolCPUs, p.CPUs, string(p.Kind))
		send(d.poolContainers, p.Containers, string(p.Kind))
	}
	send(d.cpus, s.Online, "online")
	send(d.cpus, s.Offline, "offline")
	send(d.cpus, s.Isolated, "isolated")
	send(d.cpus, s.Reserved, "reserved")
	send(d.cpus, s.Withheld, "withheld")
	send(d.unpinned, s.Unpinned)
	send(d.capped, s.Capped)
	if s.Lending != nil {
		s.Lending.each(func(what string, cpus float64) {
			ch <- prometheus.MustNewConstMetric(d.lending, prometheus.GaugeValue, cpus, what)
		})
	}
}
