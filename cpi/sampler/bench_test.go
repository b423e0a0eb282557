package sampler

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpuset"
)

// still is a counter of a thousand containers that has nothing to do.
type still struct {
	reading counter.Reading
	at      time.Duration
}

func (s *still) Follow(string, string) error        { return nil }
func (s *still) Forget(string)                      {}
func (s *still) SetSkip(cpuset.Set) error           { return nil }
func (s *still) Enable(dst *counter.Reading) error  { return s.read(dst) }
func (s *still) Disable(dst *counter.Reading) error { return s.read(dst) }
func (s *still) read(dst *counter.Reading) error {
	s.at += 10 * time.Second
	groups := append(dst.Groups[:0], s.reading.Groups...)
	*dst = s.reading
	dst.Groups, dst.At = groups, s.at
	return nil
}

// BenchmarkWindow is what a window costs besides reading the counters, with a
// thousand containers in 250 pods: once a minute.
func BenchmarkWindow(b *testing.B) {
	c := &still{reading: counter.Reading{CPUs: 4, Present: [sample.NumEvents]bool{true, true, true, true}}}
	var n Node
	for i := range 1000 {
		id := fmt.Sprintf("%064d", i)
		n.Containers = append(n.Containers, &cpi.Container{ID: id, Cgroup: "/" + id, PodUID: fmt.Sprint("pod", i/4)})
		c.reading.Groups = append(c.reading.Groups, counter.Group{ID: id})
	}
	slices.SortFunc(c.reading.Groups, func(a, b counter.Group) int { return cmp.Compare(a.ID, b.ID) })
	now := make(chan time.Time)
	close(now)
	s := New(Options{
		Counter: c, Node: func() Node { return n }, CgroupID: func(string) (uint64, error) { return 1, nil },
		Waits: true, Interval: time.Minute, Window: 10 * time.Second, Rules: sample.Hardware(10 * time.Second),
		Clock: Clock{After: func(time.Duration) <-chan time.Time {
			return now
		}, Boot: func() time.Duration { return 0 }, Monotonic: func() time.Duration { return 0 }},
	})
	b.ReportAllocs()
	for b.Loop() {
		p := s.plan()
		w := s.window(b.Context(), &p)
		if w == nil || w.Failed != nil || w.Dropped != sample.None || len(w.Containers) != 1000 {
			b.Fatalf("%+v", w)
		}
		s.keep(w)
	}
}

// BenchmarkEvidence is what evidence costs a window of a thousand containers on 256 CPUs, where
// each of them ran on each CPU: the table of who ran where, and what ran beside the victims that
// can be analysed in ten seconds.
func BenchmarkEvidence(b *testing.B) {
	const cpus, n, victims = 256, 1000, 10
	from, to := &edge{}, &edge{}
	to.sample.Monotonic = 10 * time.Second
	for i := range n {
		to.reading.Groups = append(to.reading.Groups, counter.Group{ID: fmt.Sprintf("%064d", i)})
	}
	for cpu := range cpus {
		for i := range n {
			to.reading.Rows = append(to.reading.Rows, counter.Row{CPU: uint16(cpu), Group: uint16(i), OnCPU: 1e7,
				Instructions: 1e7, Misses: 1e4})
		}
	}
	l := &sample.Layout{}
	for cpu := range int32(cpus) { // two sockets, 16 L3 domains each of four cores of two threads
		l.Core, l.L3, l.Node = append(l.Core, cpu/2), append(l.L3, cpu/8), append(l.Node, cpu/128)
	}
	cpuTime := func() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }
	least := time.Hour
	for b.Loop() {
		began := cpuTime()
		table := byCPU(from, to)
		for i := range victims {
			if table.Beside(to.reading.Groups[i*n/victims].ID, l) == nil {
				b.Fatal("nobody ran")
			}
		}
		least = min(least, cpuTime()-began)
	}
	b.ReportMetric(least.Seconds()*1000, "cpu-ms/window")
}
