package cgroup_test

import (
	"errors"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
)

// A cgroup is gone only where the one above it is seen and lacks it.
func TestGoneWantsTheListingOfTheParent(t *testing.T) {
	dir, err := cgrouptest.NewDir(t.TempDir(), cpuset.Range(0, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	dir.Mkdir("kubepods/burstable/pod1/c", 1)
	for _, r := range []cgroup.Reader{dir.Kernel, dir.FS()} {
		for _, c := range []struct {
			path    string
			gone    bool
			unknown bool
		}{
			{"kubepods/burstable/pod1", false, false},
			{"/kubepods/burstable/pod1/", false, false},
			{"kubepods/burstable/pod2", true, false},
			{"kubepods/burstable/pod2/c", false, true},
			{"kubepods.slice/kubepods-pod1.slice", false, true},
			{"kubepods", false, false},
			{"kubepods.slice", true, false},
			{"", false, true},
		} {
			gone, err := cgroup.Gone(r, c.path)
			if gone != c.gone || (err != nil) != c.unknown {
				t.Errorf("%T: Gone(%q) = %t, %v; want %t and an error: %t", r, c.path, gone, err, c.gone, c.unknown)
			}
		}
		if _, err := cgroup.Gone(r, "a/b/c"); !errors.Is(err, cgroup.ErrGone) {
			t.Errorf("%T: the parent's absence is %v", r, err)
		}
	}
}

func TestPodUIDs(t *testing.T) {
	for name, want := range map[string]string{
		"pod8a3e-1":                           "8a3e-1",
		"pod0123456789abcdef":                 "0123456789abcdef",
		"kubepods-pod8a3e_1.slice":            "8a3e-1",
		"kubepods-burstable-pod8a3e_1.slice":  "8a3e-1",
		"a-kubepods-besteffort-pod8a3e.slice": "8a3e",
		"pod":                                 "",
		"burstable":                           "",
		"kubepods-burstable.slice":            "",
		"user-pod1.slice":                     "",
		"cri-containerd-1.scope":              "",
	} {
		uid, ok := cgroup.PodUID(name)
		if !ok {
			uid = ""
		}
		if uid != want {
			t.Errorf("PodUID(%q) = %q, want %q", name, uid, want)
		}
	}
}
