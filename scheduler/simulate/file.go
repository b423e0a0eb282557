package simulate

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/topology"
)

// maxNodes bounds the nodes of a file.
const maxNodes = 10_000

// document is the file before its parts are read as those of single nodes.
type document struct {
	Nodes []yaml.Node `yaml:"nodes"`
	Steps []yaml.Node `yaml:"steps"`
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
	if len(text) > script.MaxBytes {
		return nil, nil, fmt.Errorf("the file is larger than %d bytes", script.MaxBytes)
	}
	var d document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil {
		return nil, nil, err
	}
	if len(d.Nodes) == 0 || len(d.Nodes) > maxNodes {
		return nil, nil, fmt.Errorf("there are %d nodes; there must be 1 to %d", len(d.Nodes), maxNodes)
	}
	for i := range d.Nodes {
		p, err := parseNode(&d.Nodes[i], openSysfs)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", d.Nodes[i].Line, err)
		}
		if slices.ContainsFunc(parts, func(o part) bool { return o.name == p.name }) {
			return nil, nil, fmt.Errorf("line %d: node %s is there twice", d.Nodes[i].Line, p.name)
		}
		parts = append(parts, p)
	}
	for i := range d.Steps {
		s, err := parseStep(&d.Steps[i])
		if err == nil && s.node != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == s.node }) {
			err = fmt.Errorf("there is no node %s", s.node)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: step %d: %w", d.Steps[i].Line, i+1, err)
		}
		steps = append(steps, s)
	}
	return parts, steps, nil
}

// parseNode reads a node as a script of its own, without steps.
func parseNode(n *yaml.Node, openSysfs func(string) (fs.FS, error)) (p part, err error) {
	p.name, err = takeKey(n, "name")
	if err != nil {
		return p, err
	}
	if p.name == "" {
		return p, fmt.Errorf("a node has no name")
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return p, err
	}
	if p.file, err = script.Parse(text); err != nil {
		return p, fmt.Errorf("node %s: %w", p.name, err)
	}
	if p.topology, _, err = p.file.Topology.Build(openSysfs); err != nil {
		return p, fmt.Errorf("node %s: %w", p.name, err)
	}
	return p, nil
}

// parseStep reads a step as the only one of a script.
func parseStep(n *yaml.Node) (s step, err error) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[1].Kind == yaml.MappingNode {
		if s.node, err = takeKey(n.Content[1], "node"); err != nil {
			return s, err
		}
	}
	text, err := yaml.Marshal(map[string]any{"topology": map[string]any{"grid": map[string]any{}},
		"steps": []*yaml.Node{n}})
	if err != nil {
		return s, err
	}
	f, err := script.Parse(text)
	if err != nil {
		return s, err
	}
	s.Step = f.Steps[0]
	return s, nil
}

// takeKey takes a key with a text out of a mapping.
func takeKey(n *yaml.Node, key string) (value string, err error) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Kind == yaml.MappingNode {
			err = n.Content[i+1].Decode(&value)
			n.Content = slices.Delete(n.Content, i, i+2)
			return value, err
		}
	}
	return "", nil
}
