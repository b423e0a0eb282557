package metrics_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/promtest"
)

func TestPromtoolFindsNothing(t *testing.T) {
	n := newNode(t, 20, 60, 600, usual)
	cmd := exec.Command(promtest.Tool(t, "promtool"), "check", "metrics")
	cmd.Stdin = bytes.NewReader(scrape(t, n.handler, nil))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// prometheus runs one that scrapes a server every second, until the test ends.
func prometheus(t *testing.T, target string, flags ...string) promtest.Server {
	t.Helper()
	return promtest.Start(t,
		fmt.Sprintf(
			"global: {scrape_interval: 1s}\nscrape_configs: [{job_name: quietcore, static_configs: [{targets: "+
				"[%q]}]}]\n", target), flags...)
}

// until asks Prometheus until an expression has an answer that is wanted.
func until(t *testing.T, s promtest.Server, expression string, wanted func([]float64) bool) {
	t.Helper()
	promtest.Until(t, expression, func() bool {
		got, err := ask(s, expression)
		ok := err == nil && wanted(got)
		if !ok {
			t.Logf("%s is %v, %v", expression, got, err)
		}
		return ok
	})
}

func ask(s promtest.Server, expression string) ([]float64, error) {
	var data struct{ Result []struct{ Value [2]any } }
	if err := s.Get("/api/v1/query", url.Values{"query": {expression}}, &data); err != nil {
		return nil, err
	}
	var list []float64
	for _, one := range data.Result {
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
	promtest.Tool(t, "prometheus")
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
	for _, server := range []promtest.Server{native, classic} {
		until(t, server,
			`up{job="quietcore"} and on() (scrape_samples_scraped == scrape_samples_post_metric_relabeling) and `+
				`on() (scrape_samples_scraped > 200)`, one(1, 1))
		until(t, server, `count(quietcore_cpi_container_cycles_total)`, one(10, 10))
	}
}
