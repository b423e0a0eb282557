package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/internal/printable"
)

// Detection is the detector's state at a scrape.
type Detection struct {
	Outliers, Anomalies uint64
	Jobs                []detect.JobInfo
	Tests               *experiment.Counters // nil: the detector makes none
}

// ClusterSpecs is the state of reading the cluster's specs.
type ClusterSpecs struct {
	Queries map[string]uint64 // by result: the words of clusterResults
	Refused uint64            // specs that could not be believed
	InUse   int
	Age     float64 // seconds since they were read; +Inf: never
}

func verdictValues() []string {
	return []string{string(detect.None), string(detect.Observe), string(detect.Test), string(detect.Cap),
		string(detect.Move)}
}

// outcomeValues condense those of the detector: unknown includes gone.
func outcomeValues() []string {
	return []string{string(detect.Success), string(detect.Partial), string(detect.Failure), string(detect.Harm),
		string(detect.Unknown), string(detect.Refused)}
}

func clusterResults() []string { return []string{"ok", "error", "timeout"} }

// detectionCollector counts what the detector found, and reads the rest at a scrape.
type detectionCollector struct {
	mu       sync.Mutex // guards what follows
	source   func() Detection
	cluster  func() ClusterSpecs
	verdicts map[string]uint64
	outcomes map[string]uint64
	pairs    jobPairs
	blamed   bool // some job was blamed: before that there is no series of pairs
}

func newDetectionCollector() *detectionCollector {
	return &detectionCollector{source: func() Detection {
		return Detection{}
	}, verdicts: map[string]uint64{}, outcomes: map[string]uint64{}}
}

// CPIDetector registers the source of Detection.
func (m *Metrics) CPIDetector(source func() Detection) {
	c := m.detection
	c.mu.Lock()
	defer c.mu.Unlock()
	c.source = source
}

// CPIClusterSpecs registers the source of ClusterSpecs; its series exist from then on.
func (m *Metrics) CPIClusterSpecs(source func() ClusterSpecs) {
	c := m.detection
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster = source
}

// CPIVerdict counts an analysis.
func (m *Metrics) CPIVerdict(kind detect.VerdictKind) {
	c := m.detection
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(verdictValues(), string(kind)) {
		c.verdicts[string(kind)]++
	}
}

// CPIBlamed counts an analysis that blamed one job for disturbing another.
func (m *Metrics) CPIBlamed(victim, antagonist string) {
	c := m.detection
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blamed = true
	c.pairs.add(workload(victim), workload(antagonist), 1)
}

// CPIOutcome counts the outcome of a cap or a move.
func (m *Metrics) CPIOutcome(result detect.Result) {
	c := m.detection
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(outcomeValues(), string(result)) {
		result = detect.Unknown
	}
	c.outcomes[string(result)]++
}

type testDescs struct{ begun, verdicts, moves, idles, narrows, harm, windows *prometheus.Desc }

func newTestDescs() testDescs {
	return testDescs{
		begun: desc("cpi_tests_total", "Tests of a suspect that began. Only with cpi.detector: default."),
		verdicts: desc("cpi_verdicts_total",
			"Tests that found that throttling the suspect helps the victim. Only with cpi.detector: default."),
		moves: desc("cpi_moves_total",
			"Verdicts that moved the suspect off the CPUs around the victim, in place of a quota. failed: those that "+
				"another step has followed. Only with cpi.detector: default.", "result"),
		idles: desc("cpi_idles_total",
			"Verdicts that let the suspect run only on otherwise idle CPUs (cpu.idle), in place of a quota. failed: "+
				"those that another step has followed. Only with cpi.detector: default.", "result"),
		narrows: desc("cpi_bandwidth_limits_total",
			"Verdicts that gave the suspect the least memory bandwidth (resctrl), in place of a quota. failed: those "+
				"that a quota has followed. Only with cpi.detector: default.", "result"),
		harm: desc("cpi_probe_seconds_total",
			"Time that tests were charged for, of cpi.probe.budget: throttled windows of a busy suspect, for less the "+
				"surer it is. Only with cpi.detector: default."),
		windows: desc("cpi_test_windows_total",
			"Windows of a busy suspect, by what its coin said and how the victim was. stage: a test, or what follows "+
				"a verdict. In tests where nobody is guilty victims are well in as large a share of both. Only with "+
				"cpi.detector: default.", "stage", "suspect", "result"),
	}
}

func (d *testDescs) collect(send sendFunc, c *experiment.Counters) {
	send(d.begun, prometheus.CounterValue, float64(c.Tests))
	send(d.verdicts, prometheus.CounterValue, float64(c.Verdicts))
	for desc, n := range map[*prometheus.Desc]experiment.Tally{d.moves: c.Steps[experiment.ByMove],
		d.idles: c.Steps[experiment.ByIdling], d.narrows: c.Steps[experiment.ByBandwidth]} {
		send(desc, prometheus.CounterValue, float64(n.Begun), "begun")
		send(desc, prometheus.CounterValue, float64(n.Failed), "failed")
	}
	send(d.harm, prometheus.CounterValue, 60*c.Harm)
	for _, stage := range []struct {
		name string
		of   *experiment.Windows
	}{{"test", &c.Tested}, {"verdict", &c.Capped}} {
		for arm, suspect := range []string{"left-alone", "throttled"} {
			all, well := stage.of.All[arm], stage.of.Well[arm]
			send(d.windows, prometheus.CounterValue, float64(well), stage.name, suspect, "well")
			send(d.windows, prometheus.CounterValue, float64(all-well), stage.name, suspect, "disturbed")
		}
	}
}

type detectionDescs struct {
	outliers, anomalies, analyses, outcomes, jobs, unjudged, blamed, queries, refused, specs, age *prometheus.Desc
}

func newDetectionDescs() detectionDescs {
	return detectionDescs{
		outliers: desc("cpi_outliers_total", "Samples above the threshold of their job."),
		anomalies: desc("cpi_anomalies_total",
			"Outliers that were one too many in their window: the container suffers."),
		analyses: desc("cpi_analyses_total", "Searches for who is to blame, by what follows.", "verdict"),
		outcomes: desc("cpi_outcomes_total",
			"Caps and moves of the best-effort pool, by what they did for the victim. unknown: one of the two was "+
				"gone, or had too few samples. refused: not carried out. Those in force: quietcore_capped_containers.",
			"result"),
		jobs: desc("cpi_jobs",
			"Jobs that are judged, by where it comes from what is normal for them: this node alone, or the cluster "+
				"too.", "spec"),
		unjudged: desc("cpi_jobs_not_judged",
			"Jobs with containers that are not judged, by what they lack. tasks: containers (cpi.minTasks), unless "+
				"the cluster knows what is normal. samples: enough of them (cpi.minTaskSamples) in so many containers.",
			"lack"),
		blamed: desc("cpi_blamed_total",
			"Analyses that blamed one job for what another suffered. The twenty most frequent pairs; all others are "+
				"other, other.", "victim", "antagonist"),
		queries: desc("cpi_cluster_queries_total",
			"Times that Prometheus was asked for specs. Only with cpi.specs.prometheus.url.", "result"),
		refused: desc("cpi_cluster_specs_refused_total",
			"Specs of Prometheus that could not be believed. Only with cpi.specs.prometheus.url."),
		specs: desc("cpi_cluster_specs",
			"Specs that Prometheus gave the last time and that were believed. Only with cpi.specs.prometheus.url."),
		age: desc("cpi_cluster_specs_age_seconds",
			"Time since Prometheus last gave specs; +Inf before the first time. Only with cpi.specs.prometheus.url."),
	}
}

func (c *detectionCollector) Describe(ch chan<- *prometheus.Desc) {
	d := newDetectionDescs()
	for _, one := range []*prometheus.Desc{d.outliers, d.anomalies, d.analyses, d.outcomes, d.jobs, d.unjudged,
		d.blamed, d.queries, d.refused, d.specs, d.age} {
		ch <- one
	}
	t := newTestDescs()
	for _, one := range []*prometheus.Desc{t.begun, t.verdicts, t.harm, t.windows} {
		ch <- one
	}
}

func (c *detectionCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	source, cluster := c.source, c.cluster
	c.mu.Unlock()
	now := source() // without our lock: it takes the detector's, whose holder takes ours
	d := newDetectionDescs()
	send := sender(ch)
	c.mu.Lock()
	defer c.mu.Unlock()
	send(d.outliers, prometheus.CounterValue, float64(now.Outliers))
	send(d.anomalies, prometheus.CounterValue, float64(now.Anomalies))
	for _, kind := range verdictValues() {
		send(d.analyses, prometheus.CounterValue, float64(c.verdicts[kind]), kind)
	}
	for _, result := range outcomeValues() {
		send(d.outcomes, prometheus.CounterValue, float64(c.outcomes[result]), result)
	}
	own, others := 0, 0
	lack := map[detect.Lack]int{}
	for i := range now.Jobs {
		lack[now.Jobs[i].Lack]++
		switch now.Jobs[i].Source {
		case detect.FromHere:
			own++
		case detect.FromCluster, detect.FromBoth:
			others++
		}
	}
	send(d.jobs, prometheus.GaugeValue, float64(own), "own")
	send(d.jobs, prometheus.GaugeValue, float64(others), "cluster")
	for _, l := range []detect.Lack{detect.LacksTasks, detect.LacksSamples} {
		send(d.unjudged, prometheus.GaugeValue, float64(lack[l]), string(l))
	}
	if now.Tests != nil {
		t := newTestDescs()
		t.collect(send, now.Tests)
	}
	if c.blamed {
		c.collectPairs(send, d.blamed)
	}
	if cluster != nil {
		collectCluster(send, &d, cluster())
	}
}

func (c *detectionCollector) collectPairs(send sendFunc, blamed *prometheus.Desc) {
	for _, p := range c.pairs.counts() {
		send(blamed, prometheus.CounterValue, float64(p.Count), p.Victim, p.Antagonist)
	}
}

func collectCluster(send sendFunc, d *detectionDescs, s ClusterSpecs) {
	for _, result := range clusterResults() {
		send(d.queries, prometheus.CounterValue, float64(s.Queries[result]), result)
	}
	send(d.refused, prometheus.CounterValue, float64(s.Refused))
	send(d.specs, prometheus.GaugeValue, float64(s.InUse))
	send(d.age, prometheus.GaugeValue, s.Age)
}

type sendFunc func(*prometheus.Desc, prometheus.ValueType, float64, ...string)

func sender(ch chan<- prometheus.Metric) sendFunc {
	return func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
}

// workload makes a label of a job's name: a namespace, an owner's kind and name, and a
// container's name.
func workload(job string) string {
	const most = 512
	return printable.Clip(job, most)
}
