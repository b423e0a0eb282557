package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

var a = Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 2, ThreadsPerCore: 2, Numbering: "adjacent"}

func TestQemuArgs(t *testing.T) {
	got := strings.Join(a.qemuArgs(2049, a.CPUs()), " ")
	for _, want := range []string{
		"-smp 16,maxcpus=16,sockets=2,dies=2,cores=2,threads=2",
		"-object memory-backend-ram,id=m0,size=512M -numa node,nodeid=0,cpus=0-3,memdev=m0",
		"-object memory-backend-ram,id=m3,size=513M -numa node,nodeid=3,cpus=12-15,memdev=m3",
		"dist,src=0,dst=1,val=12", "dist,src=0,dst=2,val=20", "dist,src=3,dst=2,val=12",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "src=1,dst=1") {
		t.Errorf("a distance of a node to itself in %s", got)
	}
}

func TestQemuArgsOfOneNode(t *testing.T) {
	args := Grid{1, 1, 2, 4, 2, "", ""}.qemuArgs(2048, 16)
	if slices.Contains(args, "-numa") || !slices.Contains(args, "16,maxcpus=16,sockets=1,dies=2,cores=4,threads=2") {
		t.Errorf("%v", args)
	}
}

func TestQemuArgsOfAMachineThatLacksCPUs(t *testing.T) {
	if got := strings.Join(a.qemuArgs(2048, 14), " "); !strings.Contains(got, "-smp 14,maxcpus=16,sockets=2") ||
		!strings.Contains(got, "nodeid=3,cpus=12-15") {
		t.Error(got)
	}
}

func TestNotRealisable(t *testing.T) {
	for name, g := range map[string]Grid{
		"split":         {1, 1, 1, 2, 2, "split", ""},
		"four threads":  {1, 1, 1, 2, 4, "", ""},
		"too many CPUs": {2, 1, 1, 64, 2, "", ""},
	} {
		var not NotRealisable
		if err := g.Check(); !errors.As(err, &not) {
			t.Errorf("%s: %v, want NotRealisable", name, err)
		}
	}
	for name, g := range map[string]Grid{"zero": {1, 1, 0, 2, 2, "", ""}, "numbering": {1, 1, 1, 2, 2, "random", ""}} {
		var not NotRealisable
		if err := g.Check(); err == nil || errors.As(err, &not) {
			t.Errorf("%s: %v, want an error about the input", name, err)
		}
	}
	for _, g := range []Grid{a, {2, 1, 1, 8, 1, "split", ""}} {
		if err := g.Check(); err != nil {
			t.Errorf("%v: %v", g, err)
		}
	}
}

func TestBlockOf(t *testing.T) {
	for _, tc := range []struct {
		cpu, size int
		want      string
	}{{5, 4, "4-7"}, {0, 1, "0"}, {7, 2, "6-7"}, {11, 6, "6-11"}, {12, 4, "12-13"}, {14, 2, ""}, {13, 1, "13"}} {
		if got := blockOf(tc.cpu, tc.size, 14); got != tc.want {
			t.Errorf("blockOf(%d, %d) = %s, want %s", tc.cpu, tc.size, got, tc.want)
		}
	}
}
