package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
)

// counted is a container with a sample: 20 s on CPUs in a window of 10 s, CPI 2.
func counted(pod string) sample.Result {
	return sample.Result{
		Container: &cpi.Container{Namespace: "default", Pod: pod, Name: "main", PodClass: "LS"},
		Sample: sample.Sample{Length: 10 * time.Second, Usage: 2, CPI: 2, Reference: true, HasMPKI: true, MPKI: 1,
			HasWait: true},
		Delta: sample.Counts{
			Events: [sample.NumEvents]uint64{sample.Cycles: 5e9, sample.Instructions: 2e9, sample.RefCycles: 4e9,
				sample.LLCMisses: 2e6},
			OnCPU: 20 * time.Second, Wait: 5 * time.Second,
		},
	}
}

func dropped(pod string, why sample.Reason) sample.Result {
	return sample.Result{Container: &cpi.Container{Namespace: "default", Pod: pod, Name: "main"}, Dropped: why}
}

func without(c sample.Result, why sample.Reason) sample.Result {
	c.CPI, c.NoCPI, c.HasMPKI, c.MPKI, c.Reference = 0, why, false, 0, false
	return c
}

func nothing() (Stats, bool) { return Stats{}, false }

func TestWindowsAreAddedUp(t *testing.T) {
	m := New("v1", nothing)
	m.CPICounting(true, perContainer)
	be := counted("batch")
	be.PodClass, be.HasWait = "BE", false
	core := counted("core")
	core.Reference, core.CPI = false, 2.5
	m.CPIWindow(&CPIWindow{Length: 10 * time.Second, Running: 0.95, Followed: 5, Unfollowed: 1, Faults: 7,
		Cost: 3 * time.Millisecond, Descriptors: 16, Calls: 5,
		Containers: []sample.Result{counted("web"), be, core, without(counted("shared"), sample.Partial),
			dropped("new", sample.First)}})
	m.CPIWindow(&CPIWindow{Dropped: true, Running: 1, Followed: 1,
		Containers: []sample.Result{dropped("web", sample.Clock)}})
	m.CPIWindow(&CPIWindow{Failed: true})
	m.CPIWindow(&CPIWindow{Length: 10 * time.Second, Running: 1, Followed: 2, Faults: 8, Cost: 4 * time.Millisecond,
		Descriptors: 16, Calls: 2, Step: 3, Roles: [sample.NumRoles]int{1, 0, 3, 4, 5},
		Containers: []sample.Result{counted("web"), without(counted("shared"), sample.Uncounted)}})
	want := `
quietcore_cpi_budget_step 3
quietcore_cpi_containers{state="followed"} 2
quietcore_cpi_containers{state="unfollowed"} 0
quietcore_cpi_counting 1
quietcore_cpi_cycles_total{class="be"} 4e+09
quietcore_cpi_cycles_total{class="production"} 1.3e+10
quietcore_cpi_descriptors 16
quietcore_cpi_faults_total 8
quietcore_cpi_instructions_total{class="be"} 2e+09
quietcore_cpi_instructions_total{class="production"} 6e+09
quietcore_cpi_llc_misses_total{class="be"} 2e+06
quietcore_cpi_llc_misses_total{class="production"} 6e+06
quietcore_cpi_on_cpu_seconds_total{class="be"} 20
quietcore_cpi_on_cpu_seconds_total{class="production"} 100
quietcore_cpi_overhead_seconds_total 0.004
quietcore_cpi_run_queue_wait_seconds_total{class="be"} 0
quietcore_cpi_run_queue_wait_seconds_total{class="production"} 25
quietcore_cpi_running_ratio 1
quietcore_cpi_samples_dropped_total{reason="absurd"} 0
quietcore_cpi_samples_dropped_total{reason="clock"} 1
quietcore_cpi_samples_dropped_total{reason="first"} 1
quietcore_cpi_samples_dropped_total{reason="partial"} 1
quietcore_cpi_samples_total 4
quietcore_cpi_window_seconds_total 20
quietcore_cpi_watched_containers{role="suspect"} 4
quietcore_cpi_watched_containers{role="turn"} 5
quietcore_cpi_watched_containers{role="victim"} 3
quietcore_cpi_window_calls 2
quietcore_cpi_windows_total{result="dropped"} 1
quietcore_cpi_windows_total{result="error"} 1
quietcore_cpi_windows_total{result="ok"} 2
quietcore_cpi_container_cycles_total{container="main",namespace="default",pod="web"} 8e+09
quietcore_cpi_container_instructions_total{container="main",namespace="default",pod="web"} 4e+09
quietcore_cpi_container_llc_misses_total{container="main",namespace="default",pod="web"} 4e+06
quietcore_cpi_container_on_cpu_seconds_total{container="main",namespace="default",pod="web"} 40
quietcore_cpi_container_run_queue_wait_seconds_total{container="main",namespace="default",pod="web"} 10
quietcore_cpi_container_window_seconds_total{container="main",namespace="default",pod="web"} 20
`
	got := scrape(t, m)
	for line := range strings.Lines(strings.TrimSpace(want)) {
		if !strings.Contains(got, strings.TrimSuffix(line, "\n")+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
	if n := strings.Count(got, "\nquietcore_cpi_container_"); n != perContainer {
		t.Errorf("%d series of containers, allowed are %d", n, perContainer)
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(m, NewHealth(time.Now, time.Now)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %.500s", w.Code, err, text)
	}
	return string(text)
}

func TestNoSeriesOfContainersUnlessAllowed(t *testing.T) {
	m := New("v1", nothing)
	m.CPICounting(true, 0)
	m.CPIWindow(&CPIWindow{Length: time.Second, Containers: []sample.Result{counted("web")}})
	if strings.Contains(scrape(t, m), "web") {
		t.Error("a container has series")
	}
}

// However containers come and go: never more series than allowed, no counter
// that goes back while its container runs, and no name that breaks a scrape.
func TestContainersKeepTheirSeries(t *testing.T) {
	hostile := []string{"x\n\x1b[31m", "\xff\xfe", "a\"b", strings.Repeat("y", 5000), "", "web"}
	rapid.Check(t, func(r *rapid.T) {
		allowed := rapid.IntRange(0, 40).Draw(r, "allowed")
		m := New("v1", nothing)
		m.CPICounting(true, allowed)
		before := map[containerKey]float64{}
		for range rapid.IntRange(1, 8).Draw(r, "windows") {
			w := &CPIWindow{Length: time.Second}
			here := map[containerKey]bool{}
			for range rapid.IntRange(0, 12).Draw(r, "containers") {
				c := rapid.SampledFrom([]sample.Result{counted(""), dropped("", sample.First),
					dropped("", sample.Ended), without(counted(""), sample.Zero)}).Draw(r, "container")
				c.Pod = rapid.SampledFrom(hostile).Draw(r, "pod")
				c.Name = fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "name"))
				w.Containers = append(w.Containers, c)
				here[keyOf(&c)] = here[keyOf(&c)] || c.Dropped != sample.Ended
			}
			m.CPIWindow(w)
			if n := testutil.CollectAndCount(m.cpi, containerFamilies()...); n > allowed ||
				len(m.cpi.containers)*perContainer != n {
				r.Fatalf("%d series of containers, %d are allowed", n, allowed)
			}
			for key, was := range before {
				sums := m.cpi.containers[key]
				if sums == nil && here[key] {
					r.Fatalf("%q lost its series while it runs", key)
				}
				if sums != nil && sums.onCPU.Seconds() < was {
					r.Fatalf("%q went back from %v", key, was)
				}
			}
			clear(before)
			for key, sums := range m.cpi.containers {
				before[key] = sums.onCPU.Seconds()
			}
		}
	})
}

func containerFamilies() []string {
	var names []string
	for _, n := range []string{"cycles", "instructions", "llc_misses", "on_cpu_seconds", "run_queue_wait_seconds",
		"window_seconds"} {
		names = append(names, prefix+"_cpi_container_"+n+"_total")
	}
	return names
}
