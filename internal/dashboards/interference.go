package dashboards

func interference() dashboard {
	return dashboard{
		uid: "quietcore-interference", title: "Quietcore / Interference", workload: true,
		about: "How many cycles programs need for an instruction, against what is normal for them; who disturbed " +
			"whom, what was done about it, and whether it helped.",
		rows: []row{interferenceNow(), interferenceCPI(), interferenceIncidents(), interferenceTests(),
			interferenceCaps(), interferenceCounting()},
	}
}

func interferenceNow() row {
	ranged := func(metric string) string { return `sum(increase(` + metric + `{@}[$__range]))` }
	return row{"In the time shown", []panel{
		{
			title: "Counting", about: "Nodes on which CPU performance is counted, and how many there are.",
			runbook: "counters-lost",
			kind:    stat, unit: count, width: 4, queries: []query{{`sum(quietcore_cpi_counting{@})`, "counting"},
				{`count(quietcore_cpi_counting{@})`, "nodes"}},
		},
		{
			title: "Outliers", about: "Samples above the threshold of their job.", runbook: "incidents",
			kind: stat, unit: count, width: 4, decimals: digits(0),
			queries: one(ranged("quietcore_cpi_outliers_total"), ""),
		},
		{
			title: "Victims", about: "Times that a container had one outlier too many in its window: it suffers.",
			runbook: "incidents",
			kind:    stat, unit: count, width: 4, decimals: digits(0), colours: from(green, 1.0, yellow),
			queries: one(ranged("quietcore_cpi_anomalies_total"), ""),
		},
		{
			title:   "Antagonists found",
			about:   "Searches that ended with somebody to blame, whether anything was done or not.",
			runbook: "incidents",
			kind:    stat, unit: count, width: 4, decimals: digits(0),
			queries: one(`sum(increase(quietcore_cpi_analyses_total{@,verdict!="none"}[$__range]))`, ""),
		},
		{
			title: "Capped now", about: "Containers under a hard cap.", runbook: "cap-overdue",
			kind: stat, unit: count, width: 4, queries: one(`sum(quietcore_capped_containers{@})`, ""),
		},
		{
			title:   "Caps and moves that helped",
			about:   "Of those whose effect could be told: success or partial, against failure and harm.",
			runbook: "caps-do-not-help",
			kind:    stat, unit: share, width: 4, colours: from(red, 0.5, yellow, 0.8, green), bounds: between(0, 1),
			texts: texts{none: "none yet"},
			queries: one(
				`sum(increase(quietcore_cpi_outcomes_total{@,result=~"success|partial"}[$__range])) / `+
					`(sum(increase(quietcore_cpi_outcomes_total{@,`+
					`result=~"success|partial|failure|harm"}[$__range])) > 0)`, ""),
		},
	}}
}

func interferenceCPI() row {
	const normal = `quietcore:job_cpi_spec:mean{workload=~"$workload",band="all"}`
	job := func(sum, by string) string {
		return `sum by (` + by + `) (rate(quietcore_job_cpi_` + sum + `{@,workload=~"$workload"}[$__rate_interval]))`
	}
	mean := job("sum", "workload, platform") + ` / (` + job("count", "workload, platform") + ` > 0)`
	return row{"Cycles per instruction", []panel{
		{
			title: "CPI of jobs, as a multiple of what is normal",
			about: "The mean of the samples that show what is normal, by the cluster's mean of eight days: those of " +
				"victims in an anomaly and of capped containers are left out. Needs cpi.jobSeries and the rules of " +
				"cpi-specs.yaml.", runbook: "incidents",
			kind: series, unit: ratio, width: 12, decimals: digits(2), slow: true,
			colours: lines(from(green, 1.3, orange)),
			texts:   texts{none: "cpi.jobSeries is 0, or cpi-specs.yaml is not loaded"},
			queries: one(`topk(15, `+mean+` / on (workload, platform) `+normal+`)`, "{{workload}} on {{platform}}"),
		},
		{
			title:   "CPI of jobs, and what is normal",
			about:   "The same in cycles per instruction, next to the cluster's specs. Choose a workload above.",
			runbook: "incidents",
			kind:    series, unit: ratio, width: 12, decimals: digits(2), bounds: atLeast(0), slow: true,
			texts: texts{none: "cpi.jobSeries is 0, or cpi-specs.yaml is not loaded"},
			queries: []query{{`topk(10, ` + mean + `)`, "{{workload}}"},
				{`topk(10, ` + normal + `)`, "{{workload}}: normal"}},
		},
		{
			title:   "CPI by class",
			about:   "Cycles by instructions of everything that was counted. Reference cycles where the PMU has them.",
			runbook: "incidents",
			kind:    series, unit: ratio, width: 12, decimals: digits(2), bounds: atLeast(0), slow: true,
			queries: one(
				`sum by (class) (rate(quietcore_cpi_cycles_total{@}[$__rate_interval])) / sum by (class) `+
					`(rate(quietcore_cpi_instructions_total{@}[$__rate_interval]))`, "{{class}}"),
		},
		{
			title:   "Containers with the highest CPI",
			about:   "The ten highest, samples of victims included; only those that cpi.containerSeries has room for.",
			runbook: "incidents",
			kind:    series, unit: ratio, width: 12, decimals: digits(2), bounds: atLeast(0), slow: true,
			texts: texts{none: "cpi.containerSeries is 0"},
			queries: one(
				`topk(10, sum by (namespace, pod, container) `+
					`(rate(quietcore_cpi_container_cycles_total{@}[$__rate_interval])) / (sum by (namespace, pod, `+
					`container) (rate(quietcore_cpi_container_instructions_total{@}[$__rate_interval])) > `+
					`0))`, "{{namespace}}/{{pod}}/{{container}}"),
		},
		{
			title: "How the CPIs of the chosen workloads are spread",
			about: "Samples in each bucket of CPI. A second band above the first is another load, or somebody who " +
				"disturbs often.", runbook: "incidents",
			kind: heat, unit: count, width: 12, slow: true, texts: texts{none: "cpi.jobSeries is 0"},
			queries: one(`sum by (le) (increase(quietcore_job_cpi_bucket{@,workload=~"$workload"}[$__rate_interval]))`,
				"{{le}}"),
		},
		{
			title: "LLC misses per thousand instructions", about: "By class.", runbook: "incidents",
			kind: series, unit: ratio, width: 12, decimals: digits(2), bounds: atLeast(0), slow: true,
			queries: one(
				`1000 * sum by (class) (rate(quietcore_cpi_llc_misses_total{@}[$__rate_interval])) / sum by (class) `+
					`(rate(quietcore_cpi_instructions_total{@}[$__rate_interval]))`, "{{class}}"),
		},
	}}
}

func interferenceIncidents() row {
	return row{"Incidents", []panel{
		{
			title: "Outliers and victims",
			about: "Samples above their job's threshold, and how often that was one too many.", runbook: "incidents",
			kind: bars, unit: count, width: 8, bounds: atLeast(0), slow: true,
			queries: []query{{`sum(increase(quietcore_cpi_outliers_total{@}[$__rate_interval]))`, "outliers"},
				{`sum(increase(quietcore_cpi_anomalies_total{@}[$__rate_interval]))`, "victims"}},
		},
		{
			title: "Searches for an antagonist",
			about: "By what follows: none, nobody is to blame beyond doubt; observe, somebody is and nothing is " +
				"done; cap; pool-move, best effort leaves the victim's cache.", runbook: "incidents",
			kind: bars, unit: count, width: 8, bounds: atLeast(0), slow: true, stacked: true,
			queries: one(`sum by (verdict) (increase(quietcore_cpi_analyses_total{@}[$__rate_interval]))`,
				"{{verdict}}"),
		},
		{
			title: "Who disturbed whom most",
			about: "Searches that blamed one job for what another suffered, in the time shown. The twenty most " +
				"frequent pairs of each node; all others are other.", runbook: "incidents",
			kind: table, unit: count, width: 8, texts: texts{none: "nobody was blamed"},
			queries: one(
				`sort_desc(topk(20, sum by (victim, antagonist) `+
					`(increase(quietcore_cpi_blamed_total{@}[$__range]))) > 0)`, ""),
			columns: map[string]column{"victim": {name: "Victim", order: 0},
				"antagonist": {name: "Antagonist", order: 1},
				"Value":      {name: "Times", unit: "none", whole: true, order: 2}},
		},
	}}
}

func interferenceTests() row {
	without := texts{none: "only with cpi.detector: default"}
	well := func(stage string) []query {
		windows := func(result string) string {
			return `sum by (suspect) (increase(quietcore_cpi_test_windows_total{@,stage="` + stage + `"` + result +
				`}[6h]))`
		}
		return one(windows(`,result="well"`)+" / ("+windows("")+" > 0)", "{{suspect}}")
	}
	return row{"Tests", []panel{
		{
			title:   "Tests and verdicts",
			about:   "Tests of a suspect that began, and those that found that throttling it helps the victim.",
			runbook: "probes-find-nobody",
			kind:    bars, unit: count, width: 6, bounds: atLeast(0), slow: true, texts: without,
			queries: []query{{`sum(increase(quietcore_cpi_tests_total{@}[$__rate_interval]))`, "tests"},
				{`sum(increase(quietcore_cpi_verdicts_total{@}[$__rate_interval]))`, "verdicts"}},
		},
		{
			title: "What tests take from best effort",
			about: "Minutes an hour that were charged to cpi.probe.budget (5 by default, for each namespace that has " +
				"victims), by node.",
			runbook: "probes-find-nobody",
			kind:    series, unit: count, width: 6, decimals: digits(1), bounds: atLeast(0), slow: true, stacked: true,
			texts:   without,
			queries: one(`60 * sum by (node) (rate(quietcore_cpi_probe_seconds_total{@}[1h]))`, "{{node}}"),
		},
		{
			title: "Victims that are well beside a busy suspect",
			about: "Share of the windows of tests in six hours, by its coin. As many while it was throttled " +
				"as while it was left alone (the placebo): the coins do not matter, and nobody tested is guilty.",
			runbook: "probes-find-nobody",
			kind:    series, unit: share, width: 6, bounds: between(0, 1), slow: true, texts: without,
			queries: well("test"),
		},
		{
			title: "Relief by verdicts",
			about: "Share of the windows after a verdict, in six hours, in which the victim was well, by the coin: " +
				"how far throttled lies above left-alone is what the caps are good for.",
			runbook: "caps-do-not-help",
			kind:    series, unit: share, width: 6, bounds: between(0, 1), slow: true, texts: without,
			queries: well("verdict"),
		},
	}}
}

func interferenceCaps() row {
	return row{"Caps and their effect", []panel{
		{
			title: "Capped containers", about: "By node.", runbook: "cap-overdue",
			kind: series, unit: count, width: 8, bounds: atLeast(0), stacked: true,
			queries: one(`sum by (node) (quietcore_capped_containers{@})`, "{{node}}"),
		},
		{
			title: "What caps and moves did for the victim",
			about: "success: back to normal; partial: better; failure: no better; harm: worse; unknown: one of the " +
				"two was gone; refused: not carried out.", runbook: "caps-do-not-help",
			kind: bars, unit: count, width: 8, bounds: atLeast(0), slow: true, stacked: true,
			queries: one(`sum by (result) (increase(quietcore_cpi_outcomes_total{@}[$__rate_interval]))`, "{{result}}"),
		},
		{
			title:   "Share of time spent waiting for a CPU",
			about:   "By class: a cap keeps best effort off CPUs, which production must not feel.",
			runbook: "production-squeezed",
			kind:    series, unit: share, width: 8, bounds: atLeast(0), slow: true,
			colours: lines(from(green, 0.2, orange)), queries: one(waited("class", chosen, "quietcore_cpi_"),
				"{{class}}"),
		},
	}}
}

func interferenceCounting() row {
	return row{"Counting", []panel{
		{
			title: "Share of the time that events were really counted",
			about: "Of the last window, the lowest of all events and nodes. Below 1 somebody else " +
				"uses the counters too, and samples weigh less.", runbook: "counters-shared",
			kind: series, unit: share, width: 8, bounds: between(0, 1), colours: lines(from(red, 0.9, green)),
			queries: one(`min(quietcore_cpi_running_ratio{@})`, "the lowest"),
		},
		{
			title: "Samples dropped", about: "Or their CPI, by reason; docs/cpi.md says what each means.",
			runbook: "counters-shared",
			kind:    bars, unit: count, width: 8, bounds: atLeast(0), slow: true, stacked: true,
			queries: one(`sum by (reason) (increase(quietcore_cpi_samples_dropped_total{@}[$__rate_interval])) > 0`,
				"{{reason}}"), texts: texts{none: "none"},
		},
		{
			title:   "What counting costs",
			about:   "CPU time in the kernel, as a share of one CPU, the mean of the chosen nodes.",
			runbook: "counters-shared",
			kind:    series, unit: share, width: 8, bounds: atLeast(0), slow: true, colours: from(green, 0.05, yellow),
			queries: one(`avg(rate(quietcore_cpi_overhead_seconds_total{@}[$__rate_interval]))`, "of a CPU"),
		},
		{
			title: "Containers", about: "That are counted, and that are not, being more than cpi.maxContainers.",
			runbook: "counters-lost",
			kind:    series, unit: count, width: 8, bounds: atLeast(0),
			queries: one(`sum by (state) (quietcore_cpi_containers{@})`, "{{state}}"),
		},
		{
			title: "Jobs that are judged",
			about: "By where it comes from what is normal for them: the node alone, or the cluster too. Others lack " +
				"containers (tasks) or samples.",
			runbook: "incidents",
			kind:    series, unit: count, width: 8, bounds: atLeast(0),
			queries: []query{
				{`sum by (spec) (quietcore_cpi_jobs{@})`, "{{spec}}"},
				{`sum by (lack) (quietcore_cpi_jobs_not_judged{@})`, "not judged: {{lack}}"},
			},
		},
		{
			title: "Age of the cluster's specs",
			about: "Since Prometheus last gave them; the worst node. There only where cpi.specs.prometheus.url is " +
				"set.", runbook: "degraded",
			kind: series, unit: seconds, width: 8, bounds: atLeast(0), colours: lines(from(green, 3600.0, orange)),
			texts:   texts{none: "cpi.specs.prometheus.url is not set"},
			queries: one(`max(quietcore_cpi_cluster_specs_age_seconds{@})`, "age"),
		},
	}}
}
