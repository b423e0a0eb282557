package cgroup_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
)

const (
	burstableUnit = "kubepods.slice/kubepods-burstable.slice"
	podSlice      = burstableUnit + "/kubepods-burstable-pod1.slice"
	scope         = podSlice + "/cri-containerd-c1.scope"
)

func mustParse(t *testing.T, text string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// node is a Dir under a fake systemd, with a driver connected to it.
type systemdNode struct {
	*cgrouptest.Dir
	systemd *cgrouptest.Systemd
	driver  *cgroup.Systemd
	router  *cgroup.Router
	results []string
}

func newSystemdNode(t *testing.T, o cgroup.BusOptions) *systemdNode {
	t.Helper()
	dir, err := cgrouptest.NewDir(t.TempDir(), mustParse(t, "0-15"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := cgrouptest.NewSystemd(t.TempDir(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(scope, 1)
	n := &systemdNode{Dir: dir, systemd: s}
	o.Socket = s.Socket
	o.Report = func(r string, _ error) { n.results = append(n.results, r) }
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	n.driver = cgroup.NewSystemd(dir.FS(), o)
	n.router = cgroup.NewRouter(dir.FS(), n.driver)
	t.Cleanup(func() { n.driver.Close(); s.Close(); dir.Close() })
	return n
}

func (n *systemdNode) want(t *testing.T, path, own, effective string) {
	t.Helper()
	e, err := n.CPUs(path)
	if err != nil {
		t.Fatal(err)
	}
	if e.OwnCPUs != mustParse(t, own) || e.CPUs != mustParse(t, effective) {
		t.Errorf("%s: own %q effective %q, want %q and %q", path, e.OwnCPUs, e.CPUs, own, effective)
	}
}

func only(t *testing.T, text string) cgroup.Mask { return cgroup.Only(mustParse(t, text)) }

// TestSystemdApply: what Apply returns from is in the kernel's files, although
// systemd answers before it writes them, and it lasts.
func TestSystemdApply(t *testing.T) {
	ctx := context.Background()
	n := newSystemdNode(t, cgroup.BusOptions{})
	quota := cgroup.Quota{Micros: 150_000, Period: 100_000}
	if err := n.router.Apply(ctx, burstableUnit, cgroup.Values{CPUs: only(t, "4-15")}); err != nil {
		t.Fatal(err)
	}
	n.want(t, scope, "", "4-15")
	if err := n.router.Apply(ctx, scope, cgroup.Values{CPUs: only(t, "8,15"), Mems: only(t, "1"), Quota: &quota,
		Weight: 157}); err != nil {
		t.Fatal(err)
	}
	n.systemd.Reload()
	n.want(t, burstableUnit, "4-15", "4-15")
	n.want(t, scope, "8,15", "8,15")
	e, err := n.Effective(scope)
	if err != nil || e.QuotaMilli != 1500 || e.Weight != 157 || e.Mems != mustParse(t, "1") {
		t.Errorf("after a reload: %+v, %v", e, err)
	}
	if err := n.router.Apply(ctx, scope, cgroup.Values{Quota: cgroup.NoQuota()}); err != nil {
		t.Fatal(err)
	}
	if e, _ := n.Effective(scope); e.QuotaMilli != -1 {
		t.Errorf("quota %d after it was lifted", e.QuotaMilli)
	}
}

// TestSystemdInherit: a mask is given up in two steps, since the kernel refuses to
// empty that of a populated cgroup.
func TestSystemdInherit(t *testing.T) {
	ctx := context.Background()
	n := newSystemdNode(t, cgroup.BusOptions{})
	for _, v := range []cgroup.Values{{CPUs: only(t, "2-3")}, {CPUs: cgroup.Inherit(mustParse(t, "0-15"))}} {
		if err := n.router.Apply(ctx, podSlice, v); err != nil {
			t.Fatal(err)
		}
	}
	n.systemd.Reload()
	n.want(t, podSlice, "0-15", "0-15")
	recorded, ok, err := n.router.Recorded(ctx, podSlice)
	if err != nil || !ok || !recorded.IsEmpty() {
		t.Errorf("recorded %q, %t, %v after it was given up", recorded, ok, err)
	}
}

// TestSystemdCalls: the number of messages does not depend on what runs below.
func TestSystemdCalls(t *testing.T) {
	count := func(pods int) []string {
		n := newSystemdNode(t, cgroup.BusOptions{})
		for i := range pods {
			n.systemd.Start(burstableUnit+"/kubepods-burstable-podx"+string(rune('a'+i))+
				".slice/cri-containerd-x.scope", 20)
		}
		if err := n.router.Apply(context.Background(), burstableUnit,
			cgroup.Values{CPUs: only(t, "4-15")}); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(n.systemd.Calls(), func(s string) bool { return strings.HasPrefix(s, "AddMatch") })
	}
	few, many := count(1), count(20)
	if !slices.Equal(few, many) || len(few) != 2 {
		t.Errorf("calls %q with one pod, %q with twenty", few, many)
	}
}

// TestSystemdRecorded: what systemd has on record distinguishes a raw write from a change
// of the unit.
func TestSystemdRecorded(t *testing.T) {
	ctx := context.Background()
	n := newSystemdNode(t, cgroup.BusOptions{})
	if err := n.router.Apply(ctx, podSlice, cgroup.Values{CPUs: only(t, "2-3")}); err != nil {
		t.Fatal(err)
	}
	n.Kernel.Tamper(podSlice, "7")
	if r, ok, err := n.router.Recorded(ctx, podSlice); !ok || err != nil || r != mustParse(t, "2-3") {
		t.Errorf("after a raw write: %q, %t, %v", r, ok, err)
	}
	n.systemd.Set("kubepods-burstable-pod1.slice", "5")
	if r, ok, err := n.router.Recorded(ctx, podSlice); !ok || err != nil || r != mustParse(t, "5") {
		t.Errorf("after set-property: %q, %t, %v", r, ok, err)
	}
	if _, ok, err := n.router.Recorded(ctx, "kubepods/burstable"); ok || err != nil {
		t.Errorf("a plain cgroup: %t, %v; nobody restores it", ok, err)
	}
}

// TestRouterFiles: what is no unit is written as files, also inside a unit.
func TestRouterFiles(t *testing.T) {
	n := newSystemdNode(t, cgroup.BusOptions{})
	for _, path := range []string{"kubepods/burstable", scope + "/nested"} {
		n.Mkdir(path, 1)
		if err := n.router.Apply(context.Background(), path, cgroup.Values{CPUs: only(t, "1")}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(n.Root(), path, "cpuset.cpus"))
		if err != nil || strings.TrimSpace(string(text)) != "1" {
			t.Errorf("%s: cpuset.cpus %q, %v", path, text, err)
		}
	}
	if calls := n.systemd.Calls(); len(calls) > 0 {
		t.Errorf("systemd was asked: %q", calls)
	}
}

func TestSystemdGone(t *testing.T) {
	ctx := context.Background()
	n := newSystemdNode(t, cgroup.BusOptions{})
	n.systemd.Stop(scope)
	if err := n.router.Apply(ctx, scope, cgroup.Values{CPUs: only(t, "1")}); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("a scope that ended: %v", err)
	}
	// A slice that is not there would be invented by systemd, so it is not asked.
	if err := n.router.Apply(ctx, "kubepods.slice/kubepods-x.slice",
		cgroup.Values{CPUs: only(t, "1")}); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("a slice that is not there: %v", err)
	}
	if calls := n.systemd.Calls(); len(calls) > 0 {
		t.Errorf("systemd was asked: %q", calls)
	}
	// The cgroup is there, the unit is not loaded any more.
	n.Mkdir(podSlice+"/cri-containerd-c2.scope", 1)
	if err := n.router.Apply(ctx, podSlice+"/cri-containerd-c2.scope",
		cgroup.Values{CPUs: only(t, "1")}); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("a unit that is not loaded: %v", err)
	}
}

func TestSystemdRefuses(t *testing.T) {
	n := newSystemdNode(t, cgroup.BusOptions{})
	for name, want := range map[string]string{
		"org.freedesktop.DBus.Error.PropertyReadOnly": "systemd 244",
		"org.freedesktop.DBus.Error.AccessDenied":     "run as root",
		"org.freedesktop.DBus.Error.LimitsExceeded":   "refused by the test",
	} {
		n.systemd.Refuse(name)
		err := n.router.Apply(context.Background(), podSlice, cgroup.Values{CPUs: only(t, "1")})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "kubepods-burstable-pod1.slice") ||
			!strings.Contains(err.Error(), "AllowedCPUs") {
			t.Errorf("%s: %v; want the unit, the property and %q", name, err, want)
		}
	}
	n.systemd.Refuse("")
	if err := n.router.Apply(context.Background(), podSlice, cgroup.Values{CPUs: only(t, "1")}); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

// TestSystemdBus: a bus that is absent, hangs or was started anew.
func TestSystemdBus(t *testing.T) {
	ctx := context.Background()
	v := cgroup.Values{CPUs: cgroup.Only(cpuset.Of(1))}

	t.Run("started anew", func(t *testing.T) {
		n := newSystemdNode(t, cgroup.BusOptions{})
		for range 2 {
			if err := n.router.Apply(ctx, podSlice, v); err != nil {
				t.Fatal(err)
			}
			n.systemd.Close()
			if err := n.systemd.Listen(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(n.results, []string{"ok", "ok"}) {
			t.Errorf("results %q", n.results)
		}
	})
	t.Run("absent, then there", func(t *testing.T) {
		now := time.Unix(0, 0)
		n := newSystemdNode(t, cgroup.BusOptions{Pause: time.Minute, Now: func() time.Time { return now }})
		n.systemd.Close()
		err := n.router.Apply(ctx, podSlice, v)
		if err == nil || !strings.Contains(err.Error(), n.systemd.Socket) {
			t.Errorf("absent: %v; want the socket named", err)
		}
		if err := n.systemd.Listen(); err != nil {
			t.Fatal(err)
		}
		if err := n.router.Apply(ctx, podSlice, v); err == nil || !strings.Contains(err.Error(), "next attempt in") {
			t.Errorf("within the pause: %v", err)
		}
		now = now.Add(2 * time.Minute)
		if err := n.router.Apply(ctx, podSlice, v); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		now := time.Unix(0, 0)
		n := newSystemdNode(t, cgroup.BusOptions{Pause: time.Minute, Now: func() time.Time { return now }})
		if err := n.driver.Ping(ctx); err != nil {
			t.Fatal(err)
		}
		n.systemd.Hold()
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := n.router.Apply(short, podSlice, v); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hanging: %v", err)
		}
		// The second caller does not wait.
		if err := n.router.Apply(ctx, podSlice, v); err == nil || !strings.Contains(err.Error(), "next attempt in") {
			t.Errorf("within the pause: %v", err)
		}
		n.systemd.Release()
	})
	t.Run("hangs from the start", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "private")
		l, err := net.Listen("unix", socket) // accepted by the kernel, never served
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		n := newSystemdNode(t, cgroup.BusOptions{})
		d := cgroup.NewSystemd(n.FS(), cgroup.BusOptions{Socket: socket, Limit: 50 * time.Millisecond})
		if err := d.Apply(ctx, podSlice, v); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want a deadline", err)
		}
	})
	t.Run("its caller gives up", func(t *testing.T) {
		n := newSystemdNode(t, cgroup.BusOptions{})
		n.systemd.Hold()
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := n.router.Apply(gone, podSlice, v); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		n.systemd.Release()
	})
}

func TestIsUnit(t *testing.T) {
	for path, want := range map[string]bool{
		burstableUnit: true, scope: true, "/" + podSlice + "/": true, "system.slice/containerd.service": true,
		"kubepods/burstable/pod1": false, scope + "/nested": false, ".slice": false, "": false,
		"kubepods.slice/x": false,
	} {
		if got := cgroup.IsUnit(path); got != want {
			t.Errorf("IsUnit(%q) = %t", path, got)
		}
	}
}
