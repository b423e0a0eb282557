package drift

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/cpuset"
)

func set(t *testing.T, text string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func milli(n int64) *int64 { return &n }

func TestDifferences(t *testing.T) {
	have := map[string]Have{
		"1": {Path: "kubepods/pod1/1", CPUs: set(t, "0-3"), Mems: set(t, "0"), QuotaMilli: -1},
		"2": {Path: "kubepods/pod2/2", CPUs: set(t, "0-7"), Mems: set(t, "0-1"), QuotaMilli: 2000},
	}
	got, err := Differences([]Want{
		{Container: "shop/web/main", ID: "2", CPUs: "4-7", Mems: "0-1", QuotaMilli: milli(100), Why: "capped"},
		{Container: "shop/db/main", ID: "1", CPUs: "0-3", Mems: "0", QuotaMilli: milli(-1)},
		{Container: "shop/any/main", ID: "1", CPUs: ""},
		{Container: "shop/away/main", ID: "3", CPUs: "0"},
	}, have)
	want := []Difference{
		{Container: "shop/away/main", ID: "3", What: "cgroup", Wanted: "one", Kernel: "none"},
		{Container: "shop/web/main", ID: "2", What: "cpus", Wanted: "4-7", Kernel: "0-7", Cgroup: "kubepods/pod2/2",
			Why: "capped"},
		{Container: "shop/web/main", ID: "2", What: "quota", Wanted: "100m", Kernel: "2000m",
			Cgroup: "kubepods/pod2/2", Why: "capped"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := Differences([]Want{{Container: "a/b/c", ID: "1", CPUs: "0-"}}, have); err == nil ||
		!strings.Contains(err.Error(), "a/b/c") {
		t.Errorf("a list that is none: %v", err)
	}
}

func TestBothKeepsWhatLasts(t *testing.T) {
	lasts := Difference{ID: "1", What: "cpus", Wanted: "0-3", Kernel: "0-7"}
	later := lasts
	later.Kernel = "0-6" // still wrong, in another way
	moved := Difference{ID: "1", What: "cpus", Wanted: "0-2", Kernel: "0-7"}
	got := Both([]Difference{lasts}, []Difference{later, moved})
	if diff := cmp.Diff([]Difference{later}, got); diff != "" {
		t.Error(diff)
	}
	if got := Both(nil, []Difference{lasts}); len(got) != 0 {
		t.Errorf("what came in between: %v", got)
	}
}

func TestFindReadsContainersOfBothDriversAlone(t *testing.T) {
	a, b, c := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpuset cpu\n")
	for path, cpus := range map[string]string{
		"kubepods.slice/kubepods-pod1.slice/cri-containerd-" + a + ".scope": "0-1",
		"kubepods/besteffort/pod2/" + b:                                     "2-3",
		"system.slice/crio-conmon-" + a + ".scope":                          "0-7",
		"kubepods/pod3/" + c:                                                "4",
	} {
		write(path+"/cpuset.cpus", cpus+"\n")
		write(path+"/cpuset.cpus.effective", cpus+"\n")
		write(path+"/cpuset.mems", "0\n")
		write(path+"/cpuset.mems.effective", "0\n")
		write(path+"/cpu.max", "10000 100000\n")
		write(path+"/cpu.weight", "1\n")
	}
	got, err := Find(root, map[string]bool{a: true, b: true, strings.Repeat("d", 64): true})
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	for id, cpus := range map[string]string{a: "0-1", b: "2-3"} {
		if h := got[id]; h.CPUs.String() != cpus || h.Mems.String() != "0" || h.QuotaMilli != 100 ||
			!strings.HasPrefix(h.Path, "kubepods") {
			t.Errorf("%.4s: %+v", id, h)
		}
	}
	if _, err := Find(t.TempDir(), nil); err == nil {
		t.Error("a directory without cgroups is no error")
	}
}
