package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// large is a cluster of nodes of 256 CPUs in four kinds, each with a third of its CPUs owned,
// no two alike.
func large(b testing.TB, nodes int) (*Cluster, []string) {
	b.Helper()
	c, d, rng := NewCluster(nil), ledger.NewDecoder(), rand.New(rand.NewPCG(1, 1))
	var names []string
	for i := range nodes {
		topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1 + i%2*3, L3PerNode: 4 >> (i % 2),
			CoresPerL3:     16 / (1 + i%2),
			ThreadsPerCore: 2, Numbering: []topology.Numbering{topology.Split, topology.Adjacent}[i/2%2]}.Build()
		if err != nil {
			b.Fatal(err)
		}
		l := policy.Ledger{Rules: &policy.Config{Authority: policy.Authority{TrustStatus: true}}}
		for j, core := range topo.Cores() {
			if rng.IntN(3) > 0 {
				continue
			}
			h := policy.Holding{UID: fmt.Sprintf("0f34a2c6-8a57-4d3e-9d5a-%06d%06d", i, j), Namespace: "shop",
				Pod: fmt.Sprintf("checkout-7d9c6f8b5-%05d", j), Class: policy.LSR, Requested: int32(len(core.CPUs))}
			cpus := cpuset.Of(core.CPUs...)
			h.CPUs = cpus.Pack()
			l.Holdings = append(l.Holdings, h)
		}
		text, err := ledger.Encode(topo, &l, 1)
		if err != nil {
			b.Fatal(err)
		}
		n, err := d.Decode(text)
		if err != nil {
			b.Fatal(err)
		}
		names = append(names, fmt.Sprintf("node-%d", i))
		if err := c.Publish(names[i], n); err != nil {
			b.Fatal(err)
		}
	}
	return c, names
}

func owner(milli int64) *Wish {
	r := policy.Resources{RequestMilli: milli, LimitMilli: milli}
	return NewWish(&policy.Pod{UID: "u", Sandbox: "u", Namespace: "shop", Name: "p", QoS: policy.Guaranteed,
		Resources: &r, Labels: map[string]string{policy.LabelClass: "LSR"}})
}

// cpuTime measures what this thread computes, which other work on the machine does not change
// much: the function that it returns reports it.
func cpuTime(b *testing.B) func() {
	runtime.LockOSThread()
	now := func() int64 {
		var u syscall.Rusage
		const thread = 1 // RUSAGE_THREAD
		if err := syscall.Getrusage(thread, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	from := now()
	return func() {
		b.ReportMetric(float64(now()-from)/float64(b.N), "cpu-ns/op")
		runtime.UnlockOSThread()
	}
}

// budget prints a figure of this machine at this moment with what was asked of it.
func budget(b *testing.B, what string, figure float64, asked string, kept bool) {
	b.Helper()
	word := "kept"
	if !kept {
		word = "MISSED"
	}
	b.Logf("budget: %s: %.2f, asked for %s: %s", what, figure, asked, word)
}

// BenchmarkAsk is what a node costs that is looked at in earnest, and one that the count rules
// out; node-KB is what is kept of each of 5,000, what they have in common included.
func BenchmarkAsk(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const nodes = 5000
	c, names := large(b, nodes)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc) / 1024 / nodes
	for name, w := range map[string]*Wish{"fits": owner(4000), "too many": owner(250_000)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			took := make([]time.Duration, 0, 1<<20)
			used := cpuTime(b)
			for i := 0; b.Loop(); i++ {
				from := time.Now()
				_, _ = c.Node(names[i%nodes]).Rate(w, Load{SharedMilli: int64(4000 + i/nodes%2)})
				if len(took) < cap(took) {
					took = append(took, time.Since(from))
				}
			}
			used()
			slices.Sort(took)
			middle := float64(took[len(took)/2].Nanoseconds()) / 1000
			b.ReportMetric(middle, "median-us")
			b.ReportMetric(each, "node-KB")
			budget(b, fmt.Sprintf("µs to look at a node, %s, median", name), middle, "less than 10", middle < 10)
			budget(b, "KB kept of a node, what it has in common with others included", each, "less than 10", each < 10)
		})
	}
}

// BenchmarkRate is the same for the next of several pods that are alike.
func BenchmarkRate(b *testing.B) {
	const nodes = 1000
	c, names := large(b, nodes)
	w := owner(4000)
	for _, name := range names {
		_, _ = c.Node(name).Rate(w, Load{SharedMilli: 4000})
	}
	b.ReportAllocs()
	defer cpuTime(b)()
	for i := 0; b.Loop(); i++ {
		_, _ = c.Node(names[i%nodes]).Rate(w, Load{SharedMilli: 4000})
	}
}

// BenchmarkPublish is a NodeResourceTopology event until the scheduler decides by it.
func BenchmarkPublish(b *testing.B) {
	c, names := large(b, 1)
	s := c.Node(names[0])
	text, err := ledger.Encode(s.site.topology, s.ledger, 2)
	if err != nil {
		b.Fatal(err)
	}
	d := ledger.NewDecoder()
	from := time.Now()
	for b.Loop() {
		n, err := d.Decode(text)
		if err == nil {
			err = c.Publish(names[0], n)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	ms := time.Since(from).Seconds() * 1000 / float64(b.N)
	budget(b, "ms from what a node publishes to a state to decide by", ms, "less than 1", ms < 1)
}

// BenchmarkNewNodes is a node that was never seen, in a cluster that grows to so many of them: at a start
// they come one after the other.
func BenchmarkNewNodes(b *testing.B) {
	unreadable := errors.New("cannot be read")
	for _, nodes := range []int{1_000, 5_000, 20_000} {
		names := make([]string, nodes)
		for i := range names {
			names[i] = fmt.Sprintf("node-%d", i)
		}
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			b.ReportAllocs()
			c := NewCluster(nil)
			for i := 0; b.Loop(); i++ {
				if i%nodes == 0 {
					c = NewCluster(nil)
				}
				c.Broken(names[i%nodes], unreadable)
			}
		})
	}
}
