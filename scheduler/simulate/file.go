package simulate

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/strict"
	"github.com/quietcore/quietcore/topology"
)

// maxNodes bounds the nodes of a file.
const maxNodes = 10_000

// document is the file before its parts are read as those of single nodes.
type document struct {
	Nodes []strict.Part `json:"nodes"`
	Steps []strict.Part `json:"steps"`
}

// step is one of the file, and the node that it names; empty: none.
type step struct {
	script.Step
	node string
}

// part is one node of a file.
type part struct {
	name     string
	file     *script.File
	topology *topology.Topology
}

func parse(text []byte, openSysfs func(string) (fs.FS, error)) (parts []part, steps []step, err error) {
	var d document
	decoder := strict.NewDecoder()
	decoder.Max = script.MaxBytes
	if err := decoder.Unmarshal(text, 1, &d); err != nil {
		return nil, nil, err
	}
	if len(d.Nodes) == 0 || len(d.Nodes) > maxNodes {
		return nil, nil, fmt.Errorf("nodes: there are %d; there must be 1 to %d", len(d.Nodes), maxNodes)
	}
	known := map[string]*config.NodeConfig{"": {}}
	for _, at := range d.Nodes {
		p, err := parseNode(at, openSysfs)
		if err != nil {
			return nil, nil, err
		}
		if known[p.name] != nil {
			return nil, nil, at.Errorf("node %q is there twice; give each a name of its own", p.name)
		}
		known[p.name] = &p.file.Node
		parts = append(parts, p)
	}
	for _, at := range d.Steps {
		s, err := parseStep(at, known)
		if err != nil {
			return nil, nil, err
		}
		steps = append(steps, s)
	}
	return parts, steps, nil
}

// parseNode reads a node as a script of its own, without steps.
func parseNode(at strict.Part, openSysfs func(string) (fs.FS, error)) (p part, err error) {
	if p.name, err = at.Take("name"); err != nil {
		return p, err
	}
	if p.name == "" {
		return p, at.Errorf("the node has no name; give it the key \"name\"")
	}
	if p.file, err = script.ParseNode(at); err != nil {
		return p, err
	}
	if p.topology, _, err = p.file.Topology.Build(openSysfs); err != nil {
		return p, at.Errorf("topology: %v", err)
	}
	return p, nil
}

// parseStep reads a step as the only one of a script.
func parseStep(at strict.Part, known map[string]*config.NodeConfig) (s step, err error) {
	for _, op := range at.Values() {
		if s.node, err = op.Take("node"); err != nil {
			return s, err
		}
		if known[s.node] == nil {
			return s, op.Errorf("there is no node %q; the file has %s", s.node, names(known))
		}
	}
	if s.Step, err = script.ParseStep(at, known[s.node]); err != nil {
		return s, err
	}
	if pod, _ := subject(&s.Step); pod == "" && s.node == "" && s.Create == nil && s.Advance == nil {
		return s, at.Errorf("%s names no node; give it the key \"node\"", s.Op())
	}
	return s, nil
}

// names of some nodes, for a message.
func names(known map[string]*config.NodeConfig) string {
	const most = 5
	list := slices.Sorted(maps.Keys(known))[1:] // the first is empty: no node
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}
