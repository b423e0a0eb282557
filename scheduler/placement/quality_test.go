package placement

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// This file compares the scheduler with others on clusters that are policy machines: the same pods come
// and go in the same order, and only who chooses nodes and CPUs differs.

// rival chooses a node for a pod, and the CPUs that it is told; none: the node chooses.
type rival struct {
	name   string
	choose func(c *paper, p *policy.Pod) (n *paperNode, status string)
}

func rivals() []rival {
	return []rival{
		{"quietcore-scheduler", (*paper).ours},
		{"stock, the node chooses", (*paper).stock},
		{"Koordinator's rules, LeastAllocated", func(c *paper, p *policy.Pod) (*paperNode, string) {
			return c.koordinator(p, false)
		}},
		{"Koordinator's rules, MostAllocated", func(c *paper, p *policy.Pod) (*paperNode, string) {
			return c.koordinator(p, true)
		}},
	}
}

// paperNode is a node, and what an API server says of it.
type paperNode struct {
	name      string
	machine   *policy.Machine
	stamp     ledger.Stamp
	cpus      int64                 // allocatable, in thousandths
	requested int64                 // by pods that are bound here, refused ones included
	shared    int64                 // of these, by pods of the shared pool
	told      map[string]cpuset.Set // CPUs by UID, as Koordinator's ledger has it
	waiting   []policy.Pod          // bound here and refused, as kubelet goes on trying
}

// paper is a cluster on paper.
type paper struct {
	t       testing.TB
	nodes   []*paperNode
	cluster *Cluster
	rival   rival
	where   map[string]*paperNode // of bound pods
	pods    map[string]policy.Pod // those that are there
	pending []policy.Pod
	now     int64
	result  outcome
}

// outcome is what became of a cluster's pods.
type outcome struct {
	ran     int // pods that ever ran
	refused int // pods that their node refused at first
	pending int // at the end
	split   int // free CPUs beside an owner's, at the end
	whole   int // CPUs of free cores
}

func (o *outcome) add(p outcome) {
	o.ran, o.refused, o.pending = o.ran+p.ran, o.refused+p.refused, o.pending+p.pending
	o.split, o.whole = o.split+p.split, o.whole+p.whole
}

func newPaper(t testing.TB, seed uint64, r rival) *paper {
	rng := rand.New(rand.NewPCG(seed, 7))
	c := &paper{t: t, cluster: NewCluster(nil), rival: r, where: map[string]*paperNode{}, pods: map[string]policy.Pod{}}
	kinds := append(grids(), topology.Grid{Sockets: 2, NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2})
	for i := range 20 {
		topo, err := kinds[rng.IntN(len(kinds))].Build()
		if err != nil {
			t.Fatal(err)
		}
		cfg := policy.Config{Authority: policy.Authority{Profile: policy.ProfileOpen, TrustStatus: true}}
		if rng.IntN(4) == 0 {
			cfg.Kubelet.Reserved = cpuset.Of(0)
		}
		m, err := policy.New(topo, cfg)
		if err != nil {
			t.Fatal(err)
		}
		online := topo.Online()
		n := &paperNode{name: fmt.Sprintf("node-%d", i), machine: m, told: map[string]cpuset.Set{},
			cpus: 1000 * int64(online.Count()-cfg.Kubelet.Reserved.Count())}
		c.nodes = append(c.nodes, n)
		c.publish(n)
	}
	return c
}

func (c *paper) publish(n *paperNode) {
	s := n.machine.Snapshot()
	l, generation := n.stamp.Of(s)
	now := &ledger.Node{Topology: s.Topology, Ledger: l, Generation: generation}
	if err := c.cluster.Publish(n.name, now); err != nil {
		c.t.Fatal(err)
	}
}

// aPod is one of a stream: owners of all kinds that Koordinator's scheduler knows, too, and others.
func aPod(rng *rand.Rand, i int) policy.Pod {
	uid := fmt.Sprintf("pod-%04d", i)
	p := policy.Pod{UID: uid, Sandbox: uid, Namespace: "default", Name: uid, QoS: policy.Guaranteed,
		Labels: map[string]string{policy.LabelClass: "LSR"}, Annotations: map[string]string{}}
	milli := int64(1000 * []int{1, 2, 2, 3, 4, 4, 6, 8}[rng.IntN(8)])
	switch rng.IntN(5) {
	case 0, 1:
		milli, p.Labels[policy.LabelClass] = int64(250*(1+rng.IntN(12))), "LS"
	case 2:
		p.Annotations[policy.AnnSpec] = `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`
	case 3:
		p.Annotations[policy.AnnSpec] = `{"preferredCPUBindPolicy":"FullPCPUs"}`
		if rng.IntN(2) == 0 {
			p.Annotations[policy.AnnNUMASpec] = `{"numaTopologyPolicy":"SingleNUMANode"}`
		}
	}
	if p.Labels[policy.LabelClass] == "LSR" && rng.IntN(8) == 0 {
		p.Annotations[policy.AnnSMT] = "isolate"
	}
	p.Resources = &policy.Resources{RequestMilli: milli, LimitMilli: milli}
	return p
}

// near is how many pods come before the first goes: near what a cluster holds.
const near = 100

// play lets twice as many pods come, and in between go.
func (c *paper) play(seed uint64, crowd int) outcome {
	rng := rand.New(rand.NewPCG(seed, 8))
	var alive []string
	for i := range 2 * crowd {
		p := aPod(rng, i)
		c.pods[p.UID] = p
		alive = append(alive, p.UID)
		c.place(p)
		if i > crowd && rng.IntN(4) > 0 {
			gone := rng.IntN(len(alive))
			c.end(alive[gone])
			alive = slices.Delete(alive, gone, gone+1)
		}
	}
	c.result.pending = len(c.pending)
	for _, n := range c.nodes {
		split, whole := left(n)
		c.result.split, c.result.whole = c.result.split+split, c.result.whole+whole
	}
	return c.result
}

// left counts free CPUs: those beside an owner's, and those of cores that are free.
func left(n *paperNode) (split, whole int) {
	s := n.machine.Snapshot()
	free := s.Topology.Online()
	for _, h := range s.Ledger.Holdings {
		free.RemovePacked(h.CPUs)
		free.RemovePacked(h.Withheld)
	}
	for _, core := range s.Topology.Cores() {
		cpus := cpuset.Of(core.CPUs...)
		if here := cpus.CountAnd(&free); here == cpus.Count() {
			whole += here
		} else {
			split += here
		}
	}
	return split, whole
}

func (c *paper) place(p policy.Pod) {
	n, status := c.rival.choose(c, &p)
	if n == nil {
		c.pending = append(c.pending, p)
		return
	}
	if status != "" {
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations[policy.AnnStatus] = status
		o, _ := policy.OfferIn(status)
		n.told[p.UID] = o.CPUs
	}
	c.where[p.UID] = n
	n.requested += p.Resources.RequestMilli
	if p.Labels[policy.LabelClass] == "LS" {
		n.shared += p.Resources.RequestMilli
	}
	if !c.run(n, p) {
		c.result.refused++
		n.waiting = append(n.waiting, p)
	}
	c.publish(n)
}

// run asks the node.
func (c *paper) run(n *paperNode, p policy.Pod) bool {
	c.now++
	_, err := n.machine.Step(time.Unix(c.now, 0), policy.PodRun{Pod: p})
	if err == nil {
		c.result.ran++
	}
	return err == nil
}

// end ends a pod; those that wait are tried again.
func (c *paper) end(uid string) {
	p, n := c.pods[uid], c.where[uid]
	is := func(o policy.Pod) bool { return o.UID == uid }
	delete(c.pods, uid)
	if n == nil {
		c.pending = slices.DeleteFunc(c.pending, is)
		return
	}
	delete(c.where, uid)
	delete(n.told, uid)
	n.requested -= p.Resources.RequestMilli
	if p.Labels[policy.LabelClass] == "LS" {
		n.shared -= p.Resources.RequestMilli
	}
	c.now++
	if _, err := n.machine.Step(time.Unix(c.now, 0), policy.PodRemoved{Sandbox: uid}); err != nil {
		c.t.Fatal(err)
	}
	n.waiting = slices.DeleteFunc(slices.DeleteFunc(n.waiting, is), func(o policy.Pod) bool { return c.run(n, o) })
	c.publish(n)
	again := c.pending
	c.pending = nil
	for _, p := range again {
		c.place(p)
	}
}

// byRoom are the nodes whose sums leave room for a pod, those of which least is requested first: the
// stock scheduler's order.
func (c *paper) byRoom(p *policy.Pod) (list []*paperNode) {
	for _, n := range c.nodes {
		if n.requested+p.Resources.RequestMilli <= n.cpus {
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, func(a, b *paperNode) int {
		return cmp.Compare(a.requested*b.cpus, b.requested*a.cpus)
	})
	return list
}

func (c *paper) stock(p *policy.Pod) (*paperNode, string) {
	if list := c.byRoom(p); len(list) > 0 {
		return list[0], ""
	}
	return nil, ""
}

func (c *paper) ours(p *policy.Pod) (best *paperNode, status string) {
	w := NewWish(p)
	var least Place
	for _, n := range c.byRoom(p) {
		s := c.cluster.Node(n.name)
		if !w.Says.Owns() && s.Glance().Fits(w, n.requested) != nil {
			continue
		}
		if w.Plain() && !s.Glance().Confines() {
			return n, ""
		}
		if place, refusal := s.Ask(w, Load{SharedMilli: n.shared}); refusal == nil &&
			(best == nil || place.Cost.Compare(least.Cost) < 0) {
			best, least = n, place
		}
	}
	if best == nil {
		return nil, ""
	}
	if refusal := c.cluster.Take(best.name, w, Load{SharedMilli: best.shared}, &least); refusal != nil {
		c.t.Fatalf("%s was offered by %s and not taken: %v", p.Name, best.name, refusal)
	}
	return best, least.Status()
}

// TestQuality: in total no other scheduler places more pods, in 95 of 100 clusters none does, and no node
// refuses what this one sends. QUIETCORE_CLUSTERS is how many; docs/evidence/scheduling.md has the table of 2,000.
// Beyond what clusters hold (QUIETCORE_CROWD), who places more small pods places more pods: there only refusals count.
func TestQuality(t *testing.T) {
	clusters, crowd := numberFrom(t, "QUIETCORE_CLUSTERS", 20), numberFrom(t, "QUIETCORE_CROWD", near)
	list := rivals()
	total, worse := make([]outcome, len(list)), make([][]string, len(list))
	for seed := range uint64(clusters) {
		var ours outcome
		for i, r := range list {
			got := newPaper(t, seed, r).play(seed, crowd)
			if total[i].add(got); i == 0 {
				ours = got
			} else if got.ran > ours.ran {
				worse[i] = append(worse[i], fmt.Sprintf("%d (-%d)", seed, got.ran-ours.ran))
			}
		}
	}
	var table strings.Builder
	for i, r := range list {
		o := total[i]
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d | %d |\n", r.name, o.ran, o.refused, o.pending, o.split,
			o.whole, len(worse[i]))
	}
	t.Logf("%d clusters: ran, refused, pending, split, whole, clusters in which it placed more\n%s", clusters, &table)
	for i, r := range list {
		if len(worse[i]) > 0 {
			t.Logf("%s placed more in: %s", r.name, strings.Join(worse[i], ", "))
		}
		beaten := total[i].ran > total[0].ran || len(worse[i]) > max(clusters/20, 1)
		if beaten && crowd <= near {
			t.Errorf("%s ran %d pods, and more than we in %d of %d clusters; we ran %d", r.name, total[i].ran,
				len(worse[i]), clusters, total[0].ran)
		}
	}
	if total[0].refused > 0 {
		t.Errorf("%d pods were refused by their nodes", total[0].refused)
	}
}

func numberFrom(t *testing.T, env string, otherwise int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it must be a number from 1", env, text)
	}
	return n
}
