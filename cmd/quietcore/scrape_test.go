package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/quietcore/quietcore/internal/promtest"
)

// metered is a place whose daemon serves metrics there.
func metered(t *testing.T, more string) (p place, url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	p = newPlace(t, more)
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, bytes.Replace(text, []byte(`listen: ""`), []byte("listen: "+address), 1),
		0o600); err != nil {
		t.Fatal(err)
	}
	return p, "http://" + address + "/metrics"
}

// scraped is what a daemon serves; nil where it does not answer.
func scraped(url string) []byte {
	r, err := http.Get(url)
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return nil
	}
	return body
}

// A whole daemon, with everything that the configuration can switch on and this
// machine has.
func TestMetricsOfAWholeDaemon(t *testing.T) {
	p, url := metered(t,
		"cpi: {mode: enforce, containerSeries: 600, jobSeries: 1000, specs: {prometheus: {url: "+
			"'http://127.0.0.1:9'}}}\nreclaim: {mode: enforce}\nsuppression: {mode: enforce}")
	p.start(t)
	var body []byte
	waitUntil(t, "metrics are served", func() bool { body = scraped(url); return body != nil })
	series := 0
	for line := range bytes.Lines(body) {
		if line[0] != '#' {
			series++
		}
	}
	if t.Logf("%d series", series); series > 310 || series < 200 {
		t.Errorf("%d series, the budget is 310", series)
	}
	for _, want := range []string{
		`quietcore_config_info{cpi="enforce",mode="enforce",reclaim="enforce",suppression="enforce"} 1`,
		`quietcore_config_last_reload_successful 1`, `quietcore_ready 0`,
		`quietcore_degraded{feature="other"} 0`, `quietcore_nri_request_timeout_seconds 2`,
		`quietcore_nri_connected 0`, `quietcore_node_resource_topology_stale_seconds 0`,
	} {
		if !bytes.Contains(body, []byte("\n"+want+"\n")) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if bytes.Contains(body, []byte("quietcore_shared_pool_floor_cpus 0\n")) {
		t.Error("the shared pool has no floor")
	}
	check := exec.Command(promtest.Tool(t, "promtool"), "check", "metrics")
	check.Stdin = bytes.NewReader(body)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// Whoever scrapes while the daemon ends and starts anew is refused, or has all.
func TestScrapesDuringARestart(t *testing.T) {
	p, url := metered(t, "")
	_, stop := p.start(t)
	done := make(chan struct{})
	var scrapers sync.WaitGroup
	for range 3 {
		scrapers.Go(func() {
			for {
				if body := scraped(url); body != nil && (!bytes.Contains(body, []byte("\nquietcore_build_info{")) ||
					!bytes.HasSuffix(body, []byte("\n"))) {
					t.Errorf("a part of the metrics:\n%s", body)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 3 {
		waitUntil(t, "metrics are served", func() bool { return scraped(url) != nil })
		if code := stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		_, stop = p.start(t)
	}
	close(done)
	scrapers.Wait()
}
