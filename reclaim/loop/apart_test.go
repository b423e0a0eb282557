package loop

import (
	"math"
	"testing"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/topology"
)

// of makes 16 CPUs of 8 cores.
func (n *node) of(cfg policy.Config, o topology.Options) *node {
	n.t.Helper()
	var cpus []topology.CPU
	for id := range 16 {
		cpus = append(cpus, topology.CPU{ID: id, Core: id / 2})
	}
	topo, err := topology.New(cpus, o)
	if err != nil {
		n.t.Fatal(err)
	}
	if n.machine, err = policy.New(topo, cfg); err != nil {
		n.t.Fatal(err)
	}
	return n
}

// CPUs that no pod of best effort may use are neither offered nor part of its budget,
// whichever pod has them, and what their owners request is not subtracted a second time.
func TestWhatIsApartIsNotLent(t *testing.T) {
	system := policy.System{CPUs: cpuset.Of(14, 15), Exclusive: true, Namespaces: []string{"default"}}
	all := cpuset.Of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	type run struct {
		class policy.Class
		milli int64
		load  float64
	}
	for name, c := range map[string]struct {
		policy  policy.Config
		isolate cpuset.Set
		from    reclaim.From
		reserve float64
		runs    []run
		offer   int64
		// of the budget: 65 % of 16 CPUs, or of those that are not apart, less production's use of them,
		// less the reserve
		target float64
	}{
		"nobody": {offer: 16000, target: 10.4},
		"reserved, and best effort's first": {policy: policy.Config{Reserved: cpuset.Of(0, 1)}, offer: 16000,
			target: 10.4},
		"reserved strictly": {policy: policy.Config{Reserved: cpuset.Of(0, 1), ReservedStrict: true},
			offer: 14000, target: 8.4},
		"reserved by kubelet, strictly": {policy: policy.Config{Kubelet: policy.Kubelet{Reserved: cpuset.Of(0),
			Options: map[string]string{"strict-cpu-reservation": "true"}}}, offer: 15000, target: 9.4},
		"all reserved": {policy: policy.Config{Reserved: all}, offer: 16000, target: 10.4},
		"isolated": {isolate: cpuset.Of(8, 9, 10, 11, 12, 13, 14, 15), offer: 8000,
			target: 2.4},
		"the system's alone": {policy: policy.Config{System: system}, offer: 14000, target: 8.4},
		"the system's alone, used": {policy: policy.Config{System: system},
			runs: []run{{policy.SYSTEM, 1500, 0}}, offer: 14000, target: 8.4},
		"the system's in reserved ones": {policy: policy.Config{Reserved: cpuset.Of(0, 1), ReservedStrict: true,
			System: policy.System{Namespaces: []string{"default"}}}, runs: []run{{policy.SYSTEM, 1500, 0}},
			offer: 14000, target: 8.4},
		"the system's among others": {policy: policy.Config{
			System: policy.System{Namespaces: []string{"default"}}}, runs: []run{{policy.SYSTEM, 1500, 0}},
			offer: 14500, target: 10.4},
		"an owner who shares":   {runs: []run{{policy.LSR, 4000, 1}}, offer: 12000, target: 9.4},
		"an owner who does not": {runs: []run{{policy.LSE, 4000, 1}}, offer: 12000, target: 7.8},
		"an owner who does not, by use": {runs: []run{{policy.LSE, 4000, 1}}, from: reclaim.FromUsage,
			offer: 12000, target: 7.8},
		"a busy owner who does not":      {runs: []run{{policy.LSE, 4000, 4}}, offer: 12000, target: 6.4},
		"one who uses more than its own": {runs: []run{{policy.LSE, 4000, 4.5}}, offer: 12000, target: 5.9},
		"idle owners next to busy production": {runs: []run{{policy.LSE, 8000, 0}, {policy.LS, 6000, 5}}, offer: 2000,
			target: 0.2},
		"an owner whose siblings are idle": {policy: policy.Config{
			Allocation: policy.Allocation{SMT: cpuallocator.SMTIsolate}}, runs: []run{{policy.LSE, 2000, 1}},
			offer: 12000, target: 7.1},
		"a sharing one with idle siblings": {policy: policy.Config{
			Allocation: policy.Allocation{SMT: cpuallocator.SMTIsolate}}, runs: []run{{policy.LSR, 2000, 1}},
			offer: 12000, target: 7.4},
		"owners next to production": {runs: []run{{policy.LSE, 4000, 1}, {policy.LS, 3000, 2}}, offer: 9000,
			target: 5.8},
		"the configured reserve": {reserve: 3, offer: 13000, target: 7.4},
		"the configured next to strict ones": {policy: policy.Config{Reserved: cpuset.Of(0, 1), ReservedStrict: true},
			reserve: 3, offer: 11000, target: 5.4},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).of(c.policy, topology.Options{Isolated: c.isolate})
			cfg := reclaim.Default()
			cfg.Reserve = c.reserve
			if c.from != "" {
				cfg.From = c.from
			}
			estimator, err := reclaim.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range c.runs {
				uid := string(rune('a' + i))
				n.run(uid, r.class, r.milli, 0)
				n.load[uid] = r.load
			}
			o := n.options(estimator)
			o.Reserve = c.reserve
			l, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Follow(rootID, "/"); err != nil {
				t.Fatal(err)
			}
			n.seconds(l, 300)
			s := l.Status()
			if s.Offer*1000 != float64(c.offer) || len(n.offers) == 0 || n.offers[len(n.offers)-1] != c.offer {
				t.Errorf("%v CPUs are offered, want %dm; pools %+v", s.Offer, c.offer, *n.machine.Snapshot().Pools)
			}
			if math.Abs(s.Budget.Target-c.target) > 1e-6 {
				t.Errorf("the budget's target is %v, want %v", s.Budget.Target, c.target)
			}
		})
	}
}

// An owner of kubelet's with another container has only the rest of its request in
// what best effort may use.
func TestOnlyTheRestOfAnOwnersRequestIsTaken(t *testing.T) {
	a := apart{own: map[string]int{"pinned": 2, "whole": 3}}
	for _, c := range []struct {
		uid     string
		class   policy.Class
		request float64
		takes   bool
		left    float64
	}{
		{"pinned", policy.LSR, 2.5, true, 0.5}, {"whole", policy.LSE, 3, false, 0}, {"whole", policy.LSE, 1, false, 0},
		{"other", policy.LS, 2.5, true, 2.5}, {"other", policy.SYSTEM, 1, true, 1},
	} {
		one := reclaim.Pod{Request: c.request}
		if takes := a.takes(&policy.PodView{UID: c.uid, Class: c.class, Managed: true}, &one); takes != c.takes ||
			takes && one.Request != c.left {
			t.Errorf("%s of %v CPUs takes %v: %v, want %v: %v", c.uid, c.request, one.Request, takes, c.left, c.takes)
		}
	}
}

// Where all CPUs that are left are reserved strictly, production and best effort run on
// them for want of others, and nothing is lent.
func TestOnlyReservedCPUsAreLeft(t *testing.T) {
	n := newNode(t).of(policy.Config{Reserved: cpuset.Of(0, 1), ReservedStrict: true}, topology.Options{})
	estimator, err := reclaim.New(reclaim.Default())
	if err != nil {
		t.Fatal(err)
	}
	n.run("batch", policy.BE, 0, 1000)
	l := n.start(estimator)
	n.seconds(l, 120)
	if s := l.Status(); s.Offer != 14 {
		t.Fatalf("%v CPUs are offered, want 14", s.Offer)
	}
	left, err := n.machine.Snapshot().Topology.WithOnline(cpuset.Of(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.machine.Step(n.now, policy.Hardware{Topology: left, Online: cpuset.Of(0, 1)}); err != nil {
		t.Fatal(err)
	}
	n.seconds(l, 120)
	if s := l.Status(); s.Offer != 0 || s.Budget.Target != 1.3-2 {
		t.Errorf("%v CPUs are offered and the budget's target is %v, want none and %v; pools %+v", s.Offer,
			s.Budget.Target, 1.3-2, *n.machine.Snapshot().Pools)
	}
}
