package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

func TestParseStat(t *testing.T) {
	tail := strings.Repeat(" 1", 35) + " 7 0 0"
	for line, want := range map[string]struct {
		cpu     int
		running bool
	}{
		"12 (spin) R" + tail:        {7, true},
		"12 (sp) in) R) R" + tail:   {7, true}, // a name can hold anything
		"12 (spin) S" + tail:        {0, false},
		"12 (spin) R 1 1":           {0, false},
		"":                          {0, false},
		"12 (spin R" + tail:         {0, false},
		"12 (spin) R" + tail[:3]:    {0, false},
		"12 (spin) D" + tail + "\n": {0, false},
	} {
		if cpu, running := parseStat([]byte(line)); cpu != want.cpu || running != want.running {
			t.Errorf("%q reads as CPU %d, %t; want %+v", line, cpu, running, want)
		}
	}
	// The kernel's own line has as many fields as ours.
	text, err := os.ReadFile("/proc/thread-self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if _, running := parseStat(text); !running {
		t.Errorf("%s: this thread runs", text)
	}
}

// fakeTree writes cgroups with a cpuset and processes.
func fakeTree(t *testing.T, cgroups map[string][2]string) string {
	t.Helper()
	root := t.TempDir()
	for dir, files := range cgroups {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cpuset.cpus.effective": files[0], "cgroup.procs": files[1],
			"cgroup.threads": files[1]} {
			if err := os.WriteFile(filepath.Join(root, dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestReadOwner(t *testing.T) {
	const pod = "kubepods/podlse_2_plain_a"
	for name, c := range map[string]struct {
		sandbox, container [2]string
		cpus               string
		alive              bool
	}{
		"runs":                         {[2]string{"0-1\n", "10\n"}, [2]string{"0-1\n", "11\n"}, "0-1", true},
		"only the sandbox runs":        {[2]string{"0-1\n", "10\n"}, [2]string{"0-1\n", ""}, "0-1", false},
		"the sandbox is not there yet": {[2]string{"0-7\n", "10\n"}, [2]string{"2-3\n", "11\n"}, "2-3", true},
		// the size gives it away
		"nobody is there yet": {[2]string{"0-7\n", "10\n"}, [2]string{"0-5\n", "11\n"}, "0-5", true},
	} {
		root := fakeTree(t, map[string][2]string{"kubepods": {"0-7", ""}, pod: {"0-7", ""}, pod + "/aa": c.sandbox,
			pod + "/bb": c.container})
		pods, err := findPods(root)
		if err != nil || len(pods) != 1 {
			t.Fatalf("%s: %v, %v", name, pods, err)
		}
		o, alive, err := readOwner(pods[0])
		if err != nil || alive != c.alive {
			t.Errorf("%s: alive %t (%v), want %t", name, alive, err, c.alive)
		}
		if c.alive && o.CPUs.String() != c.cpus {
			t.Errorf("%s: it is on %s, want %s", name, o.CPUs, c.cpus)
		}
	}
}

func TestWhatVanishesIsNotThere(t *testing.T) {
	root := t.TempDir()
	gone := podCgroup{dir: filepath.Join(root, "kubepods", "podlse_2_plain_a"),
		pod: sweep.Pod{Class: sweep.LSE, Size: 2}}
	if _, alive, err := readOwner(gone); alive || err != nil {
		t.Errorf("alive %t, %v", alive, err)
	}
	if tids, err := threadsBelow(gone.dir); len(tids) != 0 || err != nil {
		t.Errorf("threads %v, %v", tids, err)
	}
	if p, err := takePicture(root); len(p) != 0 || err != nil {
		t.Errorf("picture %v, %v", p, err)
	}
}

func TestBothDriversAndNestedCgroups(t *testing.T) {
	root := fakeTree(t, map[string][2]string{
		"kubepods/burstable/podls_0_plain_w":                                                      {"0-3", ""},
		"kubepods/burstable/podls_0_plain_w/c":                                                    {"0-3", "5\n6\n"},
		"kubepods/burstable/podls_0_plain_w/c/nested":                                             {"0-2", "7\n"},
		"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbe_0_plain_b.slice":      {"0-7", ""},
		"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbe_0_plain_b.slice/x.sc": {"0-7", "8\n"},
		"kubepods/pod1234":   {"0-7", ""},
		"system.slice/ssh/x": {"0-7", "9\n"},
	})
	pods, err := findPods(root)
	if err != nil || len(pods) != 2 {
		t.Fatalf("%v, %v", pods, err)
	}
	count := 0
	for _, p := range pods {
		tids, err := threadsBelow(p.dir)
		if err != nil {
			t.Fatal(err)
		}
		count += len(tids)
	}
	if count != 4 {
		t.Errorf("%d threads, want 4", count)
	}
	p, err := takePicture(root)
	if err != nil || p["kubepods/burstable/podls_0_plain_w/c/nested/cpuset.cpus.effective"] != "0-2" || len(p) != 6 {
		t.Errorf("%v, %v", p, err)
	}
}

func TestReadMachine(t *testing.T) {
	dir := t.TempDir()
	for cpu, files := range [][2]string{{"0\n", "0-1\n"}, {"0\n", "0-1\n"}, {"1\n", "2\n"}} {
		topology := filepath.Join(dir, "cpu"+string(rune('0'+cpu)), "topology")
		if err := os.MkdirAll(topology, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"physical_package_id": files[0], "thread_siblings_list": files[1]} {
			if err := os.WriteFile(filepath.Join(topology, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	m, err := readMachine(dir)
	if err != nil || len(m.Siblings) != 3 || len(m.Sockets) != 2 || m.Siblings[1] != cpuset.Of(0, 1) {
		t.Errorf("%+v, %v", m, err)
	}
}
