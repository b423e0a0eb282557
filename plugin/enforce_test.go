package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/goleak"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// gate lets a test hold back or fail single writes of the kernel.
type gate struct {
	mu   sync.Mutex
	on   string // writes to this path
	hold chan struct{}
	err  error
	held chan struct{}
}

func (g *gate) before(path string, _ cgroup.Values) error {
	g.mu.Lock()
	hit := g.on != "" && strings.Trim(path, "/") == g.on
	hold, err := g.hold, g.err
	g.mu.Unlock()
	if !hit {
		return nil
	}
	if hold != nil {
		select {
		case g.held <- struct{}{}:
		default:
		}
		<-hold
	}
	return err
}

func (g *gate) set(on string, hold chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on, g.hold, g.err = on, hold, err
}

func gated(t *testing.T) (*rig, *gate) {
	n := newNode(t, grid(t, testGrid))
	g := &gate{held: make(chan struct{}, 1)}
	n.kernel.Before = g.before
	return n, g
}

func TestAWriteThatHangsStallsNoHandlerAndStartsNoOwnerTooSoon(t *testing.T) {
	t.Parallel() // it waits for a deadline
	n, g := gated(t)
	n.up()
	mustRun(t, n, burstable("web"))
	n.settle()
	release := make(chan struct{})
	g.set("kubepods/burstable", release, nil)
	db := lsr("db", 4000)
	start := time.Now()
	err := n.run(db)
	took := time.Since(start)
	if err == nil || !strings.Contains(err.Error(), "Busy: CPUs 0-3 are not yet free of others") {
		t.Errorf("error is %v; an owner must not start on CPUs that others still have", err)
	}
	if took > 1900*time.Millisecond {
		t.Errorf("the handler took %s of the runtime's 2 s", took)
	}
	// A pod that owns nothing does not wait for it at all.
	start = time.Now()
	mustRun(t, n, burstable("other"))
	if took := time.Since(start); took > 900*time.Millisecond {
		t.Errorf("a shared container waited %s for somebody else's write", took)
	}
	if !n.plugin.Connected() {
		t.Error("the runtime has dropped the plugin")
	}
	close(release)
	g.set("", nil, nil)
	n.settle()
	if err := n.startContainer(db, "db-main", db.ctrs[0]); err != nil { // kubelet tries again
		t.Fatal(err)
	}
	n.want("db-main", "0-3")
	n.checkOwners()
}

func TestAWriteThatFailsKeepsTheOwnerOutUntilItIsRepaired(t *testing.T) {
	t.Parallel() // it waits for a deadline
	n, g := gated(t)
	audit := make(chan time.Time)
	n.up(func(o *Options) { o.Clock.Audit = audit })
	mustRun(t, n, burstable("web"))
	n.settle()
	g.set("kubepods/burstable", nil, errors.New("input/output error"))
	db := lsr("db", 4000)
	err := n.run(db)
	if err == nil || !strings.Contains(err.Error(), "still in use by others") {
		t.Fatalf("error is %v", err)
	}
	if n.plugin.Settled() {
		t.Error("settled, although a write has failed")
	}
	g.set("", nil, nil)
	audit <- time.Now()
	n.want("web-main", "4-15")
	if err := n.startContainer(db, "db-main", db.ctrs[0]); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "0-3")
	n.checkOwners()
}

func TestAQuotaThatWasNotWrittenIsTriedAgainBeforeTheNextAudit(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	db := lsr("db", 4000)
	var broken atomic.Bool
	broken.Store(true)
	n.kernel.Before = func(path string, v cgroup.Values) error {
		if broken.Load() && v.Quota != nil && v.Quota.Micros < 0 &&
			strings.Trim(path, "/") == strings.Trim(db.parent(), "/") {
			return errors.New("systemd does not answer")
		}
		return nil
	}
	n.up(func(o *Options) { o.Clock.Audit = make(chan time.Time) }) // never
	mustRun(t, n, db)
	broken.Store(false)
	if n.plugin.Settled() {
		t.Error("settled, although a quota is not written")
	}
	eventually(t, "it is tried again", func() bool {
		if err := n.plugin.Advance(short(t), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		return n.plugin.Settled()
	})
	n.settle()
	if got := n.quota(db.parent()); got != policy.NoLimit {
		t.Errorf("the pod's quota stays at %dm", got)
	}
}

func TestDriftIsRepairedAndCounted(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	audit := make(chan time.Time)
	n.up(func(o *Options) { o.Clock.Audit = audit })
	db := lsr("db", 4000)
	mustRun(t, n, burstable("web"), db)
	n.settle()
	n.kernel.Tamper("kubepods/burstable", "0-15")
	n.kernel.Tamper("kubepods/poduid-db", "0-7")
	if err := n.kernel.Apply(context.Background(), db.parent(),
		cgroup.Values{Quota: &cgroup.Quota{Micros: 400000, Period: 100000}}); err != nil {
		t.Fatal(err)
	}
	audit <- time.Now()
	audit <- time.Now() // taken once the first has been dealt with
	n.want("web-main", "4-15")
	n.want("db-main", "0-3")
	if got := n.quota(db.parent()); got != policy.NoLimit {
		t.Errorf("the pod's quota stays at %dm", got)
	}
	if got := strings.Count(n.log.String(), "msg=drift"); got < 2 {
		t.Errorf("%d lines about drift, want one a cgroup", got)
	}
}

func TestAContainerThatStartsElsewhereIsRepairedAtOnce(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lsr("db", 4000)
	mustRun(t, n, db)
	n.settle()
	// A runtime that ignored the pod's mask and the reply.
	n.kernel.Tamper("kubepods/poduid-db", "")
	n.kernel.Tamper("kubepods/poduid-db/db-main", "8-9")
	if err := n.nri.PostStartContainer(short(t), &api.PostStartContainerRequest{Pod: n.pods["sb-db"],
		Container: n.containers["db-main"]}); err != nil {
		t.Fatal(err)
	}
	n.want("db-main", "0-3")
	if !strings.Contains(n.log.String(), "does not run on its CPUs") {
		t.Error("the log says nothing of it")
	}
}

func TestAPanicInAStepIsAnsweredAndLogged(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.startRuntime()
	o := n.options()
	o.step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
		if r, ok := e.(policy.PodRun); ok && r.Pod.Name == "poison" {
			var none *policy.Machine
			_ = none.Snapshot().Rev // what a defect would do
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
	for i := range 10 {
		s := lsr(fmt.Sprint("passing", i), 2000)
		mustRun(t, n, s)
		n.remove(s)
	}
	mustRun(t, n, lsr("a", 2000), burstable("web"))
	n.settle()
	before := n.places()
	if err := n.run(lsr("poison", 2000)); err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("error is %v", err)
	}
	if log := n.log.String(); !strings.Contains(log, "panicked") || !strings.Contains(log, `podRun`) {
		t.Error("the log has neither the panic nor its record")
	}
	mustRun(t, n, lsr("b", 2000))
	n.want("b-main", "2-3")
	before["web-main"] = "4-15"
	before["b-main"] = "2-3"
	n.samePlaces(before)
	if err := n.update("a-main", cpuOf(4000, 4000, "")); err != nil { // a pod from before is still resized
		t.Fatal(err)
	}
	n.settle()
	if got, err := n.kernel.Effective("kubepods/poduid-a"); err != nil || got.CPUs.Count() != 4 {
		t.Errorf("after a resize to 4 CPUs the pod has %s (%v)", got.CPUs, err)
	}
	n.checkOwners()
}

func TestARuntimeThatNeverConfiguresIsGivenUpAndLeftBehindClean(t *testing.T) {
	patient(t)
	leaks := goleak.IgnoreCurrent()
	n := newNode(t, grid(t, testGrid))
	silent := newSilentRuntime(t, n.socket)
	expired := make(chan time.Time, 1)
	p := n.start(func(o *Options) {
		o.Registration = time.Hour
		after := time.After
		o.Clock.After = func(d time.Duration) <-chan time.Time {
			if d == time.Hour {
				return expired
			}
			return after(time.Millisecond)
		}
	})
	silent.registered(t)
	expired <- time.Time{}
	silent.registered(t) // a new attempt, with a new stub
	if p.Connected() {
		t.Error("connected to a runtime that never configured the plugin")
	}
	silent.close()
	n.startRuntime()
	n.settle()
	mustRun(t, n, lsr("db", 2000))
	n.want("db-main", "0-1")
	n.kill()
	n.stopRuntime()
	goleak.VerifyNone(t, leaks)
}

func TestNothingIsLeftRunning(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, lsr("db", 2000), burstable("web"))
	n.settle()
	n.kill()
	n.stopRuntime()
	goleak.VerifyNone(t, leaks)
}

// The pools get an owner's CPUs back by several writes. An owner that comes
// meanwhile waits for the one that is under way, and the rest is not written.
func TestWhoComesDoesNotWaitForOthersToGrow(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	db := lse("db", 4000)
	mustRun(t, n, db, burstable("web"), bestEffort("low"))
	n.settle()
	var written []string
	under, release := make(chan struct{}), make(chan struct{})
	n.kernel.Before = func(path string, _ cgroup.Values) error {
		if path = strings.Trim(path, "/"); path == "kubepods/burstable" || path == "kubepods/besteffort" {
			if written = append(written, path); len(written) == 1 {
				close(under)
				<-release
			}
		}
		return nil
	}
	n.remove(db)
	<-under
	done := make(chan error, 1)
	go func() { done <- n.run(lse("next", 4000)) }()
	for !n.plugin.knows("next-main") {
		runtime.Gosched()
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	n.settle()
	// One pool grows and leaves again; the other has never had the CPUs.
	if len(written) != 2 || written[0] != written[1] {
		t.Errorf("written: %v, want one pool's cgroup twice", written)
	}
	n.want("next-main", "0-3")
	n.want("web-main", "4-15")
	n.want("low-main", "4-15")
	n.checkOwners()
}
