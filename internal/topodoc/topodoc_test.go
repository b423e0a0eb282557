package topodoc

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

func decode(t *testing.T, text string) Doc {
	t.Helper()
	var d Doc
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBuild(t *testing.T) {
	machine, err := topology.Grid{Sockets: 2, CoresPerL3: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	tree := sysfstest.Tree(machine)
	delete(tree, "devices/system/cpu/isolated")
	open := func(dir string) (fs.FS, error) {
		if dir == "/sys" {
			return tree, nil
		}
		if dir == "/empty" {
			return fstest.MapFS{}, nil
		}
		return nil, errors.New("no such directory")
	}
	for _, c := range []struct {
		name, doc, online, nodes, wrong string
		warnings                        int
	}{
		{name: "grid", doc: `{"grid":{"sockets":2,"coresPerL3":4,"threadsPerCore":2,"numbering":"split"}}`,
			online: "0-15", nodes: "0-1"},
		{name: "grid of nothing is one CPU", doc: `{"grid":{}}`, online: "0", nodes: "0"},
		{name: "cpus",
			doc: `{"cpus":[{"id":3,"core":0,"l3":0,"node":1,"socket":0},{"id":9,"core":1,"l3":0,"node":0,"socket":0,` +
				`"kind":"efficiency"}]}`, online: "3,9", nodes: "0-1"},
		{name: "sysfs", doc: `{"sysfs":"/sys"}`, online: "0-3", nodes: "0-1", warnings: 1},
		{name: "isolated", doc: `{"grid":{"coresPerL3":4},"isolated":"2-3"}`, online: "0-3", nodes: "0"},
		{name: "isolated and unknown", doc: `{"grid":{"coresPerL3":4},"isolated":"3-4"}`,
			wrong: "isolated: this machine has no CPU 4, it has 0-3"},
		{name: "isolated beside sysfs",
			doc: `{"sysfs":"/sys","isolated":"1"}`, wrong: "isolated is given beside sysfs"},
		{name: "nothing", doc: `{}`, wrong: "give one of grid, cpus or sysfs"},
		{name: "two", doc: `{"grid":{},"sysfs":"/sys"}`, wrong: "grid and sysfs are given"},
		{name: "empty list", doc: `{"cpus":[]}`, wrong: "cpus is empty"},
		{name: "kind", doc: `{"cpus":[{"id":3,"kind":"fast"}]}`, wrong: `kind "fast" is neither`},
		{name: "node", doc: `{"cpus":[{"id":3,"node":8192}]}`, wrong: "node 8192 is outside"},
		{name: "twice", doc: `{"cpus":[{"id":3},{"id":3}]}`, wrong: "CPU 3 is listed twice"},
		{name: "numbering", doc: `{"grid":{"numbering":"odd"}}`, wrong: `numbering is "odd"`},
		{name: "no directory", doc: `{"sysfs":"/nowhere"}`, wrong: `"/nowhere": no such directory`},
		{name: "no tree", doc: `{"sysfs":"/empty"}`, wrong: "give the directory that holds the /sys tree"},
	} {
		got, warnings, err := decode(t, c.doc).Build(open)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want an error with %q", c.name, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if o, n := got.Online().String(), got.MemoryNodes().String(); o != c.online || n != c.nodes ||
			len(warnings) != c.warnings {
			t.Errorf("%s: CPUs %s, nodes %s, warnings %v; want %s, %s, %d", c.name, o, n, warnings, c.online, c.nodes,
				c.warnings)
		}
	}
	if _, _, err := (Doc{Sysfs: "/sys"}).Build(nil); err == nil {
		t.Error("a /sys tree was read without a way to open it")
	}
}

func TestJSON(t *testing.T) {
	m, err := topology.New([]topology.CPU{
		{ID: 0}, {ID: 1}, {ID: 4, Core: 1, L2: 1, Node: 2, L3: 1, Die: 1, Socket: 1, Kind: topology.Efficiency},
	}, topology.Options{Offline: cpuset.Of(1, 7), Isolated: cpuset.Of(4), Memory: map[int]uint64{0: 1 << 20, 2: 0},
		Distances: map[int]map[int]int{0: {2: 21}, 2: {0: 21}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := JSON(m)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"cpus":[` +
		`{"id":0,"core":0,"l2":0,"l3":0,"die":0,"node":0,"socket":0,"online":true,"kind":"performance"},` +
		`{"id":1,"core":0,"l2":0,"l3":0,"die":0,"node":0,"socket":0,"online":false,"kind":"performance"},` +
		`{"id":4,"core":1,"l2":1,"l3":1,"die":1,"node":2,"socket":1,"online":true,"kind":"efficiency"}],` +
		`"offline":"1,7","isolated":"4","distances":[[10,21],[21,10]],` +
		`"nodes":[{"id":0,"cpus":"0-1","memoryBytes":1048576},{"id":2,"cpus":"4","memoryBytes":0}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestJSONOfOrdinaryMachineNamesNoKind(t *testing.T) {
	m, err := topology.Grid{CoresPerL3: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := JSON(m)
	if err != nil || !strings.Contains(string(got), `"kind":""`) || strings.Contains(string(got), "performance") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestOfReadsBack(t *testing.T) {
	want := decode(t,
		`{"isolated":"9","cpus":[{"id":3,"core":0,"l3":2,"node":1,"socket":0,"kind":"performance"},`+
			`{"id":9,"core":1,"l3":0,"node":0,"socket":4,"kind":"efficiency"}]}`)
	m, _, err := want.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b cpuset.Set) bool { return a == b })
	if diff := cmp.Diff(want, Of(m), same); diff != "" {
		t.Error(diff)
	}
}

func TestParseIsTheMachineOfJSON(t *testing.T) {
	machine, err := topology.Grid{Sockets: 2, CoresPerL3: 2, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if machine, err = machine.WithOnline(cpuset.Of(0, 1, 5)); err != nil {
		t.Fatal(err)
	}
	if machine, err = machine.WithIsolated(cpuset.Of(5, 7)); err != nil {
		t.Fatal(err)
	}
	doc, err := JSON(machine)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(doc)
	if err != nil {
		t.Fatal(err)
	}
	if got.Online() != machine.Online() || got.Isolated() != machine.Isolated() ||
		!cmp.Equal(got.CPUs(), machine.CPUs()) {
		t.Errorf("online %s, %+v; want %s, %+v", got.Online(), got.CPUs(), machine.Online(), machine.CPUs())
	}
	if _, err := Parse([]byte(`{"cpus":[]}`)); err == nil {
		t.Error("a machine without CPUs is taken")
	}
}
