package hub

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/quietcore/quietcore/internal/printable"
)

// Prometheus is one that scrapes the daemons. What it knows is shown while it is newer than what a node said itself,
// and a node is asked less often while it is fresh.
type Prometheus struct {
	// Query has the vector that an expression is now.
	Query func(ctx context.Context, expr string) (model.Vector, error)
	// Name is how it is called to people, Matchers choose this cluster's series, such as cluster="a".
	Name, Matchers string
}

const (
	// freshFor is how old a sample may be: that of two scrapes a minute apart, with something to spare.
	freshFor = 150 * time.Second
	// maxMeasured is more CPUs than a node has, or has lent.
	maxMeasured = 1 << 20
)

// measured is what Prometheus knows of a node; at is when it was scraped, by the hub's clock.
type measured struct {
	heat
	at time.Time
}

func (m *measured) fresh(now time.Time) bool { return m != nil && now.Sub(m.at) <= freshFor }

// expression is all that is asked for, in one question, so that it is of one moment. Of several replicas of a
// Prometheus, and while a daemon's pod is replaced, a node has several series.
func (p *Prometheus) expression() string {
	also := ""
	if p.Matchers != "" {
		also = "," + p.Matchers
	}
	online := fmt.Sprintf(`quietcore_cpus{state="online"%s}`, also)
	named := func(what, expr string) string {
		return fmt.Sprintf(`label_replace(%s, "what", %q, "", "")`, expr, what)
	}
	return strings.Join([]string{
		named("cpus", "max by (node) ("+online+")"),
		named("age", "time() - max by (node) (timestamp("+online+"))"),
		named("exclusive", fmt.Sprintf(`max by (node) (quietcore_pool_cpus{pool="exclusive"%s})`, also)),
		fmt.Sprintf(`max by (node, what) (quietcore_lending_cpus{what=~"production|batch|outside|offered|withheld"%s})`,
			also),
	}, " or ")
}

// read makes of an answer what is known of each node.
func (p *Prometheus) read(answer model.Vector, now time.Time) (map[string]*measured, error) {
	by := map[string]map[string]float64{}
	for _, s := range answer {
		node, v := string(s.Metric["node"]), float64(s.Value)
		if math.IsNaN(v) || v < 0 || v > maxMeasured {
			continue
		}
		if by[node] == nil {
			by[node] = map[string]float64{}
		}
		by[node][string(s.Metric["what"])] = v
	}
	_, nameless := by[""]
	delete(by, "")
	switch {
	case len(by) == 0 && nameless:
		return nil, errors.New("its series of daemons have no label node: the chart's monitors set it, another " +
			"scrape configuration has to")
	case len(by) == 0:
		return nil, errors.New("it has no series of daemons: does it scrape them (metrics.podMonitor.enabled), and " +
			"are the matchers right (hub.prometheus.matchers, --prometheus-matchers)")
	}
	out := make(map[string]*measured, len(by))
	for node, values := range by {
		cpus, is := values["cpus"]
		age, dated := values["age"]
		if !is || !dated {
			continue
		}
		out[node] = &measured{at: now.Add(-time.Duration(age * float64(time.Second))), heat: heat{CPUs: int(cpus),
			Used: sumKnown(values, "production", "batch", "outside"), Exclusive: sumKnown(values, "exclusive"),
			Lent: sumKnown(values, "offered"), Withheld: sumKnown(values, "withheld")}}
	}
	return out, nil
}

// sumKnown is nil where one of them is not known.
func sumKnown(values map[string]float64, what ...string) *float64 {
	sum := 0.0
	for _, w := range what {
		v, is := values[w]
		if !is {
			return nil
		}
		sum += v
	}
	return &sum
}

// measure asks Prometheus, where there is one.
func (h *Hub) measure(ctx context.Context) {
	p := h.o.Prometheus
	if p == nil {
		return
	}
	answer, err := p.Query(ctx, p.expression())
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Now()
	h.moved = now
	var all map[string]*measured
	if err == nil {
		all, err = p.read(answer, now)
	}
	was := h.unmeasured
	if h.unmeasured = ""; err != nil {
		h.unmeasured = printable.Clip(fmt.Sprintf("%s: %s", p.Name, err), maxText)
	} else {
		h.measured = all // what it does not know any more stays known no longer
	}
	switch {
	case was == h.unmeasured:
	case err != nil:
		h.o.Log.Warn("Prometheus does not say what nodes use; every node is asked in each round", "why", h.unmeasured)
	default:
		h.o.Log.Info("Prometheus says again what nodes use")
	}
}

// wants says whether a node's daemon is to be asked in this round: while Prometheus knows what it uses, in its turn.
func (h *Hub) wants(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[name]
	return n == nil || n.heard.IsZero() || n.wrong != "" || n.turn(h.round) || !h.measured[name].fresh(h.o.Now())
}

// found takes note of a daemon that is there and is not asked.
func (h *Hub) found(name, pod string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.nodes[name]; n != nil {
		n.pod, n.seen, n.at = pod, h.o.Now(), h.round
	}
}

// over is the node's heat, or that of Prometheus where it is newer. What a node says it does not do is not known, also
// where its metrics have 0 for it.
func (m *measured) over(n *node, h heat, now time.Time) (newer heat, is bool) {
	if !m.fresh(now) || !m.at.After(n.heard) {
		return h, false
	}
	newer = m.heat
	if newer.Used == nil {
		newer.Used = h.Used
	}
	if newer.Exclusive == nil {
		newer.Exclusive = h.Exclusive
	}
	if n.summary != nil && n.summary.Lent == nil {
		newer.Lent = nil
	}
	if n.summary != nil && n.summary.Withheld == nil {
		newer.Withheld = nil
	}
	return newer, true
}

// prometheusView is what the page says of it.
type prometheusView struct {
	Name    string `json:"name"`
	Nodes   int    `json:"nodes"` // that it knows lately
	Problem string `json:"problem,omitempty"`
}

func (h *Hub) prometheusView(now time.Time) *prometheusView {
	p := h.o.Prometheus
	if p == nil {
		return nil
	}
	v := &prometheusView{Name: printable.Clip(p.Name, maxName), Problem: h.unmeasured}
	for name := range h.nodes {
		if h.measured[name].fresh(now) {
			v.Nodes++
		}
	}
	return v
}
