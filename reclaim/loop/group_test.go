package loop

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/topology"
)

// What holds one pod down touches that pod's samples; what holds best effort down as a
// whole (the slice's quota, or suppression while it uses all that it is left with)
// freezes what is known of everybody.
func TestWhoIsHeldDown(t *testing.T) {
	busy := map[string]float64{"busy-a": 1, "busy-b": 1, "idle-a": 0.01, "idle-b": 0.01}
	both, none := []string{"idle-a", "idle-b"}, []string(nil)
	for name, c := range map[string]struct {
		waits, stops map[string]float64
		production   float64
		free         bool // no suppression
		idle         []string
		frozen       bool
	}{
		"nobody": {idle: both},
		"two busy pods wait as on a busy host": {waits: map[string]float64{"busy-a": 0.3, "busy-b": 0.3,
			bestEffort: 0.4}, idle: both},
		"the same without suppression": {waits: map[string]float64{"busy-a": 0.3, "busy-b": 0.3,
			bestEffort: 0.4}, free: true, idle: both},
		"a busy pod is at its own quota":  {stops: map[string]float64{"busy-a": 0.8}, idle: both},
		"an idle pod is at its own quota": {stops: map[string]float64{"idle-a": 0.8}, idle: both[1:]},
		"an idle pod waits": {waits: map[string]float64{"idle-b": 0.2, bestEffort: 0.2},
			idle: both[:1]},
		"the slice's quota": {stops: map[string]float64{bestEffort: 0.2}, idle: none,
			frozen: true},
		"suppression, and all of it is used": {waits: map[string]float64{"busy-a": 0.3, bestEffort: 0.4},
			production: 9, idle: none, frozen: true},
		"suppression without waits": {production: 9, idle: both},
		"production's use where none suppresses": {waits: map[string]float64{bestEffort: 0.4}, production: 9,
			free: true, idle: both},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := reclaim.Default()
			cfg.Idle.Window, cfg.Idle.Sample = reclaim.Duration(4*time.Minute), reclaim.Duration(10*time.Second)
			estimator, err := reclaim.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			n := newNode(t)
			n.run("web", policy.LS, 2000, 0)
			n.load["web"] = c.production
			for uid, use := range busy {
				n.run(uid, policy.BE, 0, 2000)
				n.load[uid] = use
			}
			n.waits, n.stops = c.waits, c.stops
			o := n.options(estimator)
			if c.free {
				o.Suppress = nil
			}
			l, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Follow(rootID, "/"); err != nil {
				t.Fatal(err)
			}
			n.seconds(l, 400)
			var idle []string
			for uid := range busy {
				if v, _ := estimator.View(uid); v.Idle {
					idle = append(idle, uid)
				}
			}
			slices.Sort(idle)
			if s := l.Status(); !slices.Equal(idle, c.idle) || s.Frozen != c.frozen {
				t.Errorf("idle are %v, want %v; frozen is %v, want %v; status %+v", idle, c.idle, s.Frozen, c.frozen, s)
			}
		})
	}
}

// Best effort is held down where it uses nearly all that it is left with: the CPUs, or
// the quota where that is less.
func TestHeldDown(t *testing.T) {
	waits := group{waits: true, pressure: true}
	for _, c := range []struct {
		name              string
		g                 group
		cpus, quota       int // what is left of 8 CPUs on a node of 16
		production, batch float64
		outside           float64
		unknown           bool
		want              bool
	}{
		{name: "no suppression", g: waits, cpus: 8, batch: 8},
		{name: "no suppression, throttled by its own quota", g: group{stopped: true}, cpus: 8, want: true},
		{name: "all of 4 CPUs is used", g: waits, cpus: 4, batch: 3.6, want: true},
		{name: "less is", g: waits, cpus: 4, batch: 3.5},
		{name: "all used without waits", g: group{pressure: true}, cpus: 4, batch: 4},
		{name: "all is, and the kernel does not say what waits", g: group{}, cpus: 4, batch: 4, want: true},
		{name: "production is there, too", g: waits, cpus: 4, production: 8, batch: 1.8, want: true},
		{name: "what is no pod is there, too", g: waits, cpus: 4, outside: 8, batch: 1.8, want: true},
		{name: "both are there", g: waits, cpus: 4, production: 4, outside: 4, batch: 1.7},
		{name: "more than all is used", g: waits, cpus: 4, production: 20, want: true},
		{name: "unknown", g: waits, cpus: 4, unknown: true, want: true},
		{name: "all of a quota", g: waits, cpus: 8, quota: 2000, batch: 1.8, want: true},
		{name: "less of it", g: waits, cpus: 8, quota: 2000, batch: 1.7},
		{name: "a quota above what is left", g: waits, cpus: 4, quota: 6000, batch: 3.6, want: true},
	} {
		pools := policy.Pools{BE: cpuset.Range(0, c.cpus-1), BEWhole: cpuset.Range(0, 7), BEQuota: int64(c.quota)}
		s := Status{Capacity: 16, Production: c.production, Outside: c.outside, Batch: c.batch, Known: !c.unknown}
		if got := c.g.heldDown(&policy.Snapshot{Pools: &pools}, &s); got != c.want {
			t.Errorf("%s: held down is %v, want %v", c.name, got, c.want)
		}
	}
}

// Between two readings only counts what is there in both; one that failed begins anew.
func TestGroupReadings(t *testing.T) {
	var g group
	at := func(seconds int, waiting time.Duration, throttled uint64) *usage.Reading {
		return &usage.Reading{At: time.Unix(int64(seconds), 0), Waiting: waiting, Periods: uint64(10 * seconds),
			Throttled: throttled, Pressure: true}
	}
	for i, c := range []struct {
		r              *usage.Reading
		stopped, waits bool
	}{
		{at(10, time.Hour, 90), false, false}, // the first
		{at(11, time.Hour, 90), false, false},
		{at(12, time.Hour+200*time.Millisecond, 90), false, true},
		{at(13, time.Hour+200*time.Millisecond, 92), true, false},
		{&usage.Reading{Err: cgroup.ErrGone}, false, false},
		{at(15, 2*time.Hour, 112), false, false}, // the first again
		{at(16, 2*time.Hour, 122), true, false},
		{at(16, 3*time.Hour, 132), false, false}, // no time passed
	} {
		if g.read(c.r); g.stopped != c.stopped || g.waits != c.waits {
			t.Errorf("reading %d: stopped is %v and waits is %v, want %v and %v", i, g.stopped, g.waits, c.stopped,
				c.waits)
		}
	}
}

// batchIn runs a pod of class BE in kubelet's burstable slice.
func (n *node) batchIn(uid string, milli int64) {
	n.t.Helper()
	r := policy.Resources{RequestMilli: milli, LimitMilli: policy.NoLimit}
	pod := policy.Pod{UID: uid, Sandbox: uid, Namespace: "default", Name: uid, QoS: policy.Burstable,
		Labels: map[string]string{policy.LabelClass: string(policy.BE)}, CgroupParent: "kubepods/burstable/" + uid,
		CreatedAt: n.now, Facts: &policy.PodFacts{UID: uid, Resources: r}}
	if _, err := n.machine.Step(n.now, policy.PodRun{Pod: pod}); err != nil {
		n.t.Fatal(err)
	}
}

// Where no set of CPUs holds best effort, its pods in both slices stay together under one quota: a
// burst of both, a burst of one, a pod that comes. What is only observed asks for nothing.
func TestOneQuotaForBothClasses(t *testing.T) {
	for _, group := range []Group{Ungrouped, GroupObserved, Grouped} {
		n := newNode(t).of(policy.Config{Allocation: policy.Allocation{Bind: cpuallocator.SpreadByPCPUs}},
			topology.Options{})
		for i := range 8 { // a CPU of every core
			n.run(string(rune('a'+i)), policy.LSE, 1000, 0)
		}
		n.run("batch", policy.BE, 0, 2000)
		n.batchIn("paid", 2000)
		o := n.options(nil)
		o.Group = group
		var asked policy.BESuppressed
		suppress := o.Suppress
		o.Suppress = func(ctx context.Context, e policy.BESuppressed) error { asked = e; return suppress(ctx, e) }
		l, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Follow(rootID, "/"); err != nil {
			t.Fatal(err)
		}
		check := func(when string, bursts func(batch, paid int64) bool) {
			t.Helper()
			n.seconds(l, 3)
			s := l.Status()
			sum := s.SliceMilli
			for _, milli := range s.PodMilli {
				sum += milli
			}
			switch {
			case s.QuotaMilli == 0 || !n.machine.Snapshot().BEWhole.Intersects(&n.machine.Snapshot().BE):
				t.Fatalf("%d, %s: no quota: %+v", group, when, s)
			case group == Ungrouped:
				if s.PodMilli != nil || asked.Grouped {
					t.Errorf("%s: divided, though it is off: %+v", when, s)
				}
			case sum != s.QuotaMilli/10*10 || !bursts(s.SliceMilli, s.PodMilli["paid"]):
				t.Errorf("%d, %s: of %d the slice has %d, the pods %v", group, when, s.QuotaMilli, s.SliceMilli,
					s.PodMilli)
			}
			if asked.QuotaMilli != s.QuotaMilli || asked.Grouped != (group == Grouped) ||
				group != Grouped && asked.PodMilli != nil {
				t.Errorf("%d, %s: asked for %+v of %d", group, when, asked, s.QuotaMilli)
			}
		}
		even := func(a, b int64) bool { return max(a, b)-min(a, b) <= 10 }
		n.stops = map[string]float64{bestEffort: 0.5, "paid": 0.5}
		check("both burst", even)
		n.load["batch"], n.stops = 0.05, map[string]float64{"paid": 0.5}
		check("one bursts", func(batch, paid int64) bool { return batch < paid/3 })
		n.stops = nil
		was := n.suppressed
		check("nobody does any more", func(batch, paid int64) bool { return batch < paid/3 })
		if n.suppressed != was {
			t.Errorf("%d: the division changed %d times with nobody held", group, n.suppressed-was)
		}
		n.batchIn("new", 2000)
		n.stops = map[string]float64{bestEffort: 0.5, "paid": 0.5, "new": 0.5}
		check("a pod came", func(batch, paid int64) bool { return even(batch, paid) })
	}
}
