package dashboards

func fleet() dashboard {
	return dashboard{
		uid: "quietcore-fleet", title: "Quietcore / Fleet",
		about: "All nodes at a glance: what fires, where CPUs are owned, who is squeezed, what is lent. A node's " +
			"name leads to its own dashboard. Needs the label node of the targets, which the chart's monitors set, " +
			"and recording.yaml.",
		rows: []row{fleetNow(), fleetNodes(), fleetCPUs(), fleetTrouble(), fleetScheduler()},
	}
}

func fleetNow() row {
	return row{"Now", []panel{
		{
			title: "Daemons", about: "That are scraped, and that are ready.", runbook: "disconnected",
			kind: stat, unit: count, width: 6, queries: []query{{`count(quietcore_build_info{@})`, "scraped"},
				{`sum(quietcore_ready{@})`, "ready"}},
		},
		{
			title: "CPUs owned exclusively", about: "Of all that are online.", runbook: "shared-pool-at-its-floor",
			kind: stat, unit: share, width: 6, bounds: between(0, 1),
			queries: one(`sum(quietcore_pool_cpus{@,pool="exclusive"}) / sum(quietcore_cpus{@,state="online"})`, ""),
		},
		{
			title: "CPUs published for lending", about: "What the Nodes say.", runbook: "lending-overdrawn",
			kind: stat, unit: cpus, width: 6, decimals: digits(1), texts: texts{none: "lending is off"},
			queries: one(lent("published"), ""),
		},
		{
			title: "Unpinned containers", about: "That run on other CPUs than decided, on all nodes.",
			runbook: "containers-unpinned",
			kind:    stat, unit: count, width: 6, colours: from(green, 1.0, orange),
			queries: one(`sum(quietcore_unpinned_containers{@})`, ""),
		},
		{
			title: "Alerts", about: "Of the chart's rules, pending or firing.", runbook: "alerts",
			kind: table, unit: count, width: 12, texts: texts{none: "none"},
			queries: one(`ALERTS{alertname=~"Quietcore.*",node=~"$node"}`, ""),
			columns: map[string]column{
				"alertname": {name: "Alert", order: 0}, "node": {name: "Node", order: 1, link: nodeLink("Node")},
				"severity": {name: "Severity", order: 2}, "alertstate": {name: "State", order: 3},
				"reason": {name: "Reason", order: 4}, "source": {name: "Source", order: 5},
				"feature": {name: "Feature", order: 6},
				"Value":   {hide: true}, "__name__": {hide: true}, "instance": {hide: true}, "job": {hide: true},
				"pod": {hide: true}, "endpoint": {hide: true}, "container": {hide: true}, "namespace": {hide: true},
				"prometheus": {hide: true},
			},
		},
		{
			title:   "How the nodes are configured",
			about:   "Nodes by mode, cpi.mode, reclaim.mode and suppression.mode, and by version.",
			runbook: "reload-failed",
			kind:    table, unit: count, width: 12,
			queries: one(
				`count by (mode, cpi, reclaim, suppression, version) (quietcore_config_info{@} * on (job, node, `+
					`instance) group_left (version) quietcore_build_info{@})`, ""),
			columns: map[string]column{
				"mode": {name: "mode", order: 0}, "cpi": {name: "cpi", order: 1},
				"reclaim": {name: "reclaim", order: 2}, "suppression": {name: "suppression", order: 3},
				"version": {name: "Version", order: 4}, "Value": {name: "Nodes", order: 5},
			},
		},
	}}
}

// nodeLink leads from a name in a table to the node's own dashboard.
func nodeLink(field string) string {
	return "/d/quietcore-node?${__url_time_range}&${datasource:queryparam}&var-node=${__data.fields." + field + "}"
}

func fleetNodes() row {
	by := func(how, expr string) query { return query{expr: how + " by (node) (" + expr + ")"} }
	return row{"Nodes", []panel{{
		title: "Nodes", about: "One line a node; refusals and drift are of the last hour.", runbook: "alerts",
		kind: table, unit: count, width: 24,
		queries: []query{
			by("min", `quietcore_ready{@}`),
			by("sum", `quietcore_pool_cpus{@,pool="exclusive"}`),
			by("sum", `quietcore_pool_cpus{@,pool="shared"}`),
			by("sum", `quietcore_pool_containers{@}`),
			by("sum", `quietcore_unpinned_containers{@}`),
			by("sum", `quietcore:admission_rejections:increase1h{@}`),
			by("sum", `quietcore:drift:increase1h{@}`),
			by("max", `quietcore:nri_request_duration_seconds:p99_rate5m{@}`),
			by("max", `quietcore:run_queue_wait:ratio_rate15m{@,class="production"}`),
			by("sum", `quietcore_capped_containers{@}`),
			by("sum", `quietcore_lending_cpus{@,what="published"}`),
			by("sum", `quietcore_degraded{@}`),
		},
		columns: map[string]column{
			"node":     {name: "Node", order: 0, link: nodeLink("Node")},
			"Value #A": {name: "Ready", order: 1, unit: "bool_yes_no", colours: from(red, 1.0, green)},
			"Value #B": {name: "Exclusive CPUs", order: 2, unit: "none"},
			"Value #C": {name: "Shared CPUs", order: 3, unit: "none"},
			"Value #D": {name: "Containers", order: 4, unit: "none"},
			"Value #E": {name: "Unpinned", order: 5, unit: "none", colours: from(green, 1.0, orange)},
			"Value #F": {name: "Refusals", order: 6, unit: "short", whole: true, colours: from(green, 1.0, yellow)},
			"Value #G": {name: "Drift", order: 7, unit: "short", whole: true, colours: from(green, 10.0, yellow)},
			"Value #H": {name: "NRI p99", order: 8, unit: "s", colours: from(green, 0.5, orange)},
			"Value #I": {name: "Production waits", order: 9, unit: "percentunit", colours: from(green, 0.2, orange)},
			"Value #J": {name: "Capped", order: 10, unit: "none"},
			"Value #K": {name: "Lent CPUs", order: 11, unit: "none"},
			"Value #L": {name: "Degraded", order: 12, unit: "none", colours: from(green, 1.0, yellow)},
		},
	}}}
}

func fleetCPUs() row {
	return row{"CPUs", []panel{
		{
			title: "CPUs of each pool", about: "Of all nodes. The best-effort pool overlaps the others.",
			runbook: "shared-pool-at-its-floor",
			kind:    series, unit: count, width: 12, bounds: atLeast(0),
			queries: one(`sum by (pool) (quietcore_pool_cpus{@,pool!="unmanaged"})`, "{{pool}}"),
		},
		{
			title: "Nodes with the least room above the shared pool's floor",
			about: "CPUs that may still be given exclusively; the ten nodes with the fewest. There requests are " +
				"refused next.", runbook: "shared-pool-at-its-floor",
			kind: series, unit: count, width: 12, bounds: atLeast(0),
			colours: lines(from(red, 1.0, yellow, 2.0, green)),
			queries: one(
				`bottomk(10, sum by (node) (quietcore_pool_cpus{@,pool="shared"}) - sum by (node) `+
					`(quietcore_shared_pool_floor_cpus{@}))`, "{{node}}"),
		},
		{
			title: "CPUs lent, by node", about: "What the Nodes say; the twenty with most.",
			runbook: "lending-overdrawn",
			kind:    series, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			texts:   texts{none: "lending is off"},
			queries: one(`topk(20, sum by (node) (quietcore_lending_cpus{@,what="published"}))`, "{{node}}"),
		},
		{
			title: "Nodes whose production waits most",
			about: "Share of the time in which production could have run that it waited for a CPU, over 15 minutes; " +
				"the ten highest.", runbook: "production-squeezed",
			kind: series, unit: share, width: 12, bounds: atLeast(0), colours: lines(from(green, 0.2, orange)),
			queries: one(`topk(10, max by (node) (quietcore:run_queue_wait:ratio_rate15m{@,class="production"}))`,
				"{{node}}"),
		},
	}}
}

func fleetTrouble() row {
	return row{"Trouble", []panel{
		{
			title: "Slowest nodes to answer the runtime",
			about: "p99 of all events over five minutes; the ten highest.", runbook: "nri-slow",
			kind: series, unit: seconds, width: 8, bounds: atLeast(0), colours: lines(from(green, 0.5, orange)),
			queries: one(`topk(10, max by (node) (quietcore:nri_request_duration_seconds:p99_rate5m{@}))`, "{{node}}"),
		},
		{
			title: "Refusals by code", about: "Of all nodes, in an hour.", runbook: "capacity-refusals",
			kind: series, unit: count, width: 8, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (reason) (quietcore:admission_rejections:increase1h{@})`, "{{reason}}"),
		},
		{
			title:   "Drift by node",
			about:   "Cpusets and quotas found changed and repaired, in an hour; the ten nodes with most.",
			runbook: "drift",
			kind:    series, unit: count, width: 8, bounds: atLeast(0), stacked: true,
			queries: one(`topk(10, sum by (node) (quietcore:drift:increase1h{@}))`, "{{node}}"),
		},
		{
			title: "What does not work, and on how many nodes",
			about: "What /readyz lists as degraded. Pinning goes on without each of them.", runbook: "degraded",
			kind: series, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (feature) (quietcore_degraded{@})`, "{{feature}}"),
		},
		{
			title:   "Antagonists found, by node",
			about:   "Searches that ended with somebody to blame, in an hour; the ten nodes with most.",
			runbook: "incidents",
			kind:    series, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(`topk(10, sum by (node) (quietcore:cpi_antagonists:increase1h{@}))`, "{{node}}"),
		},
	}}
}

// fleetScheduler is of quietcore-scheduler, a scrape job of its own on any node: what it has in
// common with the cluster's other schedulers is told apart by what only it has.
func fleetScheduler() row {
	const (
		ours = ` and on (job, instance) quietcore_scheduler_refusals_total{node=~"$node"}`
		none = "no quietcore-scheduler is scraped"
	)
	return row{"Scheduler", []panel{
		{
			title: "Pods that wait for a node", about: "By queue: active is next, backoff tries again soon, " +
				"unschedulable waits until something makes room, gated until it is let.", runbook: "scheduler-absent",
			kind: series, unit: count, width: 8, bounds: atLeast(0), stacked: true, texts: texts{none: none},
			queries: one(`sum by (queue) (scheduler_pending_pods`+ours+`)`, "{{queue}}"),
		},
		{
			title: "Attempts to place a pod", about: "Of all profiles, by what came of them.",
			runbook: "scheduler-absent",
			kind:    series, unit: perSec, width: 8, bounds: atLeast(0), stacked: true, texts: texts{none: none},
			queries: one(`sum by (result) (rate(scheduler_schedule_attempts_total[$__rate_interval])`+ours+`)`,
				"{{result}}"),
		},
		{
			title: "Pods that their node refused all the same",
			about: "In an hour. behind: the node's ledger had changed by then; same: the two do not agree; unknown: " +
				"another scheduler's pods.", runbook: "scheduler-refused",
			kind: series, unit: count, width: 8, bounds: atLeast(0), stacked: true, texts: texts{none: none},
			queries: one(`sum by (ledger) (increase(quietcore_scheduler_refusals_total{node=~"$node"}[1h]))`,
				"{{ledger}}"),
		},
	}}
}
