package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quietcore/quietcore/policy"
)

// Stats is the node's state in numbers.
type Stats struct {
	Pools []Pool
	// CPUs by state; one CPU can be in several.
	Online, Offline, Isolated, Reserved, Withheld int
	// Connected says that we are registered with the runtime.
	Connected bool
	// Unpinned counts containers whose kernel cpuset differs from the intended one.
	Unpinned int
	// Unannounced counts pods that run here but that no event named.
	Unannounced int
	Capped      int
	// Kept counts pods with a power that they have because they ran before it was taken away.
	Kept int
	// Waiting counts pods that wait for CPUs of their own.
	Waiting int
	// Claims of our own DRA driver that have CPUs, and that lost some.
	Claims, ClaimsLost int
	// Overdue counts caps in force long after their deadline.
	Overdue int
	// SharedFloor is how many CPUs the shared pool keeps.
	SharedFloor int
	// Unsaved is for how long the state file has been behind.
	Unsaved time.Duration
	// Stale is how long ago the NodeResourceTopology was last known to be up to date; 0
	// if it is not published.
	Stale time.Duration
	// RestartRequired counts the changed configuration keys that need a restart.
	RestartRequired int

	Modes Modes
	// Source is who says what the mode is: file, policy, command or annotation. Undoing means that what was enforced
	// before
	// is still being undone.
	Source  string
	Undoing bool
	Lending *Lending // nil: idle CPUs are neither lent nor taken back
}

// Modes are the configured modes of the parts: off, observe or enforce.
type Modes struct{ Mode, CPI, Reclaim, Suppression string }

// overdueAfter is how long after its deadline a cap is undone at worst if all is well:
// the loop runs more often.
const overdueAfter = 30 * time.Second

// Pool in numbers.
type Pool struct {
	Kind       policy.PoolKind
	CPUs       int
	Containers int
}

// Source returns the present state; false if there is none.
type Source func() (Stats, bool)

// FromSnapshot counts what a snapshot of the policy holds. The policy does not know the
// rest of Stats.
func FromSnapshot(s *policy.Snapshot, now time.Time) Stats {
	containers := map[policy.PoolKind]int{}
	capped, overdue := 0, 0
	for _, c := range s.Containers {
		containers[c.Pool]++
		if c.CapMilli > 0 {
			capped++
			if now.Sub(c.CapUntil) > overdueAfter {
				overdue++
			}
		}
	}
	kept := 0
	for _, p := range s.Powers {
		if len(p.Kept) > 0 {
			kept++
		}
	}
	t := s.Topology
	claims, lost := countClaims(s.Claims)
	return Stats{
		Kept: kept, Waiting: len(s.Waiting),
		Claims: claims, ClaimsLost: lost,
		Pools: []Pool{
			{policy.PoolExclusive, s.Exclusive.Count(), containers[policy.PoolExclusive]},
			{policy.PoolShared, s.Shared.Count(), containers[policy.PoolShared]},
			{policy.PoolBE, s.BE.Count(), containers[policy.PoolBE]},
			{policy.PoolReserved, s.Reserved.Count(), containers[policy.PoolReserved]},
			{policy.PoolSystem, s.System.Count(), containers[policy.PoolSystem]},
			{policy.PoolUnmanaged, t.Online().Count(), containers[policy.PoolUnmanaged]},
		},
		Online: t.Online().Count(), Offline: t.Offline().Count(), Isolated: t.Isolated().Count(),
		Unannounced: len(s.Unannounced),
		Reserved:    s.Reserved.Count(), Withheld: s.Withheld.Count(), Capped: capped, Overdue: overdue,
	}
}

func countClaims(list []policy.ClaimView) (have, lost int) {
	for i := range list {
		if slices.ContainsFunc(list[i].Requests, func(r policy.ClaimPart) bool { return r.Lost != "" }) {
			lost++
		}
	}
	return len(list) - lost, lost
}

// stateCollector reads the source at every scrape.
type stateCollector struct{ source Source }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+"_"+name, help, labels, nil)
}

type stateDescs struct {
	unannounced, connected, poolCPUs, poolContainers, cpus, unpinned, capped, overdue, floor *prometheus.Desc
	unsaved, stale, restart, modes, mode, undoing, lending, halted, kept, waiting            *prometheus.Desc
	claims                                                                                   *prometheus.Desc
}

func descs() stateDescs {
	return stateDescs{
		connected: desc("nri_connected", "1 while the runtime has us registered."),
		poolCPUs: desc("pool_cpus",
			"CPUs of each pool. The best-effort pool overlaps others, so a sum means nothing.", "pool"),
		poolContainers: desc("pool_containers", "Containers that run in each pool.", "pool"),
		cpus:           desc("cpus", "CPUs; one can be in several states.", "state"),
		unpinned: desc("unpinned_containers",
			"Containers that run on other CPUs than decided. Above 0 for minutes: look at the log."),
		unannounced: desc("unannounced_pods",
			"Pods that run here and were never announced by the runtime. Above 0: quietcore status names them."),
		capped: desc("capped_containers", "Containers under a hard cap."),
		kept: desc("kept_powers", "Pods with a power that the configuration no longer gives their namespace, "+
			"and that they keep until they are gone: quietcore status -o json names them."),
		waiting: desc("waiting_pods", "Pods that wait for CPUs of their own: degraded ones, and owners of which "+
			"hardware took some. quietcore status -o json names them."),
		claims: desc("claims", "ResourceClaims to which Quietcore's own DRA driver gave CPUs, by what became of these.",
			"state"),
		overdue: desc("caps_overdue", "Hard caps in force whose deadline was 30 seconds ago or longer."),
		floor: desc("shared_pool_floor_cpus",
			"CPUs that the shared pool always keeps (pools.sharedFloor)."),
		unsaved: desc("state_unsaved_seconds",
			"Time for which something has waited to be in the state file. 0: all is."),
		stale: desc("node_resource_topology_stale_seconds",
			"Time since the node's NodeResourceTopology was last known to be up to date. 0: it is, or it is "+
				"not published."),
		restart: desc("config_restart_required",
			"Keys that the configuration file has changed and that wait for a restart: quietcore status names them."),
		modes: desc("config_info", "Always 1. What the configuration lets the parts do now.",
			"mode", "cpi", "reclaim", "suppression"),
		mode: desc("mode_info", "Always 1. The mode in force, and who says so: file, policy (a "+
			"QuietcorePolicy), command (quietcore mode) or annotation (of the Node).", "mode", "source"),
		undoing: desc("mode_undoing",
			"1 while what was enforced before the mode became observe is still being undone."),
		lending: lendingDesc(),
		halted:  haltedDesc(),
	}
}

func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	d := descs()
	for _, one := range []*prometheus.Desc{d.connected, d.poolCPUs, d.poolContainers, d.cpus, d.unpinned,
		d.unannounced, d.capped,
		d.overdue, d.floor, d.unsaved, d.stale, d.restart, d.modes, d.mode, d.undoing, d.lending, d.halted, d.kept,
		d.waiting, d.claims} {
		ch <- one
	}
}

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	s, ok := c.source()
	if !ok {
		return
	}
	d := descs()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	send := func(desc *prometheus.Desc, value int, labels ...string) { gauge(desc, float64(value), labels...) }
	gauge(d.connected, number(s.Connected))
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
	send(d.unannounced, s.Unannounced)
	send(d.capped, s.Capped)
	send(d.overdue, s.Overdue)
	send(d.kept, s.Kept)
	send(d.waiting, s.Waiting)
	send(d.claims, s.Claims, "prepared")
	send(d.claims, s.ClaimsLost, "lost")
	send(d.floor, s.SharedFloor)
	gauge(d.unsaved, s.Unsaved.Seconds())
	gauge(d.stale, s.Stale.Seconds())
	send(d.restart, s.RestartRequired)
	send(d.modes, 1, s.Modes.Mode, s.Modes.CPI, s.Modes.Reclaim, s.Modes.Suppression)
	send(d.mode, 1, s.Modes.Mode, s.Source)
	gauge(d.undoing, number(s.Undoing))
	if s.Lending != nil {
		s.Lending.each(func(what string, cpus float64) { gauge(d.lending, cpus, what) })
		gauge(d.halted, number(s.Lending.Halted))
	}
}
