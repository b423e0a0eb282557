package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// stalled is how old the last heartbeat of a live event loop may be. The loop
// beats at every event and every tick.
const stalled = 30 * time.Second

// Health is what the probes report. What is merely degraded (no API server, no
// PMU) is told but does not make the daemon unready.
type Health struct {
	now, beat func() time.Time
	required  []requirement
	watched   []feature

	mu       sync.Mutex // guards degraded
	degraded map[string]string
}

type requirement struct {
	missing string
	met     func() bool
}

// NewHealth reports on an event loop that moved last at beat().
func NewHealth(now, beat func() time.Time) *Health {
	return &Health{now: now, beat: beat, degraded: map[string]string{}}
}

// Require adds something that must be so before the daemon is ready; missing is
// what the report says until then. It is called before the handler serves.
func (h *Health) Require(missing string, met func() bool) {
	h.required = append(h.required, requirement{missing, met})
}

// Degraded says why a feature does not work; "" that it does.
func (h *Health) Degraded(feature, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why == "" {
		delete(h.degraded, feature)
		return
	}
	h.degraded[feature] = why
}

type feature struct {
	name string
	why  func() string
}

// Watch adds a feature that says itself why it does not work, "" that it does. It
// is called before the handler serves.
func (h *Health) Watch(name string, why func() string) {
	h.watched = append(h.watched, feature{name, why})
}

// Report is the body of /livez and /readyz.
type Report struct {
	OK       bool              `json:"ok"`
	Reasons  []string          `json:"reasons"`
	Degraded map[string]string `json:"degraded,omitempty"`
}

// Live reports whether the event loop runs. It does not depend on anything
// outside the process: a restart would not mend that.
func (h *Health) Live() Report {
	r := Report{OK: true, Reasons: []string{}}
	if age := h.now().Sub(h.beat()); age > stalled {
		r.OK = false
		r.Reasons = append(r.Reasons, fmt.Sprintf("the event loop has not moved for %s, the limit is %s", age.Round(time.Second), stalled))
	}
	return r
}

// Ready reports whether pods that start now are placed.
func (h *Health) Ready() Report {
	r := h.Live()
	for _, q := range h.required {
		if !q.met() {
			r.OK = false
			r.Reasons = append(r.Reasons, q.missing)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Degraded = maps.Clone(h.degraded)
	for _, f := range h.watched {
		if why := f.why(); why != "" {
			if r.Degraded == nil {
				r.Degraded = map[string]string{}
			}
			r.Degraded[f.name] = why
		}
	}
	return r
}

// Handler serves /metrics, /livez, /readyz and /healthz.
func Handler(m *Metrics, h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, EnableOpenMetrics: true, MaxRequestsInFlight: 3, Timeout: 10 * time.Second,
	}))
	mux.Handle("GET /livez", probe(h.Live))
	mux.Handle("GET /healthz", probe(h.Live))
	mux.Handle("GET /readyz", probe(h.Ready))
	return mux
}

func probe(report func() Report) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		r := report()
		slices.Sort(r.Reasons)
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
