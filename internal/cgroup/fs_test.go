package cgroup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
)

var (
	_ cgroup.Driver = (*cgroup.FS)(nil)
	_ cgroup.Reader = (*cgroup.FS)(nil)
	_ cgroup.Driver = (*cgrouptest.Kernel)(nil)
	_ cgroup.Reader = (*cgrouptest.Kernel)(nil)
	_ cgroup.Driver = (*cgrouptest.Dir)(nil)
	_ cgroup.Reader = (*cgrouptest.Dir)(nil)
)

func newDir(t *testing.T) *cgrouptest.Dir { return dirOf(t, 16) }

func benchDir(b *testing.B) *cgrouptest.Dir { return dirOf(b, 256) }

func dirOf(t testing.TB, cpus int) *cgrouptest.Dir {
	t.Helper()
	d, err := cgrouptest.NewDir(t.TempDir(), cpuset.Range(0, cpus-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestFilesSayWhatWasWritten(t *testing.T) {
	d := newDir(t)
	d.Mkdir("kubepods/burstable/pod1/main", 1)
	ctx := context.Background()
	err := d.Apply(ctx, "/kubepods/burstable", cgroup.Values{
		CPUs: cgroup.Only(set(t, "0-3,8")), Mems: cgroup.Only(set(t, "1")),
		Quota: &cgroup.Quota{Micros: 250000}, Weight: 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpuset.cpus": "0-3,8", "cpuset.mems": "1", "cpu.max": "250000 100000",
		"cpu.weight": "200"} {
		if got, _ := os.ReadFile(filepath.Join(d.Root(), "kubepods/burstable",
			file)); strings.TrimSpace(string(got)) != want {
			t.Errorf("%s holds %q, want %q", file, got, want)
		}
	}
	e, err := d.Effective("kubepods/burstable/pod1/main")
	if err != nil || e.CPUs.String() != "0-3,8" || e.Mems.String() != "1" || !e.OwnCPUs.IsEmpty() ||
		e.QuotaMilli != -1 {
		t.Errorf("container: %+v, %v", e, err)
	}
	if e, err = d.Effective("kubepods/burstable"); err != nil || e.QuotaMilli != 2500 || e.Weight != 200 ||
		e.OwnCPUs.String() != "0-3,8" {
		t.Errorf("slice: %+v, %v", e, err)
	}
	if err := d.Apply(ctx, "kubepods/burstable", cgroup.Values{CPUs: cgroup.Inherit(set(t, "0-15")),
		Quota: cgroup.NoQuota()}); err != nil {
		t.Fatal(err)
	}
	if e, err = d.Effective("kubepods/burstable"); err != nil || e.QuotaMilli != -1 || e.CPUs.String() != "0-15" ||
		e.Quota.Period != 100000 {
		t.Errorf("restored slice: %+v, %v", e, err)
	}
	if kids, err := d.Children("kubepods/burstable"); err != nil || len(kids) != 1 || kids[0] != "pod1" {
		t.Errorf("children %v, %v", kids, err)
	}
}

func TestFilesRefuse(t *testing.T) {
	d := newDir(t)
	d.Mkdir("kubepods/pod1", 0)
	outside := t.TempDir()
	for _, link := range [][2]string{{outside, "kubepods/out"}, {"pod1", "kubepods/alias"}} {
		if err := os.Symlink(link[0], filepath.Join(d.Root(), link[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(d.Root(), "kubepods/pod1/cpuset.mems")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "cpuset.cpus"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fs, ctx, cpus := d.FS(), context.Background(), cgroup.Values{CPUs: cgroup.Only(set(t, "1"))}
	for _, c := range []struct{ what, path, want string }{
		{"parent", "kubepods/../../etc", "is not a name"},
		{"link out", "kubepods/out", "symbolic link"},
		{"link inside", "kubepods/alias", "symbolic link"},
		{"root", "/", "never touched"},
		{"empty component", "kubepods//pod1", "is not a name"},
		{"vanished", "kubepods/pod2", "gone"},
		{"long", strings.Repeat("a", 5000), "longer than"},
		{"newline", "kubepods/a\nb", "control character"},
	} {
		if err := fs.Apply(ctx, c.path, cpus); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: write: %v, want %q", c.what, err, c.want)
		}
		if _, err := fs.Effective(c.path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: read: %v, want %q", c.what, err, c.want)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(outside, "cpuset.cpus")); len(text) > 0 {
		t.Errorf("a file outside the root was written: %q", text)
	}
	if err := fs.Apply(ctx, "kubepods/pod2", cpus); !errors.Is(err, cgroup.ErrGone) {
		t.Errorf("vanished: %v", err)
	}
	if err := fs.Apply(ctx, "kubepods/pod1", cgroup.Values{CPUs: cgroup.Only(cpuset.Set{})}); !errors.Is(err,
		cgroup.ErrEmptySet) {
		t.Errorf("empty set: %v", err)
	}
	var missing *cgroup.NoControllerError
	err := fs.Apply(ctx, "kubepods/pod1", cgroup.Values{Mems: cgroup.Only(set(t, "0"))})
	if !errors.As(err, &missing) || missing.Controller != "cpuset" || missing.Path != "kubepods/pod1" {
		t.Errorf("without the file: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := fs.Apply(cancelled, "kubepods/pod1", cpus); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := cgroup.Open(outside); err == nil || !strings.Contains(err.Error(), "neither cgroup v2") {
		t.Errorf("Open of a plain folder: %v", err)
	}
}

// What the tree plans, through files.
func TestTreeOverFiles(t *testing.T) {
	d := newDir(t)
	d.Mkdir(burstable+"/web/main", 1)
	d.Mkdir("kubepods/lsr/main", 1)
	tree := cgroup.NewTree(cpuset.Range(0, 15), cgroup.Options{})
	for _, err := range []error{
		tree.SetPool("shared", set(t, "0-11")),
		tree.PutSlice(cgroup.Slice{Path: burstable, Need: cgroup.InPool("shared")}),
		tree.PutPod(cgroup.Pod{ID: "web", Path: burstable + "/web"}),
		tree.PutPod(cgroup.Pod{ID: "lsr", Path: "kubepods/lsr", Need: cgroup.On(set(t, "12-15"))}),
		tree.PutContainer(cgroup.Container{ID: "w", Pod: "web", Path: burstable + "/web/main"}),
		tree.PutContainer(cgroup.Container{ID: "l", Pod: "lsr", Path: "kubepods/lsr/main"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	apply := func(w cgroup.Write) error { return d.Apply(context.Background(), w.Path, w.Values()) }
	if err := tree.Execute(tree.Plan(), apply); err != nil {
		t.Fatal(err)
	}
	if drift := tree.Check(d.CPUs); len(drift) > 0 {
		t.Error(drift)
	}
	for path, want := range map[string]string{burstable + "/web/main": "0-11", "kubepods/lsr/main": "12-15"} {
		if got, _ := os.ReadFile(filepath.Join(d.Root(), path, "cpuset.cpus.effective")); string(got) != want+"\n" {
			t.Errorf("%s runs on %q, want %s", path, got, want)
		}
	}
}

func TestPaths(t *testing.T) {
	pods := map[string]string{
		"/kubepods/burstable/pod1": "kubepods/burstable/pod1",
		"kubepods-burstable-pod1_2.slice": "kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-pod1_2.slice",
		"kubepods-pod1.slice":                 "kubepods.slice/kubepods-pod1.slice",
		"/kubepods.slice/kubepods-pod1.slice": "kubepods.slice/kubepods-pod1.slice",
		"a--b.slice":                          "", "-.slice": "", ".slice": "", "/": "", "": "", "a/../b": "",
	}
	for in, want := range pods {
		if got, err := cgroup.PodPath(in); got != want || (err == nil) != (want != "") {
			t.Errorf("PodPath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	containers := map[string]string{
		"/kubepods/pod1/abc":                     "kubepods/pod1/abc",
		"kubepods-pod1.slice:cri-containerd:abc": "kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope",
		"kubepods-pod1.slice:crio:abc":           "kubepods.slice/kubepods-pod1.slice/crio-abc.scope",
		"x.slice::abc":                           "x.slice/abc.scope",
		"x.slice:crio":                           "", "x.slice:crio:": "", "x.slice:a:b/../c": "", "..:a:b": "",
	}
	for in, want := range containers {
		if got, err := cgroup.ContainerPath(in); got != want || (err == nil) != (want != "") {
			t.Errorf("ContainerPath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for parent, want := range map[string]cgroup.QoS{
		"kubepods/burstable": cgroup.Burstable, "/kubepods/besteffort/": cgroup.BestEffort,
		"kubepods": cgroup.Guaranteed,
		"kubepods.slice/kubepods-burstable.slice":                               cgroup.Burstable,
		"kubepods.slice/kubepods-besteffort.slice":                              cgroup.BestEffort,
		"kubelet.slice/kubelet-kubepods.slice":                                  cgroup.Guaranteed,
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice": cgroup.Burstable,
		"kubelet/kubepods/burstable":                                            cgroup.Burstable,
		"":                                                                      cgroup.OutsideKubepods,
		"system.slice":                                                          cgroup.OutsideKubepods,
		"mine/burstable":                                                        cgroup.OutsideKubepods,
	} {
		if got := cgroup.Classify(parent); got != want {
			t.Errorf("Classify(%q) = %s, want %s", parent, got, want)
		}
	}
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"/kubepods/burstable/pod1", "kubepods-burstable-pod1.slice", "a.slice:b:c", "../x",
		"a//b", "--.slice"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		for _, parse := range []func(string) (string, error){cgroup.CleanPath, cgroup.PodPath, cgroup.ContainerPath} {
			got, err := parse(in)
			if err != nil {
				if len(err.Error()) > 40000 {
					t.Fatalf("an error of %d bytes", len(err.Error()))
				}
				continue
			}
			if clean := filepath.Clean("/" + got); clean != "/"+got || !filepath.IsLocal(got) {
				t.Fatalf("%q became %q, which is not a plain path below the root", in, got)
			}
			_ = cgroup.Classify(cgroup.Parent(got)) // it must not panic
		}
	})
}
