package plugin

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// upPanicking starts a daemon whose steps panic for the events that bad names.
func upPanicking(t *testing.T, bad func(policy.Event) bool) (n *rig, tick chan time.Time) {
	t.Helper()
	n, tick = newNode(t, grid(t, testGrid)), make(chan time.Time)
	n.startRuntime()
	o := n.options()
	o.Clock.Tick = tick
	o.step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
		if bad(e) {
			panic("a defect")
		}
		return m.Step(now, e)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.plugin, n.stop, n.done = p, cancel, make(chan struct{})
	go func() { defer close(n.done); p.Run(ctx) }()
	n.settle()
	return n, tick
}

// However often a tick panics, every pod keeps what was decided.
func TestAPanicAtATickCostsNothing(t *testing.T) {
	var times atomic.Int64
	n, tick := upPanicking(t, func(e policy.Event) bool {
		_, is := e.(policy.Tick)
		return is && times.Add(-1) >= 0
	})
	mustRun(t, n, burstable("web"), lsr("a", 4000))
	if err := n.plugin.Submit(short(t), policy.BESuppressed{CPUs: cpuset.Range(8, 9)}); err != nil {
		t.Fatal(err)
	}
	n.settle()
	be := n.plugin.Snapshot().BE.String()
	for range 3 {
		times.Store(1)
		tick <- time.Now()
		n.settle()
		n.want("a-main", "0-3")
		n.want("web-main", "4-15")
		if now := n.plugin.Snapshot().BE.String(); now != be {
			t.Errorf("best effort has %s, had %s: the last event before the tick is lost", now, be)
		}
	}
	mustRun(t, n, lsr("b", 4000))
	n.want("b-main", "4-7")
	n.checkOwners()
}

// A record that panics when it is replayed is left out, and what it brought is taken
// from the machine that panicked.
func TestWhatARecordCannotBringBackIsPutBack(t *testing.T) {
	var bad atomic.Bool
	n, tick := upPanicking(t, func(e policy.Event) bool {
		switch e := e.(type) {
		case policy.Tick:
			return bad.Load()
		case policy.PodRun:
			return bad.Load() && e.Pod.Name == "a"
		}
		return false
	})
	mustRun(t, n, lsr("a", 4000), burstable("web"), lsr("b", 2000))
	n.settle()
	bad.Store(true)
	tick <- time.Now()
	if err := n.run(lsr("c", 2000)); err != nil {
		t.Error(err)
	}
	n.settle()
	for id, cpus := range map[string]string{"a-main": "0-3", "b-main": "4-5", "c-main": "6-7", "web-main": "8-15"} {
		n.want(id, cpus)
	}
	n.checkOwners()
}

// A machine that cannot be rebuilt is never an empty one: no pod is started, no owner
// is released, masks stay, and health says so until it can be.
func TestAMachineThatCannotBeRebuiltIsFrozen(t *testing.T) {
	var bad atomic.Bool
	n, tick := upPanicking(t, func(e policy.Event) bool {
		switch e.(type) {
		case policy.Tick, policy.Synchronized:
			return bad.Load()
		}
		return false
	})
	mustRun(t, n, lsr("a", 4000), burstable("web"))
	n.settle()
	bad.Store(true)
	tick <- time.Now()
	eventually(t, "the policy is frozen", func() bool { return n.plugin.Frozen() != "" })
	if err := n.run(lsr("b", 4000)); err == nil || !strings.Contains(err.Error(), "no decisions are made") {
		t.Errorf("an owner is started, or not told why: %v", err)
	}
	if err := n.run(burstable("other")); err == nil {
		t.Error("a pod is started that no owner would wait for afterwards")
	}
	if a, web := n.on("a-main"), n.on("web-main"); a != "0-3" || web != "4-15" {
		t.Errorf("frozen, a runs on %s and web on %s", a, web)
	}
	if saved := n.store.load(); len(saved.Pods) == 0 {
		t.Error("what was saved is lost")
	}
	bad.Store(false)
	tick <- time.Now()
	eventually(t, "the policy goes on", func() bool { return n.plugin.Frozen() == "" })
	mustRun(t, n, lsr("b", 4000))
	n.want("a-main", "0-3")
	n.want("b-main", "4-7")
	n.checkOwners()
}

// An event whose step panicked was answered as if it had never been: it is not replayed.
func TestAnEventThatPanickedIsNotTaken(t *testing.T) {
	var once atomic.Bool
	n, _ := upPanicking(t, func(e policy.Event) bool {
		_, is := e.(policy.PodRun)
		return is && once.CompareAndSwap(true, false)
	})
	mustRun(t, n, lsr("a", 4000))
	once.Store(true)
	err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: lsr("b", 4000).sandbox("sb-b")})
	if err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("the error is %v", err)
	}
	n.settle()
	if got := n.plugin.Snapshot().Exclusive.String(); got != "0-3" {
		t.Errorf("owned are %s, of which b was refused", got)
	}
}
