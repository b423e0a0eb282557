package plugin

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/scheduler/placement"
)

// TestWhatFollowsFromANodesPods: it is found out anew when a pod comes, changes or goes, and when the node's
// ledger is another.
func TestWhatFollowsFromANodesPods(t *testing.T) {
	p, list := filterWorld(t, 1)
	n, w := list[0], &world{}
	shared := func(want int64) {
		t.Helper()
		for range 2 {
			if got := sharedMilli(p.cluster.Node("node-0"), n); got != want {
				t.Errorf("%dm of the shared pool are requested, want %dm", got, want)
			}
		}
	}
	info := func(name, class, cpu string) *framework.PodInfo {
		i, err := framework.NewPodInfo(w.object(name, class, cpu))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	shared(0)
	n.AddPodInfo(info("web", "", "1500m"))
	shared(1500)
	on := n.Snapshot()
	on.AddPodInfo(info("more", "", "500m"))
	if got := sharedMilli(p.cluster.Node("node-0"), on); got != 2000 {
		t.Errorf("with a pod on paper %dm are requested, want 2000m", got)
	}
	shared(1500)
	own := info("own", "LSR", "4")
	n.AddPodInfo(own)
	shared(5500) // it has nothing here that the plugin knows of
	p.seen(w.object("own", "LSR", "4", annotated(policy.AnnStatus, `{"cpuset":"0-3"}`),
		func(p *v1.Pod) { p.Spec.NodeName = "node-0" }))
	shared(1500)
	soon := func(want bool) {
		t.Helper()
		for range 2 {
			s, huge := p.cluster.Node("node-0"), wishOf(w.object("huge", "LSR", "166"))
			if got := fitsSoon(s, huge, n, placement.Load{SharedMilli: sharedMilli(s, n)}); got != want {
				t.Errorf("there is room for 166 CPUs soon: %t, want %t", got, want)
			}
		}
	}
	soon(false)
	gone := n.GetPods()[0].GetPod()
	if err := n.RemovePod(klog.Background(), gone); err != nil {
		t.Fatal(err)
	}
	soon(true)
	again, err := framework.NewPodInfo(gone)
	if err != nil {
		t.Fatal(err)
	}
	n.AddPodInfo(again)
	soon(false)
}

// filterWorld is the plugin alone, and nodes with the pods that own their CPUs.
func filterWorld(b testing.TB, nodes int) (*Plugin, []fwk.NodeInfo) {
	b.Helper()
	p := newPlugin(Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding}, nil)
	p.simulates = true // it follows nobody and writes nothing
	say, d, w := ledgers(b), ledger.NewDecoder(), &world{}
	var list []fwk.NodeInfo
	for i := range nodes {
		name, text := fmt.Sprintf("node-%d", i), say[i%len(say)]
		p.nodes.take(name, text)
		known, err := d.Decode(text)
		if err != nil {
			b.Fatal(err)
		}
		n := framework.NewNodeInfo()
		for _, h := range known.Ledger.Holdings {
			pod := w.object(h.Pod, "LSR", "4", func(p *v1.Pod) { p.UID, p.Spec.NodeName = types.UID(h.UID), name })
			info, err := framework.NewPodInfo(pod)
			if err != nil {
				b.Fatal(err)
			}
			n.AddPodInfo(info)
		}
		n.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		list = append(list, n)
	}
	return p, list
}

// asking begins a pod's cycle.
func (p *Plugin) asking(t testing.TB, pod *v1.Pod) fwk.CycleState {
	t.Helper()
	state := framework.NewCycleState()
	if _, status := p.PreFilter(t.Context(), state, pod, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	return state
}

// sweep asks all nodes, and returns how many have a place; look is told of each.
func (p *Plugin) sweep(b *testing.B, state fwk.CycleState, nodes []fwk.NodeInfo, look func(time.Duration)) (fit int) {
	ctx := b.Context()
	for _, n := range nodes {
		from := time.Now()
		status := p.Filter(ctx, state, nil, n)
		look(time.Since(from))
		if status.IsSuccess() {
			fit++
		}
	}
	p.chosen(cycleOf(state))
	return fit
}

// BenchmarkFilter is what the plugin costs a node, of pods no two of which in a row are alike, and a pod that
// has a place nowhere.
func BenchmarkFilter(b *testing.B) {
	klog.SetLogger(klog.Logger{})
	p, nodes := filterWorld(b, sizeFrom("QUIETCORE_NODES", 1000))
	w := &world{}
	pods := []*v1.Pod{w.object("a", "LSR", "4"), w.object("b", "LSR", "6")}
	huge := w.object("huge", "LSR", "250")
	took, sweeps := make([]float64, 0, 20*len(nodes)), make([]float64, 0, 20)
	note := func(d time.Duration) { took = append(took, float64(d.Nanoseconds())/1000) }
	for _, pod := range pods { // so that what is kept from pod to pod is there
		p.sweep(b, p.asking(b, pod), nodes, func(time.Duration) {})
	}
	var before, after runtime.MemStats
	var allocs uint64
	looks := 0
	for b.Loop() {
		for i := range 10 {
			took = took[:min(len(took), cap(took)-len(nodes))]
			state := p.asking(b, pods[i%2])
			runtime.ReadMemStats(&before)
			if fit := p.sweep(b, state, nodes, note); fit != len(nodes) {
				b.Fatalf("%d of %d nodes have a place", fit, len(nodes))
			}
			runtime.ReadMemStats(&after)
			allocs, looks = allocs+after.Mallocs-before.Mallocs, looks+len(nodes)
			from := time.Now()
			if fit := p.sweep(b, p.asking(b, huge), nodes, func(time.Duration) {}); fit > 0 {
				b.Fatalf("250 CPUs have a place on %d nodes", fit)
			}
			sweeps = append(sweeps, time.Since(from).Seconds()*1000)
		}
	}
	b.ReportMetric(0, "ns/op")
	slices.Sort(took)
	us, each, ms := took[len(took)/2], allocs/uint64(looks), median(sweeps)
	b.ReportMetric(us, "median-us")
	budget(b, "µs that Filter takes for a node, median", us, "less than 10", us < 10)
	budget(b, "allocations of it, as go test counts them", float64(each), "0", each == 0)
	budget(b, fmt.Sprintf("ms for a pod that fits on none of %d nodes, median", len(nodes)), ms,
		"less than 60 on 5,000", ms < 60)
}
