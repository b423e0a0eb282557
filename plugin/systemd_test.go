package plugin

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/plugin/node"
	"github.com/quietcore/quietcore/policy"
)

// unitNode is a plugin without a runtime on a node whose cgroups are systemd's:
// events are put in by the test, which plays kubelet and runtime itself.
type unitNode struct {
	t       *testing.T
	dir     *cgrouptest.Dir
	systemd *cgrouptest.Systemd
	p       *Plugin
	meter   *metrics.Metrics
	audit   chan time.Time
	log     *logBuffer
}

const (
	kubepods   = "kubepods.slice"
	bursting   = kubepods + "/kubepods-burstable.slice"
	besteffort = kubepods + "/kubepods-besteffort.slice"
)

func newUnitNode(t *testing.T, o cgroup.BusOptions) *unitNode {
	t.Helper()
	topo := grid(t, testGrid)
	dir, err := cgrouptest.NewDir(t.TempDir(), topo.Online())
	if err != nil {
		t.Fatal(err)
	}
	systemd, err := cgrouptest.NewSystemd(t.TempDir(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n := &unitNode{t: t, dir: dir, systemd: systemd, audit: make(chan time.Time), log: &logBuffer{}}
	for _, slice := range []string{bursting, besteffort} {
		systemd.Start(slice, 0)
	}
	n.meter = metrics.New("", func() (metrics.Stats, bool) { return metrics.Stats{}, false })
	o.Socket = systemd.Socket
	router := cgroup.NewRouter(dir.FS(), cgroup.NewSystemd(dir.FS(), o))
	n.p, err = New(Options{
		Topology: topo, Driver: router, Reader: dir, Recorded: router.Recorded, Metrics: n.meter,
		Log: slog.New(slog.NewTextHandler(n.log, nil)), Socket: path.Join(t.TempDir(), "nobody"),
		Registration: time.Hour,
		Clock: Clock{Tick: make(chan time.Time), Audit: n.audit, Vanish: make(chan time.Time),
			After: func(time.Duration) <-chan time.Time {
				return nil
			}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); n.p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		router.Close()
		systemd.Close()
		dir.Close()
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	if r := n.p.runner.submit(short(t), nil, &node.Request{Inventory: &node.Inventory{}}); r.Err != nil {
		t.Fatal(r.Err)
	}
	n.idle()
	return n
}

func (n *unitNode) submit(e policy.Event) {
	n.t.Helper()
	if err := n.p.Submit(short(n.t), e); err != nil {
		n.t.Fatal(err)
	}
	n.idle()
}

func (n *unitNode) idle() {
	n.t.Helper()
	eventually(n.t, "everything is written", n.p.runner.settled)
}

// unitPod is a pod of one container; its slice is in parent.
type unitPod struct {
	name, parent string
	class        policy.Class
	qos          policy.QoS
	milli        int64
}

func (u unitPod) slice() string {
	stem := strings.TrimSuffix(path.Base(u.parent), ".slice")
	return fmt.Sprintf("%s/%s-pod%s.slice", u.parent, stem, u.name)
}

func (u unitPod) scope() string { return u.slice() + "/cri-containerd-" + u.name + ".scope" }

// run starts a pod as kubelet and the runtime do, with the CPUs of our reply.
func (n *unitNode) run(u unitPod) {
	n.t.Helper()
	n.systemd.Start(u.slice(), 0)
	res := policy.Resources{RequestMilli: u.milli, LimitMilli: u.milli}
	pod := policy.Pod{
		UID: "uid-" + u.name, Sandbox: "sb-" + u.name, Namespace: "default", Name: u.name, QoS: u.qos, Resources: &res,
		CgroupParent: u.slice(),
		Labels:       map[string]string{policy.LabelClass: string(u.class)},
	}
	n.submit(policy.PodRun{Pod: pod})
	ctr := policy.Container{ID: u.name, Sandbox: pod.Sandbox, Name: "main", Resources: res, CgroupPath: u.scope()}
	n.submit(policy.ContainerCreate{Pod: pod, Container: ctr})
	n.systemd.Start(u.scope(), 1)
	if own := n.p.Snapshot(); own != nil {
		for _, c := range own.Containers {
			if c.ID == u.name && c.Pool == policy.PoolExclusive {
				n.systemd.Set(path.Base(u.scope()), own.CPUs(c).String())
			}
		}
	}
	n.verify(u.name)
	n.idle()
}

func (n *unitNode) on(cgroupPath string) string {
	n.t.Helper()
	e, err := n.dir.CPUs(cgroupPath)
	if err != nil {
		n.t.Fatal(err)
	}
	return e.CPUs.String()
}

func (n *unitNode) verify(id string) {
	n.t.Helper()
	if err := n.p.runner.put(short(n.t), node.Verify{Container: id}); err != nil {
		n.t.Fatal(err)
	}
}

// look is an audit, to its end.
func (n *unitNode) look() {
	n.t.Helper()
	for range 2 { // the second tick is taken when the first audit is done
		select {
		case n.audit <- time.Time{}:
		case <-time.After(limitOfWait):
			n.t.Fatal("the audit does not end")
		}
	}
	n.verify("nobody") // what is idle before that may still be about to look
	n.idle()
}

var sample = regexp.MustCompile(`(?m)^quietcore_(cpuset_drift|quota_drift)_total\{source="(\w+)"\} (\d+)$`)

// drifts are the counters of drift that are not 0.
func (n *unitNode) drifts() []string {
	n.t.Helper()
	health := metrics.NewHealth(time.Now, time.Now)
	w := httptest.NewRecorder()
	metrics.Handler(n.meter, health).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var list []string
	for _, m := range sample.FindAllStringSubmatch(w.Body.String(), -1) {
		if m[3] != "0" {
			list = append(list, m[1]+" "+m[2]+" "+m[3])
		}
	}
	slices.Sort(list)
	return list
}

// TestDriftUnderSystemdIsCountedBySource: what lasts is no drift, and what does not
// is repaired and counted by source.
func TestDriftUnderSystemdIsCountedBySource(t *testing.T) {
	db := unitPod{"db", kubepods, policy.LSR, policy.Guaranteed, 4000}
	web := unitPod{"web", bursting, policy.LS, policy.Burstable, 500}
	for name, c := range map[string]struct {
		do   func(*unitNode)
		want []string
	}{
		"daemon-reload": {func(n *unitNode) { n.systemd.Reload() }, nil},
		"kubelet's weight every minute": {func(n *unitNode) {
			n.setProperty(bursting, cgroup.Values{Weight: 39})
		}, nil},
		"set-property of a slice": {func(n *unitNode) {
			n.systemd.Set("kubepods-burstable.slice", "0-15")
		}, []string{"cpuset_drift systemd 1"}},
		"set-property of a pod": {func(n *unitNode) {
			n.systemd.Set("kubepods-poddb.slice", "0-7")
		}, []string{"cpuset_drift systemd 1"}},
		"runc update with a cpuset": {func(n *unitNode) {
			n.systemd.Set("cri-containerd-db.scope", "1")
		}, []string{"cpuset_drift runtime 1"}},
		"a hand on a slice's file": {func(n *unitNode) {
			n.tamper(bursting, "0-15")
		}, []string{"cpuset_drift other 1"}},
		"a hand on a pod's file": {func(n *unitNode) {
			n.tamper(db.slice(), "8-9")
		}, []string{"cpuset_drift other 1"}},
		"a hand on a container's file": {func(n *unitNode) {
			n.tamper(db.scope(), "2")
		}, []string{"cpuset_drift other 1"}},
		"kubelet writes the pod's quota": {func(n *unitNode) {
			n.setProperty(db.slice(), cgroup.Values{Quota: &cgroup.Quota{Micros: 400_000, Period: 100_000}})
		}, []string{"quota_drift kubelet 1"}},
		"a hand on the pod's quota": {func(n *unitNode) {
			n.setProperty(db.slice(), cgroup.Values{Quota: &cgroup.Quota{Micros: 1000, Period: 100_000}})
		}, []string{"quota_drift other 1"}},
		"a slice that loses its own mask": {func(n *unitNode) {
			n.tamper(bursting, "")
		}, []string{"cpuset_drift other 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newUnitNode(t, cgroup.BusOptions{Limit: limitOfWait})
			n.run(web)
			n.run(db)
			n.look()
			if d := n.drifts(); d != nil {
				t.Fatalf("drift before anything was done: %q", d)
			}
			for range 2 {
				n.systemd.Calls()
				c.do(n)
				n.look()
				if on := n.on(web.scope()) + " " + n.on(db.scope()); on != "4-15 0-3" {
					t.Errorf("web and db on %s, want 4-15 0-3", on)
				}
				if e, err := n.dir.Effective(db.slice()); err != nil || e.QuotaMilli != -1 {
					t.Errorf("the pod's quota is %dm, %v", e.QuotaMilli, err)
				}
				if d := n.drifts(); !slices.Equal(d, c.want) {
					t.Errorf("counted %q, want %q", d, c.want)
				}
				c = struct {
					do   func(*unitNode)
					want []string
				}{func(n *unitNode) { n.systemd.Reload() }, c.want} // and then it lasts
			}
		})
	}
}

func (n *unitNode) setProperty(cgroupPath string, v cgroup.Values) {
	n.t.Helper()
	if err := n.p.o.Driver.Apply(short(n.t), cgroupPath, v); err != nil {
		n.t.Fatal(err)
	}
}

func (n *unitNode) tamper(cgroupPath, cpus string) {
	n.t.Helper()
	n.dir.Kernel.Tamper(cgroupPath, cpus)
	if err := n.dir.Refresh(cgroupPath); err != nil {
		n.t.Fatal(err)
	}
}

// TestCallsToSystemdForAnOwner: as many beside three shared pods as beside thirty.
func TestCallsToSystemdForAnOwner(t *testing.T) {
	count := func(others int) int {
		n := newUnitNode(t, cgroup.BusOptions{Limit: limitOfWait})
		for i := range others {
			n.run(unitPod{fmt.Sprint("web", i), bursting, policy.LS, policy.Burstable, 100})
		}
		n.systemd.Calls()
		n.run(unitPod{"db", kubepods, policy.LSE, policy.Guaranteed, 4000})
		calls := n.systemd.Calls()
		t.Logf("beside %d pods: %q", others, calls)
		return len(calls)
	}
	few, many := count(3), count(30)
	if few != many || many > 8 {
		t.Errorf("%d messages beside 3 pods, %d beside 30", few, many)
	}
}

// TestABusThatHangsStartsNoOwner: the owner waits no longer than it may, the rest
// goes on, and all is made good when systemd is back.
func TestABusThatHangsStartsNoOwner(t *testing.T) {
	t.Parallel() // it waits for a deadline
	n := newUnitNode(t, cgroup.BusOptions{Limit: 3 * time.Second, Pause: time.Nanosecond})
	web := unitPod{"web", bursting, policy.LS, policy.Burstable, 500}
	db := unitPod{"db", kubepods, policy.LSR, policy.Guaranteed, 4000}
	n.systemd.Start(web.scope(), 1)
	n.systemd.Start(db.slice(), 0)
	n.systemd.Hold()
	res := policy.Resources{RequestMilli: 4000, LimitMilli: 4000}
	pod := policy.Pod{
		UID: "uid-db", Sandbox: "sb-db", Namespace: "default", Name: "db", QoS: policy.Guaranteed, Resources: &res,
		CgroupParent: db.slice(),
		Labels:       map[string]string{policy.LabelClass: string(policy.LSR)},
	}
	err := n.p.runner.submit(short(t), nil, &node.Request{
		Pod: pod.UID, Deadline: time.Now().Add(time.Second),
		Event: policy.ContainerCreate{Pod: pod, Container: policy.Container{
			ID: "db", Sandbox: pod.Sandbox, Name: "main", Resources: res, CgroupPath: db.scope(),
		}},
	}).Err
	if err == nil || !strings.Contains(err.Error(), "CPUs 0-3 are not yet free of others") {
		t.Errorf("an owner may start although nobody has left: %v", err)
	}
	n.systemd.Release()
	eventually(t, "it is made good", func() bool {
		n.audit <- time.Time{} // what failed gets its next chance
		return n.on(web.scope()) == "4-15"
	})
}

// TestAMaskThatSystemdHasWrongOnRecordIsSetRight: what runc 1.1.5 does to CPUs from
// 8 on shows only at the next reload.
func TestAMaskThatSystemdHasWrongOnRecordIsSetRight(t *testing.T) {
	n := newUnitNode(t, cgroup.BusOptions{Limit: limitOfWait})
	db := unitPod{"db", kubepods, policy.LSR, policy.Guaranteed, 10000}
	n.run(db)
	n.systemd.Set(path.Base(db.scope()), "0-1,8-15") // 0-9 with its bytes turned round
	n.tamper(db.scope(), "0-9")
	n.verify("db")
	n.idle()
	n.systemd.Reload()
	if on := n.on(db.scope()); on != "0-9" {
		t.Errorf("after a reload db is on %s, want 0-9", on)
	}
	n.look()
	if d := n.drifts(); d != nil {
		t.Errorf("counted %q", d)
	}
}

// TestALimitFromOutsideIsSaidAndNotFought: an administrator's mask on kubepods is
// not ours to change, and writing the same again would not help.
func TestALimitFromOutsideIsSaidAndNotFought(t *testing.T) {
	n := newUnitNode(t, cgroup.BusOptions{Limit: limitOfWait})
	web := unitPod{"web", bursting, policy.LS, policy.Burstable, 500}
	db := unitPod{"db", kubepods, policy.LSR, policy.Guaranteed, 4000}
	n.run(web)
	n.run(db)
	n.tamper(kubepods, "0-7")
	n.look()
	if on := n.on(web.scope()) + " " + n.on(db.scope()); on != "4-7 0-3" {
		t.Errorf("web and db on %s, want 4-7 0-3", on)
	}
	if d := n.drifts(); len(d) != 1 || !strings.HasPrefix(d[0], "cpuset_drift outside ") {
		t.Errorf("counted %q, want outside only", d)
	}
	if log := n.log.String(); !strings.Contains(log, "kubepods.slice above it, which is not ours, allows only 0-7") {
		t.Error("the log does not name the cgroup above and its CPUs")
	}
	n.systemd.Calls()
	n.look()
	for _, call := range n.systemd.Calls() {
		if strings.HasPrefix(call, "Set") {
			t.Errorf("written although nothing can change: %s", call)
		}
	}
	n.tamper(kubepods, "")
	n.look()
	if on := n.on(web.scope()); on != "4-15" {
		t.Errorf("web on %s after the limit is gone, want 4-15", on)
	}
}
