package metrics

import (
	"runtime"
	runtimemetrics "runtime/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// ofProcess is what dashboards show of any process. Of the Go runtime's 35 series
// only the two that tell a leak are kept, under the names that they have elsewhere:
// each series is one of 300.
func ofProcess() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "go_goroutines", Help: "Number of goroutines that currently exist.",
		}, func() float64 { return float64(runtime.NumGoroutine()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "go_memstats_heap_alloc_bytes", Help: "Bytes of the heap that objects take.",
		}, heapBytes),
	}
}

// heapBytes reads what runtime.ReadMemStats would stop the world for.
func heapBytes() float64 {
	s := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(s)
	if s[0].Value.Kind() != runtimemetrics.KindUint64 {
		return 0 // a Go that has another name for it
	}
	return float64(s[0].Value.Uint64())
}
