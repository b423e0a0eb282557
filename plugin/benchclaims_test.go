package plugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cdi"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// claimer prepares and unprepares a claim beside 15 others, as the driver does after it has read the claim: the CPUs,
// the state file on a real disk, and the CDI spec. Only cgroups are simulated.
type claimer struct {
	n                    *rig
	specs                cdi.Own
	i                    int
	prepared, unprepared []time.Duration
}

func (c *claimer) claim(name string) policy.ClaimPrepared {
	node := c.n.topo.Nodes()[c.i%len(c.n.topo.Nodes())]
	return policy.ClaimPrepared{UID: name, Namespace: "default", Name: name, Pods: []string{"uid-" + name},
		Requests: []policy.ClaimRequest{{Device: fmt.Sprint("numa-", node.ID), Within: node.CPUs, CPUs: 4}}}
}

func (c *claimer) prepare() error {
	c.i++
	e := c.claim(fmt.Sprint("claim-", c.i))
	begun := time.Now()
	if _, err := c.n.plugin.Prepare(context.Background(), e); err != nil {
		return err
	}
	err := c.specs.Write(e.UID, len(e.Requests))
	c.prepared = append(c.prepared, time.Since(begun))
	return err
}

func (c *claimer) unprepare() error {
	uid := fmt.Sprint("claim-", c.i)
	begun := time.Now()
	if err := c.n.plugin.Unprepare(context.Background(), policy.ClaimUnprepared{UID: uid}); err != nil {
		return err
	}
	err := c.specs.Remove(uid)
	c.unprepared = append(c.unprepared, time.Since(begun))
	return err
}

func percentile(took []time.Duration, p float64) float64 {
	slices.Sort(took)
	return float64(took[int(p*float64(len(took)-1))].Microseconds())
}

// runDir is a directory in memory, as /var/run is, where the machine has one.
func runDir(b *testing.B) string {
	dir, err := os.MkdirTemp("/dev/shm", "claims")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// BenchmarkClaim is a claim that is prepared while the runtime creates a container, on a node of 256 CPUs with 500
// containers and 15 other claims, and the same creation on a node without claims; the two take turns.
func BenchmarkClaim(b *testing.B) {
	machine := grid(b, topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 32, ThreadsPerCore: 2})
	with, without := newNode(b, machine), newNode(b, machine)
	for _, n := range []*rig{with, without} {
		n.direct = true
		n.up(func(o *Options) { // as the daemon runs
			o.Log, o.Clock, o.saveEvery = slog.New(slog.NewTextHandler(io.Discard, nil)), Clock{}, 0
			o.Store = &state.Store{Dir: b.TempDir(), Node: "n", BootID: "b", Now: time.Now}
		})
		for i := range 499 {
			s := burstable(fmt.Sprint("web", i))
			s.ctrs[0].request = 100 // of the shared pool's floor
			n.pods["sb-"+s.name] = s.sandbox("sb-" + s.name)
			mustRun(b, n, s)
		}
		mustRun(b, n, lsr("db", 4000))
		n.settle()
	}
	c := &claimer{n: with, specs: cdi.Own{Dir: runDir(b)}}
	for range 15 {
		if err := c.prepare(); err != nil {
			b.Fatal(err)
		}
	}
	beside, alone := &creator{n: with, pod: burstable("web7")}, &creator{n: without, pod: burstable("web7")}
	round := func() {
		done := make(chan error)
		go func() { done <- c.prepare() }()
		beside.once(b)
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		alone.once(b)
		if err := c.unprepare(); err != nil {
			b.Fatal(err)
		}
	}
	for range 50 { // warm both
		round()
	}
	c.prepared, c.unprepared, beside.took, alone.took = nil, nil, nil, nil
	for b.Loop() {
		round()
	}
	b.ReportMetric(percentile(c.prepared, .5), "prepare-p50-us")
	b.ReportMetric(percentile(c.prepared, .99), "prepare-p99-us")
	b.ReportMetric(percentile(c.unprepared, .99), "unprepare-p99-us")
	b.ReportMetric(percentile(beside.took, .5), "create-p50-us")
	b.ReportMetric(percentile(alone.took, .5), "create-p50-noclaims-us")
	b.ReportMetric(percentile(beside.took, .99), "create-p99-us")
	b.ReportMetric(percentile(alone.took, .99), "create-p99-noclaims-us")
}
