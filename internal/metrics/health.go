package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// stalled is the age of the event loop's last heartbeat from which on it counts as
// dead. The loop beats at every event and tick.
const stalled = 30 * time.Second

// lookEvery is how often the watchdog decides.
const lookEvery = time.Second

// frozen is how long the watchdog itself has not run where the process, or the machine, stood still.
const frozen = 10 * time.Second

// Health is the watchdog that decides what the probes report. A degraded feature (no API
// server, no PMU) is reported but does not make the daemon unready.
//
// Run asks every part; a probe, and a scrape, only read what it decided last, and so wait
// for no part. Where a part does not say how it is, the decision grows old, and an old
// decision is not alive: a part that hangs cannot be seen from outside in another way.
type Health struct {
	now, beat func() time.Time
	required  []requirement
	watched   []func() map[string]string
	thawed    time.Time // when the process last ran again after it had been frozen
	decided   atomic.Pointer[decision]
}

// decision is what the watchdog found, and when.
type decision struct {
	at          time.Time
	live, ready Report
}

// Features that can be missing while the daemon is ready, by their names in reports.
const (
	FeatureAPIServer = "API server"
	FeatureCgroups   = "cgroups"
	FeatureCPI       = "CPU performance"
	FeatureDRA       = "claims of CPUs"
	FeatureKubelet   = "kubelet's configuration"
	FeatureLending   = "lending"
	FeatureLent      = "lent CPUs in the Node's status"
	FeaturePolicy    = "QuietcorePolicy"
	FeatureSpecs     = "specs of the cluster"
	FeatureSystemd   = "systemd"
	FeatureTaint     = "startup taint"
	FeatureTopology  = "NodeResourceTopology"
)

// featureLabel is a feature's label value.
func featureLabel(name string) string {
	switch name {
	case FeatureAPIServer:
		return "api_server"
	case FeatureCgroups:
		return "cgroups"
	case FeatureCPI:
		return "cpu_performance"
	case FeatureDRA:
		return "dra"
	case FeatureKubelet:
		return "kubelet_configuration"
	case FeatureLending:
		return "lending"
	case FeatureLent:
		return "lent_cpus"
	case FeaturePolicy:
		return "policy"
	case FeatureSpecs:
		return "cluster_specs"
	case FeatureTaint:
		return "startup_taint"
	case FeatureSystemd:
		return "systemd"
	case FeatureTopology:
		return "node_resource_topology"
	}
	return other
}

func featureNames() []string {
	return []string{FeatureAPIServer, FeatureCgroups, FeatureCPI, FeatureDRA, FeatureKubelet, FeatureLending,
		FeatureLent, FeaturePolicy, FeatureSpecs, FeatureSystemd, FeatureTaint, FeatureTopology, other}
}

type requirement struct {
	missing string
	met     func() bool
}

// NewHealth reports on an event loop whose last heartbeat was at beat().
func NewHealth(now, beat func() time.Time) *Health {
	return &Health{now: now, beat: beat}
}

// Run decides once a second until ctx ends, and logs when the daemon stops being alive.
func (h *Health) Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for was, looked := true, h.now(); ; {
		if now := h.now(); now.Sub(looked) > frozen {
			h.thawed = now // the event loop was frozen, too
		}
		h.Look()
		looked = h.now()
		if live := h.Live(); live.OK != was {
			was = live.OK
			log.Error("the watchdog decided", "alive", live.OK, "why", live.Reasons)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Look decides now. It waits for every part.
func (h *Health) Look() {
	d := &decision{live: h.loop()}
	d.ready = h.parts(d.live)
	d.at = h.now()
	h.decided.Store(d)
}

// Require adds a condition of readiness; missing is reported until it is met. It must
// be called before Look.
func (h *Health) Require(missing string, met func() bool) {
	h.required = append(h.required, requirement{missing, met})
}

// Watch adds a part of the daemon. why returns for each of its features why it does not
// work; empty: it works. It must be called before Look.
func (h *Health) Watch(why func() map[string]string) { h.watched = append(h.watched, why) }

// Report is the body of /livez and /readyz.
type Report struct {
	OK       bool              `json:"ok"`
	Reasons  []string          `json:"reasons"`
	Degraded map[string]string `json:"degraded,omitempty"`
}

// Live reports whether the event loop runs. It depends on nothing outside the process,
// which a restart would not fix.
func (h *Health) Live() Report { return h.last(func(d *decision) Report { return d.live }) }

// Ready reports whether starting pods are placed.
func (h *Health) Ready() Report { return h.last(func(d *decision) Report { return d.ready }) }

// last is one report of the last decision, which must be recent.
func (h *Health) last(of func(*decision) Report) Report {
	d := h.decided.Load()
	if d == nil {
		return Report{Reasons: []string{"nothing is decided yet"}}
	}
	r := of(d)
	if age := h.now().Sub(d.at); age > stalled {
		r.OK = false
		r.Reasons = append(slices.Clone(r.Reasons), fmt.Sprintf(
			"a part of the daemon has not said how it is for %s, the limit is %s", age.Round(time.Second), stalled))
	}
	return r
}

// loop is what the event loop's heartbeat says.
func (h *Health) loop() Report {
	r := Report{OK: true, Reasons: []string{}}
	beat := h.beat()
	if h.thawed.After(beat) {
		beat = h.thawed
	}
	if age := h.now().Sub(beat); age > stalled {
		r.OK = false
		r.Reasons = append(r.Reasons, fmt.Sprintf("the event loop has not moved for %s, the limit is %s",
			age.Round(time.Second), stalled))
	}
	return r
}

// parts adds what the parts say of themselves.
func (h *Health) parts(live Report) Report {
	r := Report{OK: live.OK, Reasons: slices.Clone(live.Reasons)}
	for _, q := range h.required {
		if !q.met() {
			r.OK = false
			r.Reasons = append(r.Reasons, q.missing)
		}
	}
	for _, part := range h.watched {
		for feature, why := range part() {
			if why == "" {
				continue
			}
			if r.Degraded == nil {
				r.Degraded = map[string]string{}
			}
			r.Degraded[feature] = why
		}
	}
	slices.Sort(r.Reasons)
	return r
}

// healthCollector has what the probes report as series.
type healthCollector struct{ health atomic.Pointer[Health] }

type healthDescs struct{ ready, degraded *prometheus.Desc }

func newHealthDescs() healthDescs {
	return healthDescs{
		ready: desc("ready", "What /readyz says: 1 while a pod that starts is placed."),
		degraded: desc("degraded",
			"1 while a feature does not work that the configuration asks for, or not wholly. 0 also where it is "+
				"off. Why: in the body of /readyz.", "feature"),
	}
}

func (c *healthCollector) Describe(ch chan<- *prometheus.Desc) {
	d := newHealthDescs()
	ch <- d.ready
	ch <- d.degraded
}

func (c *healthCollector) Collect(ch chan<- prometheus.Metric) {
	h := c.health.Load()
	if h == nil {
		return
	}
	d := newHealthDescs()
	r := h.Ready()
	ch <- prometheus.MustNewConstMetric(d.ready, prometheus.GaugeValue, number(r.OK))
	broken := map[string]bool{}
	for name := range r.Degraded {
		broken[featureLabel(name)] = true
	}
	for _, name := range featureNames() {
		ch <- prometheus.MustNewConstMetric(d.degraded, prometheus.GaugeValue, number(broken[featureLabel(name)]),
			featureLabel(name))
	}
}

// Handler answers with all series, which from then on include what h reports.
func Handler(m *Metrics, h *Health) http.Handler {
	m.health.health.Store(h)
	return handler(m.registry)
}

// Nameless answers with the series that name no pod, container or job of a tenant.
func (m *Metrics) Nameless() http.Handler {
	return handler(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := m.registry.Gather()
		for _, f := range families {
			f.Metric = slices.DeleteFunc(f.Metric, func(one *dto.Metric) bool {
				return slices.ContainsFunc(one.Label, func(l *dto.LabelPair) bool {
					return slices.Contains(nameLabels(), l.GetName())
				})
			})
		}
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), err
	}))
}

// nameLabels are the labels whose values tenants choose.
func nameLabels() []string {
	return []string{"antagonist", "container", "namespace", "pod", "victim", "workload"}
}

func handler(g prometheus.Gatherer) http.Handler {
	return &shared{now: time.Now, render: promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true})}
}

// Probes serves /livez, /readyz and /healthz.
func (h *Health) Probes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", probe(h.Live))
	mux.Handle("GET /healthz", probe(h.Live))
	mux.Handle("GET /readyz", probe(h.Ready))
	return mux
}

func probe(report func() Report) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		r := report()
		text, err := json.Marshal(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !r.OK {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(append(text, '\n')) // the prober went away
	}
}
