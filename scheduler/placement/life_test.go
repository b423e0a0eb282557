package placement

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// node is a real policy machine, and what of it is on its way.
type node struct {
	name     string
	machine  *policy.Machine
	stamp    ledger.Stamp
	coming   []policy.Pod     // bound here, and the runtime has not been asked yet
	requests map[string]int64 // of pods of the shared pool that are bound here
}

// life is a cluster in which everything happens late and in any order.
type life struct {
	t       *testing.T
	rng     *rand.Rand
	seed    uint64
	cluster *Cluster
	decoder *ledger.Decoder
	nodes   []*node
	bound   map[string]*node // by UID
	now     int64
	placed  int
	refused int
}

func grids() []topology.Grid {
	return []topology.Grid{
		{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2},
		{Sockets: 1, NodesPerSocket: 2, L3PerNode: 2, CoresPerL3: 4, ThreadsPerCore: 2, Numbering: topology.Split},
		{Sockets: 1, CoresPerL3: 12},
	}
}

func newLife(t *testing.T, seed uint64) *life {
	l := &life{t: t, rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, cluster: NewCluster(nil),
		decoder: ledger.NewDecoder(), bound: map[string]*node{}}
	for i := range 2 + l.rng.IntN(5) {
		topo, err := grids()[l.rng.IntN(3)].Build()
		if err != nil {
			t.Fatal(err)
		}
		cfg := policy.Config{Authority: policy.Authority{Profile: policy.ProfileOpen, TrustStatus: true,
			Namespaces: map[policy.Power][]string{policy.PowerIsolatedCPUs: {"default"}}}}
		if l.rng.IntN(3) == 0 {
			if topo, err = topo.WithIsolated(cpuset.Of(2, 3, 6, 7, 8)); err != nil {
				t.Fatal(err)
			}
		}
		if l.rng.IntN(3) == 0 {
			cfg.Reserved = cpuset.Of(0)
		}
		if l.rng.IntN(4) == 0 {
			cfg.NodeLabels = map[string]string{policy.LabelBind: "FullPCPUsOnly"}
		}
		if l.rng.IntN(5) == 0 {
			cfg.NodeLabels = map[string]string{policy.LabelAlignment: "SingleNUMANode"}
		}
		m, err := policy.New(topo, cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := &node{name: fmt.Sprintf("node-%d", i), machine: m, requests: map[string]int64{}}
		l.nodes = append(l.nodes, n)
		l.publish(n)
	}
	return l
}

func (l *life) publish(n *node) {
	s := n.machine.Snapshot()
	led, generation := n.stamp.Of(s)
	text, err := ledger.Encode(s.Topology, led, generation)
	if err != nil {
		l.t.Fatal(err)
	}
	read, err := l.decoder.Decode(text)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.cluster.Publish(n.name, read); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) pick(words ...string) string { return words[l.rng.IntN(len(words))] }

func (l *life) pod() policy.Pod {
	l.now++
	milli := int64(1000 * (1 + l.rng.IntN(5)))
	r := policy.Resources{RequestMilli: milli, LimitMilli: milli}
	uid := fmt.Sprintf("uid-%04d", l.now)
	p := policy.Pod{UID: uid, Sandbox: uid, Namespace: "default", Name: uid, QoS: policy.Guaranteed, Resources: &r,
		Labels:      map[string]string{policy.LabelClass: l.pick("LSE", "LSR", "LSR", "LS", "LS")},
		Annotations: map[string]string{}}
	if p.Labels[policy.LabelClass] == "LS" {
		if l.rng.IntN(3) == 0 {
			p.Annotations[policy.AnnSpec] = `{"preferredCPUBindPolicy":"ConstrainedBurst"}`
		}
		return p
	}
	if l.rng.IntN(4) == 0 {
		p.Annotations[policy.AnnIsolated] = "required"
	}
	if smt := l.pick("", "", "isolate", "roundup", "align"); smt != "" {
		p.Annotations[policy.AnnSMT] = smt
	}
	p.Annotations[policy.AnnSpec] = fmt.Sprintf(`{"preferredCPUBindPolicy":%q,"preferredCPUExclusivePolicy":%q}`,
		l.pick("Default", "FullPCPUs", "SpreadByPCPUs"), l.pick("Default", "None", "PCPULevel", "NUMANodeLevel"))
	if l.rng.IntN(3) == 0 {
		p.Annotations[policy.AnnNUMASpec] = fmt.Sprintf(`{"numaTopologyPolicy":%q}`,
			l.pick("SingleNUMANode", "Restricted"))
	}
	return p
}

func (l *life) load(n *node) (load Load) {
	for _, milli := range n.requests {
		load.SharedMilli += milli
	}
	return load
}

// schedule does what the framework does with a pod: ask all nodes, take the best.
func (l *life) schedule() {
	p := l.pod()
	w := NewWish(&p)
	if w.Bad != nil {
		l.t.Fatal(w.Bad)
	}
	var best *node
	var least Place
	for _, n := range l.nodes {
		s := l.cluster.Node(n.name)
		if !w.Says.Owns() && l.sumsLeft(n, s) < p.Resources.RequestMilli {
			continue
		}
		if w.Plain() && !s.Glance().Confines() {
			best = n
			continue
		}
		place, refusal := s.Ask(w, l.load(n))
		for range 2 { // the second time it is remembered
			cost, again := s.Rate(w, l.load(n))
			if cost != place.Cost || (again == nil) != (refusal == nil) || again != nil && *again != *refusal {
				l.t.Fatalf("seed %d: %s on %s: asked %+v, %v, rated %+v, %v", l.seed, p.Name, n.name, place.Cost,
					refusal, cost, again)
			}
		}
		if refusal == nil && (best == nil || place.Cost.Compare(least.Cost) < 0) {
			best, least = n, place
		}
	}
	if best == nil {
		l.refused++
		return
	}
	if s := l.cluster.Node(best.name); !w.Plain() || s.Glance().Confines() {
		if refusal := l.cluster.Take(best.name, w, l.load(best), &least); refusal != nil {
			l.t.Fatalf("seed %d: %s was offered by %s and not taken: %v", l.seed, p.Name, best.name, refusal)
		}
		if l.rng.IntN(10) == 0 { // binding fails
			l.cluster.Drop(p.UID)
			l.cluster.Drop(p.UID)
			return
		}
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations[policy.AnnStatus] = least.Status()
	}
	l.placed++
	l.bound[p.UID] = best
	best.coming = append(best.coming, p)
	if !w.Says.Owns() {
		best.requests[p.UID] = p.Resources.RequestMilli
	}
}

// sumsLeft is what a stock scheduler counts, less what nobody's request pays for.
func (l *life) sumsLeft(n *node, s *State) int64 {
	left := int64(s.Glance().Payable()) * 1000
	for uid, on := range l.bound {
		if on == n {
			left -= l.requestOf(n, uid)
		}
	}
	return left
}

func (l *life) requestOf(n *node, uid string) int64 {
	if milli, ok := n.requests[uid]; ok {
		return milli
	}
	for _, p := range n.coming {
		if p.UID == uid {
			return p.Resources.RequestMilli
		}
	}
	for _, h := range n.machine.Snapshot().Ledger.Holdings {
		if h.UID == uid {
			return int64(h.Requested) * 1000
		}
	}
	return 0
}

// arrive lets the runtime of a node start one of the pods that are bound there, in any order.
func (l *life) arrive(n *node) {
	if len(n.coming) == 0 {
		return
	}
	at := l.rng.IntN(len(n.coming))
	p := n.coming[at]
	n.coming = slices.Delete(n.coming, at, at+1)
	_, err := n.machine.Step(time.Unix(l.now, 0), policy.PodRun{Pod: p})
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		l.t.Fatalf("seed %d: %s refuses %s %v %v: %v", l.seed, n.name, p.Name, p.Labels, p.Annotations, refusal)
	}
	if want := p.Annotations[policy.AnnStatus]; want != "" && p.Labels[policy.LabelClass] != "LS" {
		o := policy.Offer{}
		for _, h := range n.machine.Snapshot().Ledger.Holdings {
			if h.UID == p.UID {
				o.CPUs = h.CPUs.Set()
			}
		}
		if o.Status() != want {
			l.t.Fatalf("seed %d: %s gives %s %s, it was told %s", l.seed, n.name, p.Name, o.Status(), want)
		}
	}
}

func (l *life) remove() {
	uids := slices.Sorted(maps.Keys(l.bound))
	if len(uids) == 0 {
		return
	}
	uid := uids[l.rng.IntN(len(uids))]
	n := l.bound[uid]
	n.coming = slices.DeleteFunc(n.coming, func(p policy.Pod) bool { return p.UID == uid })
	if _, err := n.machine.Step(time.Unix(l.now, 0), policy.PodRemoved{Sandbox: uid}); err != nil {
		l.t.Fatal(err)
	}
	delete(l.bound, uid)
	delete(n.requests, uid)
	l.cluster.Drop(uid)
}

// restart is another scheduler, which knows what the API server has: pods with annotations.
func (l *life) restart() {
	l.cluster = NewCluster(nil)
	order := l.rng.Perm(len(l.nodes))
	for _, i := range order {
		n := l.nodes[i]
		if l.rng.IntN(2) == 0 {
			l.publish(n)
		}
		for uid, on := range l.bound {
			if on == n {
				l.reassign(n, uid)
			}
		}
		l.publish(n)
	}
}

func (l *life) reassign(n *node, uid string) {
	for _, p := range n.coming {
		if o, ok := policy.OfferIn(p.Annotations[policy.AnnStatus]); p.UID == uid && ok {
			l.cluster.Assigned(n.name, NewWish(&p), o, false)
		}
	}
}

// settle lets everything arrive, and then nothing is on its way any more.
func (l *life) settle() {
	for _, n := range l.nodes {
		for len(n.coming) > 0 {
			l.arrive(n)
		}
		l.publish(n)
		if s := l.cluster.Node(n.name); len(s.more) > 0 {
			l.t.Fatalf("seed %d: %s has all pods, and %d are still on their way", l.seed, n.name, len(s.more))
		}
	}
	if len(l.cluster.where) > 0 {
		l.t.Fatalf("seed %d: pods on their way to nowhere: %v", l.seed, l.cluster.where)
	}
}

// TestNoNodeRefuses: whatever comes late, in whatever order, and whenever the scheduler is
// another one, no node refuses a pod that was sent to it, and each pod has the CPUs that its
// node was told.
func TestNoNodeRefuses(t *testing.T) {
	seeds, placed, refused := uint64(60), 0, 0
	if n, err := strconv.ParseUint(os.Getenv("QUIETCORE_SEEDS"), 10, 32); err == nil {
		seeds = n
	}
	for seed := range seeds {
		l := newLife(t, seed)
		for range 150 {
			n := l.nodes[l.rng.IntN(len(l.nodes))]
			switch l.rng.IntN(12) {
			case 0, 1, 2, 3:
				l.schedule()
			case 4, 5, 6:
				l.arrive(n)
			case 7, 8:
				l.publish(n)
			case 9, 10:
				l.remove()
			case 11:
				if l.rng.IntN(4) == 0 {
					l.restart()
				}
			}
		}
		l.settle()
		placed, refused = placed+l.placed, refused+l.refused
	}
	t.Logf("%d clusters: %d pods placed and none refused by its node, %d found no node", seeds, placed, refused)
	if placed < 10*int(seeds) {
		t.Error("too few pods were placed to say anything")
	}
}
