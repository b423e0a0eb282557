package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/prom"
	"github.com/quietcore/quietcore/internal/promtest"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// series are an answer: node and what to value.
func series(values map[string]float64) (v model.Vector) {
	for key, value := range values {
		node, what, _ := strings.Cut(key, " ")
		m := model.Metric{"what": model.LabelValue(what)}
		if node != "" {
			m["node"] = model.LabelValue(node)
		}
		v = append(v, &model.Sample{Metric: m, Value: model.SampleValue(value)})
	}
	return v
}

func TestWhatPrometheusSays(t *testing.T) {
	p := &Prometheus{Name: "p"}
	got, err := p.read(series(map[string]float64{
		"a cpus": 16, "a age": 10, "a exclusive": 4, "a production": 3, "a batch": 2, "a outside": 0.5, "a offered": 6,
		"a withheld": 1, "b cpus": 8, "b age": 0, "b production": 1, "b batch": 1, "c cpus": 8, "d age": 1,
		"e cpus": -1, "e age": 1, "f cpus": 1e300, "f age": 1, " cpus": 4, " age": 1,
	}), noon)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*measured{
		"a": {at: noon.Add(-10 * time.Second), heat: heat{CPUs: 16, Used: amountOf(5.5), Exclusive: amountOf(4),
			Lent: amountOf(6), Withheld: amountOf(1)}},
		"b": {at: noon, heat: heat{CPUs: 8}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); d != "" {
		t.Error(d)
	}
	for want, values := range map[string]map[string]float64{"no series of daemons": {}, "no label node": {" cpus": 4}} {
		if _, err := p.read(series(values), noon); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", values, err, want)
		}
	}
}

// asks is how often each daemon was asked for a summary since the last time.
func asks(w *world) string {
	var text []string
	for _, d := range w.daemons {
		n := 0
		for _, path := range d.asked {
			if path == "summary" {
				n++
			}
		}
		d.asked = nil
		text = append(text, fmt.Sprint(d.name, n))
	}
	return strings.Join(text, " ")
}

// What Prometheus knows is shown while it is the newest, and spares the daemons; what it does not know, they are asked,
// and the page says why.
func TestRoundsWithPrometheus(t *testing.T) {
	lends := control.Summary{CPUs: 16, CPI: "off", Lent: amountOf(1), Withheld: amountOf(0),
		Pools: script.Pools{Exclusive: "0-1"}}
	a, b := &daemon{name: "a", summary: lends}, &daemon{name: "b", summary: control.Summary{CPUs: 8, CPI: "off"}}
	w, h := newHub(t, a, b)
	values := map[string]float64{"a cpus": 16, "a age": 5, "a exclusive": 4, "a offered": 6, "a withheld": 0,
		"z cpus": 8, "z age": 0}
	var wrong error
	h.o.Prometheus = &Prometheus{Name: "http://prom:9090", Query: func(_ context.Context, expr string) (model.Vector,
		error) {
		if strings.Contains(expr, "cluster") {
			t.Errorf("asked for %s", expr)
		}
		return series(values), wrong
	}}
	state := func() fleetView { return h.fleet() }
	w.next(t, h, 0)
	if f := state(); asks(w) != "a1 b1" || *f.Nodes[0].Exclusive != 2 || f.Nodes[0].Measured != 0 ||
		f.Prometheus.Nodes != 1 {
		t.Errorf("at first, a's own answer is newer: %+v %+v", f.Nodes[0], f.Prometheus)
	}
	for range 4 {
		w.next(t, h, 15*time.Second)
	}
	if got := asks(w); got != "a1 b4" {
		t.Errorf("in four rounds the daemons are asked %s", got)
	}
	delete(values, "a withheld")
	w.next(t, h, 15*time.Second)
	n := state().Nodes[0]
	if want := w.now.Add(-5 * time.Second); n.Heard < want.UnixMilli() && (n.Measured != want.UnixMilli() ||
		*n.Exclusive != 4 || *n.Lent != 6 || n.Used != nil || n.Withheld != nil) {
		t.Errorf("a: %+v", n)
	}
	b.summary.Lent, a.summary.Lent = nil, nil
	values["b cpus"], values["b age"], values["b offered"] = 8, 1, 0
	for range 5 {
		w.next(t, h, 15*time.Second)
	}
	w.next(t, h, 3*time.Second)
	for _, n := range state().Nodes {
		if n.Lent != nil || n.Measured == 0 && n.Heard != w.now.UnixMilli() {
			t.Errorf("%s lends nothing: %+v", n.Name, n)
		}
	}
	asks(w)
	// It fails: what it said counts while it is fresh, and then each node is asked.
	wrong = errors.New("connection refused\x1b")
	w.next(t, h, 15*time.Second)
	f := state()
	if f.Prometheus.Problem != "http://prom:9090: connection refused?" || f.Prometheus.Nodes != 2 || f.Problem != "" {
		t.Errorf("%+v", f.Prometheus)
	}
	w.next(t, h, freshFor)
	asks(w)
	for range 4 {
		w.next(t, h, 15*time.Second)
	}
	if f = state(); asks(w) != "a4 b4" || f.Prometheus.Nodes != 0 || f.Nodes[0].Measured != 0 ||
		*f.Nodes[0].Exclusive != 2 {
		t.Errorf("without it: %+v, %+v", f.Prometheus, f.Nodes[0])
	}
	// It is back; a node that does not answer is asked in each round, and has its numbers.
	wrong, b.wrong = nil, errors.New("no route to host")
	for range 6 {
		w.next(t, h, 15*time.Second)
	}
	if f = state(); f.Prometheus.Problem != "" || f.Nodes[1].Wrong == "" || f.Nodes[1].Measured == 0 ||
		f.Sums.Silent != 1 {
		t.Errorf("again: %+v, %+v", f.Prometheus, f.Nodes[1])
	}
	asks(w)
	w.next(t, h, 15*time.Second)
	if got := asks(w); !strings.HasSuffix(got, " b1") {
		t.Errorf("asked are %s", got)
	}
	// One whose daemon's pod is gone is gone, whatever Prometheus knows.
	w.daemons = w.daemons[:1]
	w.next(t, h, 15*time.Second)
	if n := state().Nodes[1]; n.Wrong != "its daemon's pod is gone" {
		t.Errorf("%+v", n)
	}
}

// scraped is a daemon's metrics, with CPUs of its own and lending, and counts scrapes.
func scraped(t *testing.T, lent float64, scrapes *atomic.Int64) (address string) {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pod := policy.Pod{UID: "u", Sandbox: "s", Namespace: "shop", Name: "db", QoS: policy.Guaranteed,
		Labels:    map[string]string{policy.LabelClass: "LSR"},
		Resources: &policy.Resources{RequestMilli: 4000, LimitMilli: 4000}}
	ctr := policy.Container{ID: "c", Sandbox: "s", Name: "main", Resources: *pod.Resources}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod, Container: ctr}} {
		if _, err := m.Step(time.Unix(0, 0), e); err != nil {
			t.Fatal(err)
		}
	}
	set := metrics.New("test", func() (metrics.Stats, bool) {
		s := metrics.FromSnapshot(m.Snapshot(), time.Unix(0, 0))
		s.Lending = &metrics.Lending{Capacity: 16, Offered: lent, Withheld: 2,
			Used: &metrics.Used{Production: 3, Batch: 2, Outside: 0.5}}
		return s, true
	})
	inner := metrics.Handler(set, metrics.NewHealth(time.Now, time.Now))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		scrapes.Add(1)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// A real Prometheus that scrapes two daemons of this cluster, one of them twice, and one of another with the same name.
func TestRealPrometheus(t *testing.T) {
	t.Parallel()
	promtest.Tool(t, "prometheus")
	var scrapes [4]atomic.Int64
	job := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n  - job_name: quietcore\n" +
		"    static_configs:\n"
	for i, labels := range []string{"node: a, cluster: one", "node: a, cluster: one, replica: again",
		"node: b, cluster: one", "node: a, cluster: two"} {
		job += fmt.Sprintf("      - {targets: [%q], labels: {%s}}\n", scraped(t, float64(i+1), &scrapes[i]), labels)
	}
	at := promtest.Start(t, job)
	client, err := prom.New(prom.Server{URL: at.URL, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p := &Prometheus{Query: client.Query, Name: at.URL, Matchers: `cluster="one"`}
	var got map[string]*measured
	dated := false
	promtest.Until(t, "three daemons are scraped", func() bool {
		for i := range scrapes {
			if scrapes[i].Load() == 0 {
				return false
			}
		}
		answer, err := client.Query(t.Context(), p.expression())
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if got, err = p.read(answer, now); err != nil {
			return false // nothing is stored yet
		}
		for _, m := range got {
			if age := now.Sub(m.at); age < 0 || age > time.Minute {
				t.Errorf("scraped %s ago", age)
			}
			dated, m.at = dated || m.at.Before(now), time.Time{}
		}
		return len(got) == 2 && dated && *got["a"].Lent == 2
	})
	want := map[string]*measured{
		"a": {heat: heat{CPUs: 16, Used: amountOf(5.5), Exclusive: amountOf(4), Lent: amountOf(2),
			Withheld: amountOf(2)}},
		"b": {heat: heat{CPUs: 16, Used: amountOf(5.5), Exclusive: amountOf(4), Lent: amountOf(3),
			Withheld: amountOf(2)}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); d != "" {
		t.Error(d)
	}
	p.Matchers = `cluster="two"`
	answer, err := client.Query(t.Context(), p.expression())
	if err != nil {
		t.Fatal(err)
	}
	if got, err = p.read(answer, noon); err != nil || len(got) != 1 || *got["a"].Lent != 4 {
		t.Errorf("of the other cluster: %v, %v", slices.Collect(maps.Keys(got)), err)
	}
	p.Matchers = `cluster=`
	if _, err = client.Query(t.Context(), p.expression()); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("a matcher that is none: %v", err)
	}
}
