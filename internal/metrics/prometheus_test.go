package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// tool finds a program of Debian's package prometheus. CI has it.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatalf("%v: install the package prometheus", err)
		}
		t.Skipf("%v: it is in the package prometheus", err)
	}
	return path
}

func TestPromtoolFindsNothing(t *testing.T) {
	n := newNode(t, 20, 60, 600, usual)
	cmd := exec.Command(tool(t, "promtool"), "check", "metrics")
	cmd.Stdin = bytes.NewReader(scrape(t, n.handler, nil))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// prometheus runs one that scrapes a server every second, until the test ends.
func prometheus(t *testing.T, target string, flags ...string) (address string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yaml")
	config := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs: [{job_name: quietcore, static_configs: [{targets: [%q]}]}]\n", target)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	cmd := exec.Command(tool(t, "prometheus"), append(flags, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // how it ends says nothing
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("Prometheus: %s", log.String())
		}
	})
	return address
}

// until asks Prometheus until an expression has an answer that is wanted.
func until(t *testing.T, address, expression string, wanted func([]float64) bool) {
	t.Helper()
	const patience = 2 * time.Minute
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); ; <-again.C {
		got, err := ask(address, expression)
		if err == nil && wanted(got) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s %s is %v, %v", patience, expression, got, err)
		}
	}
}

func ask(address, expression string) ([]float64, error) {
	r, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expression, answer.Error)
	}
	var list []float64
	for _, one := range answer.Data.Result {
		text, _ := one.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// A real Prometheus stores the native histograms where it is told to, and else the
// classic buckets, and gets much the same percentile of both.
func TestARealPrometheusStoresBothKindsOfHistograms(t *testing.T) {
	tool(t, "prometheus")
	n := newNode(t, 10, 60, 600, usual)
	for range 990 {
		n.metrics.Request("CreateContainer", "ok", 700*time.Microsecond)
	}
	for range 20 {
		n.metrics.Request("CreateContainer", "deadline", 1200*time.Millisecond)
	}
	server := httptest.NewServer(n.handler)
	defer server.Close()
	target := server.Listener.Addr().String()
	one := func(low, high float64) func([]float64) bool {
		return func(v []float64) bool { return len(v) == 1 && v[0] >= low && v[0] <= high }
	}
	none := func(v []float64) bool { return len(v) == 0 }
	const name = `quietcore_nri_request_duration_seconds`

	native := prometheus(t, target, "--enable-feature=native-histograms")
	until(t, native, `histogram_count(`+name+`{event="CreateContainer"})`, one(1010, 1010))
	until(t, native, `histogram_quantile(0.5, `+name+`{event="CreateContainer"})`, one(0.00066, 0.00074))
	until(t, native, `histogram_quantile(0.99, `+name+`{event="CreateContainer"})`, one(1.1, 1.3))

	classic := prometheus(t, target)
	until(t, classic, name+`_count{event="CreateContainer"}`, one(1010, 1010))
	until(t, classic, `histogram_quantile(0.5, `+name+`_bucket{event="CreateContainer"})`, one(0.0002, 0.001))
	until(t, classic, `histogram_quantile(0.99, `+name+`_bucket{event="CreateContainer"})`, one(1, 2))
	until(t, classic, name, none)
	// All that was scraped is stored, and no sample is refused for its time or order.
	for _, address := range []string{native, classic} {
		until(t, address, `up{job="quietcore"} and on() (scrape_samples_scraped == scrape_samples_post_metric_relabeling) and on() (scrape_samples_scraped > 200)`, one(1, 1))
		until(t, address, `count(quietcore_cpi_container_cycles_total)`, one(10, 10))
	}
}
