package sysfs_test

import (
	"archive/tar"
	"compress/bzip2"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

const machineTarballs = "../../shared/testdata/hwloc/*.tar.bz2"

// differences are where the kernel's own files say something else than hwloc,
// and why we follow the files. Key: machine, level.
func differences(machine, level string) (why string) {
	return map[string]string{
		// node1..7 list the CPUs of node0 (numa=fake). hwloc drops nodes 1-7; node/online
		// and their meminfo say that they are there with 2 GiB each, so they stay as
		// nodes without CPUs. The CPUs' partition is the same.
		"8em64t-2s2ca2c-buggynuma distances": "hwloc drops nodes that repeat node 0's CPUs; their memory is real",
		"8em64t-2s2ca2c-buggynuma nodes":     "hwloc drops nodes that repeat node 0's CPUs; their memory is real",
		// node0 is offline (no memory) but cpu*/node0 links say whose the even CPUs are.
		// hwloc shows no NUMA node for them; we name node 0, which has no memory.
		"offline-cpu0-node0 distances": "hwloc has no distances of one node; ours come from node1/distance",
	}[machine+" "+level]
}

// TestRealMachinesAsHwlocSeesThem reads the /sys trees of real machines and
// compares with lstopo, the reference implementation of such reading.
func TestRealMachinesAsHwlocSeesThem(t *testing.T) {
	tarballs, err := filepath.Glob(machineTarballs)
	if err != nil || len(tarballs) == 0 {
		t.Skipf("needs hwloc's tarballs of real machines at %s, which are not part of this repository", machineTarballs)
	}
	lstopo := findLstopo(t)
	for _, tarball := range tarballs {
		t.Run(strings.TrimSuffix(filepath.Base(tarball), ".tar.bz2"), func(t *testing.T) {
			t.Parallel()
			root := unpack(t, tarball)
			got, warnings, err := sysfs.Read(os.DirFS(root))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				t.Log(w)
			}
			compareWithHwloc(t, got, runLstopo(t, lstopo, root))
		})
	}
}

// TestThisMachineAsHwlocSeesIt needs nothing that is not on every machine.
func TestThisMachineAsHwlocSeesIt(t *testing.T) {
	got, _, err := sysfs.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	compareWithHwloc(t, got, runLstopo(t, findLstopo(t), "/"))
}

// TestMadeMachinesAsHwlocSeesThem holds the trees that other tests are given, and our
// reading of them, against the reference.
func TestMadeMachinesAsHwlocSeesThem(t *testing.T) {
	lstopo := findLstopo(t)
	for name, g := range map[string]topology.Grid{
		"laptop":      {Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2},
		"no SMT":      {Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 8, ThreadsPerCore: 1},
		"small L3s":   {Sockets: 2, NodesPerSocket: 2, L3PerNode: 4, CoresPerL3: 4, ThreadsPerCore: 2},
		"four a core": {Sockets: 1, NodesPerSocket: 2, L3PerNode: 2, CoresPerL3: 2, ThreadsPerCore: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := g.Build()
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			if err := os.CopyFS(filepath.Join(root, "sys"), sysfstest.Tree(made)); err != nil {
				t.Fatal(err)
			}
			got, _, err := sysfs.Read(os.DirFS(root))
			if err != nil {
				t.Fatal(err)
			}
			compareWithHwloc(t, got, runLstopo(t, lstopo, root))
		})
	}
}

// TestTheArm64ServerAsHwlocSeesIt holds a fixture against the reference; the other fixtures
// lack files that hwloc insists on.
func TestTheArm64ServerAsHwlocSeesIt(t *testing.T) {
	lstopo := findLstopo(t)
	a, err := txtar.ParseFile("testdata/arm64-server.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tree, _ := fixture(a)
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "sys"), tree); err != nil {
		t.Fatal(err)
	}
	got, _, err := sysfs.Read(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	compareWithHwloc(t, got, runLstopo(t, lstopo, root))
}

func findLstopo(t *testing.T) string {
	t.Helper()
	lstopo, err := exec.LookPath("lstopo-no-graphics")
	if err != nil {
		skipUnlessCI(t, "lstopo-no-graphics is missing: install the Debian package hwloc or hwloc-nox")
	}
	return lstopo
}

func skipUnlessCI(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("QUIETCORE_CI") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func compareWithHwloc(t *testing.T, got *topology.Topology, want *hwlocMachine) {
	machine := strings.TrimPrefix(t.Name(), "TestRealMachinesAsHwlocSeesThem/")
	check := func(level, have, expect string) {
		t.Helper()
		why := differences(machine, level)
		switch {
		case have != expect && why == "":
			t.Errorf("%s: %s, hwloc says %s", level, have, expect)
		case have == expect && why != "":
			t.Errorf("%s: no difference any more from hwloc; drop the exception %q", level, why)
		}
	}
	check("online", got.Online().String(), want.online().String())
	of := levels()
	check("packages", blocks(got, of["socket"]), want.blocks("Package"))
	check("cores", blocks(got, of["core"]), want.blocks("Core"))
	check("numa", blocks(got, of["node"]), want.blocksOrRest("NUMANode"))
	if l2 := want.blocks("L2Cache"); l2 != "" {
		check("l2", blocks(got, of["l2"]), l2)
	}
	if l3 := want.blocks("L3Cache"); l3 != "" {
		check("l3", blocks(got, of["l3"]), l3)
	}
	nodes := got.MemoryNodes()
	check("nodes", nodes.String(), want.nodes().String())
	for _, n := range got.Nodes() {
		if bytes, there := want.memory()[n.ID]; there && bytes != n.MemoryBytes {
			t.Errorf("node %d has %d bytes, hwloc says %d", n.ID, n.MemoryBytes, bytes)
		}
	}
	if d := want.distances(); d != "" || len(got.Nodes()) > 1 {
		check("distances", distancesOf(got), d)
	}
	if kinds := want.slowKind(); kinds != "" {
		check("efficiency cores", efficiencyOf(got), kinds)
	}
}

func distancesOf(t *topology.Topology) string {
	var out []string
	for i := range t.Nodes() {
		for j := range t.Nodes() {
			out = append(out, strconv.Itoa(t.Distance(i, j)))
		}
	}
	return strings.Join(out, " ")
}

func efficiencyOf(t *topology.Topology) string {
	var s cpuset.Set
	for _, c := range t.CPUs() {
		if c.Kind == topology.Efficiency {
			s.Add(c.ID)
		}
	}
	return s.String()
}

func joinBlocks(sets []cpuset.Set) string {
	slices.SortFunc(sets, func(a, b cpuset.Set) int { return a.First() - b.First() })
	parts := make([]string, len(sets))
	for i, s := range sets {
		parts[i] = s.String()
	}
	return strings.Join(parts, " | ")
}

// hwlocMachine is the XML of lstopo as far as it is compared.
type hwlocMachine struct {
	Objects   []hwlocObject   `xml:"object"`
	Distances []hwlocDistance `xml:"distances2"`
	Kinds     []struct {
		CPUs string `xml:"cpuset,attr"`
	} `xml:"cpukind"`
}

type hwlocObject struct {
	Type    string        `xml:"type,attr"`
	Index   int           `xml:"os_index,attr"`
	CPUs    string        `xml:"cpuset,attr"`
	Memory  uint64        `xml:"local_memory,attr"`
	Objects []hwlocObject `xml:"object"`
}

type hwlocDistance struct {
	Type   string   `xml:"type,attr"`
	Values []string `xml:"u64values"`
}

// runLstopo reads with hwloc's Linux back end only: its x86 one would ask the
// CPU of this machine. Without --disallowed it hides what the cgroup that the
// tree was copied in was not allowed to use.
func runLstopo(t *testing.T, lstopo, root string) *hwlocMachine {
	cmd := exec.Command(lstopo, "--of", "xml", "--disallowed", "--no-io")
	cmd.Env = append(os.Environ(), "HWLOC_FSROOT="+root, "HWLOC_THISSYSTEM=0", "HWLOC_COMPONENTS=linux,stop")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("lstopo: %v", err)
	}
	m := &hwlocMachine{}
	if err := xml.Unmarshal(out, m); err != nil {
		t.Fatalf("lstopo's XML: %v", err)
	}
	return m
}

func (m *hwlocMachine) each(kind string, visit func(hwlocObject)) {
	var walk func([]hwlocObject)
	walk = func(objects []hwlocObject) {
		for _, o := range objects {
			if o.Type == kind {
				visit(o)
			}
			walk(o.Objects)
		}
	}
	walk(m.Objects)
}

func (m *hwlocMachine) sets(kind string) (sets []cpuset.Set) {
	m.each(kind, func(o hwlocObject) {
		if s := hwlocSet(o.CPUs); !s.IsEmpty() {
			sets = append(sets, s)
		}
	})
	return sets
}

func (m *hwlocMachine) blocks(kind string) string { return joinBlocks(m.sets(kind)) }

// blocksOrRest counts CPUs that are in no block as one more.
func (m *hwlocMachine) blocksOrRest(kind string) string {
	rest := m.online()
	sets := m.sets(kind)
	for _, s := range sets {
		rest = rest.Minus(s)
	}
	if !rest.IsEmpty() {
		sets = append(sets, rest)
	}
	return joinBlocks(sets)
}

func (m *hwlocMachine) online() (all cpuset.Set) {
	m.each("PU", func(o hwlocObject) { all = all.Or(hwlocSet(o.CPUs)) })
	return all
}

func (m *hwlocMachine) nodes() (all cpuset.Set) {
	m.each("NUMANode", func(o hwlocObject) { all.Add(o.Index) })
	return all
}

func (m *hwlocMachine) memory() map[int]uint64 {
	bytes := map[int]uint64{}
	m.each("NUMANode", func(o hwlocObject) { bytes[o.Index] = o.Memory })
	return bytes
}

// distances are empty where hwloc has none, and "10" for a single node.
func (m *hwlocMachine) distances() string {
	for _, d := range m.Distances {
		if d.Type == "NUMANode" {
			return strings.Join(strings.Fields(strings.Join(d.Values, " ")), " ")
		}
	}
	return ""
}

// slowKind is the least of the kinds that hwloc ranks, empty where there is one.
func (m *hwlocMachine) slowKind() string {
	if len(m.Kinds) < 2 {
		return ""
	}
	return hwlocSet(m.Kinds[0].CPUs).String()
}

// hwlocSet reads "0x0000000f,0x00000000"; a missing leading group is zero.
func hwlocSet(text string) (s cpuset.Set) {
	groups := strings.Split(text, ",")
	for i, g := range groups {
		bits, _ := strconv.ParseUint(strings.TrimPrefix(g, "0x"), 16, 32)
		for b := range 32 {
			if bits>>b&1 == 1 {
				s.Add((len(groups)-1-i)*32 + b)
			}
		}
	}
	return s
}

// unpack extracts regular files, directories and links that stay inside.
func unpack(t *testing.T, tarball string) string {
	f, err := os.Open(tarball)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	top := ""
	for tr := tar.NewReader(bzip2.NewReader(f)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, top)
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Clean(h.Name)
		if top == "" {
			top, _, _ = strings.Cut(name, "/")
		}
		extract(t, root, name, h, tr)
	}
}

func extract(t *testing.T, root *os.Root, name string, h *tar.Header, r io.Reader) {
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	case tar.TypeSymlink:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := root.Symlink(h.Linkname, name); err != nil {
			t.Fatal(err)
		}
	case tar.TypeReg:
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(io.LimitReader(r, 8<<20))
		if err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
