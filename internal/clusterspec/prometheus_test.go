package clusterspec

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/promtest"
)

// fake is a daemon without a machine: a detector on a clock of its own, and its
// metrics.
type fake struct {
	t        *testing.T
	now      time.Time
	detector *detect.Detector
	metrics  *metrics.Metrics
	refs     map[string]detect.Ref
	events   []detect.Event
}

func newFake(t *testing.T) *fake {
	cfg := detect.DefaultConfig()
	cfg.Enforce = true
	d, err := detect.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{
		t: t, now: time.Unix(1e9, 0), detector: d, refs: map[string]detect.Ref{},
		metrics: metrics.New("test", func() (metrics.Stats, bool) { return metrics.Stats{}, false }),
	}
	f.metrics.CPIJobs(1000, d.Jobs) // scraped only between observations: see minute
	return f
}

func (f *fake) put(c cpi.Container) {
	f.t.Helper()
	c.Platform = "p"
	ref, err := f.detector.Put(f.now, &c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.refs[c.ID] = ref
}

// minute passes; the samples are of usage and CPI.
func (f *fake) minute(samples map[string][2]float64) {
	f.now = f.now.Add(time.Minute)
	var list []detect.Sample
	for id, s := range samples {
		list = append(list, detect.Sample{Ref: f.refs[id], At: f.now, Usage: s[0], CPI: s[1],
			Capped: f.detector.Container(f.refs[id]).Capped})
	}
	f.events = f.detector.Observe(f.now, list)
	f.metrics.CPILearned(f.detector.Learned())
}

// handler serves the metrics and counts scrapes; while one runs, nothing is observed,
// since the detector has one owner.
func (f *fake) handler(lock chan struct{}, scraped func()) http.Handler {
	inner := metrics.Handler(f.metrics, metrics.NewHealth(time.Now, time.Now))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock <- struct{}{}
		inner.ServeHTTP(w, r)
		<-lock
		scraped()
	})
}

// startPrometheus runs one that scrapes these servers with the shipped rules, until the
// test is over.
func startPrometheus(t *testing.T, targets []string) (url string) {
	t.Helper()
	rules, err := filepath.Abs(shippedRules)
	if err != nil {
		t.Fatal(err)
	}
	return promtest.Start(t,
		fmt.Sprintf(
			"global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - "+
				"job_name: quietcore\n    static_configs: [{targets: [%s]}]\n",
			rules, strings.Join(targets, ", "))).URL
}

// unlike says in what a spec differs from what six tasks with a median of 1.5 and a deviation of
// 0.08 in logarithms give in 150 minutes, or nothing.
func unlike(s detect.Spec) string {
	switch {
	case s.Tasks != 6 || s.Samples <= 800 || s.Samples > 1200:
		return fmt.Sprintf("spec of six tasks with 800 to 1200 samples is %+v", s)
	case math.Abs(s.Mean-1.505) > 0.02 || math.Abs(s.StdDev-0.12) > 0.02:
		return fmt.Sprintf("spec of mean 1.505 and deviation 0.12 is %+v", s)
	case len(s.Bands) != 1 || s.Bands[0].Band != 2:
		return fmt.Sprintf("spec with the one band 2 is %+v", s)
	case math.Abs(s.Bands[0].Median-1.5) > 0.03 || math.Abs(s.Bands[0].LogSD-0.08) > 0.012:
		return fmt.Sprintf("band of median 1.5 and deviation 0.08 in logarithms is %+v", s.Bands[0])
	}
	return ""
}

// Three daemons count, a real Prometheus scrapes them and evaluates the shipped rules,
// and a fourth daemon that has learned nothing finds an antagonist by them.
func TestAFourthDaemonKnowsWhatThreeLearned(t *testing.T) {
	promtest.Tool(t, "prometheus")
	const job = "shop/Deployment/web/main"
	lock := make(chan struct{}, 1)
	scrapes := make(chan int, 1000)
	var targets []string
	var daemons []*fake
	for i := range 3 {
		f := newFake(t)
		for k := range 2 {
			f.put(cpi.Container{ID: fmt.Sprint("web", k), Job: job, Class: cpi.LS})
		}
		f.put(cpi.Container{ID: "capped", Job: job, Class: cpi.LS, Capped: true})
		daemons = append(daemons, f)
		server := httptest.NewServer(f.handler(lock, func() { scrapes <- i }))
		defer server.Close()
		targets = append(targets, strings.TrimPrefix(server.URL, "http://"))
	}
	r := rand.New(rand.NewPCG(1, 2))
	work := func(minutes int) {
		lock <- struct{}{}
		for range minutes {
			for _, f := range daemons {
				cpi := func() float64 { return 1.5 * math.Exp(0.08*r.NormFloat64()) }
				f.minute(map[string][2]float64{"web0": {1, cpi()}, "web1": {1, cpi()}, "capped": {1, 9}})
			}
		}
		<-lock
	}
	work(1) // so that every series is there, and grows later
	url := startPrometheus(t, targets)
	seen := map[int]bool{}
	for len(seen) < len(daemons) {
		seen[<-scrapes] = true
	}
	for range 3 {
		work(50)
		for range len(daemons) {
			<-scrapes
		}
	}

	fourth := newFake(t)
	fourth.put(cpi.Container{ID: "victim", Job: job, Class: cpi.LS})
	fourth.put(cpi.Container{ID: "batch", Job: "shop/Job/batch/main", Class: cpi.BE})
	fourth.put(cpi.Container{ID: "steady", Job: "shop/Job/steady/main", Class: cpi.BE})
	var got detect.Spec
	reader, err := New(Options{
		URL: url, Period: time.Second, Timeout: 10 * time.Second, MaxAge: time.Hour, Jobs: fourth.detector.Jobs,
		Set: func(specs []detect.Spec, good time.Duration) (refused []error) {
			if len(specs) == 1 {
				got = specs[0]
			}
			for _, s := range specs {
				if err := fourth.detector.SetSpec(fourth.now, s, fourth.now.Add(good)); err != nil {
					refused = append(refused, err)
				}
			}
			return refused
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Prometheus commits a scrape of 50 minutes while it evaluates the rules: one evaluation may
	// have counted samples whose sums the next one has. What is learned in the end is compared.
	wrong := ""
	promtest.Until(t, "the fourth daemon has the spec that three daemons learned", func() bool {
		reader.round(context.Background())
		now := unlike(got)
		if _, ok := fourth.detector.SpecOf(job, "p"); !ok {
			now = "no spec yet: " + reader.Why()
		}
		if now != wrong {
			t.Log(now)
		}
		wrong = now
		return wrong == ""
	})
	t.Logf("spec %+v", got)
	if s := reader.Stats(); s.Never || s.OK == 0 {
		t.Errorf("stats %+v", s)
	}

	for minute := range 60 {
		busy := minute%10 >= 5
		samples := map[string][2]float64{"victim": {1, 1.5 * math.Exp(0.05*r.NormFloat64())}, "batch": {0.01, 1},
			"steady": {2, 1}}
		if busy {
			samples["batch"], samples["victim"] = [2]float64{3, 1}, [2]float64{1, 2.7}
		}
		fourth.minute(samples)
		for _, e := range fourth.events {
			if e.Kind == detect.CommandEvent {
				if id := fourth.detector.Container(e.Command.Container).ID; e.Command.Kind != detect.DoCap ||
					id != "batch" {
					t.Errorf("%s of %s", e.Command.Kind, id)
				}
				t.Logf("minute %d: %s of %s", minute, e.Command.Kind, e.Command.Why)
				return
			}
		}
	}
	t.Errorf("nothing was done about the antagonist: %+v", fourth.detector.Counters())
}
