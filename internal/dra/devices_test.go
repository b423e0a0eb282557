package dra

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

var update = flag.Bool("update", false, "write what was made as the wanted slices into testdata")

// machine reads a fixture of package sysfs, with the roots of PCIe that rows add.
func machine(t *testing.T, name string, roots map[string]string) (*topology.Topology, map[string]cpuset.Set) {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("../../sysfs/testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for _, f := range a.Files {
		tree[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o444}
	}
	for root, cpus := range roots {
		tree["devices/"+root+"/pci_bus/"+strings.TrimPrefix(root, "pci")+"/cpulistaffinity"] = &fstest.MapFile{
			Data: []byte(cpus + "\n"), Mode: 0o444}
	}
	topo, _, err := sysfs.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	return topo, ReadRoots(tree)
}

// TestSlices compares whole slices with testdata.
func TestSlices(t *testing.T) {
	for _, c := range []struct {
		machine string
		by      config.DRADevices
		share   config.Share
		kept    string
		lists   bool
		maps    bool
		roots   map[string]string
	}{
		{machine: "two-sockets-split", by: config.DevicesNUMA, share: "50%", kept: "0,4",
			roots: map[string]string{"pci0000:00": "0-1,4-5", "pci0000:80": "2-3,6-7", "pci0000:ff": "0-7"}},
		{machine: "two-sockets-split", by: config.DevicesSocket, share: "3", lists: true,
			roots: map[string]string{"pci0000:00": "0-1,4-5", "pci0000:40": "0-1,4-5", "pci0000:80": "2-3,6-7"}},
		{machine: "ccx-l3s-in-node", by: config.DevicesL3, share: "100%", maps: true},
		{machine: "hybrid-pmu", by: config.DevicesNUMA, share: "100%"},
		{machine: "offline-sibling", by: config.DevicesNUMA, share: "100%"},
	} {
		name := fmt.Sprintf("%s-%s", c.machine, c.by)
		t.Run(name, func(t *testing.T) {
			topo, roots := machine(t, c.machine, c.roots)
			kept, err := cpuset.Parse(c.kept)
			if err != nil {
				t.Fatal(err)
			}
			n := NewNode(Options{Name: "n1", Topology: topo, By: c.by, Share: c.share, Kept: kept, Roots: roots,
				Lists: c.lists, Allocatable: c.maps})
			text, err := yaml.Marshal(n.Slices())
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != string(text) {
				t.Errorf("got\n%s\nwant (%v)\n%s", text, err, want)
			}
		})
	}
}

// A share that follows owners offers what a claim could have now besides what claims have. A device that has nothing
// to offer is in no slice, and its claims find it. Owners leave nothing.
func TestTheDynamicShare(t *testing.T) {
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 1}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		free  string
		spare int
		had   map[string]int
		want  []int
	}{
		{"0-7", 7, nil, []int{4, 4}},
		{"2-7", 5, map[string]int{"numa-0": 1}, []int{3, 4}},
		{"2-7", 1, map[string]int{"numa-0": 1}, []int{2, 1}},
		{"4-7", 3, nil, []int{0, 3}},
		{"", 0, map[string]int{"numa-1": 4}, []int{0, 4}},
	} {
		free, err := cpuset.Parse(c.free)
		if err != nil {
			t.Fatal(err)
		}
		n := NewNode(Options{Name: "n1", Topology: topo, By: config.DevicesNUMA, Share: config.ShareDynamic, Free: free,
			Spare: c.spare, Had: c.had})
		var want []string
		for i, d := range n.Devices {
			if d.Offered != c.want[i] {
				t.Errorf("free %s, %d may go: %s offers %d, want %d", c.free, c.spare, d.Name, d.Offered, c.want[i])
			}
			if c.want[i] > 0 {
				want = append(want, fmt.Sprint(d.Name, " ", c.want[i]))
			}
			if _, ok := n.Device(d.Name); !ok {
				t.Errorf("device %s is not found", d.Name)
			}
		}
		var got []string
		for _, d := range n.Slices()[0].Devices {
			cpu := d.Capacity[Capacity].Value
			got = append(got, d.Name+" "+cpu.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("the slice has %v, want %v", got, want)
		}
		if len(n.Shares()) > 0 {
			t.Errorf("owners leave %v", n.Shares())
		}
	}
}

// Slices of more devices than one holds have the number of all.
func TestManyDevices(t *testing.T) {
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 65, CoresPerL3: 1, ThreadsPerCore: 1}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for lists, want := range map[bool][]int{false: {128, 2}, true: {64, 64, 2}} {
		specs := NewNode(Options{Name: "n1", Topology: topo, By: config.DevicesL3, Share: "100%",
			Lists: lists}).Slices()
		var got []int
		for _, s := range specs {
			got = append(got, len(s.Devices))
			if int(s.Pool.ResourceSliceCount) != len(want) {
				t.Errorf("a slice says that there are %d, of %d", s.Pool.ResourceSliceCount, len(want))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("lists %v: slices of %v devices, want %v", lists, got, want)
		}
	}
}

// Whatever is divided, all of it is given, nobody gets more than he has, and nobody is off by one or more.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 64), 1, 12).Draw(t, "sizes")
		total := 0
		for _, s := range sizes {
			total += s
		}
		n, given := rapid.IntRange(0, total).Draw(t, "n"), 0
		for i, part := range split(n, sizes) {
			given += part
			if part > sizes[i] || part*total <= n*sizes[i]-total || part*total >= n*sizes[i]+total {
				t.Fatalf("%d of %d for the part of %d of %d", part, n, sizes[i], total)
			}
		}
		if given != n {
			t.Fatalf("%d of %d given", given, n)
		}
	})
}
