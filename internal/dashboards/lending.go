package dashboards

func lending() dashboard {
	return dashboard{
		uid: "quietcore-lending", title: "Quietcore / Lending",
		about: "What production uses, what is lent to best effort out of the rest, and how it is taken back. There " +
			"is something to see where reclaim.mode or suppression.mode is not off; in observe mode it is what " +
			"would be.",
		rows: []row{lendingNow(), lendingUse(), lendingAmounts(), lendingBack()},
	}
}

// lent is one amount of quietcore_lending_cpus.
func lent(what string) string { return `sum(quietcore_lending_cpus{@,what="` + what + `"})` }

func lendingNow() row {
	return row{"Now", []panel{
		{
			title: "Production uses", about: "Of all CPUs of the nodes that lend.", runbook: "production-squeezed",
			kind: stat, unit: share, width: 4, colours: from(green, 0.8, yellow, 0.95, orange),
			queries: one(lent("production")+" / "+lent("capacity"), ""),
		},
		{
			title: "Best effort uses", about: "Of all CPUs of the nodes that lend.", runbook: "production-squeezed",
			kind: stat, unit: share, width: 4, queries: one(lent("batch")+" / "+lent("capacity"), ""),
		},
		{
			title: "Offered", about: "CPUs that may be promised to batch pods.", runbook: "lending-overdrawn",
			kind: stat, unit: cpus, width: 4, decimals: digits(1), queries: one(lent("offered"), ""),
		},
		{
			title: "Promised", about: "CPUs that the batch pods which run request.", runbook: "lending-overdrawn",
			kind: stat, unit: cpus, width: 4, decimals: digits(1), queries: one(lent("promised"), ""),
		},
		{
			title: "Promised beyond what exists",
			about: "What batch pods need (idle ones by their use) above what is offered, over the nodes where it is " +
				"so. Where they need more than there is, too, and that lasts for 30 s, evictions follow.",
			runbook: "lending-overdrawn",
			kind:    stat, unit: cpus, width: 4, decimals: digits(1), colours: from(green, 0.1, yellow, 1.0, orange),
			queries: one(
				`sum(clamp_min(quietcore_lending_cpus{@,what="demand"} - ignoring (what) quietcore_lending_cpus{@,`+
					`what="offered"}, 0))`, ""),
		},
		{
			title: "Evictions", about: "Pods that were evicted in the time shown to give lent CPUs back.",
			runbook: "lending-overdrawn",
			kind:    stat, unit: count, width: 4, decimals: digits(0),
			queries: one(`sum(increase(quietcore_lending_evictions_total{@,result="evicted"}[$__range]))`, ""),
		},
	}}
}

func lendingUse() row {
	return row{"Use", []panel{
		{
			title: "CPUs in use, and how many there are",
			about: "outside: what is no pod, such as the system's services. Between the stack and the capacity lies " +
				"what is idle.", runbook: "production-squeezed",
			kind: series, unit: count, width: 16, bounds: atLeast(0),
			queries: []query{{lent("production"), "production"}, {lent("batch"), "best effort"},
				{lent("outside"), "outside of pods"}, {lent("capacity"), "capacity"}},
		},
		{
			title: "Share of time spent waiting for a CPU",
			about: "By class. Production must not wait more because CPUs are lent.", runbook: "production-squeezed",
			kind: series, unit: share, width: 8, bounds: atLeast(0), slow: true,
			colours: lines(from(green, 0.2, orange)), queries: one(waited("class", chosen, "quietcore_cpi_"),
				"{{class}}"),
		},
		{
			title:   "Nodes by use of production",
			about:   "Share of each node's CPUs that production uses; the twenty highest.",
			runbook: "production-squeezed",
			kind:    series, unit: share, width: 12, bounds: atLeast(0),
			colours: lines(from(green, 0.8, yellow, 0.95, orange)),
			queries: one(
				`topk(20, sum by (node) (quietcore_lending_cpus{@,what="production"}) / sum by (node) `+
					`(quietcore_lending_cpus{@,what="capacity"}))`, "{{node}}"),
		},
		{
			title:   "Nodes by use of everybody",
			about:   "Production, best effort and what is no pod, as a share of each node's CPUs; the twenty highest.",
			runbook: "production-squeezed",
			kind:    series, unit: share, width: 12, bounds: atLeast(0), colours: lines(from(green, 0.9, yellow)),
			queries: one(
				`topk(20, sum by (node) (quietcore_lending_cpus{@,what=~"production|batch|outside"}) / sum by `+
					`(node) (quietcore_lending_cpus{@,what="capacity"}))`, "{{node}}"),
		},
	}}
}

func lendingAmounts() row {
	return row{"What is lent", []panel{
		{
			title: "Offered, published, promised, needed",
			about: "published: what the Node says, never less than what bound pods request. needed: what the batch " +
				"pods that run request, idle ones by their use.", runbook: "lending-overdrawn",
			kind: series, unit: count, width: 12, bounds: atLeast(0),
			queries: []query{{lent("offered"), "offered"}, {lent("published"), "published"},
				{lent("promised"), "promised"}, {lent("demand"), "needed"}},
		},
		{
			title: "Supply", about: "CPUs that production leaves. Below 0 production was promised more than there is.",
			runbook: "lending-overdrawn",
			kind:    series, unit: count, width: 12, colours: lines(from(orange, 0.0, green)),
			queries: one(lent("supply"), "supply"),
		},
		{
			title: "Best effort's pool",
			about: "pool: CPUs that best effort may run on now. budget: how many it may use together. withheld: " +
				"what suppression took of the pool, to give production room.", runbook: "lending-overdrawn",
			kind: series, unit: count, width: 12, bounds: atLeast(0),
			queries: []query{{`sum(quietcore_pool_cpus{@,pool="be"})`, "pool"}, {lent("budget"), "budget"},
				{lent("withheld"), "withheld"}},
		},
		{
			title:   "Containers of best effort",
			about:   "That run in its pool, and how many of them are capped for disturbing others.",
			runbook: "cap-overdue",
			kind:    series, unit: count, width: 12, bounds: atLeast(0),
			queries: []query{{`sum(quietcore_pool_containers{@,pool="be"})`, "in the pool"},
				{`sum(quietcore_capped_containers{@})`, "capped"}},
		},
	}}
}

func lendingBack() row {
	return row{"Taking back", []panel{
		{
			title: "Evictions by result",
			about: "evicted; observed: only would have been; blocked: by a disruption budget; limited: by our rate " +
				"or the API server's; ended: the pod was gone before; failed.", runbook: "lending-overdrawn",
			kind: bars, unit: count, width: 8, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (result) (increase(quietcore_lending_evictions_total{@}[$__rate_interval]))`,
				"{{result}}"),
		},
		{
			title: "The Node's status set right",
			about: "Times that somebody else had changed what the Node says of lent CPUs, by what had happened. " +
				"Kubelet zeroes it at its start.", runbook: "degraded",
			kind: bars, unit: count, width: 8, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (cause) (increase(quietcore_lending_repairs_total{@}[$__rate_interval]))`,
				"{{cause}}"),
		},
		{
			title: "Requests to the API server", about: "About the Node's status and evictions, by result.",
			runbook: "degraded",
			kind:    series, unit: perSec, width: 8, bounds: atLeast(0),
			queries: one(
				`sum by (what, result) (rate(quietcore_api_requests_total{@,`+
					`what=~"lending|eviction"}[$__rate_interval]))`, "{{what}}: {{result}}"),
		},
	}}
}
