package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// Best effort that was lent nothing runs only where nothing else wants to, from its
// first decision until it is lent something; after another process ended that, again; and no
// longer after the daemon is configured otherwise, or uninstalled.
func TestBestEffortIsIdle(t *testing.T) {
	batch := func(name string) spec {
		return spec{name: name, class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	}
	promise := func(name string) policy.PodFacts {
		return policy.PodFacts{UID: "uid-" + name, Resources: policy.Resources{LimitMilli: policy.NoLimit},
			BatchMilli: 1500}
	}
	s := &server{facts: map[string]policy.PodFacts{"uid-lent": promise("lent")}}
	n := newNode(t, grid(t, testGrid))
	idles := func(o *Options) { o.Config.BEIdle = true }
	n.up(s.options, idles)
	// A best-effort pod of a class of production is production.
	web := spec{name: "web", class: policy.LS, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	mustRun(t, n, batch("lent"), batch("late"), batch("plain"), web)
	is := func(name string) cgroup.Effective {
		t.Helper()
		e, err := n.kernel.Effective(batch(name).parent())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	want := func(when, name string, idle bool, weight uint64) {
		t.Helper()
		n.settle()
		if e := is(name); e.Idle != idle || weight > 0 && e.Weight != weight {
			t.Errorf("%s: %s is idle %t with weight %d, want %t and %d", when, name, e.Idle, e.Weight, idle, weight)
		}
	}
	want("at first", "lent", false, 2)
	want("at first", "late", true, 0)
	want("at first", "plain", true, 0)
	want("at first", "web", false, 0)
	if err := n.plugin.Submit(short(t), promise("late")); err != nil {
		t.Fatal(err)
	}
	want("lent late", "late", false, 2)
	no := false
	if err := n.kernel.Apply(short(t), batch("plain").parent(), cgroup.Values{Idle: &no, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	n.plugin.Audit()
	eventually(t, "the audit has made it idle again", func() bool { return is("plain").Idle })

	n.kill()
	n.up(s.options)
	want("configured otherwise", "plain", false, 1)
	n.kill()
	n.up(s.options, idles)
	want("configured again", "plain", true, 0)
	n.restore(policy.KubeletState{PolicyName: "none"})
	if e := is("plain"); e.Idle || e.Weight != 1 {
		t.Errorf("uninstalled: idle %t with weight %d", e.Idle, e.Weight)
	}
}

// One pod runs only where nothing else wants to, until its time is over, or that is taken back: also where its daemon
// is killed meanwhile, then with the next one, or once it is uninstalled. What it weighs for lent CPUs comes back
// exactly.
func TestOnePodIsIdle(t *testing.T) {
	batch := func(name string) spec {
		return spec{name: name, class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	}
	s := &server{facts: map[string]policy.PodFacts{"uid-lent": {UID: "uid-lent", BatchMilli: 120_000,
		Resources: policy.Resources{LimitMilli: policy.NoLimit}}}}
	n := newNode(t, grid(t, testGrid))
	n.up(s.options)
	mustRun(t, n, batch("lent"), batch("low"), batch("calm"))
	want := func(when string, idle bool) {
		t.Helper()
		n.settle()
		for name, weight := range map[string]uint64{"lent": cgroup.WeightOf(3000), "low": leastWeight} {
			is, err := n.kernel.Effective(batch(name).parent())
			if err != nil {
				t.Fatal(err)
			}
			if is.Idle != idle || !idle && is.Weight != weight {
				t.Errorf("%s: %s is idle %t and weighs %d, want %t and %d", when, name, is.Idle, is.Weight, idle,
					weight)
			}
		}
		if is, err := n.kernel.Effective(batch("calm").parent()); err != nil || is.Idle {
			t.Errorf("%s: another pod is idle, %v", when, err)
		}
	}
	let := func(f time.Duration) {
		t.Helper()
		for _, name := range []string{"lent", "low"} {
			if err := n.plugin.Submit(short(t), policy.Idled{Pod: batch(name).uid(), For: f}); err != nil {
				t.Fatal(err)
			}
		}
	}
	let(time.Hour)
	want("asked for", true)
	no := false
	if err := n.kernel.Apply(short(t), batch("low").parent(), cgroup.Values{Idle: &no, Weight: 1}); err != nil {
		t.Fatal(err)
	}
	n.plugin.Audit()
	want("after somebody has undone it", true)
	let(0)
	want("taken back", false)
	let(time.Hour)
	if err := n.plugin.Submit(short(t), policy.Released{}); err != nil {
		t.Fatal(err)
	}
	want("released", false)
	let(time.Hour)
	want("again", true)
	n.kill()
	n.up(s.options)
	want("with the next daemon", false)
	let(time.Hour)
	want("with the next daemon, again", true)
	n.restore(policy.KubeletState{PolicyName: "none"})
	for _, name := range []string{"lent", "low"} {
		if is, err := n.kernel.Effective(batch(name).parent()); err != nil || is.Idle || is.Weight != leastWeight {
			t.Errorf("uninstalled: %s is idle %t and weighs %d, %v", name, is.Idle, is.Weight, err)
		}
	}
}

// sliceQuota waits for the quota of a slice, and asks for one of best effort.
func sliceQuota(t *testing.T, n *rig, slice string) (limited func(when string,
	milli int64), suppress func(milli int64)) {
	limited = func(when string, milli int64) {
		t.Helper()
		eventually(t, when, func() bool {
			e, err := n.kernel.Effective(slice)
			return err == nil && e.QuotaMilli == milli
		})
	}
	suppress = func(milli int64) {
		t.Helper()
		if err := n.plugin.Submit(short(t), policy.BESuppressed{QuotaMilli: milli}); err != nil {
			t.Fatal(err)
		}
	}
	return limited, suppress
}

// Where CPUs cannot hold best effort back its slice gets a quota: put back after
// another process changed it, and undone when it is over, by the next daemon, or uninstalled.
func TestQuotaOfBestEffort(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, spec{name: "batch", class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}})
	slice := cgroup.Parent(spec{name: "batch", qos: policy.BestEffort}.parent())
	limited, suppress := sliceQuota(t, n, slice)
	suppress(1500)
	limited("a quota is there", 1500)
	if err := n.kernel.Apply(short(t), slice, cgroup.Values{Quota: cgroup.NoQuota()}); err != nil {
		t.Fatal(err)
	}
	n.plugin.Audit()
	limited("the audit has put it back", 1500)
	suppress(0)
	limited("it is over", policy.NoLimit)
	suppress(700)
	limited("another quota is there", 700)
	n.kill()
	n.up()
	limited("the next daemon has undone it", policy.NoLimit)
	suppress(700)
	limited("a quota is there again", 700)
	n.restore(policy.KubeletState{PolicyName: "none"})
	limited("uninstalled", policy.NoLimit)
}

// A kernel without cpu.idle changes nothing else, and is not asked for it for ever.
func TestWithoutIdle(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.kernel.NoIdle = true
	n.up(func(o *Options) { o.Config.BEIdle = true })
	mustRun(t, n, spec{name: "batch", class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}})
	n.settle()
	n.kernel.Writes()
	n.plugin.Audit()
	n.settle()
	if w := n.kernel.Writes(); len(w) > 0 {
		t.Errorf("an audit writes %v", w)
	}
	other := newNode(t, grid(t, testGrid))
	other.kernel.NoIdle = true
	other.up()
	pod := spec{name: "batch", class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	mustRun(t, other, pod)
	if err := other.plugin.Submit(short(t), policy.Idled{Pod: pod.uid(), For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	other.settle()
	if other.plugin.Snapshot().Containers[0].MayIdle {
		t.Error("the kernel has refused cpu.idle, and it is offered")
	}
	if err := other.plugin.Submit(short(t), policy.Idled{Pod: pod.uid(), For: time.Hour}); err == nil {
		t.Error("a pod is to idle again although the kernel has refused")
	}
}

// A pod of another class in the best-effort slice is not stopped with it: while it is
// there best effort is not limited, and one notice names the pod that prevents it.
func TestQuotaOfBestEffortSparesOthers(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	told := make(chan string, 100)
	n.up(func(o *Options) {
		o.Notify = func(m policy.Notice) {
			if m.Reason == "BestEffortNotLimited" {
				told <- m.Message
			}
		}
	})
	mustRun(t, n, spec{name: "batch", class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}})
	slice := cgroup.Parent(spec{name: "batch", qos: policy.BestEffort}.parent())
	limited, suppress := sliceQuota(t, n, slice)
	suppress(1500)
	limited("nobody else is there", 1500)
	web := spec{name: "web", class: policy.LS, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	mustRun(t, n, web)
	limited("production has come", policy.NoLimit)
	suppress(1400)
	n.settle()
	limited("production is still there", policy.NoLimit)
	n.remove(web)
	limited("production has gone", 1400)
	if len(told) != 1 {
		t.Fatalf("%d notices, want one", len(told))
	}
	if m := <-told; !strings.Contains(m, "default/web") || !strings.Contains(m, slice) || !strings.Contains(m, "1500") {
		t.Errorf("told %q", m)
	}
}

// Pods of class BE outside of the best-effort slice are one group with it where that is enforced: a
// part of its quota, and a fortieth of their weight. Kubelet's values are back when it is over, after
// a daemon that does not group, and after an uninstall.
func TestBestEffortIsOneGroup(t *testing.T) {
	paid := spec{name: "paid", class: policy.BE, qos: policy.Burstable,
		ctrs: []ctr{{name: "main", request: 4000, limit: 6000}}}
	plain := spec{name: "plain", class: policy.BE, qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	s := &server{facts: map[string]policy.PodFacts{paid.uid(): {UID: paid.uid(),
		Resources: policy.Resources{RequestMilli: 4000, LimitMilli: 6000}}}}
	n := newNode(t, grid(t, testGrid))
	groups := func(o *Options) { o.Config.BEGrouped = true }
	n.up(s.options, groups)
	mustRun(t, n, paid, plain)
	slice := cgroup.Parent(plain.parent())
	want := func(when string, ofPod, ofSlice int64, weight uint64) {
		t.Helper()
		eventually(t, when, func() bool {
			e, err := n.kernel.Effective(paid.parent())
			f, errSlice := n.kernel.Effective(slice)
			return err == nil && errSlice == nil && e.QuotaMilli == ofPod && e.Weight == weight &&
				f.QuotaMilli == ofSlice
		})
	}
	kubelet := uint64(157)
	parted := policy.BESuppressed{QuotaMilli: 1500, Grouped: true, PodMilli: map[string]int64{paid.uid(): 600}}
	suppress := func(e policy.BESuppressed) {
		t.Helper()
		if err := n.plugin.Submit(short(t), e); err != nil {
			t.Fatal(err)
		}
	}
	want("it weighs a fortieth", 6000, policy.NoLimit, 4)
	suppress(parted)
	want("each has its part", 600, 900, 4)
	if err := n.kernel.Apply(short(t), paid.parent(),
		cgroup.Values{Weight: kubelet, Quota: cgroup.NoQuota()}); err != nil {
		t.Fatal(err)
	}
	n.plugin.Audit()
	want("the audit has put it back", 600, 900, 4)
	suppress(policy.BESuppressed{})
	want("it is over", 6000, policy.NoLimit, 4)
	suppress(parted)
	want("each has its part again", 600, 900, 4)
	n.kill()
	n.up(s.options)
	want("the next daemon does not group", 6000, policy.NoLimit, kubelet)
	n.kill()
	n.up(s.options, groups)
	suppress(parted)
	want("the one after it does", 600, 900, 4)
	n.restore(policy.KubeletState{PolicyName: "none"})
	want("uninstalled", 6000, policy.NoLimit, kubelet)
}
