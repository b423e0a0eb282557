// Package topodoc is the topology as people and programs write it: the document
// `topology:` of scripts and cases, and the output of `quietcore topology`.
//
//	topology: {grid: {sockets: 2, coresPerL3: 4, threadsPerCore: 2, numbering: split}}
//	topology: {cpus: [{id: 0, core: 0, l3: 0, node: 0, socket: 0}]}
//	topology: {sysfs: /sys}
//
// Exactly one of the three is given; with the first two, isolated are the CPUs that the kernel
// leaves out (isolcpus).
package topodoc

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

// Doc is the document `topology:`.
type Doc struct {
	Grid  *topology.Grid `json:"grid,omitempty"`
	CPUs  []CPU          `json:"cpus,omitempty"`
	Sysfs string         `json:"sysfs,omitempty"`
	// Isolated are taken from the kernel's scheduler; /sys says so itself.
	Isolated cpuset.Set `json:"isolated,omitzero"`
}

// CPU is one online CPU; all numbers are machine-wide.
type CPU struct {
	ID     int    `json:"id" strict:"required"`
	Core   int    `json:"core" strict:"required"` // left out it would make siblings of all
	L3     int    `json:"l3"`
	Node   int    `json:"node"`
	Socket int    `json:"socket"`
	Kind   string `json:"kind,omitempty"` // performance | efficiency; empty is performance
}

// Build makes the machine; the strings are what /sys left open. openSysfs opens
// a directory that holds a /sys tree; nil refuses documents that need one.
func (d Doc) Build(openSysfs func(dir string) (fs.FS, error)) (*topology.Topology, []string, error) {
	var given []string
	if d.Grid != nil {
		given = append(given, "grid")
	}
	if d.CPUs != nil {
		given = append(given, "cpus")
	}
	if d.Sysfs != "" {
		given = append(given, "sysfs")
	}
	switch {
	case len(given) == 0:
		return nil, nil, fmt.Errorf("topology: nothing is given; give one of grid, cpus or sysfs")
	case len(given) > 1:
		return nil, nil, fmt.Errorf("topology: %s are given; give one of them", strings.Join(given, " and "))
	case d.Sysfs == "":
		t, err := d.paper()
		return t, nil, err
	case !d.Isolated.IsEmpty():
		return nil, nil, fmt.Errorf("topology: isolated is given beside sysfs, which says it itself; leave it out")
	}
	return d.read(openSysfs)
}

// Open opens a directory that holds a /sys tree, for Build.
func Open(dir string) (fs.FS, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("no /sys tree at %q: %w", dir, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%q is no directory; a /sys tree is expected", dir)
	}
	return os.DirFS(dir), nil
}

// paper makes a machine that is only described.
func (d Doc) paper() (t *topology.Topology, err error) {
	if d.Grid != nil {
		t, err = d.Grid.Build()
	} else {
		t, err = d.list()
	}
	if err != nil || d.Isolated.IsEmpty() {
		return t, err
	}
	return t.WithIsolated(d.Isolated)
}

func (d Doc) list() (*topology.Topology, error) {
	if len(d.CPUs) == 0 {
		return nil, fmt.Errorf("topology: cpus is empty; list every online CPU as {id, core, l3, node, socket}")
	}
	cpus := make([]topology.CPU, len(d.CPUs))
	for i, c := range d.CPUs {
		kind, err := parseKind(c.Kind)
		if err != nil {
			return nil, fmt.Errorf("topology: cpus: CPU %d: %w", c.ID, err)
		}
		// Node numbers are kept in CPU-set-like masks, so they end where those end.
		if c.Node >= cpuset.MaxCPUs {
			return nil, fmt.Errorf("topology: cpus: CPU %d: node %d is outside 0-%d", c.ID, c.Node, cpuset.MaxCPUs-1)
		}
		cpus[i] = topology.CPU{ID: c.ID, Core: c.Core, L2: c.Core, L3: c.L3, Die: c.Socket, Node: c.Node,
			Socket: c.Socket, Kind: kind}
	}
	return topology.New(cpus, topology.Options{})
}

func parseKind(text string) (topology.Kind, error) {
	switch text {
	case "", topology.Performance.String():
		return topology.Performance, nil
	case topology.Efficiency.String():
		return topology.Efficiency, nil
	}
	return 0, fmt.Errorf("kind %q is neither %q nor %q", text, topology.Performance, topology.Efficiency)
}

func (d Doc) read(openSysfs func(dir string) (fs.FS, error)) (*topology.Topology, []string, error) {
	if openSysfs == nil {
		return nil, nil, fmt.Errorf("topology: sysfs %q cannot be read here; give grid or cpus", d.Sysfs)
	}
	fsys, err := openSysfs(d.Sysfs)
	if err != nil {
		return nil, nil, fmt.Errorf("topology: sysfs %q: %w", d.Sysfs, err)
	}
	t, found, err := sysfs.Read(fsys)
	warnings := make([]string, len(found))
	for i, w := range found {
		warnings[i] = w.String()
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("topology: sysfs %q: %w", d.Sysfs, err)
	}
	return t, warnings, nil
}

// Of writes a machine as a document: its online CPUs one by one. Distances,
// memory and CPUs that are off are not part of one.
func Of(t *topology.Topology) Doc {
	d := Doc{CPUs: []CPU{}, Isolated: t.Isolated()}
	online, hybrid := t.Online(), Hybrid(t)
	for _, c := range t.CPUs() {
		if !online.Has(c.ID) {
			continue
		}
		entry := CPU{ID: c.ID, Core: c.Core, L3: c.L3, Node: c.Node, Socket: c.Socket}
		if hybrid {
			entry.Kind = c.Kind.String()
		}
		d.CPUs = append(d.CPUs, entry)
	}
	return d
}

// output is the document of `quietcore topology -o json`.
type output struct {
	CPUs      []outputCPU  `json:"cpus"`
	Offline   cpuset.Set   `json:"offline"`
	Isolated  cpuset.Set   `json:"isolated"`
	Distances [][]int      `json:"distances"` // rows and columns in the order of nodes
	Nodes     []outputNode `json:"nodes"`
}

type outputCPU struct {
	ID     int    `json:"id"`
	Core   int    `json:"core"`
	L2     int    `json:"l2"`
	L3     int    `json:"l3"`
	Die    int    `json:"die"`
	Node   int    `json:"node"`
	Socket int    `json:"socket"`
	Online bool   `json:"online"`
	Kind   string `json:"kind"` // empty on a machine that is not hybrid
}

type outputNode struct {
	ID          int        `json:"id"`
	CPUs        cpuset.Set `json:"cpus"`
	MemoryBytes uint64     `json:"memoryBytes"` // 0 where unknown
}

// JSON is the document that `quietcore topology -o json` prints, in one line.
func JSON(t *topology.Topology) ([]byte, error) {
	out := output{Offline: t.Offline(), Isolated: t.Isolated(), Distances: [][]int{}, Nodes: []outputNode{}}
	online, hybrid := t.Online(), Hybrid(t)
	for _, c := range t.CPUs() {
		kind := ""
		if hybrid {
			kind = c.Kind.String()
		}
		out.CPUs = append(out.CPUs, outputCPU{ID: c.ID, Core: c.Core, L2: c.L2, L3: c.L3, Die: c.Die, Node: c.Node,
			Socket: c.Socket, Online: online.Has(c.ID), Kind: kind})
	}
	for i, n := range t.Nodes() {
		row := make([]int, len(t.Nodes()))
		for j := range row {
			row[j] = t.Distance(i, j)
		}
		out.Distances = append(out.Distances, row)
		out.Nodes = append(out.Nodes, outputNode{ID: n.ID, CPUs: n.CPUs, MemoryBytes: n.MemoryBytes})
	}
	return json.Marshal(out)
}

// Parse is the machine of a document that JSON made: its CPUs, and which are online.
func Parse(doc []byte) (*topology.Topology, error) {
	var in struct {
		CPUs []struct {
			CPU
			Online bool `json:"online"`
		} `json:"cpus"`
		Isolated cpuset.Set `json:"isolated"`
	}
	if err := json.Unmarshal(doc, &in); err != nil {
		return nil, err
	}
	d := Doc{Isolated: in.Isolated}
	var online cpuset.Set
	for _, c := range in.CPUs {
		d.CPUs = append(d.CPUs, c.CPU)
		if c.Online && c.ID >= 0 && c.ID < cpuset.MaxCPUs {
			online.Add(c.ID)
		}
	}
	t, _, err := d.Build(nil)
	if err != nil {
		return nil, err
	}
	return t.WithOnline(online)
}

// Hybrid reports whether the machine has cores of two kinds.
func Hybrid(t *topology.Topology) bool {
	first := t.Cores()[0].Kind
	for _, c := range t.Cores() {
		if c.Kind != first {
			return true
		}
	}
	return false
}
