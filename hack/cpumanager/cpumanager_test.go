// Package cpumanager plays requests against kubelet's own static CPU manager, for
// the options that Quietcore follows. It is a module of its own: Kubernetes is no
// dependency of the daemon.
package cpumanager

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	kubetopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubecpuset "k8s.io/utils/cpuset"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

var seed = flag.Uint64("seed", 0, "of the random cases; 0 takes another each time")

const cases = 2000

// Of up to eight NUMA nodes: kubelet 1.36 divided over five and more wrongly, 1.37.2 no longer does.
var grids = []topology.Grid{
	{Sockets: 1, NodesPerSocket: 1, CoresPerL3: 4, ThreadsPerCore: 2},
	{Sockets: 1, NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 1, CoresPerL3: 4, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 2, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2, Numbering: topology.Split},
	{Sockets: 2, NodesPerSocket: 1, L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 6, ThreadsPerCore: 1},
	{Sockets: 1, NodesPerSocket: 5, CoresPerL3: 2, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 3, CoresPerL3: 2, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 4, CoresPerL3: 2, ThreadsPerCore: 2},
	{Sockets: 2, NodesPerSocket: 4, CoresPerL3: 3, ThreadsPerCore: 1},
}

// played is one request on both.
type played struct {
	topo *topology.Topology
	free cpuset.Set
	n    int
}

// random calls f with requests that the free CPUs hold. CPU 0 is reserved.
func random(t *testing.T, f func(t *testing.T, p played)) {
	start := *seed
	if start == 0 {
		start = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", start)
	for i := range uint64(cases) {
		rng := rand.New(rand.NewPCG(start, i))
		topo, err := grids[rng.IntN(len(grids))].Build()
		if err != nil {
			t.Fatal(err)
		}
		p := played{topo: topo}
		oneIn := 2 + rng.IntN(6)
		for _, c := range topo.CPUs() {
			if c.ID != 0 && rng.IntN(oneIn) > 0 {
				p.free.Add(c.ID)
			}
		}
		if p.free.IsEmpty() {
			continue
		}
		p.n = 1 + rng.IntN(p.free.Count())
		if f(t, p); t.Failed() {
			t.Fatalf("case %d of -seed=%d: %d of free %s on %v", i, start, p.n, p.free, topo.CPUs())
		}
	}
}

// ours answers with what Quietcore makes of the options.
func (p played) ours(r cpuallocator.Request) (cpuset.Set, *cpuallocator.Error) {
	r.CPUs = p.n
	got, err := cpuallocator.New(p.topo).Allocate(p.free, nil, r)
	return got.CPUs, err
}

// affinity is a topology manager that has decided.
type affinity struct {
	hint topologymanager.TopologyHint
	topologymanager.Policy
}

func (a *affinity) GetAffinity(logr.Logger, string, string) topologymanager.TopologyHint {
	return a.hint
}
func (a *affinity) GetPolicy() topologymanager.Policy { return a }
func (a *affinity) Name() string                      { return topologymanager.PolicyRestricted }

// kubelet is kubelet's static policy with the request's pod before it.
type kubelet struct {
	policy   cpumanager.Policy
	state    state.State
	pod      *v1.Pod
	affinity *affinity
}

func (p played) kubelet(t *testing.T, options ...string) *kubelet {
	t.Helper()
	topo := &kubetopology.CPUTopology{
		NumCPUs: len(p.topo.CPUs()), NumCores: len(p.topo.Cores()), NumUncoreCache: len(p.topo.L3s()),
		NumSockets: len(p.topo.Sockets()), NumNUMANodes: len(p.topo.Nodes()), CPUDetails: kubetopology.CPUDetails{},
	}
	for _, c := range p.topo.CPUs() {
		topo.CPUDetails[c.ID] = kubetopology.CPUInfo{NUMANodeID: c.Node, SocketID: c.Socket, CoreID: c.Core,
			UncoreCacheID: c.L3}
	}
	on := map[string]string{}
	for _, o := range options {
		on[o] = "true"
	}
	k := &kubelet{affinity: &affinity{}, state: state.NewMemoryState(logr.Discard())}
	policy, err := cpumanager.NewStaticPolicy(logr.Discard(), topo, 1, kubecpuset.New(0), k.affinity, on)
	if err != nil {
		t.Fatal(err)
	}
	k.policy = policy
	shared := kubecpuset.New(0)
	for cpu := range p.free.All() {
		shared = shared.Union(kubecpuset.New(cpu))
	}
	k.state.SetDefaultCPUSet(shared)
	need := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(p.n), resource.DecimalSI),
		v1.ResourceMemory: resource.MustParse("1Gi")}
	k.pod = &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main",
		Resources: v1.ResourceRequirements{Requests: need, Limits: need}}}}}
	k.pod.UID = "pod"
	return k
}

// admitted says whether a restricted topology manager admits the pod, and takes
// the narrowest preferred hint.
func (k *kubelet) admitted() bool {
	found := false
	hints := k.policy.GetTopologyHints(logr.Discard(), k.state, k.pod, &k.pod.Spec.Containers[0],
		lifecycle.AddOperation)
	for _, h := range hints["cpu"] {
		if h.Preferred && (!found || h.NUMANodeAffinity.IsNarrowerThan(k.affinity.hint.NUMANodeAffinity)) {
			k.affinity.hint, found = h, true
		}
	}
	return found
}

func (k *kubelet) allocate(t *testing.T) cpuset.Set {
	t.Helper()
	err := k.policy.Allocate(logr.Discard(), k.state, k.pod, &k.pod.Spec.Containers[0], lifecycle.AddOperation)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := k.state.GetCPUSet("pod", "main")
	var out cpuset.Set
	for _, cpu := range got.List() {
		out.Add(cpu)
	}
	return out
}

// lies is how CPUs lie on a machine.
type lies struct {
	nodes, distance, sockets, doubled int   // distance: the sum over the ordered pairs of nodes
	shares                            []int // of the nodes, ascending
}

func (p played) lie(cpus cpuset.Set) (l lies) {
	nodes, sockets, cores := map[int]int{}, map[int]int{}, map[int]int{}
	for _, c := range p.topo.CPUs() {
		if cpus.Has(c.ID) {
			nodes[c.Node]++
			sockets[c.Socket]++
			cores[c.Core]++
		}
	}
	l = lies{nodes: len(nodes), sockets: len(sockets), doubled: cpus.Count() - len(cores)}
	for node, n := range nodes {
		l.shares = append(l.shares, n)
		for other := range nodes {
			l.distance += p.topo.Distance(node, other)
		}
	}
	slices.Sort(l.shares)
	return l
}

func (l *lies) even() bool { return l.shares[len(l.shares)-1]-l.shares[0] <= 1 }

func TestMain(m *testing.M) {
	flag.Parse()
	if err := utilfeature.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"); err != nil {
		panic(err)
	}
	m.Run()
}

// distribute-cpus-across-cores: no more NUMA nodes than kubelet takes, of as many no farther ones, which kubelet
// does not look at, and on as near ones no fewer cores.
func TestDistributeAcrossCores(t *testing.T) {
	random(t, func(t *testing.T, p played) {
		theirs := p.lie(p.kubelet(t, "distribute-cpus-across-cores").allocate(t))
		cpus, err := p.ours(cpuallocator.Request{Bind: cpuallocator.SpreadByPCPUs})
		if err != nil {
			t.Errorf("refused: %v", err)
			return
		}
		ours := p.lie(cpus)
		if cmp.Or(cmp.Compare(ours.nodes, theirs.nodes), cmp.Compare(ours.distance, theirs.distance),
			cmp.Compare(ours.sockets, theirs.sockets), cmp.Compare(ours.doubled, theirs.doubled)) > 0 {
			t.Errorf("%s lies on %+v, kubelet's on %+v", cpus, ours, theirs)
		}
	})
}

// distribute-cpus-across-numa without full-pcpus-only: equal shares wherever kubelet's are, and not on more nodes.
func TestDistributeAcrossNUMA(t *testing.T) {
	p := played{n: 10}
	p.topo, _ = grids[1].Build()
	p.free = p.topo.Online()
	p.free.Remove(0)
	if got := p.lie(p.kubelet(t, "distribute-cpus-across-numa").allocate(t)).shares; !slices.Equal(got, []int{5, 5}) {
		t.Fatalf("kubelet divides 10 as %v: the test does not play the option", got)
	}
	random(t, func(t *testing.T, p played) {
		theirs := p.lie(p.kubelet(t, "distribute-cpus-across-numa").allocate(t))
		cpus, err := p.ours(cpuallocator.Request{Strategy: cpuallocator.DistributeEvenly})
		if err != nil {
			t.Errorf("refused: %v", err)
			return
		}
		// kubelet may give a node two CPUs more than the others where one each would do, and take a node more than
		// equal shares need.
		ours := p.lie(cpus)
		if even := theirs.even(); even && !ours.even() || even == ours.even() && ours.nodes > theirs.nodes {
			t.Errorf("%s is divided as %v, kubelet's as %v", cpus, ours.shares, theirs.shares)
		}
	})
}

// align-by-socket under restricted: admitted where kubelet admits, on as many
// sockets; and without the option where kubelet does not admit, refused.
func TestAlignBySocket(t *testing.T) {
	differ := 0
	random(t, func(t *testing.T, p played) {
		var admitted [2]bool
		for i, options := range [][]string{nil, {"align-by-socket"}} {
			k := p.kubelet(t, options...)
			admitted[i] = k.admitted()
			cpus, err := p.ours(cpuallocator.Request{Alignment: cpuallocator.AlignRestricted, BySocket: i == 1})
			if admitted[i] != (err == nil) {
				t.Errorf("options %v: kubelet admits %v, here %v", options, admitted[i], err)
				return
			}
			if err != nil {
				continue
			}
			if theirs, ours := p.lie(k.allocate(t)), p.lie(cpus); ours.sockets > theirs.sockets {
				t.Errorf("options %v: %s lies on %+v, kubelet's on %+v", options, cpus, ours, theirs)
			}
		}
		if admitted[0] != admitted[1] {
			differ++
		}
	})
	if differ == 0 {
		t.Error("the option never mattered: the test shows nothing")
	}
}
