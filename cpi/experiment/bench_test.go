package experiment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// cpuTime that this process has used: a host that is busy otherwise tells nothing by the
// clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRound is a window of 1,000 containers: 200 latency-sensitive ones of 100 jobs,
// each in a namespace of its own, and 800 of 300 batch jobs. Twenty victims are disturbed
// and have a test running.
func BenchmarkRound(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	cfg := DefaultConfig()
	cfg.Budget, cfg.Starts = 60, 60
	d, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	var samples []Sample
	for i := range 1000 {
		c := &cpi.Container{ID: fmt.Sprint("c", i), Job: fmt.Sprint("batch", i%300), Class: cpi.Batch}
		if i < 200 {
			c.Job, c.Class = fmt.Sprint("web", i%100), cpi.LS
			c.Namespace = c.Job
		}
		ref, err := d.Put(c)
		if err != nil {
			b.Fatal(err)
		}
		samples = append(samples, Sample{Ref: ref, Usage: 1, CPI: 1})
	}
	minute := 0
	round := func() (testing, anomalies int) {
		before := d.Counters().Anomalies
		for i := range samples {
			s := &samples[i]
			s.CPI = math.Exp(0.06 * r.NormFloat64())
			busy := minute/7%3 == i%3
			if i >= 200 {
				if s.Usage = 0.1; busy {
					s.Usage = 2 * math.Exp(0.1*r.NormFloat64())
				}
			}
			if i < 20 && minute > 130 && busy {
				s.CPI *= 2
			}
		}
		minute++
		d.Observe(epoch.Add(time.Duration(minute)*time.Minute), samples)
		throw(d, r)
		for _, p := range d.order {
			if p.stage == Testing || p.stage == Verdict {
				testing++
			}
		}
		return testing, int(d.Counters().Anomalies - before)
	}
	for range 170 {
		round()
	}
	tests, anomalies, n := 0, 0, 0
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		t, a := round()
		tests, anomalies, n = tests+t, anomalies+a, n+1
	}
	b.ReportMetric(float64((cpuTime()-start).Microseconds())/float64(n), "cpu-µs/round")
	b.ReportMetric(float64(tests)/float64(n), "tests")
	b.ReportMetric(float64(anomalies)/float64(n), "anomalies/round")
}
