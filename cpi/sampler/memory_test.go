package sampler

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
)

// TestMemoryPerContainer sums what a container costs where each is a job of its own and
// runs in every band of usage: the sampler's history and last window, and the detector's
// windows and spec. All settings are the defaults.
func TestMemoryPerContainer(t *testing.T) {
	const containers, budget = 1000, 8 << 10
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	names := make([]string, containers)
	for i := range names {
		names[i] = fmt.Sprintf("0123456789abcdef0123456789abcdef-%d", i)
	}
	before := heap()
	s := New(Options{Interval: time.Minute, Window: 10 * time.Second})
	d, err := detect.New(detect.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	refs := make([]detect.Ref, containers)
	now := time.Unix(1e9, 0)
	for i, name := range names {
		if refs[i], err = d.Put(now, &cpi.Container{ID: name, Job: name, Platform: "platform",
			Class: cpi.LS}); err != nil {
			t.Fatal(err)
		}
	}
	samples := make([]detect.Sample, containers)
	for k := range 200 {
		now = now.Add(time.Minute)
		w := &Window{Window: sample.Window{End: now, Boot: time.Duration(k+1) * time.Minute, Length: 10 * time.Second,
			Containers: make([]sample.Result, containers)}}
		for i, name := range names {
			usage, ratio := 0.3*math.Exp2(float64(k%5)), 1+float64(i%7)/10
			samples[i] = detect.Sample{Ref: refs[i], At: now, Usage: usage, CPI: ratio}
			w.Containers[i] = sample.Result{Container: &cpi.Container{ID: name},
				Sample: sample.Sample{End: now, Boot: w.Boot, Length: w.Length, Usage: usage, CPI: ratio}}
		}
		d.Observe(now, samples)
		s.keep(w)
	}
	samples = nil
	all := heap()
	runtime.KeepAlive(d)
	sampled := heap()
	s.last.Store(nil)
	history := heap()
	per := float64(all-before) / containers
	t.Logf("%.0f bytes a container: %.0f of the detector, %.0f of the last window, %.0f of the history", per,
		float64(all-sampled)/containers, float64(sampled-history)/containers, float64(history-before)/containers)
	if per > budget {
		t.Errorf("%.0f bytes a container, more than %d", per, budget)
	}
	// What 256 CPUs add where each container ran on each of them: the last window's table. While a
	// window ends the counter's rows are there as well.
	const cpus, whole = 256, 16 << 10
	without := heap()
	var from edge
	to := edge{sample: sample.Edge{Monotonic: 10 * time.Second}}
	for _, name := range names {
		to.reading.Groups = append(to.reading.Groups, counter.Group{ID: name})
	}
	for cpu := range cpus {
		for i := range names {
			to.reading.Rows = append(to.reading.Rows, counter.Row{CPU: uint16(cpu), Group: uint16(i), OnCPU: 1e7})
		}
	}
	w := &Window{Window: sample.Window{ByCPU: byCPU(&from, &to)}}
	to.reading.Rows = nil
	evidence := float64(heap()-without) / containers
	t.Logf("%.0f bytes a container of who ran where, on %d CPUs", evidence, cpus)
	if per+evidence > whole {
		t.Errorf("%.0f bytes a container with evidence, more than %d", per+evidence, whole)
	}
	runtime.KeepAlive(w)
	if got := len(s.History(names[0], nil)); got != depth(time.Minute) {
		t.Errorf("%d samples of a history, want %d", got, depth(time.Minute))
	}
	runtime.KeepAlive(names)
}
