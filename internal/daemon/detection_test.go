package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(m, metrics.NewHealth(time.Now, time.Now)).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func noStats() (metrics.Stats, bool) { return metrics.Stats{}, false }

func testCounting(t *testing.T) (*counting, *loop.Loop) {
	t.Helper()
	cfg := config.Default()
	n := &node{}
	l, err := loop.New(loop.Options{
		Detector: detect.DefaultConfig(),
		Submit:   func(ctx context.Context, e policy.Event) error { return n.Submit(ctx, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return newCounting(countingOptions{
		config: &cfg, node: n, proven: newProven(), metrics: metrics.New("v", noStats),
		log: NewLog(t.Output(), config.LogText, nil),
	}), l
}

// What is wrong with the cluster's specs is reported and stops nothing; where none are
// wanted nothing is.
func TestSpecsOfTheCluster(t *testing.T) {
	p, l := testCounting(t)
	if r := p.specs(&config.Prometheus{}, l); r != nil || p.Health()[metrics.FeatureSpecs] != "" {
		t.Error("a server is asked though none was named")
	}
	if strings.Contains(scrape(t, p.o.metrics), "quietcore_cpi_cluster") {
		t.Error("there are metrics of what is off")
	}
	if r := p.specs(&config.Prometheus{URL: "http://127.0.0.1:1", CAFile: "/nowhere"}, l); r != nil {
		t.Error("a reader without its authorities")
	}
	if why := p.Health()[metrics.FeatureSpecs]; !strings.Contains(why, "/nowhere") {
		t.Errorf("health says %q of a reader without its authorities", why)
	}
	if r := p.specs(&config.Prometheus{URL: "http://127.0.0.1:1"}, l); r == nil {
		t.Fatal("no reader")
	}
	if !strings.Contains(scrape(t, p.o.metrics), "quietcore_cpi_cluster_specs_age_seconds") {
		t.Error("no metrics of the cluster's specs")
	}
}

func TestFindingsAreCounted(t *testing.T) {
	p, _ := testCounting(t)
	count(p.o.metrics, &loop.Finding{Kind: detect.AnalysisEvent, Verdict: detect.Cap, Victim: &cpi.Container{Job: "a"},
		Antagonists: []*cpi.Container{{Job: "b"}}})
	count(p.o.metrics, &loop.Finding{Kind: detect.OutcomeEvent, Outcome: &detect.Outcome{Result: detect.Refused}})
	// A test that ends in a verdict is a cap that helps; one that is given up is none that failed.
	for _, result := range []detect.Result{detect.Success, detect.Failure} {
		count(p.o.metrics, &loop.Finding{Kind: detect.OutcomeEvent, Test: &loop.Test{},
			Outcome: &detect.Outcome{Result: result}})
	}
	text := scrape(t, p.o.metrics)
	for _, want := range []string{"quietcore_cpi_blamed_total", `quietcore_cpi_outcomes_total{result="refused"} 1`,
		`quietcore_cpi_outcomes_total{result="success"} 1`, `quietcore_cpi_outcomes_total{result="failure"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

type marker struct{ asked chan lend.Pod }

func (m marker) Look(context.Context, lend.Pod) (lend.Marked, error) { return lend.Marked{}, nil }

func (m marker) Mark(_ context.Context, pod lend.Pod, mark lend.Mark) error {
	if mark.On {
		m.asked <- pod
	}
	return nil
}

// Of what the detector finds only its decisions to evict are carried out.
func TestDecisionsToEvictAreCarriedOut(t *testing.T) {
	p, _ := testCounting(t)
	decided := &loop.Finding{Kind: detect.CommandEvent, Command: detect.DoEvict, Why: "capped 3 times in 1h"}
	decided.Target = &cpi.Container{PodUID: "uid-a", Namespace: "jobs", Pod: "a"}
	p.evict(decided) // nothing evicts: nothing happens
	api := marker{make(chan lend.Pod, 9)}
	p.o.evictions = evictions{lend.NewQueue(lend.NewEvictor(lend.EvictorOptions{API: api}), p.o.log)}
	for _, f := range []*loop.Finding{
		{Kind: detect.AnalysisEvent}, {Kind: detect.CommandEvent, Command: detect.DoCap}, decided,
	} {
		p.evict(f)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { p.o.evictions.queue.Run(ctx); close(ended) }()
	if got, want := <-api.asked, (lend.Pod{UID: "uid-a", Namespace: "jobs", Name: "a"}); got != want {
		t.Errorf("evicted is %v, want %v", got, want)
	}
	stop()
	if <-ended; len(api.asked) > 0 {
		t.Errorf("evicted is %v too", <-api.asked)
	}
}

// TestWhereIncidentsAreKept: mode observe writes nothing of the node's own, and keeps incidents
// all the same.
func TestWhereIncidentsAreKept(t *testing.T) {
	for _, c := range []struct {
		mode config.Mode
		cpi  config.CPIMode
		want string // the folder
	}{
		{config.Enforce, config.CPIObserve, "state"},
		{config.Enforce, config.CPIEnforce, "state"},
		{config.Observe, config.CPIObserve, "run"},
		{config.Enforce, config.CPIOff, ""},
		{config.Observe, config.CPIOff, ""},
	} {
		dir := t.TempDir()
		cfg := config.Default()
		cfg.Mode, cfg.CPI.Mode = c.mode, c.cpi
		cfg.State.Dir, cfg.Socket = filepath.Join(dir, "state"), filepath.Join(dir, "run", "quietcore.sock")
		for _, name := range []string{"state", "run"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s := newIncidentStore(&cfg)
		if s.lookFrom(&cfg); s.begun.has() == (c.want == "") {
			t.Errorf("%s, cpi %s: a database: %t, want folder %q", c.mode, c.cpi, s.begun.has(), c.want)
		}
		if c.want == "" {
			continue
		}
		s.Put(incidents.Incident{At: time.Now(), Node: "node-a"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Run(ctx) // to the end: what is queued is written
		files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		want := filepath.Join(dir, c.want, state.IncidentsFile)
		if err != nil || !slices.Equal(files, []string{want}) || s.Stats().Written != 1 {
			t.Errorf("%s, cpi %s: files %v, %+v; want %s", c.mode, c.cpi, files, s.Stats(), want)
		}
	}
}

// A policy that is taken over while the counters are being opened is not blamed for what they lack.
func TestCountersThatAreNotOpenYetAreMissing(t *testing.T) {
	p, _ := testCounting(t)
	const want = "the counters are being opened"
	if why := p.Health()[metrics.FeatureCPI]; why != want || p.report().CPI.Why != want {
		t.Errorf("health says %q, the report %q", why, p.report().CPI.Why)
	}
	p.cfg.Mode = config.CPIOff
	if why := p.Health()[metrics.FeatureCPI]; why != "" || p.report().CPI.Why != "" {
		t.Errorf("off, health says %q, the report %q", why, p.report().CPI.Why)
	}
}
