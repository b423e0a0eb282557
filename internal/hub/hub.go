// Package hub is `quietcore hub`: a page of all nodes of a cluster.
//
// A [Hub] asks the daemons' read-only API in rounds, by the way of internal/fleet: every node for its summary, and a
// quarter of the nodes by turns for what containers have used and for the incidents since they were asked last. It
// keeps that in memory and nowhere else, within bounds, with when each node was heard last; a node that does not
// answer keeps its place. Where a Prometheus scrapes the daemons, it says what CPUs are used for in each round, and
// nodes are asked for the rest in their turn. What the hub makes of that is arithmetic:
//
//	heat.go       what a node's CPUs are used for, and the sum of all nodes
//	prometheus.go the same by Prometheus
//	owners.go     what pods with CPUs of their own leave of them
//	disturbed.go  who hurt whom
//
// Like the daemon's page, from which it has its style, it is served on loopback alone, asks nobody for a password and
// changes nothing.
package hub

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/internal/printable"
)

const (
	// inRounds is in how many rounds each node was asked for everything.
	inRounds = 4
	// overlap is how long the outcome of an incident may take: so much of the past is asked for again.
	overlap = time.Hour
	// forgetAfter is when a node whose daemon is gone from the cluster is forgotten.
	forgetAfter = 10 * time.Minute
	// keptIncidents bounds those of all nodes; each has an equal part, within two bounds.
	keptIncidents, leastOfNode, mostOfNode = 50_000, 50, 1_000
	// maxText bounds a sentence, maxName a name.
	maxText, maxName = 1_000, 260
)

// Options of a Hub; all but Prometheus, Tick and Log have to be said.
type Options struct {
	// Round visits every node, several at a time.
	Round  func(ctx context.Context, visit func(context.Context, fleet.Node)) error
	Every  time.Duration // a round
	Window time.Duration // in which incidents are kept
	// Namespace is where the daemons' pods are.
	Namespace string
	Version   string
	// Prometheus is asked in each round; nil: every daemon is.
	Prometheus *Prometheus
	Now        func() time.Time
	Tick       <-chan time.Time // nil: every Every
	Log        *slog.Logger     // nil: silent
}

// Hub serves one page. Its handlers are safe for concurrent use; it changes only while Run runs.
type Hub struct {
	o     Options
	files *site.Files
	turns *site.Turns

	mu      sync.Mutex // guards the rest
	nodes   map[string]*node
	round   int
	rounds  int       // that ended
	moved   time.Time // when anything was heard, or a round ended
	problem string    // why the last round failed
	// measured is what Prometheus said last, unmeasured why it did not the last time.
	measured   map[string]*measured
	unmeasured string
}

// node is what is known of one.
type node struct {
	name, pod string
	at        int       // the round in which its daemon was last found in the cluster
	seen      time.Time // when that was
	heard     time.Time // when it last answered; zero: never
	wrong     string    // why it did not the last time
	summary   *control.Summary
	use
	past
}

// past is a node's incidents, the newest first.
type past struct {
	incidents []incidents.Summary
	asked     time.Time // as of when; zero: never
	whole     time.Time // since when all are kept; zero: in the whole window
	unread    string    // why they could not be read the last time
}

// New makes a hub.
func New(o Options) (*Hub, error) {
	if o.Round == nil || o.Now == nil || o.Every <= 0 || o.Window <= 0 {
		return nil, errors.New("hub: Round, Now, Every and Window are required")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	files, err := files()
	if err != nil {
		return nil, err
	}
	return &Hub{o: o, files: files, turns: site.NewTurns(maxAnswers), nodes: map[string]*node{}, moved: o.Now()}, nil
}

// Run asks until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	tick := h.o.Tick
	if tick == nil {
		t := time.NewTicker(h.o.Every)
		defer t.Stop()
		tick = t.C
	}
	for {
		h.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// ask is one round.
func (h *Hub) ask(ctx context.Context) {
	h.mu.Lock()
	h.round++
	h.mu.Unlock()
	h.measure(ctx)
	err := h.o.Round(ctx, h.visit)
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Now()
	h.moved = now
	was := h.problem
	if h.problem = ""; err != nil {
		h.problem = printable.Clip(err.Error(), maxText)
		if was != h.problem {
			h.o.Log.Warn("no node can be asked; the page shows what was known", "why", err)
		}
		return
	}
	h.rounds++
	for name, n := range h.nodes {
		switch {
		case now.Sub(n.seen) > forgetAfter:
			delete(h.nodes, name)
		case n.at < h.round:
			n.wrong = "its daemon's pod is gone"
		}
	}
}

// visit asks one node what is due.
func (h *Hub) visit(ctx context.Context, n fleet.Node) {
	if !h.wants(n.Name) {
		h.found(n.Name, n.Pod)
		return
	}
	var s control.Summary
	err := n.Get(ctx, "/v1/summary", nil, &s)
	if ctx.Err() != nil {
		return
	}
	due := h.heard(n, &s, err)
	if due.use {
		var now control.Top
		if err := n.Get(ctx, "/v1/top", nil, &now); err == nil {
			h.used(n.Name, &now)
		}
	}
	if due.incidents != nil {
		var list incidents.Listing
		err := n.Get(ctx, "/v1/incidents", due.incidents, &list)
		if ctx.Err() == nil {
			h.happened(n.Name, due.asked, &list, err)
		}
	}
}

// due is what a node is to be asked next.
type due struct {
	use       bool
	incidents url.Values // nil: none
	asked     time.Time
}

// heard takes a summary, or why there is none.
func (h *Hub) heard(from fleet.Node, s *control.Summary, err error) (next due) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Now()
	h.moved = now
	n := h.nodes[from.Name]
	if n == nil {
		n = &node{name: from.Name}
		h.nodes[from.Name] = n
	}
	n.pod, n.seen, n.at = from.Pod, now, h.round
	if err != nil {
		n.wrong = printable.Clip(err.Error(), maxText)
		return due{}
	}
	n.heard, n.wrong, n.summary = now, "", s
	if !n.turn(h.round) {
		return due{}
	}
	next = due{use: true, asked: now}
	if s.CPI == "off" {
		n.past = past{}
		return next
	}
	since := now.Add(-h.o.Window)
	if again := n.asked.Add(-overlap); again.After(since) {
		since = again
	}
	next.incidents = control.Values(incidents.Filter{Since: since, Limit: h.share()})
	return next
}

// turn says whether it is the node's: in its first round, and then in each fourth, by its name.
func (n *node) turn(round int) bool {
	if n.asked.IsZero() && n.before == nil {
		return true
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(n.name)) // a hash takes everything
	return (round+int(sum.Sum32()%inRounds))%inRounds == 0
}

// share is how many incidents of one node are kept.
func (h *Hub) share() int {
	return min(max(keptIncidents/max(len(h.nodes), 1), leastOfNode), mostOfNode)
}

// used takes what containers have used.
func (h *Hub) used(name string, now *control.Top) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.nodes[name]; n != nil {
		n.take(h.o.Now(), now)
	}
}

// happened takes the incidents since a node was asked last, or why there are none.
func (h *Hub) happened(name string, asked time.Time, list *incidents.Listing, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[name]
	if n == nil {
		return
	}
	if err != nil {
		n.unread = printable.Clip(err.Error(), maxText)
		return
	}
	from := h.o.Now().Add(-h.o.Window)
	n.past = n.merge(list, from, h.share())
	n.asked = asked
}

// merge is the past with newer incidents, which stand for what they were before.
func (p *past) merge(news *incidents.Listing, from time.Time, most int) past {
	out := past{whole: p.whole}
	known := make(map[string]bool, len(news.Incidents))
	for _, list := range [][]incidents.Summary{news.Incidents, p.incidents} {
		for i := range list {
			if one := &list[i]; !known[one.ID] && !one.At.Before(from) {
				known[one.ID] = true
				out.incidents = append(out.incidents, *one)
			}
		}
	}
	if n := len(news.Incidents); n > 0 && news.More {
		out.whole = news.Incidents[n-1].At
	}
	slices.SortStableFunc(out.incidents, func(a, b incidents.Summary) int { return b.At.Compare(a.At) })
	if len(out.incidents) > most {
		out.incidents = slices.Clone(out.incidents[:most])
		out.whole = out.incidents[most-1].At
	}
	return out
}
