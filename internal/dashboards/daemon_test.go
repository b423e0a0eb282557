package dashboards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/promtest"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/loop"
	"github.com/quietcore/quietcore/topology"
)

type quietNRI struct{}

func (quietNRI) Debugf(context.Context, string, ...any) {}
func (quietNRI) Infof(context.Context, string, ...any)  {}
func (quietNRI) Warnf(context.Context, string, ...any)  {}
func (quietNRI) Errorf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	nrilog.Set(quietNRI{})
	m.Run()
}

// daemon is the parts of one, on a node that is played: the plugin under the runtime's
// own side of NRI on a real socket, with a kernel's cgroups in memory; the lending loop
// with uses that are made up; the detector of antagonists on a clock of its own. What
// would be the API server's and systemd's answers is counted as they would be.
type daemon struct {
	t         *testing.T
	url       string // of its metrics
	metrics   *metrics.Metrics
	nri       *adaptation.Adaptation
	kernel    *cgrouptest.Kernel
	plugin    *plugin.Plugin
	audit     chan time.Time
	lending   *loop.Loop
	look      chan time.Time
	scraped   chan struct{}
	mu        sync.Mutex // guards what follows
	clock     time.Time  // the lending loop's
	published time.Time  // when the API server took what is published
	lent      float64    // CPUs that the Node says are lent
	used      map[string]time.Duration
	detector  *detect.Detector
	minute    time.Time // the detector's
	refs      map[string]detect.Ref
	chance    *rand.Rand
}

// pod is a pod with one container.
type pod struct {
	name    string
	class   policy.Class
	slice   string
	request int64   // thousandths of a CPU
	use     float64 // CPUs
}

func steadyPods() []pod {
	return []pod{
		{"db", policy.LSR, "", 4000, 2.5},
		{"web", policy.LS, "burstable/", 2000, 1},
		{"batch", policy.BE, "besteffort/", 0, 1.5},
	}
}

func startDaemon(t *testing.T) *daemon {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{
		t: t, kernel: cgrouptest.New(topo.Online()), audit: make(chan time.Time), look: make(chan time.Time),
		scraped: make(chan struct{}, 100),
		clock:   time.Now(), published: time.Now(), used: map[string]time.Duration{}, minute: time.Unix(1e9, 0),
		refs: map[string]detect.Ref{}, chance: rand.New(rand.NewPCG(1, 2)),
	}
	for _, slice := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		d.kernel.Mkdir(slice, 0)
	}
	d.metrics = metrics.New("v1.0.0", d.stats)
	d.startPlugin(topo)
	d.startLending()
	d.startDetector()
	health := metrics.NewHealth(time.Now, time.Now)
	health.Require("not registered with the runtime", d.plugin.Connected)
	health.Require("what runs is not taken over yet", d.plugin.Synchronised)
	health.Watch(func() map[string]string {
		return map[string]string{metrics.FeatureAPIServer: "there is none here"}
	})
	handler := metrics.Handler(d.metrics, health)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		select {
		case d.scraped <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	d.metrics.Reloaded(time.Now(), nil)
	for _, p := range steadyPods() {
		if err := d.run(p); err != nil {
			t.Fatalf("pod %s: %v", p.name, err)
		}
	}
	return d
}

func (d *daemon) startPlugin(topo *topology.Topology) {
	d.t.Helper()
	dir := d.t.TempDir()
	socket := filepath.Join(dir, "nri.sock")
	nothing := func(ctx context.Context, cb adaptation.SyncCB) error { _, err := cb(ctx, nil, nil); return err }
	unsolicited := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, errors.New("nobody asked")
	}
	runtime, err := adaptation.New("containerd", "v2.3.0", nothing, unsolicited,
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(dir), adaptation.WithPluginConfigPath(dir))
	if err == nil {
		err = runtime.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(runtime.Stop)
	d.nri = runtime
	d.plugin, err = plugin.New(plugin.Options{
		Topology: topo, Driver: d.kernel, Reader: d.kernel, Metrics: d.metrics, Log: slog.New(slog.DiscardHandler),
		Socket: socket,
		Store:  &state.Store{Dir: d.t.TempDir(), Now: time.Now, Uptime: state.Uptime},
		Clock:  plugin.Clock{Audit: d.audit},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.parallel(d.plugin.Run)
	promtest.Until(d.t, "the plugin is settled", d.plugin.Settled)
	runtime.BlockPluginSync().Unblock() // the runtime knows a moment later than the plugin
}

// parallel runs a part until the test ends.
func (d *daemon) parallel(part func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); part(ctx) }()
	d.t.Cleanup(func() { stop(); <-ended })
}

func (d *daemon) startLending() {
	d.t.Helper()
	estimator, err := reclaim.New(reclaim.Default())
	if err != nil {
		d.t.Fatal(err)
	}
	d.lending, err = loop.New(loop.Options{
		Usage: &meters{d: d, follows: map[string]bool{}}, Node: d.plugin.Snapshot, Pods: d.plugin.Pods,
		Estimator: estimator, Suppression: reclaim.DefaultSuppress(),
		Suppress: func(ctx context.Context, e policy.BESuppressed) error { return d.plugin.Submit(ctx, e) },
		Clock:    loop.Clock{Now: d.now, Tick: d.look},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.parallel(d.lending.Run)
}

func (d *daemon) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clock
}

// meters read what the played pods have used.
type meters struct {
	d       *daemon
	follows map[string]bool
}

func (m *meters) Follow(id, _ string) error { m.follows[id] = true; return nil }
func (m *meters) Forget(id string)          { delete(m.follows, id) }
func (m *meters) Read(list []usage.Reading) []usage.Reading {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	for id := range m.follows {
		list = append(list, usage.Reading{ID: id, At: m.d.clock, CPU: m.d.used[id]})
	}
	return list
}

// seconds pass for the lending loop.
func (d *daemon) seconds(n int) {
	for range n {
		d.mu.Lock()
		d.clock = d.clock.Add(time.Second)
		whole := 0.5 // of the system
		for _, p := range steadyPods() {
			d.used["uid-"+p.name] += time.Duration(p.use * float64(time.Second))
			whole += p.use
		}
		d.used["/"] += time.Duration(whole * float64(time.Second))
		now := d.clock
		d.mu.Unlock()
		d.look <- time.Time{}
		promtest.Until(d.t, "the lending loop has looked", func() bool { return d.lending.Status().At.Equal(now) })
	}
}

func (d *daemon) stats() (metrics.Stats, bool) {
	if d.plugin == nil || d.lending == nil {
		return metrics.Stats{}, false
	}
	s := metrics.FromSnapshot(d.plugin.Snapshot(), time.Now())
	s.Unpinned, s.Unsaved, s.SharedFloor = d.plugin.Unpinned(), d.plugin.Unsaved(), 2
	s.Connected = d.plugin.Connected()
	d.mu.Lock()
	published, lent := d.published, d.lent
	d.mu.Unlock()
	s.Stale = time.Since(published)
	s.Modes = metrics.Modes{Mode: "enforce", CPI: "enforce", Reclaim: "observe", Suppression: "enforce"}
	l := d.lending.Status()
	s.Lending = &metrics.Lending{
		Capacity: l.Capacity, Supply: l.Supply, Offered: l.Offer, Published: lent, Promised: l.Promised,
		Demand: l.Demand, Budget: l.Budget.CPUs,
	}
	if !l.Suppressed.IsEmpty() {
		s.Lending.Withheld = float64(l.Pool - l.Suppressed.Count())
	}
	if l.Known {
		s.Lending.Used = &metrics.Used{Production: l.Production, Batch: l.Batch, Outside: l.Outside}
	}
	return s, true
}

func (d *daemon) startDetector() {
	d.t.Helper()
	cfg := detect.DefaultConfig()
	cfg.Enforce = true
	var err error
	if d.detector, err = detect.New(cfg); err != nil {
		d.t.Fatal(err)
	}
	put := func(id, job string, class cpi.Class) {
		ref, err := d.detector.Put(d.minute, &cpi.Container{ID: id, Job: job, Platform: "EPYC", Class: class})
		if err != nil {
			d.t.Fatal(err)
		}
		d.refs[id] = ref
	}
	for i := range 6 {
		put(fmt.Sprint("web", i), "default/Deployment/web/main", cpi.LS)
	}
	put("batch", "default/Job/batch/main", cpi.BE)
	jobs := func() []detect.JobInfo {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.detector.Jobs()
	}
	d.metrics.CPICounting(true, 600)
	d.metrics.CPIJobs(1000, jobs)
	d.metrics.CPIDetector(func() metrics.Detection {
		list := jobs()
		d.mu.Lock()
		defer d.mu.Unlock()
		c := d.detector.Counters()
		return metrics.Detection{Outliers: c.Outliers, Anomalies: c.Anomalies, Jobs: list, Tests: testsIn(d.minute)}
	})
	d.metrics.CPIClusterSpecs(func() metrics.ClusterSpecs {
		return metrics.ClusterSpecs{Queries: map[string]uint64{"ok": 1}, InUse: 1, Age: 60}
	})
	d.minutes(130, false) // a hundred samples of each make a spec
}

// testsIn is what tests of the detector by experiment come to with time: this daemon runs the other detector.
func testsIn(at time.Time) *experiment.Counters {
	n := uint64(at.Unix() / 60 % 1e6)
	return &experiment.Counters{Tests: n / 8, Verdicts: n / 16, Harm: float64(n) / 10,
		Tested: experiment.Windows{All: [2]uint64{n, n / 2}, Well: [2]uint64{n / 4, n / 2}},
		Capped: experiment.Windows{All: [2]uint64{n / 8, n}, Well: [2]uint64{n / 16, n}}}
}

// minutes pass for the detector: one window each. The antagonist comes and goes, and
// web0 suffers while it is there and not capped.
func (d *daemon) minutes(n int, disturbed bool) {
	late := &cpi.Container{Namespace: "default", Pod: "late", Name: "main"}
	for i := range n {
		busy := disturbed && i%10 >= 5
		d.mu.Lock()
		for _, c := range d.detector.InForce() {
			busy = busy && c.Kind != detect.DoCap
		}
		d.minute = d.minute.Add(time.Minute)
		window := &metrics.CPIWindow{Length: 10 * time.Second, Running: 0.97, Followed: 7,
			Cost: time.Duration(d.minute.Unix()-1e9) * time.Microsecond, Descriptors: 64}
		var samples []detect.Sample
		for id, ref := range d.refs {
			cpi, use := 1.5*math.Exp(0.08*d.chance.NormFloat64()), 1.0
			switch {
			case id == "batch" && busy:
				cpi, use = 1, 3
			case id == "batch":
				cpi, use = 1, 0.01
			case id == "web0" && busy:
				cpi = 3.2
			}
			samples = append(samples, detect.Sample{Ref: ref, At: d.minute, Usage: use, CPI: cpi})
			window.Containers = append(window.Containers, counted(id, cpi, use))
		}
		window.Containers = append(window.Containers, sample.Result{Dropped: sample.Ended, Container: late})
		events := d.detector.Observe(d.minute, samples)
		d.metrics.CPILearned(d.detector.Learned())
		d.metrics.CPIWindow(window)
		for _, e := range events {
			d.handle(&e)
		}
		d.mu.Unlock()
	}
}

func counted(id string, ratio, use float64) sample.Result {
	c := sample.Result{Container: &cpi.Container{Namespace: "default", Pod: id, Name: "main", PodClass: "LS"}}
	if id == "batch" {
		c.PodClass = "BE"
	}
	c.Sample = sample.Sample{Length: 10 * time.Second, Usage: use, CPI: ratio, HasMPKI: true, MPKI: 2, HasWait: true,
		Wait: 0.1}
	c.Delta.OnCPU = time.Duration(use * 10 * float64(time.Second))
	c.Delta.Wait = c.Delta.OnCPU / 9
	c.Delta.Events[sample.Cycles] = uint64(use * 3e10)
	c.Delta.Events[sample.Instructions] = uint64(use * 3e10 / ratio)
	c.Delta.Events[sample.LLCMisses] = uint64(use * 6e7 / ratio)
	return c
}

// handle does with an event of the detector what a daemon does.
func (d *daemon) handle(e *detect.Event) {
	job := func(ref detect.Ref) string { return d.detector.Container(ref).Job }
	switch e.Kind {
	case detect.AnalysisEvent:
		d.metrics.CPIVerdict(e.Verdict.Kind)
		for _, a := range e.Verdict.Antagonists {
			d.metrics.CPIBlamed(job(e.Verdict.Victim), job(a))
		}
	case detect.OutcomeEvent:
		d.metrics.CPIOutcome(e.Outcome.Result)
	}
}

func (p *pod) parent() string { return "/kubepods/" + p.slice + "poduid-" + p.name }

// run plays kubelet and the runtime for one pod.
func (d *daemon) run(p pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cpu := &api.LinuxCPU{Shares: api.UInt64(uint64(max(p.request*1024/1000, 2))), Period: api.UInt64(100000)}
	if p.slice == "" {
		cpu.Quota = api.Int64(p.request * 100)
	}
	sandbox := &api.PodSandbox{
		Id: "sandbox-" + p.name, Uid: "uid-" + p.name, Name: p.name, Namespace: "default",
		Labels: map[string]string{policy.LabelClass: string(p.class)},
		Linux: &api.LinuxPodSandbox{CgroupParent: p.parent(), PodResources: &api.LinuxResources{Cpu: cpu},
			Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(2)}}},
	}
	d.kernel.Mkdir(p.parent(), 0)
	if err := d.nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		d.kernel.Rmdir(p.parent())
		// as kubelet does with what was refused
		_ = d.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: sandbox})
		_ = d.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: sandbox}) // the same
		return err
	}
	container := &api.Container{
		Id: p.name + "-main", PodSandboxId: sandbox.Id, Name: "main", State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{CgroupsPath: p.parent() + "/main",
			Resources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu}},
	}
	reply, err := d.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: sandbox, Container: container})
	if err != nil {
		return err
	}
	d.kernel.Mkdir(container.Linux.CgroupsPath, 1)
	if set, err := cpuset.Parse(reply.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus()); err == nil &&
		!set.IsEmpty() {
		if err := d.kernel.Apply(ctx, container.Linux.CgroupsPath, cgroup.Values{CPUs: cgroup.Only(set)}); err != nil {
			return err
		}
	}
	container.State = api.ContainerState_CONTAINER_RUNNING
	if err := d.nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: sandbox,
		Container: container}); err != nil {
		return err
	}
	_, err = d.nri.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: sandbox, Container: container,
		LinuxResources: &api.LinuxResources{Cpu: cpu}})
	return err
}

// end takes a pod away.
func (d *daemon) end(p pod) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sandbox := &api.PodSandbox{Id: "sandbox-" + p.name, Uid: "uid-" + p.name, Name: p.name, Namespace: "default",
		Linux: &api.LinuxPodSandbox{CgroupParent: p.parent()}}
	container := &api.Container{Id: p.name + "-main", PodSandboxId: sandbox.Id, Name: "main"}
	d.kernel.Rmdir(p.parent() + "/main")
	d.kernel.Rmdir(p.parent())
	_, errStop := d.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: sandbox, Container: container})
	err := errors.Join(errStop, d.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: sandbox,
		Container: container}),
		d.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: sandbox}),
		d.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: sandbox}))
	if err != nil {
		d.t.Error(err)
	}
}

// round is a while on the node: pods come and go, one is refused, somebody writes a
// mask, the antagonist is there, production uses more, and a scrape sees it.
func (d *daemon) round() {
	d.t.Helper()
	passing := pod{"passing", policy.LSR, "", 2000, 0}
	if err := d.run(passing); err != nil {
		d.t.Fatal(err)
	}
	if err := d.run(pod{"greedy", policy.LSR, "", 64000, 0}); err == nil {
		d.t.Fatal("64 CPUs were given out of 16")
	}
	if err := d.plugin.Submit(context.Background(), policy.CapVerdict{ID: "batch-main", Milli: 100,
		For: time.Minute}); err != nil {
		d.t.Fatal(err)
	}
	d.kernel.Tamper("kubepods/burstable", "0-15")
	d.audit <- time.Now()
	promtest.Until(d.t, "the plugin is settled", d.plugin.Settled)
	d.end(passing)
	d.seconds(30)
	d.minutes(20, true)
	d.metrics.SystemdCall("ok")
	for _, what := range []string{"topology", "events", "lending", "eviction"} {
		d.metrics.APIRequest(what, "ok")
		d.metrics.APIRequest(what, "timeout")
	}
	d.mu.Lock()
	d.published, d.lent = time.Now(), d.lending.Status().Offer
	d.metrics.TopologyPublished(d.published)
	d.mu.Unlock()
	d.metrics.Eviction(lend.Evicted)
	d.metrics.LendingRepaired("zeroed")
	for len(d.scraped) > 0 {
		<-d.scraped
	}
	for range 2 { // the first may have begun before
		<-d.scraped
	}
}
