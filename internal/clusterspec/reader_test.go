package clusterspec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
)

// answer is a vector as Prometheus writes it: name, labels and value.
func answer(samples ...string) string {
	var list []string
	for _, s := range samples {
		head, value, _ := strings.Cut(s, " ")
		name, labels, _ := strings.Cut(head, "{")
		metric := []string{fmt.Sprintf(`"__name__":%q`, recorded+name)}
		for _, l := range strings.Split(strings.TrimSuffix(labels, "}"), ",") {
			k, v, _ := strings.Cut(l, "=")
			metric = append(metric, fmt.Sprintf("%q:%s", k, v))
		}
		list = append(list, fmt.Sprintf(`{"metric":{%s},"value":[1,%q]}`, strings.Join(metric, ","), value))
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(list, ",") + `]}}`
}

const of = `{workload="web",platform="p",band="all"} `

func good() []string {
	return []string{
		"mean" + of + "1.5", "stddev" + of + "0.1", "usage" + of + "1", "samples" + of + "5000",
		`tasks{workload="web",platform="p"} 12`,
		`samples{workload="web",platform="p",band="2"} 4950`, `median{workload="web",platform="p",band="2"} 1.4`,
		`log_stddev{workload="web",platform="p",band="2"} 0.05`,
		`samples{workload="web",platform="p",band="3"} 50`, `median{workload="web",platform="p",band="3"} NaN`,
	}
}

// setup is a reader of a server that answers so, and what it gave.
func setup(t *testing.T, edit func(*Options), handler http.HandlerFunc) (*Reader, *[]detect.Spec) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var got []detect.Spec
	o := Options{
		URL: server.URL, Period: time.Minute, Timeout: 10 * time.Second, MaxAge: time.Hour,
		Jobs: func() []detect.JobInfo {
			return []detect.JobInfo{{Job: "web", Platform: "p", Containers: 1}, {Job: "idle", Platform: "p"}}
		},
		Set: func(specs []detect.Spec, _ time.Duration) []error { got = specs; return nil },
	}
	if edit != nil {
		edit(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r, &got
}

func TestAnAnswerBecomesSpecs(t *testing.T) {
	now := time.Unix(1000, 0)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, got := setup(t, func(o *Options) {
		o.TokenFile, o.Now = token, func() time.Time { return now }
	}, func(w http.ResponseWriter, q *http.Request) {
		if a := q.Header.Get("Authorization"); a != "Bearer secret" {
			t.Errorf("authorization %q", a)
		}
		if asked := q.FormValue("query"); !strings.Contains(asked, `platform="p",workload=~"web"}`) {
			t.Errorf("asked for %s", asked)
		}
		fmt.Fprint(w, answer(append(good(), `mean{workload="other",platform="p",band="all"} 3`)...))
	})
	if s := r.Stats(); !s.Never || !math.IsInf(s.Seconds(), 1) {
		t.Errorf("before: %+v", s)
	}
	if !r.round(t.Context()) || r.Why() != "" {
		t.Fatalf("why: %s", r.Why())
	}
	want := detect.Spec{
		Job: "web", Platform: "p", Mean: 1.5, StdDev: 0.1, UsageMean: 1, Samples: 5000, Tasks: 12,
		Bands: []detect.BandSpec{{Band: 2, Samples: 4950, Median: 1.4, LogSD: 0.05}},
	}
	if len(*got) != 1 || fmt.Sprint((*got)[0]) != fmt.Sprint(want) {
		t.Errorf("specs %+v, want %+v", *got, want)
	}
	now = now.Add(time.Minute)
	if s := r.Stats(); s.OK != 1 || s.InUse != 1 || s.Seconds() != 60 {
		t.Errorf("stats %+v", s)
	}
}

// Whatever Prometheus does, the reason is logged and nothing but it is given on.
func TestPrometheusThatIsNotWell(t *testing.T) {
	long := strings.Repeat(" ", 1<<20)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
		stats   Stats
	}{
		"error": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		}, "server error: 503", Stats{Errors: 1}},
		"html": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>")
		}, "Prometheus does not say", Stats{Errors: 1}},
		"scalar": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`)
		}, "is a scalar, not a vector", Stats{Errors: 1}},
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"who are you"}`)
		}, "401", Stats{Errors: 1}},
		"redirect": {func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, "http://192.0.2.1/", http.StatusFound)
		}, "Prometheus does not say", Stats{Errors: 1}},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for range 40 {
				if _, err := fmt.Fprint(w, long); err != nil {
					return
				}
			}
		}, "longer than 16777216 bytes", Stats{Errors: 1}},
		"slow": {func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body) // only then the server notices that the client went
			<-q.Context().Done()
		}, "deadline exceeded", Stats{Timeouts: 1}},
		"half": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, answer("mean"+of+"1"))
		}, "are all rules loaded?", Stats{OK: 1, Refused: 1}},
		"tasks": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, answer(append(good(), `tasks{workload="web",platform="p"} -1`)...))
		}, "-1 tasks", Stats{OK: 1, Refused: 1}},
		"band": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, answer(append(good(), `samples{workload="web",platform="p",band="x"} 1e5`)...))
		}, `band "x" is no number`, Stats{OK: 1, Refused: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r, got := setup(t, func(o *Options) {
				if name == "slow" {
					o.Timeout = 50 * time.Millisecond
				}
			}, c.handler)
			r.round(t.Context())
			if len(*got) != 0 || !strings.Contains(r.Why(), c.want) {
				t.Errorf("specs %+v, why %q, want %q", *got, r.Why(), c.want)
			}
			s := r.Stats()
			if s.OK != c.stats.OK || s.Errors != c.stats.Errors || s.Timeouts != c.stats.Timeouts ||
				s.Refused != c.stats.Refused || !s.Never {
				t.Errorf("stats %+v, want %+v", s, c.stats)
			}
		})
	}
}

// A cluster that is young, or whose jobs are small, is in order; one whose rules are not loaded is not.
func TestSpecsThatThereAreNotYet(t *testing.T) {
	const ruled = "Prometheus knows no spec of any job that runs here; are the rules loaded, and do nodes have " +
		"cpi.jobSeries?"
	few := []string{"mean" + of + "1.5", "stddev" + of + "0.1", "usage" + of + "1", "samples" + of + "499",
		`tasks{workload="web",platform="p"} 1`}
	for name, c := range map[string]struct {
		after  time.Duration
		tasks  int // here
		answer []string
		want   string
	}{
		"new":                    {time.Hour - 1, 1, nil, ""},
		"nothing runs long here": {time.Hour, 0, nil, ""},
		"a small job":            {time.Hour, 1, few, ""},
		"no rules":               {time.Hour, 1, nil, ruled},
	} {
		now := time.Unix(1000, 0)
		r, _ := setup(t, func(o *Options) {
			o.Now = func() time.Time { return now }
			o.Jobs = func() []detect.JobInfo {
				return []detect.JobInfo{{Job: "web", Platform: "p", Containers: 1, Tasks: c.tasks},
					{Job: "ended", Platform: "p", Tasks: 1}}
			}
			o.Set = func(specs []detect.Spec, _ time.Duration) (refused []error) {
				for i := range specs {
					refused = append(refused, specs[i].Check(detect.DefaultConfig()))
				}
				return refused
			}
		}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer(c.answer...)) })
		now = now.Add(c.after)
		r.round(t.Context())
		if s := r.Stats(); r.Why() != c.want || s.OK != 1 || s.Refused != 0 || s.InUse != 0 || !s.Never {
			t.Errorf("%s: %q, want %q; %+v", name, r.Why(), c.want, s)
		}
	}
}

// What the detector does not believe is logged with its reason.
func TestSpecsThatAreNotBelieved(t *testing.T) {
	r, _ := setup(t, func(o *Options) {
		o.Set = func([]detect.Spec, time.Duration) []error { return []error{errors.New("mean CPI -1")} }
	}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer(good()...)) })
	r.round(t.Context())
	if s := r.Stats(); s.Refused != 1 || s.InUse != 0 ||
		r.Why() != "1 specs of the cluster's are not believed, 0 are; the first: mean CPI -1" {
		t.Errorf("%+v, %s", s, r.Why())
	}
}

// A job that Prometheus no longer confirms is named, whether it answers or not.
func TestSpecsThatNobodyConfirms(t *testing.T) {
	stale, broken := false, false
	r, _ := setup(t, func(o *Options) {
		o.Jobs = func() []detect.JobInfo {
			return []detect.JobInfo{{Job: "web", Platform: "p", Containers: 1},
				{Job: "old", Platform: "p", Containers: 1, Stale: stale}, {Job: "ended", Platform: "p", Stale: true}}
		}
	}, func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, answer(good()...))
	})
	const why = `1 jobs are judged by specs of the cluster's that nobody confirmed for 1h0m0s ` +
		`(cpi.specs.prometheus.maxAge), the first is "old"`
	r.round(t.Context())
	if r.Why() != "" {
		t.Errorf("nothing is out of date, yet: %s", r.Why())
	}
	stale = true
	r.round(t.Context())
	if r.Why() != why {
		t.Errorf("why: %s", r.Why())
	}
	broken = true
	r.round(t.Context())
	if !strings.Contains(r.Why(), "503") || !strings.HasSuffix(r.Why(), why) {
		t.Errorf("why: %s", r.Why())
	}
	stale, broken = false, false
	r.round(t.Context())
	if r.Why() != "" {
		t.Errorf("confirmed again, yet: %s", r.Why())
	}
}

func TestRunAsksAgain(t *testing.T) {
	ticks := make(chan time.Time)
	var waits []time.Duration
	asked := make(chan struct{}, 9)
	r, _ := setup(t, func(o *Options) {
		o.After = func(d time.Duration) <-chan time.Time { waits = append(waits, d); return ticks }
	}, func(w http.ResponseWriter, _ *http.Request) { asked <- struct{}{}; fmt.Fprint(w, answer(good()...)) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	<-asked
	ticks <- time.Time{}
	<-asked
	stop()
	<-done
	for _, w := range waits {
		if w < 54*time.Second || w > 66*time.Second {
			t.Errorf("waits %v", waits)
		}
	}
}

func TestQuestions(t *testing.T) {
	var jobs []detect.JobInfo
	for i := range 120 {
		jobs = append(jobs, detect.JobInfo{Job: fmt.Sprintf("a.b/%d", i), Platform: []string{"p", `q"`}[i%2],
			Containers: 1})
	}
	got := ask(jobs)
	if len(got) != 4 {
		t.Fatalf("%d questions for 60 jobs on each of two platforms", len(got))
	}
	if !strings.Contains(got[0].text, `platform="p",workload=~"a\\.b/0|`) ||
		!strings.Contains(got[3].text, `platform="q\"",`) {
		t.Errorf("%s\n%s", got[0].text, got[3].text)
	}
}

// However absurd the numbers: nothing that is no number reaches a threshold.
func TestAbsurdNumbers(t *testing.T) {
	value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1,
		1e300, 1.5, 1000}))
	rapid.Check(t, func(r *rapid.T) {
		q := ask([]detect.JobInfo{{Job: "web", Platform: "p", Containers: 1}})[0]
		var v model.Vector
		for _, band := range []string{"all", "0", "2", "4", "5", "-1"} {
			for _, name := range []string{"mean", "stddev", "usage", "samples", "tasks", "median", "log_stddev"} {
				v = append(v, &model.Sample{Metric: model.Metric{model.MetricNameLabel: recorded +
					model.LabelValue(name), "workload": "web", "platform": "p", "band": model.LabelValue(band)},
					Value: model.SampleValue(value.Draw(r, band+name))})
			}
		}
		specs, _ := q.specs(v)
		cfg := detect.DefaultConfig()
		cfg.MinTasks, cfg.MinTaskSamples = 1, 1
		d, err := detect.New(cfg)
		if err != nil {
			r.Fatal(err)
		}
		now := time.Unix(1e9, 0)
		ref, err := d.Put(now, &cpi.Container{ID: "c", Job: "web", Platform: "p", Class: cpi.LS})
		if err != nil {
			r.Fatal(err)
		}
		for _, s := range specs {
			_ = d.SetSpec(now, s, now.Add(time.Hour)) // refusing is fine
		}
		for i := range 5 {
			at := now.Add(time.Duration(i+1) * time.Minute)
			for _, e := range d.Observe(at, []detect.Sample{{Ref: ref, At: at, Usage: 1, CPI: 1.5}}) {
				if math.IsNaN(e.Threshold) || e.Threshold < 0 {
					r.Fatalf("threshold %v by %+v", e.Threshold, specs)
				}
			}
		}
		if s, ok := d.SpecOf("web", "p"); ok && (math.IsNaN(s.Mean+s.StdDev+s.Samples+s.UsageMean) ||
			math.IsInf(s.Mean+s.StdDev+s.Samples+s.UsageMean, 0)) {
			r.Fatalf("spec %+v", s)
		}
	})
}

// Prometheus' clock and the node's may be decades apart: Prometheus is asked for its
// own present, what it says of the time is not believed, and ages are by our clock.
func TestClocksThatDisagree(t *testing.T) {
	for name, stamp := range map[string]string{"behind": "[1,", "ahead": "[4102444800.123,"} {
		now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
		r, got := setup(t, func(o *Options) {
			o.Now = func() time.Time { return now }
		}, func(w http.ResponseWriter, q *http.Request) {
			if at := q.FormValue("time"); at != "" {
				t.Errorf("%s: Prometheus is sent the time, %s", name, at)
			}
			w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
			fmt.Fprint(w, strings.ReplaceAll(answer(good()...), "[1,", stamp))
		})
		r.round(t.Context())
		if len(*got) != 1 || r.Why() != "" {
			t.Errorf("%s: %d specs, %q", name, len(*got), r.Why())
		}
		now = now.Add(90 * time.Second)
		if s := r.Stats(); s.Seconds() != 90 {
			t.Errorf("%s: the age is %v", name, s.Seconds())
		}
		now = now.AddDate(-30, 0, 0) // our clock is put back
		if s := r.Stats(); s.Seconds() != 0 {
			t.Errorf("%s: the age is %v", name, s.Seconds())
		}
	}
}
