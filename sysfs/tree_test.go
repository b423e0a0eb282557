package sysfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

// drawMachine is a machine as irregular as the model allows: sockets of
// different sizes, cores with one or two threads, memory-only nodes, holes in
// the CPU numbers, CPUs off, two kinds of cores.
func drawMachine(t *rapid.T) *topology.Topology {
	n := func(name string, least, most int) int { return rapid.IntRange(least, most).Draw(t, name) }
	var cpus []topology.CPU
	var id, core, l2, l3, node int
	memory, offline := map[int]uint64{}, cpuset.Set{}
	for socket := range n("sockets", 1, 3) {
		for range n("nodes", 1, 2) {
			node += n("node step", 1, 3)
			memory[node] = uint64(n("memory", 1, 1<<20)) << 10
			for range n("l3s", 1, 2) {
				l3++
				for range n("cores", 1, 3) {
					core++
					l2 += n("new l2", 0, 1)
					l2 = max(l2, l3*100) // an L2 lies within one L3
					kind := topology.Kind(n("kind", 0, 1))
					for range n("threads", 1, 2) {
						id += n("hole", 1, 300)
						cpus = append(cpus, topology.CPU{ID: id, Core: core, L2: l2, L3: l3, Die: node, Node: node,
							Socket: socket * 7, Kind: kind})
					}
				}
			}
		}
	}
	if n("memory-only node", 0, 1) == 1 {
		memory[node+2] = 1 << 30
	}
	for range n("offline", 0, 3) {
		id += n("hole", 1, 3)
		offline.Add(id)
	}
	distances := map[int]map[int]int{}
	for a := range memory {
		distances[a] = map[int]int{}
		for b := range memory {
			if distances[a][b] = 10; a != b {
				distances[a][b] = 11 + (a*b)%40
			}
		}
	}
	m, err := topology.New(cpus, topology.Options{Offline: offline, Isolated: cpuset.Of(cpus[0].ID), Memory: memory,
		Distances: distances})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReadGivesBackTheTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawMachine(t)
		got, warnings, err := sysfs.Read(sysfstest.Tree(want))
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v, warnings %v", err, warnings)
		}
		sameMachine(t, got, want)
	})
}

// sameMachine compares all but the numbers of cores, caches and dies, which
// are free as long as the same CPUs share them.
func sameMachine(t interface{ Fatalf(string, ...any) }, got, want *topology.Topology) {
	if got.Online() != want.Online() || got.Offline() != want.Offline() || got.Isolated() != want.Isolated() {
		t.Fatalf("online %s, offline %s, isolated %s; want %s, %s, %s", got.Online(), got.Offline(), got.Isolated(),
			want.Online(), want.Offline(), want.Isolated())
	}
	for name, of := range levels() {
		if g, w := blocks(got, of), blocks(want, of); g != w {
			t.Fatalf("%s: %s, want %s", name, g, w)
		}
	}
	hybrid := false
	for _, c := range want.CPUs() {
		hybrid = hybrid || c.Kind != want.CPUs()[0].Kind
	}
	for _, c := range got.CPUs() {
		w, _ := want.CPU(c.ID)
		if c.Node != w.Node || c.Socket != w.Socket || hybrid && c.Kind != w.Kind {
			t.Fatalf("CPU %d is %+v, want %+v", c.ID, c, w)
		}
	}
	if g, w := got.MemoryNodes(), want.MemoryNodes(); g != w {
		t.Fatalf("nodes %s, want %s", g, w)
	}
	for i, n := range want.Nodes() {
		if got.Nodes()[i].MemoryBytes != n.MemoryBytes {
			t.Fatalf("node %d has %d bytes, want %d", n.ID, got.Nodes()[i].MemoryBytes, n.MemoryBytes)
		}
		for j := range want.Nodes() {
			if got.Distance(i, j) != want.Distance(i, j) {
				t.Fatalf("distance %d-%d is %d, want %d", i, j, got.Distance(i, j), want.Distance(i, j))
			}
		}
	}
}

func levels() map[string]func(topology.CPU) int {
	return map[string]func(topology.CPU) int{
		"core":   func(c topology.CPU) int { return c.Core },
		"l2":     func(c topology.CPU) int { return c.L2 },
		"l3":     func(c topology.CPU) int { return c.L3 },
		"die":    func(c topology.CPU) int { return c.Die },
		"node":   func(c topology.CPU) int { return c.Node },
		"socket": func(c topology.CPU) int { return c.Socket },
	}
}

// blocks writes the partition that a number makes of the online CPUs,
// "0-1 | 2-3", whatever the numbers are.
func blocks(t *topology.Topology, of func(topology.CPU) int) string {
	sets := map[int]cpuset.Set{}
	for _, c := range t.CPUs() {
		online := t.Online()
		if online.Has(c.ID) {
			s := sets[of(c)]
			s.Add(c.ID)
			sets[of(c)] = s
		}
	}
	var list []cpuset.Set
	for _, s := range sets {
		list = append(list, s)
	}
	return joinBlocks(list)
}

func TestReadFindsTheTreeBelowSys(t *testing.T) {
	m, err := topology.Grid{CoresPerL3: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	below := fstest.MapFS{}
	for name, f := range sysfstest.Tree(m) {
		below["sys/"+name] = f
	}
	got, _, err := sysfs.Read(below)
	if err != nil {
		t.Fatal(err)
	}
	sameMachine(t, got, m)
}

// TestPlacesAreRememberedThroughSys takes CPUs off and on again, seeing only
// what /sys shows: the places of CPUs that are off stay right.
func TestPlacesAreRememberedThroughSys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := drawMachine(t)
		known, _, err := sysfs.Read(sysfstest.Tree(whole))
		if err != nil {
			t.Fatal(err)
		}
		on := whole.Online()
		for step := range 3 {
			var some cpuset.Set
			for cpu := range on.All() {
				if rapid.IntRange(0, 2).Draw(t, "on") > 0 {
					some.Add(cpu)
				}
			}
			if some.IsEmpty() {
				some.Add(on.First())
			}
			now, err := whole.WithOnline(some)
			if err != nil {
				t.Fatal(err)
			}
			fresh, _, err := sysfs.Read(sysfstest.Tree(now))
			if err != nil {
				t.Fatal(err)
			}
			if known, err = fresh.Remembering(known); err != nil {
				t.Fatal(err)
			}
			back, err := known.WithOnline(on)
			if err != nil {
				t.Fatal(err)
			}
			for name, of := range levels() {
				if g, w := blocks(back, of), blocks(whole, of); g != w {
					t.Fatalf("step %d with CPUs %s on: %s %s, want %s", step, some, name, g, w)
				}
			}
		}
	})
}

// onDisk writes a tree where Read meets real files, as in production.
func onDisk(b *testing.B, tree fstest.MapFS) string {
	dir := b.TempDir()
	for name, f := range tree {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func BenchmarkRead512(b *testing.B) {
	m, err := topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2,
		Numbering: topology.Split}.Build()
	if err != nil {
		b.Fatal(err)
	}
	fsys, err := sysfs.Open(onDisk(b, sysfstest.Tree(m)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		got, warnings, err := sysfs.Read(fsys)
		if err != nil || len(warnings) > 0 || len(got.Cores()) != 256 {
			b.Fatal(warnings, err)
		}
	}
}

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "-not-there"} {
		if _, err := sysfs.Open(dir); err == nil {
			t.Errorf("%s was opened", dir)
		}
	}
	if _, err := sysfs.Open(t.TempDir()); err != nil {
		t.Error(err)
	}
}
