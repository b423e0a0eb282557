package metrics

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
)

func series(t *testing.T, m *Metrics) []string {
	t.Helper()
	var list []string
	for line := range strings.Lines(scrape(t, m)) {
		if !strings.HasPrefix(line, "#") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

func TestWhatTheDetectorFound(t *testing.T) {
	m := New("v1", nothing)
	if text := scrape(t, m); strings.Contains(text, "quietcore_cpi_blamed") ||
		strings.Contains(text, "quietcore_cpi_cluster") ||
		strings.Contains(text, "quietcore_cpi_test") || strings.Contains(text, "quietcore_job_cpi") {
		t.Error("there are series of what is off or did not happen")
	}
	m.CPIDetector(func() Detection {
		return Detection{Outliers: 7, Anomalies: 2, Jobs: []detect.JobInfo{{Source: detect.FromHere},
			{Source: detect.FromCluster}, {Source: detect.FromBoth}, {Lack: detect.LacksTasks},
			{Lack: detect.LacksSamples}, {Lack: detect.LacksTasks}},
			Tests: &experiment.Counters{Tests: 4, Verdicts: 1, Harm: 2.5,
				Steps:  [4]experiment.Tally{{}, {Begun: 3, Failed: 2}, {Begun: 4}, {Begun: 5, Failed: 1}},
				Tested: experiment.Windows{All: [2]uint64{9, 6}, Well: [2]uint64{2, 5}},
				Capped: experiment.Windows{All: [2]uint64{3, 30}, Well: [2]uint64{0, 29}}}}
	})
	m.CPIClusterSpecs(func() ClusterSpecs {
		return ClusterSpecs{Queries: map[string]uint64{"ok": 3, "timeout": 1}, Refused: 5, InUse: 2, Age: math.Inf(1)}
	})
	m.CPIVerdict(detect.Cap)
	m.CPIVerdict("\n")
	m.CPIOutcome(detect.Success)
	m.CPIOutcome(detect.Gone)
	m.CPIBlamed("default/Deployment/web/main", "default/Job/\xff/main")
	text := scrape(t, m)
	for line := range strings.Lines(`quietcore_cpi_outliers_total 7
quietcore_cpi_anomalies_total 2
quietcore_cpi_tests_total 4
quietcore_cpi_verdicts_total 1
quietcore_cpi_moves_total{result="begun"} 3
quietcore_cpi_moves_total{result="failed"} 2
quietcore_cpi_idles_total{result="begun"} 4
quietcore_cpi_idles_total{result="failed"} 0
quietcore_cpi_bandwidth_limits_total{result="begun"} 5
quietcore_cpi_bandwidth_limits_total{result="failed"} 1
quietcore_cpi_probe_seconds_total 150
quietcore_cpi_test_windows_total{result="well",stage="test",suspect="left-alone"} 2
quietcore_cpi_test_windows_total{result="disturbed",stage="test",suspect="left-alone"} 7
quietcore_cpi_test_windows_total{result="well",stage="test",suspect="throttled"} 5
quietcore_cpi_test_windows_total{result="disturbed",stage="verdict",suspect="throttled"} 1
quietcore_cpi_analyses_total{verdict="cap"} 1
quietcore_cpi_analyses_total{verdict="none"} 0
quietcore_cpi_analyses_total{verdict="observe"} 0
quietcore_cpi_analyses_total{verdict="pool-move"} 0
quietcore_cpi_outcomes_total{result="success"} 1
quietcore_cpi_outcomes_total{result="unknown"} 1
quietcore_cpi_outcomes_total{result="refused"} 0
quietcore_cpi_jobs{spec="own"} 1
quietcore_cpi_jobs{spec="cluster"} 2
quietcore_cpi_jobs_not_judged{lack="tasks"} 2
quietcore_cpi_jobs_not_judged{lack="samples"} 1
quietcore_cpi_blamed_total{antagonist="other",victim="other"} 0
quietcore_cpi_cluster_queries_total{result="timeout"} 1
quietcore_cpi_cluster_queries_total{result="error"} 0
quietcore_cpi_cluster_specs_refused_total 5
quietcore_cpi_cluster_specs 2
quietcore_cpi_cluster_specs_age_seconds +Inf
`) {
		if !strings.Contains(text, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
	if !strings.Contains(text,
		"quietcore_cpi_blamed_total{antagonist=\"default/Job/?/main\",victim=\"default/Deployment/web/main\"} 1") {
		t.Error("the pair has no series")
	}
}

func TestPairsAreBounded(t *testing.T) {
	m := New("v1", nothing)
	for i := range 1000 {
		m.CPIBlamed(fmt.Sprint("a/v", i%37), fmt.Sprint("a/b", i))
	}
	pairs, sum := 0, 0.0
	for _, line := range series(t, m) {
		if strings.HasPrefix(line, "quietcore_cpi_blamed_total") {
			var n float64
			if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
				t.Fatal(err)
			}
			pairs, sum = pairs+1, sum+n
		}
	}
	if pairs != 21 || sum > 1000 || sum < 500 {
		t.Errorf("%d series that count %v", pairs, sum)
	}
}

func TestJobsAreCountedInBuckets(t *testing.T) {
	m := New("v1", nothing)
	m.CPIJobs(3*perBand+2, func() []detect.JobInfo {
		return []detect.JobInfo{{Job: "web", Platform: "p", Tasks: 3}, {Job: "none", Platform: "p", Tasks: 9}}
	})
	learned := func(job string, band int, cpis ...float64) (list []detect.Learned) {
		for _, cpi := range cpis {
			list = append(list, detect.Learned{Job: job, Platform: "p", Band: band, Usage: 2, CPI: cpi})
		}
		return list
	}
	m.CPILearned(learned("web", 2, 0.1, 1, 1.0001, 2, 99))
	m.CPILearned(learned("web", 3, 1))
	m.CPILearned(learned("db", 1, 4))
	m.CPILearned(append(learned("late", 1, 4), learned("db", 2, 4)...)) // no room
	text := scrape(t, m)
	for line := range strings.Lines(`quietcore_job_cpi_bucket{band="2",platform="p",workload="web",le="0.25"} 1
quietcore_job_cpi_bucket{band="2",platform="p",workload="web",le="1"} 2
quietcore_job_cpi_bucket{band="2",platform="p",workload="web",le="1.09051"} 3
quietcore_job_cpi_bucket{band="2",platform="p",workload="web",le="16"} 4
quietcore_job_cpi_bucket{band="2",platform="p",workload="web",le="+Inf"} 5
quietcore_job_cpi_count{band="2",platform="p",workload="web"} 5
quietcore_job_cpi_usage_total{band="2",platform="p",workload="web"} 10
quietcore_job_cpi_squares_total{band="1",platform="p",workload="db"} 16
quietcore_job_cpi_tasks{platform="p",workload="web"} 3
quietcore_job_cpi_tasks{platform="p",workload="db"} 0
quietcore_job_cpi_left_out_total 2
`) {
		if !strings.Contains(text, line) {
			t.Errorf("/metrics has no %s", line)
		}
	}
	for range idleRounds {
		m.CPILearned(learned("web", 2, 1))
	}
	m.CPILearned(learned("late", 1, 4))
	text = scrape(t, m)
	if strings.Contains(text, `workload="db"`) || !strings.Contains(text,
		`quietcore_job_cpi_count{band="1",platform="p",workload="late"} 1`) {
		t.Error("the job that has not been seen for long did not make room")
	}
}

// However many jobs, platforms and bands there are: never more series than allowed,
// nothing lost without being counted, and no name that breaks a scrape.
func TestJobSeriesAreBounded(t *testing.T) {
	hostile := []string{"x\n\x1b[31m", "\xff\xfe", "a\"b", strings.Repeat("y", 5000), "", "web"}
	before := len(series(t, New("v1", nothing)))
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.IntRange(1, 500).Draw(r, "most")
		m := New("v1", nothing)
		m.CPIJobs(most, func() []detect.JobInfo { return nil })
		for range rapid.IntRange(0, 80).Draw(r, "rounds") {
			l := detect.Learned{
				Job:      rapid.SampledFrom(hostile).Draw(r, "job"),
				Platform: rapid.SampledFrom(hostile).Draw(r, "platform"),
				Band:     rapid.IntRange(0, detect.Bands-1).Draw(r, "band"),
				CPI:      rapid.Float64Range(0.001, 1e4).Draw(r, "cpi"), Usage: 1,
			}
			m.CPILearned([]detect.Learned{l})
		}
		got := len(series(t, m)) - before - 1 // that of what was left out
		if got > most || got != m.jobs.used {
			r.Fatalf("%d series and %d counted, allowed are %d", got, m.jobs.used, most)
		}
	})
}

// The bounds are the detector's, every second one, so that quantiles agree.
func TestJobBounds(t *testing.T) {
	bounds := jobBounds()
	if len(bounds) != jobBuckets || bounds[0] != 0.25 || bounds[len(bounds)-1] != 16 {
		t.Fatalf("%d bounds from %v to %v", len(bounds), bounds[0], bounds[len(bounds)-1])
	}
	for i, b := range bounds {
		if want := detect.UpperBound(2*i + 31); math.Abs(b-want) > 1e-5 {
			t.Errorf("bound %d is %v, the detector's %v", i, b, want)
		}
	}
}

func TestJobMetricsAreWellFormed(t *testing.T) {
	m := New("v1", nothing)
	full(m)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// full makes the series that depend on what the configuration allows.
func full(m *Metrics) {
	m.CPIJobs(1000, func() []detect.JobInfo { return nil })
	m.CPILearned([]detect.Learned{{Job: "web", Platform: "p", CPI: 1, Usage: 1}})
	m.CPIClusterSpecs(func() ClusterSpecs { return ClusterSpecs{} })
	m.CPIBlamed("v", "a")
}
