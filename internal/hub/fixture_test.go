package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/policy"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// daemon is a node as a script says it is.
type daemon struct {
	name    string
	wrong   error // it does not answer
	summary control.Summary
	top     control.Top
	list    []incidents.Summary // the newest first
	asked   []string            // paths, and what is asked for of incidents
}

// world is the nodes of a cluster, and a clock.
type world struct {
	mu      sync.Mutex // guards what daemons were asked
	now     time.Time
	daemons []*daemon
	wrong   error // no node can be asked
}

// newHub is one of a world, of which rounds are run by hand.
func newHub(t testing.TB, daemons ...*daemon) (*world, *Hub) {
	t.Helper()
	w := &world{now: noon, daemons: daemons}
	h, err := New(Options{Round: w.round, Every: 15 * time.Second, Window: 168 * time.Hour, Version: "v0.9.0",
		Namespace: "quietcore-system", Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	return w, h
}

func (w *world) round(ctx context.Context, visit func(context.Context, fleet.Node)) error {
	if w.wrong != nil {
		return w.wrong
	}
	for _, d := range w.daemons {
		visit(ctx, fleet.Node{Name: d.name, Pod: "quietcore-" + d.name, Get: func(_ context.Context, path string,
			q url.Values, into any) error {
			return w.answer(d, path, q, into)
		}})
	}
	return nil
}

// answer is a daemon's, by way of JSON as it is sent.
func (w *world) answer(d *daemon, path string, q url.Values, into any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := strings.TrimPrefix(path, "/v1/")
	if q != nil {
		asked += " since " + q.Get("since") + " limit " + q.Get("limit")
	}
	d.asked = append(d.asked, asked)
	if d.wrong != nil {
		return d.wrong
	}
	var from any
	switch path {
	case "/v1/summary":
		from = d.summary
	case "/v1/top":
		from = d.top
	case "/v1/incidents":
		since, err := time.Parse(time.RFC3339Nano, q.Get("since"))
		if err != nil {
			return err
		}
		var limit int
		if _, err := fmt.Sscan(q.Get("limit"), &limit); err != nil {
			return err
		}
		all := incidents.Filter{Since: since}.Select(d.list)
		from = incidents.Listing{Incidents: all[:min(len(all), limit)], More: len(all) > limit}
	default:
		return errors.New("nobody may get " + path)
	}
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// next passes time, and asks.
func (w *world) next(t testing.TB, h *Hub, d time.Duration) {
	t.Helper()
	w.now = w.now.Add(d)
	h.ask(t.Context())
}

func amountOf(v float64) *float64 { return &v }

// happened is an incident of a job, by others.
func happened(id string, at time.Time, job string, cpi float64, by ...string) incidents.Summary {
	i := incidents.Summary{ID: id, At: at, Victim: incidents.Subject{Namespace: "shop", Pod: job + "-7d4f9-x2x9q",
		Container: "main", Job: "shop/Deployment/" + job}, CPI: cpi, Mean: 1, Threshold: 1.5,
		Verdict: incidents.Observe, Resource: "L3"}
	for _, who := range by {
		i.Antagonists = append(i.Antagonists, incidents.SummaryAntagonist{Score: 0.5,
			Subject: incidents.Subject{Namespace: "lab", Pod: who + "-0", Container: "main", Job: "lab/Job/" + who}})
	}
	return i
}

// container is one that has used so many CPU seconds.
func container(pod string, pool policy.PoolKind, cpus string, used float64, at time.Time) control.TopContainer {
	return control.TopContainer{ID: pod, Namespace: "shop", Pod: pod, Container: "main", Pool: pool, CPUs: cpus,
		UsageSeconds: &used, UsageAt: at.Sub(noon).Seconds()}
}

// some is a cluster of so many nodes of 8 to 512 CPUs, in which everything is seen that a page shows.
func some(n int) []*daemon {
	coins := rand.New(rand.NewPCG(28, uint64(n)))
	var list []*daemon
	for i := range n {
		cpus := 8 << (i % 7)
		own := coins.IntN(cpus / 2)
		d := &daemon{name: fmt.Sprintf("worker-%03d", i)}
		some := func(most float64) float64 { return float64(cpus) * coins.Float64() * most }
		d.summary = control.Summary{Node: d.name, Version: "v0.9.0", Mode: &control.Mode{Mode: "enforce"},
			Connected: true, Synchronised: true, Settled: true, CPUs: cpus, Owners: own / 4,
			Containers: 10 + coins.IntN(100), CPI: "observe",
			Used: &control.Use{Production: some(0.7), Batch: some(0.3)}, Lent: amountOf(some(0.5)),
			Withheld: amountOf(float64(coins.IntN(cpus / 2)))}
		if own > 0 {
			set := cpuset.Range(0, own-1)
			d.summary.Pools.Exclusive = set.String()
		}
		switch {
		case i%25 == 7:
			d.wrong = errors.New("dial tcp 10.0.0.7:9464: connect: connection refused")
		case i%17 == 3:
			d.summary.Problems = []string{"not registered with the runtime: pods that start are not placed"}
		}
		for k := range coins.IntN(4) {
			d.list = append(d.list, happened(fmt.Sprintf("20261121-11%02d-%d", i%60, k),
				noon.Add(-time.Duration(coins.IntN(36*60))*time.Minute),
				[]string{"web", "checkout", "search"}[coins.IntN(3)], 1.5+coins.Float64()*3,
				[]string{"encode", "train", "sort"}[coins.IntN(3)]))
		}
		d.use(noon, 0)
		list = append(list, d)
	}
	return list
}

// use has the node's owners use a half of their CPUs for so long.
func (d *daemon) use(at time.Time, since time.Duration) {
	d.top = control.Top{At: at, CPUs: d.summary.CPUs}
	for k := range d.summary.Owners {
		set := cpuset.Range(k*4, k*4+3)
		d.top.Containers = append(d.top.Containers, container(fmt.Sprintf("db-%d", k), policy.PoolExclusive,
			set.String(), since.Seconds()*float64(k%4), at))
	}
}

// serves is the address of a hub's page.
func serves(t testing.TB, h *Hub) string {
	t.Helper()
	s := httptest.NewServer(h.Handler())
	t.Cleanup(s.Close)
	return s.URL
}

// get asks the page for a path.
func get(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost:9470"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
