package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/metrics"
)

func scrapeOf(t *testing.T, d *daemon) string {
	t.Helper()
	w := httptest.NewRecorder()
	metrics.Handler(d.metrics, metrics.NewHealth(time.Now, time.Now)).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func testDaemon(t *testing.T) (*performance, *loop.Loop) {
	t.Helper()
	d := &daemon{log: newLog(t.Output(), config.LogText, nil), metrics: metrics.New("v", func() (metrics.Stats, bool) {
		return metrics.Stats{}, false
	})}
	d.health = metrics.NewHealth(nil, nil)
	l, err := loop.New(loop.Options{Detector: detect.DefaultConfig(), Snapshot: d.plugin.Snapshot,
		Submit: d.plugin.Submit})
	if err != nil {
		t.Fatal(err)
	}
	return &performance{d: d}, l
}

// What is wrong with the cluster's specs is told and stops nothing; where none are
// wanted nothing is told.
func TestSpecsOfTheCluster(t *testing.T) {
	p, l := testDaemon(t)
	if r := p.specs(&config.Prometheus{}, l); r != nil || p.whyNoSpecs() != "" {
		t.Error("somebody is asked though nobody was named")
	}
	if strings.Contains(scrapeOf(t, p.d), "quietcore_cpi_cluster") {
		t.Error("there are metrics of what is off")
	}
	if r := p.specs(&config.Prometheus{URL: "http://127.0.0.1:1", CAFile: "/nowhere"}, l); r != nil {
		t.Error("a reader without its authorities")
	}
	if r := p.specs(&config.Prometheus{URL: "http://127.0.0.1:1"}, l); r == nil {
		t.Fatal("no reader")
	}
	if !strings.Contains(scrapeOf(t, p.d), "quietcore_cpi_cluster_specs_age_seconds") {
		t.Error("no metrics of the cluster's specs")
	}
	s := &control.Status{Connected: true, Synchronised: true}
	s.CPI.Specs = "no answer"
	if got := notes(s); len(got) != 1 || got[0] != "specs of the cluster: no answer" {
		t.Errorf("status notes %q", got)
	}
}

func TestFindingsAreCounted(t *testing.T) {
	p, _ := testDaemon(t)
	count(p.d.metrics, &loop.Finding{Kind: detect.AnalysisEvent, Verdict: detect.Cap, Victim: loop.Subject{Job: "a"},
		Antagonists: []loop.Subject{{Job: "b"}}})
	count(p.d.metrics, &loop.Finding{Kind: detect.OutcomeEvent, Outcome: &detect.Outcome{Result: detect.Refused}})
	if !strings.Contains(scrapeOf(t, p.d), "quietcore_cpi_blamed_total") {
		t.Error("nobody is blamed")
	}
}
