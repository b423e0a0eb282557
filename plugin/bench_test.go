package plugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/quietcore/quietcore/topology"
)

// nothing is a plugin that answers every creation with nothing: the least that
// NRI itself costs.
type nothing struct{}

func (nothing) CreateContainer(context.Context, *api.PodSandbox,
	*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func (n *rig) startNothing() {
	n.startRuntime()
	st, err := stub.New(nothing{}, stub.WithPluginName("nothing"), stub.WithPluginIdx("10"),
		stub.WithSocketPath(n.socket))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := st.Start(context.Background()); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(st.Stop)
	eventually(n.t, "the idle plugin is synchronised", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.synced > 0
	})
	n.admitted()
}

// creator sends CreateContainer for new containers of one burstable pod, as the
// 501st of a node, and ends each so that the node stays as large.
type creator struct {
	n    *rig
	pod  spec
	i    int
	took []time.Duration
}

func (c *creator) once(b *testing.B) {
	c.i++
	sandbox := c.n.pods["sb-"+c.pod.name]
	container := c.pod.container(sandbox.Id, fmt.Sprintf("%s-%d", c.pod.name, c.i), ctr{name: "main", request: 500})
	ctx := context.Background()
	start := time.Now()
	_, err := c.n.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: sandbox, Container: container})
	c.took = append(c.took, time.Since(start))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.n.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: sandbox, Container: container}); err != nil {
		b.Fatal(err)
	}
}

func (c *creator) percentile(p float64) time.Duration {
	slices.Sort(c.took)
	return c.took[int(p*float64(len(c.took)-1))]
}

// BenchmarkCreateContainer compares the answer to CreateContainer, through the
// real adaptation and a socket, with that of a plugin that does nothing; the two
// take turns, so that both see the same machine.
func BenchmarkCreateContainer(b *testing.B) {
	machine := grid(b, topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 32, ThreadsPerCore: 2})
	ours, idle := newNode(b, machine), newNode(b, machine)
	ours.direct, idle.direct = true, true
	ours.up(func(o *Options) { // as the daemon runs: what it does every second is part of the figures
		o.Log, o.Clock, o.saveEvery = slog.New(slog.NewTextHandler(io.Discard, nil)), Clock{}, 0
	})
	idle.startNothing()
	for _, n := range []*rig{ours, idle} {
		for i := range 499 {
			s := burstable(fmt.Sprint("web", i))
			n.pods["sb-"+s.name] = s.sandbox("sb-" + s.name)
			mustRun(b, n, s)
		}
		mustRun(b, n, lsr("db", 4000))
	}
	ours.settle()
	a, z := &creator{n: ours, pod: burstable("web7")}, &creator{n: idle, pod: burstable("web7")}
	for range 200 { // warm both
		a.once(b)
		z.once(b)
	}
	a.took, z.took = nil, nil
	for b.Loop() {
		a.once(b)
		z.once(b)
	}
	b.ReportMetric(float64(a.percentile(.5).Microseconds()), "p50-us")
	b.ReportMetric(float64(z.percentile(.5).Microseconds()), "p50-idle-us")
	b.ReportMetric(float64(a.percentile(.99).Microseconds()), "p99-us")
	b.ReportMetric(float64(z.percentile(.99).Microseconds()), "p99-idle-us")
	b.ReportMetric(float64(a.percentile(.5))/float64(z.percentile(.5)), "p50-ratio")
	b.ReportMetric(float64(a.percentile(.99))/float64(z.percentile(.99)), "p99-ratio")
}

// BenchmarkHandler is our own share of it: the handler called directly.
func BenchmarkHandler(b *testing.B) {
	n := newNode(b, grid(b, topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 32,
		ThreadsPerCore: 2}))
	n.up(func(o *Options) { o.Log = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	for i := range 500 {
		mustRun(b, n, burstable(fmt.Sprint("web", i)))
	}
	n.settle()
	s := &session{Plugin: n.plugin, deadline: time.Minute}
	sandbox, pod := n.pods["sb-web7"], burstable("web7")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		c := pod.container(sandbox.Id, fmt.Sprint("c-", i), ctr{name: "main", request: 500})
		if _, _, err := s.CreateContainer(context.Background(), sandbox, c); err != nil {
			b.Fatal(err)
		}
		if _, err := s.StopContainer(context.Background(), sandbox, c); err != nil {
			b.Fatal(err)
		}
	}
}

// full is a node with a thousand containers on 512 CPUs, thirty of them owners.
func full(t testing.TB) (*rig, []*api.PodSandbox, []*api.Container) {
	n := newNode(t, grid(t, topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8,
		ThreadsPerCore: 2}))
	var pods []*api.PodSandbox
	var containers []*api.Container
	for i := range 1000 {
		var s spec
		switch {
		case i < 30:
			s = lsr(fmt.Sprint("db", i), 4000)
		case i%2 == 0:
			s = burstable(fmt.Sprint("web", i))
		default:
			s = bestEffort(fmt.Sprint("batch", i))
		}
		sandbox := s.sandbox("sb-" + s.name)
		c := s.container(sandbox.Id, s.name+"-main", s.ctrs[0])
		c.CreatedAt = int64(1_700_000_000_000_000_000 + i)
		c.State = api.ContainerState_CONTAINER_RUNNING
		n.kernel.Mkdir(c.Linux.CgroupsPath, 1)
		pods, containers = append(pods, sandbox), append(containers, c)
	}
	return n, pods, containers
}

// BenchmarkSynchronize is everything that happens between the runtime's lists
// and our answer, for a daemon that has just started: reading the cgroups,
// translation, allocation.
func BenchmarkSynchronize(b *testing.B) {
	n, pods, containers := full(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		b.StopTimer()
		p, err := New(n.options())
		if err != nil {
			b.Fatal(err)
		}
		loop, done := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); p.runner.run(loop) }()
		s := &session{Plugin: p, deadline: time.Minute}
		b.StartTimer()
		if _, err := s.Synchronize(ctx, pods, containers); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if got := len(p.Snapshot().Containers); got != 1000 {
			b.Fatalf("%d containers after it", got)
		}
		done()
		<-ended
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/sync")
}

// A thousand containers over the real socket, within the runtime's own limit.
func TestAThousandContainersAreTakenOverInTime(t *testing.T) {
	n, pods, containers := full(t)
	for i, p := range pods {
		n.pods[p.Id] = p
		n.containers[containers[i].Id] = containers[i]
	}
	start := time.Now()
	n.up()
	t.Logf("from the first attempt to connect until everything was written and read back: %s", time.Since(start))
	if got := len(n.plugin.Snapshot().Containers); got != 1000 {
		t.Errorf("%d containers are known", got)
	}
	if got := n.plugin.Snapshot().Exclusive.Count(); got != 120 {
		t.Errorf("%d CPUs are owned, want 30 pods x 4", got)
	}
	n.checkOwners()
}
