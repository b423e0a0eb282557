package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// crowd is a victim in trouble among suspects, with that many minutes of samples
// of each.
func crowd(t testing.TB, suspects, minutes int) *bench {
	b := newBench(t, func(c *Config) { c.MaxContainers = suspects + 1 })
	b.put(cpi.Container{ID: "v", Job: "victim", Class: cpi.LS})
	b.spec("victim", 1.5, 0.1)
	refs := make([]Ref, suspects)
	for i := range refs {
		refs[i] = b.put(cpi.Container{ID: fmt.Sprint("s", i), Job: fmt.Sprint("s", i), Class: cpi.BE})
	}
	r := rand.New(rand.NewPCG(1, 1))
	samples := make([]Sample, 0, suspects+1)
	for k := range minutes {
		b.now = b.now.Add(time.Minute)
		samples = append(samples[:0], Sample{Ref: b.refs["v"], At: b.now, Usage: 1,
			CPI: 1.5 * math.Exp(0.4*float64(k%2)+0.05*r.NormFloat64())})
		for i, ref := range refs {
			u := 2 * r.Float64()
			if i%3 == 0 {
				u *= float64(k / 3 % 2)
			}
			samples = append(samples, Sample{Ref: ref, At: b.now, Usage: u, CPI: 1 + r.Float64()})
		}
		b.d.Observe(b.now, samples)
	}
	return b
}

// onCPU reports how long an operation was on the CPU: on a host that is busy
// otherwise the clock shows nothing.
func onCPU(b *testing.B, loop func()) {
	b.ReportAllocs()
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := used()
	for b.Loop() {
		loop()
	}
	b.ReportMetric(float64(used()-start)/float64(b.N)/1e3, "cpu-µs/op")
}

func BenchmarkAnalysis(b *testing.B) {
	for _, c := range []struct {
		mode     Mode
		suspects int
		minutes  int
	}{{Classic, 500, 10}, {Contrast, 500, 10}, {Contrast, 500, 60}, {Contrast, 100, 10}} {
		b.Run(fmt.Sprintf("%v/suspects=%d/minutes=%d", c.mode, c.suspects, c.minutes), func(b *testing.B) {
			s := crowd(b, c.suspects, c.minutes)
			s.d.cfg.Mode, s.d.cfg.Enforce = c.mode, false
			s.d.analysed = 0
			q := queuedAnomaly{victim: s.refs["v"], at: s.now.UnixNano()}
			onCPU(b, func() {
				s.d.clear()
				s.d.analyseAnomaly(q)
			})
		})
	}
}

// BenchmarkTick is a round of 1,000 containers of 200 jobs.
func BenchmarkTick(b *testing.B) {
	const containers = 1000
	for _, mode := range []Mode{Classic, Contrast} {
		b.Run(fmt.Sprintf("%v/containers=%d", mode, containers), func(b *testing.B) {
			s := newBench(b, func(c *Config) { c.Mode = mode })
			r := rand.New(rand.NewPCG(1, 1))
			refs := make([]Ref, containers)
			for i := range refs {
				refs[i] = s.put(cpi.Container{ID: fmt.Sprint(i), Job: fmt.Sprint(i % 200), Class: cpi.Class(1 + i%5)})
			}
			samples := make([]Sample, containers)
			onCPU(b, func() {
				s.now = s.now.Add(time.Minute)
				for i, ref := range refs {
					samples[i] = Sample{Ref: ref, At: s.now, Usage: 0.2 + 2*r.Float64(),
						CPI: 1.5 * math.Exp(0.1*r.NormFloat64())}
				}
				s.d.Observe(s.now, samples)
			})
		})
	}
}

func TestAnalysisAllocatesNothingPerSuspect(t *testing.T) {
	allocs := func(suspects int) float64 {
		s := crowd(t, suspects, 60)
		s.d.cfg.Enforce = false
		q := queuedAnomaly{victim: s.refs["v"], at: s.now.UnixNano()}
		return testing.AllocsPerRun(20, func() {
			s.d.clear()
			s.d.analyseAnomaly(q)
		})
	}
	few, many := allocs(10), allocs(500)
	if many > few+5 {
		t.Errorf("%v allocations with 10 suspects, %v with 500", few, many)
	}
}

// TestMemoryPerContainer counts windows and specs where each container is a job of
// its own, on every usage band.
func TestMemoryPerContainer(t *testing.T) {
	const containers, budget = 1000, 8 << 10
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b := newBench(t, nil)
	samples := make([]Sample, containers)
	for i := range samples {
		name := fmt.Sprintf("0123456789abcdef0123456789abcdef-%d", i)
		samples[i].Ref = b.put(cpi.Container{ID: name, Job: name, Platform: "platform", Class: cpi.LS})
	}
	for k := range 200 {
		b.now = b.now.Add(time.Minute)
		for i := range samples {
			samples[i].At, samples[i].Usage, samples[i].CPI = b.now, 0.3*math.Exp2(float64(k%5)), 1+float64(i%7)/10
		}
		b.d.Observe(b.now, samples)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / containers
	t.Logf("%.0f bytes a container", per)
	if per > budget {
		t.Errorf("%.0f bytes a container, more than %d", per, budget)
	}
	runtime.KeepAlive(b)
}
