package ledger

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

const (
	// maxMachine bounds the text of a machine, maxInflated what is in it: 8,192 CPUs in
	// numbers of five digits.
	maxMachine  = 64 << 10
	maxInflated = 1 << 20
	// maxNodes bounds NUMA nodes, memory-only ones included.
	maxNodes = 1 << 10
	// machineForm heads the text: the version, and that it is compressed.
	machineForm = "1:"
)

// machineDoc is a machine by columns, one entry a CPU: they compress to a few bytes a CPU.
type machineDoc struct {
	ID       []int          `json:"id"`
	Core     []int          `json:"core"`
	L3       []int          `json:"l3"`
	Node     []int          `json:"node"`
	Socket   []int          `json:"socket"`
	Kind     []int          `json:"kind,omitempty"` // 1: efficiency; left out: none is
	Offline  cpuset.Packed  `json:"offline,omitempty"`
	Isolated cpuset.Packed  `json:"isolated,omitempty"`
	Memory   map[int]uint64 `json:"memory"` // bytes by NUMA node; 0: unknown
	Distance [][]int        `json:"distance"`
}

func encodeMachine(t *topology.Topology) (string, error) {
	var d machineDoc
	hybrid := false
	for _, c := range t.CPUs() {
		d.ID, d.Core, d.L3 = append(d.ID, c.ID), append(d.Core, c.Core), append(d.L3, c.L3)
		d.Node, d.Socket, d.Kind = append(d.Node, c.Node), append(d.Socket, c.Socket), append(d.Kind, int(c.Kind))
		hybrid = hybrid || c.Kind != topology.Performance
	}
	if !hybrid {
		d.Kind = nil
	}
	offline, isolated := t.Offline(), t.Isolated()
	d.Offline, d.Isolated = offline.Pack(), isolated.Pack()
	d.Memory = map[int]uint64{}
	for i := range t.Nodes() {
		n := &t.Nodes()[i]
		d.Memory[n.ID] = n.MemoryBytes
		row := make([]int, 0, len(t.Nodes()))
		for j := range t.Nodes() {
			row = append(row, t.Distance(i, j))
		}
		d.Distance = append(d.Distance, row)
	}
	text, err := json.Marshal(&d)
	if err != nil {
		return "", fmt.Errorf("machine: %w", err)
	}
	var out strings.Builder
	out.WriteString(machineForm)
	encoder := base64.NewEncoder(base64.RawStdEncoding, &out)
	w, err := flate.NewWriter(encoder, flate.BestCompression)
	if err != nil {
		return "", fmt.Errorf("machine: %w", err)
	}
	_, werr := w.Write(text)
	if err := errors.Join(werr, w.Close(), encoder.Close()); err != nil {
		return "", fmt.Errorf("machine: %w", err)
	}
	return out.String(), nil
}

func decodeMachine(text string) (*topology.Topology, error) {
	if len(text) > maxMachine {
		return nil, fmt.Errorf("machine: %d bytes, at most %d are read", len(text), maxMachine)
	}
	body, ok := strings.CutPrefix(text, machineForm)
	if !ok {
		return nil, fmt.Errorf("machine: %w", newer(text))
	}
	r := flate.NewReader(base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(body)))
	inflated, err := io.ReadAll(io.LimitReader(r, maxInflated+1))
	if err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	if len(inflated) > maxInflated {
		return nil, fmt.Errorf("machine: more than %d bytes", maxInflated)
	}
	var d machineDoc
	if err := json.NewDecoder(bytes.NewReader(inflated)).Decode(&d); err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	return d.build()
}

func (d *machineDoc) build() (*topology.Topology, error) {
	n := len(d.ID)
	if n > cpuset.MaxCPUs || len(d.Memory) > maxNodes {
		return nil, fmt.Errorf("machine: %d CPUs and %d NUMA nodes, at most %d and %d are possible", n, len(d.Memory),
			cpuset.MaxCPUs, maxNodes)
	}
	for _, column := range [][]int{d.Core, d.L3, d.Node, d.Socket} {
		if len(column) != n {
			return nil, fmt.Errorf("machine: %d CPUs and %d places", n, len(column))
		}
	}
	if len(d.Kind) != n && len(d.Kind) != 0 {
		return nil, fmt.Errorf("machine: %d CPUs and %d kinds", n, len(d.Kind))
	}
	cpus := make([]topology.CPU, n)
	for i := range cpus {
		c := topology.CPU{ID: d.ID[i], Core: d.Core[i], L2: d.Core[i], L3: d.L3[i], Die: d.Socket[i], Node: d.Node[i],
			Socket: d.Socket[i]}
		if len(d.Kind) > 0 && d.Kind[i] != 0 {
			c.Kind = topology.Efficiency
		}
		cpus[i] = c
	}
	o := topology.Options{Offline: d.Offline.Set(), Isolated: d.Isolated.Set(), Memory: d.Memory}
	t, err := topology.New(cpus, o)
	if err != nil {
		return nil, fmt.Errorf("machine: %w", err)
	}
	if len(d.Distance) != len(t.Nodes()) {
		return nil, fmt.Errorf("machine: distances of %d NUMA nodes, there are %d", len(d.Distance), len(t.Nodes()))
	}
	distances := map[int]map[int]int{}
	for i, row := range d.Distance {
		if len(row) != len(t.Nodes()) {
			return nil, fmt.Errorf("machine: %d distances in a row, there are %d NUMA nodes", len(row), len(t.Nodes()))
		}
		to := map[int]int{}
		for j, far := range row {
			to[t.Nodes()[j].ID] = far
		}
		distances[t.Nodes()[i].ID] = to
	}
	o.Distances = distances
	return topology.New(cpus, o)
}
