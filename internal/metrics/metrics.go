// Package metrics exports the daemon's state to monitoring systems: Prometheus series,
// and health endpoints. [Metrics] counts and [Handler] serves it; [Health] decides and
// serves the probes.
//
// Gauges of the present state are computed at each scrape, never kept by adding and
// subtracting, so they cannot drift from it. A few describe the last event of a kind,
// such as a reload.
//
// No series has a CPU as label, and every label has a fixed list of values, so that no
// pod can create series: a test bounds the whole set to 300. Series of containers exist
// only as far as the configuration allows. Catalogue lists all metrics; docs/metrics.md
// is generated from it.
package metrics

import (
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quietcore/quietcore/policy"
)

const prefix = "quietcore"

// other stands for a label value that is not on the list.
const other = "other"

// Label values. Every series exists from the start with 0, so that its first increase
// shows in a rate.
func eventValues() []string {
	return []string{"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandbox", "CreateContainer",
		"UpdateContainer", "StopContainer", "RemoveContainer", synchronize, other}
}

// synchronize has a histogram of its own.
const synchronize = "Synchronize"

// timedEvents are the events that a pod waits for. A histogram costs ten of 300 series,
// so the others share one.
func timedEvents() []string {
	return []string{"RunPodSandbox", "CreateContainer", "UpdateContainer", other}
}
func requestResults() []string    { return []string{"ok", "refused", "error", "deadline"} }
func connectionResults() []string { return []string{"ok", "error", "timeout", "lost"} }
func writeResults() []string      { return []string{"ok", "error", "gone", "mismatch"} }
func driftSources() []string {
	return []string{"kernel", "systemd", "runtime", "outside", other}
}
func rivalKinds() []string {
	return []string{policy.RivalBefore, policy.RivalAfter, policy.RivalAlone, policy.RivalMoved}
}
func quotaSources() []string { return []string{"kubelet", "runtime", other} }
func callResults() []string  { return []string{"ok", "error", "timeout"} }
func saveResults() []string  { return []string{"ok", "error"} }
func apiParts() []string {
	return []string{"pods", "node", "events", "topology", policiesPart, lendingPart, evictionPart}
}

const (
	lendingPart  = "lending"
	evictionPart = "eviction"
	policiesPart = "policies"
)

// apiResults are the possible results of a request: only Events are dropped, and only a
// request that the object's state forbids is a conflict.
func apiResults(what string) []string {
	results := []string{"ok", "error", "forbidden", "notfound", "timeout"}
	switch what {
	case "events":
		return append(results, "dropped")
	case lendingPart, evictionPart, policiesPart:
		return append(results, "conflict")
	}
	return results
}
func reasons() []string {
	codes := []policy.Code{
		policy.InvalidQoS, policy.InvalidAnnotation, "InvalidRequest", "SMTAlignmentError", "TopologyAffinityError",
		"InsufficientCPUs", "ExclusivityError", policy.Unauthorized, policy.KubeletOwned,
	}
	list := []string{other}
	for _, c := range codes {
		list = append(list, string(c))
	}
	return list
}

// Metrics holds every series of the daemon. It is safe for concurrent use.
type Metrics struct {
	registry      *prometheus.Registry
	runtime       runtimeMetrics
	enforced      enforcementMetrics
	cluster       clusterMetrics
	cpi           *cpiCollector
	detection     *detectionCollector
	jobs          *jobsCollector
	health        *healthCollector
	labelsAllowed map[*prometheus.CounterVec][]string
}

// runtimeMetrics concern the container runtime.
type runtimeMetrics struct {
	timeout     prometheus.Gauge
	connections *prometheus.CounterVec
	requestTime *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	syncTime    prometheus.Histogram
	syncSize    prometheus.Gauge
}

// enforcementMetrics concern writes on the node.
type enforcementMetrics struct {
	rejections *prometheus.CounterVec
	writes     *prometheus.CounterVec
	drift      *prometheus.CounterVec
	rivals     *prometheus.CounterVec
	quotaDrift *prometheus.CounterVec
	systemd    *prometheus.CounterVec
	saves      *prometheus.CounterVec
	reloadOK   prometheus.Gauge
	reloadTime prometheus.Gauge
}

// clusterMetrics concern the API server.
type clusterMetrics struct {
	api       *prometheus.CounterVec
	evictions *prometheus.CounterVec
	repairs   *prometheus.CounterVec
	topology  prometheus.Gauge
}

// New makes the series of one daemon. It calls source at every scrape.
func New(version string, source Source) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), labelsAllowed: map[*prometheus.CounterVec][]string{},
		cpi: newCPICollector(), detection: newDetectionCollector(), jobs: newJobsCollector(),
		health: &healthCollector{}}
	m.nri()
	m.enforcement()
	m.kubernetes()
	m.lending()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: prefix, Name: "build_info", Help: "Version of the daemon, always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info, &stateCollector{source: source}, m.cpi, m.detection, m.jobs, m.health)
	m.registry.MustRegister(ofProcess()...)
	return m
}

func (m *Metrics) nri() {
	m.runtime.timeout = m.gauge("nri_request_timeout_seconds",
		"What the runtime waits for an answer before it does without the daemon.")
	m.runtime.connections = m.counter("nri_connections_total",
		"Attempts to connect to the runtime, and connections lost.",
		"result", connectionResults())
	m.runtime.requestTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: prefix, Name: "nri_request_duration_seconds",
		Help:                        "Time to answer the runtime. other: the events that no pod waits for.",
		Buckets:                     []float64{.0002, .001, .005, .05, .5, 1, 2},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"event"})
	m.runtime.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: prefix, Name: "nri_requests_total", Help: "Events of the runtime that were answered.",
	}, []string{"event", "result"})
	m.runtime.syncTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: prefix, Name: "synchronize_duration_seconds",
		Help:                        "Time to take over everything that runs, after a connection.",
		Buckets:                     []float64{.01, .05, .1, .25, .5, 1, 2},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		NativeHistogramMinResetDuration: time.Hour,
	})
	m.runtime.syncSize = m.gauge("synchronize_containers", "Containers in the last synchronisation.")
	m.registry.MustRegister(m.runtime.requestTime, m.runtime.requests, m.runtime.syncTime)
	for _, e := range timedEvents() {
		m.runtime.requestTime.WithLabelValues(e)
	}
	for _, e := range eventValues() {
		for _, r := range requestResults() {
			m.runtime.requests.WithLabelValues(e, r)
		}
	}
}

func (m *Metrics) enforcement() {
	m.enforced.rejections = m.counter("admission_rejections_total",
		"Pods and containers refused, or degraded in place of it, by code.", "reason", reasons())
	m.enforced.writes = m.counter("cpuset_writes_total",
		"Cpuset writes. gone: the cgroup vanished first. mismatch: the kernel has something else in effect.", "result",
		writeResults())
	m.enforced.drift = m.counter("cpuset_drift_total",
		"Cpusets found changed and repaired. kernel: CPUs came or went, or the cpuset controller did. systemd: a "+
			"unit's AllowedCPUs was set. runtime: a container's mask was set by its runtime. outside: a cgroup "+
			"above, which is not ours, allows less. other: a process wrote the file.", "source", driftSources())
	m.enforced.rivals = m.counter("foreign_cpusets_total",
		"Containers whose CPUs another NRI plugin set. before, after: it is asked earlier or later, and the runtime "+
			"refused the container. alone: we give it no CPUs. moved: it ran, and was moved back.", "how", rivalKinds())
	m.enforced.quotaDrift = m.counter("quota_drift_total",
		"CFS quotas of ours, and cpu.idle, found changed and repaired.",
		"source", quotaSources())
	m.enforced.systemd = m.counter("systemd_calls_total", "Conversations with systemd over D-Bus.", "result",
		callResults())
	m.enforced.saves = m.counter("state_save_total", "Writes of the state file.", "result", saveResults())
	m.enforced.reloadOK = m.gauge("config_last_reload_successful",
		"0 after a bad configuration file, with which the one before is in force, or one of which something waits "+
			"for a restart.")
	m.enforced.reloadTime = m.gauge("config_last_reload_success_timestamp_seconds",
		"When a good configuration file was read last, by the node's clock.")
}

func (m *Metrics) kubernetes() {
	m.cluster.api = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: prefix, Name: "api_requests_total",
		Help: "Requests to the API server. dropped (events): never sent, since too many waited. eviction: marks of " +
			"pods that are to be evicted. conflict: the present state forbids it.",
	}, []string{"what", "result"})
	m.registry.MustRegister(m.cluster.api)
	for _, what := range apiParts() {
		for _, result := range apiResults(what) {
			m.cluster.api.WithLabelValues(what, result)
		}
	}
	m.cluster.topology = m.gauge("node_resource_topology_update_timestamp_seconds",
		"When the node's NodeResourceTopology was last known to say what is so, by the node's clock.")
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: prefix, Name: name, Help: help})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) counter(name, help, label string, values []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: prefix, Name: name, Help: help}, []string{label})
	m.registry.MustRegister(v)
	for _, value := range values {
		v.WithLabelValues(value)
	}
	m.labelsAllowed[v] = values
	return v
}

func among(value string, values []string) string {
	if slices.Contains(values, value) {
		return value
	}
	return other
}

// inc counts a listed value. Any other counts as "other", or as "error" if the list has
// no other, so that it creates no series.
func (m *Metrics) inc(v *prometheus.CounterVec, value string) {
	values := m.labelsAllowed[v]
	if value = among(value, values); !slices.Contains(values, value) {
		value = "error"
	}
	v.WithLabelValues(value).Inc()
}

// Connection counts an attempt ("ok", "error", "timeout") or a loss ("lost").
func (m *Metrics) Connection(result string) { m.inc(m.runtime.connections, result) }

// RequestTimeout sets how long the runtime waits for an answer.
func (m *Metrics) RequestTimeout(d time.Duration) { m.runtime.timeout.Set(d.Seconds()) }

// Request counts one event of the runtime and the time to answer it; result is
// "ok", "refused", "error" or "deadline".
func (m *Metrics) Request(event, result string, took time.Duration) {
	event = among(event, eventValues())
	if event != synchronize {
		m.runtime.requestTime.WithLabelValues(among(event, timedEvents())).Observe(took.Seconds())
	}
	if !slices.Contains(requestResults(), result) {
		result = "error"
	}
	m.runtime.requests.WithLabelValues(event, result).Inc()
}

// Synchronized records a Synchronize.
func (m *Metrics) Synchronized(containers int, took time.Duration) {
	m.runtime.syncTime.Observe(took.Seconds())
	m.runtime.syncSize.Set(float64(containers))
}

// Rejected counts a refusal, or a degradation in its place.
func (m *Metrics) Rejected(code policy.Code) { m.inc(m.enforced.rejections, string(code)) }

// CpusetWrite counts one write: "ok", "error", "gone" or "mismatch".
func (m *Metrics) CpusetWrite(result string) { m.inc(m.enforced.writes, result) }

// Drift counts a repaired cpuset: "kernel", "systemd", "runtime" or "outside".
func (m *Metrics) Drift(source string) { m.inc(m.enforced.drift, source) }

// Rival counts a container whose CPUs another NRI plugin set.
func (m *Metrics) Rival(how string) { m.inc(m.enforced.rivals, how) }

// QuotaDrift counts a repaired quota: "kubelet" or "runtime".
func (m *Metrics) QuotaDrift(source string) { m.inc(m.enforced.quotaDrift, source) }

// SystemdCall counts a call of systemd: "ok", "error" or "timeout".
func (m *Metrics) SystemdCall(result string) { m.inc(m.enforced.systemd, result) }

// APIRequest counts a request to the API server about "pods", "node", "events",
// "topology", "policies" (their turns included), "lending" or "eviction", with the result "ok", "error",
// "forbidden", "notfound", "timeout", "dropped" (of events) or "conflict" (of the last three).
func (m *Metrics) APIRequest(what, result string) {
	if what == "turns" {
		what = policiesPart
	}
	if !slices.Contains(apiResults(what), result) {
		result = "error"
	}
	if slices.Contains(apiParts(), what) {
		m.cluster.api.WithLabelValues(what, result).Inc()
	}
}

// TopologyPublished records when the NodeResourceTopology was last up to date.
func (m *Metrics) TopologyPublished(at time.Time) {
	m.cluster.topology.Set(float64(at.UnixMilli()) / 1000)
}

// Saved counts a write of the state file.
func (m *Metrics) Saved(err error) {
	if err != nil {
		m.inc(m.enforced.saves, "error")
		return
	}
	m.inc(m.enforced.saves, "ok")
}

// Reloaded records a reload of the configuration file.
func (m *Metrics) Reloaded(at time.Time, err error) {
	m.enforced.reloadOK.Set(number(err == nil))
	if err == nil {
		m.enforced.reloadTime.Set(float64(at.UnixMilli()) / 1000)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
