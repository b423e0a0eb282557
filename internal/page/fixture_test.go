package page

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// node is a daemon's parts without a runtime: the plugin decides for real about
// pods that the test makes up; what the machine would measure is made up too.
type node struct {
	t       testing.TB
	plugin  *plugin.Plugin
	store   *incidents.Store
	page    *Page
	tick    chan time.Time
	clock   atomic.Int64 // Unix milliseconds
	windows atomic.Int64 // of CPI, so far
	looks   atomic.Int64
	gone    atomic.Bool // the runtime
	// claims decides in the plugin's place where there are claims: without a runtime the plugin prepares none.
	claims *policy.Machine
	shown  atomic.Pointer[policy.Snapshot] // of claims
	alone  atomic.Int64                    // a CPU that the shared pool lacks, which policy seldom leads to; -1: none
}

func small() topology.Grid {
	return topology.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}
}

func large() topology.Grid {
	return topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2}
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newNode(t testing.TB, grid topology.Grid, reserved string) *node {
	t.Helper()
	topo, err := grid.Build()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	if err := cfg.Reserved.CPUs.UnmarshalText([]byte(reserved)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	n := &node{t: t, tick: make(chan time.Time)}
	n.alone.Store(-1)
	n.clock.Store(noon.UnixMilli())
	n.plugin, err = plugin.New(plugin.Options{Topology: topo, Config: cfg.Policy(),
		Socket: filepath.Join(dir, "no-runtime")})
	if err != nil {
		t.Fatal(err)
	}
	n.store = incidents.New(incidents.Options{Path: filepath.Join(dir, "incidents.db")})
	n.page, err = New(Options{
		Look: n.look, Load: n.load, Report: n.report, Incidents: n.store, History: n.history,
		Node: "node-a", Version: "v1.2.3",
		Now: func() time.Time { return time.UnixMilli(n.clock.Load()).UTC() }, Tick: n.tick,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	for _, part := range []func(context.Context){n.plugin.Run, n.store.Run, n.page.Run} {
		parts.Go(func() { part(ctx) })
	}
	t.Cleanup(func() { cancel(); parts.Wait() })
	return n
}

// look is what cmd/quietcore puts together, with measurements made up.
func (n *node) look() Look {
	n.looks.Add(1)
	s := cmp.Or(n.shown.Load(), n.plugin.Snapshot())
	if cpu := n.alone.Load(); cpu >= 0 {
		changed := *s
		changed.Shared.Remove(int(cpu))
		s = &changed
	}
	window := n.windows.Load()
	age := 5.0
	next := 130.0 - float64(window%2)
	p := control.Performance{CPI: control.CPI{Mode: "observe", Counting: true, Interval: 60, Window: 10, Age: &age,
		Jobs:      &control.Jobs{Judged: 2, LackSamples: 1, MinTasks: 5, MinTaskSamples: 100, Next: &next},
		Watchlist: &control.Watchlist{Counted: 4, Containers: 5, Victims: 1, Suspects: 1, Turns: 1},
	}, Samples: map[string]control.Sample{}}
	for i, c := range s.Containers {
		usage := 0.5 + float64(i%7)/3
		cpi := 1.2 + 0.3*math.Sin(float64(window)/5+float64(i)) + 0.1*float64(i%3)
		mpki, wait := 2.5, 0.013
		p.Samples[c.ID] = control.Sample{Usage: &usage, CPI: &cpi, MPKI: &mpki, Wait: &wait}
	}
	used := float64(s.Topology.Online().Count())
	linked := !n.gone.Load()
	return Look{
		Snapshot: s, Connected: linked, Synchronised: linked, Performance: p,
		Lending: &Lending{Known: true, Production: used * (0.4 + 0.1*math.Sin(float64(window)/9)), Batch: used * 0.2,
			Offered: true, Offer: used * 0.3},
	}
}

// load is of CPUs that are busy for 0 %, 37 %, 74 %, 10 % … of the time, each as long as it runs.
func (n *node) load() []CPUTime {
	list := make([]CPUTime, n.plugin.Snapshot().Topology.Online().Count())
	for cpu := range list {
		passed := float64(n.clock.Load()) / 1000
		list[cpu] = CPUTime{Busy: passed * float64(37*cpu%101) / 100, Total: passed}
	}
	return list
}

// report has something about each of the first containers.
func (n *node) report(context.Context) (*dayreport.Report, error) {
	idle, lent := 1.25, 0.75
	r := &dayreport.Report{Node: "node-a", Mode: "observe", LookedMinutes: 23*60 + 14, EnforcedMinutes: 61,
		Missing: []string{"no windows of counting for 3h"}, More: 4,
		CPUs: dayreport.CPUs{Online: 8, Owned: 2.5, Idle: &idle, Lendable: &lent}}
	list := n.plugin.Snapshot().Containers
	for i, c := range list[:min(len(list), ReportLines)] {
		pod, other := c.Namespace+"/"+c.Pod, list[(i+1)%len(list)]
		r.Shared = append(r.Shared, dayreport.Sharing{Pod: pod, With: other.Namespace + "/" + other.Pod,
			Minutes: float64(62 - i), CPUs: 0.5, PartedMinutes: float64(31 * (i % 2))})
		r.Disturbed = append(r.Disturbed, dayreport.Disturbed{Job: pod, Incidents: 3, Minutes: 12,
			By: []dayreport.Blamed{{Job: other.Namespace + "/" + other.Pod, Incidents: 2, Verdicts: i % 2,
				Minutes: 9}}})
		r.Idle = append(r.Idle, dayreport.Idle{Pod: pod, Class: string(c.Class), Owned: 2, Allocated: 2, Used: 0.4,
			Hours: 37.2})
		r.Costs = append(r.Costs, dayreport.Cost{Who: pod, Kind: dayreport.CostCapped, Minutes: 5, CPUMinutes: 2.5,
			Why: "blamed for " + other.Pod})
	}
	return r, nil
}

func (n *node) history(string) []sample.Sample {
	var list []sample.Sample
	for m := range 30 {
		list = append(list, sample.Sample{End: noon.Add(time.Duration(m-30) * time.Minute), Usage: 1, CPI: 1.4 +
			0.4*math.Sin(float64(m)/4)})
	}
	return list
}

// advance lets that much time pass, looking every second or so, and a window of
// CPI end every minute.
func (n *node) advance(d, step time.Duration) {
	n.t.Helper()
	for passed := time.Duration(0); passed < d; passed += step {
		before := n.clock.Load()
		n.clock.Add(step.Milliseconds())
		if before/60_000 != n.clock.Load()/60_000 {
			n.windows.Add(1)
		}
		n.turn()
	}
}

// heapInUse is what this process, daemon's parts and browser's driver alike, holds.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // run finalizers
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// turn has the page look once, and waits until it has.
func (n *node) turn() {
	before := n.looks.Load()
	n.tick <- time.Time{}
	for n.looks.Load() == before {
		runtime.Gosched()
	}
	n.page.timeline() // waits for the lock that is held while it looks
}

func (n *node) submit(events ...policy.Event) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, e := range events {
		if n.claims != nil {
			if _, err := n.claims.Step(noon, e); err != nil {
				n.t.Fatalf("%+v: %v", e, err)
			}
			n.shown.Store(n.claims.Snapshot())
			continue
		}
		if err := n.plugin.Submit(ctx, e); err != nil {
			n.t.Fatalf("%+v: %v", e, err)
		}
	}
}

// pod starts one with a container, and returns the container's id. Without a class it has no label, and is BestEffort
// for Kubernetes.
func (n *node) pod(namespace, name, class string, milli int64) string {
	n.t.Helper()
	qos, shares := policy.Guaranteed, milli*1024/1000
	switch class {
	case "BE", "":
		qos, shares = policy.BestEffort, 2
	case "LS":
		qos = policy.Burstable
	}
	labels := map[string]string{policy.LabelClass: class}
	if class == "" {
		labels = nil
	}
	limit := milli
	if qos != policy.Guaranteed {
		limit = policy.NoLimit
	}
	uid := fmt.Sprintf("uid-%x-%x", namespace, name)
	p := policy.Pod{
		UID: uid, Sandbox: "sb-" + uid, Namespace: namespace, Name: name, QoS: qos, CreatedAt: noon,
		Labels:    policy.Relevant(labels, ""),
		Resources: &policy.Resources{RequestMilli: milli, LimitMilli: limit},
	}
	id := "id-" + uid
	n.submit(policy.PodRun{Pod: p}, policy.ContainerCreate{Pod: p, Container: policy.Container{
		ID: id, Sandbox: p.Sandbox, Name: "main", Resources: *p.Resources, Shares: max(2, shares), CreatedAt: noon,
	}})
	return id
}

// mixed starts an LSR pod whose containers main and worker own CPUs, and whose log shares.
func (n *node) mixed(namespace, name string) {
	n.t.Helper()
	uid := fmt.Sprintf("uid-%x-%x", namespace, name)
	p := policy.Pod{
		UID: uid, Sandbox: "sb-" + uid, Namespace: namespace, Name: name, QoS: policy.Burstable, CreatedAt: noon,
		Labels:      policy.Relevant(map[string]string{policy.LabelClass: "LSR"}, ""),
		Annotations: map[string]string{policy.AnnContainers: "main,worker"},
		Resources:   &policy.Resources{RequestMilli: 3500, LimitMilli: 4000},
	}
	n.submit(policy.PodRun{Pod: p})
	for _, c := range []struct {
		name           string
		request, limit int64
	}{{"main", 2000, 2000}, {"worker", 1000, 1000}, {"log", 500, 1000}} {
		n.submit(policy.ContainerCreate{Pod: p, Container: policy.Container{
			ID: c.name + "-" + uid, Sandbox: p.Sandbox, Name: c.name, Shares: c.request * 1024 / 1000, CreatedAt: noon,
			Resources: policy.Resources{RequestMilli: c.request, LimitMilli: c.limit},
		}})
	}
}

func story(at time.Time, victim, antagonist string) incidents.Incident {
	who := func(pod, class string) incidents.Subject {
		return incidents.Subject{Namespace: "shop", Pod: pod, Container: "main", Job: "Deployment/" + pod,
			Class: class, CPUs: "0-3"}
	}
	claims := func(s incidents.Subject, names string) incidents.Subject {
		s.Claims = names
		return s
	}
	i := incidents.Incident{
		At: at, Node: "node-a", Victim: claims(who(victim, "LSR"), "shop/db-cpus"), CPI: 3.42, Threshold: 2.26,
		Verdict: incidents.Cap,
		Spec: incidents.Spec{Mean: 1.74, StdDev: 0.26, Platform: "Intel(R) Xeon(R) Gold 6230R", Samples: 14210,
			Tasks: 312},
		Why: antagonist + " scores 0.61 over 10 samples, contrast 0.83, confidence 0.97",
		Suspects: []incidents.Suspect{
			{Subject: claims(who(antagonist, "BE"), "shop/video-cpus"), Score: 0.61, Contrast: 0.83, Confidence: 0.97,
				Usage: 6.1, Shares: "L3"},
			{Subject: who("index", "LS"), Score: 0.21, Contrast: 0.1, Confidence: 0.4, Usage: 1.1, Shares: "NUMA"},
		},
		Antagonists: []incidents.Subject{who(antagonist, "BE")},
		Actions: []incidents.Action{{Kind: incidents.Cap, Subject: who(antagonist, "BE"), Milli: 100, From: at,
			Until: at.Add(5 * time.Minute), Ended: at.Add(5 * time.Minute), EndedWhy: "its time is over: success"}},
		Outcome: incidents.Outcome{Result: "success", Before: 3.21, After: 1.77, Samples: 5},
		Evidence: &incidents.Evidence{Resource: "L3", L3: []incidents.Neighbour{
			{Name: "shop/" + antagonist + "/main", CPUs: 5.82, Instructions: 4.1e9, Misses: 9.3e7},
			{Name: "(host)/system.slice/backup.service", CPUs: 0.31, Instructions: 2.2e8, Misses: 4.1e6}},
			Siblings: []incidents.Neighbour{{Name: "shop/index/main", CPUs: 0.22, Instructions: 3.4e8, Misses: 8e5}}},
	}
	for m := -10; m <= 7; m++ {
		v, u := 1.75+0.15*math.Sin(float64(m*3)), 0.4
		if m >= -5 && m <= 0 {
			v, u = 3.2+0.35*math.Sin(float64(m*2)), 7.5
		}
		offset := time.Duration(m) * time.Minute
		i.Series = append(i.Series, incidents.Point{Offset: offset, Value: v})
		i.Suspects[0].Series = append(i.Suspects[0].Series, incidents.Point{Offset: offset, Value: u})
		i.Suspects[1].Series = append(i.Suspects[1].Series, incidents.Point{Offset: offset, Value: 1.1})
	}
	return i
}

func (n *node) incident(i incidents.Incident) string {
	n.t.Helper()
	id := n.store.Put(i)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := n.store.Flush(ctx); err != nil {
		n.t.Fatal(err)
	}
	return id
}

// live is a node with something of everything.
func (n *node) live() {
	n.pod("shop", "db-0", "LSR", 2000)
	n.pod("shop", "web-7d4f9c6b5-x2x9q", "LS", 500)
	n.pod("batch", "encode-1", "BE", 0)
	id := n.pod("batch", "encode-2", "BE", 0)
	if n.plugin.Snapshot().Topology.Online().Count() > 64 {
		for i := range 40 {
			class := "LSR"
			if i%3 == 0 {
				class = "LSE"
			}
			n.pod("search", fmt.Sprintf("leaf-%02d", i), class, 1000*int64(1+i%8))
		}
		for i := range 300 {
			n.pod("web", fmt.Sprintf("frontend-%03d", i), "LS", 100)
		}
		for i := range 150 {
			n.pod("batch", fmt.Sprintf("job-%03d", i), "BE", 0)
		}
	}
	n.advance(20*time.Minute, 10*time.Second)
	s := n.plugin.Snapshot()
	kept := s.BEWhole
	for cpu := range s.BEWhole.All() {
		if kept.Count() <= (s.BEWhole.Count()+1)/2 {
			break
		}
		kept.Remove(cpu)
	}
	n.submit(policy.CapVerdict{ID: id, Milli: 100, For: time.Hour}, policy.BESuppressed{CPUs: kept})
	n.incident(story(noon.Add(15*time.Minute), "db-0", "encode-2"))
	n.advance(10*time.Minute, 10*time.Second)
}

// hostile are names that no API server lets through, for the page must not need it.
func hostile() []string {
	return []string{
		`<img src=x onerror="document.title='owned'">`, `</script><script>document.title='owned'</script>`,
		`"><svg/onload=document.title='owned'>`,
		"line\nbreak\r\nSet-Cookie: a=b", "\x1b[2J\x1b]0;owned\x07", "data: x\n\nevent: now\ndata: 0\n\n",
		"\u202egnp.exe", "{{constructor.constructor('x')()}}",
		strings.Repeat("n", 253), "__proto__", "'; DROP TABLE pods; --", "a\x00b", "%2e%2e/%2e%2e",
	}
}

// serve puts the page on a port of loopback.
func (n *node) serve(t testing.TB) string {
	t.Helper()
	l, err := site.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.serveOn(t, l, n.page.Handler())
	return "http://" + l.Addr().String()
}

func (n *node) serveOn(t testing.TB, l net.Listener, h http.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- site.Serve(ctx, l, h) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}
