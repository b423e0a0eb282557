package nrt

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/policy"
)

// BenchmarkUpdate measures a change of the node until the API server has it: the
// object of 256 CPUs is built, applied over loopback, and merged by the API
// server's own code. The bound on how often it is written is out of force.
func BenchmarkUpdate(b *testing.B) {
	s := newServer()
	web := httptest.NewServer(s)
	defer web.Close()
	api, err := NewAPI(&rest.Config{Host: web.URL, QPS: -1})
	must(b, err)
	m := newMachine(b, gridOf(b, 256), policy.Config{})
	for i := range 60 {
		must(b, m.run(string(rune('A'+i)), "LSE", 2))
	}
	in := Input{Node: "n1", Snapshot: m.Snapshot()}
	var seq, clock atomic.Int64
	written := make(chan struct{}, 1)
	p := New(Options{
		API: api, Log: slog.New(slog.DiscardHandler),
		Source: func() *v1alpha2.NodeResourceTopology {
			o := Build(in)
			o.Zones[0].Resources[0].Available.Set(seq.Load())
			return o
		},
		Published: func(time.Time) { written <- struct{}{} },
		Now:       func() time.Time { return time.Unix(clock.Add(2), 0) },
		After:     func(time.Duration) <-chan time.Time { return nil },
		Spread:    func(time.Duration) time.Duration { return 1 << 60 },
	})
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	<-written
	for b.Loop() {
		seq.Add(1)
		p.Changed()
		<-written
	}
	cancel()
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.rv; int64(got) != seq.Load()+1 {
		b.Errorf("%d versions of the object after %d changes", got, seq.Load())
	}
}
