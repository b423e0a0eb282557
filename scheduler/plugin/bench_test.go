package plugin

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

func sizeFrom(env string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(env)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// ledgers are those of nodes of 256 CPUs in four kinds, of which a third is owned in fours; there
// are as many different ones as pay for themselves in a benchmark.
func ledgers(b testing.TB) (list []map[string]string) {
	b.Helper()
	for i := range 40 {
		topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1 + i%2*3, L3PerNode: 4 >> (i % 2),
			CoresPerL3: 16 / (1 + i%2), ThreadsPerCore: 2,
			Numbering: []topology.Numbering{topology.Split, topology.Adjacent}[i/2%2]}.Build()
		if err != nil {
			b.Fatal(err)
		}
		cfg := trusting()
		cfg.Authority.Profile = policy.ProfileOpen
		l := policy.Ledger{Rules: &cfg}
		cores := topo.Cores()
		for j := 0; j+1 < len(cores); j += 2 {
			if (j/2*7+i)%3 != 0 {
				continue
			}
			cpus := cpuset.Of(slices.Concat(cores[j].CPUs, cores[j+1].CPUs)...)
			l.Holdings = append(l.Holdings, policy.Holding{UID: fmt.Sprintf("owner-%04d", j), Namespace: "shop",
				Pod: fmt.Sprintf("db-%d", j), Class: policy.LSR, CPUs: cpus.Pack(), Requested: 4})
		}
		text, err := ledger.Encode(topo, &l, 1)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, text)
	}
	return list
}

// inMemory is a cluster of nodes of 256 CPUs that publish one of these each, on an API server in memory that
// takes every Binding at once and tells of it. writes counts what is written of pods; Events are not.
func inMemory(b testing.TB, nodes int, say []map[string]string, bound func(*v1.Binding)) (w *world,
	writes *atomic.Int64) {
	b.Helper()
	w = &world{t: b, ctx: b.Context(), nodes: map[string]*machine{}, bound: map[string]string{},
		uids: map[string]string{}, wake: make(chan struct{}, 1), memory: fake.NewClientset()}
	w.client, writes = w.memory, &atomic.Int64{}
	w.memory.PrependReactor("create", "pods", func(a core.Action) (bool, runtime.Object, error) {
		create, ok := a.(core.CreateAction)
		if !ok || create.GetSubresource() != "binding" {
			return false, nil, nil
		}
		bound(create.GetObject().(*v1.Binding))
		return true, create.GetObject(), nil
	})
	w.memory.PrependReactor("*", "pods", func(a core.Action) (bool, runtime.Object, error) {
		switch a.GetVerb() {
		case "create", "update", "patch", "delete":
			writes.Add(1)
		}
		return false, nil, nil
	})
	amount := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(256, resource.DecimalSI),
		v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("500")}
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		w.nodes[name] = &machine{text: say[i%len(say)]}
		w.put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeStatus{Capacity: amount, Allocatable: amount}})
	}
	return w, writes
}

// put makes an object be there before a scheduler starts.
func (w *world) put(o runtime.Object) {
	w.t.Helper()
	if err := w.memory.Tracker().Add(o); err != nil {
		w.t.Fatal(err)
	}
}

// pace is how fast a scheduler binds pods, from the first to the last of them: they all wait when
// it starts, and an API server in memory takes every binding at once. What a pod takes of the
// processor says more than the clock where others work on the machine.
type pace struct {
	nodes  int
	rate   []float64           // pods a second
	cpu    []float64           // microseconds of the processor a pod
	writes []float64           // a pod
	told   map[string][]string // the CPUs that pods of the last round were told, by node
}

func (p *pace) measure(b testing.TB, o options, class string, say []map[string]string) {
	b.Helper()
	pods := sizeFrom("QUIETCORE_PODS", 2000)
	var bound atomic.Int64
	var first, last time.Time
	var from, to time.Duration
	var written int64
	done, mu := make(chan struct{}), sync.Mutex{}
	p.told = map[string][]string{}
	var writes *atomic.Int64
	var w *world
	w, writes = inMemory(b, p.nodes, say, func(binding *v1.Binding) {
		if binding.Annotations[policy.AnnStatus] != "" {
			mu.Lock()
			p.told[binding.Target.Name] = append(p.told[binding.Target.Name], binding.Annotations[policy.AnnStatus])
			mu.Unlock()
		}
		switch bound.Add(1) {
		case 1:
			first, from = time.Now(), processor(b)
		case int64(pods):
			last, to, written = time.Now(), processor(b), writes.Load()
			close(done)
		}
	})
	for i := range pods {
		w.put(w.object(fmt.Sprintf("pod-%d", i), class, "4"))
	}
	w.schedule(o)
	defer w.stop()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		b.Fatalf("after ten minutes %d of %d pods are bound", bound.Load(), pods)
	}
	p.rate = append(p.rate, float64(pods-1)/last.Sub(first).Seconds())
	p.cpu = append(p.cpu, float64((to-from).Microseconds())/float64(pods-1))
	p.writes = append(p.writes, float64(written)/float64(pods))
}

// processor is what this process has computed.
func processor(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestAThousandNodes is the smoke of it: each owner gets a node and CPUs there that nobody has, and
// pods without a wish are bound, too. How long that takes is logged; less than a minute is asked for.
func TestAThousandNodes(t *testing.T) {
	t.Setenv("QUIETCORE_PODS", "200")
	from, say := time.Now(), ledgers(t)
	owners, plain := pace{nodes: 1000}, pace{nodes: 1000}
	owners.measure(t, options{}, "LSR", say)
	plain.measure(t, options{}, "", say)
	t.Logf("400 pods on 1,000 nodes took %s", time.Since(from).Round(time.Second/10))
	if len(plain.told) > 0 {
		t.Errorf("pods without a wish were told CPUs: %v", plain.told)
	}
	pods, d := 0, ledger.NewDecoder()
	for name, told := range owners.told {
		var i int
		if _, err := fmt.Sscanf(name, "node-%d", &i); err != nil {
			t.Fatal(err)
		}
		node, err := d.Decode(say[i%len(say)])
		if err != nil {
			t.Fatal(err)
		}
		var taken cpuset.Set
		for _, h := range node.Ledger.Holdings {
			taken.AddPacked(h.CPUs)
		}
		for _, text := range told {
			o, _ := policy.OfferIn(text)
			if o.CPUs.Count() != 4 || o.CPUs.Intersects(&taken) {
				t.Errorf("on %s a pod that asks for 4 CPUs was told %s; others have %s", name, o.CPUs, taken)
			}
			taken.AddSet(&o.CPUs)
			pods++
		}
	}
	if pods != 200 {
		t.Errorf("%d of 200 pods were told CPUs", pods)
	}
}

// budget prints a figure with what was asked of it. The figure is this machine's at that moment:
// where others compute at the same time, it says less than a miss looks like.
func budget(b testing.TB, what string, figure float64, asked string, kept bool) {
	b.Helper()
	word := "kept"
	if !kept {
		word = "MISSED"
	}
	b.Logf("budget: %s: %.2f, asked for %s: %s", what, figure, asked, word)
}

func median(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }

// BenchmarkScheduling compares with the scheduler without the plugin, by turns in one run:
// pods without a wish keep their pace.
func BenchmarkScheduling(b *testing.B) {
	klog.SetLogger(klog.Logger{})
	say := ledgers(b)
	nodes := sizeFrom("QUIETCORE_NODES", 1000)
	stock, plain, owners, fewer := pace{nodes: nodes}, pace{nodes: nodes}, pace{nodes: nodes}, pace{nodes: 1000}
	for b.Loop() {
		for range sizeFrom("QUIETCORE_ROUNDS", 5) {
			stock.measure(b, options{noPlugin: true}, "", say)
			plain.measure(b, options{}, "", say)
			owners.measure(b, options{}, "LSR", say)
			fewer.measure(b, options{}, "LSR", say)
		}
	}
	for name, p := range map[string]*pace{"stock": &stock, "plain": &plain, "owner": &owners} {
		b.ReportMetric(median(p.rate), name+"-pods/s")
		b.ReportMetric(median(p.cpu), name+"-us/pod")
	}
	rate := median(owners.rate)
	budget(b, fmt.Sprintf("pods/s that ask for CPUs, %d nodes", nodes), rate, "at least 150 on 5,000 nodes",
		rate >= 150)
	rate = median(fewer.rate)
	budget(b, "pods/s that ask for CPUs, 1000 nodes", rate, "at least 200", rate >= 200)
	ratio := median(stock.cpu) / median(plain.cpu)
	b.ReportMetric(ratio, "plain/stock")
	budget(b, "pace without a wish to that of the stock scheduler, by the processor's time", ratio, "at least 0.9",
		ratio >= 0.9)
	ratio = median(plain.rate) / median(stock.rate)
	budget(b, "the same by the clock", ratio, "at least 0.9", ratio >= 0.9)
	writes := slices.Max(owners.writes)
	budget(b, "writes a pod that asks for CPUs, Events apart, the most of all rounds", writes, "1", writes == 1)
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRestart is a scheduler that starts, until it has bound the first pod that asks for CPUs: it reads all
// nodes, what they publish, and four pods a node that are bound there and were told their CPUs. The API server
// is in memory.
func BenchmarkRestart(b *testing.B) {
	klog.SetLogger(klog.Logger{})
	nodes, say := sizeFrom("QUIETCORE_NODES", 1000), ledgers(b)
	pods := 4 * nodes
	var took []float64
	for b.Loop() {
		for range sizeFrom("QUIETCORE_ROUNDS", 5) {
			took = append(took, restart(b, nodes, pods, say).Seconds())
		}
	}
	seconds := median(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds, "s/start")
	budget(b, fmt.Sprintf("seconds from a start with %d nodes and %d pods to the first pod that it binds", nodes, pods),
		seconds, "less than 15 with 5,000 and 20,000", seconds < 15)
}

func restart(b *testing.B, nodes, pods int, say []map[string]string) time.Duration {
	b.Helper()
	bound, once := make(chan struct{}), sync.Once{}
	w, _ := inMemory(b, nodes, say, func(*v1.Binding) { once.Do(func() { close(bound) }) })
	for i := range pods {
		cpus := fmt.Sprintf(`{"cpuset":"%d-%d"}`, i/nodes*4, i/nodes*4+3)
		w.put(w.object(fmt.Sprintf("pod-%d", i), "LSR", "4", annotated(policy.AnnStatus, cpus),
			func(p *v1.Pod) { p.Spec.NodeName = fmt.Sprintf("node-%d", i%nodes); p.Status.Phase = v1.PodRunning }))
	}
	w.put(w.object("next", "LSR", "4"))
	from := time.Now()
	w.schedule(options{})
	defer w.stop()
	select {
	case <-bound:
	case <-time.After(10 * time.Minute):
		b.Fatal("after ten minutes no pod is bound")
	}
	return time.Since(from)
}
