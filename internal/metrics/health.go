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

// Condition is one of the things that must be so before the daemon is ready.
type Condition int

const (
	TopologyKnown Condition = iota
	Registered
	Synchronized
	conditions
)

func (c Condition) missing() string {
	return [...]string{"the topology is not known", "not registered with the runtime", "what runs is not taken over yet"}[c]
}

// Health is what the probes report. What is merely degraded (no API server, no
// PMU) is told but does not make the daemon unready.
type Health struct {
	now func() time.Time

	mu       sync.Mutex // guards what follows
	beat     time.Time
	met      [conditions]bool
	degraded map[string]string
}

// NewHealth starts with no condition met and a fresh heartbeat.
func NewHealth(now func() time.Time) *Health {
	return &Health{now: now, beat: now(), degraded: map[string]string{}}
}

// Heartbeat says that the event loop runs.
func (h *Health) Heartbeat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beat = h.now()
}

// Set says whether a condition is met.
func (h *Health) Set(c Condition, met bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met[c] = met
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

// Report is the body of /livez and /readyz.
type Report struct {
	OK       bool              `json:"ok"`
	Reasons  []string          `json:"reasons"`
	Degraded map[string]string `json:"degraded,omitempty"`
}

// Live reports whether the event loop runs. It does not depend on anything
// outside the process: a restart would not mend that.
func (h *Health) Live() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{OK: true, Reasons: []string{}}
	if age := h.now().Sub(h.beat); age > stalled {
		r.OK = false
		r.Reasons = append(r.Reasons, fmt.Sprintf("the event loop has not moved for %s, the limit is %s", age.Round(time.Second), stalled))
	}
	return r
}

// Ready reports whether pods that start now are placed.
func (h *Health) Ready() Report {
	r := h.Live()
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, met := range h.met {
		if !met {
			r.OK = false
			r.Reasons = append(r.Reasons, Condition(c).missing())
		}
	}
	r.Degraded = maps.Clone(h.degraded)
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
