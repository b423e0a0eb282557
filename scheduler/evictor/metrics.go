package evictor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/quietcore/quietcore/internal/serve"
)

// Results of a request for an eviction, as they are counted.
const (
	resultEvicted = "evicted"
	resultGone    = "gone"    // the pod had ended
	resultBlocked = "blocked" // by a disruption budget
	resultFailed  = "failed"
)

// States of a mark. A stale one has none: it counts for nothing.
const (
	statePending = "pending" // its pod may be evicted, and waits for that
	stateRefused = "refused" // its pod is not best effort
)

// counters are what the evictor tells of itself. They name no node and no pod, so whoever reads them learns of no
// tenant.
type counters struct {
	registry  metrics.KubeRegistry
	evictions *metrics.CounterVec
	limited   *metrics.Counter
	marks     *metrics.GaugeVec
	leader    *metrics.Gauge

	mu   sync.Mutex
	list *marks // nil: this one does not lead
}

func newCounters() *counters {
	c := &counters{
		registry: metrics.NewKubeRegistry(),
		evictions: metrics.NewCounterVec(&metrics.CounterOpts{Name: "quietcore_evictor_evictions_total",
			StabilityLevel: metrics.ALPHA, Help: "Evictions that were asked for, by result."}, []string{"result"}),
		limited: metrics.NewCounter(&metrics.CounterOpts{Name: "quietcore_evictor_rate_limited_total",
			StabilityLevel: metrics.ALPHA, Help: "Evictions that had to wait for the rate of their node."}),
		marks: metrics.NewGaugeVec(&metrics.GaugeOpts{Name: "quietcore_evictor_marks",
			StabilityLevel: metrics.ALPHA, Help: "Marks that stand, by whether the pod may be evicted."},
			[]string{"state"}),
		leader: metrics.NewGauge(&metrics.GaugeOpts{Name: "quietcore_evictor_leader",
			StabilityLevel: metrics.ALPHA, Help: "1 where this one evicts, 0 where it stands by."}),
	}
	c.registry.MustRegister(c.evictions, c.limited, c.marks, c.leader)
	for _, result := range []string{resultEvicted, resultGone, resultBlocked, resultFailed} {
		c.evictions.WithLabelValues(result) // from the start: an increase is one from 0
	}
	return c
}

// leads says whose marks are counted; nil: this one leads no more.
func (c *counters) leads(list *marks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = list
}

// look takes over what is so now.
func (c *counters) look(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	leader, sums := 0.0, map[string]int{}
	if c.list != nil {
		leader, sums = 1, c.list.sums(now)
	}
	c.leader.Set(leader)
	for _, state := range []string{statePending, stateRefused} {
		c.marks.WithLabelValues(state).Set(float64(sums[state]))
	}
}

// sums are how many marks stand, by state.
func (s *marks) sums(now time.Time) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums := map[string]int{}
	for _, of := range s.nodes {
		for _, m := range of {
			switch {
			case m.Stale(now):
			case m.refused != "":
				sums[stateRefused]++
			default:
				sums[statePending]++
			}
		}
	}
	return sums
}

// handler serves /metrics.
func (c *counters) handler(now func() time.Time) http.Handler {
	all := metrics.HandlerFor(c.registry, metrics.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		c.look(now())
		all.ServeHTTP(w, r)
	})
	return mux
}

// serve answers at an address until ctx ends. It has a budget of connections of its own: a flood of it keeps no probe
// waiting.
func (c *counters) serve(ctx context.Context, address string, log *slog.Logger) error {
	if address == "" {
		return nil
	}
	l, err := serve.Listen(address, serve.Limits{All: 64, FromOne: 8, Rate: 4})
	if err != nil {
		return fmt.Errorf("listen for metrics: %w", err)
	}
	go func() {
		if err := serve.Serve(ctx, l, c.handler(time.Now), serve.Times{Request: 5 * time.Second,
			Answer: 15 * time.Second, Idle: 10 * time.Second}); err != nil {
			log.Error("no metrics are served any more", "err", err)
		}
	}()
	return nil
}
