package node

import (
	"slices"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

func TestDistrustOfMasksThatAreNobodysOwn(t *testing.T) {
	pod := func(name string, kernel cpuset.Set) *running {
		return &running{pod: policy.Pod{UID: name, QoS: policy.Guaranteed,
			Labels: map[string]string{policy.LabelClass: "LSR"}}, kernel: kernel}
	}
	r := &recovery{topo: grid(t, testGrid), saved: map[string]state.Pod{}, observed: map[string]cgroup.Effective{}}
	own, twice := pod("own", cpuset.Range(0, 3)), cpuset.Range(4, 15)
	a, b := pod("a", twice), pod("b", twice)
	r.distrust([]*running{own, a, b})
	if own.kernel.IsEmpty() || !a.kernel.IsEmpty() || !b.kernel.IsEmpty() {
		t.Errorf("kept own %s, a %s, b %s; want the first alone", own.kernel, a.kernel, b.kernel)
	}
	saved := pod("saved", twice)
	r.saved["saved"] = state.Pod{UID: "saved", CPUs: twice}
	r.distrust([]*running{saved, pod("c", twice)})
	if saved.kernel.IsEmpty() {
		t.Error("what the state file confirms was distrusted")
	}
}

// Whom to believe where the kernel's mask is not what was saved.
func TestWhatWasSavedOrTheKernel(t *testing.T) {
	all := cpuset.Range(0, 15)
	four, three, pool := cpuset.Range(0, 3), cpuset.Range(0, 2), cpuset.Range(4, 15)
	for _, c := range []struct {
		name               string
		saved, kernel, now cpuset.Set
		asks               int64
		from               string
	}{
		{"the same", four, four, all, 4000, "state file"},
		{"one is off", four, three, all.Minus(cpuset.Of(3)), 4000, "state file"},
		{"one was off and is back", four, three, all, 4000, "state file"},
		{"all are off, it runs in a pool", four, pool, pool, 4000, "state file"},
		{"all were off, it ran in a pool", four, pool, all, 4000, "state file"},
		{"shrunk, and not saved", four, three, all, 3000, "kernel"},
		{"shrunk, and not written", three, four, all, 3000, "state file"},
		{"grown, and not written", four, three, all, 4000, "state file"},
		{"moved after an old save", four, cpuset.Range(8, 11), all, 4000, "kernel"},
		{"nobody knows what it asks for", four, three, all, 0, "kernel"},
		{"the kernel has no mask", four, cpuset.Set{}, all, 0, "state file"},
	} {
		p := &running{pod: policy.Pod{UID: "u", Labels: map[string]string{policy.LabelClass: "LSE"}}, kernel: c.kernel,
			asks: c.asks}
		r := &recovery{topo: onlyOnline(t, c.now), saved: map[string]state.Pod{"u": {UID: "u", CPUs: c.saved}}}
		if got := r.placeOf(p); got == nil || got.From != c.from {
			t.Errorf("%s: %+v, want what the %s says", c.name, got, c.from)
		}
	}
}

func onlyOnline(t testing.TB, online cpuset.Set) *topology.Topology {
	t.Helper()
	whole := grid(t, testGrid)
	cpus := slices.DeleteFunc(slices.Clone(whole.CPUs()), func(c topology.CPU) bool { return !online.Has(c.ID) })
	all := whole.Known()
	memory := map[int]uint64{}
	for _, n := range whole.Nodes() {
		memory[n.ID] = n.MemoryBytes
	}
	topo, err := topology.New(cpus, topology.Options{Offline: all.Minus(online), Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return topo
}
