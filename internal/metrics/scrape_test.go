package metrics_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

const thousand = 1000

// node is a daemon's parts that a scrape asks, without a runtime: the plugin has
// placed a thousand containers, and what counting finds is made up.
type node struct {
	plugin  *plugin.Plugin
	metrics *metrics.Metrics
	handler http.Handler
}

// longest is a name as long as Kubernetes allows.
func longest(prefix string) string { return prefix + strings.Repeat("n", 253-len(prefix)) }

func newNode(tb testing.TB, containers, containerSeries, jobSeries int, podName func(int) string) *node {
	tb.Helper()
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2}.Build()
	if err != nil {
		tb.Fatal(err)
	}
	n := &node{}
	stats := func() (metrics.Stats, bool) {
		s := metrics.FromSnapshot(n.plugin.Snapshot(), time.Now())
		s.Unpinned, s.Unsaved, s.SharedFloor = n.plugin.Unpinned(), n.plugin.Unsaved(), 2
		s.Modes = metrics.Modes{Mode: "enforce", CPI: "enforce", Reclaim: "enforce", Suppression: "enforce"}
		s.Lending = &metrics.Lending{Capacity: 512, Used: &metrics.Used{Production: 200.5, Batch: 100.25, Outside: 3},
			Supply: 211.75, Offered: 180, Published: 180, Promised: 150, Demand: 91.5, Budget: 200}
		return s, true
	}
	n.metrics = metrics.New("v1.2.3", stats)
	cfg := config.Default()
	n.plugin, err = plugin.New(plugin.Options{Topology: topo, Config: cfg.Policy(),
		Socket: filepath.Join(tb.TempDir(), "no-runtime"), Metrics: n.metrics})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { n.plugin.Run(ctx) })
	tb.Cleanup(func() { cancel(); parts.Wait() })
	health := metrics.NewHealth(time.Now, n.plugin.Beat)
	health.Require("not registered with the runtime", n.plugin.Connected)
	n.handler = metrics.Handler(n.metrics, health)
	n.metrics.CPICounting(true, containerSeries)
	jobs := make([]detect.JobInfo, 0, containers)
	for i := range containers {
		n.start(tb, podName(i), i)
		jobs = append(jobs, detect.JobInfo{Job: fmt.Sprintf("web/Deployment/frontend-%03d/main", i),
			Platform: "Intel(R) Xeon(R) Gold 6230R CPU @ 2.10GHz performance", Tasks: 12, Source: detect.FromBoth})
	}
	for { // a busy loop answers with the previous state
		if _, current := n.plugin.Look(); current {
			break
		}
	}
	n.metrics.CPIJobs(jobSeries, func() []detect.JobInfo { return jobs })
	n.metrics.CPIDetector(func() metrics.Detection {
		return metrics.Detection{Outliers: 12345, Anomalies: 123, Jobs: jobs,
			Tests: &experiment.Counters{Tests: 8}}
	})
	n.metrics.CPIClusterSpecs(func() metrics.ClusterSpecs { return metrics.ClusterSpecs{InUse: containers} })
	for i, victim := range jobs {
		n.metrics.CPIBlamed(victim.Job, jobs[(i*7+1)%len(jobs)].Job)
	}
	n.window(podName, jobs)
	return n
}

func (n *node) start(tb testing.TB, name string, i int) {
	tb.Helper()
	class, qos, milli := "LS", policy.Burstable, int64(100)
	switch {
	case i%10 == 0:
		class, qos, milli = "LSR", policy.Guaranteed, 1000
	case i%3 == 0:
		class, qos, milli = "BE", policy.BestEffort, 0
	}
	uid := fmt.Sprintf("uid-%d", i)
	limit := milli
	if qos != policy.Guaranteed {
		limit = policy.NoLimit
	}
	p := policy.Pod{
		UID: uid, Sandbox: "sb-" + uid, Namespace: "web", Name: name, QoS: qos,
		Labels:    policy.Relevant(map[string]string{policy.LabelClass: class}, ""),
		Resources: &policy.Resources{RequestMilli: milli, LimitMilli: limit},
	}
	c := policy.Container{ID: "id-" + uid, Sandbox: p.Sandbox, Name: "main", Resources: *p.Resources,
		Shares: max(2, milli)}
	for _, e := range []policy.Event{policy.PodRun{Pod: p}, policy.ContainerCreate{Pod: p, Container: c}} {
		if err := n.plugin.Submit(tb.Context(), e); err != nil {
			tb.Fatal(err)
		}
	}
}

// window is one window of counting, and a round of learning.
func (n *node) window(podName func(int) string, jobs []detect.JobInfo) {
	w := &metrics.CPIWindow{Length: 10 * time.Second, Running: 1, Followed: len(jobs), Cost: 3 * time.Millisecond}
	var learned []detect.Learned
	for i := range jobs {
		class := "LS"
		if i%3 == 0 {
			class = "BE"
		}
		w.Containers = append(w.Containers, sample.Result{
			Container: &cpi.Container{Namespace: "web", Pod: podName(i), Name: "main", PodClass: class},
			Sample: sample.Sample{Length: 10 * time.Second, Usage: 2, CPI: 2, Reference: true, HasMPKI: true, MPKI: 1,
				HasWait: true},
			Delta: sample.Counts{
				Events: [sample.NumEvents]uint64{sample.Cycles: 51234567890, sample.Instructions: 21234567890,
					sample.RefCycles: 41234567890, sample.LLCMisses: 21234567},
				OnCPU: 20123456789, Wait: 5123456789,
			},
		})
		learned = append(learned, detect.Learned{Job: jobs[i].Job, Platform: jobs[i].Platform, Band: i % detect.Bands,
			CPI: 0.5 + float64(i%40)/10, Usage: 1.25})
	}
	n.metrics.CPIWindow(w)
	n.metrics.CPILearned(learned)
}

func usual(i int) string { return fmt.Sprintf("frontend-%03d-7d4f9c6b5-x2x9q", i) }

func scrape(tb testing.TB, h http.Handler, header http.Header) []byte {
	tb.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		tb.Fatalf("status %d: %.500s", w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// series counts lines that are samples, by the beginning of their name.
func series(body []byte, prefix string) int {
	n := 0
	for line := range bytes.Lines(body) {
		if line[0] != '#' && bytes.HasPrefix(line, []byte(prefix)) {
			n++
		}
	}
	return n
}

// fixed are the samples that no configuration has asked for.
func fixed(body []byte) int {
	n := series(body, "")
	for _, asked := range []string{"quietcore_cpi_container_", "quietcore_job_cpi", "quietcore_cpi_cluster_"} {
		n -= series(body, asked)
	}
	return n
}

// The fixed set is the same with a thousand containers as with none, and what is
// asked for is never more than what was allowed.
func TestSeriesOfAThousandContainers(t *testing.T) {
	for _, allowed := range []struct{ containers, jobs int }{{0, 0}, {600, 1000}, {6 * thousand, 20000}} {
		t.Run(fmt.Sprintf("containerSeries=%d,jobSeries=%d", allowed.containers, allowed.jobs), func(t *testing.T) {
			n := newNode(t, thousand, allowed.containers, allowed.jobs, usual)
			body := scrape(t, n.handler, nil)
			if !bytes.Contains(body, []byte("\nquietcore_pool_containers{pool=\"exclusive\"} 100\n")) {
				t.Errorf("the thousand are not there:\n%s",
					regexp.MustCompile(`(?m)^quietcore_pool.*$`).FindAll(body, -1))
			}
			if n := fixed(body); n > 345 || n < 200 {
				t.Errorf("the fixed set has %d series, the budget is 345", n)
			}
			if n := series(body, "quietcore_cpi_container_"); n > allowed.containers || n < allowed.containers/6*6 {
				t.Errorf("%d series of containers, allowed are %d", n, allowed.containers)
			}
			if n := series(body, "quietcore_job_cpi"); n > allowed.jobs+1 || allowed.jobs > 0 && n < allowed.jobs/2 {
				t.Errorf("%d series of jobs, allowed are %d", n, allowed.jobs)
			}
			if n := series(body, "quietcore_cpi_blamed_total"); n != 21 {
				t.Errorf("%d pairs, want the 21 of the fixed set", n)
			}
			t.Logf("%d series, %d of the fixed set; %d bytes", series(body, ""), fixed(body), len(body))
		})
	}
}

// Names of the greatest length, with what breaks formats, in every label.
func TestHostileNamesInASeries(t *testing.T) {
	hostile := []string{longest("a"), "x\ny", "\x1b[31mred\x1b]0;title\x07", `<img src=x onerror=1>`,
		"q\"} 1\nevil_total 9", `back\slash`, "\xff\xfe", "\u202egnp", "", "a\x00b"}
	n := newNode(t, len(hostile), 6*len(hostile), 0, func(i int) string { return hostile[i] })
	body := scrape(t, n.handler, nil)
	if !utf8.Valid(body) || bytes.ContainsAny(body, "\x00\x1b") || bytes.Contains(body, []byte("\nevil_total")) {
		t.Error("a name broke out of its label")
	}
	for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0",
		protobuf} {
		families := decode(t, n.handler, accept)
		if f := families["quietcore_cpi_container_cycles_total"]; len(f.GetMetric()) != len(hostile) {
			t.Errorf("%s: %d containers have series, want %d", accept, len(f.GetMetric()), len(hostile))
		}
	}
}

const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

func decode(t *testing.T, h http.Handler, accept string) map[string]*dto.MetricFamily {
	t.Helper()
	body := scrape(t, h, http.Header{"Accept": {accept}})
	if strings.Contains(accept, "openmetrics") {
		if !bytes.HasSuffix(body, []byte("\n# EOF\n")) {
			t.Error("OpenMetrics without an end")
		}
		accept = "text/plain" // near enough once the end is off
		body = bytes.TrimSuffix(body, []byte("# EOF\n"))
		body = regexp.MustCompile(`(?m)^# TYPE (\S+) counter$`).ReplaceAll(body, []byte("# TYPE ${1}_total counter"))
		body = regexp.MustCompile(`(?m)^# HELP (\S+) .*\n`).ReplaceAll(body, nil)
	}
	out := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(bytes.NewReader(body), expfmt.ResponseFormat(http.Header{"Content-Type": {accept}}))
	for {
		f := &dto.MetricFamily{}
		switch err := decoder.Decode(f); err {
		case nil:
			out[f.GetName()] = f
		case io.EOF:
			return out
		default:
			t.Fatalf("%s: %v", accept, err)
		}
	}
}

// A histogram of times has classic buckets and native ones, and of the latter a
// bounded number whatever the times are.
func TestHistogramsAreNativeAndClassic(t *testing.T) {
	n := newNode(t, 1, 0, 0, usual)
	for ns := time.Duration(1); ns < 1000*time.Hour; ns += ns/20 + 1 {
		n.metrics.Request("CreateContainer", "ok", ns)
		n.metrics.Synchronized(1, ns)
	}
	families := decode(t, n.handler, protobuf)
	for name, labelled := range map[string]int{"quietcore_nri_request_duration_seconds": 4,
		"quietcore_synchronize_duration_seconds": 1} {
		f := families[name]
		if len(f.GetMetric()) != labelled {
			t.Errorf("%s has %d series, want %d", name, len(f.GetMetric()), labelled)
		}
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			if len(h.GetBucket()) == 0 {
				t.Errorf("%s has no classic bucket", name)
			}
			if h.Schema == nil || h.GetZeroThreshold() == 0 {
				t.Errorf("%s is not native", name)
			}
			if buckets := len(h.GetPositiveDelta()) + len(h.GetNegativeDelta()); buckets > 101 ||
				h.GetSampleCount() > 0 && buckets < 20 {
				t.Errorf("%s has %d native buckets, want at most 101", name, buckets)
			}
		}
	}
}

// Prometheus, a second one, and a person with curl ask at once, while pods come and
// go, and while the daemon ends and starts anew.
func TestScrapesInParallel(t *testing.T) {
	n := newNode(t, 50, 6*thousand, 20000, usual)
	server := httptest.NewServer(n.handler)
	defer server.Close()
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(done)
		for i := range 50 {
			n.start(t, usual(thousand+i), thousand+i)
			n.metrics.Request("CreateContainer", "ok", time.Millisecond)
			n.metrics.Saved(nil)
			n.window(usual, make([]detect.JobInfo, 50+i))
		}
	})
	var mu sync.Mutex
	codes := map[int]int{}
	for range 8 {
		work.Go(func() {
			for {
				r, err := http.Get(server.URL + "/metrics")
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil {
					t.Error(err)
				}
				if r.StatusCode == http.StatusOK && (fixed(body) > 345 ||
					!bytes.Contains(body, []byte("\nquietcore_build_info{"))) {
					t.Errorf("a part of the metrics: %d series", fixed(body))
				}
				mu.Lock()
				codes[r.StatusCode]++
				mu.Unlock()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	work.Wait()
	for code := range codes {
		if !slices.Contains([]int{http.StatusOK, http.StatusServiceUnavailable}, code) {
			t.Errorf("answers by status: %v", codes)
		}
	}
	if codes[http.StatusOK] == 0 {
		t.Errorf("no request was answered: %v", codes)
	}
	t.Logf("answers by status: %v", codes)
}

func used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScrape is one answer on a node with a thousand containers: as the
// configuration is by default, and with series for each container.
func BenchmarkScrape(b *testing.B) {
	for _, name := range []string{"default", "each"} {
		allowed := map[string]int{"default": 0, "each": 6 * thousand}[name]
		for _, format := range []struct {
			name   string
			header http.Header
		}{
			{"text", nil},
			{"gzip", http.Header{"Accept-Encoding": {"gzip"}}},
			{"protobuf", http.Header{"Accept": {protobuf}, "Accept-Encoding": {"gzip"}}},
		} {
			b.Run(name+"/"+format.name, func(b *testing.B) {
				n := newNode(b, thousand, allowed, 0, usual)
				size := len(scrape(b, n.handler, format.header))
				b.ReportAllocs()
				b.ResetTimer()
				best, before := time.Duration(math.MaxInt64), used(b)
				for range b.N {
					scrape(b, n.handler, format.header)
					now := used(b)
					best, before = min(best, now-before), now
				}
				// The least, since what else a machine does takes caches away.
				b.ReportMetric(float64(best.Microseconds())/1000, "least-cpu-ms")
				b.ReportMetric(float64(size)/(1<<20), "MiB")
			})
		}
	}
}

func TestAScrapeIsSmall(t *testing.T) {
	n := newNode(t, thousand, 6*thousand, 0, usual)
	plain, packed := scrape(t, n.handler, nil), scrape(t, n.handler, http.Header{"Accept-Encoding": {"gzip"}})
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || series(text, "") != series(plain, "") {
		t.Errorf("packed it is another: %v, %d bytes", err, len(text))
	}
	t.Logf("%d bytes, packed %d", len(plain), len(packed))
	if len(plain) > 1<<20 {
		t.Errorf("%d bytes, want at most 1 MiB", len(plain))
	}
}
