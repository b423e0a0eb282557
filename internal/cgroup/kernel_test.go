package cgroup_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// TestRealKernel runs the driver against cgroups of the machine that tests run
// on, in a cgroup of its own: the fake kernel must not be the only witness.
func TestRealKernel(t *testing.T) {
	const root = "/sys/fs/cgroup"
	fs, err := cgroup.Open(root)
	if err != nil || os.Getuid() != 0 {
		skip(t, "needs root and a cgroup hierarchy with the cpuset controller at %s: %v", root, err)
	}
	defer fs.Close()
	base := "quietcore-test-" + strconv.Itoa(os.Getpid())
	dirs := []string{root}
	if fs.V1() {
		dirs = []string{filepath.Join(root, "cpuset"), filepath.Join(root, "cpu")}
	}
	mkdir(t, dirs, base)
	mkdir(t, dirs, base+"/pod")
	mkdir(t, dirs, base+"/pod/main")
	whole, err := fs.Effective(base)
	var missing *cgroup.NoControllerError
	if errors.As(err, &missing) {
		skip(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if fs.V1() { // a new cpuset is empty until someone fills it
		if whole, err = rootSets(); err != nil {
			t.Fatal(err)
		}
	}
	one := cpuset.Of(whole.CPUs.First())
	ctx := context.Background()
	for _, path := range []string{base, base + "/pod", base + "/pod/main"} {
		if err := fs.Apply(ctx, path, cgroup.Values{CPUs: cgroup.Only(whole.CPUs), Mems: cgroup.Only(whole.Mems),
			Quota: &cgroup.Quota{Micros: 50000, Period: 100000}, Weight: 100}); err != nil {
			t.Fatal(err)
		}
	}
	sleeper(t, filepath.Join(dirs[0], base, "pod/main/cgroup.procs"))
	t.Log("narrowing a parent narrows a populated child, on v1 by the driver's hand")
	if err := fs.Apply(ctx, base, cgroup.Values{CPUs: cgroup.Only(one), Quota: cgroup.NoQuota()}); err != nil {
		t.Fatal(err)
	}
	e, err := fs.Effective(base + "/pod/main")
	if err != nil || e.CPUs != one || e.QuotaMilli != 500 {
		t.Errorf("container on %s with quota %d (%v), want %s and 500", e.CPUs, e.QuotaMilli, err, one)
	}
	if e, err = fs.Effective(base); err != nil || e.QuotaMilli != -1 || e.OwnCPUs != one {
		t.Errorf("parent: %+v, %v", e, err)
	}
	t.Log("moving to CPUs of which the populated child has none")
	if other := cpuset.Of(whole.CPUs.Next(one.First() + 1)); whole.CPUs.Count() > 1 {
		if err := fs.Apply(ctx, base+"/pod", cgroup.Values{CPUs: cgroup.Only(one)}); err != nil {
			t.Fatal(err)
		}
		if err := fs.Apply(ctx, base, cgroup.Values{CPUs: cgroup.Only(other)}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{base, base + "/pod", base + "/pod/main"} {
			if e, err := fs.CPUs(path); err != nil || e.CPUs != other {
				t.Errorf("%s is on %s (%v), want %s", path, e.CPUs, err, other)
			}
		}
	}
	t.Log("back to inheriting")
	if err := fs.Apply(ctx, base, cgroup.Values{CPUs: cgroup.Inherit(whole.CPUs)}); err != nil {
		t.Fatal(err)
	}
	if e, err = fs.Effective(base); err != nil || e.CPUs != whole.CPUs {
		t.Errorf("restored parent on %s, want %s (%v)", e.CPUs, whole.CPUs, err)
	}
	if err := fs.Apply(ctx, base, cgroup.Values{CPUs: cgroup.Only(cpuset.Of(cpuset.MaxCPUs - 1))}); err == nil {
		t.Error("a CPU that cannot exist was accepted")
	}
	if err := fs.Apply(ctx, base+"/none", cgroup.Values{CPUs: cgroup.Only(one)}); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("a cgroup that does not exist: %v", err)
	}
}

// skip fails in CI, which has root and a cgroup hierarchy with the cpuset controller.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("QUIETCORE_CI") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

func mkdir(t *testing.T, dirs []string, path string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.Mkdir(filepath.Join(dir, path), 0o755); err != nil {
			skip(t, "cgroups cannot be made here: %v", err)
		}
		t.Cleanup(func() { os.Remove(filepath.Join(dir, path)) })
	}
}

func rootSets() (cgroup.Effective, error) {
	var e cgroup.Effective
	for file, set := range map[string]*cpuset.Set{"cpuset.cpus": &e.CPUs, "cpuset.mems": &e.Mems} {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", file))
		if err != nil {
			return e, err
		}
		if *set, err = cpuset.Parse(string(text[:len(text)-1])); err != nil {
			return e, err
		}
	}
	return e, nil
}

// sleeper puts a process into a cgroup, and ends it before the cgroup goes.
func sleeper(t *testing.T, procs string) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if err := os.WriteFile(procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// An audit of 1,000 containers in 500 pods, as the daemon's are: round after round.
func BenchmarkAuditFiles1000(b *testing.B) {
	n := crowd(b, 0)
	d := benchDir(b)
	ids := []string{burstable, besteffort}
	for i := range 500 {
		pod := "web" + strconv.Itoa(i)
		ids = append(ids, pod, pod+"/main", pod+"/side")
		path := burstable + "/web" + strconv.Itoa(i)
		d.Mkdir(path+"/main", 1)
		d.Mkdir(path+"/side", 1)
		n.pod(burstable, "web"+strconv.Itoa(i), cgroup.InPool("shared"))
		n.container(burstable, "web"+strconv.Itoa(i), "side", cgroup.Need{}, "")
	}
	d.Mkdir(besteffort, 0)
	if err := n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
		return d.Apply(context.Background(), w.Path, w.Values())
	}); err != nil {
		b.Fatal(err)
	}
	n.tree.Observe(burstable, cgroup.Effective{})
	n.must(n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
		return d.Apply(context.Background(), w.Path, w.Values())
	}))
	was := cpuTime(b)
	for round := uint64(0); b.Loop(); round++ {
		for _, id := range ids {
			if drift, drifted := n.tree.Audit(id, round, d); drifted {
				b.Fatal(drift)
			}
		}
	}
	b.ReportMetric((cpuTime(b)-was).Seconds()*1000/float64(b.N), "cpu-ms/op")
}

// cpuTime is what this process has used: the budget of an audit is CPU time, not
// what a busy machine makes of it.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
