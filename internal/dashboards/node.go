package dashboards

func node() dashboard {
	return dashboard{
		uid: "quietcore-node", title: "Quietcore / Node",
		about: "Who has which CPUs, who waits, who is refused, what is changed behind our back, and how fast the " +
			"runtime is answered. Choose one node, or several to see them together.",
		rows: []row{nodeHealth(), nodePools(), nodeWaits(), nodeRefusals(), nodeRuntime(), nodeEdges()},
	}
}

func nodeHealth() row {
	yesNo := func(no, yes string) []mappedValue {
		return []mappedValue{{Color: red, Text: no}, {Color: green, Text: yes}}
	}
	return row{"Health", []panel{
		{
			title: "Runtime",
			about: "Whether the runtime has the daemon registered as an NRI plugin; of several nodes, whether it is " +
				"so on all.", runbook: "disconnected",
			kind: stat, unit: ratio, width: 4, queries: one(`min(quietcore_nri_connected{@})`, ""),
			colours: from(red, 1.0, green), texts: texts{values: yesNo("disconnected", "connected")},
		},
		{
			title: "Ready",
			about: "What /readyz says: topology known, registered, and everything that runs taken over. Of several " +
				"nodes, whether all are.", runbook: "disconnected",
			kind: stat, unit: ratio, width: 4, queries: one(`min(quietcore_ready{@})`, ""),
			colours: from(red, 1.0, green), texts: texts{values: yesNo("not ready", "ready")},
		},
		{
			title: "Unpinned containers",
			about: "Containers that the kernel lets run on other CPUs than decided. Above 0 for seconds is usual " +
				"while something changes, for minutes it is not.", runbook: "containers-unpinned",
			kind: stat, unit: count, width: 4, queries: one(`sum(quietcore_unpinned_containers{@})`, ""),
			colours: from(green, 1.0, orange),
		},
		{
			title: "Refusals",
			about: "Pods and containers refused, or degraded in place of it, in the time shown; kubelet tries a " +
				"refused pod again and again, and each time counts.", runbook: "capacity-refusals",
			kind: stat, unit: count, width: 4, queries: one(
				`sum(increase(quietcore_admission_rejections_total{@}[$__range]))`, ""),
			colours: from(green, 1.0, yellow), decimals: digits(0),
		},
		{
			title:   "Drift repaired",
			about:   "Cpusets and quotas found changed by somebody else in the time shown, and repaired.",
			runbook: "drift",
			kind:    stat, unit: count, width: 4,
			queries: one(
				`sum(increase(quietcore_cpuset_drift_total{@}[$__range])) + `+
					`sum(increase(quietcore_quota_drift_total{@}[$__range]))`, ""),
			colours: from(green, 10.0, yellow), decimals: digits(0),
		},
		{
			title:   "State not on disk for",
			about:   "How long the daemon's state has been newer than its file; the worst of the chosen nodes.",
			runbook: "state-not-saved",
			kind:    stat, unit: seconds, width: 4, queries: one(`max(quietcore_state_unsaved_seconds{@})`, ""),
			colours: from(green, 60.0, orange, 300.0, red),
		},
	}}
}

func nodePools() row {
	return row{"Pools", []panel{
		{
			title: "CPUs of each pool",
			about: "The best-effort pool overlaps the shared one and what LSR pods own, and reserved CPUs are in " +
				"both, so the lines do not add up.", runbook: "shared-pool-at-its-floor",
			kind: series, unit: count, width: 12, bounds: atLeast(0),
			queries: one(`sum by (pool) (quietcore_pool_cpus{@,pool!="unmanaged"})`, "{{pool}}"),
		},
		{
			title: "Containers of each pool", about: "Containers that run, by the pool whose CPUs they have.",
			runbook: "containers-unpinned",
			kind:    series, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (pool) (quietcore_pool_containers{@})`, "{{pool}}"),
		},
		{
			title: "Room above the shared pool's floor",
			about: "CPUs that may still be given exclusively before a request is refused for the floor " +
				"(pools.sharedFloor); the least of the chosen nodes.", runbook: "shared-pool-at-its-floor",
			kind: series, unit: count, width: 8, bounds: atLeast(0), colours: lines(from(red, 1.0, yellow, 2.0, green)),
			queries: one(
				`min(quietcore_pool_cpus{@,pool="shared"} - ignoring (pool) quietcore_shared_pool_floor_cpus{@})`,
				"CPUs above the floor"),
		},
		{
			title: "CPUs by state",
			about: "Offline, isolated (isolcpus), reserved and withheld CPUs; withheld are siblings that are kept " +
				"idle for pods with quietcore.dev/smt: isolate. One CPU can be in several states.",
			runbook: "shared-pool-at-its-floor",
			kind:    series, unit: count, width: 8, bounds: atLeast(0),
			queries: one(`sum by (state) (quietcore_cpus{@})`, "{{state}}"),
		},
		{
			title: "Capped containers",
			about: "Containers under a hard cap because they disturbed others, and those among them whose time is " +
				"over.", runbook: "cap-overdue",
			kind: series, unit: count, width: 8, bounds: atLeast(0),
			queries: []query{{`sum(quietcore_capped_containers{@})`, "capped"},
				{`sum(quietcore_caps_overdue{@})`, "overdue"}},
		},
	}}
}

// waited is the share of the time in which something could have run that it waited.
func waited(by, selection, name string) string {
	wait, ran := "rate("+name+"run_queue_wait_seconds_total{"+selection+"}[$__rate_interval])", "rate("+name+
		"on_cpu_seconds_total{"+selection+"}[$__rate_interval])"
	return "sum by (" + by + ") (" + wait + ") / (sum by (" + by + ") (" + wait + ") + sum by (" + by + ") (" + ran +
		"))"
}

func nodeWaits() row {
	return row{"Who waits", []panel{
		{
			title: "Share of time spent waiting for a CPU",
			about: "Of the time in which its threads could have run, what each class spent waiting in a run queue; " +
				"measured in windows of counting (cpi.mode not off, cpi.waits: total).", runbook: "production-squeezed",
			kind: series, unit: share, width: 12, bounds: atLeast(0), slow: true,
			colours: lines(from(green, 0.2, orange)), queries: one(waited("class", chosen, "quietcore_cpi_"),
				"{{class}}"),
		},
		{
			title:   "Containers that wait most",
			about:   "The ten containers with the largest share; only those that cpi.containerSeries has room for.",
			runbook: "production-squeezed",
			kind:    series, unit: share, width: 12, bounds: atLeast(0), slow: true,
			colours: lines(from(green, 0.2, orange)), texts: texts{none: "cpi.containerSeries is 0"},
			queries: one(`topk(10, `+waited("namespace, pod, container", chosen, "quietcore_cpi_container_")+`)`,
				"{{namespace}}/{{pod}}/{{container}}"),
		},
		{
			title: "CPUs in use", about: "By class, in windows of counting.", runbook: "production-squeezed",
			kind: series, unit: count, width: 12, bounds: atLeast(0), slow: true, stacked: true,
			queries: one(
				`sum by (class) (rate(quietcore_cpi_on_cpu_seconds_total{@}[$__rate_interval]) / on (job, node, `+
					`instance) group_left () `+
					`rate(quietcore_cpi_window_seconds_total{@}[$__rate_interval]))`, "{{class}}"),
		},
		{
			title:   "Containers that use most CPU",
			about:   "The ten with the largest use; only those that cpi.containerSeries has room for.",
			runbook: "production-squeezed",
			kind:    series, unit: count, width: 12, bounds: atLeast(0), slow: true,
			texts: texts{none: "cpi.containerSeries is 0"},
			queries: one(
				`topk(10, sum by (namespace, pod, container) `+
					`(rate(quietcore_cpi_container_on_cpu_seconds_total{@}[$__rate_interval]) / `+
					`rate(quietcore_cpi_container_window_seconds_total{@}[$__rate_interval])))`,
				"{{namespace}}/{{pod}}/{{container}}"),
		},
	}}
}

func nodeRefusals() row {
	return row{"Refusals and drift", []panel{
		{
			title:   "Refusals by code",
			about:   "Pods and containers refused, or degraded in place of it; the pod's Events have the sentence.",
			runbook: "capacity-refusals",
			kind:    bars, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (reason) (increase(quietcore_admission_rejections_total{@}[$__rate_interval]))`,
				"{{reason}}"),
		},
		{
			title: "Cpusets found changed, by who did it",
			about: "kernel: CPUs came or went; systemd: a unit's AllowedCPUs was set; runtime: the runtime wrote a " +
				"container's mask; outside: a cgroup above, which is not ours, allows less; other: somebody wrote " +
				"the file.", runbook: "drift",
			kind: bars, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (source) (increase(quietcore_cpuset_drift_total{@}[$__rate_interval]))`, "{{source}}"),
		},
		{
			title: "Writes of cpusets",
			about: "gone: the cgroup vanished first, which is usual when containers end; mismatch: the kernel has " +
				"something else in effect.", runbook: "containers-unpinned",
			kind: series, unit: perSec, width: 12, bounds: atLeast(0),
			queries: one(`sum by (result) (rate(quietcore_cpuset_writes_total{@}[$__rate_interval]))`, "{{result}}"),
		},
		{
			title:   "Quotas found changed, by who did it",
			about:   "CFS quotas of pods that own CPUs, of capped containers, and cpu.idle of best effort.",
			runbook: "drift",
			kind:    bars, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (source) (increase(quietcore_quota_drift_total{@}[$__rate_interval]))`, "{{source}}"),
		},
	}}
}

func nodeRuntime() row {
	return row{"Runtime (NRI)", []panel{
		{
			title: "Time to answer the runtime, p99",
			about: "By event, next to half of the runtime's timeout: there the daemon gives up, and past the whole " +
				"of it the runtime drops the plugin.", runbook: "nri-slow",
			kind: series, unit: seconds, width: 12, bounds: atLeast(0),
			queries: []query{
				{`histogram_quantile(0.99, sum by (le, event) ` +
					`(rate(quietcore_nri_request_duration_seconds_bucket{@}[$__rate_interval])))`, "{{event}}"},
				{`min(quietcore_nri_request_timeout_seconds{@}) / 2`, "half of the timeout"},
			},
			colours: from(green, 0.5, orange, 1.0, red),
		},
		{
			title: "Time to answer the runtime, median", about: "By event.", runbook: "nri-slow",
			kind: series, unit: seconds, width: 12, bounds: atLeast(0), colours: from(green, 0.05, yellow),
			queries: one(
				`histogram_quantile(0.5, sum by (le, event) `+
					`(rate(quietcore_nri_request_duration_seconds_bucket{@}[$__rate_interval])))`, "{{event}}"),
		},
		{
			title: "Events answered",
			about: "refused: the pod broke a rule; error: something of ours failed; deadline: half of the runtime's " +
				"time was over.", runbook: "nri-slow",
			kind: series, unit: perSec, width: 8, bounds: atLeast(0),
			queries: one(`sum by (result) (rate(quietcore_nri_requests_total{@}[$__rate_interval]))`, "{{result}}"),
		},
		{
			title: "Connections", about: "Attempts to register with the runtime, and connections lost.",
			runbook: "disconnected",
			kind:    bars, unit: count, width: 8, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (result) (increase(quietcore_nri_connections_total{@}[$__rate_interval]))`,
				"{{result}}"),
		},
		{
			title: "Last taking over",
			about: "Mean time of taking over everything that runs, after a connection, since the daemon's start; " +
				"the runtime gives one event's time for all of it. And the containers that there were the last time.",
			runbook: "nri-slow",
			kind:    stat, unit: seconds, width: 4, tall: true, colours: from(green, 0.5, yellow, 1.0, orange),
			queries: one(
				`max(quietcore_synchronize_duration_seconds_sum{@} / `+
					`(quietcore_synchronize_duration_seconds_count{@} > 0))`, "mean time"),
		},
		{
			title: "Containers taken over", about: "In the last synchronisation with the runtime.",
			runbook: "disconnected",
			kind:    stat, unit: count, width: 4, tall: true,
			queries: one(`sum(quietcore_synchronize_containers{@})`, "containers"),
		},
	}}
}

func nodeEdges() row {
	return row{"Edges", []panel{
		{
			title: "What does not work",
			about: "What /readyz lists as degraded. Pinning goes on without each of them.", runbook: "degraded",
			kind: states, unit: ratio, width: 12, colours: from(green, 1.0, orange),
			texts: texts{values: []mappedValue{{Color: green, Text: "works, or is off"},
				{Color: orange, Text: "does not work"}}},
			queries: one(`max by (feature) (quietcore_degraded{@})`, "{{feature}}"),
		},
		{
			title: "Requests to the API server that failed", about: "By what they were about. Nothing waits for them.",
			runbook: "degraded",
			kind:    bars, unit: count, width: 12, bounds: atLeast(0), stacked: true,
			queries: one(
				`sum by (what, result) (increase(quietcore_api_requests_total{@,result!="ok"}[$__rate_interval]))`,
				"{{what}}: {{result}}"),
		},
		{
			title:   "NodeResourceTopology behind for",
			about:   "How long the object has not said what is so; 0 while it does, or where it is not written.",
			runbook: "topology-stale",
			kind:    series, unit: seconds, width: 8, bounds: atLeast(0), colours: lines(from(green, 900.0, orange)),
			queries: one(`max(quietcore_node_resource_topology_stale_seconds{@})`, "the worst node"),
		},
		{
			title: "Conversations with systemd", about: "Through which masks of slices and scopes are set.",
			runbook: "degraded",
			kind:    series, unit: perSec, width: 8, bounds: atLeast(0),
			queries: one(`sum by (result) (rate(quietcore_systemd_calls_total{@}[$__rate_interval]))`, "{{result}}"),
		},
		{
			title: "Writes of the state file", about: "While they fail no cap is applied.", runbook: "state-not-saved",
			kind: series, unit: perSec, width: 8, bounds: atLeast(0),
			queries: one(`sum by (result) (rate(quietcore_state_save_total{@}[$__rate_interval]))`, "{{result}}"),
		},
		{
			title: "CPU time of the daemon", about: "Counting in the kernel is not in it: see Interference.",
			runbook: "degraded",
			kind:    series, unit: share, width: 12, bounds: atLeast(0),
			queries: one(
				`rate(process_cpu_seconds_total{@}[$__rate_interval]) and on (job, node, instance) `+
					`quietcore_build_info`, "{{node}}"),
		},
		{
			title: "Memory of the daemon", about: "Resident.", runbook: "degraded",
			kind: series, unit: "bytes", width: 12, bounds: atLeast(0),
			queries: one(`process_resident_memory_bytes{@} and on (job, node, instance) quietcore_build_info`,
				"{{node}}"),
		},
	}}
}
