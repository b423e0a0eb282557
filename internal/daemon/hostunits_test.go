package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/usage"
)

// host makes cgroups, and says what they have used.
func host(t *testing.T, used map[string]time.Duration) *hostUnits {
	t.Helper()
	root := t.TempDir()
	for name := range used {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &hostUnits{counted: root, taken: func() []sample.Taken { return nil },
		usage: func(cgroups map[string]string) (list []usage.Reading) {
			for id, path := range cgroups {
				if cpu, known := used[path]; known {
					list = append(list, usage.Reading{ID: id, CPU: cpu})
				}
			}
			return list
		}}
}

func TestUnitsOfTheHostAreSuspects(t *testing.T) {
	const s = time.Second
	used := map[string]time.Duration{
		"/": 100 * s, "/system.slice": 30 * s, "/system.slice/kubelet.service": 20 * s,
		"/system.slice/containerd.service": 5 * s, "/system.slice/docker.service/pod1/c1": s, "/user.slice": 10 * s,
		"/kubepods.slice/pod2": 0, "/kubepods.slice": 40 * s, "/init.scope": s, "/system.slice/docker.service": s,
	}
	h := host(t, used)
	pods := []*cpi.Container{{ID: "c1", Cgroup: "/system.slice/docker.service/pod1/c1"},
		{ID: "c2", Cgroup: "/kubepods.slice/pod2"}}
	all := h.with(pods)
	var names []string
	for _, c := range all[len(pods):] {
		names = append(names, c.String())
		if may, _ := c.MayBeCapped(); may || c.Class.LatencySensitive() || c.Class != cpi.Host {
			t.Errorf("%s: class %s, may be capped %t", c, c.Class, may)
		}
	}
	want := []string{"(host)/slices/init.scope", "(host)/slices/user.slice", "(host)/system.slice/containerd.service",
		"(host)/system.slice/kubelet.service", "(host)/kernel/threads"}
	if !slices.Equal(names, want) {
		t.Errorf("units %q, want %q", names, want)
	}
	// They stay the same while they run: what is learned of them is by these pointers' IDs.
	if again := h.with(pods); !slices.Equal(again, all) {
		t.Error("the same units are others at the next look")
	}
	h.taken = func() []sample.Taken { return []sample.Taken{{Steal: 2, Interrupts: 1}} }
	if got, known := h.kernel(); !known || got != (100-30-10-40-1-3)*s {
		t.Errorf("the kernel's threads used %v, known %t", got, known)
	}
	used["/user.slice"] += 5 * s // the host's own figure comes later
	if got, _ := h.kernel(); got != 16*s {
		t.Errorf("the kernel's threads used %v, less than before", got)
	}
	delete(used, "/user.slice")
	if _, known := h.kernel(); known {
		t.Error("what a unit that has ended used is the kernel's")
	}
}

func TestUnitsAreBounded(t *testing.T) {
	used := map[string]time.Duration{"/": 0}
	for i := range 3 * mostUnits {
		used["/system.slice/"+string(rune('a'+i%26))+string(rune('a'+i/26))] = time.Duration(i)
	}
	all := host(t, used).with(nil)
	if len(all) != mostUnits+1 {
		t.Fatalf("%d units", len(all))
	}
	for _, c := range all[:mostUnits] {
		if used[c.Cgroup] < 2*mostUnits {
			t.Errorf("%s is named, which used less than others", c)
		}
	}
	if none := host(t, nil).with(nil); len(none) != 1 {
		t.Errorf("of no cgroups: %v", none)
	}
}
