package metrics

import (
	"runtime"
	runtimemetrics "runtime/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// ofProcess are the metrics that dashboards show of any process. Of the Go runtime's 35
// series it keeps the two that reveal a leak, under their usual names: each series is
// one of 300.
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

// heapBytes reads the size of the heap without stopping the world, as
// runtime.ReadMemStats would.
func heapBytes() float64 {
	s := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(s)
	if s[0].Value.Kind() != runtimemetrics.KindUint64 {
		return 0 // a Go that has another name for it
	}
	return float64(s[0].Value.Uint64())
}
