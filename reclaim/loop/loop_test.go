package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cpuset"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/topology"
)

// node is 16 CPUs with a policy, whose pods use what load says.
type node struct {
	t       *testing.T
	now     time.Time
	machine *policy.Machine
	load    map[string]float64 // CPUs by pod UID
	system  float64
	used    map[string]time.Duration
	follows map[string]string
	broken  bool

	offers     []int64
	evicted    []string
	refuse     error
	suppressed int
	saved      []reclaim.Checkpoint
}

func newNode(t *testing.T) *node {
	topo, err := topology.Grid{NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{Reserved: cpuset.Of(0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return &node{t: t, now: time.Unix(1e9, 0), machine: m, load: map[string]float64{}, used: map[string]time.Duration{}, follows: map[string]string{}}
}

func (n *node) run(uid string, class policy.Class, milli, batch int64) {
	n.t.Helper()
	qos := policy.Burstable
	if class == policy.BE {
		qos = policy.BestEffort
	}
	pod := policy.Pod{
		UID: uid, Sandbox: uid, Namespace: "default", Name: uid, QoS: qos, Labels: map[string]string{policy.LabelClass: string(class)},
		CgroupParent: "kubepods/" + uid, CreatedAt: n.now,
		Facts: &policy.PodFacts{UID: uid, Resources: policy.Resources{RequestMilli: milli, LimitMilli: policy.NoLimit}, BatchMilli: batch},
	}
	if class == policy.LSE {
		pod.QoS, pod.Facts.Resources.LimitMilli = policy.Guaranteed, milli
	}
	if _, err := n.machine.Step(n.now, policy.PodRun{Pod: pod}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) Follow(id, path string) error { n.follows[id] = path; return nil }
func (n *node) Forget(id string)             { delete(n.follows, id) }
func (n *node) Read(dst []usage.Reading) []usage.Reading {
	for id := range n.follows {
		r := usage.Reading{ID: id, At: n.now, CPU: n.used[id]}
		if n.broken {
			r = usage.Reading{ID: id, Err: cgroup.ErrGone}
		}
		dst = append(dst, r)
	}
	return dst
}

// seconds lets time pass and the loop look.
func (n *node) seconds(l *Loop, count int) {
	for range count {
		n.now = n.now.Add(time.Second)
		whole := n.system
		for uid, cpus := range n.load {
			n.used[uid] += time.Duration(cpus * float64(time.Second))
			whole += cpus
		}
		n.used[rootID] += time.Duration(whole * float64(time.Second))
		l.look(n.t.Context())
	}
}

func (n *node) options(estimator *reclaim.Estimator) Options {
	return Options{
		Usage: n, Node: n.machine.Snapshot, Estimator: estimator, Suppression: reclaim.DefaultSuppress(), Clock: Clock{Now: func() time.Time { return n.now }},
		Pods: func(context.Context) ([]policy.PodView, error) { return n.machine.Pods(), nil },
		Suppress: func(_ context.Context, e policy.BESuppressed) error {
			n.suppressed++
			_, err := n.machine.Step(n.now, e)
			return err
		},
		Offer: func(milli int64) { n.offers = append(n.offers, milli) },
		Evict: func(_ context.Context, p policy.PodView, why string) error {
			if n.refuse == nil {
				n.evicted = append(n.evicted, p.Name+": "+why)
			}
			return n.refuse
		},
		Keep: func(c reclaim.Checkpoint) error { n.saved = append(n.saved, c); return nil },
	}
}

func (n *node) start(estimator *reclaim.Estimator) *Loop {
	n.t.Helper()
	l, err := New(n.options(estimator))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.Follow(rootID, "/"); err != nil {
		n.t.Fatal(err)
	}
	l.estimated, l.kept = n.now, n.now
	return l
}

func (n *node) be() int { return n.machine.Snapshot().BE.Count() }

// Best effort shrinks within two looks of production's step, and grows back slowly.
func TestProductionIsGivenWayToWithinSeconds(t *testing.T) {
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.run("batch", policy.BE, 0, 4000)
	n.load["web"], n.load["batch"] = 1, 6
	l := n.start(nil)
	n.seconds(l, 120)
	wide := n.be()
	if wide < 8 || wide > 10 { // 65 % of 16 less 1
		t.Fatalf("beside little production best effort has %d CPUs", wide)
	}
	n.load["web"] = 7
	n.seconds(l, 2)
	if got := n.be(); got > 4 {
		t.Errorf("two seconds after production's step best effort has %d CPUs", got)
	}
	if s := n.machine.Snapshot(); !s.BE.Has(0) || !s.BE.Has(1) {
		t.Errorf("best effort has %s, the reserved CPUs come first", s.BE)
	}
	n.load["web"] = 1
	n.seconds(l, 2)
	if got := n.be(); got > 4 {
		t.Errorf("best effort has %d CPUs two seconds after production's fall", got)
	}
	n.seconds(l, 120)
	if got := n.be(); got != wide {
		t.Errorf("best effort has %d CPUs in the end, had %d", got, wide)
	}
	if n.suppressed > 20 {
		t.Errorf("the policy was asked %d times in 244 seconds", n.suppressed)
	}
}

// Where nothing can be read best effort keeps its floor, and comes back.
func TestWhatCannotBeReadIsInUse(t *testing.T) {
	n := newNode(t)
	n.run("batch", policy.BE, 0, 4000)
	l := n.start(nil)
	n.seconds(l, 120)
	before := n.be()
	n.broken = true
	n.seconds(l, 60)
	if got := n.be(); got != 2 || !l.Status().Budget.Blind {
		t.Errorf("best effort has %d CPUs while nobody knows anything", got)
	}
	n.broken = false
	n.seconds(l, 120)
	if got := n.be(); got != before {
		t.Errorf("best effort has %d CPUs, had %d", got, before)
	}
}

// Every CPU belongs to an owner who shares with nobody.
func TestAllCPUsAreOwned(t *testing.T) {
	n := newNode(t)
	n.run("lse", policy.LSE, 14000-2000, 0)
	n.run("batch", policy.BE, 0, 1000)
	n.load["lse"] = 12
	l := n.start(nil)
	n.seconds(l, 30)
	s := n.machine.Snapshot()
	if s.BE.Intersects(&s.Exclusive) || s.BE.IsEmpty() {
		t.Errorf("best effort has %s, owners have %s", s.BE, s.Exclusive)
	}
}

func TestOffersAndEvictions(t *testing.T) {
	cfg := reclaim.Default()
	cfg.Correct.After, cfg.Predictor = reclaim.Duration(20*time.Second), "limits(1)"
	estimator, err := reclaim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run("web", policy.LS, 4000, 0)
	n.load["web"], n.load["old"], n.load["new"] = 2, 3, 3
	l := n.start(estimator)
	n.seconds(l, 300)
	if last := n.offers[len(n.offers)-1]; last < 11000 || last > 12000 {
		t.Fatalf("16 CPUs of which production requests 4 are offered as %dm", last)
	}
	n.run("old", policy.BE, 0, 6000)
	n.now = n.now.Add(time.Second)
	n.run("new", policy.BE, 0, 5000)
	n.seconds(l, 60)
	if len(n.evicted) > 0 {
		t.Fatalf("evicted %v, everything fits", n.evicted)
	}
	t.Log("production requests more: promises exceed what exists, and one pod has to go")
	n.run("more", policy.LS, 6000, 0)
	n.refuse = errors.New("a disruption budget allows none")
	n.seconds(l, 60)
	if len(n.evicted) > 0 || l.Status().Refusals == 0 {
		t.Errorf("evicted %v, refused %d", n.evicted, l.Status().Refusals)
	}
	n.refuse = nil
	n.seconds(l, 400)
	if s := l.Status(); len(n.evicted) == 0 || s.Evictions != uint64(len(n.evicted)) || !s.Overcommitted {
		t.Errorf("evicted %v, status %+v", n.evicted, s)
	}
	if len(n.saved) == 0 {
		t.Error("nothing was saved in 13 minutes")
	}
}

// A pod that comes and goes is followed and forgotten.
func TestOnlyPodsThatRunAreRead(t *testing.T) {
	n := newNode(t)
	l := n.start(nil)
	for i := range 5 {
		n.run(fmt.Sprint("pod", i), policy.LS, 100, 0)
	}
	n.seconds(l, 3)
	if len(n.follows) != 6 {
		t.Fatalf("followed: %v", n.follows)
	}
	for i := range 5 {
		if _, err := n.machine.Step(n.now, policy.PodRemoved{Sandbox: fmt.Sprint("pod", i)}); err != nil {
			t.Fatal(err)
		}
	}
	n.seconds(l, 1)
	if len(n.follows) != 1 || len(l.meters) != 0 || !slices.Equal(n.machine.Pods(), []policy.PodView{}) {
		t.Errorf("followed: %v, meters %d", n.follows, len(l.meters))
	}
}
